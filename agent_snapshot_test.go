package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLookAtEnv(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	tmp := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		c := exec.Command(git, args...)
		c.Dir = tmp
		c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %s", args, out)
		}
		return strings.TrimSpace(string(out))
	}
	put := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(tmp, name)
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	look := func(spec runSpec) envSnapshot {
		spec.WorkingDir = tmp
		return lookAtEnv(t.Context(), spec, agentHost{name: "h"})
	}
	python := put("python3.9", "#!/bin/sh\nenv > "+tmp+"/seen; echo Python 3.9.1", 0o700)
	spec := runSpec{
		Argv: []string{"python3.9", "train.py", "--api-key", "abc"}, Path: python,
		Env: []string{"PATH=" + filepath.Dir(git) + ":/usr/bin:/bin", "SECRET=hidden", "GPUCTL_RUN_UID=x", "VIRTUAL_ENV=/v"},
	}
	s := look(spec)
	if s.Git != nil {
		t.Errorf("no work tree: %+v", s.Git)
	}
	if s.Python == nil || s.Python.Version != "3.9.1" || s.Python.Path != python || s.Packages == nil || s.Packages.VirtualEnv != "/v" {
		t.Errorf("python %+v", s.Python)
	}
	if seen, err := os.ReadFile(tmp + "/seen"); err != nil || strings.Contains(string(seen), "GPUCTL_") {
		t.Errorf("the look carries the run's marker: %s, %v", seen, err)
	}
	if s.Argv[3] != "***" || slices.Contains(s.EnvNames, "GPUCTL_RUN_UID") || !slices.Contains(s.EnvNames, "SECRET") {
		t.Errorf("argv %q, names %q", s.Argv, s.EnvNames)
	}
	if b, err := json.Marshal(s); err != nil || strings.Contains(string(b), "hidden") || strings.Contains(string(b), "abc") {
		t.Errorf("a value got out: %s, %v", b, err)
	}

	run("init", "-q", "-b", "work")
	if s := look(spec); s.Git == nil || s.Git.Error == "" || s.Git.Commit != "" {
		t.Errorf("no commit yet: %+v", s.Git)
	}
	put(".gitignore", "seen\n", 0o600)
	run("add", ".")
	run("commit", "-qm", "x")
	head := run("rev-parse", "HEAD")
	if s := look(spec); s.Git.Commit != head || s.Git.Branch != "work" || s.Git.Dirty == nil || *s.Git.Dirty || s.Git.Error != "" {
		t.Errorf("clean: %+v", s.Git)
	}
	if err := os.Mkdir(filepath.Join(tmp, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	below := spec
	below.WorkingDir = filepath.Join(tmp, "sub")
	if s := lookAtEnv(t.Context(), below, agentHost{}); s.Git == nil || s.Git.Commit != head || s.Git.Branch != "work" {
		t.Errorf("in a folder of the work tree: %+v", s.Git)
	}
	put("new", "", 0o600)
	if s := look(spec); s.Git.Dirty == nil || !*s.Git.Dirty {
		t.Errorf("dirty: %+v", s.Git)
	}
	run("checkout", "-q", "--detach")
	if s := look(spec); s.Git.Branch != "" || s.Git.Commit != head {
		t.Errorf("detached: %+v", s.Git)
	}

	// A program that hangs costs its limit and no more.
	put("python3.9", "#!/bin/sh\nexec sleep 60", 0o700)
	start := time.Now()
	q := snapshotAsk{dir: tmp, limit: 100 * time.Millisecond}
	if p := q.python(t.Context(), spec); p.Error == "" || p.Version != "" || time.Since(start) > 5*time.Second {
		t.Errorf("a hanging python: %+v after %v", p, time.Since(start))
	}
}

// The snapshot is taken beside the run, once, also when the agent that started the run did not get to it.
func TestAgentTakesTheSnapshot(t *testing.T) {
	s := newAgentScene(t)
	stop := s.play(s.options())
	s.ready()
	uid := newUID()
	s.orderStart(1, uid, "/bin/sh", "-c", "while [ ! -e stop ]; do sleep 0.05; done")
	file := s.dir(uid).file(snapshotFile)
	there := func() bool { _, err := os.Stat(file); return err == nil }
	waitFor(t, "the snapshot", there)
	stop()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.with(func() { clear(s.commands) })
	s.play(s.options())
	waitFor(t, "the snapshot of the adopted run", there)
	if err := os.WriteFile(s.home+"/stop", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.waitTruth(uid, tellEnded)
	short := newUID()
	s.orderStart(2, short, "true")
	s.waitTruth(short, tellEnded)
	waitFor(t, "the snapshot of a short run", func() bool { _, err := os.Stat(s.dir(short).file(snapshotFile)); return err == nil })
}
