package main

// The uploader's rules one by one: errors and waiting, facts, unknown cursors, incarnations, the loop over real HTTP, what it costs.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// uploadWorld is a world with a calm network whose next answers can be set.
func uploadWorld(t testing.TB) (w *scheduleWorld, answer func(func([]byte) (batchAnswer, error))) {
	w = newScheduleWorld(t, 1)
	w.calm = true
	next := func(b []byte) (batchAnswer, error) { return w.srv.apply(b), nil }
	w.u.send = func(_ context.Context, b []byte) (batchAnswer, error) { return next(b) }
	return w, func(f func([]byte) (batchAnswer, error)) { next = f }
}

func (w *scheduleWorld) round() (time.Duration, error) { return w.u.step(context.Background(), w.now) }

func TestUploadErrors(t *testing.T) {
	fail := func(err error) func([]byte) (batchAnswer, error) {
		return func([]byte) (batchAnswer, error) { return batchAnswer{}, err }
	}
	for _, c := range []struct {
		name     string
		answer   func([]byte) (batchAnswer, error)
		min, max time.Duration
	}{
		{"no connection", fail(errors.New("connection refused")), 250 * time.Millisecond, 500 * time.Millisecond},
		{"a page that says 200", func([]byte) (batchAnswer, error) { return batchAnswer{}, nil }, 250 * time.Millisecond, 500 * time.Millisecond},
		{"503 with Retry-After", fail(fmt.Errorf("post: %w", &retryAfter{7 * time.Second, newProblem(codeUnavailable, "", "busy")})), 7 * time.Second, 8 * time.Second},
		{"Retry-After of a day", fail(&retryAfter{24 * time.Hour, newProblem(codeRateLimited, "", "busy")}), time.Minute, 67 * time.Second},
		{"401", fail(newProblem(codeUnauthorized, "", "who")), 30 * time.Second, 2 * time.Minute},
		{"403", fail(newProblem(codeForbidden, "", "no")), 30 * time.Second, 2 * time.Minute},
		{"413", fail(newProblem(codeTooLarge, "", "big")), 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, answer := uploadWorld(t)
			w.must(w.u.addFact(factItem{Key: "k", Kind: "env"}))
			answer(c.answer)
			wait, err := w.round()
			if err == nil || wait < c.min || wait > c.max {
				t.Fatalf("waits %v (%v), want %v to %v", wait, err, c.min, c.max)
			}
			answer(func(b []byte) (batchAnswer, error) { return w.srv.apply(b), nil })
			if c.min > 0 { // a bell does not cut it short
				if again, err := w.round(); err != nil || again <= 0 || w.srv.batches != 0 {
					t.Fatalf("went on after %v: %v", again, err)
				}
			}
			w.now = w.now.Add(wait)
			if _, err := w.round(); err != nil || len(w.srv.records[w.u.own[0].src]) != 1 {
				t.Fatalf("not sent after the wait: %v", err)
			}
		})
	}
	t.Run("waits grow to 30 s", func(t *testing.T) {
		w, answer := uploadWorld(t)
		w.must(w.u.addFact(factItem{Key: "k", Kind: "env"}))
		answer(fail(errors.New("down")))
		var wait time.Duration
		for range 12 {
			wait, _ = w.round()
			w.now = w.now.Add(wait)
		}
		if wait < 15*time.Second || wait > 30*time.Second {
			t.Fatalf("waits %v", wait)
		}
	})
	t.Run("413 makes smaller batches, down to 16 KiB, and they grow again", func(t *testing.T) {
		w, answer := uploadWorld(t)
		r := w.addRun()
		r.write(w, []byte(strings.Repeat("é\x01line\n", 100_000)))
		answer(func(b []byte) (batchAnswer, error) {
			if len(b) > 20_000 {
				return batchAnswer{}, newProblem(codeTooLarge, "", "big")
			}
			return w.srv.apply(b), nil
		})
		w.now = w.now.Add(time.Second)
		for range 30 {
			w.step()
		}
		if w.u.target > 2*batchFloor || w.srv.cur[r.src()].Off == 0 {
			t.Fatalf("target %d, cursor %+v", w.u.target, w.srv.cur[r.src()])
		}
		answer(func(b []byte) (batchAnswer, error) { return w.srv.apply(b), nil })
		for range 5 * batchGrowAfter {
			w.u.addNodeSample(nodeSample{})
			w.nodes++
			w.step()
		}
		r.ended = true
		w.u.finishLog(r.dir.uid(), int64(len(r.gens[0])))
		w.settle()
		w.checkLog(r)
		if w.u.target != batchTargetBytes {
			t.Fatalf("target %d", w.u.target)
		}
	})
	t.Run("an answer without the cursor", func(t *testing.T) {
		w, answer := uploadWorld(t)
		w.must(w.u.addFact(factItem{Key: "k", Kind: "env"}))
		answer(func(b []byte) (batchAnswer, error) { return batchAnswer{Gpuctl: 1, Incarnation: "1-a"}, nil })
		tries := 0
		for until := w.now.Add(time.Minute); w.now.Before(until); tries++ {
			if _, err := w.round(); err != nil && !strings.Contains(err.Error(), "no cursor for facts-") {
				t.Fatal(err)
			}
			w.now = w.now.Add(time.Second)
		}
		if w.u.own[0].misses > 8 {
			t.Fatalf("%d tries in a minute", w.u.own[0].misses)
		}
	})
}

