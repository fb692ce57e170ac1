package main

// gpuctl top: slots, cards and what holds them, drawn again and again on a terminal. The page itself is made in cmd_top_page.go; the
// terminal is taken and given back in cmd_screen.go.

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

const topRefresh = 2 * time.Second

func topCommand() command {
	return command{
		words: "top", short: "Watch slots, cards and what holds them", ownSignals: true,
		long: `On a terminal the page is drawn again every two seconds; q or Ctrl-C leaves. Elsewhere, and with --once, it is
written once. -o json gives the slots as REST does.`,
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			var node string
			var once bool
			fs.StringVar(&node, "node", "", "only slots of this machine")
			fs.BoolVar(&once, "once", false, "write it once")
			return func(ctx context.Context, args []string) error { return c.top(ctx, node, once, args) }
		},
	}
}

func (c *cli) top(ctx context.Context, node string, once bool, args []string) error {
	if err := argCount(args, 0, 0, ""); err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-c.signals:
			cancel(newProblem(codeInterrupted, "", "interrupted"))
		case <-ctx.Done():
		}
	}()
	if node != "" { // once: a name that is wrong is told before anything is drawn
		n, err := cl.node(ctx, node)
		if err != nil {
			return err
		}
		node = n.Name
	}
	switch table := c.p.format == outTable; {
	case !table:
		return c.topList(ctx, cl, node)
	case once || c.width == 0:
		v, err := lookTop(ctx, cl, node)
		if err != nil {
			return err
		}
		_, err = io.WriteString(c.out, c.p.topPage(v, "", max(c.width, topWidth), 0))
		return err
	}
	return c.topLive(ctx, cl, node)
}

// topLive draws until somebody leaves.
func (c *cli) topLive(ctx context.Context, cl *client, node string) (err error) {
	s, err := openScreen(c.in, c.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var last topView
	for {
		v, err := lookTop(ctx, cl, node)
		switch {
		case err == nil:
			last = v
		case ctx.Err() != nil:
		case passing(err):
			last.trouble = err.Error() + "; trying again"
			cl.moved()
		default:
			return err
		}
		c.p.now = time.Now()
		width, height := s.size()
		if err := s.draw(c.p.topPage(last, "q leaves", width, height)); err != nil {
			return err
		}
		if left, err := s.wait(ctx, topRefresh); left || err != nil {
			return err
		}
		if err := interrupted(ctx); err != nil {
			if p, ok := asProblem(err); ok && p.Code == codeInterrupted {
				return nil // Ctrl-C is how one leaves
			}
			return err
		}
	}
}

// topView is what top shows: machines with their slots, and the runs that hold them.
type topView struct {
	nodes []nodeView
	runs  map[string]runView // by id
	at    time.Time
	// trouble is why it is not newer, "" when it is what was asked for last
	trouble string
}

// lookTop asks for all of it; node "" = all machines.
func lookTop(ctx context.Context, cl *client, node string) (topView, error) {
	v := topView{at: time.Now()}
	nodes, err := cl.nodes(ctx)
	if err != nil {
		return v, err
	}
	v.nodes = slices.DeleteFunc(nodes.Items, func(n nodeView) bool { return node != "" && n.Name != node })
	v.runs, err = livingRuns(ctx, cl)
	return v, err
}

// livingRuns are the runs that are not over, by id.
func livingRuns(ctx context.Context, cl *client) (map[string]runView, error) {
	l, err := listPages[runView](ctx, cl, "/runs", filters("state", strings.Join([]string{runStarting, runAlive, runExiting, runLost}, ",")), 0)
	runs := map[string]runView{}
	for _, r := range l.Items {
		runs[r.ID] = r
	}
	return runs, err
}

// topList writes slots in the other formats: those of REST as JSON, else a table with all that is known.
func (c *cli) topList(ctx context.Context, cl *client, node string) error {
	l, err := getOne[list[slotView]](ctx, cl, "/slots", nil)
	if err != nil {
		return err
	}
	l.Items = slices.DeleteFunc(l.Items, func(s slotView) bool { return node != "" && s.Node != node })
	cols := c.p.slotColumns()
	if !c.p.json() && c.p.format != outName {
		runs, err := livingRuns(ctx, cl)
		if err != nil {
			return err
		}
		of := func(s slotView) runView { return runs[textOf(s.Run)] }
		cols = slices.Insert(cols, 5,
			column[slotView]{name: "name", cell: func(s slotView) string { return of(s).Name }},
			column[slotView]{name: "step", right: true, cell: func(s slotView) string { return runStep(of(s)) }},
			column[slotView]{name: "step age", cell: func(s slotView) string { return c.p.ago(of(s).LastStepMS) }},
			column[slotView]{name: "left", right: true, cell: func(s slotView) string { return leftText(of(s)) }},
		)
	}
	return printList(c.p, l, cols, slotID)
}
