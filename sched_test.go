package main

// The scheduler as tables of before and after, offers that nobody claims, refusals, the reasons of waiting, and the cost of a pass.

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestSchedOneSlotTwoJobs(t *testing.T) {
	w := newWorld(t)
	a := w.agent("one", 1)
	low, high := w.submit(testJob{}), w.submit(testJob{priority: 5})
	w.pass()
	w.jobIs(high, jobDispatching)
	w.jobIs(low, jobQueued)
	w.held(1)
	if p := a.offered(); p.JobID != high || p.Argv[1] != "train.py" || p.Env["A"] != "1" || p.WorkingDir != "/work" || p.GraceS != 5 {
		t.Fatalf("start payload: %+v", p)
	}
	w.pass()
	w.jobIs(low, jobQueued)
	tell := a.started2(high)
	w.jobIs(high, jobRunning)
	a.hello(tell.ended(exitInfo{Code: 0}))
	w.jobIs(high, jobSucceeded)
	w.held(0)
	w.pass()
	w.jobIs(low, jobDispatching)
}

// started2 claims what is offered already.
func (a *testAgent) started2(job int64) runTell {
	p := a.offered()
	if p.JobID != job {
		a.w.t.Fatalf("job %d is offered, want %d", p.JobID, job)
	}
	g := a.claim(p.RunUID)
	tell := runTell{UID: p.RunUID, JobUID: p.JobUID, JobID: p.JobID, Attempt: g.Attempt, Grant: g.Grant, Truth: tellAlive, Slots: p.Slots}
	a.hello(tell)
	return tell
}

func TestSchedSlots(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes map[string]int // cards
		jobs  []testJob
		want  []string // "node lane idx,idx" or "" for each job
	}{
		{"two cards of one node, lowest first", map[string]int{"a": 1, "b": 4}, []testJob{{gpus: 2}, {gpus: 2}, {gpus: 2}}, []string{"b gpu 0,1", "b gpu 2,3", ""}},
		{"best fit", map[string]int{"a": 4, "b": 2}, []testJob{{gpus: 2}, {gpus: 1}}, []string{"b gpu 0,1", "a gpu 0"}},
		{"by name when equal", map[string]int{"b": 1, "a": 1}, []testJob{{}, {}, {}}, []string{"a gpu 0", "b gpu 0", ""}},
		{"cpu lane of two", map[string]int{"a": 0}, []testJob{{cpu: true}, {cpu: true}, {cpu: true}}, []string{"a cpu 0", "a cpu 1", ""}},
		{"a big job that does not fit stops no small one", map[string]int{"a": 2}, []testJob{{gpus: 4}, {gpus: 1}}, []string{"", "a gpu 0"}},
		{"node constraint", map[string]int{"a": 1, "b": 1}, []testJob{{node: "b"}, {node: "b"}, {}}, []string{"b gpu 0", "", "a gpu 0"}},
		{"model constraint", map[string]int{"a": 1}, []testJob{{model: "h100"}, {model: "test 80"}}, []string{"", "a gpu 0"}},
		{"priority over age", map[string]int{"a": 1}, []testJob{{}, {priority: 1}}, []string{"", "a gpu 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			for name, cards := range c.nodes {
				w.agent(name, cards)
			}
			var ids []int64
			for _, q := range c.jobs {
				ids = append(ids, w.submit(q))
			}
			w.pass()
			for i, id := range ids {
				got := w.get(`SELECT COALESCE((SELECT n.name || ' ' || s.lane || ' ' || group_concat(s.idx, ',' ORDER BY s.idx)
					FROM slots s JOIN nodes n ON n.id = s.node_id JOIN runs r ON r.id = s.run_id WHERE r.job_id = ? GROUP BY n.name, s.lane), '')`, id)
				if got != c.want[i] {
					t.Errorf("job %d got %q, want %q", i, got, c.want[i])
				}
				state := jobDispatching
				if c.want[i] == "" {
					state = jobQueued
				}
				w.jobIs(id, state)
			}
		})
	}
}

