package main

// The agent's doors: claims, hellos and what they settle, sessions, copies, reboots, silence, poll, log reads.

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

func TestClaim(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	b := w.agent("b", 0)
	job := w.submit(testJob{})
	w.pass()
	uid := a.offered().RunUID
	if b.claim(uid).Verdict != verdictDeny {
		t.Fatal("another node's offer was granted")
	}
	if a.claim(newUID()).Verdict != verdictDeny {
		t.Fatal("an unknown uid was granted")
	}
	old := a.h.Incarnation
	a.h.Incarnation = "other"
	if a.claim(uid).Verdict != verdictLater {
		t.Fatal("a claim of another incarnation was decided")
	}
	a.h.Incarnation = old
	g := a.claim(uid)
	if g.Verdict != verdictGrant || g.Run != fmt.Sprintf("%d.1", job) || g.Attempt != 1 || g.JobID != job || g.Grant != 1 {
		t.Fatalf("claim: %+v", g)
	}
	w.runIs(uid, runStarting)
	w.jobIs(job, jobRunning)
	w.want("0", "SELECT done FROM cursors WHERE source = ?", "log-"+uid)
	var f incarnationFile
	w.must(readJSON(w.dataFile("incarnation"), &f))
	if f.Grant != g.Grant || f.Highest["jobs"] != job {
		t.Fatalf("the file does not know the grant: %+v", f)
	}
	if again := a.claim(uid); fmt.Sprint(again) != fmt.Sprint(g) {
		t.Fatalf("repeated: %+v, want %+v", again, g)
	}
	mine := a.h.Instance
	a.h.Instance = newUID()
	if a.claim(uid).Verdict != verdictDeny {
		t.Fatal("the grant was repeated to another instance")
	}
	a.h.Instance = mine
	a.hello(runTell{UID: uid, JobUID: w.get("SELECT uid FROM jobs"), Truth: tellAlive})
	if a.claim(uid).Verdict != verdictDeny {
		t.Fatal("a grant was repeated for a run that lives")
	}
}

func TestClaimRefusedLateIsDenied(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{})
	tell := a.started()
	a.refuse(tell.UID, refuseNoDir)
	w.jobIs(job, jobRunning)
	w.want("0", "SELECT count(*) FROM job_exclusions")
}

func TestHelloSettles(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	for _, c := range []struct {
		name         string
		exit         exitInfo
		job, reason  string
		code, signal string
	}{
		{"code 0", exitInfo{Code: 0}, jobSucceeded, "NULL", "0", "NULL"},
		{"code 3", exitInfo{Code: 3}, jobFailed, reasonExitCode, "3", "NULL"},
		{"unknown code", exitInfo{Code: -1}, jobQueued, reasonSupervisorLost, "NULL", "NULL"},
		{"no exit at all", exitInfo{Code: 999}, jobQueued, reasonSupervisorLost, "NULL", "NULL"},
		{"SIGKILL of the host", exitInfo{Code: -1, Signal: 9}, jobQueued, reasonKilledByHost, "NULL", "9"},
		{"SIGKILL for memory", exitInfo{Code: -1, Signal: 9, OOM: "oom_kill 1"}, jobFailed, reasonHostOOM, "NULL", "9"},
		{"SIGSEGV", exitInfo{Code: -1, Signal: 11}, jobFailed, reasonSignal, "NULL", "11"},
		{"time limit, ends 0", exitInfo{Code: 0, Reason: reasonTimeout}, jobFailed, reasonTimeout, "0", "NULL"},
		{"not started", exitInfo{Code: -1, Reason: reasonStartFailed, Detail: "no such file"}, jobFailed, reasonStartFailed, "NULL", "NULL"},
		{"a reason that we do not know", exitInfo{Code: 4, Reason: "MOON"}, jobFailed, reasonExitCode, "4", "NULL"},
		{"cancelled by a cancel that was forgotten", exitInfo{Signal: 15, Reason: reasonCancelled}, jobCancelled, reasonCancelled, "NULL", "15"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{t: t, home: w.home, s: w.s, now: time.Now()}
			a.w = w
			w.write(func(t *tx) error {
				_, err := t.exec("UPDATE jobs SET not_before_ms = 4000000000000 WHERE state = 'QUEUED'")
				return err
			})
			job := w.submit(testJob{})
			tell := a.started()
			ans := a.hello(tell.ended(c.exit))
			if len(ans.Settled) != 1 || ans.Settled[0] != tell.UID {
				t.Fatalf("settled: %v", ans.Settled)
			}
			w.jobIs(job, c.job)
			w.runIs(tell.UID, runEnded)
			w.held(0)
			w.want(c.reason, "SELECT reason FROM runs WHERE uid = ?", tell.UID)
			w.want(c.code, "SELECT exit_code FROM runs WHERE uid = ?", tell.UID)
			w.want(c.signal, "SELECT signal FROM runs WHERE uid = ?", tell.UID)
			events := w.get("SELECT count(*) FROM events")
			a.hello(tell.ended(c.exit)) // saying it twice changes nothing
			w.want(events, "SELECT count(*) FROM events")
			w.want("NULL", "SELECT drained_ms FROM runs WHERE uid = ?", tell.UID)
			a.endLog(tell.UID, "bye")
			if w.get("SELECT drained_ms FROM runs WHERE uid = ?", tell.UID) == "NULL" {
				t.Fatal("not drained")
			}
		})
	}
}

