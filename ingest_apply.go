package main

// Applying a batch, in one transaction: compare-and-set on each source's cursor, rows and cursor together. A line that does not go on
// exactly where the cursor is, is refused with all later lines of its source in this batch; the others are applied. A record that cannot
// be stored is set aside in rejects and its source moves on.

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ncruces/go-sqlite3"
)

const rejectsKept = 1000

var eventTypeForm = lazyRegexp(`^[A-Z][A-Z0-9_]{0,63}$`)

// batchApply is one batch in its transaction, and after it.
type batchApply struct {
	s       *server
	t       *tx
	node    int64
	sources map[string]*applySource
	series  map[batchSeries]*seriesRow // that got points
	had     map[int64]int64            // by run: how many series it has, once it was asked
	refused map[string]string
}

// applySource is a source named in the batch.
type applySource struct {
	sourceState
	kind, uid string
	run       *runNow // of a log, or of points
	dirty     bool
	logged    bool // lines came: what was shown as live is stale
	live      bool // named by a live line only so far
}

func newBatchApply(s *server, t *tx, node int64) *batchApply {
	return &batchApply{s: s, t: t, node: node, sources: map[string]*applySource{}, series: map[batchSeries]*seriesRow{}, had: map[int64]int64{}, refused: map[string]string{}}
}

