package main

// Restores and restarts on real files: what is known again, what is not started twice; the first start; serving and stopping.

import (
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// backup and restore copy the database as somebody would by hand, with the server stopped; the incarnation file stays.
func (w *world) backup() {
	w.t.Helper()
	w.stop()
	w.copyFile(w.dataFile("gpuctl.db"), w.dataFile("backup.db"))
	w.start()
}

func (w *world) restore() {
	w.t.Helper()
	w.stop()
	w.copyFile(w.dataFile("backup.db"), w.dataFile("gpuctl.db"))
	for _, suffix := range []string{"-wal", "-shm"} {
		w.must(os.RemoveAll(w.dataFile("gpuctl.db" + suffix)))
	}
	w.start()
}

func (w *world) recovery(want bool) {
	w.t.Helper()
	w.must(w.s.store.read(w.t.Context(), func(c *conn) error {
		why, _, on, err := w.s.inRecovery(c)
		if on != want {
			w.t.Fatalf("RECOVERY is %v (%s), want %v", on, why, want)
		}
		return err
	}))
}

func TestRestartIsNoRecovery(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{})
	tell := a.started()
	first := w.s.inc.current()
	w.stop()
	w.start()
	w.recovery(false)
	if w.s.inc.current() == first {
		t.Fatal("the incarnation did not change")
	}
	if ans, _ := a.say(tell); ans.Accepted {
		t.Fatal("a hello to an older incarnation was accepted")
	}
	two := w.submit(testJob{cpu: true})
	w.pass()
	w.jobIs(two, jobQueued) // not before the node told
	a.hello(tell)
	w.pass()
	w.jobIs(two, jobDispatching)
	w.jobIs(job, jobRunning)
}

// TestRestore: the database goes back to before the job was granted; everything that lives or ended since is found again.
func TestRestore(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 2)
	live, done, cancelled, queued := w.submit(testJob{}), w.submit(testJob{cpu: true}), w.submit(testJob{gpus: 9}), w.submit(testJob{gpus: 8})
	w.backup()
	a.hello()
	w.pass()
	var tells []runTell
	for _, c := range a.poll() {
		p := payloadOf(t, c)
		g := a.claim(p.RunUID)
		tells = append(tells, runTell{
			UID: p.RunUID, JobUID: p.JobUID, JobID: p.JobID, Attempt: g.Attempt, Grant: g.Grant, Truth: tellAlive,
			Slots: p.Slots, Name: p.Name, Argv: p.Argv,
		})
	}
	if len(tells) != 2 {
		t.Fatalf("%d runs", len(tells))
	}
	a.hello(tells...)
	if tells[0].JobID != live {
		tells[0], tells[1] = tells[1], tells[0]
	}
	tells[1] = tells[1].ended(exitInfo{Code: 0})
	a.hello(tells...)
	forgotten := w.submit(testJob{}) // a job that only the forgotten timeline knows, and a node too
	lost := a.started3(tells[0], tells[1])
	late := w.agent("late", 1)
	w.jobIs(done, jobSucceeded)

	w.restore()
	w.recovery(true)
	w.jobIs(live, jobQueued)
	w.pass()
	w.want("0", "SELECT count(*) FROM runs")
	w.want("1", "SELECT seq >= 100000 AND seq % 100000 = 0 FROM sqlite_sequence WHERE name = 'jobs'")
	w.want("late", "SELECT name FROM nodes WHERE uid = ?", late.h.UID)
	w.write(func(t *tx) error { return w.s.cancelJobTx(t, cancelled, "p", nil, "") })
	w.jobIs(cancelled, jobCancelling)
	a.h.Session = 0
	a.hello(tells[0], tells[1], lost)
	w.recovery(true) // the node of the forgotten time is waited for; its token works
	w.stop()
	w.start() // a crash does not end it
	w.recovery(true)
	w.jobIs(live, jobRunning)
	w.jobIs(done, jobSucceeded)
	w.want(jobRunning, "SELECT state FROM jobs WHERE uid = ?", lost.JobUID)
	w.want("1", "SELECT count(*) FROM jobs WHERE id = ?", forgotten) // its number was free
	w.want("2", "SELECT count(*) FROM slots WHERE run_id IS NOT NULL AND lane = 'gpu'")
	a.hello(tells[0], tells[1], lost)
	if a.claim(newUID()).Verdict != verdictLater {
		t.Fatal("a claim was decided in RECOVERY")
	}
	late.hello()
	w.recovery(false)
	w.jobIs(cancelled, jobCancelled)
	w.jobIs(queued, jobQueued)
	if next := w.submit(testJob{}); next < 100_000 {
		t.Fatalf("the next job got the number %d", next)
	}
	// What is adopted ends as anything else.
	a.hello(tells[0].ended(exitInfo{Code: 3}), tells[1], lost)
	w.jobIs(live, jobFailed)
	w.want("2", "SELECT count(*) FROM cursors WHERE done = 0 AND run_id IN (SELECT id FROM runs WHERE state = 'ENDED')")
}

