package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// goServer lets one job be submitted and ends it as end says.
func goServer(t *testing.T, end jobView) *fakeJob {
	f := newFakeJob(t, jobView{ID: 12, Name: "x", State: jobRunning, Runs: []string{"12.1"}})
	f.json("GET /nodes", list[nodeView]{Items: []nodeView{}})
	f.json("POST /jobs", jobView{ID: 12, Name: "x", State: jobQueued})
	log := &fakeLog{lines: textLines("hello")}
	f.addLog("12.1", log, 10, func(n int, _ http.ResponseWriter) bool {
		if log.done = n > 1; log.done {
			f.job = end
		}
		return false
	})
	return f
}

func TestGoExitCode(t *testing.T) {
	for _, c := range []struct {
		end  jobView
		code int
		said string
	}{
		{jobView{ID: 12, State: jobSucceeded, ExitCode: ptr(int64(0))}, 0, "job 12 SUCCEEDED, exit 0"},
		{jobView{ID: 12, State: jobFailed, ExitCode: ptr(int64(3)), Reason: ptr(reasonExitCode)}, 3, "job 12 FAILED, exit 3"},
		{jobView{ID: 12, State: jobFailed, Signal: ptr(int64(9)), Reason: ptr(reasonSignal)}, 137, "signal 9"},
		{jobView{ID: 12, State: jobFailed, Reason: ptr(reasonStartFailed), Detail: ptr("no such file")}, 125, "no such file"},
	} {
		for _, args := range []string{"go --", "job submit --follow --", "job submit --wait --"} {
			c.end.Runs, c.end.Drained = []string{"12.1"}, true
			f := goServer(t, c.end)
			want := "hello\n"
			if strings.Contains(args, "--wait") {
				want, f.job = "", c.end
			}
			got := runCLI(t, f.URL, nil, append(strings.Fields(args), "true")...)
			if got.code != c.code || got.out != want || !strings.Contains(got.err, c.said) {
				t.Errorf("%s: exit %d, want %d\n%q\n%s", args, got.code, c.code, got.out, got.err)
			}
		}
	}
}

// TestGoTimeout: --timeout ends the watching, and says that the job goes on and how to come back.
func TestGoTimeout(t *testing.T) {
	f := newFakeJob(t, jobView{ID: 12, Name: "x", State: jobRunning, Runs: []string{"12.1"}})
	f.json("GET /nodes", list[nodeView]{Items: []nodeView{}})
	f.json("POST /jobs", jobView{ID: 12, Name: "x", State: jobQueued})
	f.addLog("12.1", &fakeLog{}, 10, nil)
	got := runCLI(t, f.URL, nil, "go", "--timeout", "100ms", "true")
	if got.code != 124 || !strings.Contains(got.err, "job 12 goes on") || !strings.Contains(got.err, "hint: gpuctl logs -f 12") {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
}

// TestGoJSON: the lines are one JSON value each, on one line.
func TestGoJSON(t *testing.T) {
	f := goServer(t, succeededJob("12.1"))
	got := runCLI(t, f.URL, nil, "-o", "json", "go", "true")
	var l logLine
	if err := json.Unmarshal([]byte(got.out), &l); err != nil || strings.Count(got.out, "\n") != 1 || l.Text != "hello" {
		t.Errorf("exit %d, %v\n%s", got.code, err, got.out)
	}
}

func TestSubmitWaitOutput(t *testing.T) {
	end := jobView{ID: 12, State: jobFailed, ExitCode: ptr(int64(3)), Runs: []string{"12.1"}, Drained: true}
	f := goServer(t, end)
	f.job = end
	if got := runCLI(t, f.URL, nil, "job", "submit", "-q", "--wait", "true"); got.code != 3 || got.out != "12\n" || got.err != "" {
		t.Errorf("-q: exit %d, %q, %q", got.code, got.out, got.err)
	}
	got := runCLI(t, f.URL, nil, "job", "submit", "-o", "json", "--wait", "true")
	var job jobView
	if err := json.Unmarshal([]byte(got.out), &job); err != nil || got.code != 3 || job.State != jobFailed {
		t.Errorf("-o json: exit %d, %q, %v", got.code, got.out, err)
	}
}

// TestGoOurs: what goes wrong on our side is 125, never taken for the job's own code.
func TestGoOurs(t *testing.T) {
	if got := runCLI(t, "http://127.0.0.1:1", nil, "go", "true"); got.code != 125 || !strings.Contains(got.err, "no server at") {
		t.Errorf("no server: exit %d, %s", got.code, got.err)
	}
	f := submitServer(t, true)
	f.on("POST /jobs", func(w http.ResponseWriter, _ *http.Request) { tellProblem(w, newProblem(codeInvalid, "", "no")) })
	if got := runCLI(t, f.URL, nil, "go", "true"); got.code != 125 {
		t.Errorf("refused: exit %d, %s", got.code, got.err)
	}
	if got := runCLI(t, f.URL, nil, "go", "--gpus", "x", "true"); got.code != 125 {
		t.Errorf("usage: exit %d, %s", got.code, got.err)
	}
	if got := runCLI(t, f.URL, nil, "job", "submit", "true"); got.code != 2 {
		t.Errorf("submit keeps the problem's code: exit %d, %s", got.code, got.err)
	}
}

// TestGoInterrupted runs the whole command with a first Ctrl-C and no second.
func TestGoInterrupted(t *testing.T) {
	f := goServer(t, jobView{})
	f.addLog("12.1", &fakeLog{lines: textLines("hello")}, 10, nil) // never done
	signals := make(chan os.Signal, 4)
	f.on("GET /jobs/12", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case signals <- syscall.SIGTERM: // detaches without asking
		default:
		}
		tellJSON(w, 200, jobView{ID: 12, State: jobRunning, Runs: []string{"12.1"}})
	})
	got := runCLISignals(t, f.URL, nil, signals, "go", "true")
	if got.code != 130 || !strings.Contains(got.err, "job 12 goes on; come back: gpuctl logs -f 12") {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
	if n := len(f.requests("POST /jobs/12/cancel")); n != 0 {
		t.Error("the job was cancelled")
	}
}