// A refused source does not spin, and does not hold up the others.
func TestUploadRefusedForEver(t *testing.T) {
	w, answer := uploadWorld(t)
	w.u.onIncarnation = func(string) {}
	r, other := w.addRun(), w.addRun()
	asked := 0
	answer(func(b []byte) (batchAnswer, error) {
		ans := w.srv.apply(b)
		if c, ok := ans.Acks[r.src()]; ok {
			asked++
			ans.Acks[r.src()] = wireCursor{Gen: 77, Off: 5, Print: "00", N: c.N}
			ans.Refused[r.src()] = "another owner"
		}
		return ans, nil
	})
	for until := w.now.Add(10 * time.Minute); w.now.Before(until); {
		other.write(w, []byte("x\n"))
		w.step()
	}
	if asked > 25 || asked < 5 {
		t.Fatalf("asked %d times in ten minutes", asked)
	}
	other.ended = true
	w.u.finishLog(other.dir.uid(), int64(len(other.gens[0])))
	for range 10 {
		w.step()
	}
	w.checkLog(other)
}

// The core may speak while a batch is under way: the answer then says nothing about what is made since.
func TestUploadInterruptedInFlight(t *testing.T) {
	w, answer := uploadWorld(t)
	r := w.addRun()
	r.write(w, []byte("one\ntwo\nthree, but not"))
	size := int64(len(r.gens[0]))
	r.write(w, []byte(" this\nnor this\n"))
	r.gens[0] = r.gens[0][:size]
	r.ended = true
	answer(func(b []byte) (batchAnswer, error) {
		answer(func(b []byte) (batchAnswer, error) { return w.srv.apply(b), nil })
		w.u.finishLog(r.dir.uid(), size)
		w.u.align(map[string]wireCursor{})
		return batchAnswer{Gpuctl: 1, Acks: map[string]wireCursor{r.src(): {}}}, nil // refused
	})
	w.step()
	w.settle()
	w.checkLog(r)
	other := w.addRun()
	answer(func(b []byte) (batchAnswer, error) {
		answer(func(b []byte) (batchAnswer, error) { return w.srv.apply(b), nil })
		w.u.dropRun(other.dir.uid())
		return w.srv.apply(b), nil
	})
	w.step()
	if len(w.u.runs) != 1 {
		t.Fatal("came back")
	}
}

func TestUploadFacts(t *testing.T) {
	w, _ := uploadWorld(t)
	big := strings.Repeat("x", 200<<10)
	for i, f := range []factItem{
		{Key: "small", Kind: "env", Data: json.RawMessage(`{"git":"abc"}`)},
		{Key: "member", Kind: "env", RunUID: "ab", Data: json.RawMessage(`{"git":"abc","diff":"` + big + `"}`)},
		{Key: "list", Kind: "env", Data: json.RawMessage(`["` + big + `"]`)},
		{Key: "many", Kind: "env", Data: json.RawMessage(`{"a":"` + big[:60_000] + `","b":"` + big[:40_000] + `","c":1}`)},
	} {
		w.must(w.u.addFact(f))
		w.step()
		got := w.srv.records[w.u.own[0].src]
		if len(got) != i+1 {
			t.Fatalf("%s: %d facts", f.Key, len(got))
		}
		var back factItem
		if err := json.Unmarshal([]byte(got[i]), &back); err != nil || back.Key != f.Key || back.RunUID != f.RunUID || len(got[i]) > factMaxBytes {
			t.Fatalf("%s: %v %d bytes", f.Key, err, len(got[i]))
		}
		want := []string{`{"git":"abc"}`, `{"cut":["diff"],"git":"abc"}`, `{"cut":["data"]}`, `{"b":"` + big[:40_000] + `","c":1,"cut":["a"]}`}[i]
		if string(back.Data) != want {
			t.Fatalf("%s: %.200s", f.Key, back.Data)
		}
	}
	if err := w.u.addFact(factItem{Key: big, Kind: "env"}); err == nil {
		t.Fatal("a key of 200 KiB was taken")
	}
	if err := w.u.addFact(factItem{Key: "bad", Data: json.RawMessage(`{`)}); err == nil {
		t.Fatal("data that is no JSON was taken")
	}
}

