package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// stillAgent is an agent whose loops do not run.
func stillAgent(t *testing.T) (*agentScene, *agent) {
	t.Helper()
	s := newAgentScene(t)
	for _, d := range []string{"runs", "spool"} {
		if err := os.MkdirAll(s.home+"/"+d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	a, err := newAgent(s.options())
	if err != nil {
		t.Fatal(err)
	}
	return s, a
}

// Nothing decided: pending as long as somebody may still start it, else burned, and only then gone.
func TestTellRunWithoutAFate(t *testing.T) {
	now := time.Now()
	cases := []struct {
		name   string
		r      agentRun
		locked bool
		want   string
	}{
		{"nobody", agentRun{}, false, tellGone},
		{"a supervisor of a former agent waits", agentRun{}, true, tellGone},
		{"the claim is open", agentRun{busy: true}, false, tellPending},
		{"just granted", agentRun{used: true, granted: now}, false, tellPending},
		{"granted, a slow supervisor", agentRun{used: true, granted: now.Add(-time.Minute)}, true, tellPending},
		{"granted, the supervisor died", agentRun{used: true, granted: now.Add(-time.Minute)}, false, tellGone},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, a := stillAgent(t)
			uid := newUID()
			dir := s.folder(uid, "")
			a.runs[uid] = &c.r
			if c.locked {
				lock, err := lockFile(dir.lockPath())
				if err != nil {
					t.Fatal(err)
				}
				defer lock.Close()
			}
			got := a.tellRun(dir, nil, now)
			fate := ""
			if c.want == tellGone {
				fate = fateBurn
			}
			if got.Truth != c.want || s.fateOf(uid) != fate {
				t.Errorf("told %+v, fate %q; want %s", got, s.fateOf(uid), c.want)
			}
		})
	}
}

