package main

// A stage for the agent: a scripted server on a real socket, a real home with real folders, the real supervisor out of this test binary.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// agentScene is a server that keeps the rules of DESIGN section 4 as far as an agent can see them. Fields are guarded by mu.
type agentScene struct {
	t    *testing.T
	home string
	http *httptest.Server

	mu       sync.Mutex
	inc      string
	sessions map[string]int64 // by instance
	newest   int64
	hellos   []helloRequest // accepted
	refused  []helloRequest
	commands map[int64]wireCommand
	claims   []claimRequest
	answers  map[int64]commandAnswer
	claim    func(q claimRequest) claimAnswer // default: grant
	unsettle map[string]bool                  // not settled for these
	polls    int
	met      bool // a hello was accepted
	grants   int64
	sources  *casServer // takes batches, nil: none are taken
	away     bool       // no batch gets an answer
}

func newAgentScene(t *testing.T) *agentScene {
	home, err := os.MkdirTemp("", "gpuctl-agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // a supervisor that just learns that it has no grant may still make a file
		waitFor(t, "the home to be removed", func() bool { return os.RemoveAll(home) == nil })
	})
	s := &agentScene{
		t: t, home: home, inc: "1-a", sessions: map[string]int64{}, commands: map[int64]wireCommand{}, answers: map[int64]commandAnswer{},
		unsettle: map[string]bool{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/agent/hello", s.serveHello)
	mux.HandleFunc("GET /api/v1/agent/poll", s.servePoll)
	mux.HandleFunc("POST /api/v1/agent/claim", s.serveClaim)
	mux.HandleFunc("POST /api/v1/agent/commands/{id}", s.serveAnswer)
	mux.HandleFunc("POST /api/v1/agent/batch", s.serveBatch)
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer tok" || r.Header.Get(headerToken) != "tok" {
			t.Errorf("%s without both tokens", r.URL.Path)
		}
		if r.Method == http.MethodPost && r.ContentLength < 0 {
			t.Errorf("%s without Content-Length", r.URL.Path)
		}
		if r.ProtoMajor != 1 {
			t.Errorf("%s over %s", r.URL.Path, r.Proto)
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.http.Close)
	return s
}

func sceneRead[T any](s *agentScene, r *http.Request) (v T) {
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		s.t.Errorf("%s: %v", r.URL.Path, err)
	}
	return v
}

func sceneWrite(s *agentScene, w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.t.Logf("answer: %v", err)
	}
}

func (s *agentScene) serveHello(w http.ResponseWriter, r *http.Request) {
	q := sceneRead[helloRequest](s, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	ans := helloAnswer{Gpuctl: 1, Incarnation: s.inc, Node: "n", Cursors: map[string]wireCursor{}, NowMS: time.Now().UnixMilli()}
	if s.sessions[q.Instance] == 0 {
		s.newest++
		s.sessions[q.Instance] = s.newest
	}
	ans.Session = s.sessions[q.Instance]
	if q.Incarnation != s.inc || q.Session != ans.Session {
		s.refused = append(s.refused, q)
		sceneWrite(s, w, ans)
		return
	}
	ans.Accepted, s.met = true, true
	s.hellos = append(s.hellos, q)
	for _, t := range q.Runs {
		if (t.Truth == tellEnded || t.Truth == tellGone) && !s.unsettle[t.UID] {
			ans.Settled = append(ans.Settled, t.UID)
		}
	}
	for _, src := range q.Sources {
		ans.Cursors[src.Src] = wireCursor{}
	}
	if s.sources != nil {
		ans.Cursors = s.sources.cursors(q.Sources)
	}
	sceneWrite(s, w, ans)
}

func (s *agentScene) serveBatch(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	sources, away := s.sources, s.away
	s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if sources == nil || away || err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	ans := sources.apply(body)
	s.mu.Lock()
	ans.Incarnation = s.inc
	s.mu.Unlock()
	sceneWrite(s, w, ans)
}

func (s *agentScene) servePoll(w http.ResponseWriter, r *http.Request) {
	wait, err := strconv.Atoi(r.URL.Query().Get("wait"))
	if err != nil || wait > pollWaitMaxSeconds {
		s.t.Errorf("poll waits %q", r.URL.Query().Get("wait"))
	}
	have := strings.Split(r.URL.Query().Get("have"), ",")
	until := time.Now().Add(time.Duration(wait) * time.Second)
	s.mu.Lock()
	if s.polls++; !s.met {
		s.t.Error("polled before a hello was accepted")
	}
	inc := s.inc
	s.mu.Unlock()
	for {
		s.mu.Lock()
		ans := pollAnswer{Gpuctl: 1, Incarnation: s.inc}
		fresh := s.inc != inc
		for _, id := range slices.Sorted(maps.Keys(s.commands)) {
			ans.Commands = append(ans.Commands, s.commands[id])
			fresh = fresh || !slices.Contains(have, strconv.FormatInt(id, 10))
		}
		s.mu.Unlock()
		if fresh || time.Now().After(until) || r.Context().Err() != nil {
			sceneWrite(s, w, ans)
			return
		}
		sleep(r.Context(), 2*time.Millisecond)
	}
}

func (s *agentScene) serveClaim(w http.ResponseWriter, r *http.Request) {
	q := sceneRead[claimRequest](s, r)
	s.mu.Lock()
	s.claims = append(s.claims, q)
	f := s.claim
	s.mu.Unlock()
	if f == nil {
		f = s.grant
	}
	sceneWrite(s, w, f(q))
}

func (s *agentScene) serveAnswer(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		s.t.Errorf("answer to command %q", r.PathValue("id"))
	}
	a := sceneRead[commandAnswer](s, r)
	s.mu.Lock()
	s.answers[id] = a
	delete(s.commands, id)
	s.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// grant answers a claim, a refusal too.
func (s *agentScene) grant(q claimRequest) claimAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Refuse != nil {
		return claimAnswer{Gpuctl: 1, Verdict: verdictDeny, Incarnation: s.inc}
	}
	s.grants++
	return claimAnswer{Gpuctl: 1, Verdict: verdictGrant, Incarnation: s.inc, Run: "7.1", JobID: 7, Attempt: 1, Grant: s.grants}
}

