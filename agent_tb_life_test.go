//go:build linux

package main

// What becomes of event files when the agent or the server is away, and how a run ends.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Removed while no agent lives, and written on: the link holds it.
func TestTBRemovedWhileAway(t *testing.T) {
	s := newTBStage(t)
	stop := s.play(s.options())
	s.ready()
	dir := s.in("job")
	f := filepath.Join(dir, eventsName+"x")
	uid := s.job(dir, nil, "open:"+f, "points:4", "await:"+s.in("removed"), "points:6", "touch:"+s.in("more"), "await:"+s.in("end"))
	one := int64(len(eventRecord(1, "loss", 1)))
	s.waitTaken(uid, eventsName+"x", 4*one)
	stop()
	if err := os.Remove(f); err != nil {
		t.Fatal(err)
	}
	s.touch(s.in("removed"))
	waitFor(t, "the rest", func() bool { _, err := os.Stat(s.in("more")); return err == nil })
	stop = s.play(s.options())
	s.waitTaken(uid, eventsName+"x", 10*one)
	stop()
	s.touch(s.in("end"))
	waitFor(t, "the end", func() bool { _, ok, err := s.dir(uid).exit(); return ok && err == nil })
	s.play(s.options())
	s.waitDrained(uid)
	if got := s.taken(uid)[eventsName+"x"]; !got.cur.Done || got.cur.Off != 10*one {
		t.Errorf("%+v", got)
	}
}

// The whole life of a run while the agent is away.
func TestTBWhileAway(t *testing.T) {
	s := newTBStage(t)
	stop := s.play(s.options())
	s.ready()
	dir := s.in("job")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	uid := s.job(dir, []string{"tb"}, "await:"+s.in("go"), "open:"+filepath.Join(dir, "a", eventsName+"%s."+host+".%p.0"), "points:2", "close",
		"open:"+filepath.Join(dir, "a", eventsName+"quiet"), "points:3", "close", "open:"+filepath.Join(dir, "tb", "z", eventsName+"z"), "points:4", "close")
	s.waitTruth(uid, tellAlive)
	stop()
	s.touch(s.in("go"))
	waitFor(t, "the end", func() bool { _, ok, err := s.dir(uid).exit(); return ok && err == nil })
	waitFor(t, "a moment after the end", func() bool { ms, _ := drainedAt(s.dir(uid)); return time.Now().UnixMilli() > ms+tbEndMS+100 })
	s.file(filepath.Join(dir, "a", eventsName+"late"), 2) // by somebody, after the end
	s.play(s.options())
	s.waitDrained(uid)
	var why []string
	for n, r := range s.taken(uid) {
		why = append(why, r.Folder+" "+r.Why)
		if !r.cur.Done || r.cur.Off == 0 || strings.HasSuffix(n, "late") {
			t.Errorf("%s: %+v", n, r)
		}
	}
	slices.Sort(why)
	if !slices.Equal(why, []string{"a pid", "a working_dir", "z tb"}) {
		t.Errorf("taken: %q", why)
	}
}

// On another file system no link can be made: an open file holds it, and after a restart it is found by its path, or by a walk when it was moved.
func TestTBOtherFileSystem(t *testing.T) {
	far, err := os.MkdirTemp("/dev/shm", "gpuctl-tb")
	if err != nil {
		t.Skip("no second file system: ", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(far); err != nil {
			t.Error(err)
		}
	})
	s := newTBStage(t)
	if here, there := s.dev(s.home), s.dev(far); here == there {
		t.Skip("/dev/shm is no file system of its own")
	}
	stop := s.play(s.options())
	s.ready()
	one := int64(len(eventRecord(1, "loss", 1)))
	name := func(n string) string { return filepath.Join(far, "r", eventsName+n) }
	uid := s.job(s.in("job"), []string{far}, "open:"+name("stays"), "points:2", "close", "open:"+name("gone"), "points:4", "close",
		"open:"+name("moved"), "points:3", "await:"+s.in("back"), "points:3", "await:"+s.in("end"))
	s.waitTaken(uid, eventsName+"gone", 4*one)
	if got := s.waitTaken(uid, eventsName+"moved", 3*one); got.Linked || got.Folder != "r" {
		t.Errorf("%+v", got)
	}
	if err := os.Remove(name("gone")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the problem in a hello", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.ContainsFunc(s.hellos[len(s.hellos)-1].Problems, func(p string) bool { return strings.Contains(p, "another file system") })
	})
	stop()
	if err := os.Rename(filepath.Join(far, "r"), filepath.Join(far, "renamed")); err != nil {
		t.Fatal(err)
	}
	s.touch(s.in("back"))
	s.play(s.options())
	s.waitTaken(uid, eventsName+"moved", 6*one)
	s.touch(s.in("end"))
	s.waitDrained(uid)
	if got := s.taken(uid); len(got) != 3 || got[eventsName+"moved"].Path != filepath.Join(far, "renamed", eventsName+"moved") || got[eventsName+"stays"].cur.Off != 2*one {
		t.Errorf("%+v", got)
	}
	if types, data := s.events(uid); !slices.Equal(types, []string{"TB_INCOMPLETE"}) || !strings.Contains(data[0], eventsName+"gone") {
		t.Errorf("events %q %q", types, data)
	}
}

