package main

// Batches: compare-and-set on cursors, the ring, owners, records that cannot be stored, bodies that are not whole, group commit.

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// logWorld is a run that lives, and the name of its log.
func logWorld(t *testing.T) (*world, *testAgent, runTell, string) {
	w := newWorld(t)
	a := w.agent("a", 1)
	w.submit(testJob{})
	tell := a.started()
	return w, a, tell, sourceName(kindLog, tell.UID)
}

// lines is the ring as "n:text n:text".
func (w *world) lines() string {
	return w.get("SELECT COALESCE(group_concat(n || ':' || text, ' ' ORDER BY n), '') FROM log_lines")
}

func TestIngestCompareAndSet(t *testing.T) {
	one := func(src string) batchLine {
		return batchLine{Src: src, Kind: kindLog, From: 0, To: 10, Print: "A", Items: logItems("a", "b")}
	}
	two := func(src string) batchLine {
		return batchLine{Src: src, Kind: kindLog, From: 10, To: 20, Prev: "A", Print: "B", Items: logItems("c")}
	}
	reset := func(src string) batchLine {
		return batchLine{Src: src, Kind: kindLog, Gen: 1, From: 0, To: 5, Prev: "A", Old: 10, Print: "C", Reset: true, Items: logItems("n")}
	}
	for _, c := range []struct {
		name    string
		batches [][]func(string) batchLine
		lines   string
		cursor  wireCursor
		refused bool // in the last batch
	}{
		{"in order", [][]func(string) batchLine{{one, two}}, "1:a 2:b 3:c", wireCursor{0, 20, "B", 3, false}, false},
		{"in two batches", [][]func(string) batchLine{{one}, {two}}, "1:a 2:b 3:c", wireCursor{0, 20, "B", 3, false}, false},
		{"doubled", [][]func(string) batchLine{{one}, {one}}, "1:a 2:b", wireCursor{0, 10, "A", 2, false}, true},
		{"late", [][]func(string) batchLine{{one, two}, {one}}, "1:a 2:b 3:c", wireCursor{0, 20, "B", 3, false}, true},
		{"reordered in a batch: all later ones are refused", [][]func(string) batchLine{{two, one}}, "", wireCursor{}, true},
		{"gap", [][]func(string) batchLine{{two}}, "", wireCursor{}, true},
		{"another file with the same offset", [][]func(string) batchLine{{one}, {func(s string) batchLine { l := two(s); l.Prev = "Z"; return l }}}, "1:a 2:b", wireCursor{0, 10, "A", 2, false}, true},
		{"newer generation without reset", [][]func(string) batchLine{{one}, {func(s string) batchLine { l := two(s); l.Gen = 1; return l }}}, "1:a 2:b", wireCursor{0, 10, "A", 2, false}, true},
		{"reset", [][]func(string) batchLine{{one}, {reset}}, "1:a 2:b 3:n", wireCursor{1, 5, "C", 3, false}, false},
		{"reset twice", [][]func(string) batchLine{{one}, {reset}, {reset}}, "1:a 2:b 3:n", wireCursor{1, 5, "C", 3, false}, true},
		{"reset of a cursor that moved on", [][]func(string) batchLine{{one, two}, {reset}}, "1:a 2:b 3:c", wireCursor{0, 20, "B", 3, false}, true},
		{"reset that skips a generation", [][]func(string) batchLine{{one}, {func(s string) batchLine { l := reset(s); l.Gen = 2; return l }}}, "1:a 2:b", wireCursor{0, 10, "A", 2, false}, true},
		{"skip", [][]func(string) batchLine{{one, func(s string) batchLine {
			return batchLine{Src: s, Kind: kindSkip, From: 10, To: 900, Prev: "A", Print: "S", N: 70, Why: "backlog"}
		}}}, "1:a 2:b", wireCursor{0, 900, "S", 72, false}, false},
		{"a line without items, and the end", [][]func(string) batchLine{{one, func(s string) batchLine {
			return batchLine{Src: s, Kind: kindLog, From: 10, To: 12, Prev: "A", Print: "E", End: true}
		}}}, "1:a 2:b", wireCursor{0, 12, "E", 2, true}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, a, _, src := logWorld(t)
			var ans batchAnswer
			for _, b := range c.batches {
				var ls []batchLine
				for _, f := range b {
					ls = append(ls, f(src))
				}
				var p *problem
				if ans, p = a.batch(ls...); p != nil {
					t.Fatalf("%s %s", p.Code, p.Detail)
				}
			}
			if got := w.lines(); got != c.lines {
				t.Errorf("lines %q, want %q", got, c.lines)
			}
			if ans.Acks[src] != c.cursor {
				t.Errorf("cursor %+v, want %+v", ans.Acks[src], c.cursor)
			}
			if (ans.Refused[src] != "") != c.refused {
				t.Errorf("refused: %q", ans.Refused[src])
			}
			if ans.Gpuctl != 1 || ans.Incarnation != w.s.inc.current() {
				t.Errorf("%+v", ans)
			}
		})
	}
}

