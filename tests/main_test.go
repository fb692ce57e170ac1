// Package tests tries the built binary from outside: real processes, real files, real kills. It never imports the program.
//
// GPUCTL_SLOW=1 runs everything at full size (minutes); without it the same tests run small. GPUCTL_BIN names a binary to use instead of
// building one. GPUCTL_RESULTS names a file to which every promise appends its outcome as one JSON line.
package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

var (
	binDir string // has gpuctl and its links gpuctl-server, gpuctl-agent
	bin    string
	slow   = os.Getenv("GPUCTL_SLOW") != ""
)

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "gpuctl-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binDir, bin = dir, filepath.Join(dir, "gpuctl")
	if given := os.Getenv("GPUCTL_BIN"); given != "" {
		if err := os.Symlink(given, bin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	} else {
		build := exec.Command("go", "build", "-o", bin, "..")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
	}
	for _, name := range []string{"gpuctl-server", "gpuctl-agent"} {
		if err := os.Symlink("gpuctl", filepath.Join(dir, name)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// waitFor polls until f is true and fails the test when it is not within the given time. The only place that sleeps.
func waitFor(t testing.TB, within time.Duration, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		if f() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}

// pause lets the world go on for d. For what happens at a random time, never as a way to wait for something.
func pause(t testing.TB, d time.Duration) {
	t.Helper()
	end := time.Now().Add(d)
	waitFor(t, d+time.Second, "the pause", func() bool { return !time.Now().Before(end) })
}

// outcome is a line of GPUCTL_RESULTS.
type outcome struct {
	Promise string  `json:"promise"`
	Test    string  `json:"test"`
	Result  string  `json:"result"` // ok | failed | skipped
	Why     string  `json:"why,omitempty"`
	Figure  string  `json:"figure,omitempty"`
	Seconds float64 `json:"seconds"`
}

var resultsMu sync.Mutex

// promise records what a test stands for. The outcome gives a place for the figure and for the reason of a skip.
func promise(t *testing.T, text string) *outcome {
	t.Helper()
	o := &outcome{Promise: text, Test: t.Name()}
	began := time.Now()
	t.Cleanup(func() {
		o.Seconds, _ = strconv.ParseFloat(fmt.Sprintf("%.1f", time.Since(began).Seconds()), 64)
		switch {
		case t.Failed():
			o.Result = "failed"
		case t.Skipped():
			o.Result = "skipped"
		default:
			o.Result = "ok"
		}
		if o.Figure != "" {
			t.Logf("%s: %s", o.Promise, o.Figure)
		}
		path := os.Getenv("GPUCTL_RESULTS")
		if path == "" {
			return
		}
		line, err := json.Marshal(o)
		if err != nil {
			t.Error(err)
			return
		}
		resultsMu.Lock()
		defer resultsMu.Unlock()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if _, err := f.Write(append(line, '\n')); err != nil {
			t.Error(err)
		}
	})
	return o
}

// skip skips the test for a reason that the table of promises shows; it must stand in skips.txt.
func (o *outcome) skip(t *testing.T, why string) {
	t.Helper()
	o.Why = why
	t.Skip(why)
}