// The first lines of a run that just began have a time, though they stood there before the first look; those of an old one have none.
func TestUploadFirstLinesHaveTimes(t *testing.T) {
	for age, known := range map[time.Duration]bool{0: true, time.Hour: false} {
		w, answer := uploadWorld(t)
		var sent []byte
		answer(func(b []byte) (batchAnswer, error) { sent = append(sent, b...); return w.srv.apply(b), nil })
		d := runDir(filepath.Join(w.home, "runs", newUID()))
		w.must(os.MkdirAll(string(d), 0o700))
		w.must(os.WriteFile(d.logPath(), []byte("a\n"), 0o600))
		w.must(os.WriteFile(d.file("fate"), nil, 0o600))
		w.must(os.Chtimes(d.file("fate"), w.now.Add(-age), w.now.Add(-age)))
		w.u.addLog(d)
		w.hello()
		w.settle()
		if got := bytes.Contains(sent, []byte(`"at":`)); got != known || !bytes.Contains(sent, []byte(`"a"`)) {
			t.Errorf("started %s ago: time known %v, want %v\n%s", age, got, known, sent)
		}
	}
}

// Which cursors are asked for: own ones at the start, logs that have something already, all of them on another incarnation.
func TestUploadUnknown(t *testing.T) {
	w, _ := uploadWorld(t)
	uids := []string{newUID(), newUID(), newUID()}
	for i, uid := range uids {
		d := runDir(filepath.Join(w.home, "runs", uid))
		w.must(os.MkdirAll(string(d), 0o700))
		if i > 0 {
			w.must(os.WriteFile(d.logPath(), []byte("a\n"), 0o600))
		}
		w.u.addLog(d)
		w.u.addLog(d)
	}
	want := []string{sourceName(kindLog, uids[1]), sourceName(kindLog, uids[2])}
	slices.Sort(want)
	if got := w.u.unknown(); !slices.Equal(got, want) {
		t.Fatalf("unknown %v, want %v", got, want)
	}
	w.step()
	if len(w.srv.lines) != 0 {
		t.Fatal("sent without a cursor")
	}
	if n := w.u.unsent(); n != 4 {
		t.Fatalf("unsent %d", n)
	}
	w.hello()
	for _, uid := range uids {
		w.u.finishLog(uid, w.u.runs[uid].log.unsent())
	}
	w.u.dropRun(uids[2])
	w.settle()
	for range 5 {
		w.step()
	}
	if !w.u.runDone(uids[0]) || !w.u.runDone(uids[1]) || w.u.runDone(uids[2]) || len(w.u.sources()) != 2 || w.u.unsent() != 0 {
		t.Fatalf("done %v %v %v, sources %v, unsent %d", w.u.runDone(uids[0]), w.u.runDone(uids[1]), w.u.runDone(uids[2]), w.u.sources(), w.u.unsent())
	}
	// The server is restored to before all of it: what was done is asked for and sent again.
	heard := ""
	w.u.onIncarnation = func(s string) { heard = s }
	w.srv.restore(newCasServer(), "2-b")
	w.u.addNodeSample(nodeSample{AtMS: 1})
	w.step()
	if heard != "2-b" || len(w.u.unknown()) != 4 || len(w.u.sources()) != 4 || w.u.runDone(uids[1]) {
		t.Fatalf("heard %q, unknown %v, sources %v", heard, w.u.unknown(), w.u.sources())
	}
	w.hello()
	w.now = w.now.Add(time.Minute)
	for range 10 {
		w.step()
	}
	if !w.u.runDone(uids[1]) || len(w.srv.lines[sourceName(kindLog, uids[1])]) != 1 {
		t.Fatalf("not sent again: %+v", w.srv.cur)
	}
}

