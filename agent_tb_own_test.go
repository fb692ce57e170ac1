//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const eventsName = "events.out.tfevents."

// Each rule, in one agent, with files that only this rule can give.
func TestTBRulesLive(t *testing.T) {
	s := newTBStage(t)
	stop := s.play(s.options())
	s.ready()
	dir, far := s.in("job"), t.TempDir()
	old := s.file(s.in("tb", "old", eventsName+"1600000000.h"), 3)
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	uid := s.job(dir, []string{s.in("tb")},
		"open:"+filepath.Join(far, "x", eventsName+"open"), "points:3", "touch:"+s.in("opened"), "await:"+s.in("go"), "points:2", "close",
		"open:"+s.in("other", eventsName+"%s."+host+".%p.0"), "points:4", "close", "touch:"+s.in("named"), "await:"+s.in("end"))
	other := s.job(s.in("other"), nil, "await:"+s.in("end"))
	waitFor(t, "the writer", func() bool { _, err := os.Stat(s.in("opened")); return err == nil })
	far, _ = filepath.EvalSymlinks(far)
	one := s.size(filepath.Join(far, "x", eventsName+"open"))
	got := s.waitTaken(uid, eventsName+"open", one)
	if got.Why != tbWhyOpen || got.Folder != filepath.Join(far, "x") || !got.Linked {
		t.Errorf("open: %+v", got)
	}
	s.touch(s.in("go"))
	s.waitTaken(uid, eventsName+"open", one/3*5)
	waitFor(t, "the file with a pid", func() bool { return len(s.taken(uid)) == 2 })
	for n, r := range s.taken(uid) {
		if n != eventsName+"open" && r.Why != tbWhyPid && r.Why != tbWhyOpen {
			t.Errorf("pid: %+v", r)
		}
	}
	// Written by this process, which is of no run.
	c := s.file(s.in("tb", "b c", eventsName+"c"), 2)
	d := s.file(filepath.Join(dir, "logs", "train", eventsName+"d"), 2)
	s.file(filepath.Join(dir, eventsName+fmt.Sprintf("%d.%s.%d.0", 2_000_000_000, host, os.Getpid())), 2)
	if got := s.waitTaken(uid, eventsName+"c", s.size(c)); got.Why != tbWhyTB || got.Folder != "b c" {
		t.Errorf("--tb: %+v", got)
	}
	if got := s.waitTaken(uid, eventsName+"d", s.size(d)); got.Why != tbWhyFolder || got.Folder != "logs/train" {
		t.Errorf("working_dir: %+v", got)
	}
	s.touch(s.in("end"))
	s.waitDrained(uid)
	s.waitDrained(other)
	if len(s.taken(uid)) != 4 || len(s.taken(other)) != 0 {
		t.Errorf("taken: %q and %q", s.names(uid), s.names(other))
	}
	for n, r := range s.taken(uid) {
		if !r.cur.Done {
			t.Errorf("%s: %+v", n, r)
		}
	}
	types, data := s.events(uid) // told twice under one key is one event
	if !slices.Equal(slices.Compact(types), []string{"TB_OLDER_FILES"}) || !strings.Contains(data[0], `"count":1`) || !strings.Contains(data[0], "gpuctl import-run "+s.in("tb")) {
		t.Errorf("events %q %q; older is %s", types, data, old)
	}
	stop() // before it came to remove the links, or not
	s.play(s.options())
	waitFor(t, "the links to go", func() bool { return !s.dir(uid).linksTBs() })
	for n, r := range s.taken(uid) {
		if _, err := os.Stat(r.Path); err != nil {
			t.Errorf("%s: %v", n, err)
		}
	}
}

