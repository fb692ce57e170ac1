package main

// The folder of one run, runs/<uid>/ in GPUCTL_HOME, and the files that agent and supervisor leave each other in it. What is true of a run
// lies here and nowhere else:
//
//	spec.json   agent, before the claim: what to run
//	lock        flock held by the supervisor as long as it lives
//	fate        written once, whole, by whoever is first: start (supervisor, before it may fork) or burn (agent, before it says gone)
//	pid.json    supervisor, after the fork
//	log.txt     the process itself, stdout and stderr, O_APPEND
//	stop.json   agent: end it, then SIGUSR1 to the supervisor
//	leader.json supervisor: the leader ended, the rest of the tree is being ended
//	unkillable.json supervisor: pids that outlived SIGKILL by 10 s, perhaps the leader itself; means nothing beside exit.json
//	unkillable.json supervisor: pids that outlived SIGKILL
//	exit.json   supervisor (agent when the supervisor died): the tree is empty, this is how it ended
//	supervisor.log  what the supervisor had to say, normally nothing
//	snapshot.json   agent: the environment was looked at and told
//	checkpoints.json  agent: which checkpoints were told
//	sdk.jsonl   metrics written by the process, where it does

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// runSpec is spec.json. Env is the whole environment of the process but for what the grant says.
type runSpec struct {
	UID           string    `json:"uid"`
	JobUID        string    `json:"job_uid"`
	JobID         int64     `json:"job_id"`
	Name          string    `json:"name"`
	Argv          []string  `json:"argv"`
	Path          string    `json:"path"` // absolute path of the program, looked up in the job's PATH
	WorkingDir    string    `json:"working_dir"`
	Env           []string  `json:"env"` // "K=V"
	Slots         []slotRef `json:"slots"`
	GraceS        float64   `json:"grace_s"`
	MaxTimeS      float64   `json:"max_time_s"`
	SignalBeforeS float64   `json:"signal_before_s"`
	Watch         []string  `json:"watch,omitempty"` // folders with checkpoints; relative ones lie below WorkingDir
	TB            []string  `json:"tb,omitempty"`    // folders with event files, likewise
	Incarnation   string    `json:"incarnation"`     // of the start command
}

// runGrantInfo is what a grant says; the agent sends it to the waiting supervisor as one JSON line on its stdin. End of file without a
// line means: no grant, go away.
type runGrantInfo struct {
	Run         string            `json:"run"` // "12.2"
	JobID       int64             `json:"job_id"`
	Attempt     int64             `json:"attempt"`
	Grant       int64             `json:"grant"`
	Incarnation string            `json:"incarnation"`
	Env         map[string]string `json:"env,omitempty"`
}

const (
	fateStart = "start"
	fateBurn  = "burn"
)

// runFate is the fate file.
type runFate struct {
	Fate  string        `json:"fate"`
	Why   string        `json:"why,omitempty"` // of a burn
	AtMS  int64         `json:"at_ms"`
	Grant *runGrantInfo `json:"grant,omitempty"` // of a start
}

// runPid is pid.json. A pid means nothing without its start time and boot.
type runPid struct {
	Pid             int    `json:"pid"`
	StartTicks      uint64 `json:"start_ticks"` // field 22 of /proc/<pid>/stat, clock ticks since boot
	BootID          string `json:"boot_id"`
	SupervisorPid   int    `json:"supervisor_pid"`
	SupervisorTicks uint64 `json:"supervisor_ticks"`
	Cgroup          string `json:"cgroup,omitempty"` // cgroup v2 folder made for this run
	StartedMS       int64  `json:"started_ms"`
}

// runStop is stop.json: Reason is what the end will be called (CANCELLED, FENCED, ...).
type runStop struct {
	Reason string  `json:"reason"`
	GraceS float64 `json:"grace_s"`
	AtMS   int64   `json:"at_ms"`
}

// runExit is exit.json, and leader.json for the leader alone.
type runExit struct {
	exitInfo
	LeftAlone  []string `json:"left_alone,omitempty"`
	Unkillable []int    `json:"unkillable,omitempty"`
}

// supervisorLog is what the supervisor of a run had to say: normally nothing.
const supervisorLog = "supervisor.log"

type runDir string // path of runs/<uid>

