package main

// Submitting, repeating, listing, waiting.

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSubmitChecks(t *testing.T) {
	long := strings.Repeat("x", nameMostRunes+1)
	cases := []struct{ body, has string }{
		{`{"working_dir":"/w"}`, "argv is empty"},
		{`{"argv":[],"working_dir":"/w"}`, "argv is empty"},
		{`{"argv":[""],"working_dir":"/w"}`, "argv[0] is empty"},
		{`{"argv":["a","b\u0000"],"working_dir":"/w"}`, "argv[1] has a NUL"},
		{`{"argv":["a"]}`, "working_dir is empty"},
		{`{"argv":["a"],"working_dir":"w"}`, "not absolute"},
		{`{"argv":["a"],"working_dir":"/w\u0000"}`, "NUL"},
		{`{"argv":["a","` + strings.Repeat("y", argsMostBytes) + `"],"working_dir":"/w"}`, "131"},
		{`{"argv":["a"],"working_dir":"/w","env":{"A":"` + strings.Repeat("y", argsMostBytes) + `"}}`, "argv and env"},
		{`{"argv":["a"],"working_dir":"/w","env":{"1A":""}}`, `\"1A\"`},
		{`{"argv":["a"],"working_dir":"/w","env":{"A=B":""}}`, "environment variable"},
		{`{"argv":["a"],"working_dir":"/w","env":{"A":"\u0000"}}`, "value of A"},
		{`{"argv":["a"],"working_dir":"/w","gpus":-1}`, "0 to 64"},
		{`{"argv":["a"],"working_dir":"/w","gpus":65}`, "0 to 64"},
		{`{"argv":["a"],"working_dir":"/w","name":"12"}`, "looks like an id"},
		{`{"argv":["a"],"working_dir":"/w","name":"12.3"}`, "looks like an id"},
		{`{"argv":["a"],"working_dir":"/w","name":"r12"}`, "looks like an id"},
		{`{"argv":["a"],"working_dir":"/w","name":"last"}`, "looks like an id"},
		{`{"argv":["a"],"working_dir":"/w","name":"99999999999999999999"}`, "looks like an id"},
		{`{"argv":["a"],"working_dir":"/w","name":"-x"}`, "cannot be typed"},
		{`{"argv":["a"],"working_dir":"/w","name":" x"}`, "space"},
		{`{"argv":["a"],"working_dir":"/w","name":"a\u202eb"}`, "not printable"},
		{`{"argv":["a"],"working_dir":"/w","name":"` + long + `"}`, "129 characters"},
		{`{"argv":["a"],"working_dir":"/w","project":"a\nb"}`, "project"},
		{`{"argv":["a"],"working_dir":"/w","experiment":"a\tb"}`, "experiment"},
		{`{"argv":["a"],"working_dir":"/w","tags":["a,b"]}`, "comma"},
		{`{"argv":["a"],"working_dir":"/w","tags":[""]}`, "tags[0]"},
		{`{"argv":["a"],"working_dir":"/w","priority":1001}`, "-1000 to 1000"},
		{`{"argv":["a"],"working_dir":"/w","max_attempts":-1}`, "1 to 100"},
		{`{"argv":["a"],"working_dir":"/w","max_time_s":-1}`, "max_time_s"},
		{`{"argv":["a"],"working_dir":"/w","grace_s":-0.5}`, "grace_s"},
		{`{"argv":["a"],"working_dir":"/w","signal_before_s":5}`, "needs a time limit"},
		{`{"argv":["a"],"working_dir":"/w","signal_before_s":60,"max_time_s":60}`, "not less than"},
		{`{"argv":["a"],"working_dir":"/w","gpu_memory_bytes":-1}`, "negative"},
		{`{"argv":["a"],"working_dir":"/w","venv":"env"}`, "venv"},
		{`{"argv":["a"],"working_dir":"/w","venv":"/e","conda":"c"}`, "together"},
		{`{"argv":["a"],"working_dir":"/w","total_steps":0}`, "total_steps"},
		{`{"argv":["a"],"working_dir":"/w","eval_argv":[]}`, "eval_argv"},
		{`{"argv":["a"],"working_dir":"/w","primary_metric":{"name":"x","goal":"less"}}`, "goal"},
		{`{"argv":["a"],"working_dir":"/w","watch":[""]}`, "watch[0]"},
	}
	f := newDoors(t)
	for _, c := range cases {
		f.check(t, apiCase{"", scopeWrite, "POST", "/api/v1/jobs", nil, c.body, 422, codeInvalid, c.has})
	}
	if n := f.count("SELECT count(*) FROM jobs"); n != 0 {
		t.Errorf("%d jobs were stored all the same", n)
	}
}

