package main

// Cursors of sources, and when a run is drained: none of its cursors is open any more. Rows that a source stands for are written by
// ingest_apply.go in the same transaction.

import (
	"fmt"
	"strings"
	"time"
)

// carrierGone is how long an ended run's source may have nobody who carries it before it is closed as incomplete.
const carrierGone = 10 * time.Minute

// sourceState is a cursor row.
type sourceState struct {
	wireCursor
	owner      string
	runID      *int64
	incomplete bool
}

// loadCursor reads the cursor of a source; a source never heard of has the zero cursor and no owner.
func loadCursor(c *conn, src string) (s sourceState, err error) {
	_, err = c.one("SELECT gen, off, print, n, done, owner, run_id, incomplete FROM cursors WHERE source = ?", []any{src},
		&s.Gen, &s.Off, &s.Print, &s.N, &s.Done, &s.owner, &s.runID, &s.incomplete)
	return s, err
}

func saveCursorTx(t *tx, src, kind string, s sourceState) error {
	_, err := t.exec(`INSERT INTO cursors (source, kind, owner, run_id, gen, off, print, n, done, incomplete, updated_ms) VALUES (?,?,?,?,?,?,?,?,?,?,?)
		ON CONFLICT (source) DO UPDATE SET gen = excluded.gen, off = excluded.off, print = excluded.print, n = excluded.n,
		done = excluded.done, incomplete = excluded.incomplete, updated_ms = excluded.updated_ms`,
		src, kind, s.owner, s.runID, s.Gen, s.Off, s.Print, s.N, s.Done, s.incomplete, t.nowMS)
	if err != nil {
		return fmt.Errorf("write cursor of %s: %w", src, err)
	}
	return nil
}

func ownerNode(id int64) string { return fmt.Sprintf("node:%d", id) }

// openLogTx makes the cursor of a run's log, so that the run is not drained before its log is taken.
func openLogTx(t *tx, r runNow) error {
	_, err := t.exec(`INSERT INTO cursors (source, kind, owner, run_id, updated_ms) VALUES (?, 'log', ?, ?, ?) ON CONFLICT (source) DO NOTHING`,
		sourceName(kindLog, r.uid), ownerNode(*r.nodeID), r.id, t.nowMS)
	if err != nil {
		return fmt.Errorf("open the log source of run %d: %w", r.id, err)
	}
	return nil
}

// checkDrainedTx marks an ended run as drained once none of its cursors is open.
func checkDrainedTx(t *tx, runID int64) error {
	n, err := t.exec(`UPDATE runs SET drained_ms = ? WHERE id = ? AND state = 'ENDED' AND drained_ms IS NULL
		AND NOT EXISTS (SELECT 1 FROM cursors WHERE run_id = ? AND done = 0)`, t.nowMS, runID, runID)
	if err != nil {
		return fmt.Errorf("mark run %d drained: %w", runID, err)
	}
	if n == 0 {
		return nil
	}
	var job *int64
	if _, err := t.one("SELECT job_id FROM runs WHERE id = ?", []any{runID}, &job); err != nil {
		return err
	}
	if job != nil {
		t.ring(bellJob(*job))
	}
	t.ring(bellRun(runID))
	return nil
}

// carriedTx notes that a node's hello named these sources: somebody has them.
func carriedTx(t *tx, nodeID int64, sources []helloSource) error {
	for _, s := range sources {
		if _, err := t.exec("UPDATE cursors SET updated_ms = ? WHERE source = ? AND owner = ? AND done = 0",
			t.nowMS, s.Src, ownerNode(nodeID)); err != nil {
			return err
		}
	}
	return nil
}

// orphanedSources lists the open sources of ended runs that nobody has carried since before.
func orphanedSources(c *conn, beforeMS int64) ([]string, error) {
	var out []string
	err := c.each(`SELECT c.source FROM runs r JOIN cursors c ON c.run_id = r.id
		WHERE r.state = 'ENDED' AND r.drained_ms IS NULL AND c.done = 0 AND c.updated_ms < ? AND r.ended_ms < ?`, []any{beforeMS, beforeMS},
		func(get func(...any) error) error {
			var s string
			if err := get(&s); err != nil {
				return err
			}
			out = append(out, s)
			return nil
		})
	return out, err
}

// closeIncompleteTx gives up a source that no carrier has any more, with an event.
func closeIncompleteTx(t *tx, src string) error {
	s, err := loadCursor(t.conn, src)
	if err != nil || s.runID == nil || s.Done {
		return err
	}
	r, err := loadRun(t.conn, *s.runID)
	if err != nil {
		return err
	}
	if _, err := t.exec("UPDATE cursors SET done = 1, incomplete = 1, updated_ms = ? WHERE source = ? AND done = 0", t.nowMS, src); err != nil {
		return err
	}
	what := "a file with its metrics"
	if strings.HasPrefix(src, kindLog+"-") {
		what = "its log"
	}
	if err := addEventTx(t, newEvent{
		typ: "SOURCE_INCOMPLETE", severity: sevWarning, jobID: r.jobID, runID: &r.id, nodeID: r.nodeID,
		actor: actorServer, message: fmt.Sprintf("run %s: %s was not sent to the end; nobody has carried it for 10 minutes", r.label(), what),
		data: map[string]any{"source": src, "taken_bytes": s.Off, "lines": s.N}, dedup: "incomplete:" + src,
	}); err != nil {
		return err
	}
	return checkDrainedTx(t, r.id)
}
