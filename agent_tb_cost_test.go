//go:build linux && !race

package main

// What looking for event files costs, and how soon a point is on its way.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// openBelow counts the files below a folder that this process has open.
func openBelow(t *testing.T, dir string) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, dir) {
			n++
		}
	}
	return n
}

// B08: 500 dormant folders beside a live run, 100 event files of it that lie still, 500 runs that are over: next to nothing.
func TestTBDormantCostsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	s := newTBStage(t)
	s.cas.cur = map[string]wireCursor{}
	for i := range 500 {
		dir := s.folder(fmt.Sprintf("%032x", i+1), fateStart)
		if err := writeAtomicJSON(dir.file("exit.json"), runExit{exitInfo: exitInfo{Code: 0}}); err != nil {
			t.Fatal(err)
		}
		if err := writeAtomicJSON(dir.file("pid.json"), runPid{Pid: 2, StartTicks: 1, BootID: "another"}); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir.tbDir(), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir.tbLink("ff")+".json", []byte(`{"path":"/nowhere/x","linked":true,"dev":1}`), 0o600); err != nil {
			t.Fatal(err)
		}
		s.cas.cur[sourceName(kindLog, dir.uid())] = wireCursor{Done: true}
	}
	dir := s.in("job")
	for i := range 500 {
		s.file(filepath.Join(dir, "old", fmt.Sprint(i), eventsName+"1600000000.h"), 1)
	}
	args := []string{}
	for i := range 100 {
		args = append(args, "open:"+filepath.Join(dir, "now", fmt.Sprint(i), fmt.Sprint(eventsName, "x", i)), "points:1")
	}
	stop := s.play(s.options())
	s.ready()
	uid := s.job(dir, nil, append(args, "await:"+s.in("end"))...)
	waitFor(t, "the 100 files", func() bool { return len(s.taken(uid)) == 100 })
	waitFor(t, "all of them", func() bool {
		for _, r := range s.taken(uid) {
			if r.cur.Off == 0 {
				return false
			}
		}
		return true
	})
	if n := openBelow(t, filepath.Join(s.home, "runs")); n > 110 {
		t.Errorf("%d files of run folders are open", n)
	}
	<-time.After(time.Second) // the rest of the start
	before, began := cpuTime(t), time.Now()
	<-time.After(4 * time.Second) // what is measured
	share := float64(cpuTime(t)-before) / float64(time.Since(began))
	t.Logf("with 100 event files that lie still: %.2f %% of a core", 100*share)
	if share > 0.15 { // 3.5 here, 0.9 of it looking for event files, the most of the rest this stage and its waiting; 8.7 with the race detector and load 10
		t.Errorf("%.2f %% of a core", 100*share)
	}
	s.touch(s.in("end"))
	s.waitDrained(uid)
	if n := openBelow(t, filepath.Join(s.home, "runs")); n > 2 {
		t.Errorf("%d files of run folders are open after the end", n)
	}
	stop()
}

// A flushed point is with the server within 300 ms at the median, also when the writer pauses for long.
func TestTBPointIsSoonThere(t *testing.T) {
	s := newTBStage(t)
	s.play(s.options())
	s.ready()
	dir := s.in("job")
	var args []string
	for i := range 9 {
		args = append(args, "open:"+filepath.Join(dir, eventsName+"x"), "points:1", "touch:"+s.in(fmt.Sprint("flushed", i)), "await:"+s.in(fmt.Sprint("seen", i)))
	}
	uid := s.job(dir, nil, args...)
	one := int64(len(eventRecord(1, "loss", 1)))
	var all []time.Duration
	for i := range 9 {
		flushed := s.in(fmt.Sprint("flushed", i))
		waitFor(t, "a flush", func() bool { _, err := os.Stat(flushed); return err == nil })
		began := time.Now()
		s.waitTaken(uid, eventsName+"x", int64(i+1)*one)
		all = append(all, time.Since(began))
		<-time.After(300 * time.Millisecond)
		s.touch(s.in(fmt.Sprint("seen", i)))
	}
	slices.Sort(all)
	t.Logf("from the flush to the server: %v", all)
	if all[4] > 250*time.Millisecond {
		t.Errorf("median %v", all[4])
	}
}

// How soon a file that rested is looked at again.
func TestTBLooksAtRestingFiles(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		rested, want time.Duration
	}{{0, 0}, {time.Minute, 0}, {2 * time.Minute, 200 * time.Millisecond}, {10 * time.Minute, time.Second}, {time.Hour, 2 * time.Second}} {
		s := &tbSource{fileSource: &fileSource{}, run: &runSources{}, moved: now.Add(-c.rested)}
		s.looked(now, 0, nil)
		if got := max(s.next.Sub(now), 0); got != c.want {
			t.Errorf("rested %v: %v, want %v", c.rested, got, c.want)
		}
	}
}
