package main

// gpuctl ckpt list|show: what a training left in the folders of --watch.

import (
	"context"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

func ckptCommands() []command {
	return []command{
		{
			words: "ckpt list", args: "RUN|JOB", short: "List the checkpoints of a run, the highest step first; a job stands for its newest attempt",
			setup: ckptListSetup,
		},
		{words: "ckpt show", args: "ID", short: "Show one checkpoint", setup: func(c *cli, fs *pflag.FlagSet) runFunc { return c.ckptShow }},
	}
}

func (p *printer) ckptColumns() []column[checkpointView] {
	return []column[checkpointView]{
		{name: "id", right: true, cell: ckptID},
		{name: "step", right: true, cell: func(k checkpointView) string { return numberOf(k.Step) }},
		{name: "size", right: true, cell: func(k checkpointView) string { return formatSize(k.SizeBytes) }},
		{name: "age", cell: func(k checkpointView) string { return p.ago(&k.FoundMS) }},
		{name: "state", state: true, cell: func(k checkpointView) string { return k.State }},
		{name: "kind", cell: func(k checkpointView) string { return k.Kind }},
		{name: "metrics", wide: true, cell: func(k checkpointView) string { return ckptMetricsText(k.Metrics) }},
		{name: "run", wide: true, cell: func(k checkpointView) string { return k.Run }},
		{name: "fingerprint", wide: true, cell: func(k checkpointView) string { return k.Fingerprint[:min(len(k.Fingerprint), 12)] }},
		{name: "path", cell: func(k checkpointView) string { return k.Path }},
	}
}

func ckptID(k checkpointView) string { return strconv.FormatInt(k.ID, 10) }

// ckptMetricsText writes name=value, by name.
func ckptMetricsText(metrics map[string]jsonFloat) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		parts = append(parts, name+"="+strconv.FormatFloat(float64(metrics[name]), 'g', 5, 64))
	}
	return strings.Join(parts, " ")
}

func ckptListSetup(c *cli, fs *pflag.FlagSet) runFunc {
	var states []string
	var limit int
	var all bool
	fs.StringSliceVar(&states, "state", nil, "only checkpoints in this state: COMPLETE, INCOMPLETE, OVERWRITTEN, GONE")
	fs.IntVar(&limit, "limit", 50, "how many")
	fs.BoolVar(&all, "all", false, "all of them")
	return func(ctx context.Context, args []string) error {
		if err := argCount(args, 1, 1, "RUN or JOB"); err != nil {
			return err
		}
		q := filters("state", strings.ToUpper(strings.Join(states, ",")))
		return listCommand(ctx, c, "/runs/"+seg(args[0])+"/checkpoints", q, limit, all, c.p.ckptColumns(), ckptID)
	}
}

func (c *cli) ckptShow(ctx context.Context, args []string) error {
	if err := argCount(args, 1, 1, "ID"); err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	k, err := getOne[checkpointView](ctx, cl, "/checkpoints/"+seg(args[0]), nil)
	if err != nil {
		return err
	}
	return printOne(c.p, k, ckptID, c.p.ckptFields(k))
}

func (p *printer) ckptFields(k checkpointView) []field {
	step := numberOf(k.Step)
	if from := textOf(k.StepFrom); from != "" {
		step += " (from its " + map[string]string{"name": "name", "trainer_state": "trainer_state.json", "content": "content"}[from] + ")"
	}
	return []field{
		{"checkpoint", ckptID(k)},
		{"run", k.Run},
		{"name", path.Base(k.Path)},
		{"path", k.Path},
		{"kind", k.Kind},
		{"state", k.State},
		{"not whole", textOf(k.Incomplete)},
		{"since", p.ago(&k.StateMS)},
		{"step", step},
		{"size", formatSize(k.SizeBytes)},
		{"written", p.ago(&k.MtimeMS)},
		{"found", p.ago(&k.FoundMS)},
		{"metrics", ckptMetricsText(k.Metrics)},
		{"fingerprint", k.Fingerprint},
	}
}
