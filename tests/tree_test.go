package tests

// The whole process tree goes: by cancel, and after a normal end. A tmux server started in a job stays.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startTree submits the tree script and waits until all seven processes wrote their pids.
func startTree(t *testing.T, p *plane, mode string) (id int64, pids []int) {
	t.Helper()
	tree, err := filepath.Abs("testdata/tree.sh")
	if err != nil {
		t.Fatal(err)
	}
	id = p.submit("-g", "0", "--grace", "1s", "--", "bash", tree, p.work, mode)
	waitFor(t, 30*time.Second, "the tree stands", func() bool {
		_, err := os.Stat(filepath.Join(p.work, "ready"))
		return err == nil
	})
	b, err := os.ReadFile(filepath.Join(p.work, "pids"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range strings.Fields(string(b)) {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, n)
	}
	if len(pids) != 7 {
		t.Fatalf("%d processes, want 7", len(pids))
	}
	t.Cleanup(func() {
		for _, pid := range pids {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.HasPrefix(string(b), "sleep\x001000") {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	return id, pids
}

func living(pids []int) (n int) {
	for _, pid := range pids {
		if alive(pid) {
			n++
		}
	}
	return n
}

// wantFreeOnlyWhenEmpty watches until the slot is free and fails when a process of the tree still lives then.
func wantFreeOnlyWhenEmpty(t *testing.T, p *plane, pids []int) {
	t.Helper()
	waitFor(t, 30*time.Second, "the slot is free", func() bool { return p.heldSlots() == 0 })
	if n := living(pids); n > 0 { // looked at after the slot was seen free
		t.Errorf("the slot is free and %d processes of the job live", n)
	}
}

func TestCancelWholeTree(t *testing.T) {
	t.Parallel()
	promise(t, "cancel of a script that traps TERM, forks, setsid, double-forks, env -i leaves nothing, and the slot is free only then")
	p := newPlane(t)
	p.up()
	id, pids := startTree(t, p, "leader")
	if n := living(pids); n != 7 {
		t.Fatalf("%d of 7 live", n)
	}
	p.ok("job", "cancel", fmt.Sprint(id))
	wantFreeOnlyWhenEmpty(t, p, pids)
	j := p.waitOver(id, 20*time.Second)
	if j.State != "CANCELLED" || deref(j.Reason) != "CANCELLED" {
		t.Errorf("job %s/%s", j.State, deref(j.Reason))
	}
	if r := p.run(j.Runs[0]); r.Signal == nil || *r.Signal != 9 {
		t.Errorf("the run keeps its true exit: signal %v, want 9", r.Signal)
	}
}

func TestCancelWithoutAgentProcess(t *testing.T) {
	t.Parallel()
	promise(t, "cancel asked for while the agent is dead is carried out when it is back")
	p := newPlane(t)
	_, agent := p.apart()
	id, pids := startTree(t, p, "leader")
	agent.kill()
	p.ok("job", "cancel", fmt.Sprint(id))
	if j := p.job(id); j.State != "CANCELLING" {
		t.Errorf("job is %s", j.State)
	}
	if n := p.heldSlots(); n != 1 {
		t.Errorf("%d slots held while nobody knows what lives", n)
	}
	p.start("gpuctl", "agent")
	wantFreeOnlyWhenEmpty(t, p, pids)
	if j := p.waitOver(id, 20*time.Second); j.State != "CANCELLED" {
		t.Errorf("job is %s", j.State)
	}
}

func TestChildrenOfANormalEndGoToo(t *testing.T) {
	t.Parallel()
	promise(t, "children left by a normal end go too; the code is the leader's")
	p := newPlane(t)
	p.up()
	id, pids := startTree(t, p, "leaves")
	wantFreeOnlyWhenEmpty(t, p, pids)
	wantEnd(t, p.waitOver(id, 20*time.Second), "SUCCEEDED", "", 0)
}

func TestTmuxIsLeftAlone(t *testing.T) {
	t.Parallel()
	o := promise(t, "a tmux server started in a job is LEFT_ALONE, reported, and does not hold the slot")
	if _, err := exec.LookPath("tmux"); err != nil {
		o.skip(t, "tmux is not installed")
	}
	p := newPlane(t)
	p.up()
	sock := filepath.Join(p.work, "tmux.sock")
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", sock, "kill-server").Run() // it may be gone: then the test failed already
	})
	run := p.script("t.sh", "#!/bin/sh\ntmux -S "+sock+" -f /dev/null new-session -d 'echo $$ > pane; exec sleep 1000'\n"+
		"while [ ! -s pane ]; do sleep 0.05; done\nexit 3\n")
	id := p.submit("-g", "0", "--grace", "1s", "--", run)
	j := p.waitOver(id, 30*time.Second)
	wantEnd(t, j, "FAILED", "EXIT_CODE", 3)
	if n := p.heldSlots(); n != 0 {
		t.Errorf("%d slots held", n)
	}
	b, err := os.ReadFile(filepath.Join(p.work, "pane"))
	if err != nil {
		t.Fatal(err)
	}
	pane, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if !alive(pane) {
		t.Error("the process in tmux was killed")
	}
	if r := p.run(j.Runs[0]); len(r.LeftAlone) == 0 || !strings.Contains(strings.Join(r.LeftAlone, " "), "tmux") {
		t.Errorf("left_alone %q", r.LeftAlone)
	}
	waitFor(t, 10*time.Second, "event LEFT_ALONE", func() bool { return p.countEvents(j.Runs[0], "LEFT_ALONE") == 1 })
}
