package main

// What people do to a job: cancel, retry, signal. Each runs in the caller's transaction and is one move through the table.

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// cancelJobTx ends a job: at once while nothing was granted, else when its node says that the run is over. In RECOVERY a cancel makes
// CANCELLING whatever the row says, since an old grant may still start. Twice is once; a finished job is wrong_state.
func (s *server) cancelJobTx(t *tx, jobID int64, actor string, graceS *float64, reason string) error {
	j, err := loadJob(t.conn, jobID)
	if err != nil {
		return err
	}
	if jobOver(j.state) {
		return newProblem(codeWrongState, "", "job %d is over already: it is %s", jobID, j.state)
	}
	if j.state == jobCancelling {
		return nil
	}
	_, _, rec, err := s.inRecovery(t.conn)
	if err != nil {
		return err
	}
	message := fmt.Sprintf("job %d (%s) was cancelled by %s", j.id, j.name, actor)
	if reason != "" {
		message += ": " + reason
	}
	if !rec && j.state == jobQueued {
		err = moveJobTx(t, jobID, jobMove{ev: jobCancel, reason: reasonCancelled, actor: actor, message: message})
	} else if !rec && j.state == jobDispatching {
		var r runNow
		if r, err = loadRun(t.conn, *j.runID); err == nil {
			err = s.burnRunTx(t, r, cause{ev: jobCancel, reason: reasonCancelled, actor: actor, message: message})
		}
	} else {
		err = moveJobTx(t, jobID, jobMove{ev: jobCancelRunning, actor: actor, message: message})
	}
	if err != nil {
		return err
	}
	if _, err := t.exec("UPDATE jobs SET cancel_ms = ? WHERE id = ?", t.nowMS, jobID); err != nil {
		return err
	}
	if j.runID == nil {
		return nil
	}
	if err := syncCommandsTx(t, *j.runID); err != nil || graceS == nil {
		return err
	}
	_, err = t.exec("UPDATE commands SET payload = ? WHERE run_id = ? AND kind = 'stop' AND state = 'open'",
		stopJSON(reasonCancelled, *graceS), *j.runID)
	return err
}

// retryJobTx queues a finished job again: same job, next attempt, all nodes and all tries anew. Argv replaces, Env adds to what the job has.
func (s *server) retryJobTx(t *tx, jobID int64, actor string, req retryRequest) error {
	j, err := loadJob(t.conn, jobID)
	if err != nil {
		return err
	}
	if err := moveJobTx(t, jobID, jobMove{
		ev: jobRetry, actor: actor,
		message: fmt.Sprintf("job %d (%s) was queued again by %s", j.id, j.name, actor),
	}); err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE jobs SET tries_left_from = attempts, offer_failures = 0, not_before_ms = 0, cancel_ms = NULL WHERE id = ?`,
		jobID); err != nil {
		return err
	}
	if _, err := t.exec("DELETE FROM job_exclusions WHERE job_id = ?", jobID); err != nil {
		return err
	}
	if len(req.Argv) > 0 {
		b, err := json.Marshal(req.Argv)
		if err != nil {
			return err
		}
		if _, err := t.exec("UPDATE jobs SET argv = ? WHERE id = ?", string(b), jobID); err != nil {
			return err
		}
	}
	if len(req.Env) > 0 {
		var text string
		if _, err := t.one("SELECT env FROM jobs WHERE id = ?", []any{jobID}, &text); err != nil {
			return err
		}
		env := map[string]string{}
		if err := json.Unmarshal([]byte(text), &env); err != nil {
			return fmt.Errorf("read env of job %d: %w", jobID, err)
		}
		maps.Copy(env, req.Env)
		for k := range env {
			if strings.HasPrefix(k, "GPUCTL_") {
				delete(env, k) // ours: set by the agent for each run
			}
		}
		b, err := json.Marshal(env)
		if err != nil {
			return err
		}
		if _, err := t.exec("UPDATE jobs SET env = ? WHERE id = ?", string(b), jobID); err != nil {
			return err
		}
	}
	return nil
}

// signalJobTx asks the node of a job's granted run to send it a signal, once.
func (s *server) signalJobTx(t *tx, jobID int64, sig int, actor string) error {
	if sig < 1 || sig > 64 {
		return newProblem(codeInvalid, "name a signal like USR1 or a number from 1 to 64", "there is no signal %d", sig)
	}
	j, err := loadJob(t.conn, jobID)
	if err != nil {
		return err
	}
	if j.runID == nil {
		return newProblem(codeWrongState, "only a running job can be signalled", "job %d is %s", jobID, j.state)
	}
	r, err := loadRun(t.conn, *j.runID)
	if err != nil {
		return err
	}
	if !runGranted(r.state) {
		return newProblem(codeWrongState, "only a running job can be signalled", "job %d is %s: nothing runs yet", jobID, j.state)
	}
	b, err := json.Marshal(signalPayload{Signal: sig})
	if err != nil {
		return err
	}
	if _, err := t.exec("INSERT INTO commands (node_id, kind, run_id, payload, created_ms) VALUES (?,'signal',?,?,?)",
		*r.nodeID, r.id, string(b), t.nowMS); err != nil {
		return fmt.Errorf("write signal command: %w", err)
	}
	t.ring(bellNode(*r.nodeID))
	return addEventTx(t, newEvent{
		typ: "JOB_SIGNALLED", severity: sevInfo, jobID: &j.id, runID: &r.id, nodeID: r.nodeID, actor: actor,
		message: fmt.Sprintf("run %s: signal %d by %s", r.label(), sig, actor),
	})
}
