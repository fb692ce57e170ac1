package main

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseTBName(t *testing.T) {
	for _, c := range []struct {
		base, host string
		want       tbName
	}{
		{"events.out.tfevents.1700000000.node1.4711.0", "node1", tbName{1700000000, 4711, false}},
		{"events.out.tfevents.1700000000.node1.4711.0.v2", "node1", tbName{1700000000, 4711, false}},
		{"events.out.tfevents.1700000000.node1.4711.3.my.suffix", "node1", tbName{1700000000, 4711, false}},
		{"events.out.tfevents.1700000000.node1.4711.3_suffix", "node1", tbName{1700000000, 4711, false}},
		{"events.out.tfevents.1700000000.node1", "node1", tbName{1700000000, 0, false}},
		{"events.out.tfevents.1700000000.node1.profile-empty", "node1", tbName{1700000000, 0, false}},
		{"events.out.tfevents.1700000000.node1.cluster.local.77.1", "node1", tbName{1700000000, 77, false}},
		{"events.out.tfevents.1700000000.node1.cluster.local.77.1", "node1.cluster.local", tbName{1700000000, 77, false}},
		{"events.out.tfevents.1700000000.node1.77.1", "node1.cluster.local", tbName{1700000000, 77, false}},
		{"events.out.tfevents.1700000000.10.0.0.5.77.1", "10.0.0.5", tbName{1700000000, 77, false}},
		{"events.out.tfevents.1700000000.10.0.0.6.77.1", "10.0.0.5", tbName{1700000000, 0, true}},
		{"events.out.tfevents.1700000000.node10.77.1", "node1", tbName{1700000000, 0, true}},
		{"events.out.tfevents.1700000000.node2", "node1", tbName{1700000000, 0, true}},
		{"events.out.tfevents.1700000000.0a1b2c3d4e5f.7.1", "node1", tbName{1700000000, 0, false}},
		{"events.out.tfevents.1700000000..123.0", "node1", tbName{1700000000, 123, false}},
		{"events.out.tfevents.1700000000", "node1", tbName{1700000000, 0, false}},
		{"events.out.tfevents.17000.node1.1.1", "node1", tbName{}},
		{"my.tfevents", "node1", tbName{}},
		{"tfevents.x.y", "node1", tbName{}},
		{"events.out.tfevents.1700000000.node1.4711.", "node1", tbName{1700000000, 0, false}},
		{"events.out.tfevents.1700000000.node1.99999999999999999999.0", "node1", tbName{1700000000, 0, false}},
	} {
		if got := parseTBName(c.base, c.host); got != c.want {
			t.Errorf("%s on %s: %+v, want %+v", c.base, c.host, got, c.want)
		}
	}
}