func TestIngestTruncationIsTold(t *testing.T) {
	w, a, _, src := logWorld(t)
	a.batch(batchLine{Src: src, Kind: kindLog, To: 10, Print: "A", Items: logItems("a")})
	a.batch(batchLine{Src: src, Kind: kindLog, Gen: 1, To: 0, Prev: "A", Old: 10, Reset: true})
	w.want("0:10", "SELECT gen || ':' || off FROM truncations")
	w.want("1", "SELECT count(*) FROM events WHERE type = 'LOG_TRUNCATED' AND run_id IS NOT NULL AND message LIKE '%>&2%'")
}

func TestIngestRingAndHead(t *testing.T) {
	w, a, tell, src := logWorld(t)
	off, print := int64(0), ""
	for i := range 9 {
		var texts []string
		for k := range 500 {
			texts = append(texts, fmt.Sprint(i*500+k+1))
		}
		next := fmt.Sprint("p", i)
		ans, p := a.batch(batchLine{Src: src, Kind: kindLog, From: off, To: off + 1000, Prev: print, Print: next, Items: logItems(texts...)})
		if p != nil || len(ans.Refused) > 0 {
			t.Fatalf("%v %v", p, ans.Refused)
		}
		off, print = off+1000, next
	}
	ring := func() string {
		return w.get("SELECT count(*) || ' ' || min(n) || ' ' || max(n) || ' ' || sum(n = text) FROM log_lines")
	}
	if got := ring(); got != "2000 2501 4500 2000" {
		t.Fatal(got)
	}
	w.want("200 1 200", "SELECT count(*) || ' ' || min(n) || ' ' || max(n) FROM log_heads")
	a.hello(tell.ended(exitInfo{}))
	a.batch(batchLine{Src: src, Kind: kindLog, From: off, To: off + 1, Prev: print, Print: "e", End: true})
	_, err := w.s.sealStep(t.Context(), w.now)
	w.must(err)
	w.want("2501 4500", "SELECT first_n || ' ' || last_n FROM log_seals")
	w.want("0", "SELECT count(*) FROM log_lines")
	w.want("200", "SELECT count(*) FROM log_heads")
	if _, err := w.s.sealStep(t.Context(), w.now); err != nil {
		t.Fatal(err)
	}
	// A late replay opens it again and the numbers go on.
	ans, p := a.batch(batchLine{Src: src, Kind: kindLog, From: off + 1, To: off + 5, Prev: "e", Print: "f", Items: logItems("4501")})
	if p != nil || len(ans.Refused) > 0 {
		t.Fatalf("%v %v", p, ans.Refused)
	}
	if got := ring(); got != "2000 2502 4501 2000" {
		t.Fatal(got)
	}
	w.want("0", "SELECT count(*) FROM log_seals")
	_, err = w.s.sealStep(t.Context(), w.now)
	w.must(err)
	w.want("2000", "SELECT count(*) FROM log_lines") // its source is open
}

