package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// ckptWorld is a run and the facts source of its node.
type ckptWorld struct {
	*world
	a     *testAgent
	tell  runTell
	src   string
	off   int64
	print string
}

func newCkptWorld(t *testing.T) *ckptWorld {
	w := newWorld(t)
	k := &ckptWorld{world: w, a: w.agent("a", 1), src: sourceName(kindFacts, newUID())}
	w.submit(testJob{})
	k.tell = k.a.started()
	return k
}

// facts sends facts in one batch.
func (k *ckptWorld) facts(fs ...factItem) {
	k.t.Helper()
	next := fmt.Sprint("p", k.off+1)
	ans, p := k.a.batch(batchLine{Src: k.src, Kind: kindFacts, From: k.off, To: k.off + 1, Prev: k.print, Print: next, Items: items(fs)})
	if p != nil || len(ans.Refused) > 0 {
		k.t.Fatalf("%v %v", p, ans.Refused)
	}
	k.off, k.print = k.off+1, next
}

func (k *ckptWorld) saved(atMS int64, name, fingerprint string, more ...func(*wireCheckpoint)) factItem {
	c := wireCheckpoint{Path: "/out/" + name, Kind: "file", SizeBytes: 1 << 20, MtimeMS: atMS, Fingerprint: fingerprint}
	if n, ok := map[string]int64{"a": 2, "b": 10, "c": 100}[name]; ok {
		c.Step, c.StepFrom = &n, "name"
	}
	for _, f := range more {
		f(&c)
	}
	return k.fact("checkpoint", atMS, c)
}

func (k *ckptWorld) gone(atMS int64, name, fingerprint string) factItem {
	return k.fact("checkpoint_gone", atMS, wireCheckpointGone{Path: "/out/" + name, Fingerprint: fingerprint})
}

func (k *ckptWorld) fact(kind string, atMS int64, data any) factItem {
	b, err := json.Marshal(data)
	k.must(err)
	return factItem{Key: fmt.Sprint(kind, atMS, string(b)), Kind: kind, RunUID: k.tell.UID, AtMS: atMS, Data: b}
}

func incomplete(c *wireCheckpoint) { c.Incomplete = "a shard is missing" }
func grew(c *wireCheckpoint)       { c.Grew = true }

const ckptRows = "SELECT coalesce(group_concat(substr(path, 6) || fingerprint || ' ' || state, ', ' ORDER BY id), '') FROM checkpoints"

func TestIngestCheckpoints(t *testing.T) {
	k := newCkptWorld(t)
	history := []factItem{
		k.saved(10, "a", "1"),
		k.saved(20, "b", "1", incomplete),
		k.saved(30, "a", "2"),             // overwritten
		k.saved(40, "b", "2", incomplete), // grows: the same row
		k.saved(50, "b", "3"),             // whole
		k.saved(60, "b", "4", grew),       // a file more: the same row
		k.saved(70, "c", "1"),
		k.gone(80, "c", "1"),
		k.gone(90, "a", "1"), // was overwritten: says nothing
		k.saved(100, "d", "1"),
		k.gone(110, "d", "1"),
		k.saved(120, "d", "1"), // moved away and back
		k.saved(130, "e", "1", incomplete),
		k.gone(140, "e", "1"),
	}
	for _, f := range history {
		k.facts(f)
	}
	const rows = "a1 OVERWRITTEN, b4 COMPLETE, a2 COMPLETE, c1 GONE, d1 COMPLETE, e1 GONE"
	k.want(rows, ckptRows)
	const events = "SELECT group_concat(type || ' ' || severity, ', ' ORDER BY id) FROM events WHERE type LIKE 'CHECKPOINT%'"
	saved, gone, half := "CHECKPOINT_SAVED info", "CHECKPOINT_GONE info", "CHECKPOINT_INCOMPLETE notice"
	told := strings.Join([]string{saved, half, saved, saved, saved, gone, saved, gone, saved, half, gone}, ", ")
	k.want(told, events)
	k.want("run 1.1: checkpoint b, step 10, 1 MiB is not whole: a shard is missing", "SELECT message FROM events WHERE type = 'CHECKPOINT_INCOMPLETE' ORDER BY id LIMIT 1")
	k.want("0", "SELECT count(*) FROM rejects")
	k.want("0", "SELECT count(*) FROM events WHERE type LIKE 'CHECKPOINT%' AND (run_id IS NULL OR node_id IS NULL OR job_id IS NULL)")

	// Told again, in order, doubled, from anywhere, by an agent that lost its memory: nothing changes.
	k.facts(history...)
	for range 20 {
		from := rand.IntN(len(history))
		k.facts(append(history[from:len(history):len(history)], history[rand.IntN(len(history))])...)
	}
	k.facts(k.saved(1000, "a", "2"), k.saved(1001, "b", "4"), k.saved(1002, "d", "1"))
	k.want(rows, ckptRows)
	k.want(told, events)

	// A clock that is off is corrected, and no time lies ahead.
	k.write(func(t *tx) error { _, err := t.exec("UPDATE nodes SET skew_ms = 500"); return err })
	k.facts(k.saved(2000, "f", "1"), k.saved(1<<50, "g", "1"))
	k.want("1500 2000", "SELECT found_ms || ' ' || told_ms FROM checkpoints WHERE path = '/out/f'")
	k.want("1", "SELECT found_ms < told_ms / 2 FROM checkpoints WHERE path = '/out/g'")
}

