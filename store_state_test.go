package main

// Every state with every event on a real store, the last belts of the schema, and what people do to a job in each state.

import (
	"fmt"
	"slices"
	"testing"
)

// putState makes a job and a run in given states, by force, consistent with the checks of the schema.
func putState(t *tx, jobState, runState string) (job, run int64, err error) {
	if job, err = insertTestJob(t, testJob{}); err != nil {
		return 0, 0, err
	}
	run, err = t.insert(`INSERT INTO runs (uid, job_id, attempt, source, name, node_id, state, project_id) VALUES (?,?,1,'job','x',1,?,1)`, newUID(), job, runState)
	if err != nil {
		return 0, 0, err
	}
	var has *int64
	if slices.Contains([]string{jobDispatching, jobRunning, jobLost, jobCancelling}, jobState) {
		has = &run
	}
	var reason *string
	if jobState == jobFailed || jobState == jobCancelled {
		reason = textOrNull(reasonCancelled)
	}
	_, err = t.exec("UPDATE jobs SET state = ?, reason = ?, run_id = ? WHERE id = ?", jobState, reason, has, job)
	return job, run, err
}

// allStates is the content of a table's states, to see that nothing else changed.
func (w *world) allStates(table string) string {
	return w.get("SELECT group_concat(id || state || ifnull(reason, '-'), ' ' ORDER BY id) FROM " + table)
}

// TestEveryMoveOfJobs tries every state with every event on a real store.
func TestEveryMoveOfJobs(t *testing.T) {
	w := newWorld(t)
	w.agent("a", 1)
	var events []moveEvent
	for _, tr := range jobTransitions {
		if slices.Contains(events, tr.ev) {
			t.Fatalf("event %s has two rows: its target would depend on more than the state", tr.ev)
		}
		events = append(events, tr.ev)
	}
	allowed := 0
	for _, state := range jobStates {
		for _, ev := range append(events, "no_such_event") {
			var job, run int64
			w.write(func(t *tx) (err error) {
				if _, err = insertTestJob(t, testJob{}); err == nil { // a neighbour
					job, run, err = putState(t, state, runOffered)
				}
				return err
			})
			before, eventsBefore := w.allStates("jobs"), w.get("SELECT count(*) FROM events")
			err := w.s.store.write(t.Context(), func(t *tx) error {
				return moveJobTx(t, job, jobMove{ev: ev, runID: &run, reason: reasonCancelled, actor: "test"})
			})
			to, ok := nextState(jobTransitions, ev, state)
			if !ok {
				if p, isProblem := asProblem(err); !isProblem || p.Code != codeWrongState {
					t.Fatalf("%s on %s: %v, want wrong_state", ev, state, err)
				}
				if w.allStates("jobs") != before || w.get("SELECT count(*) FROM events") != eventsBefore {
					t.Fatalf("%s on %s: refused, but something changed", ev, state)
				}
				continue
			}
			allowed++
			if err != nil {
				t.Fatalf("%s on %s: %v", ev, state, err)
			}
			w.jobIs(job, to)
			w.want("1", "SELECT count(*) FROM events WHERE job_id = ?", job)
			w.want(fmt.Sprint(boolInt(to == jobQueued || jobOver(to))), "SELECT run_id IS NULL FROM jobs WHERE id = ?", job)
			w.write(func(t *tx) error { // put it back: now everything is as before
				_, err := t.exec(`UPDATE jobs SET state = 'QUEUED', reason = NULL, run_id = NULL WHERE id = ?`, job)
				return err
			})
		}
	}
	want := 0
	for _, tr := range jobTransitions {
		want += len(tr.from)
	}
	if allowed != want {
		t.Fatalf("%d moves were tried, the table has %d", allowed, want)
	}
}

