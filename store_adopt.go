package main

// Runs that a node tells and this database does not know, or knows only as offered or burned: a forgotten timeline (`adopt` of the fencing
// model). A live process wins over any row that has not ended; among ended runs of a job the highest grant number decides. Jobs are
// matched by uid, never by number.

import (
	"encoding/json"
	"fmt"
)

// defaultProject holds jobs of which no project is known.
const defaultProject = "default"

// adoptTx takes over a run that was told as alive, exiting or ended. node is the one that told it.
func (s *server) adoptTx(t *tx, node nodeNow, h helloRequest, tell runTell) error {
	j, err := s.adoptedJobTx(t, tell)
	if err != nil {
		return err
	}
	var newest int64 // grant number of the newest run that this database knows of the job
	if _, err := t.one("SELECT COALESCE(max(grant_no), 0) FROM runs WHERE job_id = ?", []any{j.id}, &newest); err != nil {
		return err
	}
	r, err := adoptedRunTx(t, node, j, tell)
	if err != nil {
		return err
	}
	var other *runNow // the run that the job has now, when it is not this one
	if j.runID != nil && *j.runID != r.id {
		o, err := loadRun(t.conn, *j.runID)
		if err != nil {
			return err
		}
		other = &o
	}
	otherLives := other != nil && runGranted(other.state) && other.toldIn == s.inc.current()
	if tell.Truth != tellEnded {
		return s.adoptLiveTx(t, node, h, j, r, other, otherLives, tell)
	}
	o := outcomeOf(*tell.Exit)
	if err := s.closeRunTx(t, r, runAdoptEnd, o); err != nil {
		return err
	}
	if !(j.runID != nil && *j.runID == r.id) && (tell.Grant <= newest || otherLives) {
		return syncCommandsTx(t, r.id)
	}
	if j, err = s.replaceRunTx(t, j, other); err != nil {
		return err
	}
	if _, err := t.exec("UPDATE jobs SET attempts = max(attempts, ?) WHERE id = ?", *r.attempt, j.id); err != nil {
		return err
	}
	if j, err = loadJob(t.conn, j.id); err != nil {
		return err
	}
	if err := s.applyResultTx(t, j, r, o, jobEnds{jobAdoptSucceed, jobAdoptFail, jobAdoptRequeue}); err != nil {
		return err
	}
	if other != nil {
		if err := syncCommandsTx(t, other.id); err != nil { // granted, but not this job's run any more: stop it
			return err
		}
	}
	return syncCommandsTx(t, r.id)
}

// adoptLiveTx makes a live run its job's run, whatever the row says, unless another one was told alive already: then this one was given up.
func (s *server) adoptLiveTx(t *tx, node nodeNow, h helloRequest, j jobNow, r runNow, other *runNow, otherLives bool, tell runTell) error {
	if err := s.takeSlotsTx(t, node, r, tell.Slots); err != nil {
		return err
	}
	if otherLives {
		if err := moveRunTx(t, r.id, runMove{
			ev: runAdoptEnd, actor: actorAgent,
			message: fmt.Sprintf("run %s was given up: its job has another live run; it is being stopped", r.label()),
		}); err != nil {
			return err
		}
		if _, err := t.exec("UPDATE runs SET fenced = 1, reason = ?, ended_ms = ? WHERE id = ?", reasonFenced, t.nowMS, r.id); err != nil {
			return err
		}
		return syncCommandsTx(t, r.id)
	}
	j, err := s.replaceRunTx(t, j, other)
	if err != nil {
		return err
	}
	if err := moveRunTx(t, r.id, runMove{
		ev: runAdopt, actor: actorAgent,
		message: fmt.Sprintf("run %s lives on %s: adopted", r.label(), node.name),
	}); err != nil {
		return err
	}
	if err := s.noteAliveTx(t, r, h, tell); err != nil {
		return err
	}
	if _, ok := nextState(jobTransitions, jobAdopt, j.state); ok {
		err = moveJobTx(t, j.id, jobMove{ev: jobAdopt, runID: &r.id, actor: actorAgent})
	} else { // RUNNING or CANCELLING already
		_, err = t.exec("UPDATE jobs SET run_id = ? WHERE id = ?", r.id, j.id)
	}
	if err != nil {
		return err
	}
	if _, err := t.exec("UPDATE jobs SET attempts = max(attempts, ?) WHERE id = ?", *r.attempt, j.id); err != nil {
		return err
	}
	if other != nil {
		if err := syncCommandsTx(t, other.id); err != nil {
			return err
		}
	}
	return syncCommandsTx(t, r.id)
}

