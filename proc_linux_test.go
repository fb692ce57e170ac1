package main

// What is read from /proc and cgroups: odd texts, which file belongs to whom, evidence for a kill for memory, and processes that do not die.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	tail := " 10 20 30 34816 20 4194304 1 0 0 0 0 0 0 0 20 0 %d 0 4242 1 2"
	for _, c := range []struct {
		text string
		want procInfo
	}{
		{"7 (sh) S" + fmt.Sprintf(tail, 1), procInfo{comm: "sh"}},
		{"7 (a) b) R 1 2 (x) T" + fmt.Sprintf(tail, 1), procInfo{comm: "a) b) R 1 2 (x", stopped: true}},
		{"7 () Z" + fmt.Sprintf(tail, 1), procInfo{dead: true}},
		{"7 (py) Z" + fmt.Sprintf(tail, 3), procInfo{comm: "py"}}, // other threads run
		{"7 (sh) X" + fmt.Sprintf(tail, 0), procInfo{comm: "sh", dead: true}},
	} {
		c.want.procID, c.want.ppid, c.want.pgrp, c.want.session, c.want.tty = procID{7, 4242}, 10, 20, 30, 34816
		if got, ok := parseStat(7, []byte(c.text)); !ok || got != c.want {
			t.Errorf("%s: %+v %t", c.text, got, ok)
		}
	}
	for _, text := range []string{"", "7 (sh", "7 (sh) S", ") (", "7 (sh) S a b c d 20 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4242"} {
		if got, ok := parseStat(7, []byte(text)); ok {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}

func TestFindCgroup(t *testing.T) {
	const (
		hybrid = "32 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n" +
			"35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n" +
			"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
		unified = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
		docker  = "31 23 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
	)
	for _, c := range []struct{ mounts, groups, fstype, controller, want string }{
		{hybrid, "9:name=systemd:/x\n4:cpu,memory:/a/b\n0::/\n", "cgroup2", "", "/sys/fs/cgroup/unified"},
		{hybrid, "9:name=systemd:/x\n4:cpu,memory:/a/b\n0::/\n", "cgroup", "memory", "/sys/fs/cgroup/memory/a/b"},
		{hybrid, "4:cpu:/a/b\n", "cgroup", "memory", ""},
		{unified, "0::/system.slice/gpuctl-agent.service\n", "cgroup2", "", "/sys/fs/cgroup/system.slice/gpuctl-agent.service"},
		{unified, "0::/../other\n", "cgroup2", "", ""},
		{docker, "0::/docker/abc/x\n", "cgroup2", "", "/sys/fs/cgroup/x"},
		{docker, "0::/elsewhere\n", "cgroup2", "", ""},
		{"", "", "cgroup2", "", ""},
	} {
		if got := findCgroup(c.mounts, c.groups, c.fstype, c.controller); got != c.want {
			t.Errorf("%q in %q: got %q, want %q", c.groups, c.mounts, got, c.want)
		}
	}
}

func TestOOMEvidence(t *testing.T) {
	dir := t.TempDir()
	own, shared, machine := runCgroup(filepath.Join(dir, "own")), filepath.Join(dir, "oom_control"), filepath.Join(dir, "vmstat")
	if err := os.Mkdir(string(own), 0o700); err != nil {
		t.Fatal(err)
	}
	w := oomWatch{[]oomCounter{{shared, 5, true}, {machine, 7, false}}}
	for _, c := range []struct {
		own, shared, machine int
		killed               bool
		want                 string
	}{
		{0, 5, 7, true, ""},
		{1, 5, 8, false, "oom_kill of the run's cgroup is 1"},
		{0, 7, 9, false, "oom_kill of the cgroup, shared with others, rose by 2"},
		{0, 5, 9, false, ""},
		{0, 5, 9, true, "oom_kill of the machine rose by 2"},
	} {
		for path, n := range map[string]int{filepath.Join(string(own), "memory.events"): c.own, shared: c.shared, machine: c.machine} {
			text := fmt.Sprintf("low 0\noom 9\noom_kill %d\noom_group_kill 0\n", n)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.evidence(own, c.killed); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v: got %q", c, got)
		}
	}
	if _, ok := counterIn(dir+"/no", "oom_kill"); ok {
		t.Error("a counter in a file that is not there")
	}
}

func TestAloneKind(t *testing.T) {
	for _, c := range []struct {
		p    procInfo
		argv string
		want string
	}{
		{procInfo{comm: "tmux: server"}, "tmux new -d", "tmux: server"},
		{procInfo{procID: procID{pid: 9}, session: 8, tty: 5, comm: "tmux: client"}, "tmux attach", ""},
		{procInfo{procID: procID{pid: 9}, session: 9, comm: "tmux"}, "/usr/bin/tmux new -d", "tmux: server"},
		{procInfo{procID: procID{pid: 9}, session: 8, comm: "tmux"}, "tmux new -d", ""},
		{procInfo{procID: procID{pid: 9}, session: 9, tty: 5, comm: "tmux"}, "tmux", ""},
		{procInfo{comm: "screen"}, "SCREEN -dm top", "screen"},
		{procInfo{comm: "screen"}, "screen -r", ""},
		{procInfo{comm: "sshd"}, "sshd: root@pts/0", "sshd"},
		{procInfo{comm: "sshd-session"}, "sshd-session: root", "sshd"},
		{procInfo{comm: "gpuctl"}, "/opt/gpuctl agent", "gpuctl agent"},
		{procInfo{comm: "gpuctl"}, "gpuctl up --port 0", "gpuctl up"},
		{procInfo{comm: "gpuctl"}, "gpuctl supervise /x", "gpuctl supervise"},
		{procInfo{comm: "gpuctl-agent"}, "gpuctl-agent", "gpuctl-agent"},
		{procInfo{comm: "gpuctl"}, "gpuctl logs -f 12", ""},
		{procInfo{comm: "python3"}, "python3 gpuctl agent", ""},
		{procInfo{comm: "kworker"}, "", ""},
	} {
		if got := c.p.aloneKind(strings.Fields(c.argv)); got != c.want {
			t.Errorf("%q: got %q, want %q", c.argv, got, c.want)
		}
	}
}

func TestProcOfSelf(t *testing.T) {
	procs, err := readProcs()
	if err != nil {
		t.Fatal(err)
	}
	self := procs[os.Getpid()]
	ticks, ok := procStartTicks(os.Getpid())
	if !ok || self.ticks != ticks || self.ppid != os.Getppid() || self.dead || !procs.has(self.procID) || procs.has(procID{self.pid, ticks + 1}) {
		t.Errorf("%+v, start %d", self, ticks)
	}
	if _, ok := procStartTicks(1 << 30); ok {
		t.Error("a process that cannot be")
	}
	if !reflect.DeepEqual(readArgv(os.Getpid()), os.Args) {
		t.Errorf("argv %q", readArgv(os.Getpid()))
	}
	if id := bootID(); len(id) != 36 {
		t.Errorf("boot %q", id)
	}
}

// TestReadMarks: windows of a multiplexer, and names that are used for something else.
func TestReadMarks(t *testing.T) {
	uid := newUID()
	for _, c := range []struct {
		env  []string
		want procMarks
	}{
		{[]string{"A=1", markerName + "=" + uid, "TMUX=/tmp/tmux-0/a,b,991,0"}, procMarks{uid, 991}},
		{[]string{"STY=1234.pts-0.host"}, procMarks{"", 1234}},
		{[]string{"TMUX=yes", "STY=", "X" + markerName + "=no"}, procMarks{}},
		{[]string{"TMUX=/a,b,c"}, procMarks{}},
	} {
		cmd := exec.Command("sleep", testWord())
		cmd.Env = c.env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The environment of a process is not there yet in the middle of its exec.
		waitFor(t, "the environment", func() bool { return len(readArgv(cmd.Process.Pid)) > 1 })
		if got := readMarks(cmd.Process.Pid); got != c.want {
			t.Errorf("%q: %+v", c.env, got)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("it ended by itself")
		}
	}
}

// TestWritesTo: who reads a log (tail -f, an editor) is not of the run.
func TestWritesTo(t *testing.T) {
	path := t.TempDir() + "/log"
	w, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	st, err := r.Stat()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		out, err *os.File
		want     bool
	}{"stdout": {w, nil, true}, "stderr": {nil, w, true}, "reads": {r, r, false}, "neither": {nil, nil, false}} {
		cmd := exec.Command("sleep", testWord())
		if c.out != nil {
			cmd.Stdout = c.out
		}
		if c.err != nil {
			cmd.Stderr = c.err
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if got := writesTo(cmd.Process.Pid, st); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("it ended by itself")
		}
	}
}

