package main

// Curves over HTTP: the points of a run, or of all attempts of its job, whole or thinned. How they are read is in store_series_read.go.

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
)

const (
	metricPointsMost = 10_000  // of max_points
	metricAnswerMost = 1 << 21 // points and buckets of one answer, about 100 MB of JSON
)

// metricAsk is a question for curves.
type metricAsk struct {
	names    []string // shown names or tags; with no pattern either: all
	pattern  string
	x        string // step | wall | relative
	from, to *int64
	most     int
	attempts string
	after    *int64
}

func metricAskOf(q *queryArgs) metricAsk {
	a := metricAsk{
		names: q.v["name"], pattern: q.text("pattern"), from: q.signed("from"), to: q.signed("to"), after: q.id("after"),
		x: q.word("x", "step", "wall", "relative"), attempts: q.word("attempts", attemptsRun, attemptsTrained, attemptsAll), most: metricAnswerMost,
	}
	if q.text("max_points") != "" {
		if a.most = int(q.number("max_points", 1, metricPointsMost)); a.most == 0 {
			q.refuse(fmt.Sprintf("at most %d", metricPointsMost), "max_points is 0")
		}
	}
	return a
}

// wants reports whether a series is asked for.
func (a *metricAsk) wants(name, tag string) bool {
	return len(a.names) == 0 && a.pattern == "" || slices.Contains(a.names, name) || slices.Contains(a.names, tag) ||
		a.pattern != "" && seriesGlob(a.pattern, name)
}

// span is the range that is asked for; start is what relative times count from.
func (a *metricAsk) span(startMS int64) seriesSpan {
	s := seriesAll()
	s.byTime = a.x != "step"
	shift := int64(0)
	if a.x == "relative" {
		shift = startMS
	}
	if a.from != nil {
		s.from = seriesShifted(*a.from, shift)
	}
	if a.to != nil {
		s.to = seriesShifted(*a.to, shift)
	}
	if a.from == nil && a.to == nil {
		s.byTime = false // one key in the cache for everything
	}
	return s
}

// seriesShifted adds without going round at the ends.
func seriesShifted(a, b int64) int64 {
	switch sum := a + b; {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	default:
		return sum
	}
}

func (s *server) getRunMetrics(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r, "name...", "pattern", "from", "to", "x", "max_points", "attempts", "after", "wait")
	wait := q.wait()
	ask := metricAskOf(q)
	if wait > 0 && ask.after == nil {
		q.refuse("give after too: the next of the answer before", "wait needs after")
	}
	if q.err != nil {
		return q.err
	}
	var id int64
	if err := s.store.read(r.Context(), func(c *conn) (err error) {
		id, err = resolveRun(c, r.PathValue("run"))
		return err
	}); err != nil {
		return err
	}
	var answer metricAnswer
	topics := []string{bellRun(id)}
	err := s.longPoll(r, wait, func() []string { return topics }, func() (bool, error) {
		var err error
		answer, topics, err = s.lookAtMetrics(r.Context(), id, ask)
		return ask.after == nil || answer.Next > *ask.after || answer.Done, err
	})
	if err != nil {
		return err
	}
	return writeMetrics(w, &answer)
}

// lookAtMetrics reads the curves as they are now, and says which bells tell of more. With nothing new since after there are no items.
func (s *server) lookAtMetrics(ctx context.Context, runID int64, ask metricAsk) (p metricAnswer, topics []string, err error) {
	err = s.store.read(ctx, func(c *conn) error {
		runs, jobID, err := metricRuns(c, runID, ask.attempts != attemptsRun)
		if err != nil {
			return err
		}
		newest := &runs[len(runs)-1]
		topics = []string{bellRun(newest.id)}
		p.State, p.Done = newest.state, newest.over()
		if jobID != nil && ask.attempts != attemptsRun {
			topics = append(topics, bellJob(*jobID))
			j, err := loadJob(c, *jobID)
			if err != nil {
				return err
			}
			p.Done = p.Done && jobOver(j.state)
		}
		for i := range runs {
			if runs[i].series, err = readSeries(c, "WHERE run_id = ? ORDER BY id", runs[i].id); err != nil {
				return err
			}
			for k := range runs[i].series {
				p.Next += runs[i].series[k].count
			}
		}
		if ask.after != nil && p.Next <= *ask.after {
			return nil
		}
		p.items, err = s.readCurves(c, runs, ask)
		return err
	})
	return p, topics, err
}

