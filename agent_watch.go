package main

// The watch: notices within milliseconds that a run came to life or ended, and rings hello. It looks at names in folders and at locks; what
// they mean is agent_truth's.

import (
	"context"
	"os"
	"time"
)

// runMark is what the watch looks at: when it changes, hello has something to tell.
type runMark struct {
	fate, pid, leader, exit, orphan bool // pid: the start has a time that hello can tell
}

// markOf looks at the names in a folder, and with lock at the supervisor too. orphan means: decided to start, and no supervisor lives.
func markOf(dir runDir, lock bool, last runMark) runMark {
	there := func(name string) bool { _, err := os.Lstat(dir.file(name)); return err == nil }
	m := runMark{fate: there("fate"), pid: there("pid.json"), leader: there("leader.json"), exit: there("exit.json"), orphan: last.orphan}
	m.fate = m.fate || m.exit || m.pid // a job can take the file away
	if m.fate && (lock || m.exit) {
		if held, err := dir.supervised(); err == nil {
			m.orphan = !held
		}
	}
	return m
}

// watchEvery and the two slower looks: an end must be told within 50 ms, and three stats a run every 25 ms cost less than 0.1 % of a core.
// The lock is asked five times a second, a tree that lost its supervisor once.
const (
	watchEvery  = 25 * time.Millisecond
	watchLock   = 200 * time.Millisecond
	watchOrphan = time.Second
)

// watchStep looks whether something changed in the folder of a run that is not over, and rings hello. Every change rings once.
func (a *agent) watchStep(_ context.Context, now time.Time) (time.Duration, error) {
	type live struct {
		uid  string
		told string
		mark runMark
		wait bool // granted, and the supervisor may be starting: leave its lock alone
	}
	var list []live
	a.mu.Lock()
	for uid, r := range a.runs {
		switch {
		case r.busy:
		case r.told == tellAlive || r.told == tellExiting || r.told == tellPending || r.told == "" && !r.granted.IsZero():
			list = append(list, live{uid, r.told, r.mark, r.told != tellAlive && r.told != tellExiting && now.Sub(r.granted) < grantGrace})
		}
	}
	a.mu.Unlock()
	if len(list) == 0 {
		return time.Minute, nil
	}
	a.ticks++
	tick := func(every time.Duration) bool { return a.ticks%int(every/watchEvery) == 0 }
	changed := false
	for _, l := range list {
		dir := a.runFolder(l.uid)
		m := markOf(dir, !l.wait && tick(watchLock), l.mark)
		if m.orphan && m == l.mark && tick(watchOrphan) {
			if alive, _, err := treeAlive(dir); err == nil && !alive {
				changed = true // concluded by the hello
			}
		}
		if l.told == tellPending && !m.fate && !l.wait && tick(watchOrphan) {
			changed = true // granted long ago and nothing decided: hello looks after it
		}
		if m != l.mark {
			changed = true
			a.mu.Lock()
			a.record(l.uid).mark = m
			a.mu.Unlock()
		}
	}
	if changed {
		a.helloBell.ring()
	}
	return watchEvery, nil
}
