package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeJob plays one job to a follower: it stands at a step of a script, and every answer that is taken moves it on as the step says.
type fakeJob struct {
	*fakeAPI
	mu   sync.Mutex
	job  jobView
	logs map[string]*fakeLog
}

type fakeLog struct {
	lines []logLine
	live  string
	done  bool
}

func ptr[T any](v T) *T { return &v }

func newFakeJob(t *testing.T, job jobView) *fakeJob {
	f := &fakeJob{fakeAPI: newFakeAPI(t), job: job, logs: map[string]*fakeLog{}}
	ref := "/jobs/" + strconv.FormatInt(job.ID, 10)
	f.on("GET "+ref, func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		tellJSON(w, 200, f.job)
	})
	f.json("GET "+ref+"/why", whyView{JobID: job.ID, State: jobQueued, Summary: "both cpu slots are busy"})
	return f
}

// addLog serves the log of a run, at most page lines an answer; before, when not nil, runs first and may answer itself by true.
func (f *fakeJob) addLog(run string, log *fakeLog, page int, before func(n int, w http.ResponseWriter) bool) {
	f.logs[run] = log
	n := 0
	f.on("GET /runs/"+run, func(w http.ResponseWriter, r *http.Request) {
		tellJSON(w, 200, runView{ID: run, State: runEnded, Signal: ptr(int64(9)), Reason: ptr(reasonKilledByHost), Log: logStats{Lines: int64(len(log.lines))}})
	})
	f.on("GET /runs/"+run+"/log", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		n++
		if before != nil && before(n, w) {
			return
		}
		after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
		if err != nil {
			tellProblem(w, newProblem(codeUsage, "", "after is missing"))
			return
		}
		p := logPage{Items: []logLine{}, Next: after}
		for _, l := range log.lines {
			if l.N > after && len(p.Items) < page {
				p.Items, p.Next = append(p.Items, l), l.N
			}
		}
		last := int64(0)
		if k := len(log.lines); k > 0 {
			last = log.lines[k-1].N
		}
		p.Done = log.done && p.Next >= last
		if log.live != "" {
			p.Live = &log.live
		}
		tellJSON(w, 200, p)
	})
}

func textLines(texts ...string) []logLine {
	var ls []logLine
	for i, t := range texts {
		more := strings.HasSuffix(t, "+")
		ls = append(ls, logLine{N: int64(i + 1), Text: strings.TrimSuffix(t, "+"), Continued: more})
	}
	return ls
}

// followed runs a follower over the job and gives what it wrote.
func followed(t *testing.T, f *fakeJob, change func(*follower)) (job jobView, out, said string, err error) {
	t.Helper()
	var buf, errs bytes.Buffer
	p := &printer{out: &buf, err: &errs, format: outTable}
	fl := newFollower(clientOf(t, f.fakeAPI), newLineSink(p, false), func(format string, args ...any) { fmt.Fprintf(&errs, format+"\n", args...) })
	fl.pace = backoff{first: time.Millisecond, most: 5 * time.Millisecond}
	if change != nil {
		change(fl)
	}
	job, err = fl.followJob(t.Context(), f.job.ID, nil)
	return job, buf.String(), errs.String(), err
}

func succeededJob(runs ...string) jobView {
	return jobView{ID: 12, State: jobSucceeded, ExitCode: ptr(int64(0)), Runs: runs, Drained: true}
}

func TestFollowWholeLog(t *testing.T) {
	f := newFakeJob(t, succeededJob("12.1"))
	f.addLog("12.1", &fakeLog{lines: textLines("one", "two ", "a+", "b+", "c", "", "ü\x1b[31m"), done: true}, 2, nil)
	job, out, said, err := followed(t, f, nil)
	if err != nil || job.State != jobSucceeded || out != "one\ntwo \nabc\n\nü\x1b[31m\n" || said != "" {
		t.Errorf("%q, said %q, %v", out, said, err)
	}
}