func TestSubmit(t *testing.T) {
	f := newDoors(t)
	var v jobView
	body := `{"argv":["python","-u","train.py","--x=$a; b 'c'"],"working_dir":"/work/mnist/","env":{"API_KEY":"s3cret-value","GPUCTL_RUN":"1"},
		"tags":["b","a","b"],"config":{"seed":12345678901234567890,"lr":1e-3},"experiment":"e1"}`
	w := f.check(t, apiCase{"", scopeWrite, "POST", "/api/v1/jobs", nil, body, 201, "", `"seed":12345678901234567890`})
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	if w.Header().Get("Location") != "/api/v1/jobs/1" {
		t.Errorf("Location %q", w.Header().Get("Location"))
	}
	if v.ID != 1 || v.State != jobQueued || v.Name != "train" || v.Project != "mnist" || v.Experiment == nil || *v.Experiment != "e1" || v.GPUs != 1 ||
		v.WorkingDir != "/work/mnist" || v.GraceS != 5 || v.MaxAttempts != 3 || v.SubmittedBy != "the-write" || v.EndedMS != nil || v.Drained ||
		!slices.Equal(v.Tags, []string{"a", "b"}) || !slices.Equal(v.EnvNames, []string{"API_KEY"}) || v.Argv[3] != "--x=$a; b 'c'" || len(v.Runs) != 0 {
		t.Errorf("job %+v", v)
	}
	if len(v.Warnings) != 2 || !strings.Contains(v.Warnings[0], "GPUCTL_RUN") || !strings.Contains(v.Warnings[1], "no node") {
		t.Errorf("warnings %q", v.Warnings)
	}
	for _, url := range []string{"/api/v1/jobs", "/api/v1/jobs/1", "/api/v1/status", "/api/v1/events"} {
		if b := f.do(f.request(scopeAdmin, "GET", url, "")).Body.String(); strings.Contains(b, "s3cret") || !strings.Contains(b, "train") {
			t.Errorf("%s: %s", url, b)
		}
	}
	f.node("n1")
	for body, has := range map[string]string{
		`{"argv":["a"],"working_dir":"/w","gpus":3}`:                                "no node has 3 cards (the most is 2); the job waits. To run without a card: -g 0",
		`{"argv":["a"],"working_dir":"/w","gpus":1,"gpu_memory_bytes":2000}`:        "no node has 1 card with 2.0 KiB or more; the job waits",
		`{"argv":["a"],"working_dir":"/w","gpus":1,"gpu_model":"a100"}`:             "no node has 1 card of model a100; the job waits",
		`{"argv":["a"],"working_dir":"/w","gpus":1,"node":"n2"}`:                    "no node is called n2",
		`{"argv":["a"],"working_dir":"/w","gpus":2,"gpu_model":"h200","node":"n1"}`: `"runs":[],"drained":false}`, // no warning
	} {
		f.check(t, apiCase{"", scopeWrite, "POST", "/api/v1/jobs", nil, body, 201, "", has})
	}
}

