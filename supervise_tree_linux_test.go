package main

// Ending whole trees: every way in which a process leaves its group, its session, its parent or its environment, with and without a
// cgroup; what is left alone; limits; and what the leader's signals are.

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// wildTree starts eight processes in all ways that lose somebody: sleepers that carry WORD, two shells. The first word of the script says
// what they do at TERM (a signal that is ignored stays ignored in what is started).
const wildTree = `
sleep WORD &
setsid sleep WORD &
( setsid bash -c 'sleep WORD & disown; exec sleep WORD' & )
python3 -c 'import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvpe("sleep", ["sleep", "WORD"], {"PATH": os.environ["PATH"]})
    os._exit(0)
os.wait()'
env -i /bin/sleep WORD &
setsid env -i /bin/sleep WORD &
setsid env -i bash -c 'cd /; exec /bin/sleep WORD < /dev/null' &
echo ready
sleep WORD
echo leader goes on
sleep WORD
`

const wildCount = 9 // processes with WORD in their command line: sleepers and no script, which is read from a file

// wildFolder is a run of a script, in a file so that only the sleepers carry the word.
func wildFolder(t *testing.T, script, word string, change func(*runSpec)) runDir {
	t.Helper()
	file := t.TempDir() + "/job.sh"
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(script, "WORD", word)), 0o644); err != nil {
		t.Fatal(err)
	}
	return testFolder(t, change, "bash", file)
}

func forCgroups(t *testing.T, f func(t *testing.T)) {
	for _, mode := range []string{"on", "off"} {
		t.Run("cgroup "+mode, func(t *testing.T) {
			t.Setenv("GPUCTL_CGROUP", mode)
			if mode == "on" && ownCgroup("cgroup2", "") == "" {
				t.Skip("no cgroup v2 here")
			}
			f(t)
		})
	}
}

func TestStopTree(t *testing.T) {
	for _, c := range []struct {
		name, trap  string
		grace       float64
		least, most time.Duration
	}{
		{"all end at TERM", "", 30, 0, 3 * time.Second},
		{"all ignore TERM", "trap '' TERM", 1, time.Second, 4 * time.Second},
		{"no grace", "trap '' TERM", 0, 0, 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			forCgroups(t, func(t *testing.T) {
				word := testWord()
				dir := wildFolder(t, c.trap+wildTree, word, nil)
				testLaunch(t, dir)
				waitFor(t, "the tree", func() bool { return len(withWord(t, word)) == wildCount })
				waitFor(t, "pid.json", func() bool { _, ok, err := dir.pid(); return ok && err == nil })
				if p, _, err := dir.pid(); err != nil || (p.Cgroup == "") != strings.HasSuffix(t.Name(), "off") {
					t.Fatalf("cgroup %q %v", p.Cgroup, err)
				}
				start := time.Now()
				if err := requestStop(dir, runStop{Reason: reasonCancelled, GraceS: c.grace}); err != nil {
					t.Fatal(err)
				}
				waitFor(t, "exit.json", func() bool { _, ok, err := dir.exit(); return ok && err == nil })
				took := time.Since(start)
				if got := withWord(t, word); len(got) != 0 {
					t.Errorf("still there when the end was told: %v", got)
				}
				if took < c.least || took > c.most {
					t.Errorf("took %v", took)
				}
				t.Logf("took %v", took)
				if e := testExit(t, dir); e.Reason != reasonCancelled || e.Signal == 0 || len(e.LeftAlone)+len(e.Unkillable) != 0 {
					t.Errorf("%+v", e)
				}
			})
		})
	}
}

// TestStopDefaultGrace is the figure that is promised: 5 s of grace, everybody ignores TERM, all gone within 6.5 s.
func TestStopDefaultGrace(t *testing.T) {
	t.Parallel()
	word := testWord()
	dir := wildFolder(t, "trap '' TERM"+wildTree, word, nil)
	testLaunch(t, dir)
	waitFor(t, "the tree", func() bool { return len(withWord(t, word)) == wildCount })
	start := time.Now()
	if err := requestStop(dir, runStop{Reason: reasonCancelled, GraceS: defaultGrace.Seconds()}); err != nil {
		t.Fatal(err)
	}
	testExit(t, dir)
	if took := time.Since(start); took < 5*time.Second || took > 6500*time.Millisecond {
		t.Errorf("took %v", took)
	}
}