// replaceRunTx frees a job for an adopted run: an offer in its place is withdrawn, and a finished job is no longer cancelled (a newer run
// proves a retry that was forgotten).
func (s *server) replaceRunTx(t *tx, j jobNow, other *runNow) (jobNow, error) {
	if other != nil {
		now, err := loadRun(t.conn, other.id) // it may have lost its offer with the slot already
		if err != nil {
			return j, err
		}
		*other = now
	}
	if other != nil && other.state == runOffered {
		if err := s.burnRunTx(t, *other, cause{
			ev: jobOfferWithdrawn, actor: actorServer,
			message: fmt.Sprintf("job %d: the offer is withdrawn, an older run was found", j.id),
		}); err != nil {
			return j, err
		}
	}
	if jobOver(j.state) && j.cancelMS != nil {
		if _, err := t.exec("UPDATE jobs SET cancel_ms = NULL WHERE id = ?", j.id); err != nil {
			return j, err
		}
	}
	return loadJob(t.conn, j.id)
}

// takeSlotsTx gives an adopted live run the slots that it names. A live process wins: an offer there is burned, any other holder loses
// the slot (it is asked about, and cannot free what it does not hold).
func (s *server) takeSlotsTx(t *tx, node nodeNow, r runNow, slots []slotRef) error {
	for _, ref := range slots {
		var id int64
		var holder *int64
		found, err := t.one("SELECT id, run_id FROM slots WHERE node_id = ? AND lane = ? AND uuid = ?", []any{node.id, ref.Lane, ref.UUID}, &id, &holder)
		if err != nil {
			return err
		}
		if !found || holder != nil && *holder == r.id {
			continue
		}
		if holder != nil {
			h, err := loadRun(t.conn, *holder)
			if err != nil {
				return err
			}
			if h.state == runOffered {
				if err := s.burnRunTx(t, h, cause{
					ev: jobOfferWithdrawn, actor: actorServer,
					message: "the offer is withdrawn: another run lives on its card",
				}); err != nil {
					return err
				}
			}
			if _, err := t.exec("UPDATE slots SET run_id = NULL, held_ms = NULL WHERE id = ?", id); err != nil {
				return err
			}
		}
		if err := holdSlotsTx(t, r.id, []int64{id}); err != nil {
			return err
		}
	}
	return nil
}

// adoptedJobTx finds the job by its uid, or makes it from what the node tells, under its old number when that is free.
func (s *server) adoptedJobTx(t *tx, tell runTell) (jobNow, error) {
	var id int64
	found, err := t.one("SELECT id FROM jobs WHERE uid = ?", []any{tell.JobUID}, &id)
	if err != nil {
		return jobNow{}, err
	}
	if !found {
		var want *int64
		if tell.JobID > 0 {
			taken, err := t.one("SELECT 1 FROM jobs WHERE id = ?", []any{tell.JobID}, new(int64))
			if err != nil {
				return jobNow{}, err
			}
			if !taken {
				want = &tell.JobID
			}
		}
		project, err := foundProjectTx(t)
		if err != nil {
			return jobNow{}, err
		}
		argv := tell.Argv
		if len(argv) == 0 {
			argv = []string{"unknown"}
		}
		text, err := json.Marshal(argv)
		if err != nil {
			return jobNow{}, err
		}
		name := tell.Name
		if name == "" {
			name = "run-" + tell.UID[:8]
		}
		gpus := 0
		for _, ref := range tell.Slots {
			if ref.Lane == laneGPU {
				gpus++
			}
		}
		if id, err = t.insert(`INSERT INTO jobs (id, uid, name, state, state_ms, argv, working_dir, gpus, project_id, submitted_by, created_ms)
			VALUES (?,?,?,'QUEUED',?,?,?,?,?,?,?)`, want, tell.JobUID, name, t.nowMS, string(text), tell.WorkingDir, gpus, project,
			actorAgent, t.nowMS); err != nil {
			return jobNow{}, fmt.Errorf("make the job of run %s: %w", tell.UID, err)
		}
		if err := addEventTx(t, newEvent{
			typ: "JOB_FOUND", severity: sevNotice, jobID: &id, actor: actorAgent,
			message: fmt.Sprintf("job %d (%s) was found on a node; its command and folder are known, its environment is not", id, name),
		}); err != nil {
			return jobNow{}, err
		}
	}
	return loadJob(t.conn, id)
}

