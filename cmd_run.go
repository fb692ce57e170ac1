package main

// gpuctl run list: what happened. One run is shown by cmd_run_show.go.

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

func runCommands() []command {
	return []command{
		{words: "run list", short: "List runs, newest first", setup: runListSetup},
		{words: "run show", args: "RUN|JOB", short: "Show one run; a job stands for its newest attempt", setup: func(c *cli, fs *pflag.FlagSet) runFunc { return c.runShow }},
		metricsCommand(),
	}
}

func (p *printer) runColumns() []column[runView] {
	return []column[runView]{
		{name: "id", cell: func(r runView) string { return r.ID }},
		{name: "name", cell: func(r runView) string { return r.Name }},
		{name: "state", state: true, cell: func(r runView) string { return r.State }},
		{name: "end", cell: func(r runView) string { return runEndText(r) }},
		{name: "node", cell: func(r runView) string { return textOf(r.Node) }},
		{name: "slots", cell: func(r runView) string { return slotsText(r.Slots) }},
		{name: "started", cell: func(r runView) string { return p.ago(r.StartedMS) }},
		{name: "time", right: true, cell: func(r runView) string { return p.lasted(r.StartedMS, r.EndedMS) }},
		{name: "step", right: true, cell: runStep},
		{name: "step age", cell: func(r runView) string { return p.ago(r.LastStepMS) }},
		{name: "metric", wide: true, cell: primaryText},
		{name: "lines", right: true, wide: true, cell: func(r runView) string { return strconv.FormatInt(r.Log.Lines, 10) }},
		{name: "source", wide: true, cell: func(r runView) string { return r.Source }},
		{name: "project", wide: true, cell: func(r runView) string { return r.Project }},
		{name: "experiment", wide: true, cell: func(r runView) string { return textOf(r.Experiment) }},
		{name: "ended", wide: true, cell: func(r runView) string { return p.ago(r.EndedMS) }},
		{name: "command", wide: true, cell: func(r runView) string { return quoteArgv(r.Argv) }},
	}
}

func runEndText(r runView) string {
	if !runOver(r.State) {
		return ""
	}
	reason, end := textOf(r.Reason), endText(r.ExitCode, r.Signal)
	if reason == reasonExitCode || reason == reasonSignal {
		reason = ""
	}
	return strings.TrimSpace(reason + " " + end)
}

func runID(r runView) string { return r.ID }

// slotsText names slots: gpu0 gpu1, cpu.
func slotsText(slots []slotRef) string {
	var names []string
	for _, s := range slots {
		names = append(names, s.Lane+strconv.Itoa(s.Idx))
	}
	return strings.Join(names, " ")
}

func runListSetup(c *cli, fs *pflag.FlagSet) runFunc {
	var job, node, project string
	var states []string
	var limit int
	var all bool
	fs.StringVar(&job, "job", "", "only runs of this job")
	fs.StringSliceVar(&states, "state", nil, "only runs in this state, like ALIVE or ENDED")
	fs.StringVar(&node, "node", "", "only runs of this machine")
	fs.StringVarP(&project, "project", "p", "", "only runs of this project")
	fs.IntVar(&limit, "limit", 50, "how many")
	fs.BoolVar(&all, "all", false, "all of them")
	return func(ctx context.Context, args []string) error {
		if err := argCount(args, 0, 0, ""); err != nil {
			return err
		}
		q := filters("job", job, "node", node, "project", project, "state", strings.ToUpper(strings.Join(states, ",")))
		return listCommand(ctx, c, "/runs", q, limit, all, c.p.runColumns(), runID)
	}
}
