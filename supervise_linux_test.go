package main

// The supervisor with real processes: what it starts and what it does not, and how an end is told.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testFolder writes a run folder; change may be nil. Whatever of the run still lives at the end of the test is ended.
func testFolder(t *testing.T, change func(*runSpec), argv ...string) runDir {
	t.Helper()
	base := t.TempDir()
	dir := runDir(filepath.Join(base, newUID()))
	if err := os.Mkdir(string(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	s := runSpec{
		UID: dir.uid(), JobUID: newUID(), JobID: 12, Name: "t", Argv: argv, WorkingDir: base, GraceS: 1,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, markerName + "=" + dir.uid()},
	}
	if p, err := exec.LookPath(argv[0]); err == nil {
		s.Path = p
	}
	if change != nil {
		change(&s)
	}
	if err := writeAtomicJSON(dir.file("spec.json"), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // that of the test is over
		defer cancel()
		if err := killTree(ctx, dir, 0); err != nil {
			t.Errorf("clean up: %v", err)
		}
		tree, err := runTreeOf(dir)
		if err == nil {
			err = tree.cgroup.remove(nil)
		}
		if err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return dir
}

// testSupervisor starts a supervisor that waits for its grant.
func testSupervisor(t *testing.T, dir runDir) (io.WriteCloser, procID) {
	t.Helper()
	return testSupervisorBy(t, testSelf(t), dir)
}

// testSupervisorBy is testSupervisor by another program, which becomes the test binary.
func testSupervisorBy(t *testing.T, self string, dir runDir) (io.WriteCloser, procID) {
	t.Helper()
	grant, pid, err := startSupervisor(self, dir)
	if err != nil {
		t.Fatal(err)
	}
	id := procID{pid: pid}
	id.ticks, _ = procStartTicks(pid)
	t.Cleanup(func() {
		if t.Failed() {
			b, err := os.ReadFile(dir.file("supervisor.log"))
			t.Logf("supervisor.log: %s %v", b, err)
		}
		if err := signalProc(id, syscall.SIGKILL); err != nil && id.ticks != 0 {
			t.Error(err)
		}
		waitFor(t, "the supervisor to go", func() bool { return !hasProc(id) })
	})
	return grant, id
}

func testSelf(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

func hasProc(id procID) bool {
	ticks, ok := procStartTicks(id.pid)
	return ok && ticks == id.ticks
}

var testGrant = runGrantInfo{Run: "12.2", JobID: 12, Attempt: 2, Grant: 7, Incarnation: "i", Env: map[string]string{"GIVEN": "a b"}}

// testLaunch starts a run: supervisor and grant.
func testLaunch(t *testing.T, dir runDir) procID {
	t.Helper()
	grant, id := testSupervisor(t, dir)
	if err := giveGrant(grant, testGrant); err != nil {
		t.Fatal(err)
	}
	return id
}

// testExit waits for the end of a run and of its supervisor.
func testExit(t *testing.T, dir runDir) runExit {
	t.Helper()
	waitFor(t, "exit.json", func() bool { _, ok, err := dir.exit(); return ok && err == nil })
	waitFor(t, "the lock to be free", func() bool { held, err := dir.supervised(); return !held && err == nil })
	e, _, err := dir.exit()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func testLog(t *testing.T, dir runDir) string {
	t.Helper()
	b, err := os.ReadFile(dir.logPath())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

// withWord lists live processes that have a word in their command line.
func withWord(t *testing.T, word string) []int {
	t.Helper()
	procs, err := readProcs()
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for pid, p := range procs {
		if !p.dead && pid != os.Getpid() && strings.Contains(strings.Join(readArgv(pid), " "), word) {
			out = append(out, pid)
		}
	}
	return out
}

func TestSuperviseEnds(t *testing.T) {
	for _, c := range []struct {
		script       string
		code, signal int
		reason       string
	}{
		{"exit 0", 0, 0, ""},
		{"exit 3", 3, 0, reasonExitCode},
		{"exit 137", 137, 0, reasonExitCode},
		{"kill -9 $$", -1, 9, reasonKilledByHost},
		{"kill -11 $$", -1, 11, reasonSignal},
		{"kill -15 $$", -1, 15, reasonSignal},
	} {
		t.Run(c.script, func(t *testing.T) {
			before := time.Now().UnixMilli()
			dir := testFolder(t, nil, "sh", "-c", "echo hello; "+c.script)
			testLaunch(t, dir)
			e := testExit(t, dir)
			if e.Code != c.code || e.Signal != c.signal || e.Reason != c.reason {
				t.Errorf("got code %d signal %d reason %q", e.Code, e.Signal, e.Reason)
			}
			if log := testLog(t, dir); log != "hello\n" || e.LogSize != 6 {
				t.Errorf("log %q, told size %d", log, e.LogSize)
			}
			if e.StartedMS < before || e.EndedMS < e.StartedMS || e.DurationS <= 0 || e.DurationS > 20 || e.MaxRSSBytes < 1<<18 {
				t.Errorf("times or memory: %+v", e)
			}
			p, ok, err := dir.pid()
			if !ok || err != nil || p.Pid == 0 || p.StartTicks == 0 || p.BootID != bootID() || p.StartedMS != e.StartedMS {
				t.Errorf("pid.json: %+v %v", p, err)
			}
			if p.Cgroup != "" {
				if _, err := os.Stat(p.Cgroup); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the cgroup is left behind: %v", err)
				}
			}
			if b, err := os.ReadFile(dir.file("supervisor.log")); len(b) != 0 || err != nil {
				t.Errorf("supervisor.log: %s %v", b, err)
			}
			again, err := concludeRun(dir, bootID())
			if err != nil || again.exitInfo != e.exitInfo {
				t.Errorf("concluded anew: %+v %v", again, err)
			}
		})
	}
}

func TestSuperviseUsage(t *testing.T) {
	dir := testFolder(t, nil, "sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
	testLaunch(t, dir)
	if e := testExit(t, dir); e.UserS < 0.01 || e.UserS > e.DurationS+0.1 {
		t.Errorf("user %g s of %g s", e.UserS, e.DurationS)
	}
}

// TestSuperviseArguments: no shell anywhere, and exactly the environment that was asked for.
func TestSuperviseArguments(t *testing.T) {
	argv := []string{"my prog", "show-args", "a b", `"q' \`, "$HOME;`id`", "*", "", "Grüße 你好 \xff", "-n\nx", "--", "&& false"}
	dir := testFolder(t, func(s *runSpec) { s.Path = testSelf(t) }, argv...)
	testLaunch(t, dir)
	e := testExit(t, dir)
	var got struct {
		Argv []string
		Dir  string
		Env  []string
	}
	if err := json.Unmarshal([]byte(testLog(t, dir)), &got); err != nil || e.Code != 0 {
		t.Fatalf("%+v %v %s", e, err, testLog(t, dir))
	}
	argv[7] = "Grüße 你好 \ufffd" // JSON's
	if !slices.Equal(got.Argv, argv) {
		t.Errorf("argv %q", got.Argv)
	}
	base := filepath.Dir(string(dir))
	want := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + base, "GPUCTL_RUN_UID=" + dir.uid(),
		"GIVEN=a b", "GPUCTL_ATTEMPT=2", "GPUCTL_JOB_ID=12", "GPUCTL_RUN=12.2",
	}
	if !slices.Equal(got.Env, want) || got.Dir != base {
		t.Errorf("in %s with %q, want %q", got.Dir, got.Env, want)
	}
}

// TestSuperviseLog: stdout and stderr are one file in true order, and stdin is empty.
func TestSuperviseLog(t *testing.T) {
	dir := testFolder(t, nil, "sh", "-c", "cat; for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; (echo sub $i); done")
	testLaunch(t, dir)
	e := testExit(t, dir)
	want := ""
	for i := 1; i < 10; i++ {
		want += fmt.Sprintf("out %d\nerr %d\nsub %d\n", i, i, i)
	}
	if got := testLog(t, dir); got != want || e.LogSize != int64(len(want)) {
		t.Errorf("size %d, log %q", e.LogSize, got)
	}
	if st, err := os.Stat(dir.logPath()); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode of the log: %v %v", st.Mode(), err)
	}
}

func TestSuperviseStartFailed(t *testing.T) {
	for _, c := range startFaults {
		t.Run(c.name, func(t *testing.T) {
			box := t.TempDir()
			if c.make != nil {
				if err := c.make(box); err != nil {
					t.Fatal(err)
				}
			}
			dir := testFolder(t, func(s *runSpec) { c.change(s, box) }, "sh", "-c", "echo started")
			testLaunch(t, dir)
			e := testExit(t, dir)
			want := strings.ReplaceAll(c.want, "%s", box)
			if e.Reason != reasonStartFailed || e.Code != -1 || e.Signal != 0 || e.Detail != want {
				t.Errorf("%+v\nwant %s", e.exitInfo, want)
			}
			if log := testLog(t, dir); log != "" {
				t.Errorf("it ran: %s", log)
			}
			if f, ok, err := dir.fate(); !ok || f.Fate != fateStart || err != nil {
				t.Errorf("fate %+v %v", f, err)
			}
		})
	}
}

func TestSuperviseFate(t *testing.T) {
	nothing := func(t *testing.T, dir runDir, id procID) {
		t.Helper()
		waitFor(t, "the supervisor to go", func() bool { return !hasProc(id) })
		for _, name := range []string{"pid.json", "exit.json", "log.txt"} {
			if _, err := os.Stat(dir.file(name)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	t.Run("no grant", func(t *testing.T) {
		dir := testFolder(t, nil, "sh", "-c", "echo started")
		grant, id := testSupervisor(t, dir)
		if _, err := grant.Write([]byte(`{"run":"12.2","grant":7}`)); err != nil { // cut off before the end of the line
			t.Fatal(err)
		}
		if err := grant.Close(); err != nil {
			t.Fatal(err)
		}
		nothing(t, dir, id)
		if _, ok, err := dir.fate(); ok || err != nil {
			t.Errorf("fate %t %v", ok, err)
		}
	})
	t.Run("burned while it waits", func(t *testing.T) {
		dir := testFolder(t, nil, "sh", "-c", "echo started")
		grant, id := testSupervisor(t, dir)
		waitFor(t, "the lock", func() bool { held, err := dir.supervised(); return held && err == nil })
		if f, err := dir.decide(runFate{Fate: fateBurn, Why: "denied"}); err != nil || f.Fate != fateBurn {
			t.Fatal(f, err)
		}
		if err := giveGrant(grant, testGrant); err != nil {
			t.Fatal(err)
		}
		nothing(t, dir, id)
		if f, _, err := dir.fate(); f.Fate != fateBurn || err != nil {
			t.Errorf("fate %+v %v", f, err)
		}
	})
	t.Run("decided before", func(t *testing.T) {
		dir := testFolder(t, nil, "sh", "-c", "echo started")
		if _, err := dir.decide(runFate{Fate: fateStart, Grant: &testGrant}); err != nil { // a supervisor that died between fate and fork
			t.Fatal(err)
		}
		_, id := testSupervisor(t, dir)
		nothing(t, dir, id)
		e, err := concludeRun(dir, bootID())
		if err != nil || e.Reason != reasonSupervisorLost || e.Code != -1 {
			t.Errorf("%+v %v", e, err)
		}
	})
	t.Run("garbage", func(t *testing.T) {
		dir := testFolder(t, nil, "sh", "-c", "echo started")
		grant, id := testSupervisor(t, dir)
		if _, err := grant.Write([]byte("{]\n")); err != nil {
			t.Fatal(err)
		}
		nothing(t, dir, id)
	})
}

func TestSuperviseTwice(t *testing.T) {
	word := testWord()
	dir := testFolder(t, nil, "sleep", word)
	testLaunch(t, dir)
	waitFor(t, "pid.json", func() bool { _, ok, err := dir.pid(); return ok && err == nil })
	_, second := testSupervisor(t, dir)
	waitFor(t, "the second to give up", func() bool { return !hasProc(second) })
	if got := withWord(t, word); len(got) != 1 {
		t.Errorf("processes %v", got)
	}
	if err := requestStop(dir, runStop{Reason: reasonCancelled}); err != nil {
		t.Fatal(err)
	}
	if e := testExit(t, dir); e.Reason != reasonCancelled || e.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v", e)
	}
}

// testWord is a number of seconds that nobody else sleeps for: by it the processes of a test are found, whatever their environment.
func testWord() string { return fmt.Sprint(400_000_000 + rand.IntN(100_000_000)) }

// TestSuperviseProbed: whoever looks whether the lock is held takes it for an instant, and must not turn a supervisor away.
func TestSuperviseProbed(t *testing.T) {
	dir := testFolder(t, nil, "true")
	probe, err := os.OpenFile(dir.lockPath(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(probe.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	grant, _ := testSupervisor(t, dir)
	if err := giveGrant(grant, testGrant); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() {
		if err := probe.Close(); err != nil {
			t.Error(err)
		}
	})
	if e := testExit(t, dir); e.Code != 0 {
		t.Errorf("%+v", e)
	}
}
