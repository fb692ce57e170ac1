package main

// Offers: writing one, burning one that nobody claimed, granting or denying a claim, and what a refusal leads to.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// offerTx writes a planned offer: run, slots, start command, DISPATCHING. The node is rung after the commit.
func (s *server) offerTx(t *tx, p offerPlan) error {
	start := startPayload{RunUID: newUID(), JobID: p.jobID, Slots: []slotRef{}}
	var ids []int64
	for _, f := range p.slots {
		start.Slots = append(start.Slots, slotRef{Lane: f.lane, Idx: f.idx, UUID: f.uuid})
		ids = append(ids, f.id)
	}
	var argv, env, watch, tb string
	if _, err := t.one("SELECT uid, name, argv, working_dir, env, venv, conda, grace_s, max_time_s, signal_before_s, watch, tb FROM jobs WHERE id = ?",
		[]any{p.jobID}, &start.JobUID, &start.Name, &argv, &start.WorkingDir, &env, &start.Venv, &start.Conda, &start.GraceS, &start.MaxTimeS,
		&start.SignalBeforeS, &watch, &tb); err != nil {
		return err
	}
	if err := readColumns(jsonColumn{argv, &start.Argv}, jsonColumn{env, &start.Env}, jsonColumn{watch, &start.Watch}, jsonColumn{tb, &start.TB}); err != nil {
		return fmt.Errorf("read job %d: %w", p.jobID, err)
	}
	var err error
	if start.Env, err = withCapture(t.conn, p.jobID, p.node.id, start.Env); err != nil {
		return err
	}
	whole, err := json.Marshal(start.Env)
	if err != nil {
		return err
	}
	slots, err := json.Marshal(start.Slots)
	if err != nil {
		return err
	}
	payload, err := json.Marshal(start)
	if err != nil {
		return err
	}
	run, err := t.insert(`INSERT INTO runs (uid, job_id, source, name, node_id, state, argv, env, working_dir, slots, offered_ms, config, project_id, experiment_id)
		SELECT ?, id, 'job', name, ?, 'OFFERED', argv, ?, working_dir, ?, ?, config, project_id, experiment_id FROM jobs WHERE id = ?`,
		start.RunUID, p.node.id, string(whole), string(slots), t.nowMS, p.jobID)
	if err != nil {
		return fmt.Errorf("write run: %w", err)
	}
	if err := holdSlotsTx(t, run, ids); err != nil {
		return err
	}
	if _, err := t.exec("INSERT INTO commands (node_id, kind, run_id, payload, created_ms) VALUES (?,'start',?,?,?)",
		p.node.id, run, string(payload), t.nowMS); err != nil {
		return fmt.Errorf("write start command: %w", err)
	}
	t.ring(bellNode(p.node.id))
	return moveJobTx(t, p.jobID, jobMove{
		ev: jobDispatch, runID: &run, actor: actorScheduler,
		message: fmt.Sprintf("job %d (%s) is offered to %s", p.jobID, start.Name, p.node.name),
	})
}

// expireOfferTx burns an offer that nobody claimed in time. No node is excluded for it; the third in a row ends the job.
func (s *server) expireOfferTx(t *tx, r runNow) error {
	j, err := loadJob(t.conn, *r.jobID)
	if err != nil {
		return err
	}
	name, err := nodeName(t.conn, r.nodeID)
	if err != nil {
		return err
	}
	c := cause{
		ev: jobOfferExpired, actor: actorServer,
		message: fmt.Sprintf("job %d (%s): %s did not claim the offer in time; it is queued again", j.id, j.name, name),
	}
	if j.offerFailed+1 >= offersMost {
		c.ev, c.reason = jobOfferFailed, reasonDispatchFailed
		c.detail = fmt.Sprintf("%d offers in a row were not claimed, the last one by %s", offersMost, name)
		c.message = fmt.Sprintf("job %d (%s): %s", j.id, j.name, c.detail)
	}
	if _, err := t.exec("UPDATE jobs SET offer_failures = offer_failures + 1 WHERE id = ?", j.id); err != nil {
		return err
	}
	return s.burnRunTx(t, r, c)
}