func TestRetriesByThemselves(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{attempts: 2})
	tell := a.started()
	a.hello(tell.ended(exitInfo{Signal: 9}))
	w.jobIs(job, jobQueued)
	w.want("1", "SELECT not_before_ms - state_ms = 10000 FROM jobs WHERE id = ?", job)
	w.pass()
	w.jobIs(job, jobQueued) // it waits
	w.write(func(t *tx) error { _, err := t.exec("UPDATE jobs SET not_before_ms = 0"); return err })
	tell = a.started()
	if tell.Attempt != 2 {
		t.Fatalf("attempt %d", tell.Attempt)
	}
	a.hello(tell.ended(exitInfo{Signal: 9}))
	w.jobIs(job, jobFailed)
	w.want(reasonKilledByHost, "SELECT reason FROM jobs WHERE id = ?", job)
}

func TestExitingHoldsTheSlot(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{})
	tell := a.started()
	exiting := tell.ended(exitInfo{Code: 7})
	exiting.Truth = tellExiting
	a.hello(exiting)
	w.runIs(tell.UID, runExiting)
	w.want("7", "SELECT exit_code FROM runs WHERE uid = ?", tell.UID)
	w.jobIs(job, jobRunning)
	w.held(1)
	stuck := tell.ended(exitInfo{Code: 7})
	stuck.Unkillable, stuck.LeftAlone = []int{12}, []string{"tmux (pid 9)"}
	a.hello(stuck)
	a.hello(stuck)
	w.runIs(tell.UID, runExiting)
	w.held(1)
	w.want("1", "SELECT count(*) FROM events WHERE type = 'UNKILLABLE'")
	w.want("1", "SELECT count(*) FROM events WHERE type = 'LEFT_ALONE'")
	w.want(`["tmux (pid 9)"]`, "SELECT left_alone FROM runs WHERE uid = ?", tell.UID)
	a.hello(tell.ended(exitInfo{Code: 7}))
	w.jobIs(job, jobFailed)
	w.held(0)
}

func TestGone(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{})
	w.pass()
	uid := a.offered().RunUID
	g := a.claim(uid)
	tell := runTell{UID: uid, JobUID: w.get("SELECT uid FROM jobs"), JobID: job, Attempt: g.Attempt, Grant: g.Grant, Truth: tellGone}
	if s := a.hello(tell).Settled; len(s) != 1 {
		t.Fatalf("settled: %v", s)
	}
	w.runIs(uid, runBurned) // never told alive: it never started, the attempt is given back
	w.jobIs(job, jobQueued)
	w.want("0", "SELECT attempts FROM jobs WHERE id = ?", job)
	w.want("1", "SELECT done FROM cursors WHERE source = ?", "log-"+uid)
	w.write(func(t *tx) error { _, err := t.exec("UPDATE jobs SET not_before_ms = 0"); return err })
	again := a.started()
	if again.Attempt != 1 || again.Grant != 2 {
		t.Fatalf("after a burned grant: %+v", again)
	}
	a.hello(again.as(tellGone)) // it lived: its end is not known
	w.runIs(again.UID, runEnded)
	w.want(reasonSupervisorLost, "SELECT reason FROM runs WHERE uid = ?", again.UID)
	w.want("1", "SELECT attempts FROM jobs WHERE id = ?", job)
}

func TestLostAndBack(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{})
	tell := a.started()
	w.now = time.Now()
	w.timers(defaultLostAfter - 20*time.Second)
	w.jobIs(job, jobRunning)
	w.timers(30 * time.Second)
	w.jobIs(job, jobLost)
	w.runIs(tell.UID, runLost)
	w.held(1)
	w.pass()
	w.jobIs(job, jobLost)
	a.hello(tell)
	w.jobIs(job, jobRunning)
	w.runIs(tell.UID, runAlive)
	w.want("1", "SELECT count(*) FROM events WHERE type = 'JOB_RECOVERED'")
	a.hello(tell.ended(exitInfo{}))
	w.jobIs(job, jobSucceeded)
}