// adoptedRunTx finds or makes the row of an adopted run, with the attempt and grant number that its node tells.
func adoptedRunTx(t *tx, node nodeNow, j jobNow, tell runTell) (runNow, error) {
	r, found, err := loadRunByUID(t.conn, tell.UID)
	if err != nil {
		return r, err
	}
	if !found {
		argv, err := json.Marshal(append([]string{}, tell.Argv...))
		if err != nil {
			return r, err
		}
		slots, err := json.Marshal(append([]slotRef{}, tell.Slots...))
		if err != nil {
			return r, err
		}
		id, err := t.insert(`INSERT INTO runs (uid, job_id, source, name, node_id, state, argv, working_dir, slots, config, project_id, experiment_id)
			SELECT ?, id, 'job', name, ?, 'OFFERED', ?, ?, ?, config, project_id, experiment_id FROM jobs WHERE id = ?`,
			tell.UID, node.id, string(argv), tell.WorkingDir, string(slots), j.id)
		if err != nil {
			return r, fmt.Errorf("make run %s: %w", tell.UID, err)
		}
		r.id = id
	}
	attempt, grant := &tell.Attempt, &tell.Grant
	if taken, err := t.one("SELECT 1 FROM runs WHERE job_id = ? AND attempt = ? AND id <> ?", []any{j.id, tell.Attempt, r.id}, new(int64)); err != nil {
		return r, err
	} else if taken || tell.Attempt < 1 { // two timelines gave the same number
		var next int64
		if _, err := t.one("SELECT COALESCE(max(attempt), 0) + 1 FROM runs WHERE job_id = ?", []any{j.id}, &next); err != nil {
			return r, err
		}
		attempt = &next
	}
	if taken, err := t.one("SELECT 1 FROM runs WHERE grant_no = ? AND id <> ?", []any{tell.Grant, r.id}, new(int64)); err != nil {
		return r, err
	} else if taken || tell.Grant < 1 {
		grant = nil
	}
	if _, err := t.exec("UPDATE runs SET attempt = ?, grant_no = COALESCE(?, grant_no), granted_ms = COALESCE(granted_ms, ?) WHERE id = ?",
		attempt, grant, t.nowMS, r.id); err != nil {
		return r, fmt.Errorf("number run %s: %w", tell.UID, err)
	}
	if r, err = loadRun(t.conn, r.id); err != nil {
		return r, err
	}
	return r, openAdoptedLogTx(t, r)
}

// openAdoptedLogTx opens the log of an adopted run anew: a burned row's was closed empty.
func openAdoptedLogTx(t *tx, r runNow) error {
	if err := openLogTx(t, r); err != nil {
		return err
	}
	_, err := t.exec("UPDATE cursors SET done = 0, incomplete = 0, updated_ms = ? WHERE run_id = ? AND off = 0 AND done = 1", t.nowMS, r.id)
	return err
}

// foundProjectTx is the project of jobs that only a node knows.
func foundProjectTx(t *tx) (int64, error) {
	if _, err := t.exec("INSERT INTO projects (name, created_ms) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", defaultProject, t.nowMS); err != nil {
		return 0, fmt.Errorf("make project %s: %w", defaultProject, err)
	}
	var id int64
	_, err := t.one("SELECT id FROM projects WHERE name = ?", []any{defaultProject}, &id)
	return id, err
}
