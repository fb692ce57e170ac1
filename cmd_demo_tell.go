package main

// What gpuctl demo says of the training: where it can be watched, what it came to. It asks the demo's own server and prints.

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"time"
)

// sayPage says where the page is, with a link that logs in once. A server without that route still has an address.
func (d *demo) sayPage(ctx context.Context) error {
	link, err := d.cl.loginLink(ctx)
	if p, ok := asProblem(err); ok && p.Code == codeNotFound {
		d.c.say("demo: server at %s", d.cl.base.Load())
		return nil
	}
	if err != nil {
		return err
	}
	d.c.say("demo: watch it on its page (the link logs in once): %s", link.URLs[0])
	return nil
}

// lookAround are the commands that show what there is to see.
func (d *demo) lookAround() []string {
	run := strconv.FormatInt(d.job.ID, 10)
	return []string{
		"gpuctl ui                    the page",
		"gpuctl run show " + run + "            metrics, environment, end",
		"gpuctl run metrics " + run + " -o csv  every point",
		"gpuctl ckpt list " + run + "           what it saved",
		"gpuctl logs " + run,
	}
}

// tell says what the run was: its end, its metrics with the best value of each, its checkpoints.
func (d *demo) tell(ctx context.Context, accuracy float64) error {
	if len(d.job.Runs) == 0 {
		return nil
	}
	run, err := d.cl.run(ctx, d.job.Runs[len(d.job.Runs)-1])
	for range 20 { // the snapshot is a fact of its own and may come a moment after the log's end
		if err != nil || len(run.EnvSnapshot) > 0 && string(run.EnvSnapshot) != "null" || !sleep(ctx, 100*time.Millisecond) {
			break
		}
		run, err = d.cl.run(ctx, run.ID)
	}
	if err != nil {
		return err
	}
	if d.c.p.json() {
		return d.c.p.writeJSON(run)
	}
	ckpts, err := d.cl.checkpoints(ctx, run.ID)
	if err != nil {
		return err
	}
	result := ""
	if accuracy >= 0 {
		result = fmt.Sprintf("%.4f of the validation images read right", accuracy)
	}
	d.c.p.now = time.Now()
	if err := d.c.p.data(""); err != nil {
		return err
	}
	fs := []field{
		{"run", run.ID + " of job " + jobName(d.job) + " (" + run.Name + ")"},
		{"state", d.job.State},
		{"end", endText(run.ExitCode, run.Signal) + reasonText(run.Reason, run.Detail)},
		{"time", d.c.p.lasted(run.StartedMS, run.EndedMS)},
		{"result", result},
		{"log", strconv.FormatInt(run.Log.Lines, 10) + " lines"},
		{"checkpoints", demoCheckpointText(ckpts)},
		{"node", textOf(run.Node) + " " + slotsText(run.Slots)},
	}
	if err := d.c.p.fields(append(fs, envFields(run)...)); err != nil || len(run.Metrics) == 0 {
		return err
	}
	if err := d.c.p.data(""); err != nil {
		return err
	}
	return d.c.p.metricTable(run, runShowMetrics)
}

// demoCheckpointText counts checkpoints and names the one of the highest step.
func demoCheckpointText(ckpts []checkpointView) string {
	if len(ckpts) == 0 {
		return "none"
	}
	last := ckpts[0]
	for _, k := range ckpts[1:] {
		if k.Step != nil && (last.Step == nil || *k.Step > *last.Step) {
			last = k
		}
	}
	text := fmt.Sprintf("%d, the last one %s", len(ckpts), path.Base(last.Path))
	if last.Step != nil {
		text += " at step " + numberOf(last.Step)
	}
	return text + ", " + formatSize(last.SizeBytes)
}
