package main

// The processes of a run: which ones they are, which are left alone, and how the whole tree is brought to an end. A pid alone is never
// trusted: whatever is signalled was seen with its start time. No files of the run folder here.
//
// The tree is the union of: descendants of the supervisor (a child subreaper: orphans come to it) and of the leader; the leader's session
// and process group; processes with the marker GPUCTL_RUN_UID=<uid> in their environment; the run's cgroup; and, when no supervisor lives,
// processes whose stdout or stderr is the run's log. torchrun gives each worker a session of its own, `env -i` drops the marker, a double
// fork loses the parent: each of these alone misses somebody. Zombies do not count.

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const markerName = "GPUCTL_RUN_UID"

// procID names a process for good: a pid is used again, a pid with its start time is not.
type procID struct {
	pid   int
	ticks uint64 // field 22 of /proc/<pid>/stat, clock ticks since boot (other systems: microseconds)
}

// procInfo is one row of the process table.
type procInfo struct {
	procID
	ppid, pgrp, session, tty int
	comm                     string
	dead                     bool // a zombie, or being reaped
	stopped                  bool // does not run a handler before it is continued
}

type procTable map[int]procInfo

// has reports whether exactly this process is in the table, dead or not.
func (pt procTable) has(id procID) bool {
	p, ok := pt[id.pid]
	return ok && id.pid > 1 && p.ticks == id.ticks
}

// procMarks is what the environment of a process says of where it comes from.
type procMarks struct {
	run         string // GPUCTL_RUN_UID
	multiplexer int    // pid of the tmux or screen server in whose window it was started (TMUX, STY), 0 = none
}

// runTree says where the processes of one run are looked for. Zero fields are unknown.
type runTree struct {
	uid        string
	supervisor procID // not part of the tree
	leader     procID
	cgroup     runCgroup
	log        string // path of log.txt
	born       uint64 // no process that is older than this is taken for one of the run by marker, session or log
}

// treeView is one look at a tree. It is out of date when it is made: ending a tree means looking again until nothing is there.
type treeView struct {
	alive []procInfo // hold the run; by pid
	left  []procInfo // left alone: roots and all below them; by pid
	roots []string   // "tmux: server (pid 991)"
}

// look finds the tree. Costs a read of /proc/<pid>/stat for every process and of environ for every own one that is young enough
// (1.5 ms with 100 processes, measured).
func (t runTree) look() (treeView, error) {
	procs, err := readProcs()
	if err != nil {
		return treeView{}, err
	}
	grouped, err := t.cgroup.pids()
	if err != nil {
		return treeView{}, err
	}
	supervised := procs.has(t.supervisor)
	// While the leader is in the table, even as a zombie, its number names its session and no other. Afterwards it may be anybody's.
	group := procs.has(t.leader)
	if _, taken := procs[t.leader.pid]; !keepsOrphans && t.leader.pid > 1 && !taken {
		group = true // the only thing left to go by; the kernel does not reuse a number that still names a group
	}
	log, err := os.Stat(t.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return treeView{}, err
	}
	self := os.Getpid()
	marks := map[int]procMarks{}
	member := map[int]bool{}
	for pid, p := range procs {
		if p.dead || pid == self || pid <= 1 || p.procID == t.supervisor {
			continue
		}
		mine := p.procID == t.leader || supervised && p.ppid == t.supervisor.pid || grouped[pid]
		if p.ticks >= t.born {
			m := readMarks(pid)
			marks[pid] = m
			mine = mine || m.run == t.uid || group && (p.session == t.leader.pid || p.pgrp == t.leader.pid) ||
				!supervised && log != nil && writesTo(pid, log)
		}
		if mine {
			member[pid] = true
		}
	}
	stop := map[int]bool{self: true, t.supervisor.pid: true}
	procs.addBelow(member, stop)
	v := treeView{}
	left := procs.leftAlone(member, marks, t.leader, &v.roots)
	for _, pid := range slices.Sorted(maps.Keys(member)) {
		if left[pid] {
			v.left = append(v.left, procs[pid])
		} else {
			v.alive = append(v.alive, procs[pid])
		}
	}
	return v, nil
}

// addBelow adds to set what descends from it and lives. It does not go through the pids of stop.
func (pt procTable) addBelow(set, stop map[int]bool) {
	kids := map[int][]int{}
	for pid, p := range pt {
		if !p.dead {
			kids[p.ppid] = append(kids[p.ppid], pid)
		}
	}
	next := slices.Collect(maps.Keys(set))
	for len(next) > 0 {
		pid := next[len(next)-1]
		next = next[:len(next)-1]
		for _, k := range kids[pid] {
			if !set[k] && !stop[k] {
				set[k] = true
				next = append(next, k)
			}
		}
	}
}

// leftAlone gives the members that are not ours to end: a tmux or screen server, an sshd, a gpuctl agent, server or supervisor, and all
// that was started under one, also in sessions of its own and when its parent is gone. The leader is what the user asked for and is never
// one of them.
func (pt procTable) leftAlone(member map[int]bool, marks map[int]procMarks, leader procID, roots *[]string) map[int]bool {
	left := map[int]bool{}
	for _, pid := range slices.Sorted(maps.Keys(member)) {
		p := pt[pid]
		if p.procID == leader {
			continue
		}
		if kind := p.aloneKind(readArgv(pid)); kind != "" {
			left[pid] = true
			*roots = append(*roots, fmt.Sprintf("%s (pid %d)", kind, pid))
		}
	}
	if len(left) == 0 {
		return left
	}
	stop := map[int]bool{leader.pid: true}
	for grown := -1; grown != len(left); {
		grown = len(left)
		pt.addBelow(left, stop)
		for pid := range member {
			// A session whose leader is left alone is a pane, or the server's own.
			if s := pt[pid].session; pid != leader.pid && (left[marks[pid].multiplexer] || left[s] && pt[s].session == s) {
				left[pid] = true
			}
		}
	}
	return left
}

