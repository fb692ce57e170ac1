package main

// Events: the append-only stream. One function writes them, always inside the transaction of what they tell about.

import (
	"encoding/json"
	"fmt"
)

// newEvent is an event to be written. dedup, when not "", makes the second one with the same key a no-op. data is marshalled; nil is {}.
type newEvent struct {
	typ, severity        string
	jobID, runID, nodeID *int64
	actor, message       string
	data                 any
	dedup                string
	replayed             bool // older than a restore: pushed to nobody
}

// Actors that are not tokens.
const (
	actorScheduler = "scheduler"
	actorAgent     = "agent"
	actorServer    = "server"
)

// addEventTx appends an event and rings after the commit.
func addEventTx(t *tx, e newEvent) error {
	data := []byte("{}")
	if e.data != nil {
		var err error
		if data, err = json.Marshal(e.data); err != nil {
			return fmt.Errorf("encode data of event %s: %w", e.typ, err)
		}
	}
	var dedup *string
	if e.dedup != "" {
		dedup = &e.dedup
	}
	_, err := t.exec(`INSERT INTO events (at_ms, type, severity, job_id, run_id, node_id, actor, message, data, dedup_key, replayed)
		VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (dedup_key) DO NOTHING`,
		t.nowMS, e.typ, e.severity, e.jobID, e.runID, e.nodeID, e.actor, e.message, string(data), dedup, e.replayed)
	if err != nil {
		return fmt.Errorf("write event %s: %w", e.typ, err)
	}
	t.ring(bellEvents)
	return nil
}
