package main

// Checkpoints over HTTP: of one run, and one.

import "net/http"

func (s *server) getRunCheckpoints(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r, "state", "limit", "after", "before", "wait")
	wait := q.wait()
	f := checkpointFilter{states: q.words("state", checkpointStates()), page: q.page()}
	if wait > 0 && f.page.after == nil {
		q.refuse("give after too: the next of the answer before", "wait needs after")
	}
	if q.err != nil {
		return q.err
	}
	if err := s.store.read(r.Context(), func(c *conn) (err error) {
		f.runID, err = resolveRun(c, r.PathValue("run"))
		return err
	}); err != nil {
		return err
	}
	var answer list[checkpointView]
	err := s.longPoll(r, wait, func() []string { return []string{bellRun(f.runID)} }, func() (bool, error) {
		err := s.store.read(r.Context(), func(c *conn) (err error) {
			answer, err = listCheckpoints(c, f)
			return err
		})
		return len(answer.Items) > 0, err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, answer)
}

func (s *server) getCheckpoint(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	id, err := checkpointID(r.PathValue("id"))
	if err != nil {
		return err
	}
	var view checkpointView
	if err := s.store.read(r.Context(), func(c *conn) (err error) {
		view, err = readCheckpointView(c, id)
		return err
	}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, view)
}
