package main

// Jobs over HTTP: submit, list, show, why, and the verbs. What a verb does to a job is decided where states are changed, not here.

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	idempotencyMost = 200 // characters of a key
	whyMost         = 20  // queued jobs of one list that get a wait_reason: each costs a look at the queue
)

func (s *server) postJob(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	var req jobRequest
	if err := decodeJSON(r, bodyMaxBytes, &req); err != nil {
		return err
	}
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	sum, err := json.Marshal(req) // as decoded: white space and the order of fields make no other request
	if err != nil {
		return fmt.Errorf("hash request: %w", err)
	}
	hash := sha256.Sum256(sum)
	bodyHash := hex.EncodeToString(hash[:])
	warnings, err := checkSubmit(&req)
	if err != nil {
		return err
	}
	by := callerOf(r).name
	var id int64
	status, err := s.writeAs(r, func(t *tx) (int, error) {
		if key != "" {
			var found bool
			var err error
			if id, found, err = earlierJobTx(t, by, key, bodyHash); err != nil || found {
				return http.StatusOK, err
			}
		}
		more, err := placeWarnings(t.conn, &req)
		if err != nil {
			return 0, err
		}
		warnings = append(warnings, more...)
		if id, err = submitJobTx(t, &req, by); err != nil || key == "" {
			return http.StatusCreated, err
		}
		return http.StatusCreated, keepKeyTx(t, by, key, bodyHash, id)
	})
	if err != nil {
		return err
	}
	var view jobView
	if err := s.store.read(r.Context(), func(c *conn) error {
		view, err = readJobView(c, id)
		return err
	}); err != nil {
		return err
	}
	view.Warnings = warnings
	w.Header().Set("Location", fmt.Sprintf("/api/v1/jobs/%d", id))
	return writeJSON(w, status, view)
}

// idempotencyKey reads the header; "" when there is none.
func idempotencyKey(r *http.Request) (string, error) {
	key := r.Header.Get(headerIdempotency)
	bad := strings.IndexFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) >= 0
	if len(key) > idempotencyMost || bad {
		return "", newProblem(codeInvalid, "a random id will do", "%s has at most %d plain characters", headerIdempotency, idempotencyMost)
	}
	return key, nil
}

func (s *server) getJobs(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r, "state", "node", "project", "tag", "name", "limit", "after", "before")
	f := jobFilter{states: q.words("state", jobStates), node: q.text("node"), project: q.text("project"), tag: q.text("tag"), name: q.text("name"), page: q.page()}
	if q.err != nil {
		return q.err
	}
	var jobs list[jobView]
	if err := s.store.read(r.Context(), func(c *conn) (err error) {
		if jobs, err = listJobs(c, f); err != nil {
			return err
		}
		return s.addWaitReasons(c, jobs.Items, time.Now())
	}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, jobs)
}

// addWaitReasons says of the first queued jobs why they wait.
func (s *server) addWaitReasons(c *conn, jobs []jobView, now time.Time) error {
	left := whyMost
	for i := range jobs {
		if jobs[i].State != jobQueued || left == 0 {
			continue
		}
		left--
		why, err := s.whyTx(c, jobs[i].ID, now)
		if err != nil {
			return err
		}
		jobs[i].WaitReason = &why.Summary
	}
	return nil
}

// Levels of until=.
const (
	untilDone    = "done"    // the job is over
	untilDrained = "drained" // and the last line of its log is here
	untilRunning = "running" // it was granted, or is over
)

func jobReached(v jobView, until string) bool {
	switch until {
	case untilDrained:
		return jobOver(v.State) && v.Drained
	case untilRunning:
		return v.State != jobQueued && v.State != jobDispatching
	}
	return jobOver(v.State)
}

func (s *server) getJob(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r, "wait", "until")
	wait := q.wait()
	until := untilDone
	if words := q.words("until", []string{untilDone, untilDrained, untilRunning}); len(words) == 1 {
		until = words[0]
	} else if len(words) > 1 {
		q.refuse("give one of them", "until has more than one word")
	}
	if q.err != nil {
		return q.err
	}
	var id int64
	if err := s.store.read(r.Context(), func(c *conn) (err error) {
		id, err = resolveJob(c, r.PathValue("job"))
		return err
	}); err != nil {
		return err
	}
	topics := []string{bellJob(id)}
	var view jobView
	err := s.longPoll(r, wait, func() []string { return topics }, func() (bool, error) {
		err := s.store.read(r.Context(), func(c *conn) (err error) {
			view, topics, err = s.lookAtJob(c, id)
			return err
		})
		return jobReached(view, until), err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, view)
}

