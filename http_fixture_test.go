package main

// A real server behind its doors: real SQLite, the real handler, no socket. Rows are written by SQL where another part would write them.

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// doorsFixture is a server with one token a scope.
type doorsFixture struct {
	t      testing.TB
	s      *server
	h      http.Handler
	tokens map[string]string // scope -> text
}

func newDoors(t testing.TB) *doorsFixture {
	t.Helper()
	h := newHub()
	st, err := openStore(context.Background(), filepath.Join(t.TempDir(), "gpuctl.db"), h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.close(); err != nil {
			t.Error(err)
		}
	})
	inc := &incarnation{}
	inc.set("1-abc")
	s := &server{
		cfg: serverConfig{Host: "127.0.0.1", PublicHost: []string{"gpu.example.org"}}, store: st, hub: h, inc: inc, contacts: newContacts(), relay: newLogRelay(),
		started: time.Now(), stopping: make(chan struct{}), log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	f := &doorsFixture{t: t, s: s, h: newHandler(s), tokens: map[string]string{}}
	f.write(func(x *tx) error {
		if _, err := x.exec("INSERT INTO server_state (id, start_counter, grant_no) VALUES (1, 1, 0) ON CONFLICT DO NOTHING"); err != nil {
			return err
		}
		for _, scope := range tokenScopes {
			if _, f.tokens[scope], err = mintTokenTx(x, "the-"+scope, scope, nil, nil); err != nil {
				return err
			}
		}
		return nil
	})
	return f
}

func (f *doorsFixture) write(fn func(x *tx) error) {
	f.t.Helper()
	if err := f.s.store.write(context.Background(), fn); err != nil {
		f.t.Fatal(err)
	}
}

// sql runs statements.
func (f *doorsFixture) sql(statements ...string) {
	f.t.Helper()
	f.write(func(x *tx) error {
		for _, q := range statements {
			if _, err := x.exec(q); err != nil {
				return err
			}
		}
		return nil
	})
}

// count runs a query of one number.
func (f *doorsFixture) count(q string, args ...any) int64 {
	f.t.Helper()
	var n int64
	if err := f.s.store.read(context.Background(), func(c *conn) error {
		_, err := c.one(q, args, &n)
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// request builds a request with a token of scope ("" = none) and headers "Name: value".
func (f *doorsFixture) request(scope, method, url, body string, headers ...string) *http.Request {
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, url, in)
	r.Host = "127.0.0.1:8600"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if scope != "" {
		r.Header.Set("Authorization", "Bearer "+f.tokens[scope])
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	return r
}

func (f *doorsFixture) do(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.h.ServeHTTP(w, r)
	return w
}

// get answers a good GET decoded into v.
func (f *doorsFixture) get(url string, v any) {
	f.t.Helper()
	f.good(f.request(scopeRead, "GET", url, ""), http.StatusOK, v)
}

// good does a request that must be answered with status, and decodes the answer into v.
func (f *doorsFixture) good(r *http.Request, status int, v any) {
	f.t.Helper()
	w := f.do(r)
	if w.Code != status {
		f.t.Fatalf("%s %s: status %d, want %d: %s", r.Method, r.URL, w.Code, status, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
		f.t.Fatalf("%s %s: %v in %s", r.Method, r.URL, err, w.Body)
	}
}

// submit submits a small job.
func (f *doorsFixture) submit(name string) jobView {
	f.t.Helper()
	var v jobView
	body := `{"argv":["true"],"working_dir":"/data/mnist","gpus":0,"name":"` + name + `"}`
	f.good(f.request(scopeWrite, "POST", "/api/v1/jobs", body), http.StatusCreated, &v)
	return v
}

// node stores a node with two cards and two cpu slots, heard of now.
func (f *doorsFixture) node(name string) {
	f.t.Helper()
	f.write(func(x *tx) error {
		id, err := x.insert(`INSERT INTO nodes (uid, name, fingerprint, heard_incarnation, last_seen_ms, created_ms) VALUES (?, ?, '{"machine_id":"m1"}', '1-abc', ?, ?)`,
			newUID(), name, x.nowMS, x.nowMS)
		if err != nil {
			return err
		}
		for _, sl := range []slotRef{{laneGPU, 0, "GPU-a"}, {laneGPU, 1, "GPU-b"}, {laneCPU, 0, "cpu-0"}, {laneCPU, 1, "cpu-1"}} {
			if _, err := x.exec("INSERT INTO slots (node_id, lane, idx, uuid, model, memory_bytes) VALUES (?, ?, ?, ?, 'NVIDIA H200', 1000)", id, sl.Lane, sl.Idx, sl.UUID); err != nil {
				return err
			}
		}
		return nil
	})
}

// run stores a run of a job; attempt 0 = never granted.
func (f *doorsFixture) run(jobID, attempt int64, state string) (id int64) {
	f.t.Helper()
	f.write(func(x *tx) error {
		var no *int64
		if attempt > 0 {
			no = &attempt
		}
		var err error
		id, err = x.insert(`INSERT INTO runs (uid, job_id, attempt, source, name, node_id, state, project_id) SELECT ?, ?, ?, 'job', name, (SELECT min(id) FROM nodes), ?, project_id FROM jobs WHERE id = ?`,
			newUID(), jobID, no, state, jobID)
		return err
	})
	return id
}