func TestDefaultJobName(t *testing.T) {
	for _, c := range []struct{ argv, want string }{
		{"python train.py", "train"},
		{"/usr/bin/python3.12 -u src/train.py --config x.py", "train"},
		{"python -m pkg.mod --x", "pkg.mod"},
		{"python -c pass", "python"},
		{"bash -lc train.py", "bash"},
		{"torchrun --nproc_per_node 2 fit.py", "fit"},
		{"./run.sh", "run"},
		{"./a.out --config x.py", "a.out"},
		{"env A=1 python x.py", "x"},
		{"python 12.py", "job-12"},
		{"./last", "job-last"},
		{"/", "/"},
		{"python .py", "python"},
		{"./-x", "job--x"},
	} {
		if got := defaultJobName(strings.Fields(c.argv)); got != c.want {
			t.Errorf("%s: %q, want %q", c.argv, got, c.want)
		}
	}
	if got := defaultJobName([]string{"\x01"}); got != "job-" {
		t.Errorf("unprintable: %q", got)
	}
	for dir, want := range map[string]string{"/": "default", "/a/b": "b", "/a/\x01": "default"} {
		if got := projectOf(dir); got != want {
			t.Errorf("project of %q: %q", dir, got)
		}
	}
}

func TestIdempotency(t *testing.T) {
	f := newDoors(t)
	post := func(scope, body string) *httptest.ResponseRecorder {
		return f.do(f.request(scope, "POST", "/api/v1/jobs", body, headerIdempotency+": k1"))
	}
	const body = `{"argv":["true"],"working_dir":"/w","gpus":0}`
	statuses := make([]int, 8)
	var wg sync.WaitGroup
	for i := range statuses {
		wg.Go(func() { statuses[i] = post(scopeWrite, body).Code })
	}
	wg.Wait()
	slices.Sort(statuses)
	if statuses[0] != 200 || statuses[6] != 200 || statuses[7] != 201 {
		t.Errorf("eight at once: %v", statuses)
	}
	if w := post(scopeWrite, " {\"gpus\":0, \"working_dir\":\"/w\",\n\"argv\":[\"true\"]}"); w.Code != 200 {
		t.Errorf("other white space and order: %d %s", w.Code, w.Body)
	}
	if w := post(scopeWrite, strings.Replace(body, "true", "false", 1)); w.Code != 409 || !strings.Contains(w.Body.String(), codeConflict) {
		t.Errorf("other body: %d %s", w.Code, w.Body)
	}
	if w := post(scopeAdmin, body); w.Code != 201 {
		t.Errorf("other token: %d %s", w.Code, w.Body)
	}
	if n := f.count("SELECT count(*) FROM jobs"); n != 2 {
		t.Errorf("%d jobs", n)
	}
}

