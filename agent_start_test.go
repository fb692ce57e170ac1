package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestAgentStartsAndTellsTheEnd(t *testing.T) {
	s := newAgentScene(t)
	s.play(s.options())
	s.ready()
	uid := newUID()
	s.orderStart(1, uid, "/bin/sh", "-c", `echo "$GPUCTL_RUN_UID|$CUDA_VISIBLE_DEVICES|$PYTHONUNBUFFERED"; exit 7`)
	got := s.waitTruth(uid, tellEnded)
	if got.Exit.Code != 7 || got.Grant != 1 || got.Attempt != 1 || got.JobUID != "job-"+uid[:4] {
		t.Fatalf("told %+v, exit %+v", got, got.Exit)
	}
	b, err := os.ReadFile(s.dir(uid).logPath())
	if want := uid + "||1\n"; err != nil || string(b) != want {
		t.Fatalf("log %q, %v, want %q", b, err, want)
	}
	exit, err := os.Stat(s.dir(uid).file("exit.json"))
	if err != nil {
		t.Fatal(err)
	}
	s.with(func() {
		for _, h := range s.hellos {
			for _, r := range h.Runs {
				if r.UID == uid && r.Truth == tellEnded {
					if late := time.UnixMilli(h.NowMS).Sub(exit.ModTime()); late > 3*time.Second { // 50 ms on an idle machine, 1.04 s under -race and load
						t.Errorf("the end was told %v after exit.json", late)
					}
					return
				}
			}
		}
	})
}

// A start command that is repeated, also after its run is over, starts nothing more.
func TestAgentDoubledStart(t *testing.T) {
	s := newAgentScene(t)
	s.play(s.options())
	s.ready()
	uid := newUID()
	s.orderStart(1, uid, "/bin/sh", "-c", "echo x; sleep 0.2")
	s.orderStart(2, uid, "/bin/sh", "-c", "echo x; sleep 0.2")
	s.waitTruth(uid, tellAlive)
	s.orderStart(3, uid, "/bin/sh", "-c", "echo x")
	s.waitTruth(uid, tellEnded)
	s.orderStart(4, uid, "/bin/sh", "-c", "echo x")
	s.order(5, cmdSignal, uid, signalPayload{Signal: 10})
	waitFor(t, "an answer to what came with it", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.answers[5].Error != "" })
	b, err := os.ReadFile(s.dir(uid).logPath())
	if err != nil || string(b) != "x\n" {
		t.Fatalf("log %q, %v", b, err)
	}
	s.with(func() {
		if len(s.claims) != 1 {
			t.Errorf("%d claims", len(s.claims))
		}
	})
}

func TestAgentRefuses(t *testing.T) {
	s := newAgentScene(t)
	s.play(s.options())
	s.ready()
	cases := []struct {
		name string
		edit func(p *startPayload)
		why  string
		says string
	}{
		{"no folder", func(p *startPayload) { p.WorkingDir = s.home + "/none" }, refuseNoDir, s.home + "/none does not exist"},
		{"relative folder", func(p *startPayload) { p.WorkingDir = "x" }, refuseNoDir, "not an absolute path"},
		{"no command", func(p *startPayload) { p.Argv = []string{"no-such-command-here"} }, refuseNoExec, "command not found"},
		{"not executable", func(p *startPayload) { p.Argv = []string{"./plain.sh"} }, refuseNoExec, s.home + "/plain.sh is not executable"},
		{"no venv", func(p *startPayload) { p.Venv = "/nowhere" }, refuseNoExec, "/nowhere is no virtual environment"},
		{"no card", func(p *startPayload) { p.Slots = []slotRef{{Lane: laneGPU, UUID: "GPU-x"}} }, refusePolicy, "GPU-x"},
	}
	if err := os.WriteFile(s.home+"/plain.sh", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			uid := newUID()
			p := startPayload{RunUID: uid, Argv: []string{"true"}, WorkingDir: s.home}
			c.edit(&p)
			s.order(int64(i+1), cmdStart, uid, p)
			find := func() (q claimRequest) {
				s.with(func() {
					for _, q = range s.claims {
						if q.UID == uid {
							return
						}
					}
					q = claimRequest{}
				})
				return q
			}
			waitFor(t, "a refusal", func() bool { return find().Refuse != nil })
			if r := find().Refuse; r.Why != c.why || !strings.Contains(r.Detail, c.says) {
				t.Errorf("refused %+v, want %s with %q", r, c.why, c.says)
			}
			if _, err := os.Stat(string(s.dir(uid))); err == nil {
				t.Error("a refused run left a folder")
			}
		})
	}
}

func TestAgentDenyBurns(t *testing.T) {
	s := newAgentScene(t)
	s.claim = func(claimRequest) claimAnswer {
		return claimAnswer{Gpuctl: 1, Verdict: verdictDeny, Incarnation: "1-a"}
	}
	s.play(s.options())
	s.ready()
	uid := newUID()
	s.orderStart(1, uid, "/bin/sh", "-c", "touch started")
	s.waitTruth(uid, tellGone)
	if f := s.fateOf(uid); f != fateBurn {
		t.Fatalf("fate %q", f)
	}
	waitFor(t, "the supervisor to go away", func() bool { held, err := s.dir(uid).supervised(); return err == nil && !held })
	if _, err := os.Stat(s.home + "/started"); err == nil {
		t.Fatal("a denied run started")
	}
}