// TestStopTrap: a leader that saves at TERM gets its grace, keeps its code, and ends the grace early.
func TestStopTrap(t *testing.T) {
	dir := testFolder(t, nil, "bash", "-c", "trap 'echo saved; exit 7' TERM; echo ready; while :; do sleep 0.05; done")
	testLaunch(t, dir)
	waitFor(t, "ready", func() bool { return testLog(t, dir) == "ready\n" })
	start := time.Now()
	if err := requestStop(dir, runStop{Reason: reasonFenced, GraceS: 60}); err != nil {
		t.Fatal(err)
	}
	e := testExit(t, dir)
	if e.Code != 7 || e.Signal != 0 || e.Reason != reasonFenced || time.Since(start) > 5*time.Second {
		t.Errorf("%+v after %v", e, time.Since(start))
	}
	if log := testLog(t, dir); !strings.HasSuffix(log, "saved\n") || e.LogSize != int64(len(log)) {
		t.Errorf("size %d, log %q", e.LogSize, log)
	}
}

// TestStopHurried: a second order shortens the grace of the first; the first one names the end.
func TestStopHurried(t *testing.T) {
	dir := testFolder(t, nil, "bash", "-c", "trap 'echo again' TERM; echo ready; while :; do sleep 0.02; done")
	testLaunch(t, dir)
	start := time.Now()
	waitFor(t, "ready", func() bool { return testLog(t, dir) == "ready\n" })
	if err := requestStop(dir, runStop{Reason: reasonCancelled, GraceS: 600}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the order to be taken", func() bool { return strings.Contains(testLog(t, dir), "again") })
	if err := requestStop(dir, runStop{Reason: reasonFenced}); err != nil {
		t.Fatal(err)
	}
	if e := testExit(t, dir); e.Reason != reasonCancelled || e.Signal != 9 || time.Since(start) > 5*time.Second {
		t.Errorf("%+v", e)
	}
}

// tookSignals reports whether no SIGUSR1 waits for the supervisor any more.
func tookSignals(dir runDir) (bool, error) {
	p, _, err := dir.pid()
	if err != nil {
		return false, err
	}
	b, err := os.ReadFile(procPath(p.SupervisorPid, "status"))
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "ShdPnd:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return n&(1<<(unix.SIGUSR1-1)) == 0, err
		}
	}
	return false, err
}

// TestStopForking: a tree that forks while it is being killed, into sessions of their own.
func TestStopForking(t *testing.T) {
	forCgroups(t, func(t *testing.T) {
		word := testWord()
		dir := wildFolder(t, `
trap 'for i in 1 2 3 4 5 6 7 8 9 10; do setsid sleep WORD & done' TERM
spread() { for i in $(seq 60); do ( trap "" TERM; sleep 0.01; setsid sleep WORD & sleep WORD ) & done; }
spread; echo ready; spread; spread
while :; do sleep 0.05; done
`, word, nil)
		testLaunch(t, dir)
		waitFor(t, "the tree to grow", func() bool { return len(withWord(t, word)) > 20 })
		if err := requestStop(dir, runStop{Reason: reasonCancelled, GraceS: 0.3}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "exit.json", func() bool { _, ok, err := dir.exit(); return ok && err == nil })
		if got := withWord(t, word); len(got) != 0 {
			t.Errorf("%d still there: %v", len(got), got)
		}
	})
}

// TestStopStopped: a process that was stopped (SIGSTOP) ends at TERM like any other.
func TestStopStopped(t *testing.T) {
	dir := testFolder(t, nil, "bash", "-c", "echo ready; kill -STOP $$; sleep 600")
	testLaunch(t, dir)
	waitFor(t, "ready", func() bool { return testLog(t, dir) == "ready\n" })
	start := time.Now()
	if err := requestStop(dir, runStop{Reason: reasonCancelled, GraceS: 60}); err != nil {
		t.Fatal(err)
	}
	if e := testExit(t, dir); e.Signal != 15 || time.Since(start) > 5*time.Second {
		t.Errorf("%+v", e)
	}
}