func TestIngestOwners(t *testing.T) {
	w, a, _, src := logWorld(t)
	b := w.agent("b", 1)
	facts := sourceName(kindFacts, newUID())
	if ans, _ := a.batch(batchLine{Src: facts, Kind: kindFacts, To: 5, Print: "x"}); ans.Acks[facts].Off != 5 {
		t.Fatalf("%+v", ans)
	}
	unknown := sourceName(kindLog, newUID())
	mine := sourceName(kindNode, newUID())
	ans, p := b.batch(
		batchLine{Src: src, Kind: kindLog, To: 10, Print: "A", Items: logItems("forged")},
		batchLine{Src: facts, Kind: kindFacts, From: 5, To: 6, Prev: "x", Print: "y"},
		batchLine{Src: unknown, Kind: kindLog, To: 10, Print: "A", Items: logItems("?")},
		batchLine{Src: mine, Kind: kindNode, To: 10, Print: "A"})
	if p != nil || len(ans.Refused) != 3 || len(ans.Acks) != 4 || ans.Acks[facts] != (wireCursor{}) || ans.Acks[mine].Off != 10 {
		t.Fatalf("%v %+v", p, ans)
	}
	w.want("0", "SELECT count(*) FROM log_lines")
	w.want("5", "SELECT off FROM cursors WHERE source = ?", facts)
	w.want("0", "SELECT count(*) FROM cursors WHERE source = ?", unknown)
	w.submit(testJob{})
	w.pass()
	offered := sourceName(kindLog, b.offered().RunUID)
	if ans, _ := b.batch(batchLine{Src: offered, Kind: kindLog, To: 1, Print: "z"}); ans.Refused[offered] == "" {
		t.Fatal("a log of a run that was never granted was taken")
	}
}

func TestIngestRecordsAndRejects(t *testing.T) {
	w, a, tell, _ := logWorld(t)
	src := sourceName(kindFacts, newUID())
	facts := []factItem{
		{Key: "e1", Kind: "env", RunUID: tell.UID, Data: items(map[string]any{"git": "abc"})},
		{Key: "v1", Kind: "event", RunUID: tell.UID, Data: items(wireEvent{Type: "LOG_BIG", Severity: sevWarning, Message: "big"})},
		{Key: "v1", Kind: "event", RunUID: tell.UID, Data: items(wireEvent{Type: "LOG_BIG", Severity: sevWarning, Message: "told twice"})},
		{Key: "v2", Kind: "event", Data: items(wireEvent{Type: "x'; DROP", Severity: sevWarning})},
		{Key: "v3", Kind: "event", Data: items("text")},
		{Key: "e2", Kind: "env", RunUID: newUID(), Data: items(map[string]any{})},
		{Key: "e3", Kind: "env", RunUID: tell.UID, Data: items([]int{1})},
		{Key: "m", Kind: "moon", Data: items(1)},
		{Rej: "the record was torn"},
		{Key: "big", Kind: "env", RunUID: tell.UID, Data: items(map[string]string{"x": strings.Repeat("a", factMaxBytes)})},
	}
	ans, p := a.batch(batchLine{Src: src, Kind: kindFacts, To: 100, Print: "A", Items: items(facts)})
	if p != nil || ans.Acks[src].N != int64(len(facts)) || len(ans.Refused) > 0 {
		t.Fatalf("%v %+v", p, ans)
	}
	w.want(`{"git":"abc"}`, "SELECT env_snapshot FROM runs")
	w.want("1 big", "SELECT count(*) || ' ' || max(message) FROM events WHERE type = 'LOG_BIG'")
	w.want("7", "SELECT count(*) FROM rejects")
	w.want("1", "SELECT count(*) FROM events WHERE type = 'RECORD_REJECTED'")

	node := sourceName(kindNode, newUID())
	a.batch(batchLine{Src: node, Kind: kindNode, To: 10, Print: "A", Items: items([]nodeSample{{AtMS: 1, CPUPermille: 5}, {AtMS: 2}, {AtMS: 1, CPUPermille: 9}, {Rej: "torn"}})})
	w.want("2 5", "SELECT count(*) || ' ' || max(cpu_permille) FROM node_samples")
	w.want("8", "SELECT count(*) FROM rejects")

	var many []factItem
	for range rejectsKept + 50 {
		many = append(many, factItem{Rej: "x"})
	}
	a.batch(batchLine{Src: src, Kind: kindFacts, From: 100, To: 200, Prev: "A", Print: "B", Items: items(many)})
	w.want(fmt.Sprint(rejectsKept), "SELECT count(*) FROM rejects")
}

// TestIngestPoison: one record that the table refuses is set aside, and the batch is not rolled back.
func TestIngestPoison(t *testing.T) {
	w, a, tell, src := logWorld(t)
	w.write(func(t *tx) error {
		_, err := t.exec("INSERT INTO log_lines (run_id, n, at_ms, text, continued) SELECT id, 2, 0, 'in the way', 0 FROM runs WHERE uid = ?", tell.UID)
		return err
	})
	ans, p := a.batch(batchLine{Src: src, Kind: kindLog, To: 10, Print: "A", Items: logItems("a", "b", "c")})
	if p != nil || ans.Acks[src].N != 3 {
		t.Fatalf("%v %+v", p, ans)
	}
	if got := w.lines(); got != "1:a 2:in the way 3:c" {
		t.Fatal(got)
	}
	w.want("1", "SELECT count(*) FROM rejects WHERE why LIKE '%UNIQUE%'")
}

