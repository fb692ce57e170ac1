package main

// What the agent does about a run's supervisor and processes: start one, give it the grant, order a stop, and do the supervisor's work
// itself where none lives any more. Everything here may be repeated, and may be cut off at any point.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// startSupervisor starts `self supervise DIR`, which gets everything ready and waits for giveGrant; closing grant without it means that
// nothing is to be started. The supervisor lives on when this process dies. Its problems go to supervisor.log in the folder.
func startSupervisor(self string, dir runDir) (grant io.WriteCloser, pid int, err error) {
	abs, err := filepath.Abs(string(dir))
	if err != nil {
		return nil, 0, err
	}
	log, err := os.OpenFile(dir.file(supervisorLog), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("start a supervisor: %w", err)
	}
	defer log.Close()
	return spawnSupervisor(self, abs, log)
}

// giveGrant tells a waiting supervisor to start, and closes the pipe. An error means that the supervisor is gone or did not read it
// whole; whether it decided the fate is then in the folder.
func giveGrant(w io.WriteCloser, g runGrantInfo) error {
	b, err := json.Marshal(g)
	if err == nil {
		_, err = w.Write(append(b, '\n'))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("give the grant: %w", err)
	}
	return nil
}

// runTreeOf says where the processes of a run folder are to be looked for. Pids of another boot mean nothing.
func runTreeOf(dir runDir) (runTree, error) {
	log, err := filepath.Abs(dir.logPath())
	if err != nil {
		return runTree{}, err
	}
	t := runTree{uid: dir.uid(), log: log}
	p, ok, err := dir.pid()
	if perr := (*fs.PathError)(nil); errors.As(err, &perr) {
		return t, err
	}
	if err != nil || !ok { // garbage is no pid.json: marker, log and cgroup still find the tree
		t.cgroup = findRunCgroup(t.uid)
		return t, nil
	}
	if p.BootID == "" || p.BootID != bootID() {
		return t, nil
	}
	t.leader = procID{p.Pid, p.StartTicks}
	t.supervisor = procID{p.SupervisorPid, p.SupervisorTicks}
	t.cgroup = runCgroup(p.Cgroup)
	t.born = p.StartTicks
	return t, nil
}

// treeAlive reports whether anything of the run lives: a supervisor, or a process of its tree. why names it. Subtrees that are left
// alone do not count.
func treeAlive(dir runDir) (alive bool, why string, err error) {
	held, err := dir.supervised()
	if held || err != nil {
		return held, "supervisor", err
	}
	t, err := runTreeOf(dir)
	if err != nil {
		return false, "", err
	}
	v, err := t.look()
	if err != nil || len(v.alive) == 0 {
		return false, "", err
	}
	why = fmt.Sprintf("pid %d (%s)", v.alive[0].pid, v.alive[0].comm)
	if n := len(v.alive) - 1; n > 0 {
		why += fmt.Sprintf(" and %d more", n)
	}
	return true, why, nil
}

// requestStop ends a run: stop.json and a signal to its supervisor, which does the rest. Where no supervisor lives it ends the tree itself,
// which takes as long as the grace, and writes exit.json. A run that is over, or has no fate, needs nothing. Repeat it while the run
// should end and is not over: the supervisor may die on the way.
func requestStop(dir runDir, s runStop) error {
	if _, over, err := dir.exit(); over || err != nil {
		return err
	}
	werr := writeAtomicJSON(dir.file("stop.json"), s)
	held, err := dir.supervised()
	if err != nil {
		return errors.Join(werr, err)
	}
	if !held {
		return errors.Join(werr, stopWithout(dir, s))
	}
	t, err := runTreeOf(dir)
	if err != nil {
		return errors.Join(werr, err)
	}
	sig := syscall.SIGUSR1
	if werr != nil { // the disk is full, perhaps by this very run: stop it all the same, only the reason is lost
		sig = syscall.SIGUSR2
	}
	if t.supervisor.pid == 0 { // it looks for stop.json when it has written pid.json, and now and then
		_, _, err := dir.pid()
		return errors.Join(werr, err)
	}
	// A stopped supervisor does not hear it before it is continued.
	return errors.Join(signalProc(t.supervisor, sig), signalProc(t.supervisor, syscall.SIGCONT))
}

// stopWithout ends the tree of a run that has no supervisor.
func stopWithout(dir runDir, s runStop) error {
	if f, ok, err := dir.fate(); err != nil || !ok || f.Fate != fateStart {
		return err
	}
	grace := seconds(s.GraceS)
	ctx, cancel := context.WithTimeout(context.Background(), grace+unkillableAfter+5*time.Second)
	defer cancel()
	if err := killTree(ctx, dir, grace); err != nil {
		return err
	}
	_, err := concludeRun(dir, bootID())
	return err
}

