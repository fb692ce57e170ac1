package main

// What a hello tells of runs, applied: the `tell` and the proof by boot_id of the fencing model. Called only for the node's newest session
// and the present incarnation, runs first, then the boot.

import (
	"fmt"
	"slices"
)

// tellsTx applies all runs of a hello and then the boot rule. It returns the uids that were told as over and are stored as over.
func (s *server) tellsTx(t *tx, node nodeNow, h helloRequest) (settled []string, err error) {
	listed := map[string]bool{}
	for _, tell := range h.Runs {
		listed[tell.UID] = true
		if err := s.tellTx(t, node, h, tell); err != nil {
			return nil, fmt.Errorf("apply what was told of run %s: %w", tell.UID, err)
		}
	}
	if err := s.bootTx(t, node, h, listed); err != nil {
		return nil, err
	}
	if err := listedTx(t, node.id, listed); err != nil {
		return nil, err
	}
	for _, tell := range h.Runs {
		if tell.Truth != tellEnded && tell.Truth != tellGone {
			continue
		}
		ok, err := isSettled(t.conn, tell.UID)
		if err != nil {
			return nil, err
		}
		if ok {
			settled = append(settled, tell.UID)
		}
	}
	return settled, nil
}

// isSettled reports whether nothing more is wanted of a run that was told as over.
func isSettled(c *conn, uid string) (bool, error) {
	r, found, err := loadRunByUID(c, uid)
	if err != nil || !found || r.state == runBurned {
		return err == nil, err
	}
	if r.state != runEnded {
		return false, nil
	}
	held, err := holdsSlot(c, r.id)
	return !held, err
}

// tellTx applies what is told of one run.
func (s *server) tellTx(t *tx, node nodeNow, h helloRequest, tell runTell) error {
	if tell.Truth == tellPending {
		return nil
	}
	r, found, err := loadRunByUID(t.conn, tell.UID)
	if err != nil {
		return err
	}
	if found && (r.jobID == nil || !r.onNode(node.id)) {
		s.log.Warn("a node told of a run that is not its own", keyNode, node.name, keyRun, tell.UID)
		return nil
	}
	if found {
		if tell, err = fillTell(t.conn, r, tell); err != nil || tell.UID == "" {
			return err
		}
	}
	if tell.Truth == tellEnded && len(tell.Unkillable) > 0 {
		tell.Truth = tellExiting // something of it lives: the slot stays held
	}
	known := found && r.state != runOffered && r.state != runBurned
	switch {
	case tell.Truth == tellGone:
		if !found || r.state == runBurned {
			return nil
		}
		if r.state == runEnded {
			return s.freeFencedTx(t, r)
		}
		if r.toldIn != "" || r.state == runAlive || r.state == runExiting { // it lived once: its end is not known
			return s.endRunTx(t, r, runEnd, outcome{reason: reasonSupervisorLost, detail: "the node has nothing left of it"})
		}
		return s.burnRunTx(t, r, cause{
			ev: jobOfferWithdrawn, actor: actorAgent,
			message: fmt.Sprintf("run %s never started: its node burned it", r.label()),
		})
	case !known:
		if !isUID(tell.JobUID) {
			return addEventTx(t, newEvent{
				typ: "ORPHAN_RUN", severity: sevWarning, nodeID: &node.id, actor: actorAgent,
				message: fmt.Sprintf("node %s has a run %s whose job it cannot name", node.name, tell.UID), dedup: "orphan:" + tell.UID,
			})
		}
		if err := s.adoptTx(t, node, h, tell); err != nil {
			return err
		}
	case tell.Truth == tellEnded && runGranted(r.state):
		if err := s.endRunTx(t, r, runEnd, outcomeOf(*tell.Exit)); err != nil {
			return err
		}
	case tell.Truth == tellEnded:
		if err := s.freeFencedTx(t, r); err != nil {
			return err
		}
	case runGranted(r.state):
		if err := s.stillAliveTx(t, r, h, tell); err != nil {
			return err
		}
	}
	if r, found, err = loadRunByUID(t.conn, tell.UID); err != nil || !found {
		return err
	}
	return tellLeftoversTx(t, r, tell)
}

// fillTell completes what a node could not read, and refuses (empty uid) what names another job than the run's.
func fillTell(c *conn, r runNow, tell runTell) (runTell, error) {
	var uid string
	if _, err := c.one("SELECT uid FROM jobs WHERE id = ?", []any{*r.jobID}, &uid); err != nil {
		return tell, err
	}
	if tell.JobUID == "" {
		tell.JobUID = uid
	}
	if tell.JobUID != uid {
		tell.UID = ""
	}
	if tell.Attempt == 0 && r.attempt != nil {
		tell.Attempt = *r.attempt
	}
	if tell.Grant == 0 && r.grantNo != nil {
		tell.Grant = *r.grantNo
	}
	return tell, nil
}