// TestLeftovers: after a normal end of the leader the rest goes too; the code is known before that and kept.
func TestLeftovers(t *testing.T) {
	forCgroups(t, func(t *testing.T) {
		word := testWord()
		dir := wildFolder(t, `
setsid bash -c 'trap "" TERM; sleep WORD' &
env -i /bin/sleep WORD &
while [ "$(pgrep -c -f -- "sleep WORD")" -lt 2 ]; do :; done
exit 3`, word, func(s *runSpec) { s.GraceS = 0.7 })
		testLaunch(t, dir)
		var l runExit
		waitFor(t, "leader.json", func() bool {
			e, ok, err := dir.leader()
			l = e
			return ok && err == nil
		})
		if l.Code != 3 || l.Reason != reasonExitCode {
			t.Errorf("leader.json %+v", l)
		}
		if _, over, err := dir.exit(); over || err != nil {
			t.Errorf("the end is told while somebody lives: %v", err)
		}
		if alive, why, err := treeAlive(dir); !alive || why != "supervisor" || err != nil {
			t.Errorf("alive %t %q %v", alive, why, err)
		}
		// A stop that comes now hurries, and renames nothing.
		if err := requestStop(dir, runStop{Reason: reasonCancelled, GraceS: 0.2}); err != nil {
			t.Fatal(err)
		}
		e := testExit(t, dir)
		if e.Code != 3 || e.Reason != reasonExitCode || e.EndedMS != l.EndedMS {
			t.Errorf("%+v", e)
		}
		if got := withWord(t, word); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
	})
}

// TestLeftAloneTmux: a tmux server that a job started lives on with all its panes, and does not hold the run.
func TestLeftAloneTmux(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("no tmux here")
	}
	for _, end := range []string{"normal", "cancel", "cancel without a supervisor"} {
		t.Run(end, func(t *testing.T) {
			forCgroups(t, func(t *testing.T) {
				word, gone := testWord(), testWord()
				socket := t.TempDir() + "/s"
				tmux := "tmux -f /dev/null -S " + socket
				script := `
unset TMUX
TX new-session -d 'setsid sleep WORD & (sleep WORD &) ; sleep WORD'
TX split-window -d 'env -i /bin/sleep WORD'
setsid sleep GONE &
while [ "$(pgrep -c -f -- "sleep WORD")" -lt 4 ]; do :; done
echo ready
`
				if end != "normal" {
					script += "sleep GONE\n"
				}
				dir := wildFolder(t, strings.NewReplacer("TX", tmux, "GONE", gone).Replace(script), word, nil)
				t.Cleanup(func() {
					out, err := exec.Command("tmux", "-S", socket, "kill-server").CombinedOutput()
					if err != nil {
						t.Errorf("tmux did not live on: %v %s", err, out)
					}
					for _, pid := range withWord(t, "sleep "+word) { // what left its pane outlives it
						if ticks, ok := procStartTicks(pid); ok {
							if err := signalProc(procID{pid, ticks}, syscall.SIGKILL); err != nil {
								t.Error(err)
							}
						}
					}
				})
				id := testLaunch(t, dir)
				waitFor(t, "ready", func() bool { return testLog(t, dir) == "ready\n" })
				before := withWord(t, "sleep "+word)
				stop := runStop{Reason: reasonCancelled, GraceS: 1}
				switch end {
				case "cancel":
					if err := requestStop(dir, stop); err != nil {
						t.Fatal(err)
					}
				case "cancel without a supervisor":
					testKill(t, dir, id)
					if err := requestStop(dir, stop); err != nil {
						t.Fatal(err)
					}
				}
				e := testExit(t, dir)
				if len(e.LeftAlone) != 1 || !strings.HasPrefix(e.LeftAlone[0], "tmux: server (pid ") {
					t.Errorf("left alone: %q", e.LeftAlone)
				}
				if got := withWord(t, gone); len(got) != 0 {
					t.Errorf("what is not below tmux lives: %v", got)
				}
				got := withWord(t, "sleep "+word)
				for _, pid := range before {
					if !slices.Contains(got, pid) {
						t.Errorf("of the panes' processes %v only %v live", before, got)
					}
				}
				if alive, why, err := treeAlive(dir); alive || err != nil {
					t.Errorf("it holds the run: %s %v", why, err)
				}
				if m, err := markedRuns(); err != nil || m[dir.uid()] != nil {
					t.Errorf("it is taken for a run without a folder: %v %v", m, err)
				}
				if p, _, err := dir.pid(); err != nil || p.Cgroup != "" {
					if _, err := os.Stat(p.Cgroup); !errors.Is(err, os.ErrNotExist) {
						t.Errorf("the cgroup is left behind: %v", err)
					}
				}
			})
		})
	}
}

