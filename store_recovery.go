package main

// RECOVERY: the row that says the database is older than what the world remembers, how it begins and how it ends (DESIGN section 4).
// What happens in it is decided where runs and jobs are decided; this file only says whether it is on.

import (
	"encoding/json"
	"fmt"
)

// idsRoundedTo is how far numbers jump over what a forgotten timeline may have given; idsSpare covers what was given after the
// incarnation file was written last.
const (
	idsRoundedTo = 100_000
	idsSpare     = 10_000
)

// inRecovery reports whether RECOVERY is on, since when (Unix ms) and why.
func (s *server) inRecovery(c *conn) (why string, since int64, on bool, err error) {
	var at *int64
	if _, err := c.one("SELECT recovery_since_ms, COALESCE(recovery_why, '') FROM server_state WHERE id = 1", nil, &at, &why); err != nil {
		return "", 0, false, fmt.Errorf("read RECOVERY: %w", err)
	}
	if at == nil {
		return "", 0, false, nil
	}
	return why, *at, true, nil
}

// beginRecoveryTx turns RECOVERY on. Numbers go on above every number that the file knows, and nodes that only the file knows are awaited too.
func beginRecoveryTx(t *tx, f incarnationFile, why string) error {
	if _, err := t.exec("UPDATE server_state SET recovery_since_ms = ?, recovery_why = ? WHERE id = 1 AND recovery_since_ms IS NULL",
		t.nowMS, why); err != nil {
		return err
	}
	for _, table := range numberedTables {
		var seq int64
		found, err := t.one("SELECT seq FROM sqlite_sequence WHERE name = ?", []any{table}, &seq)
		if err != nil {
			return err
		}
		base := ((max(seq, f.Highest[table])+idsSpare)/idsRoundedTo + 1) * idsRoundedTo
		q := "UPDATE sqlite_sequence SET seq = ? WHERE name = ?"
		if !found {
			q = "INSERT INTO sqlite_sequence (seq, name) VALUES (?, ?)"
		}
		if _, err := t.exec(q, base, table); err != nil {
			return fmt.Errorf("raise the numbers of %s: %w", table, err)
		}
	}
	for _, n := range f.Nodes {
		if err := restoreNodeTx(t, n); err != nil {
			return fmt.Errorf("restore node %s: %w", n.Name, err)
		}
	}
	return addEventTx(t, newEvent{
		typ: "RECOVERY", severity: sevWarning, actor: actorServer,
		message: "the database is older than its incarnation: nothing is started until every node has told what runs there", data: map[string]any{"why": why},
	})
}

// restoreNodeTx adds a node that the file knows and the database does not, with the tokens of its agent.
func restoreNodeTx(t *tx, n incarnationNode) error {
	var id int64
	found, err := t.one("SELECT id FROM nodes WHERE uid = ?", []any{n.UID}, &id)
	if err != nil {
		return err
	}
	if !found {
		print, err := json.Marshal(n.Fingerprint)
		if err != nil {
			return err
		}
		name, err := freeNodeName(t.conn, n.Name)
		if err != nil {
			return err
		}
		if id, err = t.insert("INSERT INTO nodes (uid, name, fingerprint, last_seen_ms, created_ms) VALUES (?,?,?,?,?)",
			n.UID, name, string(print), t.nowMS, t.nowMS); err != nil {
			return err
		}
	}
	for _, k := range n.Tokens {
		if err := restoreTokenTx(t, k, id); err != nil {
			return err
		}
	}
	return nil
}

// endRecoveryTx ends RECOVERY once every node was heard in this incarnation or is not waited for. What is still offered may have lived
// under the same uid in a forgotten timeline: burned. CANCELLING without a run becomes CANCELLED.
func (s *server) endRecoveryTx(t *tx) (ended bool, err error) {
	_, _, on, err := s.inRecovery(t.conn)
	if err != nil || !on {
		return false, err
	}
	inc := s.inc.current()
	awaited, err := t.one("SELECT 1 FROM nodes WHERE heard_incarnation <> ? AND recovery_skip <> ? LIMIT 1", []any{inc, inc}, new(int64))
	if err != nil || awaited {
		return false, err
	}
	if _, err := t.exec("UPDATE server_state SET recovery_since_ms = NULL, recovery_why = NULL WHERE id = 1"); err != nil {
		return false, err
	}
	offered, err := loadRuns(t.conn, "state = 'OFFERED'")
	if err != nil {
		return false, err
	}
	for _, r := range offered {
		if err := s.burnRunTx(t, r, cause{
			ev: jobOfferWithdrawn, actor: actorServer,
			message: "offered before RECOVERY: withdrawn, the job is queued again",
		}); err != nil {
			return false, err
		}
	}
	var waiting []int64
	if err := t.each("SELECT id FROM jobs WHERE state = 'CANCELLING' AND run_id IS NULL", nil, func(get func(...any) error) error {
		var id int64
		err := get(&id)
		waiting = append(waiting, id)
		return err
	}); err != nil {
		return false, err
	}
	for _, id := range waiting {
		if err := moveJobTx(t, id, jobMove{ev: jobCancelDone, reason: reasonCancelled, actor: actorServer}); err != nil {
			return false, err
		}
	}
	var nodes []int64
	if err := t.each("SELECT id FROM nodes", nil, func(get func(...any) error) error {
		var id int64
		err := get(&id)
		nodes = append(nodes, id)
		return err
	}); err != nil {
		return false, err
	}
	for _, id := range nodes {
		t.ring(bellNode(id))
	}
	t.ring(bellSched)
	return true, addEventTx(t, newEvent{
		typ: "RECOVERY_DONE", severity: sevNotice, actor: actorServer,
		message: "every node has told what runs there; jobs are started again",
	})
}
