package main

// How far a run is and how long it still takes, from what is stored: the steps of its series, what its job or its checkpoints say about the
// total, and the bars in its log. Read only; the reading of bars and the arithmetic are in semantic_progress.go.

import "time"

// Where the total of a progress comes from, best first.
const (
	totalFromJob     = "total_steps"
	totalFromTrainer = "trainer_state"
	totalFromBar     = "tqdm"
)

const (
	// progressPoints is how many of the newest points the rate is taken from: enough to see over a validation in between, few enough to
	// follow a change of pace.
	progressPoints = 512

	// progressLines is how far back in the log a bar is looked for.
	progressLines = 200

	// progressBarStale is when a bar that is not drawn any more says nothing about the time left, unless its steps are as slow as that.
	progressBarStale = time.Minute
)

// progressFacts is what is stored about how far a run is.
type progressFacts struct {
	id           int64
	state        string
	skewMS       int64  // the run's node minus us
	jobTotal     *int64 // as its job says
	trainerTotal *int64 // as the newest checkpoint that knows says
	checkpointed *int64 // step of the newest checkpoint
	series       *int64 // the one that shows the step best
	count        int64  // of its points
	firstMS      int64
	firstStep    int64
	lastMS       int64
	lastStep     int64
	bar          logProgress
	barMS        int64 // when its line was read, 0 = not known
	hasBar       bool
}

// liveLineOf gives the unfinished last line of a run's log, and whether the bar in it is known to have begun anew.
type liveLineOf func(runID int64) (line logItem, again, ok bool)

// readProgress says how far a run is, nil when nothing tells.
func readProgress(c *conn, uid string, live liveLineOf, nowMS int64) (*runProgress, error) {
	var f progressFacts
	found, err := c.one(`SELECT r.id, r.state, coalesce(n.skew_ms, 0), j.total_steps,
			(SELECT k.total_steps FROM checkpoints k WHERE k.run_id = r.id AND k.total_steps > 0 ORDER BY k.id DESC LIMIT 1),
			(SELECT k.step FROM checkpoints k WHERE k.run_id = r.id AND k.step >= 0 ORDER BY k.id DESC LIMIT 1)
		FROM runs r LEFT JOIN jobs j ON j.id = r.job_id LEFT JOIN nodes n ON n.id = r.node_id WHERE r.uid = ?`, []any{uid},
		&f.id, &f.state, &f.skewMS, &f.jobTotal, &f.trainerTotal, &f.checkpointed)
	if err != nil || !found {
		return nil, err
	}
	if err := f.readSeries(c); err != nil {
		return nil, err
	}
	if !runOver(f.state) {
		if err := f.readBar(c, live); err != nil {
			return nil, err
		}
	}
	p := f.shown()
	if p != nil && f.state == runAlive {
		p.ETAMS, err = f.timeLeft(c, p, nowMS+f.skewMS)
	}
	return p, err
}

// total is how many steps the run has by its job or its checkpoints, nil when they do not say.
func (f *progressFacts) total() *int64 {
	if f.jobTotal != nil && *f.jobTotal > 0 {
		return f.jobTotal
	}
	return f.trainerTotal
}

// readSeries finds the series whose steps are the run's: with a total the one that is nearest to it from below, because another may count
// epochs or samples; without one the one that got a point last.
func (f *progressFacts) readSeries(c *conn) error {
	_, err := c.one(`SELECT id, count, first_step, first_ms, last_step, last_ms FROM series
		WHERE run_id = ?1 AND last_step IS NOT NULL AND last_ms IS NOT NULL AND first_ms IS NOT NULL AND first_step IS NOT NULL
		ORDER BY CASE WHEN ?2 IS NULL THEN 0 WHEN last_step > ?2 THEN last_step - ?2 ELSE ?2 - last_step - 0x4000000000000000 END, last_ms DESC, id LIMIT 1`,
		[]any{f.id, f.total()}, &f.series, &f.count, &f.firstStep, &f.firstMS, &f.lastStep, &f.lastMS)
	return err
}

// readBar looks for the bar in the last lines of the log and the unfinished one below them.
func (f *progressFacts) readBar(c *conn, live liveLineOf) error {
	stored, err := readLogLines(c, f.id, logAsk{limit: progressLines})
	if err != nil {
		return err
	}
	lines := make([]string, 0, len(stored)+1)
	for _, l := range stored {
		lines = append(lines, l.Text)
	}
	last, again, has := live(f.id)
	if has {
		lines = append(lines, last.Text)
	}
	if f.bar, f.hasBar = progressOfLines(lines, has && again); !f.hasBar {
		return nil
	}
	switch i := f.bar.line; {
	case i == len(stored):
		f.barMS = last.AtMS
	case stored[i].AtMS != nil:
		f.barMS = *stored[i].AtMS
	}
	return nil
}

// shown is the progress without the time left.
func (f *progressFacts) shown() *runProgress {
	p := &runProgress{}
	switch {
	case f.total() != nil:
		p.Total, p.From = f.total(), totalFromTrainer
		if p.Total == f.jobTotal {
			p.From = totalFromJob
		}
		switch {
		case f.series != nil:
			p.Step = f.lastStep
		case f.hasBar && !f.bar.partly:
			p.Step = f.bar.step
		case f.checkpointed != nil:
			p.Step = *f.checkpointed
		default:
			return nil
		}
	case f.hasBar && f.bar.total >= 0:
		p.Step, p.Total, p.From = f.bar.step, &f.bar.total, totalFromBar
		if f.bar.partly {
			p.Part = &f.bar.part
		}
	case f.series != nil:
		p.Step = f.lastStep
	case f.hasBar:
		p.Step = f.bar.step
	default:
		return nil
	}
	return p
}

// timeLeft is the ETA of a run that lives, by the clock of its node.
func (f *progressFacts) timeLeft(c *conn, p *runProgress, nowMS int64) (*int64, error) {
	if p.Total == nil || p.Part != nil {
		return nil, nil
	}
	left := int64(-1)
	if p.From != totalFromBar && f.series != nil {
		points := []stepAt{}
		if err := c.each("SELECT step, at_ms FROM points WHERE series_id = ? AND seq >= ? ORDER BY seq", []any{*f.series, f.count - progressPoints}, func(get func(...any) error) error {
			var pt stepAt
			if err := get(&pt.step, &pt.atMS); err != nil {
				return err
			}
			points = append(points, pt)
			return nil
		}); err != nil {
			return nil, err
		}
		if len(points) < 2 { // the others lie in chunks: a backlog that was taken at once
			points = []stepAt{{f.firstStep, f.firstMS}, {f.lastStep, f.lastMS}}
		}
		left = timeLeft(points, *p.Total, nowMS)
	} else if f.hasBar && !f.bar.partly && f.bar.total == *p.Total {
		left = f.barLeft(nowMS)
	}
	if left < 0 {
		return nil, nil
	}
	return &left, nil
}

// barLeft is what the bar says itself, -1 when it says nothing or was not drawn for too long.
func (f *progressFacts) barLeft(nowMS int64) int64 {
	if f.bar.leftMS < 0 {
		return -1
	}
	stale := progressBarStale.Milliseconds()
	if rest := f.bar.total - f.bar.step; rest > 0 {
		stale = max(stale, 10*f.bar.leftMS/rest)
	}
	if f.barMS > 0 && nowMS-f.barMS > stale {
		return -1
	}
	return f.bar.leftMS
}