// stillAliveTx notes that a granted run lives, or that its leader ended while its tree lives.
func (s *server) stillAliveTx(t *tx, r runNow, h helloRequest, tell runTell) error {
	ev := runToldLive
	if tell.Truth == tellExiting {
		ev = runToldExit
	}
	m := runMove{ev: ev, actor: actorAgent}
	if _, ok := nextState(runTransitions, ev, r.state); ok {
		if err := moveRunTx(t, r.id, m); err != nil {
			return err
		}
	}
	if err := s.noteAliveTx(t, r, h, tell); err != nil {
		return err
	}
	if tell.Truth == tellExiting && tell.Exit != nil {
		o := outcomeOf(*tell.Exit)
		if _, err := t.exec("UPDATE runs SET exit_code = ?, signal = ? WHERE id = ?", o.code, o.signal, r.id); err != nil {
			return err
		}
	}
	j, present, err := jobOfPresentRun(t.conn, r)
	if err != nil {
		return err
	}
	if present && j.state == jobLost {
		return moveJobTx(t, j.id, jobMove{
			ev: jobHeard, actor: actorAgent,
			message: fmt.Sprintf("job %d (%s): its node is back and run %s lives", j.id, j.name, r.label()),
		})
	}
	return nil
}

// noteAliveTx stores in which incarnation and boot a run was told alive, and since when it runs. It writes only what changed.
func (s *server) noteAliveTx(t *tx, r runNow, h helloRequest, tell runTell) error {
	if _, err := t.exec(`UPDATE runs SET told_incarnation = ?, boot_id = ? WHERE id = ? AND (told_incarnation <> ? OR boot_id <> ?)`,
		s.inc.current(), h.BootID, r.id, s.inc.current(), h.BootID); err != nil {
		return err
	}
	if tell.StartedMS <= 0 || r.startedMS != nil {
		return nil
	}
	_, err := t.exec("UPDATE runs SET started_ms = ? WHERE id = ?", tell.StartedMS-(h.NowMS-t.nowMS), r.id)
	if err == nil && r.jobID != nil {
		t.ring(bellJob(*r.jobID))
	}
	return err
}

// freeFencedTx frees the slots of a run that was ended by an operator (or given up) once its node says that it is over.
func (s *server) freeFencedTx(t *tx, r runNow) error {
	if err := freeSlotsTx(t, r.id); err != nil {
		return err
	}
	return syncCommandsTx(t, r.id)
}

// bootTx is the proof by a new boot: what an earlier boot of this machine ran and this hello does not list is over. The session and the
// fingerprint were checked before.
func (s *server) bootTx(t *tx, node nodeNow, h helloRequest, listed map[string]bool) error {
	if h.BootID == "" || h.BootID == node.bootID {
		return nil
	}
	rs, err := loadRuns(t.conn, `node_id = ? AND boot_id <> ? AND (state IN ('STARTING', 'ALIVE', 'EXITING', 'LOST')
		OR state = 'ENDED' AND id IN (SELECT run_id FROM slots WHERE run_id IS NOT NULL)) ORDER BY id`, node.id, h.BootID)
	if err != nil {
		return err
	}
	for _, r := range rs {
		switch {
		case listed[r.uid]:
		case runGranted(r.state):
			err = s.endRunTx(t, r, runEnd, outcome{reason: reasonNodeReboot, detail: "the machine was started anew"})
		default:
			var held bool
			if held, err = holdsSlot(t.conn, r.id); err == nil && held {
				err = s.freeFencedTx(t, r)
			}
		}
		if err != nil {
			return err
		}
	}
	_, err = t.exec("UPDATE nodes SET boot_id = ? WHERE id = ?", h.BootID, node.id)
	return err
}

// listedTx marks which granted runs the hello named. One that it omits is asked about: absence proves nothing.
func listedTx(t *tx, nodeID int64, listed map[string]bool) error {
	rs, err := loadRuns(t.conn, "node_id = ? AND state IN ('STARTING', 'ALIVE', 'EXITING', 'LOST')", nodeID)
	if err != nil {
		return err
	}
	for _, r := range rs {
		if r.listed == listed[r.uid] {
			continue
		}
		if _, err := t.exec("UPDATE runs SET listed = ? WHERE id = ?", listed[r.uid], r.id); err != nil {
			return err
		}
		if err := syncCommandsTx(t, r.id); err != nil {
			return err
		}
	}
	return nil
}

// checkTells refuses a hello that contradicts itself before anything is applied, and gives an end without exit its "unknown".
func checkTells(h *helloRequest) error {
	truths := []string{tellPending, tellAlive, tellExiting, tellEnded, tellGone}
	for i := range h.Runs {
		r := &h.Runs[i]
		if !isUID(r.UID) || r.JobUID != "" && !isUID(r.JobUID) {
			return newProblem(codeInvalid, "", "runs[%d]: uid or job_uid is not 32 hex digits", i)
		}
		if !slices.Contains(truths, r.Truth) {
			return newProblem(codeInvalid, "", "runs[%d]: truth %q is not known", i, r.Truth)
		}
		if r.Truth == tellEnded && r.Exit == nil {
			r.Exit = &exitInfo{Code: -1}
		}
	}
	return nil
}