// All together in one batch is the same as one by one.
func TestIngestCheckpointsInOneBatch(t *testing.T) {
	k := newCkptWorld(t)
	k.facts(k.saved(1, "a", "1"), k.saved(2, "a", "1"), k.saved(3, "a", "2"), k.saved(4, "a", "3"), k.gone(5, "a", "3"), k.saved(6, "a", "1"))
	k.want("a1 COMPLETE, a2 OVERWRITTEN, a3 GONE", ckptRows)
}

func TestIngestCheckpointsRefused(t *testing.T) {
	k := newCkptWorld(t)
	minus := int64(-1)
	set := func(f func(*wireCheckpoint)) factItem { return k.saved(1, "a", "1", f) }
	bad := []factItem{
		set(func(c *wireCheckpoint) { c.Path = "out/a" }), set(func(c *wireCheckpoint) { c.Path = "" }), set(func(c *wireCheckpoint) { c.Path = "/" + strings.Repeat("a", 20000) }),
		set(func(c *wireCheckpoint) { c.Kind = "link" }), set(func(c *wireCheckpoint) { c.Fingerprint = "" }), set(func(c *wireCheckpoint) { c.Fingerprint = strings.Repeat("f", 200) }),
		set(func(c *wireCheckpoint) { c.SizeBytes = -1 }), set(func(c *wireCheckpoint) { c.Step = &minus }), set(func(c *wireCheckpoint) { c.Step = nil }),
		set(func(c *wireCheckpoint) { c.StepFrom = "" }), set(func(c *wireCheckpoint) { c.StepFrom = "guess" }), set(func(c *wireCheckpoint) { c.Path = "/a\x00b" }),
		k.gone(1, "a", ""), k.fact("checkpoint", 1, 7), k.fact("checkpoint_gone", 1, "x"),
	}
	nobody := k.saved(1, "a", "1")
	nobody.RunUID = ""
	other := k.saved(1, "a", "1")
	other.RunUID = newUID()
	k.facts(append(bad, nobody, other, k.gone(1, "never seen", "1"), k.saved(2, "c", "1"))...)
	k.want("c1 COMPLETE", ckptRows)
	k.want(fmt.Sprint(len(bad)+2), "SELECT count(*) FROM rejects")
}

