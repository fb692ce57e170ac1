package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fakeAPI is a server at the edge of the CLI: canned answers by "METHOD path", requests kept.
type fakeAPI struct {
	*httptest.Server
	mu     sync.Mutex
	answer map[string]http.HandlerFunc
	seen   []seenRequest
}

type seenRequest struct {
	method, path, query string
	header              http.Header
	body                string
}

func newFakeAPI(t *testing.T) *fakeAPI {
	f := &fakeAPI{answer: map[string]http.HandlerFunc{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	body.ReadFrom(r.Body)
	f.mu.Lock()
	f.seen = append(f.seen, seenRequest{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header, body.String()})
	h := f.answer[r.Method+" "+strings.TrimPrefix(r.URL.EscapedPath(), "/api/v1")]
	f.mu.Unlock()
	if h == nil {
		tellProblem(w, newProblem(codeNotFound, "", "no route %s %s", r.Method, r.URL.Path))
		return
	}
	h(w, r)
}

func (f *fakeAPI) on(what string, h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer[what] = h
}

// json answers a route with a value.
func (f *fakeAPI) json(what string, v any) {
	f.on(what, func(w http.ResponseWriter, _ *http.Request) { tellJSON(w, 200, v) })
}

func (f *fakeAPI) requests(prefix string) []seenRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []seenRequest
	for _, r := range f.seen {
		if strings.HasPrefix(r.method+" "+strings.TrimPrefix(r.path, "/api/v1"), prefix) {
			out = append(out, r)
		}
	}
	return out
}

func tellJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func tellProblem(w http.ResponseWriter, p *problem) {
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p)
}

// callResult is what one command line came to.
type callResult struct {
	code     int
	out, err string
}

// runCLI runs one command line in this process against a server ("" = none), in a home of its own.
func runCLI(t *testing.T, server string, env []string, args ...string) callResult {
	t.Helper()
	return runCLISignals(t, server, env, nil, args...)
}