// started3 claims what is offered while others live on.
func (a *testAgent) started3(others ...runTell) runTell {
	a.w.t.Helper()
	a.w.pass()
	p := a.offered()
	g := a.claim(p.RunUID)
	tell := runTell{
		UID: p.RunUID, JobUID: p.JobUID, JobID: p.JobID, Attempt: g.Attempt, Grant: g.Grant, Truth: tellAlive, Slots: p.Slots,
		Name: p.Name, Argv: p.Argv, WorkingDir: p.WorkingDir,
	}
	a.hello(append(others, tell)...)
	return tell
}

func payloadOf(t *testing.T, c wireCommand) (p startPayload) {
	t.Helper()
	if err := strictJSON(c.Payload, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRestoreWithinOneStart: counters are equal, the grant number tells; and an offer of the old time is not granted again.
func TestRestoreOfAnOffer(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{})
	w.pass()
	uid := a.offered().RunUID
	w.must(w.s.store.write(t.Context(), func(*tx) error { return nil }))
	w.stop()
	w.copyFile(w.dataFile("gpuctl.db"), w.dataFile("backup.db"))
	counter := w.fileNow().Counter
	w.start()
	a.hello()
	g := a.claim(uid)
	if g.Verdict != verdictGrant {
		t.Fatalf("%+v", g)
	}
	tell := runTell{UID: uid, JobUID: w.get("SELECT uid FROM jobs"), JobID: job, Attempt: 1, Grant: g.Grant, Truth: tellEnded, Exit: &exitInfo{Code: 0}}
	a.hello(tell)
	w.jobIs(job, jobSucceeded)
	// Only the grant number is ahead: as if the backup had been taken in the present start.
	f := w.fileNow()
	f.Counter = counter
	w.must(w.s.inc.forceFile(f))
	w.restore()
	w.recovery(true)
	w.runIs(uid, runOffered)
	if a.kinds() != "" {
		t.Fatal("something is started in RECOVERY")
	}
	a.hello(tell) // the job ended: it is not run again
	w.recovery(false)
	w.jobIs(job, jobSucceeded)
	w.runIs(uid, runEnded)
}

func (w *world) fileNow() (f incarnationFile) {
	w.t.Helper()
	w.must(readJSON(w.dataFile("incarnation"), &f))
	return f
}

// forceFile writes a file as it stands, for the tests of restores.
func (i *incarnation) forceFile(f incarnationFile) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.file = incarnationFile{}
	return i.writeLocked(f)
}

func TestOfferIsWithdrawnAfterRecovery(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{})
	w.pass()
	uid := a.offered().RunUID
	w.backup()
	w.stop()
	w.start() // the file is one start ahead of the backup now
	w.restore()
	w.recovery(true)
	a.hello()
	w.recovery(false)
	w.runIs(uid, runBurned)
	w.jobIs(job, jobQueued)
	w.held(0)
}