// A log that is truncated again and again becomes a fact, once, also over restarts.
func TestUploadFlappingIsTold(t *testing.T) {
	w, _ := uploadWorld(t)
	r := w.addRun()
	w.step()
	for range 6 {
		r.truncate(w)
		for range 3 {
			w.now = w.now.Add(10 * time.Second)
			w.step()
		}
	}
	events := map[string]int{}
	for _, p := range w.srv.records[w.u.own[0].src] {
		var f factItem
		var e wireEvent
		w.must(json.Unmarshal([]byte(p), &f))
		w.must(json.Unmarshal(f.Data, &e))
		if f.Kind != "event" || f.RunUID != r.dir.uid() || e.Severity != "warning" {
			t.Fatalf("%s", p)
		}
		events[e.Type+" "+f.Key]++
	}
	if k := "SOURCE_FLAPPING SOURCE_FLAPPING-" + r.src() + "-4"; len(events) != 1 || events[k] != 1 {
		t.Fatalf("%v", events)
	}
}

// The loop itself, over HTTP, with a run that writes, and an end that is waited for.
func TestUploadLoopOverHTTP(t *testing.T) {
	srv := newCasServer()
	applied := make(chan struct{}, 1)
	hs := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if err := json.NewEncoder(rw).Encode(srv.apply(b)); err != nil {
			return
		}
		select {
		case applied <- struct{}{}:
		default:
		}
	}))
	defer hs.Close()
	w := newScheduleWorld(t, 3)
	w.srv, w.calm = srv, true
	w.u.send = func(ctx context.Context, body []byte) (ans batchAnswer, err error) {
		req, err := http.NewRequestWithContext(ctx, "POST", hs.URL, bytes.NewReader(body))
		if err != nil {
			return ans, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return ans, err
		}
		defer resp.Body.Close()
		return ans, json.NewDecoder(resp.Body).Decode(&ans)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.u.run(ctx) }()
	r := w.addRun()
	began := time.Now()
	until := func(what string, ok func() bool) { // everybody calls at once meanwhile
		t.Helper()
		for !ok() {
			var all sync.WaitGroup
			for _, call := range []func(){
				func() { w.u.addNodeSample(nodeSample{AtMS: 1}) },
				func() { w.must(w.u.addFact(factItem{Key: "k", Kind: "env"})) },
				func() { w.u.addLog(r.dir) },
				func() { w.u.align(srv.cursors(w.u.sources())) },
				func() { w.u.dropRun(newUID()) },
				func() {
					if len(w.u.unknown()) > 0 || w.u.unsent() < 0 {
						t.Error("a source became unknown")
					}
				},
			} {
				all.Go(call)
			}
			all.Wait()
			select {
			case <-applied:
			case <-time.After(20 * time.Second):
				t.Fatalf("waited for %s", what)
			}
		}
	}
	r.write(w, []byte("one\n\r10%"))
	until("the live line", func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return srv.live[r.src()] == "10%" && len(srv.lines[r.src()]) == 2
	})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a line took %v", took)
	}
	r.write(w, []byte("\rdone"))
	w.u.finishLog(r.dir.uid(), int64(len(r.gens[0])))
	until("the end", func() bool { return w.u.runDone(r.dir.uid()) })
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	w.checkLog(r)
}

func TestHostSample(t *testing.T) {
	var got []nodeSample
	h := hostWatch{home: t.TempDir(), add: func(n nodeSample) { got = append(got, n) }}
	for range 2 {
		if wait, err := h.step(context.Background(), time.Now()); err != nil || wait != hostEvery {
			t.Fatal(wait, err)
		}
		for began := time.Now(); time.Since(began) < 50*time.Millisecond; { // make the CPU's counters move
		}
	}
	if n := got[0]; n.CPUPermille != -1 || n.DiskTotalBytes <= 0 || n.DiskFreeBytes > n.DiskTotalBytes || n.AtMS == 0 {
		t.Fatalf("%+v", n)
	}
	if _, err := os.Stat("/proc/stat"); err != nil {
		return
	}
	if n := got[1]; n.CPUPermille < 0 || n.CPUPermille > 1000 || n.Load1Milli < 0 || n.MemoryTotalBytes <= 0 || n.MemoryUsedBytes <= 0 || n.MemoryUsedBytes > n.MemoryTotalBytes || n.SwapUsedBytes < 0 {
		t.Fatalf("%+v", n)
	}
}

