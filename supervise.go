package main

// The supervisor of one run, `gpuctl supervise DIR`: waits for the grant, decides the fate, forks, waits, ends what is to be ended, and
// leaves the truth in the run's folder. It knows no network and no agent; it goes on when everybody else is gone. It holds the folder's
// lock as long as it lives. Orders come as stop.json and SIGUSR1.

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// supervision is what the supervisor knows of its run.
type supervision struct {
	dir        runDir
	spec       runSpec
	fate       runFate
	tree       runTree
	oom        oomWatch
	started    time.Time // with the monotonic clock
	end        runExit   // of the leader, complete once over
	over       bool      // the leader ended
	killed     bool      // a process of the run was ended by a SIGKILL that is not ours
	toldLeader bool      // leader.json is written
	stuck      []int     // as last written to unkillable.json
	usage      syscall.Rusage
	pid        *runPid // not yet written
	cause      string  // what the leader was ended for by us: stop.json's reason, TIMEOUT; "" = it was not
	warned     bool    // the early signal was sent
	ending     *treeEnding
	termAt     time.Time  // when this process itself was told to go
	endAt      time.Time  // of the leader
	left       []procInfo // left alone, when the rest was empty
	said       string
}

// reaped is a child that ended; pid 0: there is none any more.
type reaped struct {
	pid    int
	status syscall.WaitStatus
	usage  syscall.Rusage
}

// superviseMain is the whole life of a supervisor. stdin gives the grant as one JSON line (runGrantInfo); its end without a line means
// that nothing is to be started, and nothing is left behind. Problems go to stderr. The answer is the exit code, which nobody needs.
func superviseMain(path string, stdin io.Reader) int {
	// Handlers, not SIG_IGN: what is ignored would be ignored by the training as well. All but stop and term are read by nobody.
	unread, stop, term := make(chan os.Signal, 1), make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(unread, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
		syscall.SIGCONT)
	signal.Notify(stop, syscall.SIGUSR1, syscall.SIGUSR2)
	signal.Notify(term, syscall.SIGTERM)
	s := &supervision{dir: runDir(path)}
	in := bufio.NewReader(stdin)
	if path == spareFolder {
		if told, err := s.awaitFolder(in); err != nil || !told {
			return 0 // the agent is gone; nobody reads what could be said
		}
	}
	lock, granted, err := s.prepare(in)
	if err == nil && granted != nil {
		err = s.start(*granted)
		if err == nil && s.end.Reason == "" {
			s.watch(stop, term)
			s.conclude()
		}
	}
	runtime.KeepAlive(lock) // a collected file is a closed file, and the lock would go with it
	if err != nil {
		s.say("%v", err)
		return 1
	}
	return 0
}

func (s *supervision) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if text != s.said { // what is tried again and again is said once
		fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().UTC().Format(time.RFC3339), text)
	}
	s.said = text
}

