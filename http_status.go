package main

// The overview, and whether the server answers at all.

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	statusRunning = 50 // jobs that hold or held a slot, on the overview
	statusQueued  = 20 // head of the queue
	statusFailed  = 5  // failed jobs of the last day that are named
)

func (s *server) getHealth(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (s *server) getReady(w http.ResponseWriter, r *http.Request) error {
	if err := s.store.read(r.Context(), func(c *conn) error {
		var one int
		_, err := c.one("SELECT count(*) FROM server_state", nil, &one)
		return err
	}); err != nil {
		s.log.Warn("not ready", keyErr, err)
		return newProblem(codeUnavailable, "try again", "the database does not answer")
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

func (s *server) getVersion(w http.ResponseWriter, r *http.Request) error {
	v := versionView{Version: buildVersion(), Incarnation: s.inc.current()}
	if err := s.store.read(r.Context(), func(c *conn) error {
		if _, err := c.one("SELECT sqlite_version()", nil, &v.SQLite); err != nil {
			return err
		}
		_, err := c.one("PRAGMA user_version", nil, &v.Schema)
		return err
	}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

func (s *server) getStatus(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	now := time.Now()
	started := s.started
	v := statusView{Version: buildVersion(), Incarnation: s.inc.current(), NowMS: now.UnixMilli(), StartedMS: started.UnixMilli(), Loops: s.loopStates()}
	if v.Loops == nil {
		v.Loops = []loopState{}
	}
	if err := s.store.read(r.Context(), func(c *conn) error { return s.fillStatus(c, &v, started, now) }); err != nil {
		return err
	}
	var err error
	if v.DBBytes, err = fileBytes(s.store.path); err != nil {
		return err
	}
	if v.WALBytes, err = fileBytes(s.store.path + "-wal"); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

// queueHead selects the next jobs of the queue. Its index gives them in order: left to itself SQLite sorts the whole queue (240 ms of 100,000).
const queueHead = `WHERE j.id IN (SELECT id FROM jobs INDEXED BY jobs_queue WHERE state = 'QUEUED' ORDER BY priority DESC, rank, id LIMIT ?)
	ORDER BY j.priority DESC, j.rank, j.id`

// fillStatus reads what the overview shows, in one read transaction.
func (s *server) fillStatus(c *conn, v *statusView, started, now time.Time) error {
	why, since, on, err := s.inRecovery(c)
	if err != nil {
		return err
	}
	if on {
		v.Recovery = &why
	}
	if v.Jobs, err = countJobs(c); err != nil {
		return err
	}
	if v.Running, err = readJobViews(c, "WHERE j.state IN ('DISPATCHING', 'RUNNING', 'CANCELLING', 'LOST') ORDER BY j.id LIMIT ?", statusRunning); err != nil {
		return err
	}
	if v.Queued, err = readJobViews(c, queueHead, statusQueued); err != nil {
		return err
	}
	if err := s.addWaitReasons(c, v.Queued, now); err != nil {
		return err
	}
	if v.Nodes, err = s.nodeViews(c, nil, started, now); err != nil {
		return err
	}
	if _, err := c.one("SELECT (SELECT count(*) FROM rejects), (SELECT coalesce(sum(n), 0) FROM skips), (SELECT count(*) FROM truncations)", nil,
		&v.Rejects, &v.Skips, &v.Truncations); err != nil {
		return err
	}
	failed, err := recentlyFailed(c, now.Add(-24*time.Hour).UnixMilli(), statusFailed)
	if err != nil {
		return err
	}
	v.NeedsYou = needsYou(v, since, failed, now)
	return nil
}

// countJobs counts jobs by state; every state is there.
func countJobs(c *conn) (map[string]int64, error) {
	counts := map[string]int64{}
	for _, state := range jobStates {
		counts[state] = 0
	}
	err := c.each("SELECT state, count(*) FROM jobs GROUP BY state", nil, func(get func(...any) error) error {
		var state string
		var n int64
		err := get(&state, &n)
		counts[state] = n
		return err
	})
	return counts, err
}

// failedJob is a line of the overview.
type failedJob struct {
	id           int64
	name, reason string
	ran          bool
}

// recentlyFailed reads the newest jobs that failed since sinceMS. It looks at the newest 200 failed ones only, so that years of them cost nothing.
func recentlyFailed(c *conn, sinceMS int64, limit int) ([]failedJob, error) {
	var failed []failedJob
	err := c.each(`SELECT id, name, reason, run_id IS NOT NULL FROM (SELECT id, name, reason, state_ms, run_id FROM jobs WHERE state = 'FAILED' ORDER BY id DESC LIMIT 200)
		WHERE state_ms >= ? ORDER BY state_ms DESC LIMIT ?`, []any{sinceMS, limit}, func(get func(...any) error) error {
		var f failedJob
		if err := get(&f.id, &f.name, &f.reason, &f.ran); err != nil {
			return err
		}
		failed = append(failed, f)
		return nil
	})
	return failed, err
}

// needsYou says what a person should look at, most urgent first. Pure.
func needsYou(v *statusView, recoverySinceMS int64, failed []failedJob, now time.Time) []string {
	lines := []string{}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if v.Recovery != nil {
		add("RECOVERY for %s (%s): nothing is started until every node has said hello", agoText(now, recoverySinceMS), *v.Recovery)
	}
	for _, j := range v.Running {
		if j.State == jobLost {
			add("job %d (%s) is LOST: its node is silent, the run may still be alive; it comes back with the node", j.ID, j.Name)
		}
	}
	for _, n := range v.Nodes {
		if n.State == nodeUnreachable {
			add("node %s has been unreachable for %s", n.Name, agoText(now, n.LastSeenMS))
		}
		for _, sl := range n.Slots {
			switch {
			case sl.Health == "gone" && (sl.Run != nil || sl.JobID != nil):
				add("card %s of node %s is gone and still held", sl.UUID, n.Name)
			case sl.Health == "unhealthy":
				add("%s %d of node %s is unhealthy", sl.Lane, sl.Idx, n.Name)
			}
		}
		for _, p := range n.Problems {
			add("node %s: %s", n.Name, p)
		}
	}
	for _, f := range failed {
		look := "logs"
		if !f.ran { // there is no log: the reason says all
			look = "job why"
		}
		add("job %d (%s) FAILED (%s): gpuctl %s %d", f.id, f.name, f.reason, look, f.id)
	}
	return lines
}

// agoText is a rough time since ms.
func agoText(now time.Time, ms int64) string {
	d := max(0, now.Sub(time.UnixMilli(ms)))
	if d >= time.Minute {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return d.Round(time.Second).String()
}

// fileBytes is the size of a file, 0 when there is none.
func fileBytes(path string) (int64, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("size of database: %w", err)
	}
	return st.Size(), nil
}