// TestFollowThroughRestarts: the server goes away in every way there is; nothing is lost, nothing doubled, one word each way.
func TestFollowThroughRestarts(t *testing.T) {
	f := newFakeJob(t, succeededJob("12.1"))
	var want strings.Builder
	var texts []string
	for i := range 40 {
		texts = append(texts, fmt.Sprintf("line %d", i))
		fmt.Fprintf(&want, "line %d\n", i)
	}
	f.addLog("12.1", &fakeLog{lines: textLines(texts...), done: true}, 3, func(n int, w http.ResponseWriter) bool {
		switch n % 7 {
		case 2:
			panic(http.ErrAbortHandler)
		case 3:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"items":[{"n":1,"text":"cut`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case 4:
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>please log in</html>")
			return true
		case 5:
			tellProblem(w, newProblem(codeUnavailable, "", "starting"))
			return true
		}
		return false
	})
	_, out, said, err := followed(t, f, nil)
	if err != nil || out != want.String() {
		t.Errorf("%v\n%s", err, out)
	}
	if lost, back := strings.Count(said, "trying again"), strings.Count(said, "is back"); lost == 0 || lost != back {
		t.Errorf("said %q", said)
	}
}

func TestFollowGivesUp(t *testing.T) {
	f := newFakeJob(t, succeededJob("12.1"))
	f.addLog("12.1", &fakeLog{}, 1, func(int, http.ResponseWriter) bool { panic(http.ErrAbortHandler) })
	_, _, _, err := followed(t, f, func(fl *follower) { fl.patience = 20 * time.Millisecond })
	if p, ok := asProblem(err); !ok || p.Code != codeUnreachable {
		t.Errorf("%v", err)
	}
	f.addLog("12.1", &fakeLog{}, 1, func(_ int, w http.ResponseWriter) bool {
		tellProblem(w, newProblem(codeUnauthorized, "", "revoked"))
		return true
	})
	if _, _, _, err := followed(t, f, nil); exitCode(err) != 4 {
		t.Errorf("a revoked token: %v", err)
	}
}

// TestFollowAttempts: queued with a reason, run, queued again by itself, run to its end.
func TestFollowAttempts(t *testing.T) {
	f := newFakeJob(t, jobView{ID: 12, State: jobQueued})
	first, second := &fakeLog{lines: textLines("first"), done: false}, &fakeLog{lines: textLines("second"), done: true}
	looks := 0
	f.on("GET /jobs/12", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch looks++; {
		case looks == 4:
			f.job.State, f.job.Runs = jobRunning, []string{"12.1"}
		case looks == 6:
			f.job.State, f.job.Reason = jobQueued, ptr(reasonKilledByHost)
		case looks == 8:
			f.job = succeededJob("12.1", "12.2")
			f.job.Drained = false
		case looks == 10:
			f.job.Drained = true
		}
		tellJSON(w, 200, f.job)
	})
	f.addLog("12.1", first, 10, func(n int, _ http.ResponseWriter) bool { first.done = n > 2; return false })
	f.addLog("12.2", second, 10, nil)
	job, out, said, err := followed(t, f, nil)
	if err != nil || job.State != jobSucceeded || out != "first\nsecond\n" {
		t.Errorf("%v, %q, %v", job.State, out, err)
	}
	if n := strings.Count(said, "waiting: both cpu slots are busy"); n != 1 {
		t.Errorf("the reason to wait was told %d times:\n%s", n, said)
	}
	for _, want := range []string{"job 12 is queued again: 12.1 ended, signal 9 (KILLED_BY_HOST)", "12.2 begins"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q was not said:\n%s", want, said)
		}
	}
}