// TestOwnPauseIsNobodysFault: after a start or a pause of the server nothing becomes LOST and no offer expires before a grace.
func TestOwnPauseIsNobodysFault(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 2)
	job, offered := w.submit(testJob{}), int64(0)
	tell := a.started()
	offered = w.submit(testJob{})
	w.pass()
	w.now = w.now.Add(time.Hour) // one gap
	w.timers(0)
	w.timers(25 * time.Second)
	w.jobIs(job, jobRunning)
	w.jobIs(offered, jobDispatching)
	w.timers(10 * time.Second)
	w.jobIs(offered, jobQueued)
	w.timers(defaultLostAfter)
	w.jobIs(job, jobLost)

	a.hello(tell)
	w.jobIs(job, jobRunning)
	w.write(func(t *tx) error { // a restart long after
		_, err := t.exec("UPDATE nodes SET last_seen_ms = 1")
		return err
	})
	w.stop()
	w.start()
	w.timers(defaultLostAfter - time.Minute)
	w.jobIs(job, jobRunning)
	w.timers(2 * time.Minute)
	w.jobIs(job, jobLost)
}

func TestAbsenceIsAskedAbout(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{})
	tell := a.started()
	a.hello()
	w.jobIs(job, jobRunning)
	w.held(1)
	if k := a.kinds(); k != cmdVerify {
		t.Fatalf("commands %q, want verify", k)
	}
	a.hello(tell)
	if k := a.kinds(); k != "" {
		t.Fatalf("commands %q, want none", k)
	}
}

func TestReboot(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 3)
	j1, j2, j3 := w.submit(testJob{}), w.submit(testJob{}), int64(0)
	w.pass()
	var tells []runTell
	for _, c := range a.poll() {
		var p startPayload
		w.must(json.Unmarshal(c.Payload, &p))
		g := a.claim(p.RunUID)
		tells = append(tells, runTell{UID: p.RunUID, JobUID: p.JobUID, JobID: p.JobID, Attempt: g.Attempt, Grant: g.Grant, Truth: tellAlive})
	}
	j3 = w.submit(testJob{})
	w.pass()
	p3 := a.offered()
	a.hello(tells...)
	a.h.BootID, a.h.Instance, a.h.Session = "boot-2", newUID(), 0
	a.hello(tells[0].ended(exitInfo{Code: 0})) // had ended before the reboot; the other one is not listed
	w.jobIs(j1, jobSucceeded)
	w.jobIs(j2, jobQueued)
	w.want(reasonNodeReboot, "SELECT reason FROM runs WHERE uid = ?", tells[1].UID)
	w.jobIs(j3, jobDispatching) // an offer is not touched: nothing was granted
	if a.claim(p3.RunUID).Verdict != verdictGrant {
		t.Fatal("an offer does not outlive a reboot")
	}
}

func TestSessions(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	job := w.submit(testJob{})
	tell := a.started()
	old := a.h // what the dying agent still had under way
	a.h.Instance, a.h.Session = newUID(), 0
	a.hello(tell)
	if a.h.Session != old.Session+1 {
		t.Fatalf("session %d after %d", a.h.Session, old.Session)
	}
	live := a.h
	a.h = old
	ans, p := a.say(tell.ended(exitInfo{Code: 1}))
	if p == nil || p.Code != codeSession {
		t.Fatalf("hello of an older session: %+v %+v", ans, p)
	}
	w.jobIs(job, jobRunning)
	a.h = live
	if ans, p := a.say(tell); p != nil || !ans.Accepted {
		t.Fatalf("the newest session is not accepted any more: %+v %+v", ans, p)
	}
}

func TestCloneAndTokens(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	clone := *a
	clone.h.Fingerprint = wireFingerprint{MachineID: "another"}
	clone.h.Instance = newUID()
	for range 2 {
		if _, p := clone.say(); p == nil || p.Code != codeClone {
			t.Fatalf("clone: %+v", p)
		}
	}
	w.want("1", "SELECT count(*) FROM events WHERE type = 'CLONE_SUSPECTED'")
	if ans, p := a.say(); p != nil || !ans.Accepted {
		t.Fatalf("the real one lost its place: %+v", p)
	}
	thief := w.agent("b", 0)
	thief.h.UID = a.h.UID
	if _, p := thief.say(); p == nil || p.Code != codeForbidden {
		t.Fatalf("another node's token: %+v", p)
	}
	var unbound string
	w.write(func(t *tx) (err error) { _, unbound, err = mintTokenTx(t, "new", scopeAgent, nil, nil); return err })
	if _, p := w.call("GET", "/api/v1/agent/poll", unbound, nil, nil); p == nil || p.Code != codeWrongState {
		t.Fatalf("poll before hello: %+v", p)
	}
	second := w.agent("a2", 0)
	second.h.Name = "a"
	c := &testAgent{w: w, token: unbound, h: second.h}
	c.h.UID, c.h.Fingerprint, c.h.Session, c.h.Instance = newUID(), wireFingerprint{MachineID: "third"}, 0, newUID()
	if ans := c.hello(); ans.Node != "a-2" {
		t.Fatalf("name %q", ans.Node)
	}
}

