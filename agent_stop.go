package main

// Stop, verify, signal: what is done to a run that the server names. Asked about a run, the agent decides it (burns what has no fate) and
// tells the truth, also of what was settled, and makes a folder for a run it never saw: a burned uid cannot start later.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// asked makes the next hello tell a run whatever was settled; an answer to an older hello settles nothing any more.
func (a *agent) asked(uid string) {
	a.mu.Lock()
	r := a.record(uid)
	r.asked++
	r.settled, r.idle = "", false
	a.mu.Unlock()
}

// stop ends a run: burned when nothing was decided, else its tree is ended by the supervisor, or here when none lives. Hello tells the end.
func (a *agent) stop(uid string, p stopPayload) error {
	a.asked(uid)
	defer a.helloBell.ring()
	dir := a.runFolder(uid)
	fresh, err := makeRunFolder(dir)
	if err == nil {
		err = dir.reopen()
	}
	if err != nil {
		return err
	}
	now := time.Now()
	want := runFate{Fate: fateBurn, Why: "stopped before the start: " + p.Reason, AtMS: now.UnixMilli()}
	if fresh { // its folder may have been wiped under it: then it did start, and needs a folder to end in
		marked, err := markedRuns()
		if err != nil {
			return err
		}
		held, err := dir.supervised()
		if err != nil {
			return err
		}
		if held || a.startedHere(uid, marked[uid]) {
			want = runFate{Fate: fateStart, AtMS: now.UnixMilli()}
		}
	}
	fate, err := dir.decide(want)
	if err != nil {
		if _, serr := os.Lstat(dir.file("fate")); serr != nil {
			return fmt.Errorf("burn: %w", err)
		}
		fate.Fate = fateStart // it cannot be read: whoever wrote it may have started
	}
	a.mu.Lock()
	r := a.record(uid)
	if r.giveUp != nil {
		r.giveUp()
	}
	stopping := r.stopping
	a.mu.Unlock()
	if fate.Fate != fateStart {
		a.log.Info("run", keyRun, uid, keyState, "burned", "why", fate.Why)
		return nil
	}
	alive, _, err := treeAlive(dir)
	if err != nil || !alive || stopping {
		return err
	}
	a.mu.Lock()
	a.record(uid).stopping = true
	a.mu.Unlock()
	a.log.Info("run", keyRun, uid, keyState, "stopping", "reason", p.Reason, "grace_s", p.GraceS)
	// Not waited for at the agent's end: without a supervisor this takes as long as the grace, and the command comes again after a restart.
	go func() {
		if err := requestStop(dir, runStop{Reason: p.Reason, GraceS: p.GraceS, AtMS: now.UnixMilli()}); err != nil {
			a.complain("stop "+uid, err)
		}
		a.mu.Lock()
		a.record(uid).stopping = false
		a.mu.Unlock()
		a.helloBell.ring()
	}()
	return nil
}

// verify tells the truth of a run by hello, which burns what has no fate and nobody to start it. What has no folder and no process gets one
// here, to be burned.
func (a *agent) verify(uid string) error {
	a.asked(uid)
	defer a.helloBell.ring()
	dir := a.runFolder(uid)
	if _, err := os.Stat(string(dir)); err == nil || !os.IsNotExist(err) {
		return err
	}
	marked, err := markedRuns()
	if err != nil || a.startedHere(uid, marked[uid]) {
		return err // the hello tells it by its marker
	}
	if held, err := dir.supervised(); held || err != nil {
		return err // it puts the folder back when the run is over
	}
	_, err = makeRunFolder(dir)
	return err
}

// signal sends one signal to a run's tree, once a command: a repeated one is only answered again.
func (a *agent) signal(ctx context.Context, c wireCommand) error {
	a.mu.Lock()
	ans, done := a.signalled[c.ID]
	a.mu.Unlock()
	if !done {
		p, err := decodePayload[signalPayload](c)
		if err == nil {
			err = a.signalRun(c.RunUID, p.Signal)
		}
		ans = commandAnswer{OK: err == nil}
		if err != nil {
			ans.Error = err.Error()
		}
		a.mu.Lock()
		a.signalled[c.ID] = ans
		a.mu.Unlock()
	}
	return a.door.answer(ctx, c.ID, ans)
}

func (a *agent) signalRun(uid string, sig int) error {
	if sig < 1 || sig > 64 {
		return fmt.Errorf("%d is no signal", sig)
	}
	dir := a.runFolder(uid)
	f, decided, err := dir.fate()
	if err != nil {
		return err
	}
	if !decided || f.Fate != fateStart {
		return fmt.Errorf("the run is not running here")
	}
	alive, _, err := treeAlive(dir)
	if err != nil {
		return err
	}
	if !alive {
		return fmt.Errorf("the run is over")
	}
	a.log.Info("run", keyRun, uid, "signal", sig)
	return signalTree(dir, sig)
}

// makeRunFolder makes the folder of a run that was never seen here, durable; fresh says that it was not there.
func makeRunFolder(dir runDir) (fresh bool, err error) {
	err = os.Mkdir(string(dir), 0o700)
	if os.IsExist(err) {
		return false, nil
	}
	if os.IsNotExist(err) { // runs/ itself was wiped
		err = os.MkdirAll(string(dir), 0o700)
	}
	if err != nil {
		return false, fmt.Errorf("make the run's folder: %w", err)
	}
	return true, syncDir(filepath.Dir(string(dir)))
}