// aloneKind says whether p is the root of a subtree that is left alone, and what to call it; "" = no.
func (p procInfo) aloneKind(argv []string) string {
	name := ""
	if len(argv) > 0 {
		name = filepath.Base(argv[0])
	}
	switch {
	case p.comm == "tmux: server", name == "tmux" && p.session == p.pid && p.tty == 0:
		return "tmux: server"
	case name == "SCREEN":
		return "screen"
	case p.comm == "sshd", p.comm == "sshd-session":
		return "sshd"
	case name == "gpuctl-agent", name == "gpuctl-server":
		return name
	case name == "gpuctl" && len(argv) > 1 && slices.Contains([]string{"agent", "server", "up", "supervise"}, argv[1]):
		return name + " " + argv[1]
	}
	return ""
}

// signal sends sig to every process of the tree that still is what it was when it was seen.
func (v treeView) signal(sig syscall.Signal) error {
	var errs []error
	for _, p := range v.alive {
		if err := signalProc(p.procID, sig); err != nil {
			errs = append(errs, fmt.Errorf("signal %d to pid %d (%s): %w", sig, p.pid, p.comm, err))
		}
	}
	return errors.Join(errs...)
}

func (v treeView) pids() []int {
	out := make([]int, len(v.alive))
	for i, p := range v.alive {
		out[i] = p.pid
	}
	return out
}

// unkillableAfter: what outlives SIGKILL this long sits in the kernel (a dead disk, a hung driver) or is another user's.
const unkillableAfter = 10 * time.Second

// treeEnding brings a tree to an end: TERM to each of its processes once, also to those that appear later; after the grace KILL, again
// and again until nothing is left. One sweep is not enough: orphans come up only when their parent died, and processes fork meanwhile.
type treeEnding struct {
	tree     runTree
	deadline time.Time // end of the grace

	asked      map[procID]bool // got TERM
	killing    time.Time       // since when KILL is sent, zero before
	pause      time.Duration
	unkillable []int // set unkillableAfter after the first KILL
	trouble    error // why the last signals did not go out (another user's process)
}

// step looks, signals what it finds, and says how long to wait before the next step. The tree is empty when the view has nothing alive.
func (e *treeEnding) step(now time.Time) (v treeView, wait time.Duration, err error) {
	v, err = e.tree.look()
	if err != nil || len(v.alive) == 0 {
		return v, 100 * time.Millisecond, err
	}
	if now.Before(e.deadline) {
		fresh := treeView{}
		for _, p := range v.alive {
			if !e.asked[p.procID] {
				fresh.alive = append(fresh.alive, p)
			}
		}
		if e.trouble = fresh.signal(syscall.SIGTERM); e.asked == nil {
			e.asked = map[procID]bool{}
		}
		for _, p := range fresh.alive {
			e.asked[p.procID] = true
			if p.stopped {
				e.trouble = errors.Join(e.trouble, signalProc(p.procID, syscall.SIGCONT))
			}
		}
		// The supervisor is woken by every end; this is for processes that are not its children.
		e.pause = min(max(2*e.pause, 5*time.Millisecond), 100*time.Millisecond)
		return v, min(e.pause, e.deadline.Sub(now)), nil
	}
	if e.killing.IsZero() {
		e.killing, e.pause = now, 0
	}
	e.trouble = nil
	if len(v.left) == 0 {
		e.trouble = e.tree.cgroup.kill() // all at once, forks in flight too
	}
	e.trouble = errors.Join(e.trouble, v.signal(syscall.SIGKILL))
	e.unkillable = []int{}
	most := 50 * time.Millisecond
	if now.Sub(e.killing) >= unkillableAfter {
		e.unkillable, most = v.pids(), time.Second
	}
	e.pause = min(max(2*e.pause, time.Millisecond), most)
	return v, e.pause, nil
}

// signalAware sends sig only to those of the tree that have a handler for it or wait for it: for a warning, which must not be what ends
// a launcher that never heard of it.
func (v treeView) signalAware(sig syscall.Signal) (told int, err error) {
	aware := treeView{}
	for _, p := range v.alive {
		if awaits(p.pid, sig) {
			aware.alive = append(aware.alive, p)
		}
	}
	return len(aware.alive), aware.signal(sig)
}

// markedRuns finds the uids of all runs that have a process with their marker on this machine, with its pids, ascending. It sees
// processes whose environment may be read (the own user's); those left alone do not count.
func markedRuns() (map[string][]int, error) {
	procs, err := readProcs()
	if err != nil {
		return nil, err
	}
	members, marks := map[string]map[int]bool{}, map[int]procMarks{}
	for pid, p := range procs {
		if p.dead || pid == os.Getpid() {
			continue
		}
		m := readMarks(pid)
		if !isUID(m.run) {
			continue
		}
		marks[pid] = m
		if members[m.run] == nil {
			members[m.run] = map[int]bool{}
		}
		members[m.run][pid] = true
	}
	out := map[string][]int{}
	for uid, member := range members {
		var roots []string
		left := procs.leftAlone(member, marks, procID{}, &roots)
		for pid := range member {
			if !left[pid] {
				out[uid] = append(out[uid], pid)
			}
		}
		slices.SortFunc(out[uid], cmp.Compare)
		if len(out[uid]) == 0 {
			delete(out, uid)
		}
	}
	return out, nil
}
