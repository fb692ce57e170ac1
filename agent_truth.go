package main

// What is true of one run, read from its folder and from the living processes: the rule of DESIGN section 4 and nothing else. It may end
// what nobody can start any more (burn), and conclude what ended without anybody watching; it starts and kills nothing.

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// grantGrace is how long a supervisor that was handed its grant may take to write the fate before the agent looks whether it still lives.
// Looking takes the folder's lock for an instant, and a supervisor that is just starting needs that lock.
const grantGrace = 5 * time.Second

// tellRun finds the truth of one folder. marked are the living processes that carry the run's marker. It burns a folder that has no fate
// and nobody who could still start it: only then is it gone.
func (a *agent) tellRun(dir runDir, marked []int, now time.Time) runTell {
	uid := dir.uid()
	a.mu.Lock()
	r := *a.record(uid)
	a.mu.Unlock()
	t := runTell{UID: uid}
	spec, _, err := dir.spec()
	if err != nil {
		t.DetailError = err.Error()
	} else {
		t.JobUID, t.JobID, t.Name, t.Argv, t.WorkingDir, t.Slots = spec.JobUID, spec.JobID, spec.Name, shortArgv(spec.Argv), spec.WorkingDir, spec.Slots
	}
	fate, decided, err := dir.fate()
	if err != nil { // it is there and cannot be read: whoever wrote it may have started
		t.DetailError = err.Error()
		fate, decided = runFate{Fate: fateStart}, true
	}
	if !decided {
		waiting := r.busy || !r.granted.IsZero() && now.Sub(r.granted) < grantGrace
		if !waiting && !r.granted.IsZero() {
			if held, err := dir.supervised(); err != nil || held {
				waiting = true
			}
		}
		if waiting {
			t.Truth = tellPending
			return t
		}
		if fate, err = dir.decide(runFate{Fate: fateBurn, Why: "nobody is left who could start it", AtMS: now.UnixMilli()}); err != nil {
			t.Truth, t.DetailError = tellPending, fmt.Sprintf("burn: %v", err) // not burned, so not gone
			return t
		}
	}
	if g := fate.Grant; g != nil {
		t.Attempt, t.Grant = g.Attempt, g.Grant
	}
	t.LogSize = dir.logSize()
	if fate.Fate == fateBurn {
		t.Truth = tellGone
		if len(marked) > 0 {
			t.Truth = tellAlive
		}
		return t
	}
	a.tellStarted(dir, &t, marked)
	return t
}

// tellStarted fills in the truth of a run whose fate was to start.
func (a *agent) tellStarted(dir runDir, t *runTell, marked []int) {
	if p, ok, err := dir.pid(); err != nil {
		t.DetailError = err.Error()
	} else if ok {
		t.StartedMS = p.StartedMS
	}
	exit, ended, err := dir.exit()
	if err != nil {
		t.DetailError, ended = err.Error(), false
	}
	alive, err := a.stillAlive(dir, ended, exit, marked)
	if err != nil { // cannot see: then it is not over
		alive, t.DetailError = true, err.Error()
	}
	if alive {
		t.Truth = tellAlive
		leader, over, err := dir.leader()
		switch {
		case err != nil:
			t.DetailError = err.Error()
		case over:
			t.Truth, t.Exit, t.LeftAlone, t.Unkillable = tellExiting, &leader.exitInfo, leader.LeftAlone, leader.Unkillable
		}
		return
	}
	if !ended { // the supervisor died with or before its tree: conclude what can be known
		if exit, err = concludeRun(dir, a.boot); err != nil {
			t.DetailError = fmt.Sprintf("conclude: %v", err)
			if exit.Reason == "" {
				exit.exitInfo = exitInfo{Code: -1, Reason: reasonSupervisorLost, StartedMS: t.StartedMS, LogSize: t.LogSize}
			}
		}
	}
	t.Truth, t.Exit, t.LeftAlone, t.Unkillable = tellEnded, &exit.exitInfo, exit.LeftAlone, exit.Unkillable
}

// stillAlive asks treeAlive, but for a run that ended properly and left no trace: that is what most folders are, and each look at all
// processes costs milliseconds.
func (a *agent) stillAlive(dir runDir, ended bool, exit runExit, marked []int) (bool, error) {
	if ended && len(marked) == 0 && len(exit.Unkillable) == 0 {
		held, err := dir.supervised()
		if err != nil || !held {
			return false, err
		}
	}
	alive, _, err := treeAlive(dir)
	return alive, err
}

// tellArgvBytes is how much of a command a hello repeats: hello is complete, so one run with a megabyte of arguments must not fill it.
const tellArgvBytes = 2 << 10

func shortArgv(argv []string) []string {
	left := tellArgvBytes
	for i, arg := range argv {
		if left -= len(arg) + 1; left < 0 {
			return append(slices.Clone(argv[:i]), "...")
		}
	}
	return argv
}

// followLog hands the log of a started run to the uploader, and its final size once that is known. Doing it again changes nothing.
func (a *agent) followLog(dir runDir, t runTell) {
	if t.Truth != tellAlive && t.Truth != tellExiting && t.Truth != tellEnded {
		return
	}
	a.mu.Lock()
	r := a.record(t.UID)
	add, end := !r.logOn, t.Truth == tellEnded && !r.logEnded
	r.logOn = true
	r.logEnded = r.logEnded || end
	a.mu.Unlock()
	if add {
		a.up.addLog(dir)
	}
	if end {
		a.up.finishLog(t.UID, max(t.Exit.LogSize, 0))
	}
}

// burnAll burns every folder without a fate: what was offered under another incarnation never starts.
func (a *agent) burnAll(now time.Time, why string) {
	names, err := a.runNames()
	if err != nil {
		a.complain("read the run folders", err)
		return
	}
	for _, uid := range names {
		if _, decided, err := a.runFolder(uid).fate(); decided || err != nil {
			continue
		}
		if err := a.burn(uid, now, why); err != nil {
			a.complain("burn "+uid, err)
		}
	}
}

// burn decides that a run never starts here, unless it was decided otherwise before.
func (a *agent) burn(uid string, now time.Time, why string) error {
	f, err := a.runFolder(uid).decide(runFate{Fate: fateBurn, Why: why, AtMS: now.UnixMilli()})
	if err == nil && f.Fate == fateBurn && f.Why == why {
		a.log.Info("run", keyRun, uid, keyState, "burned", "why", why)
	}
	return err
}

// runNames lists the folders in runs/ that have the form of a uid.
func (a *agent) runNames() ([]string, error) {
	dir := a.runFolder("")
	entries, err := os.ReadDir(string(dir))
	if os.IsNotExist(err) { // wiped while we live: the next start needs it
		return nil, os.MkdirAll(string(dir), 0o700)
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && isUID(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