func (s *tbStage) dev(path string) uint64 {
	st, err := os.Stat(path)
	if err != nil {
		s.t.Fatal(err)
	}
	dev, _ := fileID(st)
	return dev
}

// The server is away at the end: nothing is lost and nothing given up, and the agent may die meanwhile.
func TestTBEndWithoutServer(t *testing.T) {
	s := newTBStage(t)
	stop := s.play(s.options())
	s.ready()
	dir := s.in("job")
	uid := s.job(dir, nil, "open:"+filepath.Join(dir, eventsName+"x"), "points:1", "await:"+s.in("end"), "points:5", "close")
	one := int64(len(eventRecord(1, "loss", 1)))
	s.waitTaken(uid, eventsName+"x", one)
	s.with(func() { s.away = true })
	s.touch(s.in("end"))
	s.waitTruth(uid, tellEnded) // the slot is not held
	for range 3 {
		stop()
		s.with(func() { s.hellos = nil })
		stop = s.play(s.options())
		s.waitTruth(uid, tellEnded)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	s.with(func() { s.away = false })
	s.waitDrained(uid)
	if got := s.taken(uid)[eventsName+"x"]; got.cur.Off != 6*one || !got.cur.Done {
		t.Errorf("%+v", got)
	}
	if types, _ := s.events(uid); len(types) != 0 {
		t.Errorf("events %q", types)
	}
}

// A server that was restored from before a run asks for everything again, when its links are gone: what still lies there is sent again, under
// the same names.
func TestTBAfterRestore(t *testing.T) {
	s := newTBStage(t)
	s.play(s.options())
	s.ready()
	backup := s.cas.copyState()
	dir := s.in("job")
	stays, goes := filepath.Join(dir, "a", eventsName+"stays"), filepath.Join(dir, "a", eventsName+"goes")
	uid := s.job(dir, nil, "open:"+stays, "points:4", "close", "open:"+goes, "points:2")
	s.waitDrained(uid)
	s.with(func() { s.inc = "1-b" }) // makes the agent say hello, so that it lets the links go
	waitFor(t, "the links to go", func() bool { return !s.dir(uid).linksTBs() })
	if err := os.Remove(goes); err != nil {
		t.Fatal(err)
	}
	before := s.taken(uid)[eventsName+"stays"].cur
	s.with(func() {
		s.cas.restore(backup, "2-c")
		s.inc = "2-c"
	})
	s.waitDrained(uid)
	if got := s.taken(uid); len(got) != 2 || got[eventsName+"stays"].cur != before || !got[eventsName+"goes"].cur.Done {
		t.Errorf("%+v; it was %+v", got, before)
	}
	if types, data := s.events(uid); !slices.Equal(types, []string{"TB_INCOMPLETE"}) || !strings.Contains(data[0], "goes") {
		t.Errorf("events %q %q", types, data)
	}
}

// What happens between two lives, at every point of taking a file.
func TestTBCutOff(t *testing.T) {
	one := int64(len(eventRecord(1, "loss", 1)))
	for name, cut := range map[string]func(s *tbStage, uid, key, path string, rec tbRecord){
		"the record is there and the link is not": func(s *tbStage, uid, key, _ string, _ tbRecord) {
			if err := os.Remove(s.dir(uid).tbLink(key)); err != nil {
				s.t.Fatal(err)
			}
		},
		"the record is torn": func(s *tbStage, uid, key, _ string, _ tbRecord) {
			if err := os.WriteFile(s.dir(uid).tbLink(key)+".json", []byte("{"), 0o600); err != nil {
				s.t.Fatal(err)
			}
		},
		"the link is there and the record is not": func(s *tbStage, uid, key, _ string, _ tbRecord) {
			if err := os.Remove(s.dir(uid).tbLink(key) + ".json"); err != nil {
				s.t.Fatal(err)
			}
		},
		"neither": func(s *tbStage, uid, key, _ string, _ tbRecord) {
			if err := os.RemoveAll(s.dir(uid).tbDir()); err != nil {
				s.t.Fatal(err)
			}
		},
		"a temporary file of the record": func(s *tbStage, uid, key, _ string, _ tbRecord) {
			if err := os.WriteFile(filepath.Join(s.dir(uid).tbDir(), "."+key+".json.tmp123"), []byte("{"), 0o600); err != nil {
				s.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTBStage(t)
			stop := s.play(s.options())
			s.ready()
			dir := s.in("job")
			f := filepath.Join(dir, "sub", eventsName+"x")
			uid := s.job(dir, nil, "open:"+f, "points:2", "await:"+s.in("go"), "points:3", "await:"+s.in("end"))
			s.waitTaken(uid, eventsName+"x", 2*one)
			stop()
			records, err := s.dir(uid).tbRecords()
			if err != nil || len(records) != 1 {
				t.Fatal(records, err)
			}
			key := ""
			for k, r := range records {
				key = k
				cut(s, uid, k, f, r)
			}
			s.touch(s.in("go"))
			s.play(s.options())
			src := tbSourceName(uid, key)
			off := func() int64 { s.cas.mu.Lock(); defer s.cas.mu.Unlock(); return s.cas.cur[src].Off }
			waitFor(t, "all of it", func() bool { return off() == 5*one })
			s.touch(s.in("end"))
			s.waitDrained(uid)
			s.cas.mu.Lock()
			defer s.cas.mu.Unlock()
			if c := s.cas.cur[src]; c.Gen != 0 || c.Off != 5*one || c.N == 0 || !c.Done {
				t.Errorf("%+v", c)
			}
			for src := range s.cas.cur {
				if strings.HasPrefix(src, "tb-") && src != tbSourceName(uid, key) {
					t.Errorf("also %s", src)
				}
			}
		})
	}
}

// An event file that cannot be read does not hold the run for ever, and is told.
func TestTBCannotBeRead(t *testing.T) {
	w := newScheduleWorld(t, 1)
	w.calm = true
	r := w.addRun()
	dir := t.TempDir()
	for _, n := range []string{"good", "bad"} {
		if err := os.WriteFile(filepath.Join(dir, n), eventRecord(1, "loss", 1), 0o600); err != nil {
			t.Fatal(err)
		}
		h := tbHold{key: map[string]string{"good": "1", "bad": "2"}[n], path: filepath.Join(dir, n), name: "/data/" + n, fresh: true}
		if !w.u.addTB(r.dir.uid(), h) || w.u.addTB(r.dir.uid(), h) {
			t.Fatal("added")
		}
	}
	closed, err := os.Open(filepath.Join(dir, "bad"))
	if err != nil {
		t.Fatal(err)
	}
	w.must(closed.Close())
	for _, f := range w.u.runs[r.dir.uid()].tb {
		if f.name == "/data/bad" {
			f.f = closed // every call on it is an error
		}
	}
	r.write(w, []byte("last line\n"))
	w.u.sizeLog(r.dir.uid(), r.dir.logSize())
	w.u.endRun(r.dir.uid(), w.now)
	began := w.now
	for !w.u.runDone(r.dir.uid()) {
		if w.now.Sub(began) > 2*readWithin {
			t.Fatal("it waits for ever")
		}
		w.step()
		if w.now.Sub(began) > 2*time.Second && w.now.Sub(began) < readWithin {
			if c := w.srv.cur[r.src()]; c.Done || c.Off != r.dir.logSize() {
				t.Fatalf("log at %+v: its lines do not wait, its end does", c)
			}
			if !w.srv.cur[tbSourceName(r.dir.uid(), "1")].Done {
				t.Fatal("the good one waits")
			}
		}
	}
	if d := w.now.Sub(began); d < readWithin {
		t.Errorf("given up after %v", d)
	}
	facts := strings.Join(w.srv.records[w.u.own[0].src], "\n")
	if !strings.Contains(facts, "TB_INCOMPLETE") || !strings.Contains(facts, "/data/bad") || strings.Contains(facts, "/data/good") || len(w.srv.early) > 0 {
		t.Errorf("facts %s, early %q", facts, w.srv.early)
	}
	w.must(w.u.facts.close())
	delete(w.u.runs, r.dir.uid())
}

// What an ordinary end costs by the gate: a run without event files.
func TestTBPlainEndIsQuick(t *testing.T) {
	s := newTBStage(t)
	s.play(s.options())
	s.ready()
	var all []time.Duration
	for i := range 7 {
		dir := s.in(fmt.Sprint(i))
		uid := s.job(dir, nil, "await:"+filepath.Join(dir, "end"))
		s.waitTruth(uid, tellAlive)
		s.touch(filepath.Join(dir, "end"))
		s.waitTruth(uid, tellEnded) // not exit.json: a supervisor built for the race detector takes a second to go away
		began := time.Now()
		s.waitDrained(uid)
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	t.Logf("from the end as told to the end of the log: %v", all)
	if all[3] > 300*time.Millisecond {
		t.Errorf("median %v", all[3])
	}
}