// A folder that cannot be burned is not gone.
func TestTellRunThatCannotBeBurned(t *testing.T) {
	s, a := stillAgent(t)
	uid := newUID()
	dir := s.folder(uid, "")
	if os.Getuid() == 0 { // root may write anywhere: a dangling link in the place of the fate cannot be linked over, nor read
		if err := os.Symlink("/nowhere", dir.file("fate")); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Chmod(string(dir), 0o500); err != nil {
		t.Fatal(err)
	}
	if got := a.tellRun(dir, nil, time.Now()); got.Truth != tellPending || got.DetailError == "" {
		t.Errorf("told %+v", got)
	}
	if err := os.Chmod(string(dir), 0o700); err != nil {
		t.Fatal(err)
	}
}

// The files of the end are damaged: over, with a code that nobody knows.
func TestTellRunWithDamagedFiles(t *testing.T) {
	for _, name := range []string{"fate", "exit.json", "spec.json", "pid.json", "leader.json"} {
		s, a := stillAgent(t)
		uid := newUID()
		dir := s.folder(uid, "")
		if name != "fate" {
			if _, err := dir.decide(runFate{Fate: fateStart}); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(dir.file(name), []byte(`{"fate":`), 0o600); err != nil {
			t.Fatal(err)
		}
		got := a.tellRun(dir, nil, time.Now())
		if got.Truth != tellEnded || got.Exit == nil || got.Exit.Code != -1 || got.DetailError == "" && name != "leader.json" {
			t.Errorf("%s: told %+v, exit %+v", name, got, got.Exit)
		}
	}
}

func TestShortArgv(t *testing.T) {
	long := []string{"python", strings.Repeat("x", 1<<20), "y"}
	if got := shortArgv(long); len(got) != 2 || got[1] != "..." {
		t.Errorf("%d arguments", len(got))
	}
	if got := shortArgv([]string{"a", "b"}); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

// Entering an incarnation burns before anything is told under it, a claim that is open included, and forgets what the old one settled.
func TestEnterBurns(t *testing.T) {
	s, a := stillAgent(t)
	open, started := newUID(), newUID()
	s.folder(open, "")
	s.folder(started, fateStart)
	a.runs[open] = &agentRun{busy: true}
	a.runs[started] = &agentRun{settled: "1-a", idle: true}
	a.inWork[5] = time.Time{}
	a.inc, a.ok, a.all, a.next = "1-a", true, false, "2-b"
	era := a.era
	a.enter(t.Context(), "2-b", time.Now())
	if s.fateOf(open) != fateBurn || s.fateOf(started) != fateStart {
		t.Errorf("fates %q, %q", s.fateOf(open), s.fateOf(started))
	}
	if a.inc != "2-b" || a.ok || !a.all || a.next != "" || era.Err() == nil || a.era.Err() != nil || len(a.inWork) != 0 || a.runs[started].idle {
		t.Errorf("agent after: inc %s, ok %v, all %v, next %q, in work %v", a.inc, a.ok, a.all, a.next, a.inWork)
	}
}

func TestUseGrant(t *testing.T) {
	cases := []struct {
		name  string
		edit  func(a *agent, ans *claimAnswer)
		used  bool
		never bool
	}{
		{"fine", func(*agent, *claimAnswer) {}, true, false},
		{"answer of another incarnation", func(_ *agent, ans *claimAnswer) { ans.Incarnation = "2-b" }, false, true},
		{"asked under another one", func(a *agent, _ *claimAnswer) { a.inc = "2-b" }, false, true},
		{"another one was heard of", func(a *agent, _ *claimAnswer) { a.next, a.ok = "2-b", false }, false, true},
		{"used before", func(a *agent, _ *claimAnswer) { a.record("u").used = true }, false, true},
		{"hello first", func(a *agent, _ *claimAnswer) { a.ok = false }, false, false},
	}
	for _, c := range cases {
		a := &agent{inc: "1-a", ok: true, runs: map[string]*agentRun{}}
		ans := claimAnswer{Verdict: verdictGrant, Incarnation: "1-a"}
		c.edit(a, &ans)
		used, never := a.useGrant("u", "1-a", ans)
		if used != c.used || never != c.never {
			t.Errorf("%s: used %v, never %v", c.name, used, never)
		}
		if again, _ := a.useGrant("u", "1-a", ans); again {
			t.Errorf("%s: used twice", c.name)
		}
	}
}

// An incarnation that is heard of ends the use of grants at once, and rings.
func TestHeard(t *testing.T) {
	_, a := stillAgent(t)
	a.inc, a.ok = "1-a", true
	bell := a.helloBell.listen()
	a.heard("1-a")
	a.heard("")
	if !a.ok || a.era.Err() != nil {
		t.Fatal("the present incarnation ended itself")
	}
	a.heard("2-b")
	if a.ok || a.next != "2-b" || a.era.Err() != context.Canceled {
		t.Errorf("ok %v, next %q, era %v", a.ok, a.next, a.era.Err())
	}
	select {
	case <-bell:
	default:
		t.Error("no ring")
	}
}

func TestMarkOf(t *testing.T) {
	s, _ := stillAgent(t)
	dir := s.folder(newUID(), "")
	if m := markOf(dir, true, runMark{}); m != (runMark{}) {
		t.Errorf("nothing decided: %+v", m)
	}
	lock, err := lockFile(dir.lockPath())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dir.decide(runFate{Fate: fateStart}); err != nil {
		t.Fatal(err)
	}
	if m := markOf(dir, true, runMark{}); m != (runMark{fate: true}) {
		t.Errorf("supervised: %+v", m)
	}
	if err := writeAtomicJSON(dir.file("exit.json"), runExit{}); err != nil {
		t.Fatal(err)
	}
	if m := markOf(dir, false, runMark{}); m != (runMark{fate: true, exit: true}) {
		t.Errorf("ending: %+v", m)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if m := markOf(dir, false, runMark{}); m != (runMark{fate: true, exit: true, orphan: true}) { // with exit.json the lock is always asked
		t.Errorf("ended: %+v", m)
	}
}
