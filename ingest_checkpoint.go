package main

// Facts about checkpoints, applied: another fingerprint at a path overwrites what was there, what is gone stays a row. A fact that is not
// newer than what is known of its path was applied before: told again it changes nothing. It decides nothing about a checkpoint's worth.

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// States of a checkpoint.
const (
	ckptComplete    = "COMPLETE"
	ckptIncomplete  = "INCOMPLETE"
	ckptOverwritten = "OVERWRITTEN"
	ckptGone        = "GONE"
)

// checkpointStates is the closed set, for filters.
func checkpointStates() []string {
	return []string{ckptComplete, ckptIncomplete, ckptOverwritten, ckptGone}
}

const (
	ckptPathMost  = 16 << 10 // bytes; PATH_MAX is 4,096, and each may be written as \xNN
	ckptPrintMost = 128
	ckptWhyMost   = 1000
)

// factCheckpoint stores a checkpoint; why says why the fact cannot be used.
func (b *batchApply) factCheckpoint(f factItem, r *runNow) (why string, err error) {
	var w wireCheckpoint
	if r == nil || json.Unmarshal(f.Data, &w) != nil || w.refused() {
		return fmt.Sprintf("fact %q is not a checkpoint of a run", f.Key), nil
	}
	k, err := loadCheckpoints(b.t.conn, r.id, w.Path, w.Fingerprint)
	if err != nil || f.AtMS <= k.toldMS {
		return "", err
	}
	state := ckptComplete
	if w.Incomplete != "" {
		state = ckptIncomplete
		w.Incomplete = w.Incomplete[:min(len(w.Incomplete), ckptWhyMost)]
		w.Incomplete = strings.ToValidUTF8(w.Incomplete, "")
	}
	at, err := b.nodeTime(f.AtMS)
	if err != nil {
		return "", err
	}
	id := k.same.id
	switch {
	case k.same.id != 0 && k.same.id == k.there.id && k.same.state == state:
		return "", nil
	case k.same.id == 0 && k.there.id != 0 && (k.there.state == ckptIncomplete || w.Grew):
		id = k.there.id // the same checkpoint, further on
	case k.there.id != 0 && k.there.id != k.same.id:
		if _, err := b.t.exec("UPDATE checkpoints SET state = ?, state_ms = ?, told_ms = ? WHERE id = ?", ckptOverwritten, at, f.AtMS, k.there.id); err != nil {
			return "", err
		}
	}
	told := id == 0 || k.there.id != id || k.there.state != state
	if id == 0 {
		id, err = b.t.insert(`INSERT INTO checkpoints (run_id, path, kind, step, step_from, total_steps, size_bytes, mtime_ms, fingerprint, state, state_ms,
			incomplete, found_ms, told_ms) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)`, r.id, w.Path, w.Kind, w.Step, w.from(), w.TotalSteps, w.SizeBytes, w.MtimeMS,
			w.Fingerprint, state, at, w.Incomplete, at, f.AtMS)
	} else {
		_, err = b.t.exec(`UPDATE checkpoints SET kind = ?, step = ?, step_from = ?, total_steps = ?, size_bytes = ?, mtime_ms = ?, fingerprint = ?,
			state_ms = CASE WHEN state = ? THEN state_ms ELSE ? END, state = ?, incomplete = ?, told_ms = ? WHERE id = ?`,
			w.Kind, w.Step, w.from(), w.TotalSteps, w.SizeBytes, w.MtimeMS, w.Fingerprint, state, at, state, w.Incomplete, f.AtMS, id)
	}
	if err != nil {
		return "", err
	}
	b.t.ring(bellRun(r.id))
	if !told {
		return "", nil
	}
	e := newEvent{typ: "CHECKPOINT_SAVED", severity: sevInfo, message: fmt.Sprintf("run %s: checkpoint %s", r.label(), w.inWords())}
	if state == ckptIncomplete {
		e.typ, e.severity = "CHECKPOINT_INCOMPLETE", sevNotice
		e.message = fmt.Sprintf("run %s: checkpoint %s is not whole: %s", r.label(), w.inWords(), w.Incomplete)
	}
	return "", b.checkpointEvent(e, f, r, map[string]any{
		"checkpoint": id, "path": w.Path, "kind": w.Kind, "step": w.Step, "size_bytes": w.SizeBytes, "fingerprint": w.Fingerprint,
	}, id)
}

// refused reports whether a checkpoint cannot be stored as it is told.
func (w *wireCheckpoint) refused() bool {
	return !strings.HasPrefix(w.Path, "/") || len(w.Path) > ckptPathMost || strings.Contains(w.Path, "\x00") || w.Fingerprint == "" ||
		len(w.Fingerprint) > ckptPrintMost || w.Kind != "file" && w.Kind != "folder" || w.SizeBytes < 0 || w.Step != nil && *w.Step < 0 ||
		(w.Step == nil) != (w.StepFrom == "")
}

// from is step_from as it is stored.
func (w *wireCheckpoint) from() *string {
	if w.StepFrom == "" {
		return nil
	}
	return &w.StepFrom
}

func (w *wireCheckpoint) inWords() string {
	text := path.Base(w.Path)
	if w.Step != nil {
		text += fmt.Sprintf(", step %d", *w.Step)
	}
	return text + ", " + formatSize(w.SizeBytes)
}

// factCheckpointGone notes that a checkpoint lies there no more. One that was overwritten since is not it.
func (b *batchApply) factCheckpointGone(f factItem, r *runNow) (why string, err error) {
	var w wireCheckpointGone
	if r == nil || json.Unmarshal(f.Data, &w) != nil || w.Path == "" || w.Fingerprint == "" {
		return fmt.Sprintf("fact %q is not a checkpoint of a run", f.Key), nil
	}
	k, err := loadCheckpoints(b.t.conn, r.id, w.Path, w.Fingerprint)
	if err != nil || f.AtMS <= k.toldMS || k.same.id == 0 || k.same.id != k.there.id {
		return "", err
	}
	at, err := b.nodeTime(f.AtMS)
	if err != nil {
		return "", err
	}
	if _, err := b.t.exec("UPDATE checkpoints SET state = ?, state_ms = ?, told_ms = ? WHERE id = ?", ckptGone, at, f.AtMS, k.same.id); err != nil {
		return "", err
	}
	b.t.ring(bellRun(r.id))
	e := newEvent{typ: "CHECKPOINT_GONE", severity: sevInfo, message: fmt.Sprintf("run %s: checkpoint %s is gone", r.label(), path.Base(w.Path))}
	return "", b.checkpointEvent(e, f, r, map[string]any{"checkpoint": k.same.id, "path": w.Path}, k.same.id)
}

// checkpointEvent writes what became of a checkpoint, once for each change.
func (b *batchApply) checkpointEvent(e newEvent, f factItem, r *runNow, data map[string]any, id int64) error {
	_, since, recovery, err := b.s.inRecovery(b.t.conn)
	if err != nil {
		return err
	}
	e.runID, e.jobID, e.nodeID, e.actor, e.data = &r.id, r.jobID, &b.node, actorAgent, data
	e.dedup = fmt.Sprintf("%s:%d:%d", e.typ, id, f.AtMS)
	e.replayed = recovery && f.AtMS < since
	return addEventTx(b.t, e)
}

// nodeTime is a time of the node's clock by the server's, never in the future.
func (b *batchApply) nodeTime(ms int64) (int64, error) {
	var skew int64
	if _, err := b.t.one("SELECT skew_ms FROM nodes WHERE id = ?", []any{b.node}, &skew); err != nil {
		return 0, err
	}
	return min(ms-skew, b.t.nowMS), nil
}
