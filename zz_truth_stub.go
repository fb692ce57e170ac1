package main

// Stand-ins for what another part of the server provides. Dropped at the merge.

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

func (s *server) cancelJobTx(t *tx, jobID int64, actor string, graceS *float64, reason string) error {
	n, err := t.exec("UPDATE jobs SET state = 'CANCELLED', reason = 'CANCELLED', cancel_ms = ?, state_ms = ? WHERE id = ? AND state = 'QUEUED'", t.nowMS, t.nowMS, jobID)
	if err != nil {
		return err
	}
	if n != 1 {
		return newProblem(codeWrongState, "", "job %d is not queued", jobID)
	}
	t.ring(bellJob(jobID))
	return addEventTx(t, newEvent{typ: "JOB_CANCELLED", severity: sevNotice, jobID: &jobID, actor: actor, message: "cancelled " + reason, data: graceS})
}

func (s *server) retryJobTx(t *tx, jobID int64, actor string, req retryRequest) error {
	n, err := t.exec("UPDATE jobs SET state = 'QUEUED', reason = NULL, state_ms = ? WHERE id = ? AND state IN ('FAILED', 'CANCELLED', 'SUCCEEDED')", t.nowMS, jobID)
	if err == nil && n != 1 {
		err = newProblem(codeWrongState, "", "job %d is not over", jobID)
	}
	return err
}

func (s *server) signalJobTx(t *tx, jobID int64, sig int, actor string) error {
	return newProblem(codeWrongState, "", "job %d does not run (signal %d by %s)", jobID, sig, actor)
}

type newEvent struct {
	typ, severity        string
	jobID, runID, nodeID *int64
	actor, message       string
	data                 any
	dedup                string
}

func addEventTx(t *tx, e newEvent) error {
	data := []byte("{}")
	if e.data != nil {
		var err error
		if data, err = json.Marshal(e.data); err != nil {
			return err
		}
	}
	var dedup *string
	if e.dedup != "" {
		dedup = &e.dedup
	}
	_, err := t.exec(`INSERT INTO events (at_ms, type, severity, job_id, run_id, node_id, actor, message, data, dedup_key)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (dedup_key) DO NOTHING`,
		t.nowMS, e.typ, e.severity, e.jobID, e.runID, e.nodeID, e.actor, e.message, string(data), dedup)
	t.ring(bellEvents)
	return err
}

func (s *server) whyTx(c *conn, jobID int64, now time.Time) (whyView, error) {
	return whyView{JobID: jobID, State: jobQueued, Summary: "it waits", Position: 1, Reasons: []whyReason{}}, nil
}

func (s *server) inRecovery(c *conn) (why string, since int64, on bool, err error) {
	on, err = c.one("SELECT recovery_why, recovery_since_ms FROM server_state WHERE recovery_since_ms IS NOT NULL", nil, &why, &since)
	return why, since, on, err
}

func (s *server) lastSeen(nodeID int64, storedMS int64) time.Time { return time.UnixMilli(storedMS) }

func (s *server) liveLine(runID int64) (logItem, bool) { return logItem{}, false }

var errNoAgent = errors.New("no agent")

func (s *server) readLog(ctx context.Context, nodeID int64, runUID string, off, n int64) (data []byte, start, size int64, err error) {
	return nil, 0, 0, fmt.Errorf("read log: %w", errNoAgent)
}

func mintTokenTx(t *tx, name, scope string, nodeID *int64, expiresMS *int64) (id int64, token string, err error) {
	if taken, err := t.one("SELECT 1 FROM tokens WHERE name = ?", []any{name}, new(int64)); err != nil || taken {
		return 0, "", newProblem(codeConflict, "choose another name", "there is a token %q already", name)
	}
	id, err = t.insert("INSERT INTO tokens (name, scope, hash, node_id, created_ms, expires_ms) VALUES (?, ?, ?, ?, ?, ?)",
		name, scope, newUID(), nodeID, t.nowMS, expiresMS)
	if err != nil {
		return 0, "", err
	}
	token = fmt.Sprintf("gpc_%s_%d_%s", scope, id, newSecret())
	_, err = t.exec("UPDATE tokens SET hash = ? WHERE id = ?", tokenHash(token), id)
	return id, token, err
}

var agentRoutes = []route{}

func (s *server) loopStates() []loopState { return nil }

// tokenHash is what the database keeps of a token.
func tokenHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

type contacts struct{}

func newContacts() *contacts { return &contacts{} }

type logRelay struct{}

func newLogRelay() *logRelay { return &logRelay{} }

func (i *incarnation) current() string { return i.name }

func (i *incarnation) set(name string) { i.name = name }
