package tests

// Deaths at odd moments: everything of ours dead while the job ends, the supervisor killed, the agent killed alone.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const holdScript = "#!/bin/sh\necho begin\nwhile [ ! -e gate ]; do sleep 0.05; done\necho end\nexit 9\n"

func TestExitWhileNobodyLooks(t *testing.T) {
	t.Parallel()
	promise(t, "a job that ends while server and agent are dead has its true exit code and its whole log")
	p := newPlane(t)
	d := p.up()
	id := p.submit("-g", "0", "--", p.script("hold.sh", holdScript))
	p.waitState(id, 20*time.Second, "RUNNING")
	run := fmt.Sprintf("%d.1", id)
	pid := p.leaderPid(run)
	d.kill()
	p.write(filepath.Join(p.work, "gate"), "")
	waitFor(t, 10*time.Second, "exit.json", func() bool { _, err := os.Stat(p.runFile("exit.json")); return err == nil && !alive(pid) })
	p.up()
	wantEnd(t, p.waitOver(id, 30*time.Second), "FAILED", "EXIT_CODE", 9)
	compareLines(t, p.lines(run, 0), []lineShape{{1, "begin", false}, {2, "end", false}})
	wantLogExact(t, p, run)
}

func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	promise(t, "the supervisor is killed: the job goes on and holds its slot; its end is SUPERVISOR_LOST, never success")
	p := newPlane(t)
	p.up()
	id := p.submit("-g", "0", "--max-attempts", "1", "--", p.script("hold.sh", "#!/bin/sh\nwhile [ ! -e gate ]; do sleep 0.05; done\nexit 0\n"))
	p.waitState(id, 20*time.Second, "RUNNING")
	run := fmt.Sprintf("%d.1", id)
	leader := p.leaderPid(run)
	var pids struct {
		Supervisor int `json:"supervisor_pid"`
	}
	b, err := os.ReadFile(p.runFile("pid.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &pids); err != nil || pids.Supervisor == 0 {
		t.Fatalf("pid.json: %s, %v", b, err)
	}
	if err := syscall.Kill(pids.Supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	pause(t, 2*time.Second)
	if j := p.job(id); j.State != "RUNNING" || !alive(leader) || p.heldSlots() != 1 {
		t.Errorf("job %s, leader alive %v, %d slots held", j.State, alive(leader), p.heldSlots())
	}
	p.write(filepath.Join(p.work, "gate"), "")
	j := p.waitOver(id, 30*time.Second)
	wantEnd(t, j, "FAILED", "SUPERVISOR_LOST", -1)
	if n := p.heldSlots(); n != 0 {
		t.Errorf("%d slots held", n)
	}
}

func TestAgentKilledWhileStarting(t *testing.T) {
	t.Parallel()
	o := promise(t, "kill -9 of the agent while jobs start: every job runs exactly once")
	p := newPlane(t)
	_, agent := p.apart()
	mark := p.script("mark.sh", "#!/bin/sh\necho $GPUCTL_RUN >> marks\n")
	const jobs = 8
	var ids []int64
	for i := range jobs {
		ids = append(ids, p.submit("-g", "0", "--", mark))
		if i%2 == 1 { // at once: some of the two are offered, claimed, granted or forked by now
			agent.kill()
			agent = p.start("gpuctl", "agent")
		}
	}
	for _, id := range ids {
		wantEnd(t, p.waitOver(id, 90*time.Second), "SUCCEEDED", "", 0)
	}
	b, err := os.ReadFile(filepath.Join(p.work, "marks"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, run := range splitLines(string(b)) {
		seen[run]++
	}
	if len(seen) != jobs {
		t.Errorf("marks %v", seen)
	}
	for run, n := range seen {
		if n != 1 {
			t.Errorf("run %s ran %d times", run, n)
		}
	}
	o.Figure = fmt.Sprintf("%d jobs, %d kills", jobs, jobs/2)
}
