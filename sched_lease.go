package main

// The server's timers: offers that nobody claimed, silent nodes, sources that nobody carries, the end of RECOVERY, and the housekeeping
// that follows an end (sealing, the WAL). No timer runs in RECOVERY, and none holds the server's own absence against anybody.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	timersEvery = time.Second
	sealEvery   = 10 * time.Second
	walEvery    = 10 * time.Minute
	walWorth    = 4 << 20          // a smaller WAL is left alone
	pauseIs     = 30 * time.Second // a gap between two steps that means: this process slept
	sealsAtOnce = 16
	mendsAtOnce = 64 // steps of sealing points, of at most two chunks each, before the logs are looked at again
)

// timers is the state of the timers' loop. resumed is when this process began to listen, or woke up: silence before it counts for nothing.
type timers struct {
	resumed, last time.Time
}

// noteStep sees a pause of this process (suspend, a stopped container, a clock that jumped): wall clock, since the monotonic one stands
// still in suspend.
func (k *timers) noteStep(now time.Time) (slept bool) {
	wall := now.Round(0)
	gap := wall.Sub(k.last)
	slept = !k.last.IsZero() && (gap > pauseIs || gap < -pauseIs)
	if k.resumed.IsZero() || slept {
		k.resumed = now
	}
	k.last = wall
	return slept
}

// since is the later of a moment and the last time this process resumed.
func (k *timers) since(at time.Time) time.Time {
	if at.Before(k.resumed) {
		return k.resumed
	}
	return at
}

// timersStep looks for what is due, and writes only then.
func (s *server) timersStep(ctx context.Context, now time.Time) (time.Duration, error) {
	if s.timers.noteStep(now) {
		s.log.Warn("this process slept; deadlines start anew")
	}
	var recovery bool
	var offers, silent []runNow
	var sources []string
	err := s.store.read(ctx, func(c *conn) (err error) {
		if _, _, recovery, err = s.inRecovery(c); err != nil || recovery {
			return err
		}
		if offers, err = s.dueOffers(c, now); err != nil {
			return err
		}
		if silent, err = s.dueSilent(c, now); err != nil {
			return err
		}
		if now.Sub(s.timers.resumed) > carrierGone {
			sources, err = orphanedSources(c, now.Add(-carrierGone).UnixMilli())
		}
		return err
	})
	if err != nil {
		return timersEvery, err
	}
	if !recovery && len(offers)+len(silent)+len(sources) == 0 {
		return timersEvery, nil
	}
	err = s.store.write(ctx, func(t *tx) error {
		if ended, err := s.endRecoveryTx(t); err != nil || recovery || ended {
			return err
		}
		return s.dueTx(t, offers, silent, sources)
	})
	return timersEvery, err
}

// dueTx applies what was found due, each looked at again: it may have changed since.
func (s *server) dueTx(t *tx, offers, silent []runNow, sources []string) error {
	for _, r := range offers {
		again, err := loadRun(t.conn, r.id)
		if err != nil {
			return err
		}
		if again.state != runOffered {
			continue
		}
		if err := s.expireOfferTx(t, again); err != nil {
			return fmt.Errorf("expire offer of run %d: %w", r.id, err)
		}
	}
	for _, r := range silent {
		again, err := loadRun(t.conn, r.id)
		if err != nil {
			return err
		}
		if again.state != r.state {
			continue
		}
		if err := s.silentTx(t, again); err != nil {
			return fmt.Errorf("mark run %s lost: %w", r.label(), err)
		}
	}
	for _, src := range sources {
		if err := closeIncompleteTx(t, src); err != nil {
			return err
		}
	}
	return nil
}

// dueOffers are the offers older than ack_timeout.
func (s *server) dueOffers(c *conn, now time.Time) ([]runNow, error) {
	wait := s.cfg.AckTimeout.or(defaultAckTimeout)
	if now.Sub(s.timers.resumed) < wait {
		return nil, nil
	}
	return loadRuns(c, "state = 'OFFERED' AND offered_ms <= ? ORDER BY id", now.Add(-wait).UnixMilli())
}