// killTree ends the tree of a run from outside of its supervisor: TERM, the grace, KILL until nothing is left. It returns nil when the
// tree is empty, and when ctx ends an error that names what still lives.
func killTree(ctx context.Context, dir runDir, grace time.Duration) error {
	t, err := runTreeOf(dir)
	if err != nil {
		return err
	}
	e := &treeEnding{tree: t, deadline: time.Now().Add(grace)}
	for {
		v, wait, err := e.step(time.Now())
		if err == nil && len(v.alive) == 0 {
			return nil
		}
		if !sleep(ctx, wait) {
			return errors.Join(fmt.Errorf("processes %v of run %s do not end", v.pids(), dir.uid()), err, e.trouble)
		}
	}
}

// signalTree sends a signal to every process of a run; USR1 and USR2 only to those that handle them, since they would end the others (a
// launcher, a data loader) and mean something to the training alone. KILL is an order to end it: it goes by requestStop, so that what
// follows is not taken for the host's doing.
func signalTree(dir runDir, sig int) error {
	if sig == int(syscall.SIGKILL) {
		return requestStop(dir, runStop{Reason: reasonSignal, AtMS: time.Now().UnixMilli()})
	}
	t, err := runTreeOf(dir)
	if err != nil {
		return err
	}
	v, err := t.look()
	if err != nil {
		return err
	}
	if s := syscall.Signal(sig); s == syscall.SIGUSR1 || s == syscall.SIGUSR2 {
		told, err := v.signalAware(s)
		if err == nil && told == 0 {
			err = fmt.Errorf("no process of the run handles signal %d (%v)", sig, s)
		}
		return err
	}
	return v.signal(syscall.Signal(sig))
}

// concludeRun writes exit.json of a run that was started and of which nothing lives, neither supervisor nor process: how it ended
// nobody saw, unless leader.json tells. boot is the present boot. It returns what holds, also when it was written already.
func concludeRun(dir runDir, boot string) (runExit, error) {
	if e, ok, err := dir.exit(); ok || err != nil {
		return e, err
	}
	fate, ok, err := dir.fate()
	if err != nil {
		return runExit{}, err
	}
	if !ok || fate.Fate != fateStart {
		return runExit{}, fmt.Errorf("run %s was never started", dir.uid())
	}
	held, err := dir.supervised()
	if err != nil {
		return runExit{}, err
	}
	t, err := runTreeOf(dir)
	if err != nil {
		return runExit{}, err
	}
	v, err := t.look()
	if err != nil {
		return runExit{}, err
	}
	if held || len(v.alive) > 0 {
		return runExit{}, fmt.Errorf("run %s is alive: supervisor %t, processes %v", dir.uid(), held, v.pids())
	}
	e, err := lostEnd(dir, fate, boot, time.Now())
	if err != nil {
		return runExit{}, err
	}
	e.LeftAlone = v.roots
	b, err := json.Marshal(e)
	if err != nil {
		return runExit{}, err
	}
	err = writeOnce(dir.file("exit.json"), append(b, '\n'))
	if errors.Is(err, fs.ErrExist) { // the supervisor wrote it just before it went
		e, _, err = dir.exit()
		return e, err
	}
	if err != nil {
		return runExit{}, fmt.Errorf("conclude run %s: %w", dir.uid(), err)
	}
	return e, t.cgroup.remove(v.left)
}

// lostEnd is the end of a run whose supervisor died before it could tell.
func lostEnd(dir runDir, fate runFate, boot string, now time.Time) (runExit, error) {
	e, known, err := dir.leader()
	if perr := (*fs.PathError)(nil); errors.As(err, &perr) {
		return runExit{}, err
	}
	e.LogSize, e.Unkillable = dir.logSize(), nil
	if known && err == nil {
		return e, nil // its leader's end was seen
	}
	pid, started, err := dir.pid()
	if perr := (*fs.PathError)(nil); errors.As(err, &perr) {
		return runExit{}, err
	}
	e.Code, e.StartedMS, e.EndedMS = -1, fate.AtMS, now.UnixMilli()
	e.Reason, e.Detail = reasonSupervisorLost, "the supervisor died before the process ended; its exit code is not known"
	if !started {
		e.Detail = "the supervisor died before it told of a process"
	} else {
		e.StartedMS = pid.StartedMS
	}
	stop, stopped, err := dir.stop()
	switch {
	case started && boot != "" && pid.BootID != boot:
		e.Reason, e.Detail = reasonNodeReboot, "the machine was started anew while the process ran"
		if st, err := os.Stat(dir.logPath()); err == nil { // the last sign of life
			e.EndedMS = st.ModTime().UnixMilli()
		}
	case err == nil && stopped && stop.Reason != "":
		e.Reason = stop.Reason
	}
	e.EndedMS = max(e.EndedMS, e.StartedMS)
	e.DurationS = float64(e.EndedMS-e.StartedMS) / 1000
	if g := runCgroup(pid.Cgroup); g != "" && pid.BootID == boot {
		e.OOM = oomWatch{}.evidence(g, false)
	}
	return e, nil
}