// with runs f under the lock.
func (s *agentScene) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// order gives the agent a command.
func (s *agentScene) order(id int64, kind, uid string, payload any) {
	b, err := json.Marshal(payload)
	if err != nil {
		s.t.Fatal(err)
	}
	s.with(func() { s.commands[id] = wireCommand{ID: id, Kind: kind, RunUID: uid, Payload: b} })
}

func (s *agentScene) orderStart(id int64, uid string, argv ...string) {
	s.order(id, cmdStart, uid, startPayload{
		RunUID: uid, JobUID: "job-" + uid[:4], JobID: 7, Name: "n", Argv: argv, WorkingDir: s.home, Slots: []slotRef{{Lane: laneCPU}}, GraceS: 1,
	})
}

// last is what the newest accepted hello that names the run says of it.
func (s *agentScene) last(uid string) runTell {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range slices.Backward(s.hellos) {
		for _, t := range h.Runs {
			if t.UID == uid {
				return t
			}
		}
	}
	return runTell{}
}

func (s *agentScene) waitTruth(uid, truth string) runTell {
	s.t.Helper()
	waitFor(s.t, "run told "+truth, func() bool { return s.last(uid).Truth == truth })
	return s.last(uid)
}

func (s *agentScene) dir(uid string) runDir { return runDir(filepath.Join(s.home, "runs", uid)) }

func (s *agentScene) options() agentOptions {
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	return agentOptions{home: s.home, serverURL: s.http.URL, token: "tok", cpuLane: 2, self: self, log: slog.New(slog.NewTextHandler(testWriter{s.t}, nil))}
}

// play runs an agent until the test ends or stop is called.
func (s *agentScene) play(o agentOptions) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- runAgentCore(ctx, o) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					s.t.Errorf("agent: %v", err)
				}
			case <-time.After(20 * time.Second):
				s.t.Error("the agent does not stop")
			}
		})
	}
	s.t.Cleanup(stop)
	return stop
}

// ready waits until the server took a complete hello.
func (s *agentScene) ready() {
	s.t.Helper()
	waitFor(s.t, "an accepted hello", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.hellos) > 0 })
}

// folder makes a run folder as an agent of the past left it: spec, and a fate when it is not "".
func (s *agentScene) folder(uid, fate string) runDir {
	s.t.Helper()
	d := s.dir(uid)
	err := writeRunFolder(d, runSpec{UID: uid, JobUID: "job-" + uid[:4], JobID: 7, Argv: []string{"true"}, Path: "/bin/true", WorkingDir: s.home})
	if err != nil {
		s.t.Fatal(err)
	}
	if fate != "" {
		if _, err := d.decide(runFate{Fate: fate, Grant: &runGrantInfo{Run: "7.1", Attempt: 1, Grant: 5}}); err != nil {
			s.t.Fatal(err)
		}
	}
	return d
}

func (s *agentScene) fateOf(uid string) string {
	f, ok, err := s.dir(uid).fate()
	if err != nil {
		s.t.Fatal(err)
	}
	if !ok {
		return ""
	}
	return f.Fate
}

// testWriter sends log lines to the test's log; lines of the last moments of an agent may come when the test is over.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	defer func() {
		if v := recover(); v != nil && !strings.Contains(fmt.Sprint(v), "Log in goroutine") {
			panic(v)
		}
	}()
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

var _ io.Writer = testWriter{}

func sortedUIDs(tells []runTell) []string {
	out := make([]string, len(tells))
	for i, t := range tells {
		out[i] = t.UID
	}
	slices.SortFunc(out, cmp.Compare)
	return out
}
