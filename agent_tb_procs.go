package main

// Which process belongs to which run, for event files: one look at all processes for all runs. The same marks as in proc_tree.go, but a
// process is one run's only: that of its own marker, else that of the nearest process above it. What is left alone at a run's end (a tmux
// server and its panes) is a writer of the run as long as it carries its marker or descends from it.

import (
	"time"
)

// tbPid is a process of a run, as long as its number may stand in the name of a file.
type tbPid struct {
	startMS int64
	goneMS  int64 // first look that did not see it, 0 while it lives
}

// tbPidsMost bounds the memory of processes of one run; a job that starts a process a second passes it within hours.
const tbPidsMost = 4096

// tbMarkOf is the marker of a process, read once for each program it runs.
type tbMarkOf struct {
	comm string
	run  string
}

// tbProcs looks at processes. The marks of the last look are kept, since an environment costs 15 us to read.
type tbProcs struct {
	table procTable
	owner map[int]string // pid -> uid of a run
	marks map[procID]tbMarkOf
	boot  int64         // Unix ms
	cost  time.Duration // processor time of the last look, open files included
}

// look reads the process table and finds the owner of each process. trees are those of the runs that may write.
func (p *tbProcs) look(trees map[string]runTree, now time.Time) error {
	if !tbSeesProcs {
		return nil
	}
	table, err := readProcs()
	if err != nil {
		return err
	}
	p.boot = now.UnixMilli() - uptimeTicks()*1000/ticksPerSecond
	marks := make(map[procID]tbMarkOf, len(table))
	owner, foreign := map[int]string{}, map[int]bool{}
	for pid, q := range table {
		if q.dead {
			continue
		}
		m, known := p.marks[q.procID]
		if !known || m.comm != q.comm {
			m = tbMarkOf{q.comm, readMarks(pid).run}
		}
		marks[q.procID] = m
		if m.run == "" {
			continue
		}
		t, ours := trees[m.run]
		switch {
		case ours && q.procID == t.supervisor:
		case ours && q.ticks >= t.born:
			owner[pid] = m.run
		case isUID(m.run):
			foreign[pid] = true // of a run of another agent, or one that is over
		}
	}
	for uid, t := range trees {
		grouped, err := t.cgroup.pids()
		if err != nil {
			return err
		}
		led := table.has(t.leader)
		for pid, q := range table {
			if q.dead || owner[pid] != "" || foreign[pid] || q.procID == t.supervisor {
				continue
			}
			if q.procID == t.leader || grouped[pid] || led && q.ticks >= t.born && (q.session == t.leader.pid || q.pgrp == t.leader.pid) {
				owner[pid] = uid
			}
		}
	}
	p.table, p.marks, p.owner = table, marks, owner
	p.inherit(trees, foreign)
	return nil
}

// inherit gives each process that is nobody's the owner of the nearest one above it.
func (p *tbProcs) inherit(trees map[string]runTree, foreign map[int]bool) {
	above := map[int]string{}
	for uid, t := range trees {
		if p.table.has(t.supervisor) {
			above[t.supervisor.pid] = uid
		}
	}
	for pid, q := range p.table {
		if q.dead || p.owner[pid] != "" || foreign[pid] {
			continue
		}
		if _, supervisor := above[pid]; supervisor {
			continue
		}
		way := []int{pid}
		for at, n := q.ppid, 0; at > 1 && n < 1000; n++ { // a table read in pieces may have a loop
			uid := p.owner[at]
			if uid == "" {
				uid = above[at]
			}
			if uid != "" {
				for _, w := range way {
					p.owner[w] = uid
				}
				break
			}
			parent, there := p.table[at]
			if !there || foreign[at] {
				break
			}
			way = append(way, at)
			at = parent.ppid
		}
	}
}

// remember notes the processes of a run in seen, and which of them are gone.
func (p *tbProcs) remember(uid string, seen map[procID]*tbPid, now time.Time) {
	for pid, owner := range p.owner {
		q := p.table[pid]
		if owner == uid && seen[q.procID] == nil {
			seen[q.procID] = &tbPid{startMS: p.boot + int64(q.ticks)*1000/ticksPerSecond}
		}
	}
	for id, s := range seen {
		if s.goneMS == 0 && !p.table.has(id) {
			s.goneMS = now.UnixMilli()
		}
		if s.goneMS > 0 && len(seen) > tbPidsMost {
			delete(seen, id)
		}
	}
}

// stranger says what the process with this pid, when it is of no run, has to do with a file that was made then.
func (p *tbProcs) stranger(f tbFile) int {
	q, there := p.table[f.name.pid]
	if f.name.pid <= 1 || !there || q.dead || p.owner[f.name.pid] != "" || p.boot+int64(q.ticks)*1000/ticksPerSecond > f.madeMS()+1000 {
		return tbStrangerNone
	}
	kind := tbStrangerNone
	if ownAccount(q.pid) {
		kind = tbStrangerLives
	}
	openTBs(q.pid, make([]byte, 4096), func(path, via string) {
		if g, _, ok := statTB(via); ok && g.dev == f.dev && g.ino == f.ino {
			kind = tbStrangerWrites
		}
	})
	return kind
}

// namedBy reports whether the pid in the name of a file was one of these processes when the file was made. A second is the unit of time in
// a name.
func namedBy(f tbFile, seen map[procID]*tbPid) bool {
	if f.name.pid == 0 {
		return false
	}
	for id, s := range seen {
		if id.pid == f.name.pid && f.madeMS() >= s.startMS-1000 && (s.goneMS == 0 || f.madeMS() <= s.goneMS) {
			return true
		}
	}
	return false
}
