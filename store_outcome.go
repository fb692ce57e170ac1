package main

// What becomes of a run and of its job: burned, ended, tried again. Here and nowhere else a slot is freed. The rules are DESIGN section 4
// and the fencing model (burnRow, requeue, result, end); states change through moveJobTx and moveRunTx only.

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

const (
	retryFirst = 10 * time.Second // back-off after an end that is retried by itself: 10 s, 20 s, ... at most 5 min
	retryMost  = 5 * time.Minute
	burnBrake  = time.Second // after a grant that was burned: keeps a node that burns everything from spinning
	offersMost = 3           // offers in a row that nobody claimed
)

// cause says why a run or job is moved.
type cause struct {
	ev             moveEvent // job's move when nothing was granted
	reason, detail string
	actor, message string
	notBefore      time.Duration
}

// burnRunTx closes a run that never started and never will: never granted, or proven by its node. The job goes on without it.
func (s *server) burnRunTx(t *tx, r runNow, c cause) error {
	granted := runGranted(r.state)
	if err := moveRunTx(t, r.id, runMove{ev: runBurn, actor: c.actor, data: map[string]any{"why": c.message}}); err != nil {
		return err
	}
	if granted { // the number is given to the next attempt
		if _, err := t.exec("UPDATE runs SET attempt = NULL WHERE id = ?", r.id); err != nil {
			return err
		}
	}
	if err := freeSlotsTx(t, r.id); err != nil {
		return err
	}
	if _, err := t.exec("UPDATE cursors SET done = 1, updated_ms = ? WHERE run_id = ? AND done = 0", t.nowMS, r.id); err != nil {
		return err
	}
	j, present, err := jobOfPresentRun(t.conn, r)
	if err != nil {
		return err
	}
	if present {
		if granted && r.attempt != nil && *r.attempt == j.attempts {
			if _, err := t.exec("UPDATE jobs SET attempts = attempts - 1 WHERE id = ?", j.id); err != nil {
				return err
			}
		}
		if granted {
			c.ev, c.notBefore = jobRequeue, burnBrake
		}
		if err := s.jobWithoutRunTx(t, j, c); err != nil {
			return err
		}
	}
	return syncCommandsTx(t, r.id)
}

// jobWithoutRunTx moves a job on whose run was burned: cancelled when somebody asked for it, else as c says.
func (s *server) jobWithoutRunTx(t *tx, j jobNow, c cause) error {
	if j.cancelMS != nil || j.state == jobCancelling {
		return s.cancelledTx(t, j, c.actor)
	}
	if c.notBefore > 0 {
		if _, err := t.exec("UPDATE jobs SET not_before_ms = ? WHERE id = ?", t.nowMS+c.notBefore.Milliseconds(), j.id); err != nil {
			return err
		}
	}
	return moveJobTx(t, j.id, jobMove{ev: c.ev, reason: c.reason, detail: c.detail, actor: c.actor, message: c.message})
}

// cancelledTx ends a job that was cancelled and has no run any more. In RECOVERY nothing is known to be over: it stays CANCELLING,
// without a run, until the end of RECOVERY.
func (s *server) cancelledTx(t *tx, j jobNow, actor string) error {
	_, _, rec, err := s.inRecovery(t.conn)
	if err != nil {
		return err
	}
	if j.state != jobCancelling {
		if err := moveJobTx(t, j.id, jobMove{ev: jobCancelRunning, actor: actor}); err != nil {
			return err
		}
	}
	if rec {
		_, err := t.exec("UPDATE jobs SET run_id = NULL WHERE id = ?", j.id)
		return err
	}
	return moveJobTx(t, j.id, jobMove{
		ev: jobCancelDone, reason: reasonCancelled, actor: actor,
		message: fmt.Sprintf("job %d (%s) was cancelled", j.id, j.name),
	})
}

// outcome is how a run ended, as the table keeps it. Success is code 0 without a reason; an unknown code is never success.
type outcome struct {
	reason, detail string
	code, signal   *int64
	exit           *exitInfo
}

func (o outcome) success() bool { return o.reason == "" && o.code != nil && *o.code == 0 }

// text is the outcome in words.
func (o outcome) text() string {
	switch {
	case o.success():
		return "ended with code 0"
	case o.code != nil && *o.code != 0:
		return fmt.Sprintf("ended with code %d (%s)", *o.code, o.reason)
	case o.signal != nil:
		return fmt.Sprintf("ended by signal %d (%s)", *o.signal, o.reason)
	}
	return "ended: " + o.reason
}

