package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestFinalAccuracy(t *testing.T) {
	for line, want := range map[string]float64{
		"final val_accuracy=0.9667 best=0.9722 at epoch 17": 0.9667, "final val_accuracy=1": 1, "final val_accuracy=9e-1 x": 0.9,
		"epoch 1 val_accuracy=0.99": -1, "final val_accuracy=nan": -1, "xfinal val_accuracy=0.99": -1, "final val_accuracy=0.9.9": -1, "": -1,
	} {
		got, ok := finalAccuracy(line)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %g, want %g", line, got, want)
		}
	}
}

func TestDemoVerdict(t *testing.T) {
	for _, c := range []struct {
		state    string
		accuracy float64
		good     bool
	}{{jobSucceeded, 0.95, true}, {jobSucceeded, 0.90, true}, {jobSucceeded, 0.8999, false}, {jobSucceeded, -1, false}, {jobFailed, 0.95, false}, {jobCancelled, 0.95, false}} {
		if err := demoVerdict(jobView{State: c.state}, c.accuracy); (err == nil) != c.good {
			t.Errorf("%s, %g: %v", c.state, c.accuracy, err)
		}
	}
}

func TestDemoUnpack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "example")
	if err := unpack(demoFiles, demoExample, dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"train.py", "digits.csv.gz"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := fs.ReadFile(demoFiles, demoExample+"/"+name)
		if err != nil || !bytes.Equal(got, want) || len(got) == 0 {
			t.Errorf("%s: %d bytes, %d embedded, %v", name, len(got), len(want), err)
		}
	}
}

func TestDemoWithoutPython(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	got := runCLI(t, "", nil, "demo")
	if got.code != 2 || !strings.Contains(got.err, "python3") || !strings.Contains(got.err, "hint: install python3") {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
}

// TestDemoStops: the child is gone after stop, by TERM when it obeys.
func TestDemoStops(t *testing.T) {
	for name, script := range map[string]string{
		"obeys":       "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done",
		"ended alone": "echo ready",
	} {
		child := exec.Command("sh", "-c", script)
		child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		var line [6]byte
		if _, err := out.Read(line[:]); err != nil {
			t.Fatal(err)
		}
		d := demo{c: newCLI(nil, &bytes.Buffer{}, &bytes.Buffer{}, nil), child: child, ended: make(chan error, 1)}
		go func() { d.ended <- child.Wait() }()
		if name == "ended alone" {
			d.ended <- <-d.ended
		}
		if err := d.stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if child.ProcessState == nil || child.ProcessState.ExitCode() != 0 {
			t.Errorf("%s: %v", name, child.ProcessState)
		}
	}
}

// TestDemoChildFails: a server that ends at once is told with where its log is, and the scratch folder stays. (Never with the test binary
// itself as the child: it would run all tests again, this one too.)
func TestDemoChildFails(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	self := filepath.Join(tmp, "up")
	if err := os.WriteFile(self, []byte("#!/bin/sh\necho port taken >&2\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	d := demo{c: newCLI(nil, &out, &errs, os.Environ()), self: self}
	err := d.run(t.Context())
	p, ok := asProblem(err)
	if !ok || p.Code != codeUnavailable || !strings.Contains(p.Detail, "exit status 7): port taken") || !strings.Contains(errs.String(), "to delete it: rm -r "+d.home) {
		t.Errorf("%v\n%s", err, errs.String())
	}
	if _, err := os.Stat(filepath.Join(d.home, "up.log")); err != nil {
		t.Error(err)
	}
}