// Memory stays flat whatever a log holds: a child brings 300 MB of lines, one line of 50 MB, noise and bars to a server that forgets.
func TestUploadMemory(t *testing.T) {
	if dir := os.Getenv("GPUCTL_TEST_MEMORY"); dir != "" {
		memoryChild(dir)
		return
	}
	if testing.Short() {
		t.Skip("writes 350 MB")
	}
	dir := t.TempDir()
	uid := newUID()
	d := runDir(filepath.Join(dir, "runs", uid))
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(d.logPath())
	if err != nil {
		t.Fatal(err)
	}
	sample := logSample(4 << 20)
	noise := bytes.Repeat([]byte("\xff\x00\x80\n\x1b[A\r\xe6"), 1<<17)
	for _, part := range [][]byte{bytes.Repeat([]byte("z"), 50<<20), noise, bytes.Repeat([]byte("\r 10%|███"), 100_000)} {
		if _, err := f.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	for range 75 {
		if _, err := f.Write(sample); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestUploadMemory$", "-test.v")
	cmd.Env = append(os.Environ(), "GPUCTL_TEST_MEMORY="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	use := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	peak := int64(use.Maxrss)
	for _, line := range strings.Split(string(out), "\n") {
		if strings.Contains(line, "KiB") {
			t.Log(line)
			if _, err := fmt.Sscanf(line, "peak %d KiB", &peak); err != nil {
				t.Fatal(err)
			}
		}
	}
	if peak > 64<<10 {
		t.Fatalf("peak of %d KiB", peak)
	}
}

func memoryChild(dir string) {
	cur := map[string]wireCursor{}
	n := int64(0)
	u, err := newUploader(dir, func(_ context.Context, body []byte) (batchAnswer, error) {
		ans := batchAnswer{Gpuctl: 1, Acks: map[string]wireCursor{}}
		for raw := range bytes.Lines(body) {
			var l batchLine
			if err := json.Unmarshal(raw, &l); err != nil {
				panic(err)
			}
			c := cur[l.Src]
			c.Gen, c.Off, c.Print, c.Done = l.Gen, l.To, l.Print, l.End
			cur[l.Src], ans.Acks[l.Src] = c, c
			n += l.N
		}
		return ans, nil
	}, newLogger(os.Stderr, "agent", false), func(string) {})
	if err != nil {
		panic(err)
	}
	dirs, err := filepath.Glob(filepath.Join(dir, "runs", "*"))
	if err != nil || len(dirs) != 1 {
		panic("no run")
	}
	d := runDir(dirs[0])
	u.addLog(d)
	u.align(nil)
	u.finishLog(d.uid(), d.logSize())
	for now := time.Now(); !u.runDone(d.uid()); {
		wait, err := u.step(context.Background(), now)
		if err != nil {
			panic(err)
		}
		now = now.Add(wait)
	}
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return // the parent takes rusage
	}
	for _, line := range strings.Split(string(b), "\n") {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			fmt.Printf("peak %d KiB with a log of %d MB, %d lines skipped\n", kib, d.logSize()>>20, n)
		}
	}
}

// A look at 100 logs that do not grow: ten a second must cost less than 1 % of a core, that is 1 ms.
func BenchmarkUploadIdle100(b *testing.B) {
	w, _ := uploadWorld(b)
	for range 100 {
		w.addRun()
	}
	for range 20 {
		w.step()
	}
	for b.Loop() {
		w.now = w.now.Add(lookEvery)
		if _, err := w.round(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUploadPlain(b *testing.B) { benchUpload(b, logSample(16<<20)) }

func BenchmarkUploadBars(b *testing.B) {
	var s bytes.Buffer
	for i := 0; s.Len() < 16<<20; i++ {
		fmt.Fprintf(&s, "\r%3d%%|%-60s| %d/100000 [00:12<01:33, 9.1it/s, loss=%.4f]", i%100, strings.Repeat("█", i%20), i, float64(i)/7)
		if i%100 == 99 {
			s.WriteByte('\n')
		}
	}
	benchUpload(b, s.Bytes())
}

// benchUpload reads, folds and encodes everything, without a network and without skipping.
func benchUpload(b *testing.B, text []byte) {
	l := newLogLife(b, newCasServer(), filepath.Join(b.TempDir(), "log.txt"))
	l.put(string(text))
	b.SetBytes(int64(len(text)))
	wire := 0
	for b.Loop() {
		l.s.align(wireCursor{})
		l.s.quiet = 1 << 62
		for l.s.fed.pos < int64(len(text)) {
			l.s.quiet = 1 << 62
			if _, err := l.s.fill(l.now, batchTargetBytes); err != nil {
				b.Fatal(err)
			}
			wire += l.s.bytes
			l.s.pend, l.s.bytes = nil, 0
		}
	}
	b.ReportMetric(float64(wire)/float64(b.N)/float64(len(text)), "wire/raw")
}