// TestFollowGap: lines that the server no longer has are named, not passed over.
func TestFollowGap(t *testing.T) {
	f := newFakeJob(t, succeededJob("12.1"))
	lines := textLines("a", "b")
	lines[1].N = 3001
	f.addLog("12.1", &fakeLog{lines: lines, done: true}, 10, nil)
	_, out, said, err := followed(t, f, nil)
	if err != nil || out != "a\nb\n" || !strings.Contains(said, "lines 2 to 3000 are not kept") || !strings.Contains(said, "logs --full 12.1") {
		t.Errorf("%q, %q, %v", out, said, err)
	}
}

// TestFollowBurnedRun: a granted run that never started loses its number.
func TestFollowBurnedRun(t *testing.T) {
	f := newFakeJob(t, succeededJob("12.1", "12.2"))
	f.addLog("12.2", &fakeLog{lines: textLines("x"), done: true}, 10, nil)
	if _, out, _, err := followed(t, f, nil); err != nil || out != "x\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestFollowMovedServer(t *testing.T) {
	f := newFakeJob(t, succeededJob("12.1"))
	f.addLog("12.1", &fakeLog{lines: textLines("x"), done: true}, 10, nil)
	_, out, said, err := followed(t, f, func(fl *follower) {
		there := f.URL
		c, cerr := newClient("http://127.0.0.1:1", "")
		if cerr != nil {
			t.Fatal(cerr)
		}
		c.rebase = func() string { return there }
		fl.cl = c
	})
	if err != nil || out != "x\n" || !strings.Contains(said, "is back") {
		t.Errorf("%q, %q, %v", out, said, err)
	}
}

func TestJobExit(t *testing.T) {
	for _, c := range []struct {
		state, reason string
		code, signal  *int64
		want          int
	}{
		{jobSucceeded, "", ptr(int64(0)), nil, 0},
		{jobFailed, reasonExitCode, ptr(int64(3)), nil, 3},
		{jobFailed, reasonExitCode, ptr(int64(255)), nil, 255},
		{jobFailed, reasonSignal, nil, ptr(int64(11)), 139},
		{jobFailed, reasonSignal, ptr(int64(-1)), ptr(int64(9)), 137},
		{jobFailed, reasonHostOOM, nil, ptr(int64(9)), 137},
		{jobFailed, reasonTimeout, nil, ptr(int64(15)), 143},
		{jobFailed, reasonTimeout, ptr(int64(0)), nil, 124},
		{jobFailed, reasonStartFailed, nil, nil, 125},
		{jobFailed, reasonStartFailed, ptr(int64(-1)), ptr(int64(0)), 125},
		{jobFailed, reasonDispatchFailed, nil, nil, 125},
		{jobFailed, reasonSupervisorLost, ptr(int64(0)), nil, 1},
		{jobCancelled, reasonCancelled, nil, ptr(int64(15)), 143},
		{jobCancelled, reasonCancelled, ptr(int64(7)), nil, 7},
		{jobCancelled, reasonCancelled, ptr(int64(0)), nil, 130},
		{jobCancelled, "", nil, nil, 130},
	} {
		if got := jobExit(jobView{State: c.state, Reason: &c.reason, ExitCode: c.code, Signal: c.signal}); got != c.want {
			t.Errorf("%s %s code %s signal %s: %d, want %d", c.state, c.reason, numberOf(c.code), numberOf(c.signal), got, c.want)
		}
	}
}

// TestLogsFollowSaysTheEnd: a job that never ran has no line to show; following it says why.
func TestLogsFollowSaysTheEnd(t *testing.T) {
	f := newFakeJob(t, jobView{ID: 12, State: jobFailed, Reason: ptr(reasonStartFailed), Detail: ptr("no such file"), Drained: true})
	got := runCLI(t, f.URL, nil, "logs", "-f", "12")
	if got.code != 0 || got.out != "" || !strings.Contains(got.err, "job 12 FAILED (START_FAILED: no such file)") {
		t.Errorf("exit %d, %q, %q", got.code, got.out, got.err)
	}
}