func TestSlotsFollowTheMachine(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 2)
	w.submit(testJob{})
	tell := a.started()
	list := func() string {
		return w.get("SELECT group_concat(lane || idx || ':' || health || ':' || (run_id IS NOT NULL), ' ' ORDER BY lane, uuid) FROM slots")
	}
	if got := list(); got != "cpu0:ok:0 cpu1:ok:0 gpu0:ok:1 gpu1:ok:0" {
		t.Fatal(got)
	}
	a.h.Devices = a.h.Devices[1:] // the held card fell off the bus, the other one moved up
	a.h.Devices[0].Idx, a.h.CPULane = 0, 1
	a.hello(tell)
	if got := list(); got != "cpu0:ok:0 gpu0:gone:1 gpu0:ok:0" {
		t.Fatal(got)
	}
	w.want("1", "SELECT count(*) FROM events WHERE type = 'GPU_GONE'")
	a.hello(tell.ended(exitInfo{}))
	w.held(0)
}

func TestPoll(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	got := make(chan pollAnswer)
	go func() {
		var ans pollAnswer
		w.call("GET", "/api/v1/agent/poll?wait=20", a.token, nil, &ans)
		got <- ans
	}()
	waitFor(t, "the poll waits", func() bool {
		w.s.hub.mu.Lock()
		defer w.s.hub.mu.Unlock()
		return w.s.hub.bells[bellNode(1)] != nil
	})
	w.submit(testJob{})
	w.pass()
	ans := <-got
	if len(ans.Commands) != 1 || ans.Gpuctl != 1 || ans.Incarnation != w.s.inc.current() {
		t.Fatalf("%+v", ans)
	}
	w.call("GET", fmt.Sprintf("/api/v1/agent/poll?have=%d,99", ans.Commands[0].ID), a.token, nil, &ans)
	if len(ans.Commands) != 0 {
		t.Fatalf("a command in have is sent again: %+v", ans)
	}
	for _, q := range []string{"wait=x", "wait=-1", "wait=NaN", "have=1,b"} {
		if _, p := w.call("GET", "/api/v1/agent/poll?"+q, a.token, nil, nil); p == nil || p.Code != codeUsage {
			t.Fatalf("%s: %+v", q, p)
		}
	}
}

func TestReadLogThroughTheAgent(t *testing.T) {
	w := newWorld(t)
	a := w.agent("a", 1)
	uid := newUID()
	type result struct {
		data        []byte
		start, size int64
		err         error
	}
	got := make(chan result, 1)
	read := func(ctx context.Context) {
		data, start, size, err := w.s.readLog(ctx, 1, uid, -100, 1<<30)
		got <- result{data, start, size, err}
	}
	go read(t.Context())
	var c wireCommand
	waitFor(t, "the read", func() bool {
		if cs := a.poll(); len(cs) == 1 {
			c = cs[0]
		}
		return c.ID < 0
	})
	var p readPayload
	w.must(json.Unmarshal(c.Payload, &p))
	if c.Kind != cmdRead || c.RunUID != uid || p.Off != -100 || p.Len != logPieceMaxBytes {
		t.Fatalf("%+v %+v", c, p)
	}
	path := fmt.Sprintf("/api/v1/agent/commands/%d", c.ID)
	other := w.agent("b", 0)
	if _, p := w.call("POST", path, other.token, commandAnswer{OK: true}, nil); p == nil || p.Code != codeNotFound {
		t.Fatalf("another node answered: %+v", p)
	}
	if _, p := w.call("POST", path, a.token, commandAnswer{OK: true, Off: 7, Size: 10, Data: []byte("abc")}, nil); p != nil {
		t.Fatal(p)
	}
	if r := <-got; r.err != nil || string(r.data) != "abc" || r.start != 7 || r.size != 10 {
		t.Fatalf("%+v", r)
	}
	if _, p := w.call("POST", path, a.token, commandAnswer{OK: true}, nil); p == nil || p.Code != codeNotFound {
		t.Fatalf("answered twice: %+v", p)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	go read(ctx)
	if p, ok := asProblem((<-got).err); !ok || p.Code != codeNodeUnreachable {
		t.Fatalf("silence: %+v", p)
	}
	if len(w.s.relay.open) != 0 {
		t.Fatal("a question was left behind")
	}
}
