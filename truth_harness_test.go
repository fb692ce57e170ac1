package main

// What the tests of the server's truth share: a real server on a real database, driven through its real handler without sockets, and an
// agent that says exactly what a test tells it to.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// world is a server under test with the clock that its loops are told.
type world struct {
	t    testing.TB
	home string
	s    *server
	now  time.Time

	tokens map[string]string // by scope
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, home: t.TempDir()}
	w.start()
	t.Cleanup(func() {
		if w.s != nil {
			w.stop()
		}
	})
	return w
}

func (w *world) start() {
	w.t.Helper()
	cfg, err := loadServerConfig(w.home)
	w.must(err)
	cfg.Port = 0
	w.s, err = newServer(context.Background(), serverOptions{home: w.home, cfg: cfg, log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	w.must(err)
	w.now = time.Now()
	w.timers(0)
}

func (w *world) stop() {
	w.t.Helper()
	w.must(w.s.release())
	w.s = nil
}

func (w *world) dataFile(name string) string { return filepath.Join(w.home, "server", name) }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// timers lets d pass for the timers' loop, in steps that are no pause.
func (w *world) timers(d time.Duration) {
	w.t.Helper()
	for end := w.now.Add(d); ; {
		_, err := w.s.timersStep(context.Background(), w.now)
		w.must(err)
		if !w.now.Before(end) {
			return
		}
		w.now = w.now.Add(min(10*time.Second, end.Sub(w.now)))
	}
}

// pass is one scheduler pass.
func (w *world) pass() {
	w.t.Helper()
	_, err := w.s.schedStep(context.Background(), w.now)
	w.must(err)
}

func (w *world) write(fn func(t *tx) error) {
	w.t.Helper()
	w.must(w.s.store.write(context.Background(), fn))
}

// get reads one value, as text; NULL is "NULL".
func (w *world) get(q string, args ...any) string {
	w.t.Helper()
	out := "no row"
	w.must(w.s.store.read(context.Background(), func(c *conn) error {
		var v *string
		found, err := c.one(q, args, &v)
		if found {
			out = "NULL"
			if v != nil {
				out = *v
			}
		}
		return err
	}))
	return out
}

func (w *world) want(want, q string, args ...any) {
	w.t.Helper()
	if got := w.get(q, args...); got != want {
		w.t.Fatalf("%s %v: got %s, want %s", q, args, got, want)
	}
}

func (w *world) jobIs(id int64, state string) {
	w.t.Helper()
	w.want(state, "SELECT state FROM jobs WHERE id = ?", id)
}

func (w *world) runIs(uid, state string) {
	w.t.Helper()
	w.want(state, "SELECT state FROM runs WHERE uid = ?", uid)
}

// held counts the slots that somebody holds.
func (w *world) held(n int) {
	w.t.Helper()
	w.want(fmt.Sprint(n), "SELECT count(*) FROM slots WHERE run_id IS NOT NULL")
}

// testJob is what a test asks for; zero values are one card, three attempts.
type testJob struct {
	gpus, priority int
	cpu            bool
	node, model    string
	attempts       int
}

// submit queues a job as the doors do.
func (w *world) submit(q testJob) int64 {
	w.t.Helper()
	var id int64
	w.write(func(t *tx) (err error) {
		id, err = insertTestJob(t, q)
		return err
	})
	return id
}

func insertTestJob(t *tx, q testJob) (int64, error) {
	project, err := foundProjectTx(t)
	if err != nil {
		return 0, err
	}
	gpus := max(q.gpus, 1)
	if q.cpu {
		gpus = 0
	}
	return t.insert(`INSERT INTO jobs (uid, name, state, state_ms, argv, working_dir, env, gpus, node, gpu_model, priority, max_attempts, project_id,
		submitted_by, created_ms) VALUES (?,'train','QUEUED',?,'["python3","train.py"]','/work','{"A":"1"}',?,?,?,?,?,?,'tester',?)`,
		newUID(), t.nowMS, gpus, q.node, q.model, q.priority, max(q.attempts, 0)+3*boolInt(q.attempts == 0), project, t.nowMS)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// call sends one request through the real handler.
func (w *world) call(method, path, token string, body any, into any) (status int, p *problem) {
	w.t.Helper()
	var text []byte
	if body != nil {
		var err error
		text, err = json.Marshal(body)
		w.must(err)
	}
	return w.send(method, path, token, "application/json", "", text, into)
}

func (w *world) send(method, path, token, kind, encoding string, body []byte, into any) (status int, p *problem) {
	w.t.Helper()
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	r.Host = strings.TrimPrefix(w.s.baseURL, "http://")
	r.Header.Set(headerToken, token)
	r.Header.Set("Content-Type", kind)
	if encoding != "" {
		r.Header.Set("Content-Encoding", encoding)
	}
	rec := httptest.NewRecorder()
	newHandler(w.s).ServeHTTP(rec, r)
	if rec.Code >= 400 {
		p = &problem{}
		w.must(json.Unmarshal(rec.Body.Bytes(), p))
		return rec.Code, p
	}
	if into != nil {
		w.must(json.Unmarshal(rec.Body.Bytes(), into))
	}
	return rec.Code, nil
}

// testAgent says hello, polls and claims as a test tells it to.
type testAgent struct {
	w     *world
	token string
	h     helloRequest
}

// agent joins a node with cards and two slots of the cpu lane.
func (w *world) agent(name string, cards int) *testAgent {
	w.t.Helper()
	a := &testAgent{w: w}
	w.write(func(t *tx) (err error) {
		_, a.token, err = mintTokenTx(t, "agent-"+name, scopeAgent, nil, nil)
		return err
	})
	a.h = helloRequest{
		UID: newUID(), Instance: newUID(), Name: name, BootID: "boot-1", CPUs: 8, CPULane: 2, NowMS: time.Now().UnixMilli(),
		Fingerprint: wireFingerprint{MachineID: "machine-" + name},
	}
	for i := range cards {
		uuid := fmt.Sprintf("GPU-%s-%d", name, i)
		a.h.Devices = append(a.h.Devices, wireDevice{Idx: i, UUID: uuid, Model: "Test 80GB", MemoryBytes: 80 << 30, Healthy: true})
		a.h.Fingerprint.GPUs = append(a.h.Fingerprint.GPUs, uuid)
	}
	a.hello()
	return a
}

// say says one hello as it stands and takes nothing over.
func (a *testAgent) say(runs ...runTell) (helloAnswer, *problem) {
	a.w.t.Helper()
	h := a.h
	h.Runs = runs
	var ans helloAnswer
	_, p := a.w.call("POST", "/api/v1/agent/hello", a.token, h, &ans)
	return ans, p
}

// hello says hello, with all runs, until it is accepted.
func (a *testAgent) hello(runs ...runTell) helloAnswer {
	a.w.t.Helper()
	a.h.All = true
	for range 4 {
		ans, p := a.say(runs...)
		if p != nil {
			a.w.t.Fatalf("hello: %s %s", p.Code, p.Detail)
		}
		a.h.Session, a.h.Incarnation = ans.Session, ans.Incarnation
		if ans.Accepted {
			return ans
		}
	}
	a.w.t.Fatal("hello is not accepted")
	return helloAnswer{}
}

// poll gives the commands that are open now.
func (a *testAgent) poll() []wireCommand {
	a.w.t.Helper()
	var ans pollAnswer
	if _, p := a.w.call("GET", "/api/v1/agent/poll?wait=0", a.token, nil, &ans); p != nil {
		a.w.t.Fatalf("poll: %s %s", p.Code, p.Detail)
	}
	return ans.Commands
}

// offered is the payload of the only start command.
func (a *testAgent) offered() startPayload {
	a.w.t.Helper()
	var starts []startPayload
	for _, c := range a.poll() {
		if c.Kind != cmdStart {
			continue
		}
		var p startPayload
		a.w.must(json.Unmarshal(c.Payload, &p))
		starts = append(starts, p)
	}
	if len(starts) != 1 {
		a.w.t.Fatalf("%d start commands, want 1", len(starts))
	}
	return starts[0]
}

func (a *testAgent) kinds() string {
	var out []string
	for _, c := range a.poll() {
		out = append(out, c.Kind)
	}
	return strings.Join(out, " ")
}

func (a *testAgent) claim(uid string) claimAnswer {
	a.w.t.Helper()
	var ans claimAnswer
	q := claimRequest{UID: uid, Instance: a.h.Instance, Session: a.h.Session, Incarnation: a.h.Incarnation, BootID: a.h.BootID}
	if _, p := a.w.call("POST", "/api/v1/agent/claim", a.token, q, &ans); p != nil {
		a.w.t.Fatalf("claim: %s %s", p.Code, p.Detail)
	}
	return ans
}

func (a *testAgent) refuse(uid, why string) claimAnswer {
	a.w.t.Helper()
	var ans claimAnswer
	q := claimRequest{
		UID: uid, Instance: a.h.Instance, Session: a.h.Session, Incarnation: a.h.Incarnation, BootID: a.h.BootID,
		Refuse: &claimRefuse{Why: why, Detail: "because of " + why},
	}
	if _, p := a.w.call("POST", "/api/v1/agent/claim", a.token, q, &ans); p != nil {
		a.w.t.Fatalf("refuse: %s %s", p.Code, p.Detail)
	}
	return ans
}

// started schedules, claims and tells a run alive; it gives what a hello would say of it.
func (a *testAgent) started() runTell {
	a.w.t.Helper()
	a.w.pass()
	p := a.offered()
	g := a.claim(p.RunUID)
	if g.Verdict != verdictGrant {
		a.w.t.Fatalf("claim: %s", g.Verdict)
	}
	tell := runTell{
		UID: p.RunUID, JobUID: p.JobUID, JobID: p.JobID, Attempt: g.Attempt, Grant: g.Grant, Truth: tellAlive, Slots: p.Slots,
		Name: p.Name, Argv: p.Argv, WorkingDir: p.WorkingDir,
	}
	a.hello(tell)
	return tell
}

func (r runTell) ended(e exitInfo) runTell {
	r.Truth, r.Exit = tellEnded, &e
	return r
}

func (r runTell) as(truth string) runTell {
	r.Truth, r.Exit = truth, nil
	return r
}

// batch sends lines and gives the answer.
func (a *testAgent) batch(lines ...batchLine) (batchAnswer, *problem) {
	a.w.t.Helper()
	var body bytes.Buffer
	for _, l := range lines {
		b, err := json.Marshal(l)
		a.w.must(err)
		body.Write(append(b, '\n'))
	}
	var ans batchAnswer
	_, p := a.w.send("POST", "/api/v1/agent/batch", a.token, ndjsonType, "", body.Bytes(), &ans)
	return ans, p
}

func items(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func logItems(texts ...string) json.RawMessage {
	var out []logItem
	for _, x := range texts {
		out = append(out, logItem{Text: x})
	}
	return items(out)
}

// endLog sends the end of a run's log, whole, from the beginning.
func (a *testAgent) endLog(uid string, texts ...string) {
	a.w.t.Helper()
	src := sourceName(kindLog, uid)
	ans, p := a.batch(batchLine{Src: src, Kind: kindLog, To: 100, Print: "p", Items: logItems(texts...), End: true})
	if p != nil || ans.Refused[src] != "" {
		a.w.t.Fatalf("end of log: %v %v", p, ans.Refused)
	}
}

// copyFile is a backup by hand.
func (w *world) copyFile(from, to string) {
	w.t.Helper()
	b, err := os.ReadFile(from)
	w.must(err)
	w.must(os.WriteFile(to, b, 0o600))
}

func testContext(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}