// apply takes all lines in order and writes the cursors.
func (b *batchApply) apply(lines []ingestLine) error {
	for i := range lines {
		l := &lines[i]
		src, err := b.source(l)
		if err != nil {
			return err
		}
		if l.Kind == kindLive {
			continue
		}
		src.live = false
		if b.refused[l.Src] != "" {
			continue
		}
		if why := src.refuses(l); why != "" {
			b.refused[l.Src] = why
			continue
		}
		if err := b.line(src, l); err != nil {
			return fmt.Errorf("apply line %d of %s: %w", i+1, l.Src, err)
		}
	}
	if err := b.saveSeries(); err != nil {
		return err
	}
	for name, src := range b.sources {
		if !src.dirty {
			continue
		}
		if err := saveCursorTx(b.t, name, src.kind, src.sourceState); err != nil {
			return err
		}
		if src.run != nil {
			b.t.ring(bellRun(src.run.id))
			if src.Done {
				if err := checkDrainedTx(b.t, src.run.id); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// source finds the source of a line and checks whose it is.
func (b *batchApply) source(l *ingestLine) (*applySource, error) {
	if src := b.sources[l.Src]; src != nil {
		return src, nil
	}
	kind, uid, err := parseSource(l.Src)
	if err != nil {
		return nil, err
	}
	src := &applySource{kind: kind, uid: uid, live: true}
	b.sources[l.Src] = src
	if src.sourceState, err = loadCursor(b.t.conn, l.Src); err != nil {
		return nil, err
	}
	me := ownerNode(b.node)
	if src.owner != "" && src.owner != me {
		src.sourceState = sourceState{} // nobody's business
		b.refused[l.Src] = "this source belongs to another sender"
		return src, nil
	}
	src.owner = me
	runUID, ofRun := sourceRun(kind, uid)
	if !ofRun {
		return src, nil
	}
	r, found, err := loadRunByUID(b.t.conn, runUID)
	switch {
	case err != nil:
		return nil, err
	case !found:
		b.refused[l.Src] = "there is no such run; say hello first"
	case !r.onNode(b.node):
		b.refused[l.Src] = "this run belongs to another node"
	case r.state == runOffered || r.state == runBurned:
		b.refused[l.Src] = "this run was never granted"
	default:
		src.run, src.runID = &r, &r.id
	}
	return src, nil
}

// refuses is the compare-and-set: "" when the line goes on exactly where the cursor is, or replaces exactly that cursor by a new generation.
func (src *applySource) refuses(l *ingestLine) string {
	if l.Reset {
		if l.Gen == src.Gen+1 && l.From == 0 && l.Old == src.Off && l.Prev == src.Print {
			return ""
		}
		return "the new generation does not name the cursor that it replaces"
	}
	if l.Gen == src.Gen && l.From == src.Off && l.Prev == src.Print {
		return ""
	}
	return "the line does not go on where the cursor is"
}

// line applies one line that passed.
func (b *batchApply) line(src *applySource, l *ingestLine) error {
	if l.Reset {
		if err := b.truncated(src, l); err != nil {
			return err
		}
	}
	var err error
	switch l.Kind {
	case kindLog:
		err = b.logLines(src, l)
	case kindFacts:
		err = b.factItems(src, l)
	case kindNode:
		err = b.samples(src, l)
	case kindPoints:
		err = b.pointItems(src, l)
	case kindSkip:
		err = b.skip(src, l)
	}
	if err != nil {
		return err
	}
	src.Gen, src.Off, src.Print, src.Done = l.Gen, l.To, l.Print, l.End
	if l.End {
		src.incomplete = false
	}
	src.dirty = true
	return nil
}

// truncated notes that a generation was replaced: the file is shorter or another one. Line numbers go on.
func (b *batchApply) truncated(src *applySource, l *ingestLine) error {
	if _, err := b.t.exec("INSERT INTO truncations (source, gen, off, at_ms) VALUES (?,?,?,?)", l.Src, src.Gen, src.Off, b.t.nowMS); err != nil {
		return err
	}
	if src.run == nil {
		return nil
	}
	r := src.run
	if src.kind != kindLog {
		return addEventTx(b.t, newEvent{
			typ: "TB_FILE_TRUNCATED", severity: sevWarning, jobID: r.jobID, runID: &r.id, nodeID: r.nodeID, actor: actorAgent,
			message: fmt.Sprintf("run %s: a file with its metrics was cut or replaced after %d bytes; the points before are kept, it is read from its begin again",
				r.label(), src.Off),
			data:  map[string]any{"source": l.Src, "generation": src.Gen, "taken_bytes": src.Off, "records": src.N},
			dedup: fmt.Sprintf("truncated:%s:%d", l.Src, src.Gen),
		})
	}
	return addEventTx(b.t, newEvent{
		typ: "LOG_TRUNCATED", severity: sevWarning, jobID: r.jobID, runID: &r.id, nodeID: r.nodeID, actor: actorAgent,
		message: fmt.Sprintf("run %s: its log was cut or replaced after %d bytes; the lines before are kept. `> /dev/stderr` in a script does this: write `>&2`",
			r.label(), src.Off),
		data:  map[string]any{"generation": src.Gen, "taken_bytes": src.Off, "lines": src.N},
		dedup: fmt.Sprintf("truncated:%s:%d", l.Src, src.Gen),
	})
}

// logLines numbers and stores lines: the ring, and the first of the run.
func (b *batchApply) logLines(src *applySource, l *ingestLine) error {
	r := src.run
	if len(l.logs) > 0 && !src.logged {
		sealed, err := b.t.one("SELECT 1 FROM runs WHERE id = ? AND sealed_ms IS NOT NULL", []any{r.id}, new(int64))
		if err != nil {
			return err
		}
		if sealed {
			if err := unsealTx(b.t, r.id); err != nil {
				return err
			}
		}
		src.logged = true
	}
	drop := len(l.logs) - logRingLines // these would be deleted at once
	for i, item := range l.logs {
		src.N++
		if src.N <= logHeadLines {
			if err := b.record(l, func() error {
				_, err := b.t.exec("INSERT INTO log_heads (run_id, n, at_ms, text, continued) VALUES (?,?,?,?,?)", r.id, src.N, item.AtMS, item.Text, item.More)
				return err
			}); err != nil {
				return err
			}
		}
		if i < drop {
			continue
		}
		if err := b.record(l, func() error {
			_, err := b.t.exec("INSERT INTO log_lines (run_id, n, at_ms, text, continued) VALUES (?,?,?,?,?)", r.id, src.N, item.AtMS, item.Text, item.More)
			return err
		}); err != nil {
			return err
		}
	}
	return b.trimRing(src)
}

func (b *batchApply) trimRing(src *applySource) error {
	if src.kind != kindLog || src.N <= logRingLines {
		return nil
	}
	_, err := b.t.exec("DELETE FROM log_lines WHERE run_id = ? AND n <= ?", src.run.id, src.N-logRingLines)
	return err
}

// skip counts what was left out.
func (b *batchApply) skip(src *applySource, l *ingestLine) error {
	src.N += l.N
	if _, err := b.t.exec("INSERT INTO skips (source, gen, from_off, to_off, n, why, at_ms) VALUES (?,?,?,?,?,?,?)",
		l.Src, l.Gen, l.From, l.To, l.N, l.Why, b.t.nowMS); err != nil {
		return err
	}
	return b.trimRing(src)
}

// samples stores looks at the host; the same look told twice is one.
func (b *batchApply) samples(src *applySource, l *ingestLine) error {
	for _, x := range l.samples {
		src.N++
		if x.Rej != "" {
			if err := b.reject(l, x.Rej); err != nil {
				return err
			}
			continue
		}
		if err := b.record(l, func() error {
			_, err := b.t.exec(`INSERT INTO node_samples (node_id, at_ms, cpu_permille, load1_milli, memory_used_bytes, memory_total_bytes,
				swap_used_bytes, disk_free_bytes, disk_total_bytes) VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT (node_id, at_ms) DO NOTHING`,
				b.node, x.AtMS, x.CPUPermille, x.Load1Milli, x.MemoryUsedBytes, x.MemoryTotalBytes, x.SwapUsedBytes, x.DiskFreeBytes, x.DiskTotalBytes)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// factItems stores what the agent knows. A fact that cannot be used is set aside.
func (b *batchApply) factItems(src *applySource, l *ingestLine) error {
	for _, f := range l.facts {
		src.N++
		why := f.Rej
		if why == "" && len(f.Data) > factMaxBytes {
			why = fmt.Sprintf("fact %q has %d bytes", f.Key, len(f.Data))
		}
		if why == "" && f.Key == "" {
			why = "a fact without a key"
		}
		if why == "" {
			if err := b.record(l, func() (err error) { why, err = b.fact(f); return err }); err != nil {
				return err
			}
		}
		if why != "" {
			if err := b.reject(l, why); err != nil {
				return err
			}
		}
	}
	return nil
}

// fact applies one fact; why says why it cannot be used.
func (b *batchApply) fact(f factItem) (why string, err error) {
	var r *runNow
	if f.RunUID != "" {
		x, found, err := loadRunByUID(b.t.conn, f.RunUID)
		if err != nil {
			return "", err
		}
		if !found || !x.onNode(b.node) {
			return fmt.Sprintf("fact %q is about a run that is not here", f.Key), nil
		}
		r = &x
	}
	switch f.Kind {
	case "env":
		var object map[string]json.RawMessage
		if r == nil || json.Unmarshal(f.Data, &object) != nil {
			return fmt.Sprintf("fact %q: an environment is an object about a run", f.Key), nil
		}
		_, err := b.t.exec("UPDATE runs SET env_snapshot = ? WHERE id = ?", string(f.Data), r.id)
		return "", err
	case "event":
		return b.factEvent(f, r)
	case "checkpoint":
		return b.factCheckpoint(f, r)
	case "checkpoint_gone":
		return b.factCheckpointGone(f, r)
	}
	return fmt.Sprintf("fact %q: kind %q is not known", f.Key, f.Kind), nil
}

func (b *batchApply) factEvent(f factItem, r *runNow) (why string, err error) {
	var w wireEvent
	if json.Unmarshal(f.Data, &w) != nil || !eventTypeForm().MatchString(w.Type) ||
		!slices.Contains([]string{sevInfo, sevNotice, sevWarning, sevCritical}, w.Severity) {
		return fmt.Sprintf("fact %q is not an event", f.Key), nil
	}
	_, since, recovery, err := b.s.inRecovery(b.t.conn)
	if err != nil {
		return "", err
	}
	e := newEvent{
		typ: w.Type, severity: w.Severity, nodeID: &b.node, actor: actorAgent, message: w.Message, dedup: "fact:" + f.Key,
		replayed: recovery && f.AtMS < since,
	}
	if len(w.Data) > 0 {
		e.data = w.Data
	}
	if r != nil {
		e.runID, e.jobID = &r.id, r.jobID
	}
	return "", addEventTx(b.t, e)
}

// record runs the statement of one record. What the table refuses is a reject and not the batch's fault; anything else (disk, I/O) is.
func (b *batchApply) record(l *ingestLine, store func() error) error {
	err := store()
	if errors.Is(err, sqlite3.CONSTRAINT) || errors.Is(err, sqlite3.TOOBIG) || errors.Is(err, sqlite3.MISMATCH) {
		return b.reject(l, err.Error())
	}
	return err
}

// setAside keeps why a record is left out; the newest are kept.
func (b *batchApply) setAside(l *ingestLine, why string) error {
	id, err := b.t.insert("INSERT INTO rejects (source, gen, from_off, to_off, why, at_ms) VALUES (?,?,?,?,?,?)",
		l.Src, l.Gen, l.From, l.To, why[:min(len(why), 1000)], b.t.nowMS)
	if err != nil {
		return err
	}
	_, err = b.t.exec("DELETE FROM rejects WHERE id <= ?", id-rejectsKept)
	return err
}

// reject sets a record aside. Told once a source.
func (b *batchApply) reject(l *ingestLine, why string) error {
	if err := b.setAside(l, why); err != nil {
		return err
	}
	e := newEvent{
		typ: "RECORD_REJECTED", severity: sevWarning, nodeID: &b.node, actor: actorServer, dedup: "rejected:" + l.Src,
		message: fmt.Sprintf("a record of %s could not be stored and was set aside: %s", l.Src, why),
	}
	if src := b.sources[l.Src]; src.run != nil {
		e.runID, e.jobID = &src.run.id, src.run.jobID
	}
	return addEventTx(b.t, e)
}

// acks are the cursors of every source named, but for those named by a live line alone.
func (b *batchApply) acks() map[string]wireCursor {
	out := map[string]wireCursor{}
	for name, src := range b.sources {
		if !src.live {
			out[name] = src.wireCursor
		}
	}
	return out
}

// showLive keeps the unfinished last lines, after the commit: memory only.
func (b *batchApply) showLive(lines []ingestLine) {
	for i := range lines {
		l := &lines[i]
		src := b.sources[l.Src]
		if src.run == nil || b.refused[l.Src] != "" {
			continue
		}
		switch {
		case l.Kind == kindLive && !src.Done:
			b.s.contacts.setLive(src.run.id, &l.logs[0])
		case src.kind == kindLog && (l.Kind == kindLive || len(l.logs) > 0 || l.End):
			b.s.contacts.setLive(src.run.id, nil)
		}
		b.s.hub.ring(bellRun(src.run.id))
	}
}
