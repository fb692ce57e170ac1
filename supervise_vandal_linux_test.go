package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// What a job does to the folder of its own run neither blocks anybody, nor changes or hides how it ended.
func TestJobBreaksItsFolder(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"fifo for the end", "mkfifo exit.json leader.json unkillable.json"},
		{"forged end", `echo '{"code":0}' > exit.json`},
		{"garbage for the end", "echo '{' > exit.json"},
		{"folder for the end", "mkdir -p exit.json/x"},
		{"endless device for the end", "ln -s /dev/zero exit.json"},
		{"link to itself for the end", "ln -s exit.json exit.json"},
		{"no lock", "rm lock"},
		{"folder for the lock", "rm lock; mkdir lock"},
		{"no fate", "rm fate"},
		{"forged fate", `echo '{"fate":"burn"}' > fate`},
		{"fifo for the order", "mkfifo stop.json"},
		{"no access", "chmod 000 ."},
		{"no folder", `rm -rf "$PWD"`},
		{"no runs", `rm -rf "$(dirname "$PWD")"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newAgentScene(t)
			s.play(s.options())
			s.ready()
			uid := newUID()
			s.orderStart(1, uid, "/bin/sh", "-c", "cd "+s.dir(uid).file("")+"\nuntil test -e pid.json; do sleep 0.01; done\n"+c.script+"\nsleep 0.3; exit 7")
			got := s.waitTruth(uid, tellEnded)
			if got.Exit.Code != 7 || got.Exit.Reason != reasonExitCode {
				t.Errorf("told %+v", *got.Exit)
			}
			if exit, ok, err := s.dir(uid).exit(); !ok || err != nil || exit.Code != 7 {
				t.Errorf("exit.json %+v %t %v", exit, ok, err)
			}
		})
	}
}

// Whatever a job does to the folder of its run, it can be cancelled.
func TestStopOfBrokenFolder(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"no lock", "rm lock"},
		{"no pid", "rm pid.json"},
		{"garbage for the pid", "echo '{' > pid.json"},
		{"folder for the pid", "rm pid.json; mkdir pid.json"},
		{"no fate", "rm fate"},
		{"forged fate", `echo '{"fate":"burn"}' > fate`},
		{"fifo for the order", "mkfifo stop.json"},
		{"no access", "chmod 000 ."},
		{"no folder", `rm -rf "$PWD"`},
		{"supervisor stopped", "kill -STOP $PPID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newAgentScene(t)
			s.play(s.options())
			s.ready()
			uid := newUID()
			ready := t.TempDir() + "/ready"
			s.orderStart(1, uid, "/bin/sh", "-c", "cd "+s.dir(uid).file("")+"\nuntil test -e pid.json; do sleep 0.01; done\n"+c.script+"\n>"+ready+"; exec env -i sleep 600")
			waitFor(t, "the job", func() bool { _, err := os.Stat(ready); return err == nil })
			s.order(2, cmdStop, uid, stopPayload{Reason: reasonCancelled, GraceS: 5})
			if got := s.waitTruth(uid, tellEnded); got.Exit.Reason != reasonCancelled {
				t.Errorf("told %+v", *got.Exit)
			}
		})
	}
}

// When the whole home was removed there is nobody to tell, and the supervisor goes.
func TestHomeRemoved(t *testing.T) {
	dir := testFolder(t, nil, "/bin/sh", "-c", "sleep 0.2")
	home := t.TempDir() + "/home"
	moved := runDir(home + "/runs/" + dir.uid())
	if err := os.MkdirAll(home+"/runs", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(string(dir), string(moved)); err != nil {
		t.Fatal(err)
	}
	supervisor := testLaunch(t, moved)
	if err := os.RemoveAll(home); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the supervisor to go", func() bool { return !hasProc(supervisor) })
	if _, err := os.Stat(home); err == nil {
		t.Error("the home is there again")
	}
}

func TestReadJSONHostile(t *testing.T) {
	path := t.TempDir() + "/x"
	for _, c := range []struct {
		name string
		make func() error
		want string
	}{
		{"fifo", func() error { return syscall.Mkfifo(path, 0o600) }, "not a regular file"},
		{"folder", func() error { return os.Mkdir(path, 0o700) }, "not a regular file"},
		{"device", func() error { return os.Symlink("/dev/zero", path) }, "not a regular file"},
		{"loop", func() error { return os.Symlink(path, path) }, "not a regular file"},
		{"huge", func() error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, 1<<40)
		}, "over"},
	} {
		if err := c.make(); err != nil {
			t.Fatal(err)
		}
		var v any
		if err := readJSON(path, &v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