func TestJobList(t *testing.T) {
	f := newDoors(t)
	f.node("n1")
	for i := range 7 {
		f.submit(fmt.Sprintf("job-%c", 'a'+i%2))
	}
	f.sql("UPDATE jobs SET state = 'CANCELLED', reason = 'CANCELLED', cancel_ms = 5, state_ms = 6 WHERE id = 3", `UPDATE jobs SET tags = '["x","y"]' WHERE id = 4`,
		"UPDATE jobs SET node = 'n1' WHERE id = 5")
	f.run(6, 1, runEnded)
	f.run(6, 2, runBurned)
	f.run(6, 0, runBurned)
	f.sql("UPDATE jobs SET state = 'FAILED', reason = 'SIGNAL' WHERE id = 6", "UPDATE runs SET signal = 9, ended_ms = 77, drained_ms = 78 WHERE attempt = 1")
	for _, c := range []struct{ query, want, next string }{
		{"", "7 6 5 4 3 2 1", "null"},
		{"?limit=3", "7 6 5", "5"},
		{"?limit=3&before=5", "4 3 2", "2"},
		{"?limit=3&before=2", "1", "null"},
		{"?after=0&limit=3", "1 2 3", "3"},
		{"?after=6", "7", "7"},
		{"?after=7", "", "7"},
		{"?state=cancelled,FAILED", "6 3", "null"},
		{"?node=n1", "6 5", "null"},
		{"?tag=y", "4", "null"},
		{"?name=job-b", "6 4 2", "null"},
		{"?name=job", "7 6 5 4 3 2 1", "null"},
		{"?name=ob", "", "null"},
		{"?project=mnist&limit=1", "7", "7"},
		{"?project=none", "", "null"},
	} {
		var l list[jobView]
		f.get("/api/v1/jobs"+c.query, &l)
		var ids []string
		for _, v := range l.Items {
			ids = append(ids, fmt.Sprint(v.ID))
		}
		next := "null"
		if l.Next != nil {
			next = fmt.Sprint(*l.Next)
		}
		if got := strings.Join(ids, " "); got != c.want || next != c.next {
			t.Errorf("%s: %s next %s, want %s next %s", c.query, got, next, c.want, c.next)
		}
	}
	var v jobView
	f.get("/api/v1/jobs/6", &v)
	if len(v.Runs) != 1 || v.Runs[0] != "6.1" || v.Signal == nil || *v.Signal != 9 || v.ExitCode != nil || v.EndedMS == nil || *v.EndedMS != 77 || !v.Drained || v.Node == nil || *v.Node != "n1" {
		t.Errorf("job 6: %+v", v)
	}
	f.get("/api/v1/jobs/3", &v)
	if v.EndedMS == nil || *v.EndedMS != 6 || !v.Drained || v.WaitReason != nil {
		t.Errorf("job 3: %+v", v)
	}
	var runs list[runView]
	f.get("/api/v1/runs", &runs)
	if len(runs.Items) != 1 || runs.Items[0].ID != "6.1" {
		t.Errorf("runs: %+v", runs.Items)
	}
}

func TestSignalNumber(t *testing.T) {
	for text, want := range map[string]int{"USR1": 10, "sigterm": 15, "9": 9, "SYS": 31, "": 0, "SIG": 0, "0": 0, "32": 0, "-1": 0, "X": 0} {
		if got, err := signalNumber(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d %v", text, got, err)
		}
	}
}

// waiting starts a request in a bubble of fake time; after it the request waits. The function gives its answer and how long it took.
func (f *doorsFixture) waiting(r *http.Request) func() (*httptest.ResponseRecorder, time.Duration) {
	var w *httptest.ResponseRecorder
	var took time.Duration
	done := make(chan struct{})
	go func() {
		start := time.Now()
		w = f.do(r)
		took = time.Since(start)
		close(done)
	}()
	synctest.Wait()
	return func() (*httptest.ResponseRecorder, time.Duration) {
		<-done
		return w, took
	}
}