func TestIngestRefusesWhatIsNotWhole(t *testing.T) {
	w, a, _, src := logWorld(t)
	good := fmt.Sprintf(`{"src":%q,"gen":0,"from":0,"to":10,"prev":"","print":"A","kind":"log","items":[{"t":"a"}]}`, src)
	swap := func(old, new string) string { return good + "\n" + strings.Replace(good, old, new, 1) }
	zip := func(n int) string {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
		w.must(err)
		_, err = z.Write(bytes.Repeat([]byte("\n"), n))
		w.must(errors.Join(err, z.Close()))
		return b.String()
	}
	for _, c := range []struct {
		name, kind, encoding, body string
		status                     int
		part                       string
	}{
		{"garbage", ndjsonType, "", good + "\n\x00\xff", 400, "line 2"},
		{"half a line", ndjsonType, "", good + "\n" + good[:40], 400, "line 2"},
		{"two values on a line", ndjsonType, "", good + good, 400, "line 1"},
		{"unknown field", ndjsonType, "", swap(`"gen"`, `"gem":1,"gen"`), 400, "line 2"},
		{"items of a wrong kind", ndjsonType, "", swap(`[{"t":"a"}]`, `[{"t":5}]`), 400, "line 2"},
		{"items that are no list", ndjsonType, "", swap(`[{"t":"a"}]`, `"x"`), 400, "line 2"},
		{"unknown kind", ndjsonType, "", swap(`"kind":"log"`, `"kind":"moon"`), 422, "line 2"},
		{"points", ndjsonType, "", swap(`"kind":"log"`, `"kind":"points"`), 422, "line 2"},
		{"kind and source", ndjsonType, "", swap(`"kind":"log"`, `"kind":"facts"`), 422, "line 2"},
		{"source", ndjsonType, "", swap(src, "log-../../x"), 422, "line 2"},
		{"a source that is not taken", ndjsonType, "", swap(src, "sdk-"+newUID()), 422, "line 2"},
		{"backwards", ndjsonType, "", swap(`"to":10`, `"to":-1`), 422, "line 2"},
		{"long fingerprint", ndjsonType, "", swap(`"print":"A"`, `"print":"`+strings.Repeat("A", 200)+`"`), 422, "line 2"},
		{"reset not from 0", ndjsonType, "", swap(`"from":0`, `"reset":true,"from":5`), 422, "line 2"},
		{"a skip of more than any file has", ndjsonType, "", swap(`"kind":"log","items":[{"t":"a"}]`, `"kind":"skip","n":9223372036854775807`), 422, "line 2"},
		{"empty", ndjsonType, "", "\n\n", 422, "empty"},
		{"long line", ndjsonType, "", good + "\n" + strings.Repeat(" ", batchLineMaxBytes+1), 413, "line 2"},
		{"long item", ndjsonType, "", swap(`"t":"a"`, `"t":"`+strings.Repeat("a", readChunkBytes+1)+`"`), 413, "line 2"},
		{"too big", ndjsonType, "", strings.Repeat("\n", batchMaxBytes+1), 413, "as sent"},
		{"bomb", ndjsonType, "gzip", zip(batchMaxInflated + 1), 413, "inflated"},
		{"not gzip", ndjsonType, "gzip", good, 400, "gzip"},
		{"half gzip", ndjsonType, "gzip", zip(1000)[:20], 400, "gzip"},
		{"encoding", ndjsonType, "br", good, 415, "br"},
		{"content type", "application/json", "", good, 415, "application/json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, p := w.send("POST", "/api/v1/agent/batch", a.token, c.kind, c.encoding, []byte(c.body), nil)
			if p == nil || status != c.status || !strings.Contains(p.Detail, c.part) {
				t.Fatalf("status %d %+v, want %d with %q", status, p, c.status, c.part)
			}
		})
	}
	w.want("0", "SELECT count(*) FROM log_lines")
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(good + "\n"))
	w.must(errors.Join(err, z.Close()))
	if _, p := w.send("POST", "/api/v1/agent/batch", a.token, ndjsonType+"; charset=utf-8", "gzip", b.Bytes(), nil); p != nil {
		t.Fatal(p)
	}
	if got := w.lines(); got != "1:a" {
		t.Fatal(got)
	}
}