func TestSchedUsesOnlyGoodNodes(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{})
	set := func(q string) { w.write(func(t *tx) error { _, err := t.exec(q); return err }) }
	for _, c := range []struct{ bad, good string }{
		{"UPDATE nodes SET cordoned = 1", "UPDATE nodes SET cordoned = 0"},
		{"UPDATE slots SET cordoned = 1", "UPDATE slots SET cordoned = 0"},
		{"UPDATE slots SET health = 'unhealthy'", "UPDATE slots SET health = 'ok'"},
		{"UPDATE jobs SET not_before_ms = 4000000000000", "UPDATE jobs SET not_before_ms = 0"},
		{"UPDATE server_state SET recovery_since_ms = 1, recovery_why = 'x'", "UPDATE server_state SET recovery_since_ms = NULL, recovery_why = NULL"},
	} {
		set(c.bad)
		w.pass()
		if w.get("SELECT state FROM jobs WHERE id = ?", job) != jobQueued {
			t.Fatalf("dispatched in spite of %s", c.bad)
		}
		set(c.good)
	}
	w.now = w.now.Add(unreachableAfter + time.Second)
	w.pass()
	w.jobIs(job, jobQueued)
	w.now = time.Now()
	inc := w.s.inc.current()
	w.s.inc.set("another")
	w.pass()
	w.jobIs(job, jobQueued)
	w.s.inc.set(inc)
	a.hello()
	w.pass()
	w.jobIs(job, jobDispatching)
}

func TestOfferTimeouts(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{})
	for i := 1; i <= offersMost; i++ {
		w.pass()
		uid := a.offered().RunUID
		w.now = time.Now()
		w.timers(29 * time.Second)
		w.runIs(uid, runOffered)
		w.timers(2 * time.Second)
		w.runIs(uid, runBurned)
		w.held(0)
		if a.kinds() != "" {
			t.Fatal("a burned offer is still a command")
		}
		if a.claim(uid).Verdict != verdictDeny {
			t.Fatal("a burned offer was granted")
		}
		w.now = time.Now()
		if i < offersMost {
			w.jobIs(job, jobQueued)
		}
	}
	w.jobIs(job, jobFailed)
	w.want(reasonDispatchFailed, "SELECT reason FROM jobs WHERE id = ?", job)
	w.want("0", "SELECT attempts FROM jobs WHERE id = ?", job)
	w.want("NULL", "SELECT max(attempt) FROM runs")
}

func TestOfferFailuresAreInARow(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{})
	for range offersMost - 1 {
		w.pass()
		w.now = time.Now()
		w.timers(31 * time.Second)
		w.now = time.Now()
	}
	tell := a.started()
	a.hello(tell.as(tellGone)) // it had been told alive
	w.want("0", "SELECT offer_failures FROM jobs WHERE id = ?", job)
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	a, b := w.agent("a", 1), w.agent("b", 1)
	job := w.submit(testJob{})
	w.pass()
	uid := a.offered().RunUID
	a.refuse(uid, refuseNoDir)
	w.jobIs(job, jobQueued)
	w.runIs(uid, runBurned)
	w.held(0)
	w.pass()
	v := w.why(job)
	if w.get("SELECT state FROM jobs WHERE id = ?", job) != jobDispatching || !strings.Contains(v.Summary, "(b)") {
		t.Fatalf("not offered to the other node: %+v", v)
	}
	b.refuse(b.offered().RunUID, refusePolicy)
	w.jobIs(job, jobFailed)
	w.want(reasonStartFailed, "SELECT reason FROM jobs WHERE id = ?", job)
	w.want("a: because of no_dir (no_dir)\nb: because of policy (policy)", "SELECT detail FROM jobs WHERE id = ?", job)
	w.write(func(t *tx) error {
		return w.s.retryJobTx(t, job, "p", retryRequest{Argv: []string{"x"}, Env: map[string]string{"B": "2", "GPUCTL_RUN": "no"}})
	})
	w.jobIs(job, jobQueued)
	w.want("0", "SELECT count(*) FROM job_exclusions")
	w.want(`{"A":"1","B":"2"}`, "SELECT env FROM jobs WHERE id = ?", job)
	w.pass()
	if p := a.offered(); p.Argv[0] != "x" || p.Env["B"] != "2" {
		t.Fatalf("retried with %+v", p)
	}
}

func TestRefusedEverywhereLater(t *testing.T) {
	w := newWorld(t)
	a, _ := w.agent("a", 1), w.agent("b", 2)
	one := w.submit(testJob{})
	w.submit(testJob{gpus: 2, priority: 1})
	w.pass()
	a.refuse(a.offered().RunUID, refuseNoExec)
	w.pass()
	w.jobIs(one, jobQueued) // b is busy, but it fits
	w.write(func(t *tx) error {
		_, err := t.exec("UPDATE slots SET health = 'gone' WHERE lane = 'gpu' AND node_id = 2")
		return err
	})
	w.pass()
	w.jobIs(one, jobFailed)
}

