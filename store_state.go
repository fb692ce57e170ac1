package main

// The only file that changes the state of a job or of a run: a compare-and-set through the tables of model.go that changes exactly one
// row and writes an event in the same transaction. It decides nothing; who decides is in store_outcome.go, sched*.go and the handlers.

import (
	"fmt"
	"strings"
)

// jobNow is what a decision needs to know of a job's row.
type jobNow struct {
	id                                            int64
	uid, name, state                              string
	gpus                                          int64
	node, gpuModel                                string
	gpuMemory                                     int64
	maxAttempts, attempts, triesFrom, offerFailed int64
	graceS                                        float64
	cancelMS, runID                               *int64
}

// loadJob reads a job; a missing one is the problem not_found.
func loadJob(c *conn, id int64) (jobNow, error) {
	j := jobNow{id: id}
	found, err := c.one(`SELECT uid, name, state, gpus, node, gpu_model, gpu_memory_bytes, max_attempts, attempts, tries_left_from,
		offer_failures, grace_s, cancel_ms, run_id FROM jobs WHERE id = ?`, []any{id},
		&j.uid, &j.name, &j.state, &j.gpus, &j.node, &j.gpuModel, &j.gpuMemory, &j.maxAttempts, &j.attempts, &j.triesFrom,
		&j.offerFailed, &j.graceS, &j.cancelMS, &j.runID)
	if err == nil && !found {
		err = newProblem(codeNotFound, "gpuctl job list", "there is no job %d", id)
	}
	return j, err
}

// runNow is what a decision needs to know of a run's row.
type runNow struct {
	id                              int64
	uid, state, name                string
	jobID, attempt, nodeID, grantNo *int64
	grantInstance, bootID, toldIn   string
	listed, fenced                  bool
	startedMS, drainedMS            *int64
	leftAlone                       string
}

const runNowColumns = `id, uid, state, name, job_id, attempt, node_id, grant_no, grant_instance, boot_id, told_incarnation, listed, fenced,
	started_ms, drained_ms, left_alone`

func (r *runNow) fields() []any {
	return []any{
		&r.id, &r.uid, &r.state, &r.name, &r.jobID, &r.attempt, &r.nodeID, &r.grantNo, &r.grantInstance, &r.bootID, &r.toldIn,
		&r.listed, &r.fenced, &r.startedMS, &r.drainedMS, &r.leftAlone,
	}
}

// label is the written form of a run, or its uid's beginning where it has none.
func (r *runNow) label() string {
	if l := runLabel(r.id, r.jobID, r.attempt); l != "" {
		return l
	}
	return "offer " + r.uid[:min(8, len(r.uid))]
}

// onNode reports whether the run belongs to a node: only that node may speak for it.
func (r *runNow) onNode(id int64) bool { return r.nodeID != nil && *r.nodeID == id }

func loadRun(c *conn, id int64) (runNow, error) {
	var r runNow
	found, err := c.one("SELECT "+runNowColumns+" FROM runs WHERE id = ?", []any{id}, r.fields()...)
	if err == nil && !found {
		err = newProblem(codeNotFound, "gpuctl run list", "there is no run with the number %d", id)
	}
	return r, err
}

func loadRunByUID(c *conn, uid string) (r runNow, found bool, err error) {
	found, err = c.one("SELECT "+runNowColumns+" FROM runs WHERE uid = ?", []any{uid}, r.fields()...)
	return r, found, err
}

// loadRuns collects the runs of a WHERE clause, so that nothing is read while something is written.
func loadRuns(c *conn, where string, args ...any) ([]runNow, error) {
	var rs []runNow
	err := c.each("SELECT "+runNowColumns+" FROM runs WHERE "+where, args, func(get func(...any) error) error {
		var r runNow
		if err := get(r.fields()...); err != nil {
			return err
		}
		rs = append(rs, r)
		return nil
	})
	return rs, err
}

// jobMove is one change of a job's state. reason is set for FAILED and CANCELLED only; runID, when not nil, is the run that the job has
// from now on (else it keeps its run, or has none in a state without one).
type jobMove struct {
	ev             moveEvent
	runID          *int64
	reason, detail string
	actor, message string
	replayed       bool
}

// moveJobTx changes a job's state: exactly one row, one event. A move that the table lacks is the problem wrong_state, nothing is changed.
func moveJobTx(t *tx, id int64, m jobMove) error {
	j, err := loadJob(t.conn, id)
	if err != nil {
		return err
	}
	to, ok := nextState(jobTransitions, m.ev, j.state)
	if !ok {
		return wrongState("job "+fmt.Sprint(id), j.state, m.ev)
	}
	run := j.runID
	if m.runID != nil {
		run = m.runID
	}
	if to == jobQueued || jobOver(to) {
		run = nil
	}
	var reason, detail *string
	if jobOver(to) && m.reason != "" {
		reason = &m.reason
	}
	if jobOver(to) && m.detail != "" {
		detail = &m.detail
	}
	n, err := t.exec("UPDATE jobs SET state = ?, state_ms = ?, reason = ?, detail = ?, run_id = ? WHERE id = ? AND state = ?",
		to, t.nowMS, reason, detail, run, id, j.state)
	if err != nil {
		return fmt.Errorf("move job %d from %s to %s: %w", id, j.state, to, err)
	}
	if n != 1 {
		return fmt.Errorf("move job %d from %s to %s: %d rows changed", id, j.state, to, n)
	}
	typ, severity := jobEvent(m.ev)
	e := newEvent{
		typ: typ, severity: severity, jobID: &id, runID: j.runID, actor: m.actor, message: m.message, replayed: m.replayed,
		data: map[string]any{"from": j.state, "to": to, "reason": m.reason},
	}
	if m.runID != nil {
		e.runID = m.runID
	}
	if e.message == "" {
		e.message = fmt.Sprintf("job %d (%s): %s", id, j.name, to)
	}
	t.ring(bellJob(id), bellSched)
	return addEventTx(t, e)
}

