package main

// The end of a run, seen by its sources: nobody writes any more, so one last look for event files and checkpoints, then everything that was
// found is taken to its present size, and after it the log ends. A run is drained when its log is, so after its last points. Nothing here
// holds the slot, and nothing is remembered: the next agent does it again with the same result.
//
// What a run left alone when it ended (a tmux server and its panes) may write on: its event files are taken at the size they have now.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	drainPatience = time.Minute // what does not answer for so long is told and left out: folders, checkpoints
	ckptEvery     = 2 * time.Second
)

// tbStep looks for event files, and lets the runs end that are over and have been looked through.
func (a *agent) tbStep(ctx context.Context, now time.Time) (time.Duration, error) {
	subjects := a.tbSubjects(now)
	wait, err := a.tb.look(now, subjects)
	for _, s := range subjects {
		if s.ended {
			if derr := a.drain(s, now); derr != nil {
				err = errors.Join(err, derr)
			}
		}
	}
	if len(subjects) > 0 {
		wait = min(wait, tbWalksEvery) // one of them may come to be late
	}
	a.mu.Lock()
	news := a.tbProblem != a.tb.problem
	a.tbProblem = a.tb.problem
	a.mu.Unlock()
	if news {
		a.helloBell.ring()
	}
	return wait, err
}

// tbSubjects lists the runs that live, and those that are over and were not looked through yet. Of a run that was over before this agent
// came, first the server must say that it does not have the end.
func (a *agent) tbSubjects(now time.Time) []tbSubject {
	var list, over []tbSubject
	mine := map[string]bool{}
	a.mu.Lock()
	for uid, r := range a.runs {
		s := tbSubject{uid: uid, dir: a.runFolder(uid)}
		switch {
		case r.used && !r.lived && (r.busy || now.Sub(r.granted) < grantGrace) && (r.told == "" || r.told == tellPending):
			s.starts = true
			list = append(list, s)
		case !r.logOn || r.idle || r.drained:
		case r.told == tellAlive, r.told == tellExiting:
			list = append(list, s)
		case r.told == tellEnded && r.logEnded:
			mine[uid] = r.used || r.lived
			over = append(over, s)
		}
	}
	a.mu.Unlock()
	for _, s := range over {
		known, done := a.up.logState(s.uid)
		s.ended = true
		switch {
		case done && !s.dir.linksTBs():
			a.mu.Lock()
			a.record(s.uid).drained = true
			a.mu.Unlock()
			continue
		case done: // a former agent did not come to remove the links, or the server closed its sources while it was away
			s.through = true
		case !known && !mine[s.uid]:
			continue
		default:
			s.endMS, s.through = drainedAt(s.dir)
		}
		list = append(list, s)
	}
	return list
}

// drainedAt is when nothing of a run lived any more; never: it had no process.
func drainedAt(dir runDir) (ms int64, never bool) {
	e, ok, err := dir.exit()
	if !ok || err != nil {
		return time.Now().UnixMilli(), false
	}
	ms = e.EndedMS // of the leader
	if st, err := os.Stat(dir.file("exit.json")); err == nil {
		ms = max(ms, st.ModTime().UnixMilli())
	}
	return ms, e.Reason == reasonStartFailed
}

// drain lets a run end, when all that there is of it was found, or does not answer for too long. A full disk of our own is waited for.
func (a *agent) drain(s tbSubject, now time.Time) error {
	a.mu.Lock()
	r := a.record(s.uid)
	if r.over.IsZero() {
		r.over = now
	}
	late, ckpts, full := now.Sub(r.over) >= drainPatience, r.ckptDone || s.through, r.ckptFull
	a.mu.Unlock()
	looking := a.tb.pending(s.uid)
	if (looking || !ckpts) && !late || looking && a.tb.noRoom(s.uid) || !ckpts && full {
		return nil
	}
	if looking {
		if err := a.tb.giveUpLooking(s.uid, now); err != nil {
			return err
		}
	}
	if !ckpts {
		if err := a.tb.event(s.uid, "CKPT_INCOMPLETE-"+s.uid, wireEvent{
			Type: "CKPT_INCOMPLETE", Severity: "warning", Message: fmt.Sprintf("checkpoints may be missing: the last look for them did not end within %v", drainPatience),
		}, map[string]any{}, now); err != nil {
			return err
		}
	}
	a.tb.handLost(s.uid)
	a.up.endRun(s.uid, now)
	a.mu.Lock()
	r.drained = true
	a.mu.Unlock()
	return nil
}

// ckptStep looks at the folders with checkpoints of every run that has some: now and then while it lives, and once, for the last time,
// when it is over. A loop of its own, since a look at large files on a slow disk takes its time.
func (a *agent) ckptStep(ctx context.Context, now time.Time) (time.Duration, error) {
	type subject struct {
		uid  string
		last bool
	}
	var list []subject
	a.mu.Lock()
	for uid, r := range a.runs {
		switch {
		case !r.logOn || r.idle || r.drained || r.ckptDone:
		case r.told == tellAlive, r.told == tellExiting:
			list = append(list, subject{uid, false})
		case r.told == tellEnded && r.logEnded:
			list = append(list, subject{uid, true})
		}
	}
	a.mu.Unlock()
	if len(list) == 0 {
		return time.Minute, nil
	}
	var errs []error
	for _, s := range list {
		if ctx.Err() != nil {
			break
		}
		dir := a.runFolder(s.uid)
		if s.last {
			if known, done := a.up.logState(s.uid); done || !known && !a.startedByMe(s.uid) {
				continue // over long ago, as far as can be told
			}
		}
		spec, ok, err := dir.spec()
		if err == nil && ok && len(spec.Watch) > 0 {
			err = a.ckptLook(dir, spec, s.last, now)
		}
		if s.last {
			a.mu.Lock()
			r := a.record(s.uid)
			r.ckptDone, r.ckptFull = err == nil, diskFull(err)
			a.mu.Unlock()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("look for checkpoints of run %s: %w", s.uid, err))
			continue
		}
		if s.last {
			a.tbBell.ring()
		}
	}
	return ckptEvery, errors.Join(errs...)
}

// startedByMe reports whether this agent gave the run its grant, or saw it alive.
func (a *agent) startedByMe(uid string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.record(uid)
	return r.used || r.lived
}

// takeTB gives an event file to the uploader. Of one that the server may know, the next hello asks for the cursor.
func (a *agent) takeTB(uid string, h tbHold) bool {
	ok := a.up.addTB(uid, h)
	if ok && !h.fresh {
		a.helloBell.ring()
	}
	return ok
}
