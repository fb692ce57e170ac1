package main

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

func TestAgentStopsARun(t *testing.T) {
	s := newAgentScene(t)
	s.play(s.options())
	s.ready()
	uid := newUID()
	s.orderStart(1, uid, "/bin/sh", "-c", "exec sleep 60")
	s.waitTruth(uid, tellAlive)
	s.with(func() { clear(s.commands) })
	s.order(2, cmdStop, uid, stopPayload{Reason: reasonCancelled, GraceS: 1})
	got := s.waitTruth(uid, tellEnded)
	if got.Exit.Signal == 0 || got.Exit.Reason != reasonCancelled {
		t.Fatalf("exit %+v", got.Exit)
	}
}

// A stop that comes before the fate wins over the grant.
func TestAgentStopBeforeTheFate(t *testing.T) {
	s := newAgentScene(t)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	s.claim = func(q claimRequest) claimAnswer { <-hold; return s.grant(q) }
	s.play(s.options())
	s.ready()
	uid := newUID()
	s.orderStart(1, uid, "/bin/sh", "-c", "touch started")
	waitFor(t, "the claim", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.claims) == 1 })
	s.order(2, cmdStop, uid, stopPayload{Reason: reasonCancelled})
	s.waitTruth(uid, tellGone)
	waitFor(t, "the supervisor to go away", func() bool { held, err := s.dir(uid).supervised(); return err == nil && !held })
	release()
	if _, err := os.Stat(s.home + "/started"); err == nil {
		t.Fatal("started after the stop")
	}
}

// A run that this node never saw is burned by stop and by verify, so that a late start finds a fate.
func TestAgentBurnsWhatItNeverSaw(t *testing.T) {
	s := newAgentScene(t)
	s.play(s.options())
	s.ready()
	for i, kind := range []string{cmdStop, cmdVerify} {
		uid := newUID()
		s.order(int64(10*i+1), kind, uid, stopPayload{Reason: reasonFenced})
		s.waitTruth(uid, tellGone)
		s.orderStart(int64(10*i+2), uid, "/bin/sh", "-c", "touch started")
		s.order(int64(10*i+3), cmdRead, uid, readPayload{Len: 1})
		waitFor(t, "an answer to what came with it", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.answers[int64(10*i+3)].Error != "" })
		if f := s.fateOf(uid); f != fateBurn {
			t.Errorf("%s: fate %q", kind, f)
		}
		s.with(func() {
			if len(s.claims) > 0 {
				t.Errorf("%s: claimed", kind)
			}
		})
	}
}

// What was settled is told again when it is asked about, and only then.
func TestAgentVerifyTellsWhatWasSettled(t *testing.T) {
	s := newAgentScene(t)
	uid := newUID()
	d := s.folder(uid, fateStart)
	if err := writeAtomicJSON(d.file("exit.json"), runExit{exitInfo: exitInfo{Code: 3}}); err != nil {
		t.Fatal(err)
	}
	s.play(s.options())
	s.waitTruth(uid, tellEnded)
	tells := func() (n int) {
		s.with(func() {
			for _, h := range s.hellos {
				n += len(h.Runs)
			}
		})
		return n
	}
	other := newUID()
	s.order(1, cmdVerify, other, verifyPayload{}) // leads to a hello
	s.waitTruth(other, tellGone)
	s.with(func() {
		if h := s.hellos[len(s.hellos)-1]; len(h.Runs) != 1 {
			t.Errorf("a settled run was told again: %v", sortedUIDs(h.Runs))
		}
	})
	n := tells()
	s.order(2, cmdVerify, uid, verifyPayload{})
	waitFor(t, "the settled run to be told", func() bool { return tells() > n })
	if got := s.last(uid); got.Truth != tellEnded || got.Exit.Code != 3 {
		t.Errorf("told %+v", got)
	}
}