// TestCursorAhead: the whole data folder was put back, and only an agent knows.
func TestCursorAhead(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	w.submit(testJob{})
	tell := a.started()
	src := sourceName(kindLog, tell.UID)
	w.stop()
	w.copyFile(w.dataFile("gpuctl.db"), w.dataFile("backup.db"))
	w.copyFile(w.dataFile("incarnation"), w.dataFile("backup.inc"))
	w.start()
	a.hello(tell)
	ans, p := a.batch(batchLine{Src: src, Kind: kindLog, To: 50, Print: "x", Items: logItems("a")})
	if p != nil || ans.Acks[src].Off != 50 {
		t.Fatalf("%+v %+v", ans, p)
	}
	w.stop()
	w.copyFile(w.dataFile("backup.inc"), w.dataFile("incarnation"))
	w.copyFile(w.dataFile("backup.db"), w.dataFile("gpuctl.db"))
	w.start()
	w.recovery(false)
	before := w.s.inc.current()
	a.h.Sources = []helloSource{{Src: src, Off: 50}}
	first, _ := a.say(tell)
	w.recovery(true)
	if first.Accepted || first.Incarnation == before || first.Incarnation != w.s.inc.current() || w.fileNow().Name != first.Incarnation {
		t.Fatalf("%+v", first)
	}
	ans2 := a.hello(tell)
	w.recovery(false)
	if c := ans2.Cursors[src]; c.Off != 0 {
		t.Fatalf("cursor %+v", c)
	}
}

// TestAdoptedAgainstAnotherRun: RECOVERY, and the restored job has a run that the node does not know.
func TestHigherGrantDecides(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{})
	first := a.started()
	w.backup()
	a.hello(first.ended(exitInfo{Signal: 9}))
	w.write(func(t *tx) error { _, err := t.exec("UPDATE jobs SET not_before_ms = 0"); return err })
	second := a.started3(first.ended(exitInfo{Signal: 9}))
	w.restore()
	w.jobIs(job, jobRunning) // with its first run
	a.hello(second.ended(exitInfo{Code: 0}), first.ended(exitInfo{Signal: 9}))
	w.jobIs(job, jobSucceeded)
	w.held(0)
	w.want("1:ENDED 2:ENDED", "SELECT group_concat(attempt || ':' || state, ' ' ORDER BY attempt) FROM runs")

	w.restore() // once more, in the other order, and the newer one lives
	w.recovery(true)
	a.hello(second, first.ended(exitInfo{Signal: 9}))
	w.jobIs(job, jobRunning)
	w.want("2", "SELECT attempt FROM runs WHERE id = (SELECT run_id FROM jobs WHERE id = ?)", job)
	w.held(1)
	if k := a.kinds(); k != "" {
		t.Fatalf("commands: %q", k)
	}
}

func TestIdsJumpAgainAtEveryRestore(t *testing.T) {
	w := newWorld(t)
	w.agent("a", 1)
	w.submit(testJob{})
	w.backup()
	w.stop()
	w.start()
	w.restore()
	one := w.submit(testJob{})
	w.restore()
	two := w.submit(testJob{})
	if one < 100_000 || two <= one {
		t.Fatalf("numbers %d and %d", one, two)
	}
}

func TestFirstStartWritesTokens(t *testing.T) {
	home := t.TempDir()
	w := &world{t: t, home: home}
	w.must(os.WriteFile(home+"/server.yaml", []byte("# mine\nlost_after: 7m"), 0o644))
	w.start()
	text, err := os.ReadFile(home + "/server.yaml")
	w.must(err)
	if !strings.HasPrefix(string(text), "# mine\nlost_after: 7m\nadmin_token: gpc_admin_1_") {
		t.Fatalf("%s", text)
	}
	st, err := os.Stat(home + "/server.yaml")
	w.must(err)
	if st.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v", st.Mode())
	}
	agent, err := os.ReadFile(w.dataFile(agentTokenFile))
	w.must(err)
	w.want("agent", "SELECT scope FROM tokens WHERE hash = ?", tokenHash(strings.TrimSpace(string(agent))))
	w.want("0", "SELECT count(*) FROM tokens WHERE hash LIKE '%gpc%'")
	if _, err := newServer(t.Context(), serverOptions{home: home, cfg: w.s.cfg, log: w.s.log}); err == nil || !strings.Contains(err.Error(), "another server uses") {
		t.Fatalf("a second server: %v", err)
	}
	w.stop()
	w.must(os.Remove(w.dataFile("gpuctl.db"))) // the database is lost: tokens in files still work
	w.start()
	again, err := os.ReadFile(home + "/server.yaml")
	w.must(err)
	if string(again) != string(text) {
		t.Fatalf("%s", again)
	}
	w.want("agent", "SELECT scope FROM tokens WHERE hash = ?", tokenHash(strings.TrimSpace(string(agent))))
	w.want("admin", "SELECT name FROM tokens WHERE hash = ?", tokenHash(w.s.cfg.AdminToken))
	w.stop()
}