// testV1Group makes a cgroup v1 with the given settings; the test is skipped where that cannot be done.
func testV1Group(t *testing.T, controller string, settings map[string]string) string {
	t.Helper()
	own := ownCgroup("cgroup", controller)
	if own == "" {
		t.Skipf("no cgroup v1 %s here", controller)
	}
	group := filepath.Join(own, "gpuctl-test-"+testWord())
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("no cgroup of one's own here: %v", err)
	}
	t.Cleanup(func() { waitFor(t, "the cgroup to be removed", func() bool { return os.Remove(group) == nil }) })
	for k, v := range settings {
		if err := os.WriteFile(filepath.Join(group, k), []byte(v), 0); err != nil {
			t.Fatal(err)
		}
	}
	return group
}

func TestHostOOM(t *testing.T) {
	group := testV1Group(t, "memory", map[string]string{"memory.limit_in_bytes": "50331648"})
	// Whatever runs in it, supervisor included, is charged to it from the start.
	wrap := t.TempDir() + "/wrap"
	text := fmt.Sprintf("#!/bin/sh\necho $$ > %s/cgroup.procs && exec %s \"$@\"\n", group, testSelf(t))
	if err := os.WriteFile(wrap, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	hog := `python3 -c 'x = b"x" * (200 << 20)'`
	for _, c := range []struct {
		script       string
		code, signal int
		reason       string
	}{
		{"exec " + hog, -1, 9, reasonHostOOM},
		{hog + "; exit 0", 0, 0, ""}, // only a child: the evidence is kept all the same
		{hog + "; exit 1", 1, 0, reasonExitCode},
	} {
		dir := testFolder(t, nil, "bash", "-c", c.script)
		grant, _ := testSupervisorBy(t, wrap, dir)
		if err := giveGrant(grant, testGrant); err != nil {
			t.Fatal(err)
		}
		e := testExit(t, dir)
		if e.Code != c.code || e.Signal != c.signal || e.Reason != c.reason || !strings.Contains(e.OOM, group+"/memory.oom_control") {
			t.Errorf("%s: %+v", c.script, e.exitInfo)
		}
	}
}

// TestUnkillable: a process in a frozen cgroup v1 outlives SIGKILL as one in a hung driver does. It is told, the run stays alive for as
// long as it lives, and ends when it is let go.
func TestUnkillable(t *testing.T) {
	t.Parallel() // it waits unkillableAfter
	group := testV1Group(t, "freezer", nil)
	dir := testFolder(t, nil, "sleep", testWord())
	testLaunch(t, dir)
	waitFor(t, "pid.json", func() bool { _, ok, err := dir.pid(); return ok && err == nil })
	p, _, err := dir.pid()
	if err != nil {
		t.Fatal(err)
	}
	freezer := func(file, text string) {
		if err := os.WriteFile(filepath.Join(group, file), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	freezer("cgroup.procs", strconv.Itoa(p.Pid))
	freezer("freezer.state", "FROZEN")
	waitFor(t, "the frost", func() bool {
		b, err := os.ReadFile(filepath.Join(group, "freezer.state"))
		return err == nil && string(b) == "FROZEN\n"
	})
	start := time.Now()
	if err := requestStop(dir, runStop{Reason: reasonCancelled}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "unkillable.json", func() bool { pids, err := dir.unkillable(); return err == nil && len(pids) == 1 && pids[0] == p.Pid })
	if took := time.Since(start); took < unkillableAfter {
		t.Errorf("told after %v", took)
	}
	if alive, _, err := treeAlive(dir); !alive || err != nil {
		t.Errorf("the run does not hold its slot: %v", err)
	}
	if _, over, err := dir.exit(); over || err != nil {
		t.Errorf("it is over: %v", err)
	}
	freezer("freezer.state", "THAWED")
	if e := testExit(t, dir); e.Signal != int(syscall.SIGKILL) || e.Reason != reasonCancelled || len(e.Unkillable) != 0 {
		t.Errorf("%+v", e)
	}
}