// testKill ends a supervisor the hard way.
func testKill(t *testing.T, dir runDir, id procID) {
	t.Helper()
	waitFor(t, "pid.json", func() bool { _, ok, err := dir.pid(); return ok && err == nil })
	if err := signalProc(id, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the supervisor to be gone", func() bool { held, err := dir.supervised(); return !held && err == nil })
}

// TestTimeLimit: the warning goes only to those that wait for it, then TERM, with nobody but the supervisor there.
func TestTimeLimit(t *testing.T) {
	t.Parallel()
	script := `import signal, time, sys
signal.signal(signal.SIGUSR1, lambda *a: print("early", flush=True))
signal.signal(signal.SIGTERM, lambda *a: (print("term", flush=True), sys.exit(0)))
print("ready", flush=True)
while True: time.sleep(0.02)
`
	// The launcher has no handler for SIGUSR1 and would die of it.
	dir := testFolder(t, func(s *runSpec) { s.MaxTimeS, s.SignalBeforeS = 2.5, 1 }, "bash", "-c", `python3 -c "$0"; echo code $?`, script)
	testLaunch(t, dir)
	e := testExit(t, dir)
	if e.Reason != reasonTimeout || e.DurationS < 2.4 || e.DurationS > 5 {
		t.Errorf("%+v", e)
	}
	if log := testLog(t, dir); !strings.HasPrefix(log, "ready\nearly\nterm\n") {
		t.Errorf("log %q", log)
	}
}

// TestLeaderSignals: the supervisor comes out of a process that ignores and blocks all it can, as nohup or an old launcher does.
func TestLeaderSignals(t *testing.T) {
	dir := testFolder(t, nil, "grep", "^Sig[BI]", "/proc/self/status")
	cmd := exec.Command("python3", "-c", `import os, signal, sys
for s in signal.valid_signals() - {9, 19, 34}: # 32 to 34 are the C library's
    signal.signal(s, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.execv(sys.argv[1], [sys.argv[1], "supervise", sys.argv[2]])`, testSelf(t), string(dir))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdin = strings.NewReader(`{"run":"12.2","grant":7}` + "\n")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v %s", err, out)
	}
	none := "0000000000000000"
	want := "SigBlk:\t" + none + "\nSigIgn:\t" + none + "\n"
	if e := testExit(t, dir); e.Code != 0 || testLog(t, dir) != want {
		t.Errorf("%+v\n%s", e, testLog(t, dir))
	}
}

// TestSupervisorStays: the signals that end a program do not end a supervisor, and are not the run's end.
func TestSupervisorStays(t *testing.T) {
	dir := testFolder(t, nil, "bash", "-c", "echo ready; while [ ! -e go ]; do sleep 0.02; done; exit 4")
	id := testLaunch(t, dir)
	waitFor(t, "ready", func() bool { return testLog(t, dir) == "ready\n" })
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1} {
		if err := signalProc(id, sig); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "the signals to be taken", func() bool { p, err := tookSignals(dir); return p && err == nil })
	spec, _, err := dir.spec()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(spec.WorkingDir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e := testExit(t, dir); e.Code != 4 || e.Reason != reasonExitCode {
		t.Errorf("%+v", e)
	}
}