// An answer to a hello that was composed before the question settles nothing.
func TestAgentQuestionOutdatesAnOlderHello(t *testing.T) {
	a := &agent{runs: map[string]*agentRun{}, inc: "1-a", log: newAgentScene(t).options().log, unsettled: backoff{first: 1, most: 1}}
	up, err := newUploader(t.TempDir(), nil, a.log, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.up = up
	uid := newUID()
	a.runs[uid] = &agentRun{told: tellGone}
	told := map[string]toldRun{uid: {truth: tellGone, asked: 0}}
	ans := helloAnswer{Accepted: true, Incarnation: "1-a", Settled: []string{uid}}
	a.asked(uid)
	a.accepted(ans, helloRequest{Incarnation: "1-a"}, told)
	if a.runs[uid].settled != "" {
		t.Error("settled by an older hello")
	}
	told[uid] = toldRun{truth: tellAlive, asked: 1}
	a.accepted(ans, helloRequest{Incarnation: "1-a"}, told)
	if a.runs[uid].settled != "" {
		t.Error("settled though it was told alive")
	}
	told[uid] = toldRun{truth: tellGone, asked: 1}
	a.accepted(ans, helloRequest{Incarnation: "1-a"}, told)
	if a.runs[uid].settled != "1-a" {
		t.Error("not settled")
	}
}

func TestAgentSignalsOnce(t *testing.T) {
	s := newAgentScene(t)
	s.play(s.options())
	s.ready()
	uid := newUID()
	s.orderStart(1, uid, "/bin/sh", "-c", `trap 'echo got' USR1; echo up; while [ ! -e stop ]; do sleep 0.05; done`)
	waitFor(t, "the trap", func() bool { b, err := os.ReadFile(s.dir(uid).logPath()); return err == nil && string(b) == "up\n" })
	s.waitTruth(uid, tellAlive)
	s.order(2, cmdSignal, uid, signalPayload{Signal: 10})
	waitFor(t, "the answer", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.answers[2].OK })
	waitFor(t, "the signal", func() bool { b, _ := os.ReadFile(s.dir(uid).logPath()); return strings.Contains(string(b), "got") })
	s.with(func() { clear(s.answers) })
	for id, sig := range map[int64]int{3: 99, 13: 0, 23: -9} {
		s.order(id, cmdSignal, uid, signalPayload{Signal: sig})
		waitFor(t, "the answer to nonsense", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.answers[id].Error != "" })
	}
	if err := os.WriteFile(s.home+"/stop", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.waitTruth(uid, tellEnded)
	if b, _ := os.ReadFile(s.dir(uid).logPath()); strings.Count(string(b), "got") != 1 {
		t.Errorf("log %q", b)
	}
	s.order(4, cmdSignal, uid, signalPayload{Signal: 10})
	waitFor(t, "the answer", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.answers[4].Error != "" })
}

// A fifo in the place of the log must not hang the reader.
func TestReadLogPieceOfAFifo(t *testing.T) {
	dir := runDir(t.TempDir())
	if err := exec.Command("mkfifo", dir.logPath()).Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := readLogPiece(dir, 0, 10); err == nil || !strings.Contains(err.Error(), "not a file") {
		t.Errorf("%v", err)
	}
}

func TestAgentReadsTheLog(t *testing.T) {
	s := newAgentScene(t)
	uid, bad := newUID(), newUID()
	d := s.folder(uid, fateStart)
	text := strings.Repeat("0123456789", 50_000)
	if err := os.WriteFile(d.logPath(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := t.TempDir() + "/secret"
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := s.folder(bad, fateStart)
	if err := os.Symlink(secret, b.logPath()); err != nil {
		t.Fatal(err)
	}
	s.play(s.options())
	s.ready()
	cases := []struct {
		uid      string
		off, n   int64
		at, size int64
		err      string
	}{
		{uid, 0, 10, 0, 10, ""},
		{uid, -4, 100, 499_996, 4, ""},
		{uid, -600_000, 10, 0, 10, ""},
		{uid, 7, 1 << 30, 7, logPieceMaxBytes, ""},
		{uid, 600_000, 10, 600_000, 0, ""},
		{uid, 5, -1, 5, 0, ""},
		{newUID(), 0, 10, 0, 0, "no folder"},
		{"../" + uid, 0, 10, 0, 0, "no uid"},
		{bad, 0, 10, 0, 0, "escapes"},
	}
	for i, c := range cases {
		id := -int64(i) - 1
		s.order(id, cmdRead, c.uid, readPayload{Off: c.off, Len: c.n})
		var got commandAnswer
		waitFor(t, "the answer", func() (ok bool) { s.mu.Lock(); defer s.mu.Unlock(); got, ok = s.answers[id]; return ok })
		if c.err != "" {
			if got.OK || !strings.Contains(got.Error, c.err) {
				t.Errorf("%+v: %+v", c, got)
			}
			continue
		}
		if !got.OK || got.Off != c.at || int64(len(got.Data)) != c.size || got.Size != 500_000 || c.size > 0 && string(got.Data) != text[c.at:c.at+c.size] {
			t.Errorf("%+v: ok %v, off %d, %d bytes of %d, %s", c, got.OK, got.Off, len(got.Data), got.Size, got.Error)
		}
	}
}