// TestEveryMoveOfRuns does the same for runs.
func TestEveryMoveOfRuns(t *testing.T) {
	w := newWorld(t)
	w.agent("a", 1)
	var events []moveEvent
	for _, tr := range runTransitions {
		if slices.Contains(events, tr.ev) {
			t.Fatalf("event %s has two rows", tr.ev)
		}
		events = append(events, tr.ev)
	}
	allowed := 0
	for _, state := range runStates {
		for _, ev := range events {
			var run int64
			w.write(func(t *tx) (err error) {
				if _, _, err = putState(t, jobDispatching, runOffered); err == nil { // a neighbour
					_, run, err = putState(t, jobDispatching, state)
				}
				return err
			})
			before := w.allStates("runs")
			err := w.s.store.write(t.Context(), func(t *tx) error { return moveRunTx(t, run, runMove{ev: ev, actor: "test"}) })
			to, ok := nextState(runTransitions, ev, state)
			if !ok {
				if p, isProblem := asProblem(err); !isProblem || p.Code != codeWrongState || w.allStates("runs") != before {
					t.Fatalf("%s on %s: %v, want wrong_state and no change", ev, state, err)
				}
				continue
			}
			allowed++
			if err != nil {
				t.Fatalf("%s on %s: %v", ev, state, err)
			}
			w.want(fmt.Sprint(1), "SELECT count(*) FROM runs WHERE id = ? AND state = ?", run, to)
			w.want("1", "SELECT count(*) FROM events WHERE run_id = ?", run)
		}
	}
	want := 0
	for _, tr := range runTransitions {
		want += len(tr.from)
	}
	if allowed != want {
		t.Fatalf("%d moves were tried, the table has %d", allowed, want)
	}
}

// TestSlotHoldsOneRun: the last belt is the table itself.
func TestSlotHoldsOneRun(t *testing.T) {
	w := newWorld(t)
	w.agent("a", 1)
	w.agent("b", 1)
	var first, second int64
	w.write(func(t *tx) (err error) {
		if _, first, err = putState(t, jobDispatching, runOffered); err == nil {
			_, second, err = putState(t, jobDispatching, runOffered)
		}
		return err
	})
	hold := func(run int64, slots ...int64) error {
		return w.s.store.write(t.Context(), func(t *tx) error { return holdSlotsTx(t, run, slots) })
	}
	w.must(hold(first, 1))
	if hold(second, 1) == nil {
		t.Fatal("one slot was given to two runs")
	}
	w.held(1)
	if err := w.s.store.write(t.Context(), func(t *tx) error {
		_, err := t.exec("UPDATE slots SET run_id = ?, held_ms = 1 WHERE id = 1", second)
		return err
	}); err == nil {
		t.Fatal("the table let another run take a held slot")
	}
	other := w.get("SELECT id FROM slots WHERE node_id = 2 LIMIT 1")
	if err := w.s.store.write(t.Context(), func(t *tx) error {
		_, err := t.exec("UPDATE slots SET run_id = ?, held_ms = 1 WHERE id = ?", first, other)
		return err
	}); err == nil {
		t.Fatal("a run got slots of two nodes")
	}
	if hold(second, 2, 1) == nil {
		t.Fatal("a partly held set was given")
	}
	w.want("NULL", "SELECT run_id FROM slots WHERE id = 2")
}

