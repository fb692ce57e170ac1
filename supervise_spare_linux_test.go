package main

import (
	"syscall"
	"testing"
)

// TestSpareSupervisor: the one that waits becomes the run's own; killed while it waited, another is started; sent away it leaves.
func TestSpareSupervisor(t *testing.T) {
	spare := &spareSupervisor{self: testSelf(t)}
	if err := spare.refill(); err != nil {
		t.Fatal(err)
	}
	waiting := spare.pid
	if err := spare.refill(); err != nil || spare.pid != waiting {
		t.Fatalf("two of them: %d, %d, %v", waiting, spare.pid, err)
	}
	run := func(name string) (pid int) {
		dir := testFolder(t, nil, "sh", "-c", "exit 7")
		grant, pid, err := spare.take(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := giveGrant(grant, runGrantInfo{Run: "1.1", JobID: 1, Attempt: 1, Grant: 1}); err != nil {
			t.Fatal(err)
		}
		if e := testExit(t, dir); e.Code != 7 {
			t.Errorf("%s: code %d", name, e.Code)
		}
		return pid
	}
	if pid := run("the one that waits"); pid != waiting {
		t.Errorf("supervisor %d, %d waited", pid, waiting)
	}
	run("none waits")
	if err := spare.refill(); err != nil {
		t.Fatal(err)
	}
	killed := spare.pid
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the spare is dead", func() bool { _, alive := procStartTicks(killed); return !alive })
	if pid := run("the one that waited was killed"); pid == killed {
		t.Error("a dead supervisor")
	}
	if err := spare.refill(); err != nil {
		t.Fatal(err)
	}
	last := spare.pid
	if err := spare.close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the spare goes away", func() bool { _, alive := procStartTicks(last); return !alive })
	if err := spare.refill(); err != nil || spare.in != nil {
		t.Errorf("a new one after the end: %v", err)
	}
}
