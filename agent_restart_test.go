package main

// What an agent finds after the death of another one, at every point where that one may have died.

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAgentFindsAfterADeath(t *testing.T) {
	s := newAgentScene(t)
	wrote, claimed, burned, ended, lost, torn, empty := newUID(), newUID(), newUID(), newUID(), newUID(), newUID(), newUID()
	s.folder(wrote, "") // spec.json written, nothing asked
	// The claim was sent and the supervisor waits; the agent's death closed its pipe.
	w, _, err := startSupervisor(s.options().self, s.folder(claimed, ""))
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the supervisor", func() bool { held, err := s.dir(claimed).supervised(); return err == nil && held })
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s.folder(burned, fateBurn)
	if err := writeAtomicJSON(s.folder(ended, fateStart).file("exit.json"), runExit{exitInfo: exitInfo{Code: 4, LogSize: 0}}); err != nil {
		t.Fatal(err)
	}
	s.folder(lost, fateStart) // its supervisor died before exit.json
	if err := os.WriteFile(s.folder(torn, fateStart).file("spec.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(string(s.dir(empty)), 0o700); err != nil { // died between mkdir and spec.json
		t.Fatal(err)
	}
	for _, n := range []string{"junk", ".x", strings.Repeat("A", 32)} {
		if err := os.Mkdir(s.home+"/runs/"+n, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.play(s.options())
	s.ready()
	for uid, want := range map[string]string{
		wrote: tellGone, claimed: tellGone, burned: tellGone, ended: tellEnded, lost: tellEnded, torn: tellEnded, empty: tellGone,
	} {
		if got := s.last(uid); got.Truth != want {
			t.Errorf("run %s: told %+v, want %s", uid, got, want)
		}
	}
	if got := s.last(ended); got.Exit == nil || got.Exit.Code != 4 || got.Grant != 5 {
		t.Errorf("ended: %+v", got)
	}
	if got := s.last(lost); got.Exit == nil || got.Exit.Code != -1 || got.Exit.Reason == "" {
		t.Errorf("lost: %+v, exit %+v", got, got.Exit)
	}
	if got := s.last(torn); got.DetailError == "" {
		t.Errorf("torn: %+v", got)
	}
	s.with(func() {
		h := s.hellos[0]
		if len(h.Runs) != 7 || !h.All {
			t.Errorf("%d runs told, all %v", len(h.Runs), h.All)
		}
		for _, want := range []string{"junk", torn, strings.Repeat("A", 32)} {
			if !slices.ContainsFunc(h.Problems, func(p string) bool { return strings.Contains(p, want) }) {
				t.Errorf("problems %q do not name %s", h.Problems, want)
			}
		}
	})
	for _, uid := range []string{wrote, claimed, empty} {
		if s.fateOf(uid) != fateBurn {
			t.Errorf("run %s was told gone and is not burned", uid)
		}
	}
}

// The agent goes and comes back while the run lives: adopted, and ended with its true code.
func TestAgentAdopts(t *testing.T) {
	s := newAgentScene(t)
	stop := s.play(s.options())
	s.ready()
	uid := newUID()
	s.orderStart(1, uid, "/bin/sh", "-c", "while [ ! -e stop ]; do sleep 0.05; done; exit 9")
	s.waitTruth(uid, tellAlive)
	stop()
	s.with(func() { s.hellos = nil; clear(s.commands) })
	started := time.Now()
	s.play(s.options())
	got := s.waitTruth(uid, tellAlive)
	if d := time.Since(started); d > 5*time.Second {
		t.Errorf("adopted after %v", d)
	}
	if got.Grant != 1 || got.JobUID != "job-"+uid[:4] {
		t.Errorf("adopted as %+v", got)
	}
	if err := os.WriteFile(s.home+"/stop", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.waitTruth(uid, tellEnded); got.Exit.Code != 9 {
		t.Errorf("exit %+v", got.Exit)
	}
}

// It ends while no agent lives.
func TestAgentTellsWhatEndedWithoutIt(t *testing.T) {
	s := newAgentScene(t)
	stop := s.play(s.options())
	s.ready()
	uid := newUID()
	s.orderStart(1, uid, "/bin/sh", "-c", "while [ ! -e stop ]; do sleep 0.05; done; exit 9")
	s.waitTruth(uid, tellAlive)
	stop()
	if err := os.WriteFile(s.home+"/stop", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "exit.json", func() bool { _, ok, err := s.dir(uid).exit(); return ok && err == nil })
	s.with(func() { s.hellos = nil; clear(s.commands) })
	s.play(s.options())
	if got := s.waitTruth(uid, tellEnded); got.Exit.Code != 9 {
		t.Errorf("exit %+v", got.Exit)
	}
}

// A process with the marker lives, its folder was wiped: alive. With a folder that says otherwise: alive too.
func TestAgentBelievesTheLiving(t *testing.T) {
	s := newAgentScene(t)
	wiped, burned, over, foreign := newUID(), newUID(), newUID(), newUID()
	s.folder(burned, fateBurn)
	if err := writeAtomicJSON(s.folder(over, fateStart).file("exit.json"), runExit{exitInfo: exitInfo{Code: 0}}); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{wiped, burned, over, foreign} {
		c := exec.Command("sleep", "60")
		c.Env = []string{"GPUCTL_RUN_UID=" + uid, "GPUCTL_SDK_FILE=" + s.dir(uid).file(sdkFile)}
		if uid == foreign { // of another home on the same machine
			c.Env[1] = "GPUCTL_SDK_FILE=/elsewhere/runs/" + uid + "/sdk.jsonl"
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			err := c.Process.Kill()
			var exit *exec.ExitError
			if werr := c.Wait(); err != nil && !errors.Is(err, os.ErrProcessDone) || werr != nil && !errors.As(werr, &exit) {
				t.Error(err, werr)
			}
		}()
	}
	waitFor(t, "the markers", func() bool {
		m, err := markedRuns()
		return err == nil && len(m[wiped])*len(m[burned])*len(m[over])*len(m[foreign]) > 0
	})
	s.play(s.options())
	s.ready()
	for _, uid := range []string{wiped, burned, over} {
		if got := s.last(uid); got.Truth != tellAlive {
			t.Errorf("told %+v", got)
		}
	}
	if got := s.last(foreign); got.Truth != "" {
		t.Errorf("a run of another home was told: %+v", got)
	}
	s.order(1, cmdStop, wiped, stopPayload{Reason: reasonFenced, GraceS: 1})
	s.waitTruth(wiped, tellEnded)
	waitFor(t, "the end of its process", func() bool { m, err := markedRuns(); return err == nil && len(m[wiped]) == 0 })
}

// The supervisor is killed while the process lives: alive until the tree is gone, then an unknown code, never success.
func TestAgentSupervisorKilled(t *testing.T) {
	s := newAgentScene(t)
	s.play(s.options())
	s.ready()
	uid := newUID()
	s.orderStart(1, uid, "/bin/sh", "-c", "while [ ! -e stop ]; do sleep 0.05; done; exit 0")
	s.waitTruth(uid, tellAlive)
	var p runPid
	waitFor(t, "pid.json", func() (ok bool) {
		var err error
		p, ok, err = s.dir(uid).pid()
		return ok && err == nil
	})
	if err := syscall.Kill(p.SupervisorPid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the lock", func() bool { held, err := s.dir(uid).supervised(); return err == nil && !held })
	s.order(2, cmdVerify, uid, verifyPayload{})
	n := 0
	s.with(func() { n = len(s.hellos) })
	waitFor(t, "a hello", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.hellos) > n })
	if got := s.last(uid); got.Truth != tellAlive {
		t.Fatalf("told %+v", got)
	}
	s.with(func() { clear(s.commands) })
	if err := os.WriteFile(s.home+"/stop", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.waitTruth(uid, tellEnded); got.Exit.Code != -1 || got.Exit.Reason != reasonSupervisorLost {
		t.Errorf("exit %+v", got.Exit)
	}
}

func TestAgentHoldsItsHome(t *testing.T) {
	s := newAgentScene(t)
	s.play(s.options())
	s.ready()
	err := runAgentCore(t.Context(), s.options())
	if p, ok := asProblem(err); !ok || p.Code != codeConflict {
		t.Errorf("a second agent: %v", err)
	}
}

// The uid stays over restarts; garbage in its place is not overwritten.
func TestAgentNodeUID(t *testing.T) {
	path := t.TempDir() + "/agent-uid"
	a, err := nodeUID(path)
	if err != nil || !isUID(a) {
		t.Fatalf("%q, %v", a, err)
	}
	if b, err := nodeUID(path); err != nil || b != a {
		t.Fatalf("%q, %v", b, err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := nodeUID(path); err == nil {
		t.Fatal("garbage was taken")
	}
}
