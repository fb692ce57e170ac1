package main

// Sealing: the ring of a run that is over and drained becomes one blob. A late replay opens it again. Also the timed TRUNCATE checkpoint.

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"errors"
)

// sealedLog is the present content of a run's ring.
type sealedLog struct {
	first, last int64
	data        []byte
}

// sealable lists runs whose log can be sealed.
func sealable(c *conn, limit int) ([]int64, error) {
	var out []int64
	err := c.each(`SELECT id FROM runs WHERE state = 'ENDED' AND drained_ms IS NOT NULL AND sealed_ms IS NULL
		AND NOT EXISTS (SELECT 1 FROM cursors WHERE run_id = runs.id AND done = 0) LIMIT ?`, []any{limit}, func(get func(...any) error) error {
		var id int64
		err := get(&id)
		out = append(out, id)
		return err
	})
	return out, err
}

// seal packs outside of the writer (a full ring may take 100 ms) and replaces the rows if nothing came meanwhile. Twice is once.
func (s *store) seal(ctx context.Context, runID int64) error {
	var b sealedLog
	if err := s.read(ctx, func(c *conn) (err error) { b, err = packLog(c, runID); return err }); err != nil {
		return err
	}
	return s.write(ctx, func(t *tx) error {
		var first, last int64
		if _, err := t.one("SELECT COALESCE(min(n), 0), COALESCE(max(n), 0) FROM log_lines WHERE run_id = ?", []any{runID}, &first, &last); err != nil {
			return err
		}
		if first != b.first || last != b.last {
			return nil // the next step sees it
		}
		n, err := t.exec(`UPDATE runs SET sealed_ms = ? WHERE id = ? AND sealed_ms IS NULL
			AND NOT EXISTS (SELECT 1 FROM cursors WHERE run_id = ? AND done = 0)`, t.nowMS, runID, runID)
		if err != nil || n == 0 || last == 0 {
			return err
		}
		if _, err := t.exec(`INSERT INTO log_seals (run_id, first_n, last_n, data) VALUES (?,?,?,?) ON CONFLICT (run_id) DO UPDATE SET
			first_n = excluded.first_n, last_n = excluded.last_n, data = excluded.data`, runID, first, last, b.data); err != nil {
			return err
		}
		_, err = t.exec("DELETE FROM log_lines WHERE run_id = ?", runID)
		return err
	})
}

// packLog reads a ring into DEFLATE of ndjson.
func packLog(c *conn, runID int64) (sealedLog, error) {
	var b sealedLog
	var buf bytes.Buffer
	z, err := flate.NewWriter(&buf, flate.DefaultCompression)
	if err != nil {
		return b, err
	}
	enc := json.NewEncoder(z)
	enc.SetEscapeHTML(false)
	err = c.each("SELECT n, at_ms, text, continued FROM log_lines WHERE run_id = ? ORDER BY n", []any{runID}, func(get func(...any) error) error {
		var n int64
		var l sealLine
		if err := get(&n, &l.AtMS, &l.Text, &l.More); err != nil {
			return err
		}
		if b.first == 0 {
			b.first = n
		} else if n != b.last+1 { // lines were skipped before this one
			l.N = n
		}
		b.last = n
		return enc.Encode(l)
	})
	if err = errors.Join(err, z.Close()); err != nil {
		return b, err
	}
	b.data = buf.Bytes()
	return b, nil
}

// unsealTx puts a sealed log back into the ring: a late replay goes on where it was.
func unsealTx(t *tx, runID int64) error {
	lines, err := readSeal(t.conn, runID)
	if err != nil {
		return err
	}
	for _, l := range lines {
		if _, err := t.exec("INSERT INTO log_lines (run_id, n, at_ms, text, continued) VALUES (?,?,COALESCE(?,0),?,?)", runID, l.N, l.AtMS, l.Text, l.Continued); err != nil {
			return err
		}
	}
	if _, err := t.exec("DELETE FROM log_seals WHERE run_id = ?", runID); err != nil {
		return err
	}
	_, err = t.exec("UPDATE runs SET sealed_ms = NULL WHERE id = ?", runID)
	return err
}

// truncateWAL checkpoints on a connection of its own and gives up at once when somebody reads: the next time will do.
func (s *store) truncateWAL(ctx context.Context) error {
	c, err := openConn(ctx, s.path, false)
	if err != nil {
		return err
	}
	_, err = c.exec("PRAGMA busy_timeout = 200")
	if err == nil {
		_, err = c.exec("PRAGMA wal_checkpoint(TRUNCATE)")
	}
	return errors.Join(err, c.close())
}
