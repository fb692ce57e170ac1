package main

// The end of a run: what is known of it, what it is called, and exit.json. Facts only; whether it is tried again is the server's business.

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// note takes the end of a child.
func (s *supervision) note(r reaped) {
	if r.pid == 0 {
		return
	}
	s.usage.Utime = addTimes(s.usage.Utime, r.usage.Utime)
	s.usage.Stime = addTimes(s.usage.Stime, r.usage.Stime)
	s.usage.Maxrss = max(s.usage.Maxrss, r.usage.Maxrss)
	ours := s.ending != nil && !s.ending.killing.IsZero()
	s.killed = s.killed || r.status.Signaled() && r.status.Signal() == syscall.SIGKILL && !ours
	if r.pid != s.tree.leader.pid {
		return
	}
	now := time.Now()
	s.over, s.endAt = true, now
	e := &s.end.exitInfo
	e.Code, e.StartedMS, e.EndedMS, e.DurationS = r.status.ExitStatus(), s.started.UnixMilli(), now.UnixMilli(), now.Sub(s.started).Seconds()
	if r.status.Signaled() {
		e.Code, e.Signal = -1, int(r.status.Signal())
	}
	s.judge()
}

// judge fills in what is known of the end so far.
func (s *supervision) judge() {
	e := &s.end.exitInfo
	e.OOM = s.oom.evidence(s.tree.cgroup, s.killed)
	e.Reason = endReason(*e, s.cause, hostGoesDown(*e, s.termAt, s.endAt))
	e.UserS, e.SystemS = secondsOf(s.usage.Utime), secondsOf(s.usage.Stime)
	e.MaxRSSBytes = int64(s.usage.Maxrss) * maxRSSUnit
	e.LogSize = s.dir.logSize()
}

// conclude writes the end of a run whose tree is empty.
func (s *supervision) conclude() {
	s.end.Unkillable = nil
	s.judge()
	s.writeExit()
}

// writeExit writes exit.json, however long it takes (disk full): until then the run is not over for anybody. The supervisor alone saw the
// end, so what stands there already was put there by the job; so was what stands in the way.
func (s *supervision) writeExit() {
	s.end.LogSize = s.dir.logSize()
	for wait := time.Second; ; wait = min(2*wait, 10*time.Second) {
		err := s.putExit()
		if err == nil {
			break
		}
		s.say("write exit.json: %v", err)
		if _, herr := os.Stat(filepath.Dir(filepath.Dir(string(s.dir)))); errors.Is(herr, os.ErrNotExist) {
			break // the agent's whole home is gone: there is nobody to tell
		}
		time.Sleep(wait)
	}
	if err := s.tree.cgroup.remove(s.left); err != nil {
		s.say("conclude: %v", err)
	}
}

// putExit tries once, moving out of the way what the job put there.
func (s *supervision) putExit() error {
	path := s.dir.file("exit.json")
	err := writeAtomicJSON(path, s.end)
	if err == nil {
		return nil
	}
	st, lerr := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrPermission) && s.dir.reopen() == nil, lerr == nil && st.IsDir() && os.RemoveAll(path) == nil:
		return writeAtomicJSON(path, s.end)
	case errors.Is(err, os.ErrNotExist):
		return s.remake()
	}
	return err
}

// remake puts a run's folder back that was removed under it, with all that is needed to tell its end, at once: of a folder without a fate
// the agent would say that it never started.
func (s *supervision) remake() error {
	runs := filepath.Dir(string(s.dir))
	if err := os.Mkdir(runs, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	tmp := runDir(filepath.Join(runs, "."+s.dir.uid()))
	if err := os.Mkdir(string(tmp), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for name, v := range map[string]any{"spec.json": s.spec, "fate": s.fate, "exit.json": s.end} {
		if err := writeAtomicJSON(tmp.file(name), v); err != nil {
			return err
		}
	}
	if err := os.Rename(string(tmp), string(s.dir)); err != nil { // the agent made one meanwhile
		return errors.Join(err, os.RemoveAll(string(tmp)))
	}
	return syncDir(runs)
}

// endReason names the end of a leader. cause is what we ended it for, "" when we did not.
func endReason(e exitInfo, cause string, hostGoesDown bool) string {
	switch {
	case cause != "":
		return cause
	case hostGoesDown:
		return reasonKilledByHost
	case e.Signal == int(syscall.SIGKILL) && e.OOM != "":
		return reasonHostOOM
	case e.Signal == int(syscall.SIGKILL):
		return reasonKilledByHost
	case e.Signal != 0:
		return reasonSignal
	case e.Code != 0:
		return reasonExitCode
	}
	return ""
}

// shutdownWindow: systemd gives processes 90 s between TERM and KILL at a shutdown.
const shutdownWindow = 120 * time.Second

// shutdownSkew is how much later than its run a supervisor may be told: a shutdown tells all at once, in any order. What comes later finds a
// run that had ended by itself, and only the rest of its tree.
const shutdownSkew = 5 * time.Second

// hostGoesDown guesses whether a run ended because the machine is being shut down: somebody told the supervisor itself to go, which
// a shutdown does to everybody, or logins are closed already while a signal of shutdowns ended the run. An end with code 0 needs both: a
// training that saves at TERM ends so, but so does one that was just done.
func hostGoesDown(e exitInfo, termAt, endAt time.Time) bool {
	after := endAt.Sub(termAt)
	told := !termAt.IsZero() && after < shutdownWindow && after > -shutdownSkew
	_, err := os.Stat("/run/nologin")
	closed := err == nil
	if e.Code == 0 {
		return told && closed
	}
	sig := syscall.Signal(e.Signal)
	return told || closed && (sig == syscall.SIGTERM || sig == syscall.SIGHUP || sig == syscall.SIGKILL)
}

// seconds of a spec or an order; below 0 is 0, and what no timer can hold is a hundred years.
func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), 100*365*86400) * float64(time.Second))
}

func secondsOf(t syscall.Timeval) float64 { return time.Duration(t.Nano()).Seconds() }

func addTimes(a, b syscall.Timeval) syscall.Timeval {
	return syscall.NsecToTimeval(a.Nano() + b.Nano())
}