// endReasons are those that a node may give; everything else is worked out from code and signal.
var endReasons = []string{
	reasonCancelled, reasonTimeout, reasonStartFailed, reasonKilledByHost, reasonHostOOM, reasonSupervisorLost,
	reasonFenced, reasonOOM, reasonNodeReboot,
}

// outcomeOf reads what a node told. SIGKILL that is not ours: HOST_OOM with evidence, KILLED_BY_HOST without.
func outcomeOf(e exitInfo) outcome {
	o := outcome{exit: &e, detail: e.Detail}
	if e.Signal >= 1 && e.Signal <= 64 {
		v := int64(e.Signal)
		o.signal = &v
	} else if e.Code >= 0 && e.Code <= 255 {
		v := int64(e.Code)
		o.code = &v
	}
	switch {
	case slices.Contains(endReasons, e.Reason):
		o.reason = e.Reason
	case o.signal != nil && *o.signal == 9 && e.OOM != "":
		o.reason = reasonHostOOM
	case o.signal != nil && *o.signal == 9:
		o.reason = reasonKilledByHost
	case o.signal != nil:
		o.reason = reasonSignal
	case o.code == nil:
		o.reason = reasonSupervisorLost
	case *o.code != 0:
		o.reason = reasonExitCode
	}
	if o.detail == "" && o.reason == reasonHostOOM {
		o.detail = e.OOM
	}
	return o
}

// endRunTx closes a granted run by proof: its node said ended, a new boot_id, or an operator. ev is runEnd, or runAdoptEnd. Slots are
// freed at once; what else waits for the log waits for drained. The job is moved when this is its run.
func (s *server) endRunTx(t *tx, r runNow, ev moveEvent, o outcome) error {
	if err := s.closeRunTx(t, r, ev, o); err != nil {
		return err
	}
	j, present, err := jobOfPresentRun(t.conn, r)
	if err != nil {
		return err
	}
	if present {
		if err := s.resultTx(t, j, r, o); err != nil {
			return err
		}
	}
	return syncCommandsTx(t, r.id)
}

// jobOfPresentRun is the job that has r as its present run; false when r has no job, or the job has gone on without it.
func jobOfPresentRun(c *conn, r runNow) (j jobNow, present bool, err error) {
	if r.jobID == nil {
		return j, false, nil
	}
	j, err = loadJob(c, *r.jobID)
	return j, err == nil && j.runID != nil && *j.runID == r.id, err
}

// closeRunTx stores how a run ended and frees its slots.
func (s *server) closeRunTx(t *tx, r runNow, ev moveEvent, o outcome) error {
	_, since, rec, err := s.inRecovery(t.conn)
	if err != nil {
		return err
	}
	m := runMove{
		ev: ev, actor: actorAgent, message: fmt.Sprintf("run %s %s", r.label(), o.text()),
		data:     map[string]any{"reason": o.reason, "exit_code": o.code, "signal": o.signal, "detail": o.detail},
		replayed: rec && o.exit != nil && o.exit.EndedMS < since,
	}
	if err := moveRunTx(t, r.id, m); err != nil {
		return err
	}
	if err := storeExitTx(t, r, o); err != nil {
		return err
	}
	if err := freeSlotsTx(t, r.id); err != nil {
		return err
	}
	return checkDrainedTx(t, r.id)
}

// storeExitTx writes code, signal, reason and times of a run. Times of the node are corrected by its clock's offset.
func storeExitTx(t *tx, r runNow, o outcome) error {
	var skew int64
	if r.nodeID != nil {
		if _, err := t.one("SELECT skew_ms FROM nodes WHERE id = ?", []any{*r.nodeID}, &skew); err != nil {
			return err
		}
	}
	var info *string
	var startMS *int64
	ended := t.nowMS
	var duration *float64
	if e := o.exit; e != nil {
		b, err := json.Marshal(e)
		if err != nil {
			return err
		}
		text := string(b)
		info = &text
		if e.StartedMS > 0 {
			v := e.StartedMS - skew
			startMS = &v
		}
		if e.EndedMS > 0 {
			ended = e.EndedMS - skew
		}
		if e.DurationS > 0 {
			duration = &e.DurationS
		}
	}
	_, err := t.exec(`UPDATE runs SET reason = ?, detail = ?, exit_code = ?, signal = ?, exit_info = COALESCE(?, exit_info),
		started_ms = COALESCE(?, started_ms), ended_ms = ?, duration_s = COALESCE(?, duration_s) WHERE id = ?`,
		textOrNull(o.reason), textOrNull(o.detail), o.code, o.signal, info, startMS, ended, duration, r.id)
	if err != nil {
		return fmt.Errorf("store the end of run %d: %w", r.id, err)
	}
	return nil
}

