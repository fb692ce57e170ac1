package main

// Evidence that the kernel killed for memory: counters before and after a run. Which one said so is part of the answer, since two of
// the three also count what happened to others.

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// oomWatch remembers the counters that are not the run's alone.
type oomWatch struct {
	counters []oomCounter
}

type oomCounter struct {
	path   string
	before int64
	group  bool // of the cgroup that this process and the run are charged to; otherwise the whole machine's
}

// watchOOM takes the counters. Called before the fork.
func watchOOM() oomWatch {
	var w oomWatch
	add := func(path string, group bool) {
		if n, ok := counterIn(path, "oom_kill"); ok {
			w.counters = append(w.counters, oomCounter{path, n, group})
		}
	}
	if g := ownCgroup("cgroup2", ""); g != "" {
		add(filepath.Join(g, "memory.events"), true)
	}
	if g := ownCgroup("cgroup", "memory"); g != "" {
		add(filepath.Join(g, "memory.oom_control"), true)
	}
	add("/proc/vmstat", false)
	return w
}

// evidence says what speaks for a kill by the kernel for want of memory, "" = nothing. killed: some process of the run ended by a SIGKILL
// that was not ours; only together with one does the machine's counter say anything. A worker's end that only its launcher saw shows in
// the cgroup's counters.
func (w oomWatch) evidence(own runCgroup, killed bool) string {
	if own != "" {
		path := filepath.Join(string(own), "memory.events")
		if n, ok := counterIn(path, "oom_kill"); ok && n > 0 {
			return fmt.Sprintf("oom_kill of the run's cgroup is %d (%s)", n, path)
		}
	}
	for _, c := range w.counters {
		n, ok := counterIn(c.path, "oom_kill")
		if !ok || n <= c.before || !killed && !c.group {
			continue
		}
		whose := "the machine"
		if c.group {
			whose = "the cgroup, shared with others,"
		}
		return fmt.Sprintf("oom_kill of %s rose by %d during the run (%s)", whose, n-c.before, c.path)
	}
	return ""
}

// counterIn reads "name value" lines.
func counterIn(path, name string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
