package main

// Processes by macOS: the process table by sysctl. There is no subreaper, no environment of others to look into, no cgroup and no pidfd
// here: the tree is the leader's process group, its session, and what descends from the leader while it lives. A process that left the
// group and lost its parent is not found; doctor says so.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const keepsOrphans = false

const maxRSSUnit = 1 // of Rusage.Maxrss, in bytes

// bootID is the time of the boot.
func bootID() string {
	t, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("boot-%d", t.Sec)
}

// procStartTicks is the start time of a process in microseconds; false when there is none.
func procStartTicks(pid int) (uint64, bool) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0, false
	}
	return darwinStart(k), true
}

func darwinStart(k *unix.KinfoProc) uint64 {
	return uint64(k.Proc.P_starttime.Sec)*1e6 + uint64(k.Proc.P_starttime.Usec)
}

func readProcs() (procTable, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	const stopped, zombie = 4, 5 // SSTOP, SZOMB of sys/proc.h
	procs := make(procTable, len(list))
	for i := range list {
		k := &list[i]
		p := procInfo{
			procID: procID{int(k.Proc.P_pid), darwinStart(k)},
			ppid:   int(k.Eproc.Ppid), pgrp: int(k.Eproc.Pgid), tty: max(0, int(k.Eproc.Tdev)),
			comm: unix.ByteSliceToString(k.Proc.P_comm[:]),
			dead: k.Proc.P_stat == zombie, stopped: k.Proc.P_stat == stopped,
		}
		if s, err := unix.Getsid(p.pid); err == nil {
			p.session = s
		}
		procs[p.pid] = p
	}
	return procs, nil
}

func readMarks(int) procMarks { return procMarks{} }

func readArgv(int) []string { return nil }

func holdsOpen(int, string) bool { return false }

func writesTo(int, fs.FileInfo) bool { return false }

// awaits cannot be known here: the early signal is not sent.
func awaits(int, syscall.Signal) bool { return false }

// signalProc sends sig to exactly this process, as far as a look just before can tell.
func signalProc(id procID, sig syscall.Signal) error {
	if id.pid <= 1 || id.ticks == 0 {
		return fmt.Errorf("no process %d with start %d", id.pid, id.ticks)
	}
	if ticks, ok := procStartTicks(id.pid); !ok || ticks != id.ticks {
		return nil
	}
	err := unix.Kill(id.pid, sig)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

func becomeSubreaper() error { return nil }

// becomeFD makes file descriptor fd of this process what f is.
func becomeFD(f *os.File, fd int) error { return unix.Dup2(int(f.Fd()), fd) }

// forkLeader starts a process with a session, and so a process group, of its own.
func forkLeader(path string, argv []string, attr syscall.ProcAttr, _ runCgroup) (int, error) {
	attr.Sys = &syscall.SysProcAttr{Setsid: true}
	return syscall.ForkExec(path, argv, &attr)
}

type runCgroup string

func newRunCgroup(string) runCgroup { return "" }

func findRunCgroup(string) runCgroup { return "" }

func (g runCgroup) pids() (map[int]bool, error) { return map[int]bool{}, nil }

func (g runCgroup) kill() error { return nil }

func (g runCgroup) remove([]procInfo) error { return nil }

// oomWatch: macOS counts no kills for memory.
type oomWatch struct{}

func watchOOM() oomWatch { return oomWatch{} }

func (oomWatch) evidence(runCgroup, bool) string { return "" }
