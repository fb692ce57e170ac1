package main

// The agent's side: what it finds and does when no supervisor lives, orders that come at a bad moment, and that nobody else's process
// is ever signalled.

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSupervisorLost: the training goes on and writes its log; it is alive whatever the files say; its end is never taken for success.
func TestSupervisorLost(t *testing.T) {
	forCgroups(t, func(t *testing.T) {
		dir := testFolder(t, nil, "bash", "-c", "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 0")
		id := testLaunch(t, dir)
		testKill(t, dir, id)
		alive, why, err := treeAlive(dir)
		if !alive || !strings.Contains(why, "(bash)") || err != nil {
			t.Fatalf("alive %t %q %v", alive, why, err)
		}
		if e, err := concludeRun(dir, bootID()); err == nil {
			t.Errorf("concluded while it lives: %+v", e)
		}
		if m, err := markedRuns(); err != nil || len(m[dir.uid()]) == 0 {
			t.Errorf("marked %v %v", m, err)
		}
		if err := os.Rename(dir.file("pid.json"), dir.file("pid.away")); err != nil {
			t.Fatal(err)
		}
		if alive, why, err := treeAlive(dir); !alive || err != nil {
			t.Errorf("without pid.json: %q %v", why, err)
		}
		if err := os.WriteFile(dir.file("pid.json"), []byte("\x00\x00"), 0o600); err != nil {
			t.Fatal(err)
		}
		if alive, why, err := treeAlive(dir); !alive || err != nil {
			t.Errorf("with garbage as pid.json: %q %v", why, err)
		}
		if err := os.Rename(dir.file("pid.away"), dir.file("pid.json")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Dir(string(dir))+"/go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the end", func() bool { alive, _, err := treeAlive(dir); return !alive && err == nil })
		e, err := concludeRun(dir, bootID())
		if err != nil || e.Reason != reasonSupervisorLost || e.Code != -1 || e.Signal != 0 || e.LogSize != 8 || testLog(t, dir) != "one\ntwo\n" {
			t.Errorf("%+v %v", e, err)
		}
		p, _, err := dir.pid()
		if err != nil || e.StartedMS != p.StartedMS || e.EndedMS < e.StartedMS {
			t.Errorf("times %+v %v", e, err)
		}
		if again := testExit(t, dir); again.exitInfo != e.exitInfo {
			t.Errorf("exit.json says %+v", again)
		}
		if p.Cgroup != "" {
			if _, err := os.Stat(p.Cgroup); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the cgroup is left behind: %v", err)
			}
		}
	})
}

// TestStopWithoutSupervisor: the agent ends the wild tree itself, also where no cgroup, no parent and no marker leads to a process.
func TestStopWithoutSupervisor(t *testing.T) {
	for _, trap := range []string{"", "trap '' TERM"} {
		t.Run("at TERM:"+trap, func(t *testing.T) {
			forCgroups(t, func(t *testing.T) {
				word := testWord()
				dir := wildFolder(t, trap+wildTree, word, nil)
				id := testLaunch(t, dir)
				waitFor(t, "the tree", func() bool { return len(withWord(t, word)) == wildCount })
				testKill(t, dir, id)
				if err := requestStop(dir, runStop{Reason: reasonCancelled, GraceS: 0.5}); err != nil {
					t.Fatal(err)
				}
				if got := withWord(t, word); len(got) != 0 {
					t.Errorf("left: %v", got)
				}
				if e := testExit(t, dir); e.Reason != reasonCancelled || e.Code != -1 {
					t.Errorf("%+v", e)
				}
			})
		})
	}
}