func TestServeAndStop(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	ctx, cancel := testContext(t)
	ended := make(chan error, 1)
	s := w.s
	var lines syncText
	s.log = slog.New(slog.NewTextHandler(&lines, nil))
	go func() { ended <- s.serve(ctx) }()
	waitFor(t, "the address file", func() bool {
		b, err := os.ReadFile(w.dataFile(addressFile))
		return err == nil && strings.TrimSpace(string(b)) == s.baseURL
	})
	polled := make(chan pollAnswer, 1)
	go func() {
		var ans pollAnswer
		w.call("GET", "/api/v1/agent/poll?wait=25", a.token, nil, &ans)
		polled <- ans
	}()
	id := w.submit(testJob{})
	w.s.hub.ring(bellSched)
	if ans := <-polled; len(ans.Commands) != 1 {
		t.Fatalf("the scheduler's loop does not run: %+v", ans)
	}
	w.jobIs(id, jobDispatching)
	waitFor(t, "a log line for the event", func() bool { return strings.Contains(lines.String(), "event=JOB_DISPATCHED job=1") })
	begin := time.Now()
	cancel()
	w.must(<-ended)
	if took := time.Since(begin); took > 5*time.Second {
		t.Fatalf("stopping took %s", took)
	}
	if _, err := os.Stat(w.dataFile(addressFile)); err == nil {
		t.Fatal("the address file is still there")
	}
	w.s = nil
}

// syncText collects what several goroutines write.
type syncText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *syncText) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *syncText) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestAdminTokenGoesIntoAnyFile: whatever server.yaml looks like, the next start reads it, and others do not.
func TestAdminTokenGoesIntoAnyFile(t *testing.T) {
	for _, c := range []struct{ name, before, want string }{
		{"none", "", "admin_token: TOKEN\n"},
		{"empty value", "port: 0\nadmin_token: \"\"\nlost_after: 7m\n", "port: 0\nadmin_token: TOKEN\nlost_after: 7m\n"},
		{"no value, no line end", "port: 0\nadmin_token:", "port: 0\nadmin_token: TOKEN\n"},
		{"no value, with a comment", "admin_token: # filled in later\nport: 0\n", "admin_token: TOKEN\nport: 0\n"},
		{"one of its owner", "port: 0\nadmin_token: mine-mine-mine\n", "port: 0\nadmin_token: mine-mine-mine\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{t: t, home: t.TempDir()}
			path := w.home + "/server.yaml"
			w.must(os.WriteFile(path, []byte(c.before), 0o644))
			for range 2 {
				w.start()
				w.stop()
				text, err := os.ReadFile(path)
				w.must(err)
				cfg, err := loadServerConfig(w.home)
				w.must(err)
				if cfg.AdminToken == "" || string(text) != strings.Replace(c.want, "TOKEN", cfg.AdminToken, 1) {
					t.Fatalf("server.yaml is now:\n%s", text)
				}
				st, err := os.Stat(path)
				w.must(err)
				if st.Mode().Perm() != 0o600 {
					t.Fatalf("mode %v", st.Mode())
				}
			}
		})
	}
	home := t.TempDir()
	if err := os.WriteFile(home+"/server.yaml", []byte("{port: 0}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := setAdminToken(home+"/server.yaml", "secret")
	if p, ok := asProblem(err); !ok || p.Hint == "" {
		t.Errorf("a file in one line: %v", err)
	}
	if text, err := os.ReadFile(home + "/server.yaml"); err != nil || string(text) != "{port: 0}\n" {
		t.Errorf("it was written all the same: %q %v", text, err)
	}
}
