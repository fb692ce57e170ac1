package main

// What is true of one run, read from its folder and from the living processes: the rule of DESIGN section 4 and nothing else. It may end
// what nobody can start any more (burn), and conclude what ended without anybody watching; it starts and kills nothing.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
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
	if err := dir.reopen(); err != nil {
		t.DetailError = err.Error()
	}
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
		if len(marked) > 0 { // it did start: its folder was wiped, and a stop is just making a new one for it
			t.Truth = tellAlive
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
		if t.Truth == tellAlive { // the leader itself may be what does not die
			if pids, err := dir.unkillable(); err != nil {
				t.DetailError = err.Error()
			} else {
				t.Unkillable = pids
			}
		}
		return
	}
	if !ended { // the supervisor died with or before its tree: conclude what can be known
		if exit, err = concludeRun(dir, a.boot); err != nil {
			t.DetailError = fmt.Sprintf("conclude: %v", err)
			if exit, ended = a.unconcluded(dir, err, *t); !ended {
				t.Truth = tellAlive
				return
			}
		}
	}
	t.Truth, t.Exit, t.LeftAlone, t.Unkillable = tellEnded, &exit.exitInfo, exit.LeftAlone, exit.Unkillable
}

// unconcluded says what holds when concludeRun failed. What cannot be stored now (a full disk) is not over: the true code may still be found.
// A file of the folder that holds garbage stays garbage, so the run ended with a code that nobody knows.
func (a *agent) unconcluded(dir runDir, cause error, t runTell) (exit runExit, ended bool) {
	if exit, ok, err := dir.exit(); ok && err == nil {
		return exit, true
	}
	if _, isFile := errors.AsType[*fs.PathError](cause); isFile {
		return exit, false
	}
	if alive, _, err := treeAlive(dir); alive || err != nil {
		return exit, false
	}
	exit.exitInfo = exitInfo{Code: -1, Reason: reasonSupervisorLost, Detail: "the files of its end cannot be read", StartedMS: t.StartedMS, LogSize: t.LogSize}
	return exit, true
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
		a.up.sizeLog(t.UID, max(t.Exit.LogSize, 0))
	}
	if add || end {
		a.tbBell.ring()
		a.ckptBell.ring()
	}
}

// startedHere reports whether one of the marked processes was started from this home: on one machine there may be several (a demo beside the
// real one, another user's), and a run without a folder here may be well kept elsewhere. What jobs write for us names the folder.
func (a *agent) startedHere(uid string, pids []int) bool {
	want := []byte("\x00GPUCTL_SDK_FILE=" + a.runFolder(uid).file(sdkFile) + "\x00")
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && bytes.Contains(slices.Concat([]byte{0}, b, []byte{0}), want) {
			return true
		}
	}
	return false
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