// TestLeaderKnown: the supervisor died between the leader's end and that of the rest; the true end is kept.
func TestLeaderKnown(t *testing.T) {
	word := testWord()
	dir := wildFolder(t, "setsid bash -c 'trap \"\" TERM; sleep WORD' &\nwhile ! pgrep -f -- '^sleep WORD'; do :; done; exit 6", word,
		func(s *runSpec) { s.GraceS = 600 })
	id := testLaunch(t, dir)
	waitFor(t, "leader.json", func() bool { _, ok, err := dir.leader(); return ok && err == nil })
	testKill(t, dir, id)
	if alive, why, err := treeAlive(dir); !alive || err != nil {
		t.Fatalf("%q %v", why, err)
	}
	if err := requestStop(dir, runStop{Reason: reasonCancelled}); err != nil {
		t.Fatal(err)
	}
	if e := testExit(t, dir); e.Code != 6 || e.Reason != reasonExitCode {
		t.Errorf("%+v", e)
	}
	if got := withWord(t, word); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

func TestConcludeReboot(t *testing.T) {
	dir := testFolder(t, nil, "true")
	started := time.Now().Add(-time.Hour)
	if e, err := concludeRun(dir, bootID()); err == nil {
		t.Errorf("no fate: %+v", e)
	}
	if _, err := dir.decide(runFate{Fate: fateStart, AtMS: started.UnixMilli(), Grant: &testGrant}); err != nil {
		t.Fatal(err)
	}
	// A pid of an old boot is somebody else's now: this very test's.
	self, _ := procStartTicks(os.Getpid())
	p := runPid{Pid: os.Getpid(), StartTicks: self, BootID: "another", SupervisorPid: os.Getpid(), SupervisorTicks: self, StartedMS: started.UnixMilli()}
	if err := writeAtomicJSON(dir.file("pid.json"), p); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir.logPath(), []byte("half a li"), 0o600); err != nil {
		t.Fatal(err)
	}
	last := started.Add(time.Minute)
	if err := os.Chtimes(dir.logPath(), last, last); err != nil {
		t.Fatal(err)
	}
	if alive, why, err := treeAlive(dir); alive || err != nil {
		t.Errorf("alive: %s %v", why, err)
	}
	var wg sync.WaitGroup
	for range 2 { // two at once: one of them writes, both tell the same
		wg.Go(func() {
			e, err := concludeRun(dir, bootID())
			if err != nil || e.Reason != reasonNodeReboot || e.Code != -1 || e.LogSize != 9 || e.EndedMS != last.UnixMilli() || e.DurationS != 60 {
				t.Errorf("%+v %v", e, err)
			}
		})
	}
	wg.Wait()
}

