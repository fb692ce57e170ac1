package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ckptScene is a run with a watched folder, an agent that looks at it when a test says so, and a clock of looks.
type ckptScene struct {
	t     *testing.T
	home  string
	watch string
	dir   runDir
	spec  runSpec
	a     *agent
	now   time.Time
	read  int // facts taken so far
	puts  int // files written so far
	log   bytes.Buffer
}

func newCkptScene(t *testing.T) *ckptScene {
	t.Helper()
	s := &ckptScene{t: t, home: t.TempDir(), now: time.Now()}
	s.watch = filepath.Join(s.home, "work", "out")
	uid := newUID()
	s.dir = runDir(filepath.Join(s.home, "runs", uid))
	s.spec = runSpec{UID: uid, WorkingDir: filepath.Join(s.home, "work"), Watch: []string{"out"}}
	for _, d := range []string{s.watch, string(s.dir)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.must(writeAtomicJSON(s.dir.file("pid.json"), runPid{StartedMS: s.now.UnixMilli()}))
	s.restart()
	t.Cleanup(func() { s.must(s.a.up.close()) })
	return s
}

func (s *ckptScene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// restart is another agent on the same home.
func (s *ckptScene) restart() {
	s.t.Helper()
	if s.a != nil {
		s.must(s.a.up.close())
	}
	send := func(context.Context, []byte) (batchAnswer, error) { return batchAnswer{}, errors.New("no server") }
	up, err := newUploader(s.home, send, slog.New(slog.NewTextHandler(io.Discard, nil)), func(string) {})
	s.must(err)
	s.a = &agent{up: up, said: map[string]time.Time{}, log: slog.New(slog.NewTextHandler(&s.log, nil))}
}

func (s *ckptScene) file(name string) string { return filepath.Join(s.watch, name) }

func (s *ckptScene) put(name, text string) {
	s.t.Helper()
	s.must(os.MkdirAll(filepath.Dir(s.file(name)), 0o700))
	s.must(os.WriteFile(s.file(name), []byte(text), 0o600))
	s.puts++ // each later than the one before, whatever the tick of the kernel
	when := time.Now().Add(time.Duration(s.puts) * 10 * time.Millisecond)
	s.must(os.Chtimes(s.file(name), when, when))
}

// look looks once after d; it gives what was told by it, as "name kind step" with "!why" when incomplete, or "-name" when gone.
func (s *ckptScene) look(d time.Duration) string { s.t.Helper(); return s.looks(d, false) }

// last is the look when the tree is empty.
func (s *ckptScene) last() string { s.t.Helper(); return s.looks(time.Second, true) }

func (s *ckptScene) looks(d time.Duration, last bool) string {
	s.t.Helper()
	s.now = s.now.Add(d)
	s.must(s.a.ckptLook(s.dir, s.spec, last, s.now))
	return s.told()
}

// still looks every 2 s until what lies there must have been told.
func (s *ckptScene) still() string {
	s.t.Helper()
	var all []string
	for range 7 {
		if told := s.look(2 * time.Second); told != "" {
			all = append(all, told)
		}
	}
	return strings.Join(all, "; ")
}

// facts are all facts in the spool.
func (s *ckptScene) facts() (out []factItem) {
	s.t.Helper()
	segs, err := filepath.Glob(filepath.Join(s.home, "spool", "facts-*", "*.seg"))
	s.must(err)
	slices.Sort(segs)
	for _, seg := range segs {
		b, err := os.ReadFile(seg)
		s.must(err)
		for line := range bytes.Lines(b) {
			var f factItem
			_, payload, _ := bytes.Cut(line, []byte(" "))
			s.must(json.Unmarshal(payload, &f))
			out = append(out, f)
		}
	}
	return out
}

func (s *ckptScene) told() string {
	s.t.Helper()
	all := s.facts()
	var out []string
	for _, f := range all[s.read:] {
		var c wireCheckpoint
		s.must(json.Unmarshal(f.Data, &c))
		text := strings.TrimPrefix(c.Path, s.watch+"/")
		if f.Kind == "event" {
			var e wireEvent
			s.must(json.Unmarshal(f.Data, &e))
			out = append(out, e.Type+" "+e.Message)
			continue
		}
		if f.Kind == "checkpoint_gone" {
			text = "-" + text
		} else {
			text += " " + c.Kind
			if c.Step != nil {
				text += fmt.Sprintf(" %d", *c.Step)
			}
			if c.Grew {
				text += " grew"
			}
			if c.Incomplete != "" {
				text += " !" + c.Incomplete
			}
		}
		out = append(out, text)
	}
	s.read = len(all)
	return strings.Join(out, "; ")
}

func (s *ckptScene) want(got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("told %q, want %q", got, want)
	}
}

func TestCkptDebounce(t *testing.T) {
	s := newCkptScene(t)
	s.put("model_5.pt", "one")
	s.put("model_7.pt", "x")
	s.must(os.Chtimes(s.file("model_7.pt"), time.Time{}, time.Now().Add(time.Hour))) // the clock of a server that is ahead
	s.want(s.look(0), "")
	s.want(s.look(9*time.Second), "")
	s.put("model_5.pt", "two") // same size, same inode
	s.must(os.Chtimes(s.file("model_5.pt"), time.Time{}, time.Now().Add(-time.Second)))
	s.want(s.look(2*time.Second), "model_7.pt file 7")
	s.want(s.look(9*time.Second), "")
	s.want(s.look(time.Second), "model_5.pt file 5")
	s.want(s.still(), "")
	// Calls that come while another is at work do nothing.
	r := s.a.ckpt.run(s.dir.uid())
	r.mu.Lock()
	s.put("model_9.pt", "x")
	s.must(s.a.ckptLook(s.dir, s.spec, false, s.now.Add(time.Hour)))
	r.mu.Unlock()
	s.want(s.last(), "model_9.pt file 9")
	if len(s.a.ckpt.runs) != 0 {
		t.Error("a run that is over is still remembered")
	}
	s.want(s.last(), "") // again, by an agent that comes back: from the file
}

func TestCkptWhatIsFound(t *testing.T) {
	s := newCkptScene(t)
	s.put("checkpoint-500/trainer_state.json", `{"global_step": 501, "max_steps": 900, "log_history": []}`)
	s.put("checkpoint-500/model.safetensors", "\x02\x00\x00\x00\x00\x00\x00\x00{}")
	s.put("tmp-checkpoint-600/model.safetensors", "x")
	s.put("checkpoint-700.tmp/model.safetensors", "x")
	s.put("version_0/checkpoints/epoch=3-step=200.ckpt", "x")
	s.put("version_0/events.out.tfevents.1.h.2.0", "x")
	s.put("epoch=4-step=300.ckpt/weights/data.bin", "x")
	s.put("checkpoint-800/sample.png", "x")
	s.put("hf/config.json", "{}")
	s.put("hf/model.safetensors", "\x02\x00\x00\x00\x00\x00\x00\x00{}")
	s.put("deep/deeper/model.pt", "x")
	s.put("global_step77/mp_rank_00_model_states.pt", "x")
	s.put("best.json", `{"epoch": 3, "step": 270}`)
	s.put("epoch-001.json", `{"metrics": {"step": 1}, "epoch": 3}`)
	s.put("config.json", "{}")
	s.put("train.log", "x")
	s.put("empty.pt", "")
	s.put("half.pt.tmp", "x")
	s.put("ein name\nneue zeile_3.pt", "x")
	s.put("bad\xff_4.pt", "x")
	s.put("model-00001-of-00002.safetensors", "\x02\x00\x00\x00\x00\x00\x00\x00{}")
	s.put("model-00002-of-00002.safetensors", "\x02\x00\x00\x00\x00\x00\x00\x00{}")
	s.put("model.safetensors.index.json", `{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}`)
	s.put("ckpt-9.index", "x")
	s.put("ckpt-9.data-00000-of-00001", "x")
	s.must(os.Mkdir(s.file("checkpoint-900"), 0o700))
	s.must(unix.Mkfifo(s.file("model_8.pt"), 0o600))
	s.must(unix.Mkfifo(s.file("checkpoint-500/pipe.pt"), 0o600))
	s.must(os.Symlink("checkpoint-500", s.file("last")))
	s.must(os.Symlink("best.json", s.file("last.ckpt")))
	s.must(os.Symlink("/dev/zero", s.file("zero.pt")))
	s.must(os.Symlink(s.home, s.file("up")))
	got := strings.Split(s.last(), "; ")
	slices.Sort(got)
	want := []string{
		"checkpoint-500 folder 501", "version_0/checkpoints/epoch=3-step=200.ckpt file 200", "epoch=4-step=300.ckpt folder 300", "hf folder",
		"global_step77 folder 77", "best.json file 270", "epoch-001.json file", "ein name\nneue zeile_3.pt file 3", `bad\xff_4.pt file 4`,
		"model-00001-of-00002.safetensors file", "ckpt-9.index file 9",
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("told\n%q, want\n%q", got, want)
	}
	for _, f := range s.facts() {
		var c wireCheckpoint
		s.must(json.Unmarshal(f.Data, &c))
		if f.RunUID != s.dir.uid() || !strings.HasPrefix(f.Key, "ckpt-"+s.dir.uid()+"-") || !strings.HasSuffix(f.Key, "-"+c.Fingerprint) {
			t.Errorf("fact %+v", f)
		}
		if filepath.Base(c.Path) == "checkpoint-500" && (c.StepFrom != "trainer_state" || c.TotalSteps == nil || *c.TotalSteps != 900) {
			t.Errorf("%+v", c)
		}
	}
}

func TestCkptOrder(t *testing.T) {
	s := newCkptScene(t)
	when := time.Now()
	for _, n := range []int{100, 2, 10} {
		name := fmt.Sprintf("epoch-%d.pt", n)
		s.put(name, "x")
		s.must(os.Chtimes(s.file(name), when, when))
	}
	s.want(s.last(), "epoch-2.pt file; epoch-10.pt file; epoch-100.pt file")
	var at int64
	for _, f := range s.facts() {
		if f.AtMS <= at {
			t.Errorf("time of %s does not grow", f.Key)
		}
		at = f.AtMS
	}
}

func TestCkptOverwritten(t *testing.T) {
	s := newCkptScene(t)
	s.put("last.pt", "first")
	s.want(s.still(), "last.pt file")
	s.put("last.pt", "other") // in place, the same inode
	s.want(s.still(), "last.pt file")
	s.put("last.pt.tmp", "third")
	s.must(os.Rename(s.file("last.pt.tmp"), s.file("last.pt"))) // the usual atomic save
	s.want(s.still(), "last.pt file")
	s.must(os.Remove(s.file("last.pt"))) // gone for a moment: unlink, write
	s.want(s.look(time.Second), "")
	s.put("last.pt", "fourth")
	s.want(s.still(), "last.pt file")
	prints := map[string]bool{}
	for _, f := range s.facts() {
		prints[f.Key] = true
	}
	if len(prints) != 4 {
		t.Errorf("%d fingerprints", len(prints))
	}
	s.must(os.Truncate(s.file("last.pt"), 0))
	s.want(s.still(), "last.pt file !last.pt has 0 bytes")
	s.must(os.Chmod(s.file("last.pt"), 0o644)) // touches nothing that counts
	s.want(s.still(), "")
}

func TestCkptGone(t *testing.T) {
	s := newCkptScene(t)
	for _, n := range []string{"checkpoint-1/model.pt", "checkpoint-2/model.pt", "a/x_1.pt", "a/x_2.pt", "m.pt"} {
		s.put(n, "x")
	}
	s.still()
	s.must(os.RemoveAll(s.file("checkpoint-1"))) // save_total_limit
	s.put("checkpoint-3/model.pt", "x")
	s.want(s.look(2*time.Second), "")
	s.want(s.look(2*time.Second), "-checkpoint-1")
	s.want(s.still(), "checkpoint-3 folder 3")
	s.must(os.Remove(s.file("checkpoint-2/model.pt"))) // being removed: files first
	s.must(os.RemoveAll(s.file("a")))
	s.look(2 * time.Second)
	s.want(s.look(2*time.Second), "-a/x_1.pt; -a/x_2.pt; -checkpoint-2")

	// The whole folder is away: nothing is said until it is there again.
	s.must(os.Rename(s.watch, s.watch+".away"))
	s.want(s.still(), "")
	s.must(os.Rename(s.watch+".away", s.watch))
	s.want(s.still(), "")
	// Another file system lies there, empty: a disk that is not mounted.
	r := s.a.ckpt.run(s.dir.uid())
	for _, told := range r.book.Told {
		told.Dev++
	}
	s.must(os.Rename(s.watch, s.watch+".away"))
	s.must(os.Mkdir(s.watch, 0o700))
	s.want(s.still(), "")
	for _, told := range r.book.Told {
		told.Dev--
	}
	s.look(2 * time.Second)
	s.want(s.look(2*time.Second), "-checkpoint-3; -m.pt") // the same disk: removed
	s.must(os.RemoveAll(s.watch))
	s.must(os.Rename(s.watch+".away", s.watch))
	s.want(s.still(), "m.pt file; checkpoint-3 folder 3")
	s.must(os.Remove(s.file("m.pt")))
	s.want(s.last(), "-m.pt") // at the end at once
}

func TestCkptIncompleteBecomesComplete(t *testing.T) {
	s := newCkptScene(t)
	const c = "checkpoint-40/"
	s.put(c+"model-00001-of-00003.safetensors", "\x02\x00\x00\x00\x00\x00\x00\x00{}")
	s.put(c+"model.safetensors.index.json", `{"weight_map": {"a": "model-00001-of-00003.safetensors", "b": "model-00002-of-00003.safetensors", "c": "model-00003-of-00003.safetensors"}}`)
	s.want(s.still(), `checkpoint-40 folder 40 !model.safetensors.index.json names 2 of 3 shards that are missing: "model-00002-of-00003.safetensors"`)
	s.put(c+"model-00002-of-00003.safetensors", "")
	s.put(c+"model-00003-of-00003.safetensors", "\x02\x00\x00\x00\x00\x00\x00\x00{}")
	s.want(s.still(), "checkpoint-40 folder 40 grew !model-00002-of-00003.safetensors has 0 bytes")
	s.put(c+"model-00002-of-00003.safetensors", "\x20\x00\x00\x00\x00\x00\x00\x00{}")
	s.want(s.still(), "checkpoint-40 folder 40 !model-00002-of-00003.safetensors is cut off: its header is longer than the file")
	s.put(c+"model-00002-of-00003.safetensors", "\x02\x00\x00\x00\x00\x00\x00\x00{}")
	s.want(s.still(), "checkpoint-40 folder 40")
	s.put(c+"README.md", "made at the end")
	s.want(s.still(), "checkpoint-40 folder 40 grew")
}

func TestCkptRestart(t *testing.T) {
	s := newCkptScene(t)
	s.put("a_1.pt", "x")
	s.put("b_2.pt", "x")
	s.put("bad\xff_3.pt", "x")
	s.put("f/model-00001-of-00002.bin", "x")
	s.still()
	s.restart()
	s.want(s.still(), "")
	s.restart()
	s.put("a_1.pt", "y")
	s.must(os.Remove(s.file("b_2.pt")))
	s.must(os.Remove(s.file("bad\xff_3.pt")))
	s.want(s.last(), `a_1.pt file 1; -b_2.pt; -bad\xff_3.pt`)

	// Killed between the fact and the file: it is told again, under the same key, later.
	before := s.facts()
	last := before[slices.IndexFunc(before, func(f factItem) bool { return strings.Contains(string(f.Data), "a_1.pt") && f.AtMS == maxAt(before)-2 })]
	s.must(os.Remove(s.dir.file(ckptToldFile)))
	s.restart()
	s.now = s.now.Add(-time.Hour) // the clock went back, too
	s.must(os.WriteFile(s.dir.file(ckptToldFile), []byte(fmt.Sprintf(`{"version": 1, "at_ms": %d}`, maxAt(before))), 0o600))
	s.want(s.last(), "f folder !model-00001-of-00002.bin is one of 1 shards of 2; a_1.pt file 1")
	after := s.facts()
	again := after[len(after)-1]
	if again.Key != last.Key || again.AtMS <= maxAt(before) {
		t.Errorf("told again: %s at %d, before %s at %d", again.Key, again.AtMS, last.Key, last.AtMS)
	}
	// A job may put anything in its place.
	for _, garbage := range []string{"{", `{"version": 1, "told": {"x": null}}`, "[]", `{"version": 9}`} {
		s.must(os.WriteFile(s.dir.file(ckptToldFile), []byte(garbage), 0o600))
		s.restart()
		s.want(s.last(), "f folder !model-00001-of-00002.bin is one of 1 shards of 2; a_1.pt file 1")
	}
	s.must(os.Remove(s.dir.file(ckptToldFile)))
	s.must(unix.Mkfifo(s.dir.file(ckptToldFile), 0o600))
	s.restart()
	s.last()
}

func maxAt(facts []factItem) (at int64) {
	for _, f := range facts {
		at = max(at, f.AtMS)
	}
	return at
}

// What lay there before the run is not its own until it changes.
func TestCkptOfAnEarlierRun(t *testing.T) {
	s := newCkptScene(t)
	old := time.Now().Add(-time.Minute)
	for _, n := range []string{"model_1.pt", "model_2.pt", "checkpoint-5/model.pt"} {
		s.put(n, "x")
		s.must(os.Chtimes(s.file(n), old, old))
	}
	s.look(0)
	s.put("model_3.pt", "x") // by a clock that is behind
	s.must(os.Chtimes(s.file("model_3.pt"), old, old))
	s.want(s.still(), "model_3.pt file 3")
	s.must(os.Rename(s.watch, s.watch+".away"))
	s.look(2 * time.Second)
	s.must(os.Rename(s.watch+".away", s.watch))
	s.put("model_1.pt", "y")
	s.want(s.still(), "model_1.pt file 1")
	s.restart()
	s.want(s.last(), "")
}

func TestCkptWatchFolders(t *testing.T) {
	s := newCkptScene(t)
	real := filepath.Join(s.home, "elsewhere")
	s.must(os.MkdirAll(real, 0o700))
	s.must(os.Remove(s.watch))
	s.spec.Watch = []string{"out", "out/checkpoints", real + "/./", "later", "a file"}
	s.must(os.WriteFile(filepath.Join(s.spec.WorkingDir, "a file"), nil, 0o600))
	s.must(os.Symlink(real, s.watch))
	s.put("model_1.pt", "x")
	s.put("checkpoints/model_2.pt", "x")
	got := strings.Split(s.last(), "; ")
	if !strings.Contains(s.log.String(), "a file") {
		t.Errorf("a file to watch is complained of: %s", &s.log)
	}
	slices.Sort(got)
	s.want(strings.Join(got, "; "), fmt.Sprintf("%s/checkpoints/model_2.pt file 2; %s/model_1.pt file 1; checkpoints/model_2.pt file 2; model_1.pt file 1", real, real))
}

// A folder that somebody fills while it is looked at is told once it is whole, by a look that saw nothing move.
func TestCkptWhileItIsWritten(t *testing.T) {
	s := newCkptScene(t)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				if err := os.WriteFile(s.file("model_1.pt"), bytes.Repeat([]byte{byte(i)}, 3<<20), 0o600); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	waitFor(t, "the first write", func() bool { _, err := os.Stat(s.file("model_1.pt")); return err == nil })
	var at time.Time
	for range 20 {
		waitFor(t, "the next write", func() bool {
			st, err := os.Stat(s.file("model_1.pt"))
			moved := err == nil && st.ModTime().After(at)
			if moved {
				at = st.ModTime()
			}
			return moved
		})
		s.want(s.look(11*time.Second), "")
	}
	close(stop)
	<-done
	s.want(s.last(), "model_1.pt file 1")
}

func TestCkptManyFiles(t *testing.T) {
	s := newCkptScene(t)
	const n = 10000
	for i := range n {
		s.put(fmt.Sprintf("model_%d.pt", i), "x")
	}
	s.look(0)
	if wait := s.a.ckpt.run(s.dir.uid()).next.Sub(s.now); wait < 500*time.Millisecond {
		t.Errorf("the next look at %d files after %v", n, wait)
	}
	start := time.Now()
	s.look(time.Minute)
	if !strings.Contains(s.log.String(), "the oldest 8000 are passed over") {
		t.Errorf("too many: %s", &s.log)
	}
	if r := s.a.ckpt.run(s.dir.uid()); r.next.Sub(s.now) > 0 {
		t.Errorf("the rest of what is ready waits %v", r.next.Sub(s.now))
	}
	if n := len(s.facts()); n != ckptTellMost {
		t.Errorf("%d facts in one look", n)
	}
	t.Logf("a look at %d files that tells %d: %v", n, ckptTellMost, time.Since(start))
	r := s.a.ckpt.run(s.dir.uid())
	l := ckptLooker{ckptRun: r, now: s.now, still: ckptStill, scan: newCkptScan(func(string) bool { return true })}
	start = time.Now()
	l.scan.watch(s.watch)
	took := time.Since(start)
	if len(l.scan.found) != n || took > 2*time.Second {
		t.Errorf("%d found in %v", len(l.scan.found), took)
	}
	t.Logf("a look: %v", took)
}

func TestCkptFactThatCannotBeKept(t *testing.T) {
	s := newCkptScene(t)
	s.put("model_1.pt", "x")
	s.must(s.a.up.facts.close())
	spool := s.a.up.facts.dir
	s.must(os.Rename(spool, spool+".away"))
	if err := s.a.ckptLook(s.dir, s.spec, true, s.now); err == nil {
		t.Error("a fact that could not be stored is no error")
	}
	s.must(os.Rename(spool+".away", spool))
	s.restart()
	s.want(s.last(), "model_1.pt file 1")
}

func TestCkptWatchNeverSeen(t *testing.T) {
	s := newCkptScene(t)
	s.spec.Watch = []string{"out", "ot", "file"}
	s.must(os.WriteFile(filepath.Join(s.spec.WorkingDir, "file"), nil, 0o600))
	s.want(s.still(), "")
	s.must(os.Remove(s.watch)) // was there
	work := s.spec.WorkingDir
	s.want(s.last(), fmt.Sprintf("WATCH_NOT_SEEN the watched folder %s/ot was never there: no checkpoints were looked for in it; "+
		"WATCH_NOT_SEEN the watched folder %s/file cannot be read as a folder: no checkpoints were looked for in it", work, work))
	s.put("model_1.pt", "x")
	s.want(s.last(), "model_1.pt file 1")
}