// claimTx answers a claim. A grant is given for an offer of this node, and repeated only to the same instance while the run is STARTING.
// grant is its number, which must be in the incarnation file before the answer leaves.
func (s *server) claimTx(t *tx, nodeID int64, q claimRequest) (a claimAnswer, err error) {
	a = claimAnswer{Gpuctl: 1, Verdict: verdictDeny, Incarnation: s.inc.current()}
	_, _, rec, err := s.inRecovery(t.conn)
	if err != nil {
		return a, err
	}
	if rec || q.Incarnation != a.Incarnation {
		a.Verdict = verdictLater
		return a, nil
	}
	r, found, err := loadRunByUID(t.conn, q.UID)
	if err != nil || !found || !r.onNode(nodeID) || r.jobID == nil {
		return a, err
	}
	if q.Refuse != nil {
		if r.state != runOffered {
			return a, nil
		}
		return a, s.refuseTx(t, r, *q.Refuse)
	}
	if r.state == runOffered {
		if err := s.grantTx(t, r, q); err != nil {
			return a, err
		}
		if r, err = loadRun(t.conn, r.id); err != nil {
			return a, err
		}
	}
	if r.state == runStarting && r.grantInstance == q.Instance {
		a.Verdict, a.Run = verdictGrant, r.label()
		a.JobID, a.Attempt, a.Grant = *r.jobID, *r.attempt, *r.grantNo
	}
	return a, nil
}