func (d runDir) file(name string) string { return filepath.Join(string(d), name) }
func (d runDir) uid() string             { return filepath.Base(string(d)) }
func (d runDir) logPath() string         { return d.file("log.txt") }
func (d runDir) lockPath() string        { return d.file("lock") }

// decide writes the fate. It returns the fate that holds: the given one, or the one that was there before.
func (d runDir) decide(f runFate) (runFate, error) {
	if got, ok, err := d.fate(); ok || err != nil {
		return got, err
	}
	b, err := json.Marshal(f)
	if err != nil {
		return runFate{}, err
	}
	err = writeOnce(d.file("fate"), append(b, '\n'))
	if errors.Is(err, fs.ErrExist) {
		got, ok, rerr := d.fate()
		if rerr == nil && !ok {
			rerr = fmt.Errorf("%s: fate was there and is gone", d)
		}
		return got, rerr
	}
	return f, err
}

// fate reads the fate; ok is false when nothing is decided. What only a started run has beside it proves the start, whatever the job did to
// the file.
func (d runDir) fate() (f runFate, ok bool, err error) {
	if ok, err = d.load("fate", &f); err != nil || ok && f.Fate == fateStart {
		return f, ok, err
	}
	_, forked, perr := d.pid()
	_, over, eerr := d.exit()
	if forked && perr == nil || over && eerr == nil { // what cannot be read proves nothing
		return runFate{Fate: fateStart}, true, nil
	}
	return f, ok, nil
}

func (d runDir) spec() (s runSpec, ok bool, err error) {
	ok, err = d.load("spec.json", &s)
	return s, ok, err
}

func (d runDir) pid() (p runPid, ok bool, err error) {
	ok, err = d.load("pid.json", &p)
	return p, ok, err
}

func (d runDir) stop() (s runStop, ok bool, err error) {
	ok, err = d.load("stop.json", &s)
	return s, ok, err
}

func (d runDir) exit() (e runExit, ok bool, err error) {
	ok, err = d.load("exit.json", &e)
	return e, ok, err
}

// leader is the end of the leader while the rest of its tree still lives.
func (d runDir) leader() (e runExit, ok bool, err error) {
	ok, err = d.load("leader.json", &e)
	return e, ok, err
}

// unkillable are pids that outlived SIGKILL, as the supervisor last saw them; none when there is no such file.
func (d runDir) unkillable() (pids []int, err error) {
	_, err = d.load("unkillable.json", &pids)
	return pids, err
}

// load reads a JSON file of the folder; a missing one is not an error.
func (d runDir) load(name string, v any) (ok bool, err error) {
	err = readJSON(d.file(name), v)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// supervised reports whether the run's supervisor lives: it holds the folder's lock, or, where a job took the lock away, is the process
// that pid.json names, or, where that is gone too, has the lost lock open.
func (d runDir) supervised() (bool, error) {
	held, err := isLocked(d.lockPath())
	if held || err != nil {
		return held, err
	}
	p, ok, err := d.pid()
	if err = ignoreGarbage(err); err != nil {
		return false, err
	}
	id := procID{p.SupervisorPid, p.SupervisorTicks}
	if ok {
		if ticks, there := procStartTicks(id.pid); !there || ticks != id.ticks || p.BootID != bootID() {
			return false, nil
		}
	}
	procs, err := readProcs()
	if err != nil || ok {
		return procs.has(id) && !procs[id.pid].dead, err // a zombie has a start time too
	}
	lock, err := filepath.Abs(d.lockPath())
	for pid, q := range procs {
		if args := readArgv(pid); err == nil && len(args) > 1 && args[1] == "supervise" && !q.dead && holdsOpen(pid, lock) {
			return true, nil
		}
	}
	return false, err
}

// ignoreGarbage passes on what may be otherwise at the next look: a file that cannot be read now. Garbage stays garbage.
func ignoreGarbage(err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	return nil
}

// reopen gives the owner of the folder back what a job may have taken from it: without it nothing is seen and nothing can be ended.
func (d runDir) reopen() error {
	if _, err := os.Lstat(d.lockPath()); !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return os.Chmod(string(d), 0o700)
}

// logSize is the size of log.txt now, 0 when there is none.
func (d runDir) logSize() int64 {
	st, err := os.Stat(d.logPath())
	if err != nil {
		return 0
	}
	return st.Size()
}