// prepare does all that can be done before the grant and waits for it; nil without an error: there is none.
func (s *supervision) prepare(stdin *bufio.Reader) (lock *os.File, granted *runGrantInfo, err error) {
	dir, err := filepath.Abs(string(s.dir))
	if err != nil {
		return nil, nil, err
	}
	s.dir = runDir(dir)
	for try := 0; ; try++ { // somebody who looks whether it is held has it for an instant
		lock, err = lockFile(s.dir.lockPath())
		if err == nil {
			break
		}
		if !errors.Is(err, errLocked) || try >= 50 {
			return nil, nil, fmt.Errorf("lock %s: %w", s.dir.lockPath(), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if f, ok, err := s.dir.fate(); ok || err != nil {
		return lock, nil, errors.Join(err, fmt.Errorf("the fate of %s is decided: %q", s.dir.uid(), f.Fate))
	}
	spec, ok, err := s.dir.spec()
	if err == nil && (!ok || spec.UID != s.dir.uid() || len(spec.Argv) == 0) {
		err = fmt.Errorf("%s: no usable spec.json", s.dir)
	}
	if err != nil {
		return lock, nil, err
	}
	s.spec = spec
	if err := becomeSubreaper(); err != nil {
		return lock, nil, fmt.Errorf("become a subreaper: %w", err)
	}
	self := procID{pid: os.Getpid()}
	if self.ticks, ok = procStartTicks(self.pid); !ok {
		return lock, nil, errors.New("the process table cannot be read")
	}
	s.tree = runTree{uid: spec.UID, supervisor: self, log: s.dir.logPath(), born: self.ticks}
	s.oom = watchOOM()
	line, err := stdin.ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		return lock, nil, nil
	}
	if err == nil {
		err = json.Unmarshal(line, &granted)
	}
	if err != nil {
		return lock, nil, fmt.Errorf("read the grant: %w", err)
	}
	return lock, granted, nil
}

// order reads stop.json; one that cannot be read is no order.
func (s *supervision) order() (runStop, bool) {
	stop, ok, err := s.dir.stop()
	if err != nil {
		s.say("%v", err)
	}
	return stop, ok
}

// reapAll waits for children until there are none: the leader, and every orphan of the run. No other wait may be used in this process.
func reapAll(out chan<- reaped) {
	for {
		var r reaped
		pid, err := syscall.Wait4(-1, &r.status, 0, &r.usage)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			pid = 0
		}
		r.pid = pid
		out <- r
		if pid == 0 {
			return
		}
	}
}

// watch returns when the tree is empty.
func (s *supervision) watch(stop, term <-chan os.Signal) {
	ends := make(chan reaped, 64)
	go reapAll(ends)
	wait := s.step(time.Now())
	for wait >= 0 {
		timer := time.NewTimer(wait)
		select {
		case r := <-ends:
			s.note(r)
		case sig := <-stop:
			s.obey(ends, sig == syscall.SIGUSR2)
		case <-term:
			s.termAt = time.Now()
		case <-timer.C:
			if s.ending == nil {
				s.obey(ends, false)
			}
		}
		timer.Stop()
		wait = s.step(time.Now())
	}
}

// obey does what stop.json says. unwritten: it could not be written (disk full), and a signal of its own says what it would have said.
func (s *supervision) obey(ends <-chan reaped, unwritten bool) {
	for len(ends) > 0 { // what ended before the order came did not end by it
		s.note(<-ends)
	}
	if o, ok := s.order(); ok {
		s.begin(time.Now(), o.Reason, seconds(o.GraceS))
	} else if unwritten {
		s.begin(time.Now(), reasonCancelled, seconds(s.spec.GraceS))
	}
}

// orderEvery: an order comes by a signal, but the agent has nobody to send it to where a job took pid.json or the whole folder away. One
// open of a file that is not there costs 2 us.
const orderEvery = 2 * time.Second

// step does what is due and says when to come again; below 0: the tree is empty.
func (s *supervision) step(now time.Time) time.Duration {
	wait := orderEvery
	if s.pid != nil {
		if err := writeAtomicJSON(s.dir.file("pid.json"), s.pid); err != nil {
			s.say("write pid.json: %v", err)
			wait = time.Second
		} else {
			s.pid = nil
		}
		// Whoever found no pid.json to signal by had written stop.json before: no order is lost in between.
		if o, ok := s.order(); ok && s.ending == nil {
			s.begin(now, o.Reason, seconds(o.GraceS))
		}
	}
	if limit := seconds(s.spec.MaxTimeS); limit > 0 && s.ending == nil && !s.over {
		left := limit - now.Sub(s.started)
		early := left - seconds(s.spec.SignalBeforeS)
		switch {
		case left <= 0:
			s.begin(now, reasonTimeout, seconds(s.spec.GraceS))
		case s.warned || s.spec.SignalBeforeS <= 0:
			wait = min(wait, left)
		case early <= 0:
			s.warn()
			wait = min(wait, left)
		default:
			wait = min(wait, early)
		}
	}
	if s.over && s.ending == nil {
		s.begin(now, "", seconds(s.spec.GraceS)) // a normal end: what it left behind goes too
	}
	if s.ending == nil {
		return wait
	}
	v, again, err := s.ending.step(now)
	switch {
	case err != nil:
		s.say("look for the run's processes: %v", err)
	case !s.over:
	case len(v.alive) == 0:
		s.end.LeftAlone, s.left = v.roots, v.left
		return -1
	case !s.toldLeader || !slices.Equal(s.stuck, s.ending.unkillable):
		s.end.LeftAlone, s.end.Unkillable = v.roots, s.ending.unkillable
		err := writeAtomicJSON(s.dir.file("leader.json"), s.end)
		if err != nil {
			s.say("write leader.json: %v", err)
		}
		s.toldLeader = err == nil
	}
	if !slices.Equal(s.stuck, s.ending.unkillable) {
		s.say("processes that do not die: %v %v", s.ending.unkillable, s.ending.trouble)
		if err := writeAtomicJSON(s.dir.file("unkillable.json"), s.ending.unkillable); err != nil {
			s.say("write unkillable.json: %v", err)
			return min(wait, again)
		}
		s.stuck = s.ending.unkillable
	}
	return min(wait, again)
}

// begin starts to end the tree; once begun, it can only be hurried.
func (s *supervision) begin(now time.Time, cause string, grace time.Duration) {
	deadline := now.Add(grace)
	if s.ending == nil {
		s.ending = &treeEnding{tree: s.tree, deadline: deadline}
		if !s.over {
			s.cause = cause
		}
	} else if deadline.Before(s.ending.deadline) {
		s.ending.deadline = deadline
	}
}

// warn sends SIGUSR1, signal_before_s before the time limit, to those of the tree that handle it.
func (s *supervision) warn() {
	s.warned = true
	v, err := s.tree.look()
	told := 0
	if err == nil {
		told, err = v.signalAware(syscall.SIGUSR1)
	}
	if err != nil {
		s.say("early signal: %v", err)
	} else if told == 0 {
		s.say("early signal: no process of the run handles SIGUSR1")
	}
}
