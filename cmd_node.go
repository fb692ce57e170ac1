package main

// gpuctl node list|show and slot list: the machines and what they hold.

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

func nodeCommands() []command {
	return []command{
		{words: "node list", short: "List the machines", setup: func(c *cli, fs *pflag.FlagSet) runFunc { return c.nodeList }},
		{words: "node show", args: "NODE", short: "Show one machine with its slots", setup: func(c *cli, fs *pflag.FlagSet) runFunc { return c.nodeShow }},
		{words: "slot list", short: "List slots and what holds them", setup: slotListSetup},
	}
}

// cardsText counts slots of a lane: "1/4 busy", "" when it has none.
func cardsText(slots []slotView, lane string) string {
	busy, all := 0, 0
	for _, s := range slots {
		if s.Lane == lane {
			all++
			if s.Run != nil || s.JobID != nil {
				busy++
			}
		}
	}
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", busy, all)
}

func percentText(share *float64) string {
	if share == nil {
		return ""
	}
	return fmt.Sprintf("%.0f%%", *share*100)
}

func usedText(u *usedTotal) string {
	if u == nil || u.Total <= 0 {
		return ""
	}
	return formatSize(u.Used) + " of " + formatSize(u.Total)
}

func disksText(disks []usedTotal) string {
	var parts []string
	for _, d := range disks {
		if d.Total > 0 {
			parts = append(parts, strings.TrimSpace(d.Name+" "+formatSize(d.Total-d.Used)+" free of "+formatSize(d.Total)))
		}
	}
	return strings.Join(parts, ", ")
}

func (p *printer) nodeColumns() []column[nodeView] {
	return []column[nodeView]{
		{name: "name", cell: func(n nodeView) string { return n.Name }},
		{name: "state", state: true, cell: func(n nodeView) string { return n.State }},
		{name: "gpu", right: true, cell: func(n nodeView) string { return cardsText(n.Slots, laneGPU) }},
		{name: "cpu-lane", right: true, cell: func(n nodeView) string { return cardsText(n.Slots, laneCPU) }},
		{name: "cpu", right: true, cell: func(n nodeView) string { return percentText(n.CPU) }},
		{name: "memory", right: true, cell: func(n nodeView) string { return usedText(n.Memory) }},
		{name: "seen", cell: func(n nodeView) string { return p.ago(&n.LastSeenMS) }},
		{name: "problems", right: true, cell: func(n nodeView) string { return countText(len(n.Problems)) }},
		{name: "version", wide: true, cell: func(n nodeView) string { return n.Version }},
		{name: "os", wide: true, cell: func(n nodeView) string { return n.OS }},
		{name: "user", wide: true, cell: func(n nodeView) string { return n.User }},
		{name: "disk", wide: true, cell: func(n nodeView) string { return disksText(n.Disks) }},
		{name: "unsent", right: true, wide: true, cell: func(n nodeView) string { return formatSize(n.Unsent) }},
	}
}

func countText(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func (c *cli) nodeList(ctx context.Context, args []string) error {
	if err := argCount(args, 0, 0, ""); err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	l, err := cl.nodes(ctx)
	if err != nil {
		return err
	}
	return printList(c.p, l, c.p.nodeColumns(), func(n nodeView) string { return n.Name })
}

func (c *cli) nodeShow(ctx context.Context, args []string) error {
	if err := argCount(args, 1, 1, "NODE"); err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	n, err := cl.node(ctx, args[0])
	if err != nil {
		return err
	}
	skew := ""
	if n.SkewMS <= -1000 || n.SkewMS >= 1000 {
		skew = formatDuration(time.Duration(n.SkewMS) * time.Millisecond)
	}
	cordoned := ""
	if n.Cordoned {
		cordoned = "yes: takes no new jobs"
	}
	fs := []field{
		{"node", n.Name},
		{"state", n.State},
		{"since", c.p.ago(n.StateMS)},
		{"seen", c.p.ago(&n.LastSeenMS)},
		{"joined", c.p.ago(&n.JoinedMS)},
		{"cordoned", cordoned},
		{"version", n.Version},
		{"os", n.OS},
		{"user", n.User},
		{"cpus", strconv.Itoa(n.CPUs) + strings.TrimSuffix(" at "+percentText(n.CPU), " at ")},
		{"memory", usedText(n.Memory)},
		{"disk", disksText(n.Disks)},
		{"clock off by", skew},
		{"unsent", formatSize(n.Unsent)},
		{"uid", n.UID},
	}
	for _, p := range n.Problems {
		fs = append(fs, field{"problem", p})
	}
	if err := printOne(c.p, n, func(n nodeView) string { return n.Name }, fs); err != nil || c.p.json() || c.p.format == outName {
		return err
	}
	if err := c.p.data(""); err != nil {
		return err
	}
	if err := printList(c.p, list[slotView]{Items: n.Slots}, c.p.slotColumns(), slotID); err != nil {
		return err
	}
	return c.nodeRuns(ctx, cl, n.Name)
}

// nodeRuns lists what runs on a machine, when something does.
func (c *cli) nodeRuns(ctx context.Context, cl *client, node string) error {
	there := url.Values{"node": {node}, "state": {strings.Join([]string{runStarting, runAlive, runExiting, runLost}, ",")}}
	l, err := listPages[runView](ctx, cl, "/runs", there, 0)
	if err != nil || len(l.Items) == 0 {
		return err
	}
	if err := c.p.data(""); err != nil {
		return err
	}
	columns := slices.DeleteFunc(c.p.runColumns(), func(col column[runView]) bool { return col.name == "node" || col.name == "end" })
	return printList(c.p, l, columns, runID)
}

func slotID(s slotView) string { return s.Node + ":" + s.Lane + strconv.Itoa(s.Idx) }

func (p *printer) slotColumns() []column[slotView] {
	return []column[slotView]{
		{name: "slot", cell: slotID},
		{name: "model", cell: func(s slotView) string {
			if s.Fake {
				return s.Model + " (fake)"
			}
			return s.Model
		}},
		{name: "memory", right: true, cell: func(s slotView) string {
			if s.MemoryBytes == 0 {
				return ""
			}
			return formatSize(s.MemoryBytes)
		}},
		{name: "holder", cell: slotHolder},
		{name: "since", cell: func(s slotView) string { return p.ago(s.HeldMS) }},
		{name: "health", state: true, cell: func(s slotView) string {
			if s.Cordoned {
				return strings.TrimSpace(s.Health + " cordoned")
			}
			return s.Health
		}},
		{name: "uuid", wide: true, cell: func(s slotView) string { return s.UUID }},
	}
}

func slotHolder(s slotView) string {
	switch {
	case s.Run != nil:
		return "run " + *s.Run
	case s.JobID != nil:
		return "offered to job " + numberOf(s.JobID)
	}
	return "free"
}

func slotListSetup(c *cli, fs *pflag.FlagSet) runFunc {
	var node string
	fs.StringVar(&node, "node", "", "only slots of this machine")
	return func(ctx context.Context, args []string) error {
		if err := argCount(args, 0, 0, ""); err != nil {
			return err
		}
		cl, err := c.connect()
		if err != nil {
			return err
		}
		l, err := getOne[list[slotView]](ctx, cl, "/slots", nil)
		if err != nil {
			return err
		}
		if node != "" {
			l.Items = slices.DeleteFunc(l.Items, func(s slotView) bool { return s.Node != node })
		}
		return printList(c.p, l, c.p.slotColumns(), slotID)
	}
}