// attended plays signals to a follower that ends when told to.
type attended struct {
	attention
	signals   chan os.Signal
	end       chan error // what the work ends with
	cancels   atomic.Int32
	cancelErr error
	heard     chan string
}

func newAttended(window time.Duration) *attended {
	a := &attended{signals: make(chan os.Signal), end: make(chan error, 1), heard: make(chan string, 20)}
	a.attention = attention{signals: a.signals, window: window, job: "12", back: "gpuctl logs -f 12", say: func(f string, args ...any) {
		a.heard <- fmt.Sprintf(f, args...)
	}, cancelJob: func() error { a.cancels.Add(1); return a.cancelErr }}
	return a
}

func (a *attended) start(t *testing.T) chan error {
	done := make(chan error, 1)
	go func() {
		done <- a.attend(t.Context(), func(ctx context.Context) error {
			select {
			case err := <-a.end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return done
}

func (a *attended) hear(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-a.heard:
		if !strings.Contains(got, want) {
			t.Fatalf("heard %q, want %q", got, want)
		}
	case <-time.After(5 * time.Second):
		t.Fatalf("nothing heard, want %q", want)
	}
}

func TestCtrlCDetaches(t *testing.T) {
	a := newAttended(10 * time.Millisecond)
	done := a.start(t)
	a.signals <- syscall.SIGINT
	a.hear(t, "press Ctrl-C again to cancel")
	a.hear(t, "detached, job 12 goes on; come back: gpuctl logs -f 12")
	if err := <-done; err != exitStatus(130) || a.cancels.Load() != 0 {
		t.Errorf("%v, %d cancels", err, a.cancels.Load())
	}
}

func TestCtrlCTwiceCancels(t *testing.T) {
	a := newAttended(time.Hour)
	done := a.start(t)
	a.signals <- syscall.SIGINT
	a.hear(t, "again")
	a.signals <- syscall.SIGINT
	a.hear(t, "cancelling job 12")
	a.end <- nil // the follower sees the end of the job
	if err := <-done; err != nil || a.cancels.Load() > 1 {
		t.Errorf("%v, %d cancels", err, a.cancels.Load())
	}
}

func TestCtrlCThriceLeaves(t *testing.T) {
	a := newAttended(time.Hour)
	done := a.start(t)
	for range 3 {
		a.signals <- syscall.SIGINT
	}
	if err := <-done; err != exitStatus(130) {
		t.Errorf("%v", err)
	}
}

func TestCtrlCCancelFails(t *testing.T) {
	a := newAttended(time.Hour)
	a.cancelErr = errors.New("server away")
	done := a.start(t)
	a.signals <- syscall.SIGINT
	a.hear(t, "again")
	a.signals <- syscall.SIGINT
	a.hear(t, "cancelling")
	a.hear(t, "not cancelled: server away")
	a.signals <- syscall.SIGINT // it all begins anew
	a.hear(t, "press Ctrl-C again")
	a.signals <- syscall.SIGINT
	a.hear(t, "cancelling")
	a.hear(t, "not cancelled")
	a.end <- errors.New("over")
	if err := <-done; err == nil || a.cancels.Load() != 2 {
		t.Errorf("%v, %d cancels", err, a.cancels.Load())
	}
}

func TestCtrlCWorkEnds(t *testing.T) {
	a := newAttended(time.Hour)
	done := a.start(t)
	a.signals <- syscall.SIGINT
	a.hear(t, "again")
	a.end <- exitStatus(3) // the job ended within the window: its own code
	if err := <-done; err != exitStatus(3) {
		t.Errorf("%v", err)
	}
}