func TestJobWait(t *testing.T) {
	const end = "UPDATE jobs SET state = 'SUCCEEDED', reason = 'EXIT_CODE', run_id = NULL WHERE id = 1"
	state := func(w *httptest.ResponseRecorder) string {
		var v jobView
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			return w.Body.String()
		}
		return v.State
	}
	// At the end of the wait the present view is the answer.
	synctest.Test(t, func(t *testing.T) {
		f := newDoors(t)
		f.submit("a")
		w, took := f.waiting(f.request(scopeRead, "GET", "/api/v1/jobs/1?wait=20", ""))()
		if took != 20*time.Second || state(w) != jobQueued {
			t.Errorf("%v %s", took, w.Body)
		}
	})
	// A bell cuts the wait short, at once.
	synctest.Test(t, func(t *testing.T) {
		f := newDoors(t)
		f.submit("a")
		run := f.run(1, 1, runEnded)
		running := f.waiting(f.request(scopeRead, "GET", "/api/v1/jobs/a?wait=25&until=running", ""))
		done := f.waiting(f.request(scopeRead, "GET", "/api/v1/jobs/last?wait=25&until=done", ""))
		drained := f.waiting(f.request(scopeRead, "GET", "/api/v1/jobs/1?wait=25&until=drained", ""))
		time.Sleep(time.Second)
		f.sql(fmt.Sprintf("UPDATE jobs SET state = 'RUNNING', run_id = %d WHERE id = 1", run))
		f.s.hub.ring(bellJob(1))
		if w, took := running(); took != time.Second || state(w) != jobRunning {
			t.Errorf("running: %v %s", took, w.Body)
		}
		time.Sleep(time.Second)
		f.sql(end)
		f.s.hub.ring(bellJob(1))
		if w, took := done(); took != 2*time.Second || state(w) != jobSucceeded {
			t.Errorf("done: %v %s", took, w.Body)
		}
		time.Sleep(time.Second)
		f.sql("UPDATE runs SET drained_ms = 5")
		f.s.hub.ring(bellRun(run))
		if w, took := drained(); took != 3*time.Second || !strings.Contains(w.Body.String(), `"drained":true`) {
			t.Errorf("drained: %v %s", took, w.Body)
		}
	})
	// A run that came during the wait is listened to from then on.
	synctest.Test(t, func(t *testing.T) {
		f := newDoors(t)
		f.submit("a")
		answer := f.waiting(f.request(scopeRead, "GET", "/api/v1/jobs/1?wait=25&until=drained", ""))
		run := f.run(1, 1, runEnded)
		f.sql(end)
		f.s.hub.ring(bellJob(1))
		synctest.Wait()
		f.sql("UPDATE runs SET drained_ms = 5")
		f.s.hub.ring(bellRun(run))
		if w, took := answer(); took != 0 || !strings.Contains(w.Body.String(), `"drained":true`) {
			t.Errorf("%v %s", took, w.Body)
		}
	})
	// A ring that is lost costs one look.
	synctest.Test(t, func(t *testing.T) {
		f := newDoors(t)
		f.submit("a")
		answer := f.waiting(f.request(scopeRead, "GET", "/api/v1/jobs/1?wait=25", ""))
		time.Sleep(time.Second)
		f.sql(end)
		if w, took := answer(); took != waitRelook || state(w) != jobSucceeded {
			t.Errorf("%v %s", took, w.Body)
		}
	})
	// A client that went away is waited for by nobody.
	synctest.Test(t, func(t *testing.T) {
		f := newDoors(t)
		f.submit("a")
		ctx, cancel := context.WithCancel(t.Context())
		answer := f.waiting(f.request(scopeRead, "GET", "/api/v1/jobs/1?wait=25", "").WithContext(ctx))
		cancel()
		if _, took := answer(); took != 0 {
			t.Errorf("%v", took)
		}
	})
	// A server that closes ends the wait with the last look.
	synctest.Test(t, func(t *testing.T) {
		f := newDoors(t)
		f.submit("a")
		answer := f.waiting(f.request(scopeRead, "GET", "/api/v1/jobs/1?wait=25", ""))
		close(f.s.stopping)
		if w, took := answer(); took != 0 || state(w) != jobQueued {
			t.Errorf("%v %s", took, w.Body)
		}
	})
}

func FuzzDecodeJob(f *testing.F) {
	for _, s := range []string{`{"argv":["a"],"working_dir":"/w"}`, `{"argv":["python","-m"],"working_dir":"/","env":{"A":"b"},"tags":["x"],"config":{"a":[1,{"b":null}]}}`, `{"gpus":1e9}`, `{`, "null", `{"argv":[""]}`, `{"argv":["\u0000"]}`, "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var q jobRequest
		r := httptest.NewRequest("POST", "/", strings.NewReader(string(body)))
		if err := decodeJSON(r, bodyMaxBytes, &q); err != nil {
			if p, ok := asProblem(err); !ok || p.Status >= 500 {
				t.Fatalf("%v", err)
			}
			return
		}
		if _, err := checkSubmit(&q); err != nil {
			if p, ok := asProblem(err); !ok || p.Code != codeInvalid || p.Hint == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		if parseRef(q.Name).form != refName || q.GPUs == nil || q.GraceS == nil || q.Project == "" || q.WorkingDir[0] != '/' {
			t.Fatalf("passed: %+v", q)
		}
	})
}