// TestStopEarly: no order is lost, whenever between the grant and pid.json it comes.
func TestStopEarly(t *testing.T) {
	t.Run("before the grant", func(t *testing.T) {
		dir := testFolder(t, nil, "sh", "-c", "echo started")
		grant, _ := testSupervisor(t, dir)
		if err := requestStop(dir, runStop{Reason: reasonCancelled, GraceS: 5}); err != nil {
			t.Fatal(err)
		}
		if err := giveGrant(grant, testGrant); err != nil {
			t.Fatal(err)
		}
		if e := testExit(t, dir); e.Reason != reasonCancelled || e.Code != -1 || testLog(t, dir) != "" {
			t.Errorf("%+v %s", e, testLog(t, dir))
		}
	})
	t.Run("at any moment", func(t *testing.T) {
		for range 15 {
			dir := testFolder(t, nil, "sleep", testWord())
			grant, _ := testSupervisor(t, dir)
			if err := giveGrant(grant, testGrant); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the fate", func() bool { _, ok, err := dir.fate(); return ok && err == nil })
			for end := time.Now().Add(rand.N(4 * time.Millisecond)); time.Now().Before(end); { // the fork takes about 1 ms
			}
			if err := requestStop(dir, runStop{Reason: reasonCancelled, GraceS: 5}); err != nil {
				t.Fatal(err)
			}
			if e := testExit(t, dir); e.Reason != reasonCancelled || e.DurationS > 4 {
				t.Errorf("%+v", e)
			}
		}
	})
	t.Run("pid.json cannot be written", func(t *testing.T) {
		dir := testFolder(t, nil, "sleep", testWord())
		if err := os.Mkdir(dir.file("pid.json"), 0o700); err != nil {
			t.Fatal(err)
		}
		testLaunch(t, dir)
		waitFor(t, "the start", func() bool { _, err := os.Stat(dir.logPath()); return err == nil })
		if err := requestStop(dir, runStop{Reason: reasonCancelled, GraceS: 5}); err == nil {
			t.Error("no pid.json can be read, and nobody is told so")
		}
		if e := testExit(t, dir); e.Reason != reasonCancelled || e.Signal != 15 {
			t.Errorf("%+v", e)
		}
		if err := os.Remove(dir.file("pid.json")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("stop.json cannot be written", func(t *testing.T) {
		dir := testFolder(t, nil, "sleep", testWord())
		testLaunch(t, dir)
		waitFor(t, "pid.json", func() bool { _, ok, err := dir.pid(); return ok && err == nil })
		if err := os.Mkdir(dir.file("stop.json"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := requestStop(dir, runStop{Reason: reasonCancelled, GraceS: 5}); err != nil {
			t.Fatal(err)
		}
		if e := testExit(t, dir); e.Reason != reasonCancelled || e.Signal != 15 {
			t.Errorf("%+v", e)
		}
	})
	t.Run("when it is over", func(t *testing.T) {
		dir := testFolder(t, nil, "true")
		testLaunch(t, dir)
		testExit(t, dir)
		if err := requestStop(dir, runStop{Reason: reasonCancelled}); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := dir.stop(); ok || err != nil {
			t.Errorf("an order was left: %v", err)
		}
	})
}

// TestForeignNeverSignalled: a pid.json that names somebody else's process, session or group. Only pid and start time together count.
func TestForeignNeverSignalled(t *testing.T) {
	foreign := exec.Command("bash", "-c", "trap 'echo HIT' USR1 TERM; echo ready; sleep "+testWord()+" & while :; do sleep 0.02; done")
	foreign.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out := &strings.Builder{}
	var mu sync.Mutex
	foreign.Stdout = writerFunc(func(b []byte) (int, error) { mu.Lock(); defer mu.Unlock(); return out.Write(b) })
	read := func() string { mu.Lock(); defer mu.Unlock(); return out.String() }
	if err := foreign.Start(); err != nil {
		t.Fatal(err)
	}
	pid := foreign.Process.Pid
	t.Cleanup(func() {
		if err := unix.Kill(-pid, unix.SIGKILL); err != nil { // the test's own child, not yet waited for
			t.Error(err)
		}
		if err := foreign.Wait(); err == nil {
			t.Error("it ended by itself")
		}
	})
	waitFor(t, "the foreign process", func() bool { return read() == "ready\n" })
	ticks, _ := procStartTicks(pid)
	for name, p := range map[string]runPid{
		"other start time": {Pid: pid, StartTicks: ticks - 1, BootID: bootID(), SupervisorPid: pid, SupervisorTicks: ticks - 1},
		"other boot":       {Pid: pid, StartTicks: ticks, BootID: "another", SupervisorPid: pid, SupervisorTicks: ticks},
		"no start time":    {Pid: pid, BootID: bootID(), SupervisorPid: pid},
		"init":             {Pid: 1, StartTicks: 1, BootID: bootID(), SupervisorPid: 1, SupervisorTicks: 1},
		"nobody":           {Pid: -1, BootID: bootID(), SupervisorPid: -1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := testFolder(t, nil, "true")
			if _, err := dir.decide(runFate{Fate: fateStart, Grant: &testGrant}); err != nil {
				t.Fatal(err)
			}
			if err := writeAtomicJSON(dir.file("pid.json"), p); err != nil {
				t.Fatal(err)
			}
			if alive, why, err := treeAlive(dir); alive || err != nil {
				t.Errorf("alive: %s %v", why, err)
			}
			for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM} {
				if err := signalTree(dir, int(sig)); (err != nil) != (sig == syscall.SIGUSR1) { // nobody handles it
					t.Error(err)
				}
			}
			if err := killTree(t.Context(), dir, 0); err != nil {
				t.Error(err)
			}
			// A lock that somebody holds, so that the supervisor of pid.json would be signalled.
			lock, err := lockFile(dir.lockPath())
			if err != nil {
				t.Fatal(err)
			}
			err = requestStop(dir, runStop{Reason: reasonCancelled})
			if impossible := p.SupervisorPid <= 1 || p.SupervisorTicks == 0; (err != nil) != impossible {
				t.Error(err)
			}
			if err := lock.Close(); err != nil {
				t.Fatal(err)
			}
			if err := requestStop(dir, runStop{Reason: reasonCancelled}); err != nil {
				t.Error(err)
			}
			if got := read(); got != "ready\n" || !hasProc(procID{pid, ticks}) {
				t.Fatalf("it was signalled: %q", got)
			}
		})
	}
	// The same process is found when it is named rightly: the test can fail.
	dir := testFolder(t, nil, "true")
	p := runPid{Pid: pid, StartTicks: ticks, BootID: bootID()}
	if err := writeAtomicJSON(dir.file("pid.json"), p); err != nil {
		t.Fatal(err)
	}
	if err := signalTree(dir, int(syscall.SIGUSR1)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the signal", func() bool { return strings.Contains(read(), "HIT") })
	if err := os.Remove(dir.file("pid.json")); err != nil { // or the clean-up would end it
		t.Fatal(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestSignalUnhandled: USR1 ends nobody who does not handle it, and that nobody did is told.
func TestSignalUnhandled(t *testing.T) {
	dir := testFolder(t, nil, "sleep", "300")
	testLaunch(t, dir)
	waitFor(t, "pid.json", func() bool { _, ok, err := dir.pid(); return ok && err == nil })
	if err := signalTree(dir, int(syscall.SIGUSR1)); err == nil || !strings.Contains(err.Error(), "no process of the run handles signal 10") {
		t.Error(err)
	}
	if alive, _, err := treeAlive(dir); !alive || err != nil {
		t.Errorf("it ended: %v", err)
	}
}

func TestSignalTree(t *testing.T) {
	dir := testFolder(t, nil, "bash", "-c", "trap 'echo one' USR1; (trap 'echo two' USR1; echo ready; while :; do sleep 0.02; done) & while :; do sleep 0.02; done")
	testLaunch(t, dir)
	waitFor(t, "ready", func() bool { return strings.Contains(testLog(t, dir), "ready") })
	waitFor(t, "pid.json", func() bool { _, ok, err := dir.pid(); return ok && err == nil })
	if err := signalTree(dir, int(syscall.SIGUSR1)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "both", func() bool { l := testLog(t, dir); return strings.Contains(l, "one") && strings.Contains(l, "two") })
	if err := signalTree(dir, int(syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	if e := testExit(t, dir); e.Signal != 9 || e.Reason != reasonSignal {
		t.Errorf("a SIGKILL that was ordered is called %+v", e)
	}
}

// TestSupervisorKilledAnywhere: whenever it dies, an order to stop leaves no process and either an end or no start at all.
func TestSupervisorKilledAnywhere(t *testing.T) {
	starts := 0
	for range 25 {
		word := testWord()
		dir := wildFolder(t, "setsid env -i /bin/sleep WORD &\nsleep WORD\n", word, nil)
		grant, id := testSupervisor(t, dir)
		if err := giveGrant(grant, testGrant); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(rand.N(25*time.Millisecond), func() { // 3 ms to come up, 2 ms to the fate, 1 ms to the fork, 4 ms to pid.json
			if err := signalProc(id, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		})
		waitFor(t, "the supervisor to die", func() bool { return !hasProc(id) })
		// Once is not always enough: a child in the middle of its fork holds the lock of the dead supervisor until its exec.
		waitFor(t, "the run to be ended", func() bool {
			if err := requestStop(dir, runStop{Reason: reasonCancelled}); err != nil {
				t.Fatal(err)
			}
			alive, _, err := treeAlive(dir)
			return !alive && err == nil && len(withWord(t, word)) == 0
		})
		_, started, err := dir.fate()
		e, ended, eerr := dir.exit()
		if err != nil || eerr != nil || started != ended || ended && (e.Code != -1 || e.Reason != reasonCancelled) {
			t.Errorf("started %t ended %t %+v %v %v", started, ended, e, err, eerr)
		}
		if started {
			starts++
		}
		if g := findRunCgroup(dir.uid()); g != "" {
			t.Errorf("the cgroup is left behind: %s", g)
		}
	}
	t.Logf("%d of 25 were started", starts)
}

// TestDiskFull: a run that filled the disk can be stopped; its end is told when there is room again, and not before.
func TestDiskFull(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no small disk here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	word := testWord()
	from := testFolder(t, nil, "sleep", word)
	dir := runDir(filepath.Join(disk, from.uid()))
	if err := os.Mkdir(string(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	spec, _, err := from.spec()
	if err != nil {
		t.Fatal(err)
	}
	spec.WorkingDir = string(dir)
	if err := writeAtomicJSON(dir.file("spec.json"), spec); err != nil {
		t.Fatal(err)
	}
	testLaunch(t, dir)
	waitFor(t, "pid.json", func() bool { _, ok, err := dir.pid(); return ok && err == nil })
	fill, err := os.Create(dir.file("fill"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	if err := fill.Close(); err != nil {
		t.Fatal(err)
	}
	if err := requestStop(dir, runStop{Reason: reasonCancelled}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the processes to end", func() bool { return len(withWord(t, "sleep "+word)) == 0 })
	if alive, why, err := treeAlive(dir); !alive || err != nil {
		t.Errorf("the run is over before its end can be told: %s %v", why, err)
	}
	if _, over, err := dir.exit(); over || err != nil {
		t.Errorf("over %t %v", over, err)
	}
	if err := os.Remove(dir.file("fill")); err != nil {
		t.Fatal(err)
	}
	if e := testExit(t, dir); e.Reason != reasonCancelled {
		t.Errorf("%+v", e)
	}
}

// TestNoZombies: a supervisor that ended is not left as a zombie of the agent.
func TestNoZombies(t *testing.T) {
	dir := testFolder(t, nil, "true")
	id := testLaunch(t, dir)
	testExit(t, dir)
	waitFor(t, "the supervisor to be reaped", func() bool { return !hasProc(id) })
	_, gone := testSupervisor(t, dir) // over: goes at once
	waitFor(t, "the second to be reaped", func() bool { return !hasProc(gone) })
}

// TestInnerRun: a gpuctl that runs inside of a job keeps its own runs when that job ends, also when it is itself gone.
func TestInnerRun(t *testing.T) {
	word := testWord()
	inner := testFolder(t, nil, "sleep", word)
	bin := t.TempDir()
	if err := os.Symlink(testSelf(t), bin+"/gpuctl"); err != nil {
		t.Fatal(err)
	}
	outer := testFolder(t, nil, "bash", "-c", `setsid gpuctl supervise "$0" <<< '{"run":"1.1","grant":7}' & echo; sleep 600`, string(inner))
	spec, _, err := outer.spec()
	if err != nil {
		t.Fatal(err)
	}
	spec.Env = append(spec.Env, "PATH="+bin+":"+os.Getenv("PATH"))
	if err := writeAtomicJSON(outer.file("spec.json"), spec); err != nil {
		t.Fatal(err)
	}
	testLaunch(t, outer)
	waitFor(t, "the inner run", func() bool { return len(withWord(t, "sleep "+word)) == 1 })
	if err := requestStop(outer, runStop{Reason: reasonCancelled}); err != nil {
		t.Fatal(err)
	}
	e := testExit(t, outer)
	if len(e.LeftAlone) != 1 || !strings.HasPrefix(e.LeftAlone[0], "gpuctl supervise (pid ") || len(withWord(t, "sleep "+word)) != 1 {
		t.Errorf("%+v", e)
	}
	waitFor(t, "the inner pid.json", func() bool { _, ok, err := inner.pid(); return ok && err == nil })
	if err := requestStop(inner, runStop{Reason: reasonCancelled}); err != nil {
		t.Fatal(err)
	}
	if e := testExit(t, inner); e.Reason != reasonCancelled {
		t.Errorf("%+v", e)
	}
	if m, err := markedRuns(); err != nil || slices.Contains([]bool{m[inner.uid()] == nil, m[outer.uid()] == nil}, false) {
		t.Errorf("marked %v %v", m, err)
	}
}
