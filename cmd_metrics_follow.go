package main

// Following the points of a run. A page of REST holds a range of steps, not "what is new": what was written is remembered here by series,
// each look asks from the lowest step at which a series stands, and the counts of the run say whether one went back below it.

import (
	"context"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// pointFollow follows one run.
type pointFollow struct {
	f     *follower
	sink  *pointSink
	run   string
	names []string // empty = all
	query url.Values
	seen  map[string]*pointsSeen
}

// pointsSeen is what was written of one series: how many points, and the steps of those that a look from the lowest step would give again.
type pointsSeen struct {
	count int64
	steps []int64
}

// metricFollow writes the points that are there and then those that come, one a line.
func (c *cli) metricFollow(ctx context.Context, cl *client, ref string, names []string, query url.Values) error {
	run, err := cl.run(ctx, ref)
	if err != nil {
		return err
	}
	if c.p.format == outJSON {
		c.p.format = outNDJSON
	}
	f := &pointFollow{f: newFollower(cl, nil, c.say), sink: newPointSink(c.p, false, false), run: run.ID, names: names, query: query, seen: map[string]*pointsSeen{}}
	f.sink.stream = true
	next := int64(-1)
	for {
		if err := f.look(ctx); err != nil {
			return err
		}
		page, err := f.await(ctx, next)
		if err != nil {
			return err
		}
		if page.Done && page.Next == next {
			return nil
		}
		next = page.Next
	}
}

// await waits until the run has more points than next, or is over.
func (f *pointFollow) await(ctx context.Context, next int64) (page metricsPage, err error) {
	asked := time.Now()
	err = f.f.retry(ctx, func() (err error) {
		q := url.Values{"max_points": {"1"}}
		wait := time.Duration(0)
		if next >= 0 {
			wait = pollWaitMaxSeconds * time.Second
			q.Set("after", strconv.FormatInt(next, 10))
			q.Set("wait", waitSeconds(wait))
		}
		page, err = f.f.cl.metricsEach(ctx, f.run, q, wait, func(metricSeries) error { return nil })
		return err
	})
	// a server that answers at once without news must not be asked in a circle
	if err == nil && !page.Done && page.Next == next && time.Since(asked) < 200*time.Millisecond && !sleep(ctx, 250*time.Millisecond) {
		err = interrupted(ctx)
	}
	return page, err
}

// look writes what is new.
func (f *pointFollow) look(ctx context.Context) error {
	var run runView
	if err := f.f.retry(ctx, func() (err error) {
		run, err = f.f.cl.run(ctx, f.run)
		return err
	}); err != nil {
		return err
	}
	if len(f.seen) == 0 || f.query.Get("from") != "" || f.query.Get("to") != "" { // counts are of all points: they say nothing about a range
		return f.write(ctx, f.asked(), nil)
	}
	later := &pointsLater{counts: map[string]int64{}}
	for _, m := range run.Metrics {
		later.counts[metricKey(m.Source, m.Folder, m.Tag)] = m.Count
	}
	later.from = f.lowest()
	q := f.asked()
	q.Set("from", strconv.FormatInt(later.from, 10))
	if err := f.write(ctx, q, later); err != nil {
		return err
	}
	for _, name := range later.whole {
		q := f.asked()
		q["name"] = []string{name}
		if err := f.write(ctx, q, nil); err != nil {
			return err
		}
	}
	return nil
}

// pointsLater is a look from a step on. A series that is new, or of which that range holds less than the run has more, goes to whole: its
// steps went back, it is asked for from its begin.
type pointsLater struct {
	from   int64
	counts map[string]int64 // points of each series before the look
	whole  []string         // names
}

// asked are the user's parameters.
func (f *pointFollow) asked() url.Values {
	return metricQuery(f.query, f.names)
}

// lowest is the lowest step at which a series stands; the steps that nobody will be told again are forgotten.
func (f *pointFollow) lowest() int64 {
	step := int64(math.MaxInt64)
	for _, s := range f.seen {
		step = min(step, s.steps[len(s.steps)-1])
	}
	for _, s := range f.seen {
		last := s.steps[len(s.steps)-1]
		s.steps = append(slices.DeleteFunc(s.steps[:len(s.steps)-1], func(n int64) bool { return n < step }), last)
	}
	return step
}

// write asks and writes the points that were not written yet; later is nil for a look at all steps.
func (f *pointFollow) write(ctx context.Context, q url.Values, later *pointsLater) error {
	return f.f.retry(ctx, func() error {
		_, err := f.f.cl.metricsEach(ctx, f.run, q, 0, func(m metricSeries) error {
			key := metricKey(m.Source, m.Folder, m.Tag)
			s := f.seen[key]
			if s == nil {
				s = &pointsSeen{}
			}
			skip := s.count
			if later != nil {
				skip = 0
				for _, n := range s.steps {
					if n >= later.from {
						skip++
					}
				}
				if s.count == 0 || int64(len(m.Points))-skip < later.counts[key]-s.count {
					later.whole = append(later.whole, m.Name)
					return nil
				}
			}
			if int64(len(m.Points)) <= skip {
				return nil
			}
			f.seen[key] = s
			m.Points = m.Points[skip:]
			for _, p := range m.Points {
				s.steps = append(s.steps, p.step)
			}
			s.count += int64(len(m.Points))
			return f.sink.series(m)
		})
		return err
	})
}