// dueSilent are the runs of nodes that were not heard from for lost_after.
func (s *server) dueSilent(c *conn, now time.Time) ([]runNow, error) {
	type row struct{ id, seen int64 }
	var nodes []row
	if err := c.each("SELECT id, last_seen_ms FROM nodes WHERE id IN (SELECT node_id FROM runs WHERE state IN ('STARTING', 'ALIVE', 'EXITING'))",
		nil, func(get func(...any) error) error {
			var n row
			err := get(&n.id, &n.seen)
			nodes = append(nodes, n)
			return err
		}); err != nil {
		return nil, err
	}
	var out []runNow
	for _, n := range nodes {
		if now.Sub(s.timers.since(s.lastSeen(n.id, n.seen))) < s.cfg.LostAfter.or(defaultLostAfter) {
			continue
		}
		rs, err := loadRuns(c, "node_id = ? AND state IN ('STARTING', 'ALIVE', 'EXITING') ORDER BY id", n.id)
		if err != nil {
			return nil, err
		}
		out = append(out, rs...)
	}
	return out, nil
}

// silentTx marks a run of a silent node LOST. Its slots stay held and nothing is started elsewhere: it may live.
func (s *server) silentTx(t *tx, r runNow) error {
	name, err := nodeName(t.conn, r.nodeID)
	if err != nil {
		return err
	}
	m := runMove{ev: runSilent, actor: actorServer, message: fmt.Sprintf("run %s: %s was not heard from for %s; its slots stay held",
		r.label(), name, s.cfg.LostAfter.or(defaultLostAfter))}
	if err := moveRunTx(t, r.id, m); err != nil || r.jobID == nil {
		return err
	}
	j, err := loadJob(t.conn, *r.jobID)
	if err != nil || j.state != jobRunning || j.runID == nil || *j.runID != r.id {
		return err
	}
	return moveJobTx(t, j.id, jobMove{
		ev: jobSilent, actor: actorServer,
		message: fmt.Sprintf("job %d (%s): %s was not heard from for %s", j.id, j.name, name, s.cfg.LostAfter.or(defaultLostAfter)),
	})
}

// sealStep makes one blob of the log of each run that is over and drained, packs the points of such runs, and keeps the incarnation file near
// the numbers given.
func (s *server) sealStep(ctx context.Context, _ time.Time) (time.Duration, error) {
	var due, series []int64
	var highest map[string]int64
	err := s.store.read(ctx, func(c *conn) (err error) {
		if due, err = sealable(c, sealsAtOnce); err != nil {
			return err
		}
		if series, err = sealableSeries(c, mendsAtOnce); err != nil {
			return err
		}
		highest, err = highestNumbers(c)
		return err
	})
	if err != nil {
		return sealEvery, err
	}
	for _, run := range due {
		if err := s.store.seal(ctx, run); err != nil {
			return sealEvery, fmt.Errorf("seal the log of run %d: %w", run, err)
		}
		s.contacts.forgetLive(run)
	}
	if s.inc.behind(highest) {
		if err := s.store.read(ctx, s.inc.save); err != nil {
			return sealEvery, err
		}
	}
	more, err := s.sealSeriesStep(ctx, series)
	if err == nil && (more || len(due) == sealsAtOnce) {
		return 0, nil
	}
	return sealEvery, err
}

// sealSeriesStep does at most mendsAtOnce steps of sealing; more says that there is more to do. A series that cannot be read keeps none of
// the others from it.
func (s *server) sealSeriesStep(ctx context.Context, series []int64) (more bool, err error) {
	var errs []error
	steps := 0
	for _, id := range series {
		for sealed := false; !sealed; steps++ {
			if steps == mendsAtOnce {
				return true, errors.Join(errs...)
			}
			if sealed, err = s.store.sealSeries(ctx, id); err != nil {
				errs = append(errs, fmt.Errorf("seal the points of series %d: %w", id, err))
				break
			}
		}
	}
	return len(series) == mendsAtOnce, errors.Join(errs...)
}

// walStep shrinks the WAL when it has grown.
func (s *server) walStep(ctx context.Context, _ time.Time) (time.Duration, error) {
	st, err := os.Stat(s.store.path + "-wal")
	if err != nil || st.Size() < walWorth {
		return walEvery, nil // no WAL, nothing to shrink
	}
	return walEvery, s.store.truncateWAL(ctx)
}
