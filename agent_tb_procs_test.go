package main

import "testing"

// A number that is used again names another process.
func TestNamedBy(t *testing.T) {
	seen := map[procID]*tbPid{
		{pid: 100, ticks: 5}: {startMS: 10_000, goneMS: 20_000},
		{pid: 200, ticks: 9}: {startMS: 50_000},
	}
	for _, c := range []struct {
		pid  int
		made int64
		want bool
	}{
		{100, 15_000, true},
		{100, 9_500, true}, // the name counts seconds
		{100, 5_000, false},
		{100, 20_001, false}, // made by the next one with this number
		{200, 49_500, true},
		{200, 1 << 50, true},
		{300, 15_000, false},
		{0, 15_000, false},
	} {
		if got := namedBy(tbFile{bornMS: c.made, name: tbName{pid: c.pid}}, seen); got != c.want {
			t.Errorf("pid %d, made at %d: %v", c.pid, c.made, got)
		}
	}
}

// Whose a process is: by its own marker, else by the nearest process above it.
func TestTBProcsInherit(t *testing.T) {
	p := tbProcs{table: procTable{}, owner: map[int]string{11: "a", 21: "b"}}
	for pid, ppid := range map[int]int{10: 1, 11: 10, 12: 11, 13: 12, 20: 13, 21: 20, 22: 21, 30: 12, 31: 30, 40: 1, 41: 40, 50: 51, 51: 50, 60: 10} {
		p.table[pid] = procInfo{procID: procID{pid, uint64(pid)}, ppid: ppid}
	}
	trees := map[string]runTree{
		"a": {supervisor: procID{10, 10}},
		"b": {supervisor: procID{20, 20}}, // started by a job of a
	}
	p.inherit(trees, map[int]bool{30: true}) // 30 is of a run of another agent
	want := map[int]string{11: "a", 12: "a", 13: "a", 21: "b", 22: "b", 60: "a"}
	for pid := range p.table {
		if p.owner[pid] != want[pid] {
			t.Errorf("pid %d is of %q, want %q", pid, p.owner[pid], want[pid])
		}
	}
}
