package tests

// Server or agent away at the wrong moment, and what is retried by itself.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// leaderPid is the pid of the leader of a run.
func (p *plane) leaderPid(run string) int {
	p.t.Helper()
	var pid struct{ Pid int }
	path := filepath.Join(p.home, "runs", p.run(run).UID, "pid.json")
	waitFor(p.t, 20*time.Second, path, func() bool {
		b, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(b, &pid) == nil && pid.Pid > 0
	})
	return pid.Pid
}

func TestServerAwayDuringExit(t *testing.T) {
	t.Parallel()
	promise(t, "the server is away while a job ends: the exit arrives once, when it is back")
	p := newPlane(t)
	server, _ := p.apart()
	id := p.submit("-g", "0", "--", p.script("t.sh", "#!/bin/sh\necho one\nwhile [ ! -e gate ]; do sleep 0.05; done\necho two\nexit 3\n"))
	p.waitState(id, 20*time.Second, "RUNNING")
	pid := p.leaderPid(fmt.Sprintf("%d.1", id))
	server.kill()
	p.write(filepath.Join(p.work, "gate"), "")
	waitFor(t, 10*time.Second, "the job ends", func() bool { return !alive(pid) })
	waitFor(t, 10*time.Second, "exit.json", func() bool { _, err := os.Stat(p.runFile("exit.json")); return err == nil })
	server = p.start("gpuctl", "server")
	p.waitServer(server)
	j := p.waitOver(id, 60*time.Second)
	wantEnd(t, j, "FAILED", "EXIT_CODE", 3)
	run := j.Runs[0]
	compareLines(t, p.lines(run, 0), []lineShape{{1, "one", false}, {2, "two", false}})
	before := p.events(run)
	server.kill() // and once more: what is told again changes nothing
	server = p.start("gpuctl", "server")
	p.waitServer(server)
	waitFor(t, 40*time.Second, "the node is back", func() bool { return p.nodeState() == "ready" })
	if after := p.events(run); len(after) != len(before) {
		t.Errorf("events of the run: %d, and %d after another restart", len(before), len(after))
	}
	if j := p.job(id); len(j.Runs) != 1 || j.State != "FAILED" {
		t.Errorf("job %+v", j)
	}
}

func TestAgentAwayIsLostAndComesBack(t *testing.T) {
	t.Parallel()
	promise(t, "agent away: LOST only after lost_after, slots stay held, nothing is requeued, back to RUNNING with the agent")
	p := newPlane(t, "lost_after: 2s")
	_, agent := p.apart()
	id := p.submit("-g", "0", "--", p.script("t.sh", "#!/bin/sh\nwhile [ ! -e gate ]; do sleep 0.05; done\nexit 0\n"))
	p.waitState(id, 20*time.Second, "RUNNING")
	run := fmt.Sprintf("%d.1", id)
	pid := p.leaderPid(run)
	killed := time.Now()
	agent.kill()
	p.waitState(id, 30*time.Second, "LOST")
	if took := time.Since(killed); took < 1500*time.Millisecond {
		t.Errorf("LOST after %s already", took)
	}
	if n := p.heldSlots(); n != 1 || !alive(pid) {
		t.Errorf("%d slots held, leader alive %v", n, alive(pid))
	}
	agent = p.start("gpuctl", "agent")
	p.waitReady(agent)
	p.waitState(id, 20*time.Second, "RUNNING")
	p.write(filepath.Join(p.work, "gate"), "")
	j := p.waitOver(id, 30*time.Second)
	wantEnd(t, j, "SUCCEEDED", "", 0)
	if len(j.Runs) != 1 {
		t.Errorf("runs %v", j.Runs)
	}
}

func TestServerOutageIsNoLoss(t *testing.T) {
	t.Parallel()
	promise(t, "the server's own outage, longer than lost_after, makes nothing LOST")
	p := newPlane(t, "lost_after: 8s") // longer than the agent waits between two tries to reach a server (5 s), or its next one comes too late
	server, _ := p.apart()
	id := p.submit("-g", "0", "--", p.script("t.sh", "#!/bin/sh\nwhile [ ! -e gate ]; do sleep 0.05; done\n"))
	// not only RUNNING: a grant whose answer is lost with the server is burned and comes again, as it should
	waitFor(t, 20*time.Second, "the run is alive", func() bool { return len(p.job(id).Runs) == 1 && p.run(fmt.Sprintf("%d.1", id)).State == "ALIVE" })
	server.kill()
	pause(t, 9*time.Second)
	server = p.start("gpuctl", "server")
	p.waitServer(server)
	waitFor(t, 40*time.Second, "the node is back", func() bool { return p.nodeState() == "ready" })
	for _, e := range p.events("") {
		if e.JobID != nil && *e.JobID == id && (e.Type == "JOB_LOST" || e.Type == "RUN_LOST") {
			t.Errorf("event %s: %s", e.Type, e.Message)
		}
	}
	if j := p.job(id); j.State != "RUNNING" {
		t.Errorf("job is %s", j.State)
	}
	p.write(filepath.Join(p.work, "gate"), "")
	wantEnd(t, p.waitOver(id, 30*time.Second), "SUCCEEDED", "", 0)
}