// textOrNull binds "" as NULL.
func textOrNull(v string) *string {
	if v == "" {
		return nil
	}
	return &v
}

// jobEnds are the moves by which a result reaches a job: by its present run, or (adopted) by a newer one told in RECOVERY.
type jobEnds struct{ succeed, fail, requeue moveEvent }

// resultTx moves a job by the end of its present run.
func (s *server) resultTx(t *tx, j jobNow, r runNow, o outcome) error {
	return s.applyResultTx(t, j, r, o, jobEnds{jobSucceed, jobFail, jobRequeue})
}

func (s *server) applyResultTx(t *tx, j jobNow, r runNow, o outcome, evs jobEnds) error {
	if j.cancelMS != nil || j.state == jobCancelling {
		if jobOver(j.state) {
			return nil // cancelled in this transaction, with the offer that was in the way
		}
		return s.cancelledTx(t, j, actorAgent)
	}
	if o.reason == reasonCancelled && evs.fail == jobFail { // the node knows of a cancel that a restore forgot
		if _, err := t.exec("UPDATE jobs SET cancel_ms = ? WHERE id = ?", t.nowMS, j.id); err != nil {
			return err
		}
		return s.cancelledTx(t, j, actorAgent)
	}
	_, since, rec, err := s.inRecovery(t.conn)
	if err != nil {
		return err
	}
	m := jobMove{
		ev: evs.fail, reason: o.reason, detail: o.detail, actor: actorAgent,
		message:  fmt.Sprintf("job %d (%s): run %s %s", j.id, j.name, r.label(), o.text()),
		replayed: rec && o.exit != nil && o.exit.EndedMS < since,
	}
	used := j.attempts - j.triesFrom
	switch {
	case o.success():
		m.ev, m.reason = evs.succeed, ""
	case slices.Contains(retriedByItself, o.reason) && used < j.maxAttempts:
		m.ev = evs.requeue
		wait := min(retryFirst<<min(max(used-1, 0), 10), retryMost)
		if _, err := t.exec("UPDATE jobs SET not_before_ms = ? WHERE id = ?", t.nowMS+wait.Milliseconds(), j.id); err != nil {
			return err
		}
		m.message += fmt.Sprintf("; tried again in %s (attempt %d of %d)", wait, used+1, j.maxAttempts)
	}
	if _, ok := nextState(jobTransitions, m.ev, j.state); !ok && evs.fail == jobAdoptFail {
		return nil // it is in that state already
	}
	return moveJobTx(t, j.id, m)
}

// tellLeftoversTx writes the events about what a node could not or must not kill, once a run.
func tellLeftoversTx(t *tx, r runNow, tell runTell) error {
	if len(tell.LeftAlone) > 0 {
		b, err := json.Marshal(tell.LeftAlone)
		if err != nil {
			return err
		}
		if string(b) != r.leftAlone {
			if _, err := t.exec("UPDATE runs SET left_alone = ? WHERE id = ?", string(b), r.id); err != nil {
				return err
			}
		}
		if err := addEventTx(t, newEvent{
			typ: "LEFT_ALONE", severity: sevNotice, jobID: r.jobID, runID: &r.id, nodeID: r.nodeID,
			actor: actorAgent, message: fmt.Sprintf("run %s: not ours to end, left running: %s", r.label(), tell.LeftAlone[0]),
			data: map[string]any{"left_alone": tell.LeftAlone}, dedup: "left_alone:" + r.uid,
		}); err != nil {
			return err
		}
	}
	if len(tell.Unkillable) > 0 {
		return addEventTx(t, newEvent{
			typ: "UNKILLABLE", severity: sevWarning, jobID: r.jobID, runID: &r.id, nodeID: r.nodeID,
			actor: actorAgent, message: fmt.Sprintf("run %s: %d processes survive SIGKILL; the slot stays held", r.label(), len(tell.Unkillable)),
			data: map[string]any{"pids": tell.Unkillable}, dedup: "unkillable:" + r.uid,
		})
	}
	return nil
}
