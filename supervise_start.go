package main

// The start of a run: the fate, the fork, the environment of the leader, and why a program could not be started in one plain line.

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// start decides the fate and forks. A run that could not be started, or was stopped before, is over when it returns, with s.end.Reason
// set. An error means that somebody else decided.
func (s *supervision) start(g runGrantInfo) error {
	fate, err := s.dir.decide(runFate{Fate: fateStart, AtMS: time.Now().UnixMilli(), Grant: &g})
	if err != nil {
		return fmt.Errorf("decide the fate: %w", err)
	}
	if fate.Fate != fateStart || fate.Grant == nil || fate.Grant.Grant != g.Grant {
		return fmt.Errorf("the fate is %s (%s)", fate.Fate, fate.Why)
	}
	s.fate = fate
	if stop, ok := s.order(); ok {
		s.fail(stop.Reason, "stopped before it was started")
		return nil
	}
	if os.Getenv("GPUCTL_CGROUP") != "off" { // for machines whose cgroups are somebody else's business
		s.tree.cgroup = newRunCgroup(s.spec.UID)
	}
	pid, err := s.fork(g)
	s.started = time.Now()
	if err != nil {
		s.fail(reasonStartFailed, startCause(s.spec, err))
		return nil
	}
	s.tree.leader = procID{pid: pid}
	if ticks, ok := procStartTicks(pid); ok { // also when it ended: it is not waited for yet
		s.tree.leader.ticks, s.tree.born = ticks, ticks
	}
	s.pid = &runPid{
		Pid: pid, StartTicks: s.tree.leader.ticks, BootID: bootID(),
		SupervisorPid: s.tree.supervisor.pid, SupervisorTicks: s.tree.supervisor.ticks,
		Cgroup: string(s.tree.cgroup), StartedMS: s.started.UnixMilli(),
	}
	return nil
}

// fork starts the leader: the log file itself is its output, so that nobody's death can block or kill it.
func (s *supervision) fork(g runGrantInfo) (int, error) {
	log, err := os.OpenFile(s.dir.logPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	return forkLeader(s.spec.Path, s.spec.Argv, syscall.ProcAttr{
		Dir: s.spec.WorkingDir, Env: leaderEnv(s.spec, g), Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
	}, s.tree.cgroup)
}

// fail ends a run that never had a process.
func (s *supervision) fail(reason, detail string) {
	now := time.Now().UnixMilli()
	s.end.exitInfo = exitInfo{Code: -1, Reason: reason, Detail: detail, StartedMS: now, EndedMS: now}
	s.writeExit()
}

// leaderEnv is the environment of the leader: that of the spec, then what the grant says.
func leaderEnv(spec runSpec, g runGrantInfo) []string {
	over := maps.Clone(g.Env)
	if over == nil {
		over = map[string]string{}
	}
	over[markerName] = spec.UID
	over["GPUCTL_RUN"] = g.Run
	over["GPUCTL_ATTEMPT"] = fmt.Sprint(g.Attempt)
	over["GPUCTL_JOB_ID"] = fmt.Sprint(g.JobID)
	return overlayEnv(spec.Env, over)
}

// overlayEnv sets names of a "K=V" list. Of a name that stands there twice the last one counts, as a shell would have it.
func overlayEnv(base []string, over map[string]string) []string {
	at := map[string]int{}
	out := make([]string, 0, len(base)+len(over))
	set := func(k, kv string) {
		if i, ok := at[k]; ok {
			out[i] = kv
			return
		}
		at[k] = len(out)
		out = append(out, kv)
	}
	for _, kv := range base {
		if k, _, ok := strings.Cut(kv, "="); ok && k != "" {
			set(k, kv)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(over)) {
		set(k, k+"="+over[k])
	}
	return out
}

// startCause says why a start failed, looking again at what execve names by one number only: ENOENT is the folder, the program or its
// interpreter.
func startCause(spec runSpec, err error) string {
	st, derr := os.Stat(spec.WorkingDir)
	switch {
	case errors.Is(derr, fs.ErrNotExist):
		return fmt.Sprintf("folder %s does not exist", spec.WorkingDir)
	case derr == nil && !st.IsDir():
		return fmt.Sprintf("%s is not a folder", spec.WorkingDir)
	case errors.Is(derr, fs.ErrPermission):
		return fmt.Sprintf("no permission to enter folder %s", spec.WorkingDir)
	}
	name := spec.Argv[0]
	if spec.Path == "" {
		return fmt.Sprintf("no such command %q in PATH", name)
	}
	st, perr := os.Stat(spec.Path)
	switch {
	case errors.Is(perr, fs.ErrNotExist) && !strings.Contains(name, "/"):
		return fmt.Sprintf("no such command %q in PATH", name)
	case errors.Is(perr, fs.ErrNotExist):
		return fmt.Sprintf("%s does not exist", spec.Path)
	case perr != nil:
		return fmt.Sprintf("%s: %v", spec.Path, errors.Unwrap(perr))
	case st.IsDir():
		return fmt.Sprintf("%s is a folder, not a program", spec.Path)
	case errors.Is(err, syscall.EACCES) && st.Mode()&0o111 == 0:
		return fmt.Sprintf("%s is not executable (mode %04o)", spec.Path, st.Mode().Perm())
	case errors.Is(err, syscall.E2BIG):
		return "arguments and environment are too long for this system"
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Sprintf("%s is not a program for this machine, and has no #! line", spec.Path)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENOTDIR):
		if interp := interpreterOf(spec.Path); interp != "" {
			if strings.HasSuffix(interp, "\r") {
				return fmt.Sprintf("bad interpreter: %s wants %q (the script has Windows line ends)", spec.Path, interp)
			}
			if fd, oerr := os.Stat(interp); oerr != nil || fd.Mode()&0o111 == 0 {
				return fmt.Sprintf("bad interpreter: %s wants %s", spec.Path, interp)
			}
		}
	}
	return fmt.Sprintf("start %s in %s: %v", spec.Path, spec.WorkingDir, err)
}

// interpreterOf is the program that the kernel starts for a file: that of its #! line, or the loader of a dynamic binary; "" = none.
func interpreterOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 256)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return ""
	}
	if rest, ok := bytes.CutPrefix(head[:n], []byte("#!")); ok {
		line, _, _ := bytes.Cut(rest, []byte{'\n'})
		interp, _, _ := strings.Cut(strings.TrimLeft(string(line), " \t"), " ")
		return interp
	}
	bin, err := elf.NewFile(f)
	if err != nil {
		return ""
	}
	for _, p := range bin.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			b, err := io.ReadAll(p.Open())
			if err != nil {
				return ""
			}
			return strings.TrimRight(string(b), "\x00")
		}
	}
	return ""
}
