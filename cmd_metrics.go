package main

// gpuctl run metrics: the metrics of a run in short, or their points. How points are written is in cmd_metrics_points.go, following them in
// cmd_metrics_follow.go.

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Axes of a metric.
const (
	axisStep     = "step"
	axisWall     = "wall"
	axisRelative = "relative"
)

type metricFlags struct {
	pattern, from, to, x, attempts string
	most                           int
	follow                         bool
}

func metricsCommand() command {
	return command{
		words: "run metrics", args: "RUN|JOB [NAME...]", short: "Show the metrics of a run, or the points of some", csv: true,
		long: `Without a name a table of all metrics: newest value, best one with its step, range, trend. With names, or with a flag
that picks points, the points themselves; -o json is the answer of REST with every value, -o csv has the columns
run,name,step,at,value. A job stands for its newest attempt.`,
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			var f metricFlags
			fs.StringVar(&f.pattern, "pattern", "", "only metrics whose name fits, like 'val/*' or '*loss*'")
			fs.StringVar(&f.from, "from", "", "only points from this `STEP` on (--x wall: a time, --x relative: 10m)")
			fs.StringVar(&f.to, "to", "", "only points up to this `STEP`")
			fs.StringVar(&f.x, "x", axisStep, "what --from, --to and --max-points go by: `step|wall|relative`")
			fs.IntVar(&f.most, "max-points", 0, "at most so many a metric: minimum, maximum and mean of what lies together")
			fs.StringVar(&f.attempts, "attempts", attemptsRun, "`run|trained|all`: this one, the newest one at each step, all of the job")
			fs.BoolVarP(&f.follow, "follow", "f", false, "go on until the run is over")
			return func(ctx context.Context, args []string) error { return c.metrics(ctx, f, args) }
		},
	}
}

