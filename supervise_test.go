package main

// Pure parts of the supervisor: environment, names of ends, causes of failed starts; and the child that shows what it was started with.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childShowArgs prints how it was started as JSON.
func childShowArgs([]string) int {
	dir, err := os.Getwd()
	if err != nil {
		return 9
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"argv": os.Args, "dir": dir, "env": os.Environ()}); err != nil {
		return 9
	}
	return 0
}

func TestOverlayEnv(t *testing.T) {
	got := overlayEnv([]string{"A=1", "B=x=y", "A=2", "=C:", "broken", "E="}, map[string]string{"B": "", "Z": "1", "D": "d"})
	want := []string{"A=2", "B=", "E=", "D=d", "Z=1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEndReason(t *testing.T) {
	const kill = int(syscall.SIGKILL)
	for _, c := range []struct {
		end   exitInfo
		cause string
		down  bool
		want  string
	}{
		{exitInfo{}, "", false, ""},
		{exitInfo{Code: 3}, "", false, reasonExitCode},
		{exitInfo{Code: 137}, "", false, reasonExitCode},
		{exitInfo{Code: 1, OOM: "x"}, "", false, reasonExitCode},
		{exitInfo{OOM: "x"}, "", false, ""},
		{exitInfo{Code: -1, Signal: kill}, "", false, reasonKilledByHost},
		{exitInfo{Code: -1, Signal: kill, OOM: "x"}, "", false, reasonHostOOM},
		{exitInfo{Code: -1, Signal: int(syscall.SIGSEGV)}, "", false, reasonSignal},
		{exitInfo{Code: -1, Signal: int(syscall.SIGTERM), OOM: "x"}, "", false, reasonSignal},
		{exitInfo{Code: -1, Signal: int(syscall.SIGTERM)}, "", true, reasonKilledByHost},
		{exitInfo{Code: 0}, reasonCancelled, false, reasonCancelled},
		{exitInfo{Code: -1, Signal: kill, OOM: "x"}, reasonTimeout, true, reasonTimeout},
	} {
		if got := endReason(c.end, c.cause, c.down); got != c.want {
			t.Errorf("%+v cause %q down %t: got %q, want %q", c.end, c.cause, c.down, got, c.want)
		}
	}
}

func TestHostGoesDown(t *testing.T) {
	if _, err := os.Stat("/run/nologin"); err == nil {
		t.Skip("logins are closed on this machine")
	}
	end := time.Now()
	term := exitInfo{Code: -1, Signal: int(syscall.SIGTERM)}
	for _, c := range []struct {
		end  exitInfo
		told time.Time
		want bool
	}{
		{term, time.Time{}, false},
		{term, end.Add(-time.Second), true},
		{term, end.Add(-shutdownWindow), false},
		{term, end.Add(time.Second), true},                // told just after its run was
		{exitInfo{Code: 1}, end.Add(shutdownSkew), false}, // it had ended by itself; its tree was still being ended
		{exitInfo{Code: 1}, end.Add(-time.Second), true},
		{exitInfo{Code: 0}, end.Add(-time.Second), false},
	} {
		if got := hostGoesDown(c.end, c.told, end); got != c.want {
			t.Errorf("%+v told %v before: got %t", c.end, end.Sub(c.told), got)
		}
	}
}

func TestSeconds(t *testing.T) {
	for in, want := range map[float64]time.Duration{-1: 0, 0: 0, 0.25: 250 * time.Millisecond, 1e300: 100 * 365 * 24 * time.Hour} {
		if got := seconds(in); got != want {
			t.Errorf("seconds(%g) = %v, want %v", in, got, want)
		}
	}
}

// startFaults are programs that cannot be started, with the cause that must be told; %s stands for the folder.
var startFaults = []struct {
	name   string
	make   func(dir string) error
	change func(s *runSpec, dir string)
	want   string
}{
	{"no command", nil, func(s *runSpec, _ string) { s.Argv, s.Path = []string{"foo"}, "" }, `no such command "foo" in PATH`},
	{"command gone", nil, func(s *runSpec, d string) { s.Argv, s.Path = []string{"foo"}, d+"/foo" }, `no such command "foo" in PATH`},
	{"file gone", nil, func(s *runSpec, d string) { s.Argv, s.Path = []string{"./foo"}, d+"/foo" }, `%s/foo does not exist`},
	{"folder gone", nil, func(s *runSpec, d string) { s.WorkingDir = d + "/z" }, `folder %s/z does not exist`},
	{"folder is a file", textFile("z", "", 0o644), func(s *runSpec, d string) { s.WorkingDir = d + "/z" }, `%s/z is not a folder`},
	{"program is a folder", nil, func(s *runSpec, d string) { s.Argv, s.Path = []string{d}, d }, `%s is a folder, not a program`},
	{"not executable", textFile("y", "#!/bin/sh\n", 0o644), programIn("y"), `%s/y is not executable (mode 0644)`},
	{"bad interpreter", textFile("y", "#!/no/such -x\n", 0o755), programIn("y"), `bad interpreter: %s/y wants /no/such`},
	{"interpreter not executable", textFile("y", "#!/etc/passwd\n", 0o755), programIn("y"), `bad interpreter: %s/y wants /etc/passwd`},
	{"line ends", textFile("y", "#!/bin/sh\r\n", 0o755), programIn("y"), `bad interpreter: %s/y wants "/bin/sh\r" (the script has Windows line ends)`},
	{"no format", textFile("y", "echo hello\n", 0o755), programIn("y"), `%s/y is not a program for this machine, and has no #! line`},
	{"too long", nil, func(s *runSpec, _ string) { s.Argv = append(s.Argv, strings.Repeat("x", 1<<20)) }, `arguments and environment are too long for this system`},
}

func textFile(name, text string, mode os.FileMode) func(string) error {
	return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), mode) }
}

func programIn(name string) func(*runSpec, string) {
	return func(s *runSpec, dir string) { s.Path = filepath.Join(dir, name); s.Argv = []string{s.Path} }
}

func TestInterpreterOf(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"#!/bin/sh\n": "/bin/sh", "#! /usr/bin/env python3\n": "/usr/bin/env", "#!/x": "/x", "": "", "echo": "", "\x7fELF": "",
	} {
		if err := textFile("f", text, 0o755)(dir); err != nil {
			t.Fatal(err)
		}
		if got := interpreterOf(dir + "/f"); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := interpreterOf("/bin/ls"); !strings.Contains(got, "ld") {
		t.Errorf("loader of /bin/ls: %q", got)
	}
}

func TestLeaderEnv(t *testing.T) {
	spec := runSpec{UID: "u", Env: []string{"PATH=/bin", "GPUCTL_RUN=old", "X=1"}}
	got := leaderEnv(spec, runGrantInfo{Run: "12.2", JobID: 12, Attempt: 2, Env: map[string]string{"X": "2"}})
	for _, want := range []string{"GPUCTL_RUN=12.2", "GPUCTL_JOB_ID=12", "GPUCTL_ATTEMPT=2", "GPUCTL_RUN_UID=u", "X=2", "PATH=/bin"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
	if len(got) != 6 {
		t.Error(fmt.Sprint("a name stands twice: ", got))
	}
}