// why asks why a job waits.
func (w *world) why(job int64) whyView {
	w.t.Helper()
	var v whyView
	w.must(w.s.store.read(w.t.Context(), func(c *conn) (err error) { v, err = w.s.whyTx(c, job, w.now); return err }))
	return v
}

func TestWhy(t *testing.T) {
	w := newWorld(t)
	job := w.submit(testJob{})
	check := func(job int64, typ, part string) {
		t.Helper()
		v := w.why(job)
		if len(v.Reasons) == 0 || v.Reasons[0].Type != typ || !strings.Contains(v.Summary, part) {
			t.Fatalf("why: %+v, want %s with %q", v, typ, part)
		}
	}
	check(job, "no_node", "no node yet")
	a := w.agent("a", 1)
	check(job, "ready", "about to be started")
	many := w.submit(testJob{gpus: 3})
	check(many, "not_enough_cards", "no node has 3 cards; the most is 1")
	over := w.submit(testJob{})
	w.write(func(t *tx) error {
		_, err := t.exec("UPDATE jobs SET state = 'FAILED', reason = 'START_FAILED', detail = 'a: no such folder' WHERE id = ?", over)
		return err
	})
	if v := w.why(over); !strings.Contains(v.Summary, "START_FAILED: a: no such folder; to try it again: gpuctl job retry") {
		t.Errorf("why of a job that is over: %q", v.Summary)
	}
	named := w.submit(testJob{node: "zz"})
	check(named, "no_such_node", "zz")
	w.pass()
	second := w.submit(testJob{})
	check(second, "slots_busy", fmt.Sprintf("job %d (offered)", job))
	if v := w.why(second); v.Position != 3 {
		t.Fatalf("position %d, want 3", v.Position)
	}
	tell := a.started2(job)
	check(second, "slots_busy", fmt.Sprintf("%d.1", job))
	if v := w.why(job); !strings.Contains(v.Summary, "it runs (a)") {
		t.Fatalf("%+v", v)
	}
	w.now = w.now.Add(time.Minute)
	check(second, "node_unreachable", "not heard from")
	w.now = time.Now()
	a.hello(tell.ended(exitInfo{Signal: 9}))
	check(job, "backoff", "tried again in")
	w.write(func(t *tx) error { _, err := t.exec("UPDATE nodes SET cordoned = 1"); return err })
	check(second, "cordoned", "cordoned")
}

// benchQueue fills the queue with jobs of 60 kinds; none of those that come first fits.
func benchQueue(w *world, n int) {
	w.write(func(t *tx) error {
		for i := range n {
			if _, err := insertTestJob(t, testJob{gpus: 2 + i%10, model: fmt.Sprintf("model %d", i%6), priority: i % 3}); err != nil {
				return err
			}
		}
		_, err := insertTestJob(t, testJob{priority: -5})
		return err
	})
}

// bestOf is the shortest of n times that do takes.
func bestOf(n int, do func()) time.Duration {
	best := time.Hour
	for range n {
		begin := time.Now()
		do()
		best = min(best, time.Since(begin))
	}
	return best
}

func TestSchedPassDoesNotWalkTheQueue(t *testing.T) {
	w := newWorld(t)
	w.agent("a", 1)
	benchQueue(w, 30_000)
	last := w.get("SELECT max(id) FROM jobs")
	w.pass()
	w.want(jobDispatching, "SELECT state FROM jobs WHERE id = ?", last)
	read := func() { w.get("SELECT sum(gpus) FROM jobs INDEXED BY jobs_queue WHERE state = 'QUEUED'") } // each once
	if best, all := bestOf(10, w.pass), bestOf(10, read); best > all/2 {
		t.Fatalf("a pass over 30,000 jobs of 30 kinds that do not fit took %s, reading them all %s", best, all)
	}
}

func BenchmarkSchedPass100k(b *testing.B) {
	for _, c := range []struct {
		name  string
		cards int
	}{{"nothing fits", 1}, {"no free slot", 0}} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b)
			w.agent("a", c.cards)
			benchQueue(w, 100_000)
			w.pass()
			if c.cards == 0 {
				w.write(func(t *tx) error { _, err := t.exec("UPDATE slots SET cordoned = 1"); return err })
			}
			for b.Loop() {
				w.pass()
			}
		})
	}
}
