package main

// gpuctl run list|show: what happened.

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

func runCommands() []command {
	return []command{
		{words: "run list", short: "List runs, newest first", setup: runListSetup},
		{words: "run show", args: "RUN|JOB", short: "Show one run; a job stands for its newest attempt", setup: func(c *cli, fs *pflag.FlagSet) runFunc { return c.runShow }},
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
		{name: "lines", right: true, cell: func(r runView) string { return strconv.FormatInt(r.Log.Lines, 10) }},
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
	return printOne(c.p, run, runID, c.p.runFields(run))
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
	return append(fs,
		field{"log", log},
		field{"left alone", strings.Join(r.LeftAlone, ", ")},
		field{"project", r.Project},
		field{"experiment", textOf(r.Experiment)},
		field{"config", configText(r.Config)},
		field{"variables", strings.Join(r.EnvNames, " ")},
		field{"environment", snapshotText(r.EnvSnapshot)},
		field{"uid", r.UID},
	)
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

// snapshotText writes an environment snapshot on one line: git commit, python, machine. "" when there is none.
func snapshotText(raw json.RawMessage) string {
	var v struct {
		OS   string `json:"os"`
		CPUs int    `json:"cpus"`
		Git  *struct {
			Commit string `json:"commit"`
			Branch string `json:"branch"`
			Dirty  *bool  `json:"dirty"`
		} `json:"git"`
		Python *struct {
			Version string `json:"version"`
		} `json:"python"`
		Packages *struct {
			VirtualEnv string `json:"virtual_env"`
			Conda      string `json:"conda"`
		} `json:"packages"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return ""
	}
	var parts []string
	add := func(label, text string) {
		if text != "" {
			parts = append(parts, strings.TrimSpace(label+" "+text))
		}
	}
	if v.Python != nil {
		add("python", v.Python.Version)
	}
	if v.Packages != nil {
		add("venv", v.Packages.VirtualEnv)
		add("conda", v.Packages.Conda)
	}
	if v.Git != nil && v.Git.Commit != "" {
		commit := v.Git.Commit[:min(len(v.Git.Commit), 12)]
		if v.Git.Branch != "" {
			commit += " on " + v.Git.Branch
		}
		if v.Git.Dirty != nil && *v.Git.Dirty {
			commit += " with uncommitted changes"
		}
		add("git", commit)
	}
	add("", v.OS)
	if v.CPUs > 0 {
		add("", strconv.Itoa(v.CPUs)+" CPUs")
	}
	return strings.Join(parts, ", ")
}