func runCLISignals(t *testing.T, server string, env []string, signals chan os.Signal, args ...string) callResult {
	t.Helper()
	var out, errs bytes.Buffer
	env = append([]string{"GPUCTL_HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	if server != "" {
		env = append(env, "GPUCTL_SERVER_URL="+server)
	}
	c := newCLI(strings.NewReader(""), &out, &errs, env)
	c.signals = signals
	code := c.run(context.Background(), args)
	return callResult{code, out.String(), errs.String()}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		err  string // must be in stderr; stdout must then be empty
		out  string
	}{
		{"", 2, "gpuctl up", ""},
		{"--help", 0, "", "job submit"},
		{"help", 0, "", "job submit"},
		{"help flags", 0, "", "--token-file FILE"},
		{"help job", 0, "", "job wait"},
		{"job", 0, "", "job wait"},
		{"job -o json", 0, "", "job wait"},
		{"job submit -h", 0, "", "--gpu-mem SIZE"},
		{"job submit -h", 0, "", "the name of its folder"},
		{"help go", 0, "", "exit code of go"},
		{"jbo list", 2, "did you mean: gpuctl job list", ""},
		{"job lsit", 2, "did you mean: gpuctl job list", ""},
		{"stauts", 2, "did you mean: gpuctl status", ""},
		{"frobnicate", 2, "hint: gpuctl help", ""},
		{"go --gpu 2 x", 125, "did you mean: --gpus", ""},
		{"go -z x", 125, "unknown shorthand flag", ""},
		{"go", 125, "command to run is missing", ""},
		{"go -g x y", 125, "invalid argument", ""},
		{"go -g -1 y", 125, "-g -1: it cannot be below 0", ""},
		{"go --gpu-mem lots y", 125, "not a size", ""},
		{"go --max-time soon y", 125, "not a length of time", ""},
		{"go --primary loss y", 125, "NAME:min", ""},
		{"go --primary :min y", 125, "NAME:min", ""},
		{"go --config novalue y", 125, "not K=V", ""},
		{"go --shell x y", 125, "--shell takes the place", ""},
		{"go --venv a --conda b y", 125, "contradict", ""},
		{"go --max-attempts 0 y", 125, "it must be at least 1", ""},
		{"go -e =1 y", 125, "does not name a variable", ""},
		{"go -e NOT_SET_ANYWHERE y", 125, "not set here", ""},
		{"job show", 2, "JOB is missing", ""},
		{"job show 1 2", 2, `unexpected "2"`, ""},
		{"job signal 1", 2, "SIGNAL is missing", ""},
		{"job retry 1 python", 2, "put -- before", ""},
		{"job retry 1 --", 2, "behind -- is missing", ""},
		{"job cancel", 2, "JOB is missing", ""},
		{"job list extra", 2, "unexpected", ""},
		{"job list --limit 0", 2, "it must be at least 1", ""},
		{"logs", 2, "JOB or RUN is missing", ""},
		{"logs --full -f 1", 2, "does not follow", ""},
		{"logs --full -n 5 1", 2, "-n does not go with it", ""},
		{"logs -n -1 1", 2, "-n -1: it cannot be below 0", ""},
		{"-o yaml job list", 2, "no output format", ""},
		{"--color maybe job list", 2, "--color", ""},
		{"--timeout never job list", 2, "--timeout", ""},
		{"token create", 2, "NAME is missing", ""},
		{"token create a --scope root", 2, "no scope", ""},
		{"server --port 70000", 2, "a port is 0 to 65535", ""},
		{"up --server http://x", 2, "runs its own server", ""},
		{"agent --cpu-lane -1", 2, "it cannot be below 0", ""},
		{"supervise", 2, "started by the agent", ""},
		{"demo --epochs 0", 2, "at least one", ""},
		{"version", 0, "", "gpuctl v"},
		{"--version", 0, "", "gpuctl v"},
		{"-o json version", 0, "", `"version": "v`},
	} {
		got := runCLI(t, "", nil, strings.Fields(c.args)...)
		if got.code != c.code || !strings.Contains(got.err, c.err) || !strings.Contains(got.out, c.out) {
			t.Errorf("gpuctl %s: exit %d\nstdout %s\nstderr %s", c.args, got.code, got.out, got.err)
		}
		if c.err != "" && got.out != "" {
			t.Errorf("gpuctl %s: an error, and on stdout %q", c.args, got.out)
		}
	}
}

// TestUsageAsJSON: whoever asked for JSON gets the error as JSON, also when the line could not be parsed up to -o.
func TestUsageAsJSON(t *testing.T) {
	for _, args := range []string{
		"job list --nosuch -o json", "job list -o json --nosuch", "--nosuch -o json", "nosuch -o json", "job nosuch --output=json", "job submit -g x -ojson true",
		"-o json nosuch", "job show --output ndjson --x 1",
	} {
		got := runCLI(t, "", nil, strings.Fields(args)...)
		var told struct{ Error struct{ Code, Hint string } }
		if err := json.Unmarshal([]byte(got.err), &told); err != nil || got.code != 2 || told.Error.Code != codeUsage || told.Error.Hint == "" {
			t.Errorf("gpuctl %s: exit %d, %v\n%s", args, got.code, err, got.err)
		}
	}
	// what stands behind -- is somebody else's
	if got := runCLI(t, "", nil, "go", "--nosuch", "--", "x", "-o", "json"); strings.HasPrefix(got.err, "{") {
		t.Errorf("%s", got.err)
	}
}