// jobEvent names the event of a job's move. The end of a job is notice, a failure critical (DESIGN section 9).
func jobEvent(ev moveEvent) (typ, severity string) {
	switch ev {
	case jobDispatch:
		return "JOB_DISPATCHED", sevInfo
	case jobGrant:
		return "JOB_STARTED", sevInfo
	case jobRefused:
		return "JOB_REFUSED", sevWarning
	case jobOfferExpired, jobOfferWithdrawn, jobRequeue, jobAdoptRequeue:
		return "JOB_REQUEUED", sevWarning
	case jobOfferFailed, jobNoNodeLeft, jobFail, jobAdoptFail:
		return "JOB_FAILED", sevCritical
	case jobCancel, jobCancelDone:
		return "JOB_CANCELLED", sevNotice
	case jobCancelRunning:
		return "JOB_CANCELLING", sevInfo
	case jobSilent:
		return "JOB_LOST", sevWarning
	case jobHeard:
		return "JOB_RECOVERED", sevNotice
	case jobSucceed, jobAdoptSucceed:
		return "JOB_SUCCEEDED", sevNotice
	case jobAdopt:
		return "JOB_ADOPTED", sevNotice
	}
	return "JOB_RETRIED", sevInfo
}

// runMove is one change of a run's state; the columns that go with it are the caller's.
type runMove struct {
	ev             moveEvent
	actor, message string
	data           any
	replayed       bool
}

// moveRunTx changes a run's state: exactly one row, one event. A move that the table lacks is the problem wrong_state.
func moveRunTx(t *tx, id int64, m runMove) error {
	r, err := loadRun(t.conn, id)
	if err != nil {
		return err
	}
	to, ok := nextState(runTransitions, m.ev, r.state)
	if !ok {
		return wrongState("run "+r.label(), r.state, m.ev)
	}
	n, err := t.exec("UPDATE runs SET state = ? WHERE id = ? AND state = ?", to, id, r.state)
	if err != nil {
		return fmt.Errorf("move run %d from %s to %s: %w", id, r.state, to, err)
	}
	if n != 1 {
		return fmt.Errorf("move run %d from %s to %s: %d rows changed", id, r.state, to, n)
	}
	typ, severity := runEvent(m.ev)
	if m.message == "" {
		m.message = fmt.Sprintf("run %s is %s", r.label(), to)
	}
	t.ring(bellRun(id))
	return addEventTx(t, newEvent{
		typ: typ, severity: severity, jobID: r.jobID, runID: &id, nodeID: r.nodeID, actor: m.actor,
		message: m.message, data: m.data, replayed: m.replayed,
	})
}

func runEvent(ev moveEvent) (typ, severity string) {
	switch ev {
	case runGrant:
		return "RUN_GRANTED", sevInfo
	case runToldLive:
		return "RUN_ALIVE", sevInfo
	case runToldExit:
		return "RUN_EXITING", sevInfo
	case runSilent:
		return "RUN_LOST", sevWarning
	case runBurn:
		return "RUN_BURNED", sevInfo
	case runAdopt:
		return "RUN_ADOPTED", sevNotice
	}
	return "RUN_ENDED", sevInfo
}

// wrongState says in words why a move is not possible.
func wrongState(what, state string, ev moveEvent) error {
	return newProblem(codeWrongState, "look at it again: its state changed", "%s is %s; %s is not possible in this state", what, state,
		strings.ReplaceAll(string(ev), "_", " "))
}

// holdSlotsTx gives free slots to a run, each exactly once.
func holdSlotsTx(t *tx, runID int64, slotIDs []int64) error {
	for _, id := range slotIDs {
		n, err := t.exec("UPDATE slots SET run_id = ?, held_ms = ? WHERE id = ? AND run_id IS NULL", runID, t.nowMS, id)
		if err != nil {
			return fmt.Errorf("hold slot %d: %w", id, err)
		}
		if n != 1 {
			return fmt.Errorf("hold slot %d: it is not free", id)
		}
	}
	return nil
}

// freeSlotsTx frees what a run holds. Only three may call it: burn and end in store_outcome.go, and the node's word about a fenced run.
func freeSlotsTx(t *tx, runID int64) error {
	n, err := t.exec("UPDATE slots SET run_id = NULL, held_ms = NULL WHERE run_id = ?", runID)
	if err != nil {
		return fmt.Errorf("free the slots of run %d: %w", runID, err)
	}
	if n > 0 {
		t.ring(bellSched)
	}
	return nil
}

func holdsSlot(c *conn, runID int64) (bool, error) {
	return c.one("SELECT 1 FROM slots WHERE run_id = ? LIMIT 1", []any{runID}, new(int64))
}
