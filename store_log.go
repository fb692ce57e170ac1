package main

// Lines of a log as they are read: the first ones from the heads, the last ones from the ring, or from the seal once the run is over.
// Read only; ingest writes them.

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// sealMostBytes bounds one seal inflated: 2,000 lines of 8 KiB, each byte escaped at worst as \u00xx.
const sealMostBytes = logRingLines * logLineBytes * 6

// logAsk says which lines: after (oldest first from there) or before or, with neither, the last ones. Lines come oldest first always.
type logAsk struct {
	after, before *int64
	limit         int64
}

// logOwner is what a log reader needs to know of a run.
type logOwner struct {
	id      int64
	uid     string
	label   string
	nodeID  *int64
	state   string
	drained bool
}

func readLogOwner(c *conn, runID int64) (logOwner, error) {
	o := logOwner{id: runID}
	var jobID, attempt, drainedMS *int64
	found, err := c.one("SELECT uid, job_id, attempt, node_id, state, drained_ms FROM runs WHERE id = ?", []any{runID},
		&o.uid, &jobID, &attempt, &o.nodeID, &o.state, &drainedMS)
	if err == nil && !found {
		err = noSuchRun(fmt.Sprintf("r%d", runID))
	}
	o.label, o.drained = runLabel(runID, jobID, attempt), drainedMS != nil
	return o, err
}

// over reports whether nothing more will come.
func (o logOwner) over() bool { return runOver(o.state) && o.drained }

// readLogLines reads a page of lines. A gap between the heads and the ring shows in the line numbers.
func readLogLines(c *conn, runID int64, ask logAsk) ([]logLine, error) {
	sealed, err := readSeal(c, runID)
	if err != nil {
		return nil, err
	}
	tail := tailReader{sealed: sealed}
	if sealed == nil {
		tail = tailReader{c: c, runID: runID}
	}
	first, err := tail.first()
	if err != nil {
		return nil, err
	}
	if ask.after == nil {
		return linesBefore(c, runID, tail, first, ask)
	}
	lines, err := headLines(c, runID, "n > ? AND n < ? ORDER BY n LIMIT ?", *ask.after, first, ask.limit)
	if err != nil || int64(len(lines)) == ask.limit {
		return lines, err
	}
	more, err := tail.after(*ask.after, ask.limit-int64(len(lines)))
	return append(lines, more...), err
}

// linesBefore reads the last lines, or those before a line, oldest first.
func linesBefore(c *conn, runID int64, tail tailReader, first int64, ask logAsk) ([]logLine, error) {
	before := int64(1) << 62
	if ask.before != nil {
		before = *ask.before
	}
	lines, err := tail.before(before, ask.limit)
	if err != nil || int64(len(lines)) == ask.limit {
		return lines, err
	}
	heads, err := headLines(c, runID, "n < ? AND n < ? ORDER BY n DESC LIMIT ?", before, first, ask.limit-int64(len(lines)))
	slices.Reverse(heads)
	return append(heads, lines...), err
}

func headLines(c *conn, runID int64, cond string, args ...any) ([]logLine, error) {
	return scanLines(c, "SELECT n, NULLIF(at_ms, 0), text, continued FROM log_heads WHERE run_id = ? AND "+cond, append([]any{runID}, args...))
}

func scanLines(c *conn, q string, args []any) ([]logLine, error) {
	lines := []logLine{}
	err := c.each(q, args, func(get func(...any) error) error {
		var l logLine
		if err := get(&l.N, &l.AtMS, &l.Text, &l.Continued); err != nil {
			return err
		}
		lines = append(lines, l)
		return nil
	})
	return lines, err
}

// tailReader reads the last lines of a run: from its seal when there is one, else from the ring.
type tailReader struct {
	sealed []logLine
	c      *conn
	runID  int64
}

// first is the number of the oldest line of the tail; without any a number above all.
func (t tailReader) first() (int64, error) {
	const none = int64(1) << 62
	if t.c == nil {
		if len(t.sealed) == 0 {
			return none, nil
		}
		return t.sealed[0].N, nil
	}
	var n *int64
	if _, err := t.c.one("SELECT min(n) FROM log_lines WHERE run_id = ?", []any{t.runID}, &n); err != nil || n == nil {
		return none, err
	}
	return *n, nil
}

func (t tailReader) after(n, limit int64) ([]logLine, error) {
	if t.c != nil {
		return scanLines(t.c, "SELECT n, NULLIF(at_ms, 0), text, continued FROM log_lines WHERE run_id = ? AND n > ? ORDER BY n LIMIT ?", []any{t.runID, n, limit})
	}
	i, _ := slices.BinarySearchFunc(t.sealed, n+1, byLine)
	return t.sealed[i:min(int64(len(t.sealed)), int64(i)+limit)], nil
}

func (t tailReader) before(n, limit int64) ([]logLine, error) {
	if t.c != nil {
		lines, err := scanLines(t.c, "SELECT n, NULLIF(at_ms, 0), text, continued FROM log_lines WHERE run_id = ? AND n < ? ORDER BY n DESC LIMIT ?", []any{t.runID, n, limit})
		slices.Reverse(lines)
		return lines, err
	}
	i, _ := slices.BinarySearchFunc(t.sealed, n, byLine)
	return t.sealed[max(0, int64(i)-limit):i], nil
}

// sealLine is one line of a seal. N is there where a number does not follow from the line before it: lines were skipped in between.
type sealLine struct {
	N int64 `json:"n,omitempty"`
	logItem
}

// readSeal reads the sealed lines of a run; nil when it is not sealed.
func readSeal(c *conn, runID int64) ([]logLine, error) {
	var first int64
	var blob []byte
	found, err := c.one("SELECT first_n, data FROM log_seals WHERE run_id = ?", []any{runID}, &first, &blob)
	if err != nil || !found {
		return nil, err
	}
	lines := []logLine{}
	in := flate.NewReader(bytes.NewReader(blob))
	dec := json.NewDecoder(bufio.NewReader(io.LimitReader(in, sealMostBytes)))
	for next := first; ; next++ {
		var l sealLine
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return lines, in.Close()
		} else if err != nil {
			return nil, fmt.Errorf("read sealed log of run %d: %w", runID, err)
		}
		if l.N > 0 {
			next = l.N
		}
		line := logLine{N: next, Text: l.Text, Continued: l.More}
		if l.AtMS != 0 {
			line.AtMS = &l.AtMS
		}
		lines = append(lines, line)
	}
}

func byLine(l logLine, n int64) int { return cmp.Compare(l.N, n) }