func TestRetries(t *testing.T) {
	t.Parallel()
	promise(t, "KILLED_BY_HOST requeues up to max_attempts, EXIT_CODE and SIGNAL do not, retry by hand is the next attempt of the same job")
	p := newPlane(t)
	p.up()
	hold := p.script("hold.sh", "#!/bin/sh\nexec sleep 1000\n")
	id := p.submit("-g", "0", "--max-attempts", "2", "--", hold)
	for attempt := 1; attempt <= 2; attempt++ {
		run := fmt.Sprintf("%d.%d", id, attempt)
		waitFor(t, 60*time.Second, run+" is alive", func() bool {
			j := p.job(id)
			return j.State == "RUNNING" && slices.Contains(j.Runs, run) && p.run(run).State == "ALIVE"
		})
		if err := syscall.Kill(p.leaderPid(run), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, 30*time.Second, "two attempts are over", func() bool { j := p.job(id); return len(j.Runs) == 2 && j.State == "FAILED" })
	j := p.waitOver(id, 20*time.Second)
	wantEnd(t, j, "FAILED", "KILLED_BY_HOST", -1)
	for _, run := range j.Runs {
		if r := p.run(run); deref(r.Reason) != "KILLED_BY_HOST" || r.Signal == nil || *r.Signal != 9 {
			t.Errorf("run %s: %s, signal %v", run, deref(r.Reason), r.Signal)
		}
	}

	code := p.submit("-g", "0", "--", "sh", "-c", "exit 4")
	wantEnd(t, p.waitOver(code, 20*time.Second), "FAILED", "EXIT_CODE", 4)
	sig := p.submit("-g", "0", "--", "sh", "-c", "kill -SEGV $$")
	j = p.waitOver(sig, 20*time.Second)
	wantEnd(t, j, "FAILED", "SIGNAL", -1)
	if j.Signal == nil || *j.Signal != 11 {
		t.Errorf("signal %v, want 11", j.Signal)
	}
	for _, id := range []int64{code, sig} {
		if j := p.job(id); len(j.Runs) != 1 {
			t.Errorf("job %d was tried again by itself: %v", id, j.Runs)
		}
	}
	p.ok("job", "retry", fmt.Sprint(code))
	waitFor(t, 20*time.Second, "the second attempt is over", func() bool { j := p.job(code); return len(j.Runs) == 2 && j.State == "FAILED" })
	if j := p.job(code); !slices.Equal(j.Runs, []string{fmt.Sprintf("%d.1", code), fmt.Sprintf("%d.2", code)}) {
		t.Errorf("runs %v", j.Runs)
	}
	p.ok("job", "retry", fmt.Sprint(code), "--", "sh", "-c", "exit 0")
	waitFor(t, 20*time.Second, "the third attempt succeeded", func() bool { return p.job(code).State == "SUCCEEDED" })
	if r := p.cli("job", "retry", fmt.Sprint(id), "-o", "json"); r.code != 0 {
		t.Errorf("retry -o json: %+v", r)
	}
	p.ok("job", "cancel", fmt.Sprint(id))
}

func TestTimeLimitAndSignal(t *testing.T) {
	t.Parallel()
	promise(t, "max-time ends a job as TIMEOUT, also with the agent gone; job signal reaches the leader")
	p := newPlane(t)
	_, agent := p.apart()
	id := p.submit("-g", "0", "--max-time", "3s", "--grace", "1s", "--", "sleep", "1000")
	p.waitState(id, 20*time.Second, "RUNNING")
	pid := p.leaderPid(fmt.Sprintf("%d.1", id))
	agent.kill()
	waitFor(t, 20*time.Second, "the supervisor ended it alone", func() bool { return !alive(pid) })
	agent = p.start("gpuctl", "agent")
	p.waitReady(agent)
	wantEnd(t, p.waitOver(id, 20*time.Second), "FAILED", "TIMEOUT", -1)

	id = p.submit("-g", "0", "--", "python3", "-c",
		"import signal, sys\ndef save(*a): print('got USR1'); sys.exit(5)\nsignal.signal(signal.SIGUSR1, save)\nprint('ready')\nwhile True: signal.pause()")
	run := fmt.Sprintf("%d.1", id)
	waitFor(t, 20*time.Second, "the trap is set", func() bool { j := p.job(id); return len(j.Runs) == 1 && p.run(run).Log.Lines == 1 })
	p.ok("job", "signal", fmt.Sprint(id), "USR1")
	wantEnd(t, p.waitOver(id, 20*time.Second), "FAILED", "EXIT_CODE", 5)
	compareLines(t, p.lines(run, 0), []lineShape{{1, "ready", false}, {2, "got USR1", false}})
}
