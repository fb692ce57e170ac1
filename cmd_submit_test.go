package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// submitServer knows one node, this machine or another, and keeps what is submitted.
func submitServer(t *testing.T, here bool) *fakeAPI {
	f := newFakeAPI(t)
	id := "of-another-machine"
	if here {
		var err error
		if id, err = machineID(); err != nil {
			t.Fatal(err)
		}
	}
	f.json("GET /nodes", list[nodeView]{Items: []nodeView{{Name: "box", MachineID: id}}})
	f.on("POST /jobs", func(w http.ResponseWriter, r *http.Request) {
		tellJSON(w, 201, jobView{ID: 12, Name: "train.py", State: jobQueued, Warnings: []string{"no node has 9 cards"}})
	})
	return f
}

// submitted is the one request that was sent.
func submitted(t *testing.T, f *fakeAPI) (req jobRequest, raw map[string]any, key string) {
	t.Helper()
	posts := f.requests("POST /jobs")
	if len(posts) == 0 {
		t.Fatal("nothing was submitted")
	}
	last := posts[len(posts)-1]
	dec := json.NewDecoder(strings.NewReader(last.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(last.body), &raw); err != nil {
		t.Fatal(err)
	}
	return req, raw, last.header.Get(headerIdempotency)
}

func TestSubmitCommandLine(t *testing.T) {
	f := submitServer(t, true)
	for _, c := range []struct {
		args, want []string
	}{
		{[]string{"-g", "2", "--", "python", "train.py", "--gpus", "9"}, []string{"python", "train.py", "--gpus", "9"}},
		{[]string{"-g", "2", "python", "train.py", "--gpus", "9", "-o", "x"}, []string{"python", "train.py", "--gpus", "9", "-o", "x"}},
		{[]string{"--", "--odd", "--", "x"}, []string{"--odd", "--", "x"}},
		{[]string{"python", "--", "x"}, []string{"python", "--", "x"}},
		{[]string{"echo", "a b", "'q'", `"`, "$HOME;", "ü", ""}, []string{"echo", "a b", "'q'", `"`, "$HOME;", "ü", ""}},
	} {
		got := runCLI(t, f.URL, nil, append([]string{"job", "submit"}, c.args...)...)
		if got.code != 0 {
			t.Fatalf("%q: exit %d, %s", c.args, got.code, got.err)
		}
		req, raw, key := submitted(t, f)
		if !slices.Equal(req.Argv, c.want) {
			t.Errorf("%q: argv %q", c.args, req.Argv)
		}
		if c.args[0] == "-g" && *req.GPUs != 2 || c.args[0] != "-g" && raw["gpus"] != nil {
			t.Errorf("%q: gpus %v", c.args, raw["gpus"])
		}
		if len(key) != 32 {
			t.Errorf("%q: idempotency key %q", c.args, key)
		}
	}
}

func TestSubmitFlags(t *testing.T) {
	f := submitServer(t, true)
	envFile := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(envFile, []byte("# comment\n\nFROM_FILE=a b \nBOTH=file\nGPUCTL_X=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"SECRET=s3", "PATH=/bin", "GPUCTL_OTHER=1", "CONDA_PREFIX=/c", "PYENV_ROOT=/p", "LD_LIBRARY_PATH=/l", "HOME=/root"}
	got := runCLI(t, f.URL, env, "job", "submit", "-n", "night", "-g", "0", "-d", "/data", "--watch", "ckpt", "--watch", "more", "--tb", "tb",
		"--gpu-model", "4090", "--gpu-mem", "20GiB", "-p", "P", "--experiment", "E", "-e", "SECRET", "-e", "A=b=c", "-e", "BOTH=flag", "--env-file", envFile,
		"--priority", "3", "--max-attempts", "1", "--max-time", "2h", "--signal-before", "5m", "--grace", "30", "--total-steps", "100", "--primary", "val:loss:min",
		"--config", "lr=1e-4", "--config", "name=x", "--config", "on=true", "--config", "big=12345678901234567890", "--tag", "t1", "--reason", "why",
		"--idempotency-key", "k1", "--", "true")
	if got.code != 0 {
		t.Fatalf("exit %d, %s", got.code, got.err)
	}
	req, raw, key := submitted(t, f)
	if *req.GPUs != 0 || *req.GraceS != 30 || *req.TotalSteps != 100 || key != "k1" {
		t.Errorf("gpus %d, grace %g, steps %d, key %q", *req.GPUs, *req.GraceS, *req.TotalSteps, key)
	}
	if !reflect.DeepEqual(req.PrimaryMetric, &primaryMetric{"val:loss", "min"}) {
		t.Errorf("primary %+v", req.PrimaryMetric)
	}
	if want := map[string]any{"lr": 1e-4, "name": "x", "on": true, "big": 12345678901234567890.0}; !reflect.DeepEqual(raw["config"], want) {
		t.Errorf("config %v", raw["config"])
	}
	if !strings.Contains(f.requests("POST /jobs")[0].body, "12345678901234567890") {
		t.Error("digits of a big number were lost")
	}
	if want := map[string]string{"SECRET": "s3", "A": "b=c", "BOTH": "flag", "FROM_FILE": "a b "}; !maps.Equal(req.Env, want) {
		t.Errorf("env %v", req.Env)
	}
	machine, err := machineID()
	if err != nil {
		t.Fatal(err)
	}
	captured := map[string]string{"PATH": "/bin", "CONDA_PREFIX": "/c", "PYENV_ROOT": "/p", "LD_LIBRARY_PATH": "/l"}
	if req.Capture == nil || req.Capture.Machine != machine || !maps.Equal(req.Capture.Env, captured) {
		t.Errorf("captured %+v", req.Capture)
	}
	if !strings.Contains(got.err, "GPUCTL_X is not passed on") {
		t.Errorf("nothing is said about the variable left out: %s", got.err)
	}
	req.GPUs, req.GraceS, req.TotalSteps, req.PrimaryMetric, req.Config, req.Env, req.Capture = nil, nil, nil, nil, nil, nil, nil
	if rest := (jobRequest{
		Argv: []string{"true"}, WorkingDir: "/data", Name: "night", Project: "P", Experiment: "E", GPUModel: "4090", GPUMemoryBytes: 20 << 30,
		Priority: 3, MaxAttempts: 1, MaxTimeS: 7200, SignalBeforeS: 300, Watch: []string{"ckpt", "more"}, TB: []string{"tb"}, Tags: []string{"t1"}, Reason: "why",
	}); !reflect.DeepEqual(req, rest) {
		t.Errorf("request\n%+v, want\n%+v", req, rest)
	}
}

// TestSubmitPlace: what goes along, by where the job will run.
func TestSubmitPlace(t *testing.T) {
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=/bin", "VIRTUAL_ENV=/v", "CONDA_PREFIX=/c", "PYTHONPATH=/p"}
	for _, c := range []struct {
		name string
		here bool
		args string
		dir  string // "" = the submit is refused
		env  string // names, sorted
	}{
		{"same machine", true, "", cwd, "CONDA_PREFIX PATH PYTHONPATH VIRTUAL_ENV"},
		{"same machine by name", true, "--node box", cwd, "CONDA_PREFIX PATH PYTHONPATH VIRTUAL_ENV"},
		{"relative folder here", true, "-d sub", filepath.Join(cwd, "sub"), "CONDA_PREFIX PATH PYTHONPATH VIRTUAL_ENV"},
		{"no capture", true, "--no-env-capture", cwd, ""},
		{"another venv", true, "--venv /other", cwd, "PATH PYTHONPATH"},
		{"another node", true, "--node elsewhere -d /x", "/x", ""},
		{"other machine", false, "-d /x", "/x", ""},
		{"other machine without folder", false, "", "", ""},
		{"other machine, relative folder", false, "-d x", "", ""},
		{"another node without folder", true, "--node elsewhere", "", ""},
	} {
		f := submitServer(t, c.here)
		got := runCLI(t, f.URL, env, append(append([]string{"job", "submit"}, strings.Fields(c.args)...), "--", "true")...)
		if c.dir == "" {
			if got.code != 2 || !strings.Contains(got.err, "-d /path") || len(f.requests("POST")) != 0 {
				t.Errorf("%s: exit %d, %s", c.name, got.code, got.err)
			}
			continue
		}
		if got.code != 0 {
			t.Errorf("%s: exit %d, %s", c.name, got.code, got.err)
			continue
		}
		req, _, _ := submitted(t, f)
		if names := strings.Join(slices.Sorted(maps.Keys(req.wholeEnv())), " "); req.WorkingDir != c.dir || names != c.env {
			t.Errorf("%s: folder %s, env %s", c.name, req.WorkingDir, names)
		}
	}
}

// TestSubmitUnknownNode: a mistyped name is told as that, not as a machine whose folders are elsewhere.
func TestSubmitUnknownNode(t *testing.T) {
	f := submitServer(t, true)
	if got := runCLI(t, f.URL, nil, "job", "submit", "--node", "bxo", "true"); got.code != 2 || !strings.Contains(got.err, "no machine is called bxo") {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
}

// TestEnvFileFault: a fault in a file is told with its line.
func TestEnvFileFault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(path, []byte("# x\nA=1\nexport B=secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := runCLI(t, submitServer(t, true).URL, nil, "go", "--env-file", path, "true")
	if got.code != 125 || !strings.Contains(got.err, path+` line 3: "export B"`) || !strings.Contains(got.err, "without export") || strings.Contains(got.err, "secret") {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
}

// TestSubmitBeforeHello: a moment after `up` the server has no node yet; on its own machine that is here.
func TestSubmitBeforeHello(t *testing.T) {
	f := submitServer(t, true)
	f.json("GET /nodes", list[nodeView]{Items: []nodeView{}})
	if got := runCLI(t, f.URL, nil, "job", "submit", "true"); got.code != 0 {
		t.Fatalf("exit %d, %s", got.code, got.err)
	}
	if req, _, _ := submitted(t, f); req.Capture == nil || req.Capture.Env["PATH"] == "" || req.WorkingDir == "" {
		t.Errorf("%+v", req)
	}
}

func TestSubmitShell(t *testing.T) {
	f := submitServer(t, true)
	if got := runCLI(t, f.URL, nil, "job", "submit", "--shell", "echo $HOME; exit 3"); got.code != 0 {
		t.Fatalf("exit %d, %s", got.code, got.err)
	}
	req, _, _ := submitted(t, f)
	if len(req.Argv) != 3 || !strings.HasSuffix(req.Argv[0], "sh") || req.Argv[1] != "-lc" || req.Argv[2] != "echo $HOME; exit 3" {
		t.Errorf("argv %q", req.Argv)
	}
	t.Setenv("PATH", t.TempDir())
	if got := shellArgv("x"); got[0] != "sh" {
		t.Errorf("without bash: %q", got)
	}
}

func TestSubmitOutput(t *testing.T) {
	f := submitServer(t, true)
	for _, c := range []struct {
		args     string
		out, err string
	}{
		{"", "job 12 (train.py) queued\n", "gpuctl: no node has 9 cards\nhint: gpuctl logs -f 12 | gpuctl job why 12 | gpuctl job cancel 12\n"},
		{"-q", "12\n", "gpuctl: no node has 9 cards\n"},
		{"-o name", "12\n", "gpuctl: no node has 9 cards\n"},
	} {
		got := runCLI(t, f.URL, nil, append(append([]string{"job", "submit"}, strings.Fields(c.args)...), "true")...)
		if got.code != 0 || got.out != c.out || got.err != c.err {
			t.Errorf("%s: exit %d\n%q\n%q", c.args, got.code, got.out, got.err)
		}
	}
	got := runCLI(t, f.URL, nil, "job", "submit", "-o", "json", "true")
	var job jobView
	if err := json.Unmarshal([]byte(got.out), &job); err != nil || job.ID != 12 {
		t.Errorf("%s: %v", got.out, err)
	}
}

// TestSubmitOnce: an answer that is lost is asked for again with the same key.
func TestSubmitOnce(t *testing.T) {
	f := submitServer(t, true)
	f.on("POST /jobs", func(w http.ResponseWriter, r *http.Request) {
		if len(f.requests("POST /jobs")) < 3 {
			panic(http.ErrAbortHandler) // the connection breaks after the request was taken
		}
		tellJSON(w, 201, jobView{ID: 12, Name: "x", State: jobQueued})
	})
	if got := runCLI(t, f.URL, nil, "job", "submit", "true"); got.code != 0 {
		t.Fatalf("exit %d, %s", got.code, got.err)
	}
	posts := f.requests("POST /jobs")
	for _, p := range posts {
		if p.header.Get(headerIdempotency) != posts[0].header.Get(headerIdempotency) || p.body != posts[0].body {
			t.Error("the repeats differ: they would be further jobs")
		}
	}
	if len(posts) != 3 {
		t.Errorf("%d requests", len(posts))
	}
}

func TestRetryCommand(t *testing.T) {
	f := newFakeAPI(t)
	f.json("POST /jobs/12/retry", jobView{ID: 12, Name: "x", State: jobQueued, Runs: []string{"12.1"}})
	got := runCLI(t, f.URL, nil, "job", "retry", "12", "-e", "A=1", "--", "python", "x.py", "-e", "B=2")
	if got.code != 0 || got.out != "job 12 (x) queued again, attempt 2\n" {
		t.Fatalf("exit %d, %s%s", got.code, got.out, got.err)
	}
	var req retryRequest
	if err := json.Unmarshal([]byte(f.requests("POST")[0].body), &req); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(req.Argv, []string{"python", "x.py", "-e", "B=2"}) || !maps.Equal(req.Env, map[string]string{"A": "1"}) {
		t.Errorf("%+v", req)
	}
}