// TestFollowNotesBreakTheBar: a note takes the unfinished line off the terminal first.
func TestFollowNotesBreakTheBar(t *testing.T) {
	var buf bytes.Buffer
	p := &printer{out: &buf, err: &buf, format: outTable, width: 80}
	sink := newLineSink(p, false)
	fl := newFollower(nil, sink, func(format string, args ...any) { p.note(fmt.Sprintf(format, args...)) })
	sink.showLive(ptr("50%"))
	fl.say("lost")
	if got := buf.String(); !strings.Contains(got, "50%\r\x1b[Klost\n") {
		t.Errorf("%q", got)
	}
}

func TestLogsTail(t *testing.T) {
	f := newFakeJob(t, succeededJob("12.1", "12.2"))
	var texts []string
	for i := range 300 {
		texts = append(texts, strconv.Itoa(i+1))
	}
	f.addLog("12.2", &fakeLog{lines: textLines(texts...), done: true, live: ""}, 1000, nil)
	f.addLog("12.1", &fakeLog{lines: textLines("old"), done: true}, 1000, nil)
	f.addLog("r7", &fakeLog{lines: textLines("sdk"), done: true, live: "42%"}, 1000, nil)
	for _, c := range []struct{ args, first, last string }{
		{"12", "101", "300"},
		{"-n 2 12", "299", "300"},
		{"12 -n 1000", "1", "300"},
		{"-n 0 12", "", ""},
		{"--attempt 1 12", "old", "old"},
		{"12.1", "old", "old"},
		{"-f -n 1 12", "300", "300"},
		{"-f 12.2", "101", "300"},
		{"r7", "sdk", "42%"},
	} {
		got := runCLI(t, f.URL, nil, append([]string{"logs"}, strings.Fields(c.args)...)...)
		lines := strings.Split(strings.TrimSuffix(got.out, "\n"), "\n")
		if got.code != 0 || lines[0] != c.first || lines[len(lines)-1] != c.last {
			t.Errorf("logs %s: exit %d, %q ... %q\n%s", c.args, got.code, lines[0], lines[len(lines)-1], got.err)
		}
	}
	got := runCLI(t, f.URL, nil, "logs", "-o", "json", "12.1")
	var page logPage
	if err := json.Unmarshal([]byte(got.out), &page); err != nil || got.code != 0 || len(page.Items) != 1 || page.Items[0].Text != "old" || !page.Done {
		t.Errorf("-o json: %s%s %v", got.out, got.err, err)
	}
	got = runCLI(t, f.URL, nil, "logs", "-f", "-n", "2", "-o", "json", "12.2")
	if lines := strings.Split(strings.TrimSpace(got.out), "\n"); got.code != 0 || len(lines) != 2 || !strings.Contains(lines[1], `"text":"300"`) {
		t.Errorf("-f -o json: %s%s", got.out, got.err)
	}
	if got := runCLI(t, f.URL, nil, "logs", "99"); got.code != 3 {
		t.Errorf("an unknown job: exit %d, %s", got.code, got.err)
	}
	f.json("GET /jobs/13", jobView{ID: 13, State: jobQueued})
	if got := runCLI(t, f.URL, nil, "logs", "13"); got.code != 6 || !strings.Contains(got.err, "gpuctl job why 13") {
		t.Errorf("a job that waits: exit %d, %s", got.code, got.err)
	}
}

func TestLogsFull(t *testing.T) {
	data := []byte("a\r\n\x1b[2J\x00\xff\nno newline")
	f := rawServer(t, data, nil)
	f.json("GET /runs/12.1", runView{ID: "12.1"})
	for _, args := range []string{"--full --raw 12.1", "--full 12.1"} { // stdout is no terminal here
		if got := runCLI(t, f.URL, nil, append([]string{"logs"}, strings.Fields(args)...)...); got.code != 0 || got.out != string(data) {
			t.Errorf("logs %s: exit %d, %q", args, got.code, got.out)
		}
	}
}
