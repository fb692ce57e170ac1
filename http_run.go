package main

// Runs over HTTP: list and show.

import (
	"net/http"
	"time"
)

func (s *server) getRuns(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r, "job", "state", "node", "project", "limit", "after", "before")
	f := runFilter{states: q.words("state", runStates), node: q.text("node"), project: q.text("project"), page: q.page()}
	if q.err != nil {
		return q.err
	}
	var runs list[runView]
	if err := s.store.read(r.Context(), func(c *conn) (err error) {
		if job := q.text("job"); job != "" {
			if f.jobID, err = resolveJob(c, job); err != nil {
				return err
			}
		}
		if runs, err = listRuns(c, f); err != nil {
			return err
		}
		for i := range runs.Items {
			if err := s.addProgress(c, &runs.Items[i]); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, runs)
}

func (s *server) getRun(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	var view runView
	if err := s.store.read(r.Context(), func(c *conn) error {
		id, err := resolveRun(c, r.PathValue("run"))
		if err == nil {
			view, err = readRunView(c, id)
		}
		if err == nil {
			err = s.addProgress(c, &view)
		}
		return err
	}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, view)
}

// addProgress says how far a run is. What is not finished of its log is known to this process only.
func (s *server) addProgress(c *conn, v *runView) (err error) {
	v.Progress, err = readProgress(c, v.UID, s.liveAgain, time.Now().UnixMilli())
	return err
}