// grantTx makes an offer a run: attempt and grant number, RUNNING, its log source open.
func (s *server) grantTx(t *tx, r runNow, q claimRequest) error {
	var attempt, grant int64
	if _, err := t.one(`SELECT max(j.attempts, (SELECT COALESCE(max(attempt), 0) FROM runs WHERE job_id = j.id)) + 1 FROM jobs j WHERE id = ?`,
		[]any{*r.jobID}, &attempt); err != nil {
		return err
	}
	if _, err := t.exec("UPDATE server_state SET grant_no = grant_no + 1 WHERE id = 1"); err != nil {
		return err
	}
	if _, err := t.one("SELECT grant_no FROM server_state WHERE id = 1", nil, &grant); err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE runs SET attempt = ?, grant_no = ?, grant_instance = ?, boot_id = ?, granted_ms = ?, listed = 1 WHERE id = ?`,
		attempt, grant, q.Instance, q.BootID, t.nowMS, r.id); err != nil {
		return fmt.Errorf("grant run %d: %w", r.id, err)
	}
	if _, err := t.exec("UPDATE jobs SET attempts = ?, offer_failures = 0 WHERE id = ?", attempt, *r.jobID); err != nil {
		return err
	}
	if err := moveRunTx(t, r.id, runMove{ev: runGrant, actor: actorAgent, data: map[string]any{"grant": grant, "attempt": attempt}}); err != nil {
		return err
	}
	if err := openLogTx(t, r); err != nil {
		return err
	}
	name, err := nodeName(t.conn, r.nodeID)
	if err != nil {
		return err
	}
	if err := moveJobTx(t, *r.jobID, jobMove{
		ev: jobGrant, actor: actorAgent,
		message: fmt.Sprintf("job %d (%s): attempt %d starts on %s", *r.jobID, r.name, attempt, name),
	}); err != nil {
		return err
	}
	return syncCommandsTx(t, r.id)
}

// refuseTx takes a node's refusal: the job is not offered to it again until a retry. With no fitting node left the job has failed, with
// one line a node.
func (s *server) refuseTx(t *tx, r runNow, q claimRefuse) error {
	name, err := nodeName(t.conn, r.nodeID)
	if err != nil {
		return err
	}
	if _, err := t.exec(`INSERT INTO job_exclusions (job_id, node_id, why, detail, at_ms) VALUES (?,?,?,?,?)
		ON CONFLICT (job_id, node_id) DO UPDATE SET why = excluded.why, detail = excluded.detail, at_ms = excluded.at_ms`,
		*r.jobID, *r.nodeID, q.Why, q.Detail, t.nowMS); err != nil {
		return fmt.Errorf("exclude node: %w", err)
	}
	j, err := loadJob(t.conn, *r.jobID)
	if err != nil {
		return err
	}
	if _, err := t.exec("UPDATE jobs SET offer_failures = 0 WHERE id = ?", j.id); err != nil { // it did answer
		return err
	}
	lines, left, err := refusals(t.conn, j)
	if err != nil {
		return err
	}
	c := cause{ev: jobRefused, actor: actorAgent, message: fmt.Sprintf("job %d (%s): %s refused it: %s", j.id, j.name, name, q.Detail)}
	if left == 0 {
		c.ev, c.reason, c.detail = jobNoNodeLeft, reasonStartFailed, strings.Join(lines, "\n")
	}
	return s.burnRunTx(t, r, c)
}

// refusals gives one line for each node that refused a job, and how many fitting nodes are left.
func refusals(c *conn, j jobNow) (lines []string, left int, err error) {
	refused := map[int64]bool{}
	err = c.each(`SELECT x.node_id, n.name, x.why, x.detail FROM job_exclusions x JOIN nodes n ON n.id = x.node_id WHERE x.job_id = ? ORDER BY n.name`,
		[]any{j.id}, func(get func(...any) error) error {
			var id int64
			var name, why, detail string
			if err := get(&id, &name, &why, &detail); err != nil {
				return err
			}
			refused[id] = true
			lines = append(lines, fmt.Sprintf("%s: %s (%s)", name, detail, why))
			return nil
		})
	if err != nil {
		return nil, 0, err
	}
	fitting, err := fittingNodes(c, j)
	left = len(slices.DeleteFunc(fitting, func(n nodeRef) bool { return refused[n.id] }))
	return lines, left, err
}

// nodeRef names a node.
type nodeRef struct {
	id   int64
	name string
}

// fittingNodes are the nodes that have what a job asks for, busy or not, reachable or not.
func fittingNodes(c *conn, j jobNow) ([]nodeRef, error) {
	h := j.shape()
	_, want := h.lane()
	var out []nodeRef
	counts := map[int64]int{}
	err := c.each(`SELECT n.id, n.name, s.lane, s.model, s.memory_bytes FROM nodes n JOIN slots s ON s.node_id = n.id WHERE s.health <> 'gone' ORDER BY n.name`,
		nil, func(get func(...any) error) error {
			var n nodeRef
			var f freeSlot
			if err := get(&n.id, &n.name, &f.lane, &f.model, &f.memory); err != nil {
				return err
			}
			if !h.fits(n.name, f) {
				return nil
			}
			if counts[n.id]++; counts[n.id] == want {
				out = append(out, n)
			}
			return nil
		})
	return out, err
}

func (j jobNow) shape() shape {
	return shape{gpus: j.gpus, node: j.node, model: j.gpuModel, memory: j.gpuMemory}
}

// failRefusedTx ends queued jobs whose last fitting node has refused (the others left since).
func (s *server) failRefusedTx(t *tx) error {
	var ids []int64
	if err := t.each("SELECT DISTINCT x.job_id FROM job_exclusions x CROSS JOIN jobs j ON j.id = x.job_id WHERE j.state = 'QUEUED'", nil,
		func(get func(...any) error) error {
			var id int64
			err := get(&id)
			ids = append(ids, id)
			return err
		}); err != nil {
		return err
	}
	for _, id := range ids {
		j, err := loadJob(t.conn, id)
		if err != nil {
			return err
		}
		lines, left, err := refusals(t.conn, j)
		if err != nil {
			return err
		}
		if left > 0 {
			continue
		}
		if fitting, err := fittingNodes(t.conn, j); err != nil {
			return err
		} else if len(fitting) == 0 {
			continue // nobody has what it asks for: it waits, and job why says so
		}
		if err := moveJobTx(t, id, jobMove{
			ev: jobNoNodeLeft, reason: reasonStartFailed, detail: strings.Join(lines, "\n"), actor: actorScheduler,
			message: fmt.Sprintf("job %d (%s): every node that could run it has refused", id, j.name),
		}); err != nil {
			return err
		}
	}
	return nil
}

func nodeName(c *conn, id *int64) (string, error) {
	if id == nil {
		return "", nil
	}
	var name string
	_, err := c.one("SELECT name FROM nodes WHERE id = ?", []any{*id}, &name)
	return name, err
}