// TestCancelInEveryState: cancelled at once while nothing was granted, else when the node says so; twice is once.
func TestCancelInEveryState(t *testing.T) {
	cancel := func(w *world, job int64) error {
		return w.s.store.write(w.t.Context(), func(t *tx) error { return w.s.cancelJobTx(t, job, "tester", nil, "") })
	}
	t.Run("queued", func(t *testing.T) {
		w := newWorld(t)
		job := w.submit(testJob{})
		w.must(cancel(w, job))
		w.jobIs(job, jobCancelled)
		if p, ok := asProblem(cancel(w, job)); !ok || p.Code != codeWrongState || p.Detail != fmt.Sprintf("job %d is over already: it is CANCELLED", job) {
			t.Fatalf("cancel of a cancelled job: %+v", p)
		}
	})
	t.Run("dispatching, and the claim comes late", func(t *testing.T) {
		w := newWorld(t)
		a := w.agent("a", 1)
		job := w.submit(testJob{})
		w.pass()
		uid := a.offered().RunUID
		w.must(cancel(w, job))
		w.jobIs(job, jobCancelled)
		w.runIs(uid, runBurned)
		w.held(0)
		if a.kinds() != "" || a.claim(uid).Verdict != verdictDeny {
			t.Fatal("a cancelled offer lives on")
		}
	})
	t.Run("running, grace, and it ends 0 meanwhile", func(t *testing.T) {
		w := newWorld(t)
		a := w.agent("a", 1)
		job := w.submit(testJob{})
		tell := a.started()
		grace := 42.0
		w.write(func(t *tx) error { return w.s.cancelJobTx(t, job, "tester", &grace, "") })
		w.jobIs(job, jobCancelling)
		w.held(1)
		w.must(cancel(w, job))
		cs := a.poll()
		if len(cs) != 1 || cs[0].Kind != cmdStop || string(cs[0].Payload) != `{"reason":"CANCELLED","grace_s":42}` {
			t.Fatalf("commands: %+v", cs)
		}
		a.hello(tell)
		w.jobIs(job, jobCancelling)
		a.hello(tell.ended(exitInfo{Code: 0}))
		w.jobIs(job, jobCancelled)
		w.want("0", "SELECT exit_code FROM runs WHERE uid = ?", tell.UID)
		w.held(0)
		if a.kinds() != "" {
			t.Fatal("the stop is still open")
		}
	})
	t.Run("lost", func(t *testing.T) {
		w := newWorld(t)
		a := w.agent("a", 1)
		job := w.submit(testJob{attempts: 3})
		tell := a.started()
		w.timers(6 * time5)
		w.jobIs(job, jobLost)
		w.must(cancel(w, job))
		w.jobIs(job, jobCancelling)
		a.hello(tell.ended(exitInfo{Signal: 9}))
		w.jobIs(job, jobCancelled) // never queued again
	})
	t.Run("succeeded", func(t *testing.T) {
		w := newWorld(t)
		a := w.agent("a", 1)
		job := w.submit(testJob{})
		tell := a.started()
		a.hello(tell.ended(exitInfo{Code: 0}))
		if p, ok := asProblem(cancel(w, job)); !ok || p.Code != codeWrongState {
			t.Fatalf("cancel of a finished job: %+v", p)
		}
	})
}

const time5 = defaultLostAfter / 5

func TestSignalAndRetry(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{attempts: 1})
	signal := func() error {
		return w.s.store.write(t.Context(), func(t *tx) error { return w.s.signalJobTx(t, job, 10, "tester") })
	}
	if p, ok := asProblem(signal()); !ok || p.Code != codeWrongState {
		t.Fatal("a queued job was signalled")
	}
	w.pass()
	if p, ok := asProblem(signal()); !ok || p.Code != codeWrongState {
		t.Fatal("an offered job was signalled")
	}
	tell := a.started2(job)
	w.must(signal())
	w.must(signal())
	cs := a.poll()
	if len(cs) != 2 || cs[0].Kind != cmdSignal || string(cs[0].Payload) != `{"signal":10}` {
		t.Fatalf("commands: %+v", cs)
	}
	if _, p := w.call("POST", fmt.Sprintf("/api/v1/agent/commands/%d", cs[0].ID), a.token, commandAnswer{OK: true}, nil); p != nil {
		t.Fatal(p)
	}
	if got := a.poll(); len(got) != 1 || got[0].ID != cs[1].ID {
		t.Fatalf("an answered signal is sent again: %+v", got)
	}
	a.hello(tell.ended(exitInfo{Signal: 9}))
	if a.kinds() != "" {
		t.Fatal("a signal outlived its run")
	}
	w.jobIs(job, jobFailed) // one attempt
	w.write(func(t *tx) error { return w.s.retryJobTx(t, job, "tester", retryRequest{}) })
	w.jobIs(job, jobQueued)
	w.want("1", "SELECT tries_left_from FROM jobs WHERE id = ?", job)
	again := a.started()
	if again.Attempt != 2 || again.Grant <= tell.Grant {
		t.Fatalf("retried as %+v", again)
	}
	if p, ok := asProblem(w.s.store.write(t.Context(), func(t *tx) error { return w.s.retryJobTx(t, job, "x", retryRequest{}) })); !ok || p.Code != codeWrongState {
		t.Fatal("a running job was retried")
	}
}