func TestDecideTB(t *testing.T) {
	const start = 1_700_000_000_500
	file := func(made int64, change ...func(*tbFile)) tbFile {
		f := tbFile{path: "/w/events", bornMS: made, changedMS: made}
		for _, c := range change {
			c(&f)
		}
		return f
	}
	unborn := func(f *tbFile) { f.bornMS = 0 }
	stamped := func(s int64) func(*tbFile) { return func(f *tbFile) { f.name.madeS = s } }
	changed := func(ms int64) func(*tbFile) { return func(f *tbFile) { f.changedMS = ms } }
	away := func(f *tbFile) { f.name.away = true }
	shared := func(f *tbFile) { f.shared = true }
	one := func(b tbBond) []tbBond { b.uid, b.startMS = cmp.Or(b.uid, "a"), start; return []tbBond{b} }
	inDir, inTB := tbBond{workDir: 2}, tbBond{tbDir: 3, workDir: 2}
	second := func(b tbBond) tbBond { b.uid, b.startMS = "b", start+10_000; return b }
	ended := func(b tbBond, ms int64) tbBond { b.endMS = ms; return b }
	for _, c := range []struct {
		name     string
		f        tbFile
		bonds    []tbBond
		stranger int
		waited   time.Duration
		want     string // uid why others, or "wait", "older a", ""
	}{
		{"nobody near", file(start + 1), one(tbBond{}), 0, 0, ""},
		{"a: anywhere, older than the start", file(start - 1e6), one(tbBond{writes: true}), 0, 0, "a open"},
		{"a before b", file(start + 1), append(one(tbBond{named: true}), second(tbBond{writes: true})), 0, 0, "b open"},
		{"a: two have it: the inner run", file(start + 20_000), append(one(tbBond{writes: true}), second(tbBond{writes: true})), 0, 0, "b open"},
		{"b before c", file(start + 20_000), append(one(inTB), second(tbBond{named: true})), 0, 0, "b pid"},
		{"b: a pid used twice", file(start + 20_000), append(one(tbBond{named: true}), second(tbBond{named: true})), 0, 0, "b pid"},
		{"c before d", file(start + 20_000), append(one(inTB), second(inDir)), 0, 0, "a tb"},
		{"c: older file that goes on", file(start-1e6, changed(start+5)), one(inTB), 0, 0, "a tb"},
		{"c: older file", file(start - 1e6), one(inTB), 0, 0, "older a"},
		{"c: a living stranger does not matter: it may be a container's", file(start + 5), one(inTB), tbStrangerLives, 0, "a tb"},
		{"c: a stranger writes it", file(start + 5), one(inTB), tbStrangerWrites, 0, ""},
		{"c: another machine's", file(start+5, away, shared), one(inTB), 0, 0, ""},
		{"c: another name, but a disk of this machine", file(start+5, away), one(inTB), 0, 0, "a tb"},
		{"c: the deeper folder", file(start + 20_000), append(one(tbBond{tbDir: 9}), second(tbBond{tbDir: 3})), 0, 0, "a tb"},
		{"d", file(start + 5), one(inDir), 0, 0, "a working_dir"},
		{"d: within the tick", file(start - 9), one(inDir), 0, 0, "a working_dir"},
		{"d: made before", file(start - 900), one(inDir), 0, 0, ""},
		{"d: a living stranger made it", file(start + 5), one(inDir), tbStrangerLives, 0, ""},
		{"d: made before, changed after", file(start-900, changed(start+5)), one(inDir), 0, 0, ""},
		{"d: birth not told", file(start+5, unborn), one(inDir), 0, 0, "a working_dir"},
		{"d: birth not told, the name is older", file(start+5, unborn, stamped(start/1000-5)), one(inDir), 0, 0, ""},
		{"d: birth not told, the name is of the same second", file(start+5, unborn, stamped(start/1000)), one(inDir), 0, 0, "a working_dir"},
		{"d: a copied file keeps its old name", file(start+5, stamped(start/1000-3600)), one(inDir), 0, 0, ""},
		{"d: a file server whose clock is behind", file(start-30_000, stamped(start/1000+2)), one(inDir), 0, 0, "a working_dir"},
		{"d: another machine's in a shared folder", file(start+5, away, shared), one(inDir), 0, 0, ""},
		{"d: in the life of an ended run", file(start + 5), one(ended(inDir, start+100)), 0, 0, "a working_dir"},
		{"d: after the end", file(start + 5000), one(ended(inDir, start+100)), 0, 0, ""},
		{"d: two, one over", file(start + 20_000), append(one(ended(inDir, start+100)), second(inDir)), 0, 0, "b working_dir"},
		{"d: two, one not begun", file(start + 5), append(one(inDir), second(inDir)), 0, 0, "a working_dir"},
		{"d: two", file(start + 20_000), append(one(inDir), second(inDir)), 0, time.Second, "wait"},
		{"d: two, long enough", file(start + 20_000), append(one(inDir), second(inDir)), 0, tbEvidence, "b working_dir a"},
		{"d: two, the order of the runs does not matter", file(start + 20_000), append([]tbBond{second(inDir)}, one(inDir)...), 0, tbEvidence, "b working_dir a"},
		{"d: two, the deeper folder", file(start + 20_000), append(one(tbBond{workDir: 9}), second(inDir)), 0, 0, "a working_dir"},
		{"c: two", file(start + 20_000), append(one(inTB), second(inTB)), 0, tbEvidence, "b tb a"},
		{"c: older than one of two", file(start + 5), append(one(inTB), second(inTB)), 0, 0, "a tb"},
	} {
		v := decideTB(c.f, c.bonds, c.stranger, c.waited)
		got := strings.TrimSpace(strings.Join(slices.Concat([]string{v.uid, v.why}, v.others), " "))
		if v.wait {
			got = "wait"
		}
		if len(v.older) > 0 {
			got = "older " + strings.Join(v.older, " ")
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