// Two jobs in one folder.
func TestTBSharedFolder(t *testing.T) {
	s := newTBStage(t)
	s.play(s.options())
	s.ready()
	dir := s.in("both")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	script := func(k string) []string {
		return []string{
			"open:" + filepath.Join(dir, eventsName+"held-"+k), "points:3", "await:" + s.in("quick"), "close",
			"open:" + filepath.Join(dir, eventsName+"%s."+host+".%p."+k), "points:5", "close",
			"touch:" + s.in("quick-"+k), "await:" + s.in("end"),
		}
	}
	a, b := s.job(dir, nil, script("0")...), s.job(dir, nil, script("1")...)
	waitFor(t, "both held files", func() bool { return len(s.taken(a)) == 1 && len(s.taken(b)) == 1 })
	s.touch(s.in("quick"))
	waitFor(t, "both quick files", func() bool { return len(s.taken(a)) == 2 && len(s.taken(b)) == 2 })
	for k, uid := range map[string]string{"0": a, "1": b} {
		for n := range s.taken(uid) {
			if !strings.HasSuffix(n, k) {
				t.Errorf("run %s took %s", k, n)
			}
		}
	}
	// Nothing tells whose this one is.
	s.file(filepath.Join(dir, eventsName+"whose"), 2)
	waitFor(t, "the one that nobody can tell", func() bool { return len(s.taken(b)) == 3 })
	s.touch(s.in("end"))
	s.waitDrained(a)
	s.waitDrained(b)
	types, data := s.events(b)
	if !slices.Equal(types, []string{"TB_AMBIGUOUS"}) || !strings.Contains(data[0], a) {
		t.Errorf("events %q %q", types, data)
	}
	if types, _ := s.events(a); len(types) != 0 || len(s.taken(a)) != 2 {
		t.Errorf("the other: %q, %q", types, s.names(a))
	}
}

// Opened, written and closed within a run that is over at once.
func TestTBQuickRun(t *testing.T) {
	s := newTBStage(t)
	s.play(s.options())
	s.ready()
	for i := range 5 {
		dir := s.in(fmt.Sprint("quick", i))
		uid := s.job(dir, nil, "open:"+filepath.Join(dir, "runs", "v1", eventsName+"q"), "points:3", "close")
		s.waitDrained(uid)
		if got := s.taken(uid)[eventsName+"q"]; got.cur.Off != s.size(filepath.Join(dir, "runs", "v1", eventsName+"q")) || !got.cur.Done || got.Folder != "runs/v1" {
			t.Fatalf("try %d: %+v", i, got)
		}
	}
}

// Removed, replaced, renamed: B06.
func TestTBRemovedReplacedRenamed(t *testing.T) {
	s := newTBStage(t)
	s.play(s.options())
	s.ready()
	dir := s.in("job")
	f := filepath.Join(dir, "r", eventsName+"x")
	uid := s.job(dir, nil, "open:"+f, "points:9", "touch:"+s.in("1"), "await:"+s.in("removed"), "points:9", "close", "open:"+f, "points:1",
		"touch:"+s.in("2"), "await:"+s.in("renamed"), "points:1", "await:"+s.in("end"))
	waitFor(t, "the first file", func() bool { _, err := os.Stat(s.in("1")); return err == nil })
	nine := s.size(f)
	s.waitTaken(uid, eventsName+"x", nine)
	if err := os.RemoveAll(filepath.Join(dir, "r")); err != nil {
		t.Fatal(err)
	}
	s.touch(s.in("removed"))
	waitFor(t, "the second file", func() bool { _, err := os.Stat(s.in("2")); return err == nil })
	if err := os.Rename(filepath.Join(dir, "r"), filepath.Join(dir, "renamed")); err != nil {
		t.Fatal(err)
	}
	s.touch(s.in("renamed"))
	offs := func() []int64 {
		var list []int64
		s.cas.mu.Lock()
		defer s.cas.mu.Unlock()
		for src, c := range s.cas.cur {
			if strings.HasPrefix(src, "tb-"+uid) {
				list = append(list, c.Off)
			}
		}
		slices.Sort(list)
		return list
	}
	waitFor(t, "both files", func() bool { return slices.Equal(offs(), []int64{nine / 9 * 2, nine * 2}) })
	s.touch(s.in("end"))
	s.waitDrained(uid)
	if got := offs(); len(got) != 2 {
		t.Errorf("sources at %d", got)
	}
}