// lookAtJob reads a job and the bells that tell of it: its own, and that of its newest run.
func (s *server) lookAtJob(c *conn, id int64) (view jobView, topics []string, err error) {
	if view, err = readJobView(c, id); err != nil {
		return view, nil, err
	}
	topics = []string{bellJob(id)}
	if n := len(view.Runs); n > 0 {
		runID, err := resolveRun(c, view.Runs[n-1])
		if err != nil {
			return view, nil, err
		}
		topics = append(topics, bellRun(runID))
	}
	one := []jobView{view}
	err = s.addWaitReasons(c, one, time.Now())
	return one[0], topics, err
}

func (s *server) getJobWhy(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	var why whyView
	if err := s.store.read(r.Context(), func(c *conn) error {
		id, err := resolveJob(c, r.PathValue("job"))
		if err == nil {
			why, err = s.whyTx(c, id, time.Now())
		}
		return err
	}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, why)
}

func (s *server) postJobCancel(w http.ResponseWriter, r *http.Request) error {
	var req cancelRequest
	return s.jobVerb(w, r, &req, func() error { return checkGrace(req.GraceS) }, func(t *tx, id int64, actor string) error {
		return s.cancelJobTx(t, id, actor, req.GraceS, req.Reason)
	})
}

func (s *server) postJobRetry(w http.ResponseWriter, r *http.Request) error {
	var req retryRequest
	return s.jobVerb(w, r, &req, func() error { return checkRetry(&req) }, func(t *tx, id int64, actor string) error {
		return s.retryJobTx(t, id, actor, req)
	})
}

func (s *server) postJobSignal(w http.ResponseWriter, r *http.Request) error {
	var req signalRequest
	var sig int
	return s.jobVerb(w, r, &req, func() (err error) {
		sig, err = signalNumber(req.Signal)
		return err
	}, func(t *tx, id int64, actor string) error {
		return s.signalJobTx(t, id, sig, actor)
	})
}

// jobVerb decodes the body of a verb, checks it, does it in one transaction, and answers the job as it then is.
func (s *server) jobVerb(w http.ResponseWriter, r *http.Request, body any, check func() error, do func(t *tx, id int64, actor string) error) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	if err := decodeOptionalJSON(r, bodyMaxBytes, body); err != nil {
		return err
	}
	if err := check(); err != nil {
		return err
	}
	var id int64
	status, err := s.writeAs(r, func(t *tx) (_ int, err error) {
		if id, err = resolveJob(t.conn, r.PathValue("job")); err != nil {
			return 0, err
		}
		return http.StatusOK, do(t, id, callerOf(r).name)
	})
	if err != nil {
		return err
	}
	var view jobView
	if err := s.store.read(r.Context(), func(c *conn) (err error) {
		view, _, err = s.lookAtJob(c, id)
		return err
	}); err != nil {
		return err
	}
	return writeJSON(w, status, view)
}

// checkRetry checks what a retry changes; left out, a field stays as it was. Our own variables are left out as at a submit.
func checkRetry(q *retryRequest) error {
	if q.Argv != nil {
		if err := checkArgv("argv", q.Argv); err != nil {
			return err
		}
		if q.Argv[0] == "" {
			return newProblem(codeInvalid, "name the program first", "argv[0] is empty")
		}
	}
	if q.Env != nil {
		env, _, err := checkEnv(q.Env)
		if err != nil {
			return err
		}
		q.Env = env
	}
	return checkArgsSize(q.Argv, q.Env)
}

// signalNames are the signals of Linux by number: agents run there, wherever the server does.
var signalNames = []string{
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2",
	13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 17: "CHLD", 18: "CONT", 19: "STOP", 20: "TSTP", 21: "TTIN", 22: "TTOU", 23: "URG",
	24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH", 29: "IO", 30: "PWR", 31: "SYS",
}

// signalNumber reads USR1, SIGUSR1, usr1 or 10.
func signalNumber(text string) (int, error) {
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if name != "" {
		if i := slices.Index(signalNames, name); i > 0 {
			return i, nil
		}
		if n, err := strconv.Atoi(name); err == nil && n > 0 && n < len(signalNames) {
			return n, nil
		}
	}
	return 0, newProblem(codeInvalid, "as USR1, SIGTERM or 10", "%q is no signal", text)
}