func TestEmptyWord(t *testing.T) {
	if got := runCLI(t, "", nil, "job", "show", ""); got.code != 2 || !strings.Contains(got.err, "word 1 is empty") {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
}

func TestErrorShape(t *testing.T) {
	got := runCLI(t, "http://127.0.0.1:1", nil, "-o", "json", "job", "list")
	var shape struct {
		Error struct{ Code, Message, Hint string }
	}
	if err := json.Unmarshal([]byte(got.err), &shape); err != nil || shape.Error.Code != codeUnreachable || shape.Error.Hint != "gpuctl up" || got.code != 5 {
		t.Errorf("exit %d, stderr %s (%v)", got.code, got.err, err)
	}
	got = runCLI(t, "http://127.0.0.1:1", nil, "job", "list")
	if lines := strings.Split(strings.TrimSpace(got.err), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[0], "gpuctl: no server at") || lines[1] != "hint: gpuctl up" {
		t.Errorf("stderr %q", got.err)
	}
}

func TestExitCodesOfProblems(t *testing.T) {
	f := newFakeAPI(t)
	for code, want := range map[string]int{codeNotFound: 3, codeAmbiguous: 3, codeUnauthorized: 4, codeWriteScope: 4, codeWrongState: 6, codeInvalid: 2, codeUnavailable: 5, codeInternal: 1} {
		f.on("POST /jobs/7/cancel", func(w http.ResponseWriter, _ *http.Request) {
			tellProblem(w, newProblem(code, "do this", "that is why"))
		})
		got := runCLI(t, f.URL, nil, "job", "cancel", "7")
		if got.code != want || !strings.Contains(got.err, "gpuctl: that is why") || !strings.Contains(got.err, "hint: do this") {
			t.Errorf("%s: exit %d, want %d; %s", code, got.code, want, got.err)
		}
	}
}

func TestArgsByName(t *testing.T) {
	for _, c := range []struct{ argv, want string }{
		{"gpuctl up", "up"},
		{"/usr/bin/gpuctl-server --port 1", "server --port 1"},
		{"./gpuctl-agent", "agent"},
		{"gpuctl-other x", "x"},
	} {
		if got := argsByName(strings.Fields(c.argv)); strings.Join(got, " ") != c.want {
			t.Errorf("argsByName(%s) = %q, want %q", c.argv, got, c.want)
		}
	}
}

// TestCommandTable: every command has what the help needs, and its flags do not collide with the global ones.
func TestCommandTable(t *testing.T) {
	var words []string
	for _, cmd := range commandTable() {
		if cmd.words == "" || cmd.short == "" || strings.HasSuffix(cmd.short, ".") || cmd.setup == nil || slices.Contains(words, cmd.words) {
			t.Errorf("command %q is not complete or there twice", cmd.words)
		}
		words = append(words, cmd.words)
		if cmd.words == "__complete" { // takes any words, --help too
			continue
		}
		got := runCLI(t, "", nil, append(strings.Fields(cmd.words), "--help")...)
		if cmd.words != "help" && (got.code != 0 || !strings.HasPrefix(got.out, "Usage: gpuctl "+cmd.words)) {
			t.Errorf("%s --help: exit %d, %s%s", cmd.words, got.code, got.out, got.err)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "ab", 1}, {"kitten", "sitting", 3}, {"", "ab", 2}} {
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestTokenRevokeAsJSON(t *testing.T) {
	f := newFakeAPI(t)
	f.json("GET /tokens", list[tokenView]{Items: []tokenView{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}}})
	f.json("DELETE /tokens/2", struct{}{})
	got := runCLI(t, f.URL, nil, "token", "revoke", "b", "-o", "json")
	var l list[tokenView]
	if err := json.Unmarshal([]byte(got.out), &l); err != nil || len(l.Items) != 1 || l.Items[0].ID != 2 || got.err != "" {
		t.Errorf("exit %d, %v\n%s%s", got.code, err, got.out, got.err)
	}
}

func TestTimeoutFlag(t *testing.T) {
	f := newFakeAPI(t)
	f.on("GET /jobs", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	got := runCLI(t, f.URL, nil, "--timeout", "50ms", "job", "list")
	if got.code != 124 || !strings.Contains(got.err, "not done within 50ms") {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
}
