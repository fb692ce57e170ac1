package main

// gpuctl run show: one run on one screen: what it was, how far it is, its metrics in short, what it ran in.

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// runShowMetrics is how many metrics run show lists; with the fields above them that is about two screens.
const runShowMetrics = 20

func (c *cli) runShow(ctx context.Context, args []string) error {
	if err := argCount(args, 1, 1, "RUN or JOB"); err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	run, err := cl.run(ctx, args[0])
	if err != nil {
		return err
	}
	if err := printOne(c.p, run, runID, c.p.runFields(run)); err != nil || c.p.json() || c.p.format == outName || len(run.Metrics) == 0 {
		return err
	}
	if err := c.p.data(""); err != nil {
		return err
	}
	return c.p.metricTable(run, runShowMetrics)
}

// metricTable writes the metrics of a run in short, at most so many, the primary one first.
func (p *printer) metricTable(run runView, most int) error {
	all := slices.Clone(run.Metrics)
	slices.SortStableFunc(all, func(a, b metricView) int { return metricRank(a) - metricRank(b) })
	sub := *p
	sub.columns = nil
	if err := printList(&sub, list[metricView]{Items: all[:min(len(all), most)]}, p.metricColumns(), func(m metricView) string { return m.Name }); err != nil {
		return err
	}
	if len(all) > most {
		return p.data(fmt.Sprintf("and %d more: gpuctl run metrics %s", len(all)-most, run.ID))
	}
	return nil
}

// metricRank orders metrics for people: the primary one, those with a direction, the others.
func metricRank(m metricView) int {
	switch {
	case m.Primary:
		return 0
	case m.Goal != nil:
		return 1
	}
	return 2
}

// primaryMetricOf is the metric that stands for the run: the primary one, else the first with a direction, validation before training.
func primaryMetricOf(run runView) (metricView, bool) {
	best, found := metricView{}, false
	rank := func(m metricView) int {
		low := strings.ToLower(m.Name)
		if strings.Contains(low, "val") || strings.Contains(low, "eval") || strings.Contains(low, "test") {
			return 2 * metricRank(m)
		}
		return 2*metricRank(m) + 1
	}
	for _, m := range run.Metrics {
		if m.Goal != nil && (!found || rank(m) < rank(best)) {
			best, found = m, true
		}
	}
	return best, found
}

// primaryText is the metric that stands for the run, with its best value.
func primaryText(run runView) string {
	m, ok := primaryMetricOf(run)
	if !ok {
		return ""
	}
	return strings.TrimSpace(m.Name + " " + bestText(m))
}

// runStep is how far a run is: 120/1000, 120, "" when nobody knows.
func runStep(run runView) string {
	switch p := run.Progress; {
	case p != nil && p.Total != nil:
		return strconv.FormatInt(p.Step, 10) + "/" + strconv.FormatInt(*p.Total, 10)
	case p != nil:
		return strconv.FormatInt(p.Step, 10)
	}
	return numberOf(run.LastStep)
}

// progressText is how far a run is, in a sentence: "120 of 1000 (12%), about 1m30s left, by total_steps".
func progressText(run runView) string {
	p := run.Progress
	if p == nil || p.Total == nil {
		return ""
	}
	text := fmt.Sprintf("%d of %d", p.Step, *p.Total)
	if *p.Total > 0 {
		text += fmt.Sprintf(" (%d%%)", p.Step*100 / *p.Total)
	}
	if p.Part != nil {
		return strings.TrimSpace(text + " of the bar " + quoteBar(*p.Part) + ", which is a part of the run")
	}
	switch {
	case runOver(run.State):
	case p.ETAMS != nil:
		text += ", about " + formatDuration(time.Duration(*p.ETAMS)*time.Millisecond) + " left"
	default:
		text += ", time left not known"
	}
	return text + ", by " + p.From
}

func quoteBar(label string) string {
	if label == "" {
		return "in the log"
	}
	return strconv.Quote(label)
}

// lastStepText is the newest step with its age.
func (p *printer) lastStepText(run runView) string {
	if run.LastStep == nil {
		return ""
	}
	return strings.TrimSuffix(numberOf(run.LastStep)+", "+p.ago(run.LastStepMS), ", ")
}

func (p *printer) runFields(r runView) []field {
	fs := []field{
		{"run", r.ID},
		{"name", r.Name},
		{"state", r.State},
		{"end", endText(r.ExitCode, r.Signal)},
		{"reason", textOf(r.Reason)},
		{"detail", textOf(r.Detail)},
		{"command", quoteArgv(r.Argv)},
		{"folder", r.WorkingDir},
		{"node", textOf(r.Node)},
		{"slots", slotsText(r.Slots)},
		{"started", p.ago(r.StartedMS)},
		{"ended", p.ago(r.EndedMS)},
		{"time", p.lasted(r.StartedMS, r.EndedMS)},
		{"last step", p.lastStepText(r)},
		{"progress", progressText(r)},
	}
	if u := r.Usage; u != nil {
		fs = append(fs, field{"cpu time", strconv.FormatFloat(u.UserS, 'f', 1, 64) + " s user, " + strconv.FormatFloat(u.SystemS, 'f', 1, 64) + " s system"})
		if u.MaxRSSBytes > 0 {
			fs = append(fs, field{"memory", "at most " + formatSize(u.MaxRSSBytes) + " in one process"})
		}
		fs = append(fs, field{"out of memory", u.OOM})
	}
	log := strconv.FormatInt(r.Log.Lines, 10) + " lines, " + formatSize(r.Log.Bytes)
	for _, part := range []struct {
		n    int64
		what string
	}{{r.Log.Skipped, "skipped"}, {r.Log.Truncations, "truncations"}} {
		if part.n > 0 {
			log += ", " + strconv.FormatInt(part.n, 10) + " " + part.what
		}
	}
	switch {
	case r.Log.Incomplete:
		log += ", incomplete"
	case runOver(r.State) && !r.Drained:
		log += ", still arriving"
	}
	fs = append(fs,
		field{"log", log},
		field{"checkpoints", checkpointsText(r)},
		field{"left alone", strings.Join(r.LeftAlone, ", ")},
		field{"project", r.Project},
		field{"experiment", textOf(r.Experiment)},
		field{"config", configText(r.Config)},
		field{"variables", strings.Join(r.EnvNames, " ")},
	)
	return append(append(fs, envFields(r)...), field{"uid", r.UID})
}

// configText writes a configuration as k=v, sorted.
func configText(config map[string]any) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(config)) {
		v, ok := config[k].(string)
		if !ok {
			b, err := json.Marshal(config[k])
			if err != nil {
				continue // a value that came as JSON goes back to it
			}
			v = string(b)
		}
		parts = append(parts, k+"="+v)
	}
	return strings.Join(parts, " ")
}

// checkpointsText counts what the run left, "" when that is nothing.
func checkpointsText(r runView) string {
	if r.Checkpoints == 0 {
		return ""
	}
	return strconv.FormatInt(r.Checkpoints, 10) + ": gpuctl ckpt list " + r.ID
}
