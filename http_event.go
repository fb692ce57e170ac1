package main

// Events over HTTP: the stream that everything else can be followed by.

import "net/http"

func (s *server) getEvents(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r, "type", "severity", "run", "job", "limit", "after", "before", "wait")
	wait := q.wait()
	f := eventFilter{types: eventTypes(q.text("type")), page: q.page()}
	if words := q.words("severity", eventSeverities); len(words) == 1 {
		f.severity = words[0]
	} else if len(words) > 1 {
		q.refuse("give the lowest one", "severity has more than one word")
	}
	if wait > 0 && f.page.after == nil {
		q.refuse("give after too: the next of the answer before", "wait needs after")
	}
	if q.err != nil {
		return q.err
	}
	if err := s.store.read(r.Context(), func(c *conn) (err error) {
		if run := q.text("run"); run != "" {
			if f.runID, err = resolveRun(c, run); err != nil {
				return err
			}
		}
		if job := q.text("job"); job != "" {
			f.jobID, err = resolveJob(c, job)
		}
		return err
	}); err != nil {
		return err
	}
	var answer list[eventView]
	err := s.longPoll(r, wait, func() []string { return []string{bellEvents} }, func() (bool, error) {
		err := s.store.read(r.Context(), func(c *conn) (err error) {
			answer, err = listEvents(c, f)
			return err
		})
		return len(answer.Items) > 0, err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, answer)
}
