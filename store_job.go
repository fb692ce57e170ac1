package main

// Jobs as they are submitted and shown. States are changed elsewhere; environment values never leave the database through here.

import (
	"encoding/json"
	"fmt"
	"strings"
)

// submitJobTx stores a checked request as a queued job.
func submitJobTx(t *tx, q *jobRequest, by string) (int64, error) {
	projectID, experimentID, err := placeTx(t, q.Project, q.Experiment)
	if err != nil {
		return 0, err
	}
	js := jsonColumns{}
	id, err := t.insert(`INSERT INTO jobs (uid, name, state, state_ms, argv, working_dir, env, venv, conda, gpus, node, gpu_model,
			gpu_memory_bytes, priority, max_attempts, max_time_s, signal_before_s, grace_s, watch, tb, total_steps, eval_argv,
			primary_metric, config, tags, submit_reason, project_id, experiment_id, submitted_by, created_ms)
		VALUES (?, ?, 'QUEUED', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		newUID(), q.Name, t.nowMS, js.list(q.Argv), q.WorkingDir, js.of(q.Env), q.Venv, q.Conda, *q.GPUs, q.Node, q.GPUModel,
		q.GPUMemoryBytes, q.Priority, q.MaxAttempts, q.MaxTimeS, q.SignalBeforeS, *q.GraceS, js.list(q.Watch), js.list(q.TB), q.TotalSteps,
		js.orNull(q.EvalArgv != nil, q.EvalArgv), js.orNull(q.PrimaryMetric != nil, q.PrimaryMetric), js.object(q.Config),
		js.list(q.Tags), q.Reason, projectID, experimentID, by, t.nowMS)
	if js.err != nil {
		return 0, js.err
	}
	if err != nil {
		return 0, fmt.Errorf("store job: %w", err)
	}
	if err := keepCaptureTx(t, id, q.Capture); err != nil {
		return 0, err
	}
	t.ring(bellSched, bellJob(id))
	return id, addEventTx(t, newEvent{typ: "JOB_QUEUED", severity: sevInfo, jobID: &id, actor: by, message: fmt.Sprintf("job %d (%s) is queued", id, q.Name)})
}

// jsonColumns encodes values for JSON columns and keeps the first error.
type jsonColumns struct{ err error }

func (j *jsonColumns) of(v any) string {
	b, err := json.Marshal(v)
	if err != nil && j.err == nil {
		j.err = fmt.Errorf("encode job: %w", err)
	}
	return string(b)
}

func (j *jsonColumns) list(v []string) string {
	if v == nil {
		return "[]"
	}
	return j.of(v)
}

func (j *jsonColumns) object(v map[string]any) string {
	if v == nil {
		return "{}"
	}
	return j.of(v)
}

func (j *jsonColumns) orNull(set bool, v any) *string {
	if !set {
		return nil
	}
	s := j.of(v)
	return &s
}

// placeTx finds or makes a project and, when named, an experiment of it.
func placeTx(t *tx, project, experiment string) (projectID int64, experimentID *int64, err error) {
	if _, err := t.exec("INSERT INTO projects (name, created_ms) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", project, t.nowMS); err != nil {
		return 0, nil, err
	}
	if _, err := t.one("SELECT id FROM projects WHERE name = ?", []any{project}, &projectID); err != nil || experiment == "" {
		return projectID, nil, err
	}
	if _, err := t.exec("INSERT INTO experiments (project_id, name, created_ms) VALUES (?, ?, ?) ON CONFLICT (project_id, name) DO NOTHING",
		projectID, experiment, t.nowMS); err != nil {
		return 0, nil, err
	}
	_, err = t.one("SELECT id FROM experiments WHERE project_id = ? AND name = ?", []any{projectID, experiment}, &experimentID)
	return projectID, experimentID, err
}

// earlierJobTx finds the job that the same token submitted with the same key; another body is a conflict.
func earlierJobTx(t *tx, token, key, bodyHash string) (jobID int64, found bool, err error) {
	var hash string
	found, err = t.one("SELECT body_hash, job_id FROM idempotency WHERE token = ? AND key = ?", []any{token, key}, &hash, &jobID)
	if err == nil && found && hash != bodyHash {
		err = newProblem(codeConflict, "use a new key for a new job", "this %s was used for job %d with another body", headerIdempotency, jobID)
	}
	return jobID, found, err
}

func keepKeyTx(t *tx, token, key, bodyHash string, jobID int64) error {
	_, err := t.exec("INSERT INTO idempotency (token, key, body_hash, job_id, created_ms) VALUES (?, ?, ?, ?, ?)", token, key, bodyHash, jobID, t.nowMS)
	return err
}

// placeWarnings says what is known now that keeps a job from starting. It is queued all the same: a node may come.
func placeWarnings(c *conn, q *jobRequest) ([]string, error) {
	nodes, most, onNode := 0, 0, false
	err := c.each(`SELECT n.name, COUNT(s.id) FROM nodes n LEFT JOIN slots s ON s.node_id = n.id AND s.lane = 'gpu' AND s.health <> 'gone'
			AND s.memory_bytes >= ? AND instr(lower(s.model), lower(?)) > 0
		GROUP BY n.id`, []any{q.GPUMemoryBytes, q.GPUModel}, func(get func(...any) error) error {
		var name string
		var cards int
		if err := get(&name, &cards); err != nil {
			return err
		}
		nodes++
		onNode = onNode || name == q.Node
		if q.Node == "" || name == q.Node {
			most = max(most, cards)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	switch {
	case nodes == 0:
		return []string{"no node is known yet; the job waits for one: gpuctl up"}, nil
	case q.Node != "" && !onNode:
		return []string{fmt.Sprintf("no node is called %s; the job waits for it: gpuctl node list", q.Node)}, nil
	case *q.GPUs > most:
		want := shape{gpus: int64(*q.GPUs), model: q.GPUModel, memory: q.GPUMemoryBytes}
		text := "no node has " + want.cards()
		if most > 0 {
			text += fmt.Sprintf(" (the most is %d)", most)
		}
		return []string{text + "; the job waits. To run without a card: -g 0"}, nil
	}
	return nil, nil
}

// newestOf gives the newest visible run of job j.
const newestOf = "(SELECT r.id FROM runs r WHERE r.job_id = j.id AND " + runVisible + " ORDER BY r.attempt DESC LIMIT 1)"

const jobViewSQL = `SELECT j.id, j.uid, j.name, j.state, j.reason, j.detail, j.state_ms, j.argv, j.working_dir,
		(SELECT json_group_array(key ORDER BY key) FROM (SELECT key FROM json_each(j.env)
			UNION SELECT e.key FROM captures k, json_each(k.env) e WHERE k.job_id = j.id)), j.gpus, j.node, j.priority, j.max_attempts, j.max_time_s, j.grace_s,
		p.name, e.name, j.tags, j.config, j.submitted_by, j.created_ms, j.cancel_ms,
		w.id, w.exit_code, w.signal, w.started_ms, w.ended_ms, w.drained_ms, wn.name, cn.name,
		(SELECT json_group_array(j.id || '.' || r.attempt ORDER BY r.attempt) FROM runs r WHERE r.job_id = j.id AND ` + runVisible + `)
	FROM jobs j JOIN projects p ON p.id = j.project_id LEFT JOIN experiments e ON e.id = j.experiment_id
	LEFT JOIN runs w ON w.id = ` + newestOf + ` LEFT JOIN nodes wn ON wn.id = w.node_id
	LEFT JOIN runs cr ON cr.id = j.run_id LEFT JOIN nodes cn ON cn.id = cr.node_id `

// readJobViews reads the jobs that tail (WHERE ... ORDER BY ... LIMIT ...) selects of j.
func readJobViews(c *conn, tail string, args ...any) ([]jobView, error) {
	views := []jobView{}
	err := c.each(jobViewSQL+tail, args, func(get func(...any) error) error {
		views = append(views, jobView{})
		v := &views[len(views)-1]
		var stateMS int64
		var argv, envNames, tags, config, runs, constraint string
		var cancelMS, runID, runEndedMS, drainedMS *int64
		var newestNode, presentNode *string
		if err := get(&v.ID, &v.UID, &v.Name, &v.State, &v.Reason, &v.Detail, &stateMS, &argv, &v.WorkingDir, &envNames, &v.GPUs, &constraint,
			&v.Priority, &v.MaxAttempts, &v.MaxTimeS, &v.GraceS, &v.Project, &v.Experiment, &tags, &config, &v.SubmittedBy, &v.CreatedMS, &cancelMS,
			&runID, &v.ExitCode, &v.Signal, &v.StartedMS, &runEndedMS, &drainedMS, &newestNode, &presentNode, &runs); err != nil {
			return err
		}
		over := jobOver(v.State)
		v.Drained = runID == nil && over || drainedMS != nil
		v.EndedMS = jobEnded(over, stateMS, cancelMS, runEndedMS)
		v.Node = jobNode(v.State, constraint, presentNode, newestNode)
		return readColumns(jsonColumn{argv, &v.Argv}, jsonColumn{envNames, &v.EnvNames}, jsonColumn{tags, &v.Tags}, jsonColumn{config, &v.Config}, jsonColumn{runs, &v.Runs})
	})
	return views, err
}

// readJobView reads one job that is known to exist.
func readJobView(c *conn, id int64) (jobView, error) {
	views, err := readJobViews(c, "WHERE j.id = ?", id)
	if err == nil && len(views) != 1 {
		err = noSuchJob(fmt.Sprint(id))
	}
	if err != nil {
		return jobView{}, err
	}
	return views[0], nil
}

// jobEnded is when a job that is over ended: by its newest run, or, when that is from before the cancel or there is none, by the server.
func jobEnded(over bool, stateMS int64, cancelMS, runEndedMS *int64) *int64 {
	switch {
	case !over:
		return nil
	case runEndedMS == nil, cancelMS != nil && *runEndedMS < *cancelMS && stateMS >= *cancelMS:
		return &stateMS
	}
	return runEndedMS
}

// jobNode is where a job is, waits for, or was.
func jobNode(state, constraint string, present, newest *string) *string {
	switch {
	case present != nil:
		return present
	case constraint != "" && (state == jobQueued || newest == nil):
		return &constraint
	case state == jobQueued:
		return nil
	}
	return newest
}

// jobFilter selects jobs of a list; empty fields select all.
type jobFilter struct {
	states              []string
	node, project, name string // name: how it begins
	tag                 string
	page                listPage
}

// listJobs reads one page of jobs. next is the id to go on with, nil at the end.
func listJobs(c *conn, f jobFilter) (list[jobView], error) {
	var w listWhere
	from := "SELECT j.id FROM jobs j "
	switch len(f.states) {
	case 0:
	case 1: // jobs_state has them in order
		w.and("j.state = ?", f.states[0])
	default:
		js := jsonColumns{}
		w.and("j.state IN (SELECT value FROM json_each(?))", js.list(f.states))
	}
	if f.project != "" {
		w.and("j.project_id = (SELECT id FROM projects WHERE name = ?)", f.project)
	}
	if f.name != "" {
		w.and("j.name >= ? AND j.name < ?", f.name, f.name+"\U0010FFFF")
	}
	if f.tag != "" {
		w.and("EXISTS (SELECT 1 FROM json_each(j.tags) WHERE value = ?)", f.tag)
	}
	if f.node != "" {
		from += `LEFT JOIN runs w ON w.id = ` + newestOf + ` LEFT JOIN nodes wn ON wn.id = w.node_id
			LEFT JOIN runs cr ON cr.id = j.run_id LEFT JOIN nodes cn ON cn.id = cr.node_id `
		w.and("coalesce(cn.name, CASE WHEN j.state = 'QUEUED' OR wn.name IS NULL THEN j.node ELSE wn.name END) = ?", f.node)
	}
	order := "DESC"
	if f.page.after != nil {
		order = "ASC"
	}
	// First the ids, then the rows: of 100,000 queued jobs only those of the page are read whole.
	views, err := readJobViews(c, "WHERE j.id IN ("+from+w.paged("j.id", f.page)+") ORDER BY j.id "+order, w.args...)
	return pagedList(views, f.page, func(v jobView) int64 { return v.ID }), err
}

// listWhere collects the conditions of a list.
type listWhere struct {
	conds []string
	args  []any
}

func (w *listWhere) and(cond string, args ...any) {
	w.conds = append(w.conds, cond)
	w.args = append(w.args, args...)
}

// paged adds the page to the conditions and gives the tail of the statement.
func (w *listWhere) paged(id string, p listPage) string {
	order := " ORDER BY " + id + " DESC LIMIT ?"
	switch {
	case p.after != nil:
		w.and(id+" > ?", *p.after)
		order = " ORDER BY " + id + " LIMIT ?"
	case p.before != nil:
		w.and(id+" < ?", *p.before)
	}
	tail := order
	if len(w.conds) > 0 {
		tail = "WHERE " + strings.Join(w.conds, " AND ") + order
	}
	w.args = append(w.args, p.limit)
	return tail
}

// pagedList makes the answer of one page. Following with after always has a next; going back ends with a page that is not full.
func pagedList[T any](items []T, p listPage, id func(T) int64) list[T] {
	l := list[T]{Items: items, Next: p.after}
	if n := len(items); n > 0 && (p.after != nil || int64(n) == p.limit) {
		next := id(items[n-1])
		l.Next = &next
	}
	return l
}

// jsonColumn is a JSON column and where its value goes.
type jsonColumn struct {
	text string
	dest any
}

// readColumns decodes JSON columns; numbers in free-form values stay as they were written.
func readColumns(cols ...jsonColumn) error {
	for _, col := range cols {
		dec := json.NewDecoder(strings.NewReader(col.text))
		dec.UseNumber()
		if err := dec.Decode(col.dest); err != nil {
			return fmt.Errorf("read JSON column: %w", err)
		}
	}
	return nil
}
