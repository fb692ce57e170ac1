package main

// Runs as they are shown. Read only.

import (
	"encoding/json"
	"fmt"
)

const runViewSQL = `SELECT r.id, r.uid, r.job_id, r.attempt, r.source, r.name, r.state, r.reason, r.detail, r.exit_code, r.signal, r.drained_ms,
		n.name, r.slots, r.argv, r.working_dir, (SELECT json_group_array(key ORDER BY key) FROM json_each(r.env)), p.name, e.name, r.config,
		r.started_ms, r.ended_ms, r.duration_s, r.exit_info, r.left_alone, r.env_snapshot,
		c.n, c.off, c.gen, c.done, c.incomplete,
		(SELECT coalesce(sum(k.n), 0) FROM skips k WHERE k.source = 'log-' || r.uid),
		(SELECT count(*) FROM truncations u WHERE u.source = 'log-' || r.uid),
		(SELECT count(*) FROM checkpoints k WHERE k.run_id = r.id AND k.state IN ('COMPLETE', 'INCOMPLETE'))
	FROM runs r JOIN projects p ON p.id = r.project_id LEFT JOIN experiments e ON e.id = r.experiment_id
	LEFT JOIN nodes n ON n.id = r.node_id LEFT JOIN cursors c ON c.source = 'log-' || r.uid `

// runStored is a run as it is shown, with the row id that pages go by.
type runStored struct {
	id   int64
	view runView
}

// readStoredRuns reads the runs that tail selects of r.
func readStoredRuns(c *conn, tail string, args ...any) ([]runStored, error) {
	rows := []runStored{}
	err := c.each(runViewSQL+tail, args, func(get func(...any) error) error {
		rows = append(rows, runStored{})
		row := &rows[len(rows)-1]
		v := &row.view
		var drainedMS *int64
		var slots, argv, envNames, config, leftAlone string
		var usage, snapshot *string
		if err := get(&row.id, &v.UID, &v.JobID, &v.Attempt, &v.Source, &v.Name, &v.State, &v.Reason, &v.Detail, &v.ExitCode, &v.Signal, &drainedMS,
			&v.Node, &slots, &argv, &v.WorkingDir, &envNames, &v.Project, &v.Experiment, &config,
			&v.StartedMS, &v.EndedMS, &v.DurationS, &usage, &leftAlone, &snapshot,
			&v.Log.Lines, &v.Log.Bytes, &v.Log.Generation, &v.Log.Done, &v.Log.Incomplete, &v.Log.Skipped, &v.Log.Truncations,
			&v.Checkpoints); err != nil {
			return err
		}
		v.ID = runLabel(row.id, v.JobID, v.Attempt)
		v.Drained = drainedMS != nil
		if snapshot != nil {
			v.EnvSnapshot = json.RawMessage(*snapshot)
		}
		if usage != nil {
			if err := readColumns(jsonColumn{*usage, &v.Usage}); err != nil {
				return err
			}
		}
		return readColumns(jsonColumn{slots, &v.Slots}, jsonColumn{argv, &v.Argv}, jsonColumn{envNames, &v.EnvNames}, jsonColumn{config, &v.Config}, jsonColumn{leftAlone, &v.LeftAlone})
	})
	if err == nil {
		err = addRunMetrics(c, rows)
	}
	return rows, err
}

// readRunView reads one run that is known to exist.
func readRunView(c *conn, id int64) (runView, error) {
	rows, err := readStoredRuns(c, "WHERE r.id = ?", id)
	if err == nil && len(rows) != 1 {
		err = noSuchRun(fmt.Sprintf("r%d", id))
	}
	if err != nil {
		return runView{}, err
	}
	return rows[0].view, nil
}

// runFilter selects runs of a list; empty fields select all.
type runFilter struct {
	states        []string
	jobID         int64 // 0 = all
	node, project string
	page          listPage
}

// listRuns reads one page of runs. next is a row id, good only to page on with.
func listRuns(c *conn, f runFilter) (list[runView], error) {
	var w listWhere
	w.and(runVisible)
	if len(f.states) > 0 {
		js := jsonColumns{}
		w.and("r.state IN (SELECT value FROM json_each(?))", js.list(f.states))
	}
	if f.jobID != 0 {
		w.and("r.job_id = ?", f.jobID)
	}
	if f.node != "" {
		w.and("n.name = ?", f.node)
	}
	if f.project != "" {
		w.and("p.name = ?", f.project)
	}
	rows, err := readStoredRuns(c, w.paged("r.id", f.page), w.args...)
	next := pagedList(rows, f.page, func(r runStored) int64 { return r.id }).Next
	views := make([]runView, len(rows))
	for i := range rows {
		views[i] = rows[i].view
	}
	return list[runView]{Items: views, Next: next}, err
}
