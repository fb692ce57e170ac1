package main

// gpuctl status: the overview on one screen of 80 by 24.

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

const (
	statusRefresh = 2 * time.Second
	statusLines   = 23 // with the prompt below them: a screen of 24
	statusRows    = 8  // at most of each list; the rest is counted
)

func statusCommand() command {
	return command{
		words: "status", short: "The overview; exit code 1 when something needs you",
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			var watch bool
			fs.BoolVar(&watch, "watch", false, "draw it again every two seconds")
			return func(ctx context.Context, args []string) error { return c.status(ctx, watch, args) }
		},
	}
}

func (c *cli) status(ctx context.Context, watch bool, args []string) error {
	if err := argCount(args, 0, 0, ""); err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	for {
		st, err := cl.status(ctx)
		var runs map[string]runView
		if err == nil && !c.p.json() && len(st.Running) > 0 {
			runs, err = livingRuns(ctx, cl)
		}
		switch {
		case err == nil && c.p.json():
			err = c.p.writeJSON(st)
		case err == nil:
			c.p.now = time.Now()
			text := c.p.statusText(st, runs)
			if watch && c.width > 0 {
				text = "\x1b[H\x1b[2J" + text
			}
			_, err = io.WriteString(c.out, text)
		case watch && passing(err): // it is what watching is for
			c.p.note("gpuctl: " + err.Error())
			cl.moved()
			err = nil
		}
		switch {
		case err != nil:
			return err
		case !watch && len(st.NeedsYou) > 0:
			return exitStatus(1)
		case !watch:
			return nil
		}
		if !sleep(ctx, statusRefresh) {
			return interrupted(ctx)
		}
	}
}

// statusText is the overview, 80 columns wide: of each list as much as fits on the screen.
func (p *printer) statusText(st statusView, runs map[string]runView) string {
	for rows := statusRows; ; rows-- {
		text := p.statusPage(st, runs, rows)
		if rows == 1 || strings.Count(text, "\n") <= statusLines {
			return text
		}
	}
}

// statusPage is the overview with at most rows of each list. Runs are the living ones by id.
func (p *printer) statusPage(st statusView, runs map[string]runView, rows int) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(clipText(plainText(fmt.Sprintf(format, args...)), 80) + "\n")
	}
	head := fmt.Sprintf("gpuctl %s, up %s", st.Version, formatDuration(time.Duration(st.NowMS-st.StartedMS)*time.Millisecond))
	for i, part := range jobCounts(st.Jobs) {
		switch {
		case textWidth(head)+2+textWidth(part) <= 80:
			head += ", " + part
		case i == 0:
			line("%s", head)
			head = part
		default: // a number that is cut reads as another number
			line("%s,", head)
			head = "  " + part
		}
	}
	line("%s", head)
	if st.Recovery != nil {
		line("RECOVERY: %s", *st.Recovery)
	}
	for i, need := range st.NeedsYou {
		if i == rows {
			line("! and %d more: gpuctl -o json status", len(st.NeedsYou)-i)
			break
		}
		b.WriteString(p.paint(yellow, clipText(plainText("! "+need), 80)) + "\n")
	}
	sub := *p
	sub.out, sub.width, sub.columns = &b, 80, nil
	if len(st.Nodes) > 0 {
		b.WriteByte('\n')
		shown := st.Nodes[:min(len(st.Nodes), rows)]
		statusTable(&sub, shown, []column[nodeView]{
			{name: "node", cell: func(n nodeView) string { return clipText(n.Name, 20) }},
			{name: "state", state: true, cell: func(n nodeView) string { return n.State }},
			{name: "gpu", right: true, cell: func(n nodeView) string { return cardsText(n.Slots, laneGPU) }},
			{name: "cpu-lane", right: true, cell: func(n nodeView) string { return cardsText(n.Slots, laneCPU) }},
			{name: "cpu", right: true, cell: func(n nodeView) string { return percentText(n.CPU) }},
			{name: "memory", cell: func(n nodeView) string { return usedText(n.Memory) }},
		})
		more(&b, len(st.Nodes)-len(shown), "gpuctl node list")
	}
	if len(st.Running) > 0 {
		b.WriteByte('\n')
		shown := st.Running[:min(len(st.Running), rows)]
		statusTable(&sub, shown, []column[jobView]{
			{name: "job", right: true, cell: jobName},
			{name: "name", cell: func(j jobView) string { return clipText(j.Name, 18) }},
			{name: "state", state: true, cell: func(j jobView) string { return j.State }},
			{name: "gpus", right: true, cell: func(j jobView) string { return strconv.Itoa(j.GPUs) }},
			{name: "node", cell: func(j jobView) string { return clipText(textOf(j.Node), 11) }},
			{name: "time", right: true, cell: func(j jobView) string { return p.lasted(j.StartedMS, j.EndedMS) }},
			{name: "step", right: true, cell: func(j jobView) string { return stepShort(livingRunOf(runs, j)) }},
			{name: "age", right: true, cell: func(j jobView) string { return p.stepAge(livingRunOf(runs, j)) }},
		})
		more(&b, len(st.Running)-len(shown), "gpuctl job list --state RUNNING")
	}
	if len(st.Queued) > 0 {
		b.WriteByte('\n')
		shown := st.Queued[:min(len(st.Queued), rows)]
		statusTable(&sub, shown, []column[jobView]{
			{name: "job", right: true, cell: jobName},
			{name: "name", cell: func(j jobView) string { return clipText(j.Name, 24) }},
			{name: "gpus", right: true, cell: func(j jobView) string { return strconv.Itoa(j.GPUs) }},
			{name: "waits for", cell: func(j jobView) string { return textOf(j.WaitReason) }},
		})
		more(&b, int(st.Jobs[jobQueued])-len(shown), "gpuctl job list --state QUEUED")
	}
	switch {
	case len(st.Nodes) == 0:
		line("no machine yet: gpuctl up, or gpuctl agent on the machine with the cards")
	case len(st.Running)+len(st.Queued) == 0:
		line("nothing runs, nothing waits: gpuctl go -- python train.py")
	}
	return b.String()
}

// livingRunOf is the run of a job's newest attempt, empty when it does not live.
func livingRunOf(runs map[string]runView, j jobView) runView {
	if len(j.Runs) == 0 {
		return runView{}
	}
	return runs[j.Runs[len(j.Runs)-1]]
}

// statusTable writes into a strings.Builder, which takes everything.
func statusTable[T any](p *printer, items []T, cols []column[T]) {
	if err := p.table(tableOf(items, cols), true); err != nil {
		p.note(err.Error())
	}
}

func more(b *strings.Builder, n int, command string) {
	if n > 0 {
		fmt.Fprintf(b, "and %d more: %s\n", n, command)
	}
}

// jobCounts says how many jobs there are of each state that has some.
func jobCounts(jobs map[string]int64) []string {
	var parts []string
	for _, s := range jobStates {
		if n := jobs[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(s)))
		}
	}
	if len(parts) == 0 {
		return []string{"no jobs"}
	}
	parts[0] = "jobs: " + parts[0]
	return parts
}