func (c *cli) metrics(ctx context.Context, f metricFlags, args []string) error {
	if err := argCount(args, 1, -1, "RUN or JOB"); err != nil {
		return err
	}
	query, err := f.query(c.p.now)
	if err != nil {
		return err
	}
	ref, names := args[0], args[1:]
	if f.follow && (f.most > 0 || f.attempts != attemptsRun || f.x != axisStep) {
		return newProblem(codeUsage, "gpuctl run metrics -f "+ref, "--follow takes one run, point by point, by step: no --max-points, --attempts or --x goes with it")
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	short := len(names) == 0 && !f.follow && f.from == "" && f.to == "" && f.most == 0 && f.attempts == attemptsRun
	switch table := c.p.format == outTable || c.p.format == outWide; {
	case c.p.format == outName || table && short:
		return c.metricList(ctx, cl, ref, names, f.pattern)
	case f.follow:
		return c.metricFollow(ctx, cl, ref, names, query)
	case c.p.format == outJSON:
		return c.metricPage(ctx, cl, ref, names, query)
	}
	return c.metricPoints(ctx, cl, ref, names, query)
}

// query makes the parameters of the request, without names.
func (f metricFlags) query(now time.Time) (url.Values, error) {
	if !slices.Contains([]string{axisStep, axisWall, axisRelative}, f.x) {
		return nil, newProblem(codeUsage, "--x step|wall|relative", "--x does not know %q", f.x)
	}
	if !slices.Contains([]string{attemptsRun, attemptsTrained, attemptsAll}, f.attempts) {
		return nil, newProblem(codeUsage, "--attempts run|trained|all", "--attempts does not know %q", f.attempts)
	}
	if f.most < 0 {
		return nil, newProblem(codeUsage, "--max-points 1000", "--max-points %d: it cannot be below 0", f.most)
	}
	q := url.Values{}
	for _, end := range []struct{ name, text string }{{"from", f.from}, {"to", f.to}} {
		if end.text == "" {
			continue
		}
		n, err := axisNumber(f.x, end.text, now)
		if err != nil {
			return nil, newProblem(codeUsage, "", "--%s: %v", end.name, err)
		}
		q.Set(end.name, strconv.FormatInt(n, 10))
	}
	if f.pattern != "" {
		q.Set("pattern", f.pattern)
	}
	if f.x != axisStep {
		q.Set("x", f.x)
	}
	if f.most > 0 {
		q.Set("max_points", strconv.Itoa(f.most))
	}
	if f.attempts != attemptsRun {
		q.Set("attempts", f.attempts)
	}
	return q, nil
}

// metricList writes one row for each metric.
func (c *cli) metricList(ctx context.Context, cl *client, ref string, names []string, pattern string) error {
	run, err := cl.run(ctx, ref)
	if err != nil {
		return err
	}
	shown := run.Metrics
	if pattern != "" || len(names) > 0 { // what a pattern fits, the server knows
		q := metricQuery(filters("max_points", "1", "pattern", pattern), names)
		asked, err := c.metricsNamed(ctx, cl, run, q, names, func(metricSeries) error { return nil })
		if err != nil {
			return err
		}
		shown = slices.DeleteFunc(slices.Clone(shown), func(m metricView) bool { return !asked[metricKey(m.Source, m.Folder, m.Tag)] })
	}
	if len(shown) == 0 && c.p.format != outName {
		switch {
		case len(run.Metrics) > 0:
			c.p.sayf("gpuctl: no metric of run %s fits %q", run.ID, pattern)
		case runOver(run.State) && run.Drained:
			c.p.sayf("gpuctl: run %s wrote no metrics", run.ID)
		default:
			c.p.sayf("gpuctl: run %s has no metrics yet: TensorBoard files that it writes are found by themselves, in other folders by --tb", run.ID)
		}
	}
	return printList(c.p, list[metricView]{Items: shown}, c.p.metricColumns(), func(m metricView) string { return m.Name })
}

// metricKey is what a series of a run is known by.
func metricKey(source, folder, tag string) string { return source + "\n" + folder + "\n" + tag }

// metricQuery adds names to a query. They are repeated, not joined: they hold commas and blanks.
func metricQuery(query url.Values, names []string) url.Values {
	q := maps.Clone(query)
	if len(names) > 0 {
		q["name"] = names
	}
	return q
}

// metricsNamed gets the series that a query asks for, one by one, and refuses when one of the names is that of none. It gives the keys of
// those that came.
func (c *cli) metricsNamed(ctx context.Context, cl *client, run runView, q url.Values, names []string, each func(metricSeries) error) (map[string]bool, error) {
	came, left := map[string]bool{}, slices.Clone(names)
	if _, err := cl.metricsEach(ctx, run.ID, q, 0, func(m metricSeries) error {
		came[metricKey(m.Source, m.Folder, m.Tag)] = true
		left = slices.DeleteFunc(left, func(name string) bool { return name == m.Name || name == m.Tag })
		return each(m)
	}); err != nil {
		return nil, err
	}
	if len(left) > 0 {
		return nil, noSuchMetric(run, left[0])
	}
	return came, nil
}

// wantMetrics refuses names that the run does not have, before anything is written. Other attempts of its job may have them.
func wantMetrics(run runView, names []string, query url.Values) error {
	for _, name := range names {
		if !slices.ContainsFunc(run.Metrics, func(m metricView) bool { return m.Name == name || m.Tag == name }) && query.Get("attempts") == "" {
			return noSuchMetric(run, name)
		}
	}
	return nil
}

func noSuchMetric(run runView, name string) error {
	hint := "gpuctl run metrics " + run.ID
	var known []string
	for _, m := range run.Metrics {
		known = append(known, m.Name)
	}
	if near := nearest(name, known); near != "" {
		hint = "did you mean: " + near
	}
	return newProblem(codeNotFound, hint, "run %s has no metric %q", run.ID, name)
}

func (p *printer) metricColumns() []column[metricView] {
	return []column[metricView]{
		{name: "name", cell: func(m metricView) string { return m.Name }},
		{name: "last", right: true, cell: func(m metricView) string { return pointValue(m.Last) }},
		{name: "best", right: true, cell: func(m metricView) string { return bestText(m) }},
		{name: "min", right: true, cell: func(m metricView) string { return pointValue(m.Min) }},
		{name: "max", right: true, cell: func(m metricView) string { return pointValue(m.Max) }},
		{name: "count", right: true, cell: func(m metricView) string { return strconv.FormatInt(m.Count, 10) }},
		{name: "nan", right: true, cell: func(m metricView) string { return countText(int(m.NaNCount)) }},
		{name: "trend", cell: func(m metricView) string { return textOf(m.Trend) }},
		{name: "goal", wide: true, cell: func(m metricView) string { return goalText(m) }},
		{name: "step", right: true, wide: true, cell: func(m metricView) string { return pointStep(m.Last) }},
		{name: "at", wide: true, cell: func(m metricView) string {
			if m.Last == nil {
				return ""
			}
			return p.ago(&m.Last.AtMS)
		}},
		{name: "inf", right: true, wide: true, cell: func(m metricView) string { return countText(int(m.InfCount)) }},
		{name: "rewinds", right: true, wide: true, cell: func(m metricView) string { return countText(int(m.Rewinds)) }},
		{name: "source", wide: true, cell: func(m metricView) string { return m.Source }},
		{name: "folder", wide: true, cell: func(m metricView) string { return m.Folder }},
		{name: "tag", wide: true, cell: func(m metricView) string { return m.Tag }},
	}
}

// valueText is a value with five digits: enough to compare by eye. Whoever needs all takes -o json or csv.
func valueText(v float64) string {
	if text := string(appendJSONFloat(nil, v)); strings.HasPrefix(text, `"`) {
		return strings.Trim(text, `"`)
	}
	return strconv.FormatFloat(v, 'g', 5, 64)
}

func pointValue(p *metricPoint) string {
	if p == nil {
		return ""
	}
	return valueText(float64(p.Value))
}

func pointStep(p *metricPoint) string {
	if p == nil {
		return ""
	}
	return strconv.FormatInt(p.Step, 10)
}

// bestText is the best value with its step, "" when nobody knows which direction is better.
func bestText(m metricView) string {
	if m.Best == nil {
		return ""
	}
	return pointValue(m.Best) + " @" + pointStep(m.Best)
}

// goalText says which direction is better and how that is known.
func goalText(m metricView) string {
	if m.Goal == nil {
		return ""
	}
	text := *m.Goal
	if m.Primary {
		text += ", primary"
	}
	if m.GoalFrom != "" {
		text += " (" + m.GoalFrom + ")"
	}
	return text
}

// metricPage copies the answer of REST.
func (c *cli) metricPage(ctx context.Context, cl *client, ref string, names []string, query url.Values) error {
	if len(names) == 0 {
		return cl.metricsAll(ctx, ref, query, c.out)
	}
	run, err := cl.run(ctx, ref)
	if err != nil {
		return err
	}
	if err := wantMetrics(run, names, query); err != nil {
		return err
	}
	return cl.metricsAll(ctx, run.ID, metricQuery(query, names), c.out)
}

// axisNumber reads an end of a range: a step, a time, or a length of time since the begin of the run, the latter two in ms.
func axisNumber(axis, text string, now time.Time) (int64, error) {
	switch axis {
	case axisRelative:
		d, err := parseDuration(text)
		return d.Milliseconds(), err
	case axisWall:
		return parseWhen(text, now)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, newProblem(codeUsage, "", "%q is not a step", text)
	}
	return n, nil
}

// parseWhen reads a time: 2h (ago), 14:00 (today), 2026-11-30, RFC 3339, or Unix ms.
func parseWhen(text string, now time.Time) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 1e11 {
		return n, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t.UnixMilli(), nil
		}
	}
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location()).UnixMilli(), nil
		}
	}
	if d, err := parseDuration(text); err == nil {
		return now.Add(-d).UnixMilli(), nil
	}
	return 0, newProblem(codeUsage, "", "%q is not a time like 2h (ago), 14:00, 2026-11-30 or 2026-11-30T14:00:00Z", text)
}