// metricRun is a run whose curves are read.
type metricRun struct {
	logOwner
	startMS int64
	primary string
	series  []seriesRow
}

// metricRuns gives the run, or all attempts of its job, oldest first.
func metricRuns(c *conn, runID int64, all bool) (runs []metricRun, jobID *int64, err error) {
	if _, err := c.one("SELECT job_id FROM runs WHERE id = ?", []any{runID}, &jobID); err != nil {
		return nil, nil, err
	}
	cond, arg := "r.id = ?", runID
	if all && jobID != nil {
		cond, arg = runVisible+" AND r.job_id = ?", *jobID
	}
	err = c.each(`SELECT r.id, coalesce(r.started_ms, r.granted_ms, r.offered_ms, 0), coalesce(j.primary_metric ->> 'name', '')
		FROM runs r LEFT JOIN jobs j ON j.id = r.job_id WHERE `+cond+" ORDER BY r.attempt, r.id", []any{arg}, func(get func(...any) error) error {
		var r metricRun
		err := get(&r.id, &r.startMS, &r.primary)
		runs = append(runs, r)
		return err
	})
	for i := range runs {
		if err == nil {
			runs[i].logOwner, err = readLogOwner(c, runs[i].id)
		}
	}
	if err == nil && len(runs) == 0 {
		err = noSuchRun(fmt.Sprintf("r%d", runID))
	}
	return runs, jobID, err
}

// metricCurve is one item of the answer: a series, or, as one line, those of several attempts.
type metricCurve struct {
	run     *metricRun
	name    string
	primary bool
	series  []seriesRow
}

// readCurves reads what is asked for of runs.
func (s *server) readCurves(c *conn, runs []metricRun, ask metricAsk) ([]metricItem, error) {
	curves := metricCurves(runs, ask)
	r := seriesReader{c: c}
	out := make([]metricItem, 0, len(curves))
	total := 0
	for _, k := range curves {
		var item metricItem
		var err error
		if ask.attempts == attemptsTrained {
			item.curve, err = r.sampleLine(&s.curves, k.series, ask.span(runs[0].startMS), ask.most)
		} else {
			item.curve, err = r.sample(&s.curves, &k.series[0], ask.span(k.run.startMS), ask.most)
		}
		if err != nil {
			return nil, fmt.Errorf("read series %q of run %s: %w", k.name, k.run.label, err)
		}
		if total += min(item.curve.sampler.len(), ask.most); total > metricAnswerMost || ask.most == metricAnswerMost && item.curve.sampler.thinned() {
			return nil, newProblem(codeInvalid, "give max_points, fewer names, or a narrower from and to", "the answer would have over %d points", metricAnswerMost)
		}
		newest := &k.series[len(k.series)-1]
		item.head = metricSeries{Run: k.run.label, Name: k.name, Source: newest.source, Folder: newest.folder, Tag: newest.tag, Count: item.curve.sampler.n}
		out = append(out, item)
	}
	return out, nil
}

// metricCurves chooses and orders the curves: the primary one first, then by name, then by attempt.
func metricCurves(runs []metricRun, ask metricAsk) []metricCurve {
	var out []metricCurve
	lines := map[string]int{}
	for i := range runs {
		r := &runs[i]
		for k, name := range namesOfSeries(r.series) {
			row := r.series[k]
			if !ask.wants(name, row.tag) {
				continue
			}
			if at, known := lines[name]; known && ask.attempts == attemptsTrained {
				out[at].run, out[at].series = r, append(out[at].series, row)
				continue
			}
			lines[name] = len(out)
			out = append(out, metricCurve{run: r, name: name, series: []seriesRow{row}, primary: r.primary != "" && (name == r.primary || row.tag == r.primary)})
		}
	}
	slices.SortStableFunc(out, func(a, b metricCurve) int {
		if a.primary != b.primary {
			if a.primary {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.name, b.name)
	})
	return out
}