func TestLiveLines(t *testing.T) {
	w, a, tell, src := logWorld(t)
	live := func() string {
		line, ok := w.s.liveLine(1)
		if !ok {
			return "none"
		}
		return line.Text
	}
	bell := w.s.hub.listen(bellRun(1))
	ans, p := a.batch(batchLine{Src: src, Kind: kindLive, Items: logItems("50%")})
	if p != nil || len(ans.Acks) != 0 || live() != "50%" {
		t.Fatalf("%v %+v %s", p, ans, live())
	}
	<-bell
	a.batch(batchLine{Src: src, Kind: kindLog, To: 10, Print: "A", Items: logItems("a")}, batchLine{Src: src, Kind: kindLive, Items: logItems("60%")})
	if live() != "60%" {
		t.Fatal(live())
	}
	a.batch(batchLine{Src: src, Kind: kindLog, From: 10, To: 20, Prev: "A", Print: "B", Items: logItems("b")})
	if live() != "none" {
		t.Fatal(live())
	}
	a.batch(batchLine{Src: src, Kind: kindLog, From: 20, To: 20, Prev: "B", Print: "B", End: true}, batchLine{Src: src, Kind: kindLive, Items: logItems("late")})
	if live() != "none" {
		t.Fatal(live())
	}
	w.want("2", "SELECT count(*) FROM log_lines")
	a.hello(tell.ended(exitInfo{}))
	if w.get("SELECT drained_ms FROM runs") == "NULL" {
		t.Fatal("not drained: the end of the log came before the end of the run")
	}
}

// TestSourceWithoutCarrier: the node never sends the end of the log; after 10 minutes the run is drained all the same.
func TestSourceWithoutCarrier(t *testing.T) {
	w, a, tell, src := logWorld(t)
	a.hello(tell.ended(exitInfo{}))
	w.now = w.now.Add(0)
	w.timers(carrierGone - 30*1e9)
	w.want("0", "SELECT done FROM cursors WHERE source = ?", src)
	w.timers(60 * 1e9)
	w.want("1", "SELECT incomplete FROM cursors WHERE source = ?", src)
	w.want("1", "SELECT count(*) FROM events WHERE type = 'SOURCE_INCOMPLETE'")
	if w.get("SELECT drained_ms FROM runs") == "NULL" {
		t.Fatal("not drained")
	}
	ans, _ := a.batch(batchLine{Src: src, Kind: kindLog, To: 9, Print: "A", Items: logItems("late, but here"), End: true})
	if ans.Acks[src].Off != 9 || w.get("SELECT incomplete FROM cursors WHERE source = ?", src) != "0" {
		t.Fatalf("%+v", ans)
	}
}

// TestBatchInAGroup: requests that wait together share a transaction; one that fails, and one that panics, undo only their own.
func TestBatchInAGroup(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	hold, held := make(chan struct{}), make(chan struct{})
	go func() {
		_ = w.s.store.write(context.Background(), func(*tx) error { close(held); <-hold; return nil })
	}()
	<-held
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() {
			errs[i] = w.s.store.write(context.Background(), func(t *tx) error {
				if _, err := insertTestJob(t, testJob{priority: i}); err != nil {
					return err
				}
				switch i {
				case 7:
					return errors.New("no")
				case 8:
					panic("boom")
				case 9:
					_, err := t.exec("INSERT INTO nodes (uid) VALUES ('x')")
					return err
				}
				return nil
			})
		})
	}
	batch := make(chan *problem, 1)
	src := sourceName(kindNode, newUID())
	go func() {
		_, p := a.batch(batchLine{Src: src, Kind: kindNode, To: 1, Print: "A"})
		batch <- p
	}()
	waitFor(t, "all requests in the queue", func() bool {
		w.s.store.mu.Lock()
		defer w.s.store.mu.Unlock()
		return len(w.s.store.queue) == len(errs)+1
	})
	close(hold)
	wg.Wait()
	if p := <-batch; p != nil {
		t.Fatal(p)
	}
	for i, err := range errs {
		if (err != nil) != (i == 7 || i == 8 || i == 9) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	w.want("17", "SELECT count(*) FROM jobs")
	w.want("0", "SELECT count(*) FROM jobs WHERE priority IN (7, 8, 9)")
	w.want("1", "SELECT count(*) FROM cursors")
}
