package main

// Checkpoints as they are read. What is told of them is applied in ingest_checkpoint.go.

import "strconv"

// checkpointRow is what ingest needs of one; id 0 = there is none.
type checkpointRow struct {
	id    int64
	state string
}

// checkpointsAt is what is known at one path of a run.
type checkpointsAt struct {
	same   checkpointRow // with the asked fingerprint
	there  checkpointRow // that lies there: at most one
	toldMS int64         // newest fact about the path, by the agent's clock; -1 = none
}

func loadCheckpoints(c *conn, runID int64, path, fingerprint string) (k checkpointsAt, err error) {
	if _, err = c.one("SELECT coalesce(max(told_ms), -1) FROM checkpoints WHERE run_id = ? AND path = ?", []any{runID, path}, &k.toldMS); err != nil {
		return k, err
	}
	if _, err = c.one("SELECT id, state FROM checkpoints WHERE run_id = ? AND path = ? AND fingerprint = ?", []any{runID, path, fingerprint},
		&k.same.id, &k.same.state); err != nil {
		return k, err
	}
	_, err = c.one("SELECT id, state FROM checkpoints WHERE run_id = ? AND path = ? AND state IN ('COMPLETE', 'INCOMPLETE')", []any{runID, path},
		&k.there.id, &k.there.state)
	return k, err
}

// checkpointFilter selects checkpoints of a run; no states = all.
type checkpointFilter struct {
	runID  int64
	states []string
	page   listPage
}

// checkpointStep orders checkpoints: by step, those without one before all others.
const checkpointStep = "coalesce(k.step, -1)"

// listCheckpoints reads one page: the highest step first, going on with before; with after in the order in which they were registered.
func listCheckpoints(c *conn, f checkpointFilter) (list[checkpointView], error) {
	var w listWhere
	w.and("k.run_id = ?", f.runID)
	if len(f.states) > 0 {
		js := jsonColumns{}
		w.and("k.state IN (SELECT value FROM json_each(?))", js.list(f.states))
	}
	tail := ""
	if f.page.after != nil {
		tail = w.paged("k.id", f.page)
	} else {
		if f.page.before != nil {
			w.and("("+checkpointStep+", k.id) < (SELECT coalesce(b.step, -1), b.id FROM checkpoints b WHERE b.id = ?)", *f.page.before)
		}
		tail = w.paged(checkpointStep+" DESC, k.id", listPage{limit: f.page.limit})
	}
	views, err := readCheckpoints(c, tail, w.args...)
	return pagedList(views, f.page, func(v checkpointView) int64 { return v.ID }), err
}

// readCheckpointView reads one checkpoint.
func readCheckpointView(c *conn, id int64) (checkpointView, error) {
	views, err := readCheckpoints(c, "WHERE k.id = ?", id)
	if err == nil && len(views) == 0 {
		err = newProblem(codeNotFound, "gpuctl ckpt list RUN", "there is no checkpoint %d", id)
	}
	if err != nil {
		return checkpointView{}, err
	}
	return views[0], nil
}

// readCheckpoints reads the checkpoints that tail selects of k.
func readCheckpoints(c *conn, tail string, args ...any) ([]checkpointView, error) {
	views := []checkpointView{}
	runs := []int64{}
	err := c.each(`SELECT k.id, k.run_id, r.job_id, r.attempt, k.path, k.kind, k.step, k.step_from, k.size_bytes, k.mtime_ms, k.state, k.state_ms,
			k.incomplete, k.fingerprint, k.pinned, k.found_ms
		FROM checkpoints k JOIN runs r ON r.id = k.run_id `+tail, args, func(get func(...any) error) error {
		v := checkpointView{Metrics: map[string]jsonFloat{}, Evaluations: []any{}}
		var runID int64
		var jobID, attempt *int64
		var incomplete string
		if err := get(&v.ID, &runID, &jobID, &attempt, &v.Path, &v.Kind, &v.Step, &v.StepFrom, &v.SizeBytes, &v.MtimeMS, &v.State, &v.StateMS,
			&incomplete, &v.Fingerprint, &v.Pinned, &v.FoundMS); err != nil {
			return err
		}
		if v.State == ckptIncomplete {
			v.Incomplete = &incomplete
		}
		v.Run = runLabel(runID, jobID, attempt)
		views, runs = append(views, v), append(runs, runID)
		return nil
	})
	for i := range views {
		if err != nil || views[i].Step == nil {
			continue
		}
		var metrics map[string]jsonFloat
		if metrics, err = metricsAtStep(c, runs[i], *views[i].Step); len(metrics) > 0 {
			views[i].Metrics = metrics
		}
	}
	return views, err
}

// checkpointID reads the number of a checkpoint out of a path.
func checkpointID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, newProblem(codeNotFound, "gpuctl ckpt list RUN", "there is no checkpoint %s: it is known by its number", text)
	}
	return id, nil
}
