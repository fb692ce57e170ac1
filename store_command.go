package main

// Commands: what the server wants of an agent. start, stop and verify are levels: syncCommandsTx makes the rows of a run what its state
// asks for; nobody else opens or closes them. signal is said once.

import (
	"encoding/json"
	"fmt"
)

// syncCommandsTx opens and closes the start, stop and verify commands of a run. Called after every change of the run or of its job.
func syncCommandsTx(t *tx, runID int64) error {
	r, err := loadRun(t.conn, runID)
	if err != nil {
		return err
	}
	if r.nodeID == nil {
		return nil
	}
	want, payload := "", ""
	switch {
	case r.state == runOffered:
		want = cmdStart // its payload was written with the offer
	case runGranted(r.state):
		stop, grace, reason, err := stopWanted(t.conn, r)
		if err != nil {
			return err
		}
		if stop {
			want, payload = cmdStop, stopJSON(reason, grace)
		} else if !r.listed {
			want, payload = cmdVerify, "{}"
		}
	case r.state == runEnded && r.fenced:
		held, err := holdsSlot(t.conn, r.id)
		if err != nil {
			return err
		}
		if held {
			want, payload = cmdStop, stopJSON(reasonFenced, defaultGrace.Seconds())
		}
	}
	over := runOver(r.state) && want == ""
	n, err := t.exec("UPDATE commands SET state = 'done', closed_ms = ? WHERE run_id = ? AND state = 'open' AND kind <> ? AND (kind <> 'signal' OR ?)",
		t.nowMS, r.id, want, over)
	if err != nil {
		return fmt.Errorf("close commands of run %d: %w", r.id, err)
	}
	if want != "" && want != cmdStart {
		opened, err := t.exec(`INSERT INTO commands (node_id, kind, run_id, payload, created_ms) VALUES (?,?,?,?,?)
			ON CONFLICT (run_id, kind) WHERE state = 'open' AND kind <> 'signal' DO NOTHING`, *r.nodeID, want, r.id, payload, t.nowMS)
		if err != nil {
			return fmt.Errorf("open command %s of run %d: %w", want, r.id, err)
		}
		n += opened
	}
	if n > 0 {
		t.ring(bellNode(*r.nodeID))
	}
	return nil
}

// stopWanted reports whether a granted run should end: its job was cancelled, or has another run now.
func stopWanted(c *conn, r runNow) (stop bool, grace float64, reason string, err error) {
	if r.jobID == nil {
		return false, 0, "", nil
	}
	j, err := loadJob(c, *r.jobID)
	if err != nil {
		return false, 0, "", err
	}
	if j.runID == nil || *j.runID != r.id {
		return true, j.graceS, reasonFenced, nil
	}
	return j.cancelMS != nil, j.graceS, reasonCancelled, nil
}

func stopJSON(reason string, grace float64) string {
	b, err := json.Marshal(stopPayload{Reason: reason, GraceS: grace})
	if err != nil {
		return "{}" // a string and a finite number always marshal
	}
	return string(b)
}

// openCommands lists the open commands of a node that are not in have. In RECOVERY nothing is started.
func openCommands(c *conn, nodeID int64, have map[int64]bool, recovery bool) ([]wireCommand, error) {
	var out []wireCommand
	err := c.each(`SELECT c.id, c.kind, r.uid, c.payload FROM commands c JOIN runs r ON r.id = c.run_id
		WHERE c.node_id = ? AND c.state = 'open' ORDER BY c.id`, []any{nodeID}, func(get func(...any) error) error {
		var w wireCommand
		var payload string
		if err := get(&w.ID, &w.Kind, &w.RunUID, &payload); err != nil {
			return err
		}
		w.Payload = json.RawMessage(payload)
		if !have[w.ID] && !(recovery && w.Kind == cmdStart) {
			out = append(out, w)
		}
		return nil
	})
	return out, err
}

// answerCommandTx keeps what an agent answered. A signal is done by it; a level stays open until the state makes it needless.
func answerCommandTx(t *tx, nodeID, id int64, a commandAnswer) error {
	b, err := json.Marshal(commandAnswer{OK: a.OK, Error: a.Error})
	if err != nil {
		return err
	}
	n, err := t.exec(`UPDATE commands SET answer = ?, state = CASE WHEN kind = 'signal' THEN 'done' ELSE state END,
		closed_ms = CASE WHEN kind = 'signal' AND closed_ms IS NULL THEN ? ELSE closed_ms END WHERE id = ? AND node_id = ?`,
		string(b), t.nowMS, id, nodeID)
	if err == nil && n == 0 {
		err = newProblem(codeNotFound, "say hello: the command is over", "there is no command %d for this node", id)
	}
	if err != nil || a.OK {
		return err
	}
	var runID int64
	if signal, err := t.one("SELECT run_id FROM commands WHERE id = ? AND kind = 'signal'", []any{id}, &runID); err != nil || !signal {
		return err
	}
	r, err := loadRun(t.conn, runID)
	if err != nil {
		return err
	}
	return addEventTx(t, newEvent{
		typ: "SIGNAL_NOT_SENT", severity: sevWarning, jobID: r.jobID, runID: &r.id, nodeID: r.nodeID, actor: actorAgent,
		message: fmt.Sprintf("run %s: the signal was not sent: %s", r.label(), a.Error), dedup: fmt.Sprintf("signal:%d", id),
	})
}
