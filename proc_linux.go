package main

// Processes by Linux: the process table and environments from /proc, signals by pidfd, subreaper, attributes of the leader.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// keepsOrphans: the supervisor is a child subreaper here, so every descendant of the leader stays below it.
const keepsOrphans = true

const maxRSSUnit = 1024 // of Rusage.Maxrss, in bytes

// bootID is random for each boot, "" when it cannot be read.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// procStartTicks is the start time of a process (also of a zombie); false when there is none.
func procStartTicks(pid int) (uint64, bool) {
	b, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return 0, false
	}
	p, ok := parseStat(pid, b)
	return p.ticks, ok
}

func procPath(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// readProcs reads the process table. Processes that end meanwhile are left out.
func readProcs() (procTable, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	procs := make(procTable, len(names))
	buf := make([]byte, 4096)
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		size, err := readInto("/proc/"+n+"/stat", buf)
		if err != nil {
			continue
		}
		if p, ok := parseStat(pid, buf[:size]); ok {
			procs[pid] = p
		}
	}
	return procs, nil
}

// readInto reads the beginning of a small file: three system calls, where os.ReadFile has seven (poller and size).
func readInto(path string, buf []byte) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	n, err := unix.Read(fd, buf)
	return n, errors.Join(err, unix.Close(fd))
}

// parseStat reads /proc/<pid>/stat (proc_pid_stat(5)). The name may contain anything, also ") ".
func parseStat(pid int, b []byte) (procInfo, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return procInfo{}, false
	}
	f := strings.Fields(string(b[end+1:])) // f[0] is field 3
	if len(f) < 20 {
		return procInfo{}, false
	}
	p := procInfo{comm: string(b[open+1 : end])}
	p.pid = pid
	var err error
	num := func(i int) int {
		n, e := strconv.Atoi(f[i])
		err = errors.Join(err, e)
		return n
	}
	p.ppid, p.pgrp, p.session, p.tty = num(1), num(2), num(3), num(4)
	threads := num(17)
	ticks, e := strconv.ParseUint(f[19], 10, 64)
	p.ticks = ticks
	// A process whose first thread ended while others run looks like a zombie and is none.
	p.dead = f[0] == "X" || f[0] == "Z" && threads <= 1
	p.stopped = f[0] == "T"
	return p, err == nil && e == nil
}

// readMarks looks into the environment that a process was started with; nothing where it may not be read.
func readMarks(pid int) procMarks {
	var m procMarks
	b, err := os.ReadFile(procPath(pid, "environ"))
	if err != nil {
		return m
	}
	for len(b) > 0 {
		var kv []byte
		kv, b, _ = bytes.Cut(b, []byte{0})
		if len(kv) < 5 {
			continue
		}
		switch k, v, _ := bytes.Cut(kv, []byte("=")); string(k) {
		case markerName:
			m.run = string(v)
		case "TMUX": // socket,pid,session
			if f := strings.Split(string(v), ","); len(f) >= 3 {
				m.multiplexer, err = strconv.Atoi(f[len(f)-2])
			}
		case "STY": // pid.tty.host
			s, _, _ := strings.Cut(string(v), ".")
			m.multiplexer, err = strconv.Atoi(s)
		}
		if err != nil {
			m.multiplexer = 0 // somebody else's use of the name
		}
	}
	return m
}

