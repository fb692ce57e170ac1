package main

// Event files where processes cannot be looked into and nothing tells of new files, as on macOS: what is left is the place and the time.
// Also folders that do not answer.

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// tbBench is a watch without an agent around it.
type tbBench struct {
	*tbWatch
	t    *testing.T
	home string
	now  time.Time
	held map[string][]tbHold
	told []factItem
}

func newTBBench(t *testing.T) *tbBench {
	b := &tbBench{t: t, home: tbReal(t), now: time.Now(), held: map[string][]tbHold{}}
	b.tbWatch = newTBWatch(slog.New(slog.NewTextHandler(io.Discard, nil)), "host", &agentBell{})
	b.blind = true
	b.folder = func(uid string) runDir { return runDir(filepath.Join(b.home, uid)) }
	b.tbWatch.runs = func() ([]string, error) {
		var uids []string
		entries, err := os.ReadDir(b.home)
		for _, e := range entries {
			uids = append(uids, e.Name())
		}
		return uids, err
	}
	b.take = func(uid string, h tbHold) bool {
		b.held[uid] = append(b.held[uid], h)
		return true
	}
	b.tell = func(f factItem) error {
		b.told = append(b.told, f)
		return nil
	}
	return b
}

// run makes the folder of a run that starts now.
func (b *tbBench) run(spec runSpec) tbSubject {
	b.t.Helper()
	spec.UID = newUID()
	dir := b.folder(spec.UID)
	if err := writeRunFolder(dir, spec); err != nil {
		b.t.Fatal(err)
	}
	if _, err := dir.decide(runFate{Fate: fateStart, AtMS: time.Now().UnixMilli()}); err != nil {
		b.t.Fatal(err)
	}
	return tbSubject{uid: spec.UID, dir: dir}
}

// step looks, a while later than the last time.
func (b *tbBench) step(after time.Duration, subjects ...tbSubject) {
	b.t.Helper()
	b.now = b.now.Add(after)
	if _, err := b.look(b.now, subjects); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tbBench) whys(uid string) []string {
	var out []string
	for _, rec := range b.live[uid].files {
		out = append(out, rec.Why+" "+rec.Folder+" "+filepath.Base(rec.Path))
	}
	slices.Sort(out)
	return out
}

func TestTBBlind(t *testing.T) {
	b := newTBBench(t)
	work, tb := tbReal(t), tbReal(t)
	tbTestFiles(t, work, "e.tfevents.before")
	tbTestFiles(t, tb, "e.tfevents.before")
	for _, f := range []string{work + "/e.tfevents.before", tb + "/e.tfevents.before"} {
		if err := os.Chtimes(f, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "a tick of the clock of the files", func() bool {
		f, _, ok := statTB(work + "/e.tfevents.before")
		return ok && time.Now().UnixMilli() > f.bornMS+50
	})
	s := b.run(runSpec{WorkingDir: work, TB: []string{tb}})
	other := b.run(runSpec{WorkingDir: tbReal(t)})
	b.step(0, s, other)
	tbTestFiles(t, work, "sub/e.tfevents.1")
	tbTestFiles(t, tb, "x/e.tfevents.2")
	b.step(2*time.Second, s, other)
	want := []string{tbWhyTB + " x e.tfevents.2", tbWhyFolder + " sub e.tfevents.1"}
	if got := b.whys(s.uid); !slices.Equal(got, want) || len(b.held[other.uid]) != 0 {
		t.Errorf("taken: %q, want %q; the other %v", got, want, b.held[other.uid])
	}
	if len(b.told) != 1 || !strings.Contains(string(b.told[0].Data), "TB_OLDER_FILES") {
		t.Errorf("told %v", b.told)
	}
	// The same again after a restart: adopted, not taken again, and never by a later run of the folder.
	again := newTBBench(t)
	again.home, again.now = b.home, b.now
	later := again.run(runSpec{WorkingDir: work, TB: []string{tb}})
	again.step(2*time.Second, s, later)
	if got := again.whys(s.uid); !slices.Equal(got, want) || len(again.held[s.uid]) != 2 || len(again.held[later.uid]) != 0 || again.held[s.uid][0].fresh {
		t.Errorf("adopted: %q, %v; the later run %v", got, again.held[s.uid], again.held[later.uid])
	}
	// Over, the links gone: the records still say whose they are.
	if err := s.dir.unlinkTBs(); err != nil {
		t.Fatal(err)
	}
	third := newTBBench(t)
	third.home, third.now = b.home, b.now
	later.ended, later.endMS = true, time.Now().UnixMilli()
	third.step(2*time.Second, later)
	if len(third.held[later.uid]) != 0 || third.pending(later.uid) {
		t.Errorf("taken by the later run: %v, pending %v", third.held[later.uid], third.pending(later.uid))
	}
}

// A folder that does not answer keeps its own run waiting, no other, and not for ever.
func TestTBFolderThatHangs(t *testing.T) {
	b := newTBBench(t)
	work := tbReal(t)
	hung, good := b.run(runSpec{WorkingDir: "/dead/disk"}), b.run(runSpec{WorkingDir: work})
	b.step(0, hung, good)
	b.live[hung.uid].walking = make(chan tbWalked) // nobody will answer
	tbTestFiles(t, work, "e.tfevents.1")
	hung.ended, hung.endMS, good.ended, good.endMS = true, time.Now().UnixMilli(), true, time.Now().UnixMilli()
	b.step(2*time.Second, hung, good)
	if b.pending(good.uid) || len(b.held[good.uid]) != 1 {
		t.Errorf("the good one: pending %v, taken %v", b.pending(good.uid), b.held[good.uid])
	}
	if !b.pending(hung.uid) {
		t.Error("the hung one is through")
	}
	if err := b.giveUpLooking(hung.uid, b.now); err != nil {
		t.Fatal(err)
	}
	if len(b.told) != 1 || b.told[0].RunUID != hung.uid || !strings.Contains(string(b.told[0].Data), "/dead/disk") {
		t.Errorf("told %v", b.told)
	}
}

// A file by the number of one that is gone is another file: taken beside it.
func TestTBInodeUsedAgain(t *testing.T) {
	b := newTBBench(t)
	work := tbReal(t)
	s := b.run(runSpec{WorkingDir: work})
	tbTestFiles(t, work, "e.tfevents.1")
	f, _, ok := statTB(work + "/e.tfevents.1")
	if !ok {
		t.Fatal("no file")
	}
	key := tbKey(f.ino, func(string) bool { return false })
	if err := os.Mkdir(s.dir.tbDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	old := tbRecord{Path: work + "/e.tfevents.0", Why: tbWhyFolder, Dev: f.dev, BornMS: f.bornMS - 5, Linked: false}
	if err := writeAtomicJSON(s.dir.tbLink(key)+".json", old); err != nil {
		t.Fatal(err)
	}
	b.step(0, s)
	var keys []string
	for _, h := range b.held[s.uid] {
		keys = append(keys, h.key)
	}
	if !slices.Equal(keys, []string{key + "-1"}) || len(b.live[s.uid].lost) != 1 {
		t.Errorf("taken %q, lost %v", keys, b.live[s.uid].lost)
	}
	b.handLost(s.uid)
	if n := len(b.held[s.uid]); n != 2 || b.held[s.uid][1].key != key {
		t.Errorf("handed on: %v", b.held[s.uid])
	}
}
