package main

// gpuctl event list: what the platform noticed.

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

type eventFlags struct {
	typ, severity, run, job string
	limit                   int
	follow                  bool
}

func eventCommands() []command {
	return []command{{
		words: "event list", short: "List events, newest last; -f follows",
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			var f eventFlags
			fs.StringVar(&f.typ, "type", "", "only events of this type")
			fs.StringVar(&f.severity, "severity", "", "only of this severity or above: "+strings.Join([]string{sevInfo, sevNotice, sevWarning, sevCritical}, "|"))
			fs.StringVar(&f.run, "run", "", "only of this run")
			fs.StringVar(&f.job, "job", "", "only of this job")
			fs.IntVar(&f.limit, "limit", 50, "how many of the newest")
			fs.BoolVarP(&f.follow, "follow", "f", false, "go on with what comes; JSON is then one event a line")
			return func(ctx context.Context, args []string) error { return c.eventList(ctx, f, args) }
		},
	}}
}

func (p *printer) eventColumns() []column[eventView] {
	return []column[eventView]{
		{name: "id", right: true, cell: func(e eventView) string { return strconv.FormatInt(e.ID, 10) }},
		{name: "time", cell: func(e eventView) string { return p.ago(&e.AtMS) }},
		{name: "severity", state: true, cell: func(e eventView) string { return e.Severity }},
		{name: "type", cell: func(e eventView) string { return e.Type }},
		{name: "about", cell: eventAbout},
		{name: "actor", wide: true, cell: func(e eventView) string { return e.Actor }},
		{name: "message", cell: func(e eventView) string { return e.Message }},
	}
}

// eventAbout is what an event is about: the run, else the job, else the node.
func eventAbout(e eventView) string {
	switch {
	case e.Run != nil && *e.Run != "":
		return "run " + *e.Run
	case e.JobID != nil:
		return "job " + numberOf(e.JobID)
	}
	return textOf(e.Node)
}

func (c *cli) eventList(ctx context.Context, f eventFlags, args []string) error {
	if err := argCount(args, 0, 0, ""); err != nil {
		return err
	}
	if f.limit < 0 || f.limit == 0 && !f.follow {
		return newProblem(codeUsage, "--limit 50", "--limit %d: it must be at least 1", f.limit)
	}
	q := filters("type", f.typ, "severity", f.severity, "run", f.run, "job", f.job)
	cl, err := c.connect()
	if err != nil {
		return err
	}
	last, err := cl.lastEvent(ctx) // before the list: what comes between the two is asked for again and passed over
	if err != nil {
		return err
	}
	l := list[eventView]{Items: []eventView{}}
	if f.limit > 0 {
		if l, err = listPages[eventView](ctx, cl, "/events", q, f.limit); err != nil {
			return err
		}
	}
	slices.Reverse(l.Items)
	if n := len(l.Items); n > 0 {
		last = max(last, l.Items[n-1].ID)
	}
	name := func(e eventView) string { return strconv.FormatInt(e.ID, 10) }
	if f.follow && c.p.format == outJSON {
		c.p.format = outNDJSON
	}
	if err := printList(c.p, l, c.p.eventColumns(), name); err != nil || !f.follow {
		return err
	}
	c.p.noHeaders = true
	fl := newFollower(cl, nil, c.say)
	for {
		asked := time.Now()
		var page list[eventView]
		if err := fl.retry(ctx, func() (err error) {
			page, err = cl.eventsAfter(ctx, last, pollWaitMaxSeconds*time.Second, q)
			return err
		}); err != nil {
			return err
		}
		page.Items = slices.DeleteFunc(page.Items, func(e eventView) bool { return e.ID <= last })
		if n := len(page.Items); n > 0 {
			last = page.Items[n-1].ID
			c.p.now = time.Now()
			if err := printList(c.p, page, c.p.eventColumns(), name); err != nil {
				return err
			}
		} else if time.Since(asked) < 200*time.Millisecond && !sleep(ctx, 250*time.Millisecond) { // not in a circle
			return interrupted(ctx)
		}
	}
}