func TestCheckpointsOverHTTP(t *testing.T) {
	f := newDoors(t)
	f.node("n1")
	f.submit("one")
	f.submit("two")
	run, other := f.run(1, 1, runAlive), f.run(2, 1, runAlive)
	for _, k := range []struct {
		run   int64
		path  string
		step  string
		state string
		why   string
	}{
		{run, "epoch-2", "2", "COMPLETE", ""},
		{run, "epoch-100", "100", "COMPLETE", ""},
		{other, "foreign", "7", "COMPLETE", ""},
		{run, "epoch-10", "10", "GONE", ""},
		{run, "best", "NULL", "COMPLETE", ""},
		{run, "half", "10", "INCOMPLETE", "a shard is missing"},
		{run, "old", "2", "OVERWRITTEN", "was not whole"},
	} {
		from := "'name'"
		if k.step == "NULL" {
			from = "NULL"
		}
		f.sql(fmt.Sprintf(`INSERT INTO checkpoints (run_id, path, kind, step, step_from, size_bytes, mtime_ms, fingerprint, state, state_ms, incomplete, found_ms, told_ms)
			VALUES (%d, '/out/%s', 'file', %s, %s, 5, 6, 'f', '%s', 7, '%s', 8, 9)`, k.run, k.path, k.step, from, k.state, k.why))
	}
	base := f.count("SELECT min(id) FROM checkpoints") - 1
	for _, c := range []struct{ query, want string }{
		{"", "epoch-100 half epoch-10 old epoch-2 best next null"}, // 2 < 10 < 100
		{"?limit=2", "epoch-100 half next 6"},
		{fmt.Sprintf("?limit=2&before=%d", base+6), "epoch-10 old next 7"},
		{fmt.Sprintf("?limit=9&before=%d", base+7), "epoch-2 best next null"},
		{fmt.Sprintf("?before=%d", base+5), " next null"},
		{"?state=complete", "epoch-100 epoch-2 best next null"},
		{"?state=gone,incomplete", "half epoch-10 next null"},
		{fmt.Sprintf("?after=%d", base), "epoch-2 epoch-100 epoch-10 best half old next 7"},
		{fmt.Sprintf("?after=%d&limit=1", base+2), "epoch-10 next 4"},
		{fmt.Sprintf("?after=%d", base+7), " next 7"},
	} {
		var l list[checkpointView]
		f.get("/api/v1/runs/1.1/checkpoints"+c.query, &l)
		var names []string
		for _, k := range l.Items {
			names = append(names, strings.TrimPrefix(k.Path, "/out/"))
		}
		next := "null"
		if l.Next != nil {
			next = fmt.Sprint(*l.Next - base)
		}
		if got := strings.Join(names, " ") + " next " + next; got != c.want {
			t.Errorf("%s: %s, want %s", c.query, got, c.want)
		}
	}
	var k checkpointView
	f.get(fmt.Sprintf("/api/v1/checkpoints/%d", base+6), &k)
	if k.Run != "1.1" || *k.Step != 10 || *k.StepFrom != "name" || k.Incomplete == nil || *k.Incomplete != "a shard is missing" || k.SizeBytes != 5 || k.MtimeMS != 6 ||
		k.StateMS != 7 || k.FoundMS != 8 || k.Metrics == nil || k.Evaluations == nil || k.Pinned || k.Fingerprint != "f" {
		t.Errorf("%+v", k)
	}
	f.get(fmt.Sprintf("/api/v1/checkpoints/%d", base+7), &k)
	if k.Incomplete != nil {
		t.Errorf("not INCOMPLETE any more, and %s", *k.Incomplete)
	}
	var r runView
	if f.get("/api/v1/runs/1.1", &r); r.Checkpoints != 4 {
		t.Errorf("the run counts %d", r.Checkpoints)
	}
	for _, c := range []apiCase{
		{"no such run", scopeRead, "GET", "/api/v1/runs/9.1/checkpoints", nil, "", 404, codeNotFound, "gpuctl run list"},
		{"no such state", scopeRead, "GET", "/api/v1/runs/1.1/checkpoints?state=whole", nil, "", 400, codeUsage, "COMPLETE"},
		{"unknown parameter", scopeRead, "GET", "/api/v1/runs/1.1/checkpoints?sort=step", nil, "", 400, codeUsage, "known parameters"},
		{"wait alone", scopeRead, "GET", "/api/v1/runs/1.1/checkpoints?wait=1", nil, "", 400, codeUsage, "after"},
		{"no such checkpoint", scopeRead, "GET", "/api/v1/checkpoints/99", nil, "", 404, codeNotFound, "gpuctl ckpt list"},
		{"a path", scopeRead, "GET", "/api/v1/checkpoints/best.pt", nil, "", 404, codeNotFound, "number"},
	} {
		t.Run(c.name, func(t *testing.T) { f.check(t, c) })
	}
}