func readArgv(pid int) []string {
	b, err := os.ReadFile(procPath(pid, "cmdline"))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// holdsOpen reports whether a process has the file of this path open, or one that was removed from there.
func holdsOpen(pid int, path string) bool {
	fds, err := os.ReadDir(procPath(pid, "fd"))
	if err != nil {
		return false
	}
	for _, fd := range fds {
		to, err := os.Readlink(procPath(pid, "fd/"+fd.Name()))
		if err == nil && strings.TrimSuffix(to, " (deleted)") == path {
			return true
		}
	}
	return false
}

// writesTo reports whether stdout or stderr of a process is this file, open for writing.
func writesTo(pid int, file fs.FileInfo) bool {
	for _, fd := range []string{"1", "2"} {
		st, err := os.Stat(procPath(pid, "fd/"+fd))
		if err != nil || !os.SameFile(st, file) {
			continue
		}
		b, err := os.ReadFile(procPath(pid, "fdinfo/"+fd))
		if err != nil {
			continue
		}
		_, flags, _ := strings.Cut(string(b), "flags:")
		flags, _, _ = strings.Cut(flags, "\n")
		if n, err := strconv.ParseUint(strings.TrimSpace(flags), 8, 64); err == nil && n&unix.O_ACCMODE != unix.O_RDONLY {
			return true
		}
	}
	return false
}

// awaits reports whether a process has a handler for sig, or blocks it to take it by sigwait or signalfd.
func awaits(pid int, sig syscall.Signal) bool {
	b, err := os.ReadFile(procPath(pid, "status"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		if k != "SigCgt" && k != "SigBlk" {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64); err == nil && n&(1<<(sig-1)) != 0 {
			return true
		}
	}
	return false
}

// signalProc sends sig to exactly this process. Nothing happens, and it is no error, when it is gone or its pid is somebody else's now.
func signalProc(id procID, sig syscall.Signal) error {
	if id.pid <= 1 || id.ticks == 0 {
		return fmt.Errorf("no process %d with start %d", id.pid, id.ticks)
	}
	fd, ferr := unix.PidfdOpen(id.pid, 0) // first the handle, then the look: what the handle names cannot be replaced
	if ferr == nil {
		defer unix.Close(fd)
	}
	if ticks, ok := procStartTicks(id.pid); !ok || ticks != id.ticks {
		return nil
	}
	err := ferr
	if ferr == nil {
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // old kernel, or a sandbox that does not know the call
		err = unix.Kill(id.pid, sig)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// becomeSubreaper makes this process the parent of all orphans below it.
func becomeSubreaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// becomeFD makes file descriptor fd of this process what f is.
func becomeFD(f *os.File, fd int) error { return unix.Dup3(int(f.Fd()), fd, 0) }

// forkLeader starts a process with a session of its own, nothing blocked, and in the cgroup when there is one. Signals that this process
// handles are at their defaults in the new one.
func forkLeader(path string, argv []string, attr syscall.ProcAttr, cgroup runCgroup) (int, error) {
	runtime.LockOSThread() // the mask is the thread's, and the child has that of the thread that forks
	defer runtime.UnlockOSThread()
	var none, before unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, &before); err != nil {
		return 0, err
	}
	attr.Sys = &syscall.SysProcAttr{Setsid: true}
	pid, err := 0, error(nil)
	if fd, ok := cgroup.open(); ok {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, fd
		pid, err = syscall.ForkExec(path, argv, &attr)
		err = errors.Join(err, unix.Close(fd))
		attr.Sys.UseCgroupFD = false
	}
	if pid == 0 { // no cgroup, or one that does not take it: an error says that nothing was started
		pid, err = syscall.ForkExec(path, argv, &attr)
	}
	if pid != 0 {
		err = nil
	}
	return pid, errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil))
}

// runCgroup is the path of a cgroup v2 folder made for one run, "" for none. It is an extra: everything works without.
type runCgroup string

// newRunCgroup makes a cgroup below the one this process is in; "" where there is no writable cgroup v2.
func newRunCgroup(uid string) runCgroup {
	path := runCgroupPath(uid)
	if path == "" {
		return ""
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return ""
	}
	return runCgroup(path)
}

// findRunCgroup finds the cgroup that a supervisor below this process made and did not come to tell of, "" when there is none.
func findRunCgroup(uid string) runCgroup {
	path := runCgroupPath(uid)
	if st, err := os.Stat(path); err != nil || !st.IsDir() {
		return ""
	}
	return runCgroup(path)
}

func runCgroupPath(uid string) string {
	own := ownCgroup("cgroup2", "")
	if own == "" {
		return ""
	}
	return filepath.Join(own, "gpuctl-run-"+uid)
}

// ownCgroup is the folder of the cgroup of this process in a hierarchy: type cgroup2, or cgroup with a v1 controller. "" = none.
func ownCgroup(fstype, controller string) string {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return findCgroup(string(mounts), string(groups), fstype, controller)
}

// findCgroup is ownCgroup of the texts of mountinfo and cgroup (proc_pid_mountinfo(5), cgroups(7)).
func findCgroup(mounts, groups, fstype, controller string) string {
	within := ""
	for line := range strings.Lines(groups) { // hierarchy-ID:controllers:path
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (f[1] == controller || controller != "" && strings.Contains(","+f[1]+",", ","+controller+",")) {
			within = f[2]
		}
	}
	if within == "" || strings.Contains(within, "..") { // ..: outside of what this cgroup namespace shows
		return ""
	}
	for line := range strings.Lines(mounts) { // id parent dev root mountpoint options ... - type source superoptions
		front, back, ok := strings.Cut(line, " - ")
		f, b := strings.Fields(front), strings.Fields(back)
		if !ok || len(f) < 5 || len(b) < 3 || b[0] != fstype {
			continue
		}
		if controller != "" && !strings.Contains(","+b[2]+",", ","+controller+",") {
			continue
		}
		rest, ok := strings.CutPrefix(within, strings.TrimSuffix(f[3], "/"))
		if ok && !strings.Contains(f[4], `\`) { // an escaped blank: nobody mounts it there
			return filepath.Join(f[4], rest)
		}
	}
	return ""
}

// open gives a descriptor to fork into; false when there is none.
func (g runCgroup) open() (int, bool) {
	if g == "" {
		return 0, false
	}
	fd, err := unix.Open(string(g), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return fd, err == nil
}

// pids are all processes of the cgroup and of those below it.
func (g runCgroup) pids() (map[int]bool, error) {
	out := map[int]bool{}
	if g == "" {
		return out, nil
	}
	err := filepath.WalkDir(string(g), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if errors.Is(err, unix.EOPNOTSUPP) { // a threaded cgroup: its processes are told by the one above
			return nil
		}
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
				out[pid] = true
			}
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) { // removed meanwhile: empty
		err = nil
	}
	return out, err
}

// kill ends everything in the cgroup at once (cgroup.kill, Linux 5.14). Must not be used while something in it is left alone.
func (g runCgroup) kill() error {
	if g == "" {
		return nil
	}
	err := os.WriteFile(filepath.Join(string(g), "cgroup.kill"), []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil // an older kernel, or removed: the sweeps by pid do it
	}
	return err
}

// remove takes the cgroup away. What is left alone in it moves up first.
func (g runCgroup) remove(left []procInfo) error {
	if g == "" {
		return nil
	}
	var errs []error
	for _, p := range left {
		up := filepath.Join(filepath.Dir(string(g)), "cgroup.procs")
		if err := os.WriteFile(up, []byte(strconv.Itoa(p.pid)), 0); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, err)
		}
	}
	err := os.Remove(string(g))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(append(errs, err)...)
}