// The claim is repeated until it is answered, and `later` leads to another one.
func TestAgentRepeatsTheClaim(t *testing.T) {
	s := newAgentScene(t)
	n := 0
	s.claim = func(q claimRequest) claimAnswer {
		switch n++; n {
		case 1:
			panic(http.ErrAbortHandler) // the connection breaks
		case 2:
			return claimAnswer{Gpuctl: 1, Verdict: verdictLater, Incarnation: "1-a"}
		case 3:
			return claimAnswer{Verdict: verdictGrant, Incarnation: "1-a"} // not ours: no "gpuctl":1
		}
		return s.grant(q)
	}
	s.play(s.options())
	s.ready()
	uid := newUID()
	s.orderStart(1, uid, "true")
	s.waitTruth(uid, tellEnded)
	if n < 4 {
		t.Fatalf("%d claims", n)
	}
}

// A grant of another incarnation than the one it was asked under never starts anything.
func TestAgentIgnoresAGrantOfAnotherIncarnation(t *testing.T) {
	s := newAgentScene(t)
	s.claim = func(claimRequest) claimAnswer {
		s.with(func() { s.inc = "2-b"; clear(s.commands) })
		return claimAnswer{Gpuctl: 1, Verdict: verdictGrant, Incarnation: "2-b", Run: "7.1", Attempt: 1, Grant: 1}
	}
	s.play(s.options())
	s.ready()
	uid := newUID()
	s.orderStart(1, uid, "/bin/sh", "-c", "touch started")
	got := s.waitTruth(uid, tellGone)
	if got.Grant != 0 || s.fateOf(uid) != fateBurn {
		t.Fatalf("told %+v, fate %q", got, s.fateOf(uid))
	}
	if _, err := os.Stat(s.home + "/started"); err == nil {
		t.Fatal("started")
	}
}

// The claim is open when the server gets a new incarnation: burned before the hello, which tells every folder.
func TestAgentNewIncarnationBurns(t *testing.T) {
	s := newAgentScene(t)
	old := newUID()
	s.folder(old, fateBurn)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	s.claim = func(claimRequest) claimAnswer {
		<-hold
		return claimAnswer{Gpuctl: 1, Verdict: verdictGrant, Incarnation: "1-a", Run: "7.1", Attempt: 1, Grant: 1}
	}
	s.play(s.options())
	s.ready()
	uid := newUID()
	s.orderStart(1, uid, "/bin/sh", "-c", "touch started")
	waitFor(t, "the claim", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.claims) == 1 })
	s.waitTruth(old, tellGone)
	s.with(func() { s.inc = "2-b"; clear(s.commands) })
	waitFor(t, "a hello of the new incarnation", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.hellos[len(s.hellos)-1].Incarnation == "2-b"
	})
	release()
	s.with(func() {
		for _, h := range s.hellos {
			if h.Incarnation != "2-b" {
				continue
			}
			if !h.All || len(h.Runs) != 2 || h.Runs[0].Truth != tellGone || h.Runs[1].Truth != tellGone {
				t.Errorf("first hello of the new incarnation: all %v, runs %+v", h.All, h.Runs)
			}
			return
		}
	})
	if s.fateOf(uid) != fateBurn {
		t.Errorf("fate %q", s.fateOf(uid))
	}
	if _, err := os.Stat(s.home + "/started"); err == nil {
		t.Error("started by a late grant")
	}
}

// No command is used before a hello was accepted, and another session leads to a complete hello.
func TestAgentNeedsAnAcceptedHello(t *testing.T) {
	s := newAgentScene(t)
	s.orderStart(1, newUID(), "true")
	s.play(s.options())
	s.ready()
	s.with(func() {
		if len(s.refused) != 1 || s.refused[0].Session != 0 || s.polls > 0 && len(s.hellos) == 0 {
			t.Errorf("%d refused, %d polls", len(s.refused), s.polls)
		}
		if h := s.hellos[0]; !h.All || h.Session != 1 || h.CPULane != 2 || h.Fingerprint.MachineID == "" || !isUID(h.UID) || h.BootID == "" {
			t.Errorf("hello %+v", h)
		}
		for i := range s.sessions {
			s.sessions[i] = 9
		}
		s.hellos = nil
	})
	uid := newUID()
	s.order(2, cmdVerify, uid, verifyPayload{})
	waitFor(t, "a hello of session 9", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.hellos) > 0 && s.hellos[0].Session == 9 && s.hellos[0].All
	})
}

// An agent starts where nothing can be written, to adopt what runs: its uid is only read.
func TestNodeUIDIsOnlyRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "agent-uid")
	made, err := nodeUID(path)
	if err != nil || !isUID(made) {
		t.Fatal(made, err)
	}
	old := time.Unix(1e9, 0)
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
	if uid, err := nodeUID(path); err != nil || uid != made {
		t.Errorf("%s, was %s: %v", uid, made, err)
	}
	if st, err := os.Stat(dir); err != nil || !st.ModTime().Equal(old) {
		t.Errorf("something was written: %v %v", st.ModTime(), err)
	}
}
