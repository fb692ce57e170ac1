package tests

// REST errors: the right status, and a problem body that says what to do next. And the curl script.

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// newToken makes a token of a scope and returns its text.
func (p *plane) newToken(name, scope string) string {
	p.t.Helper()
	var made struct{ Token string }
	p.post("/api/v1/tokens", map[string]string{"name": name, "scope": scope}, &made)
	if made.Token == "" {
		p.t.Fatal("the answer has no token")
	}
	return made.Token
}

func TestAPIErrors(t *testing.T) {
	t.Parallel()
	promise(t, "bad JSON, unknown field, wrong type, unknown id, wrong token, wrong scope, too big: right status, problem body with a hint")
	p := newPlane(t)
	p.up()
	admin := p.token()
	tokens := map[string]string{"admin": admin, "none": "", "wrong": admin[:len(admin)-3] + "xyz", "garbage": "hello"}
	for _, scope := range []string{"read", "write", "agent", "sdk"} {
		tokens[scope] = p.newToken("test-"+scope, scope)
	}
	done := p.submit("-g", "0", "--", "echo", "hello")
	p.waitOver(done, 20*time.Second)
	good := `{"argv":["true"],"working_dir":"/","gpus":0}`
	jobs := "POST /api/v1/jobs"
	cases := []struct {
		name, request, body string
		token               string // "" = admin
		header              string // "K: v"
		status              int
		code                string
	}{
		{name: "no JSON", request: jobs, body: `{"argv":`, status: 400, code: "bad_json"},
		{name: "empty body", request: jobs, body: ``, status: 400, code: "bad_json"},
		{name: "two values", request: jobs, body: good + good, status: 400, code: "bad_json"},
		{name: "unknown field", request: jobs, body: `{"argv":["true"],"working_dir":"/","gups":0}`, status: 400, code: "unknown_field"},
		{name: "wrong type", request: jobs, body: `{"argv":"true","working_dir":"/"}`, status: 400, code: "bad_json"},
		{name: "wrong type of an element", request: jobs, body: `{"argv":[1],"working_dir":"/"}`, status: 400, code: "bad_json"},
		{name: "number too large", request: jobs, body: `{"argv":["true"],"working_dir":"/","gpus":1e30}`, status: 400, code: "bad_json"},
		{name: "nothing to run", request: jobs, body: `{"argv":[],"working_dir":"/"}`, status: 422, code: "invalid"},
		{name: "negative cards", request: jobs, body: `{"argv":["true"],"working_dir":"/","gpus":-1}`, status: 422, code: "invalid"},
		{name: "name like an id", request: jobs, body: `{"argv":["true"],"working_dir":"/","name":"12"}`, status: 422, code: "invalid"},
		{name: "relative folder", request: jobs, body: `{"argv":["true"],"working_dir":"here"}`, status: 422, code: "invalid"},
		{name: "NUL in an argument", request: jobs, body: `{"argv":["a\u0000b"],"working_dir":"/"}`, status: 422, code: "invalid"},
		{name: "priority out of range", request: jobs, body: `{"argv":["true"],"working_dir":"/","priority":5000}`, status: 422, code: "invalid"},
		{name: "other content type", request: jobs, body: good, header: "Content-Type: text/plain", status: 415, code: "media_type"},
		{name: "too big", request: jobs, body: `{"argv":["` + strings.Repeat("x", 2<<20) + `"]}`, status: 413, code: "too_large"},
		{name: "unknown job", request: "GET /api/v1/jobs/4711", status: 404, code: "not_found"},
		{name: "unknown job, cancel", request: "POST /api/v1/jobs/4711/cancel", body: `{}`, status: 404, code: "not_found"},
		{name: "unknown run", request: "GET /api/v1/runs/1.9", status: 404, code: "not_found"},
		{name: "odd run", request: "GET /api/v1/runs/1.x", status: 404, code: "not_found"},
		{name: "unknown run, log", request: "GET /api/v1/runs/9.1/log", status: 404, code: "not_found"},
		{name: "unknown route", request: "GET /api/v1/nothing", status: 404, code: "not_found"},
		{name: "other method", request: "DELETE /api/v1/jobs", status: 405, code: "method_not_allowed"},
		{name: "odd number in the query", request: "GET /api/v1/events?after=abc", status: 400, code: "usage"},
		{name: "no token", request: "GET /api/v1/jobs", token: "none", status: 401, code: "unauthorized"},
		{name: "wrong token", request: "GET /api/v1/jobs", token: "wrong", status: 401, code: "unauthorized"},
		{name: "garbage as token", request: "GET /api/v1/jobs", token: "garbage", status: 401, code: "unauthorized"},
		{name: "no token, unknown job", request: "GET /api/v1/jobs/4711", token: "none", status: 401, code: "unauthorized"},
		{name: "read token writes", request: jobs, body: good, token: "read", status: 403, code: "write_scope"},
		{name: "read token cancels", request: fmt.Sprintf("POST /api/v1/jobs/%d/cancel", done), body: `{}`, token: "read", status: 403, code: "write_scope"},
		{name: "agent token reads", request: "GET /api/v1/jobs", token: "agent", status: 403, code: "forbidden"},
		{name: "sdk token reads", request: "GET /api/v1/jobs", token: "sdk", status: 403, code: "forbidden"},
		{name: "write token makes tokens", request: "POST /api/v1/tokens", body: `{"name":"x","scope":"admin"}`, token: "write", status: 403, code: "forbidden"},
		{name: "write token polls", request: "GET /api/v1/agent/poll?wait=0", token: "write", status: 403, code: "forbidden"},
		{name: "admin token polls", request: "GET /api/v1/agent/poll?wait=0", status: 403, code: "forbidden"},
		{name: "odd scope", request: "POST /api/v1/tokens", body: `{"name":"x","scope":"god"}`, status: 422, code: "invalid"},
		{name: "foreign host", request: "GET /api/v1/jobs", header: "Host: evil.example", status: 421, code: "host_not_allowed"},
		{name: "another site", request: jobs, body: good, header: "Sec-Fetch-Site: cross-site", status: 403, code: "cross_origin"},
		{name: "signal to a finished job", request: fmt.Sprintf("POST /api/v1/jobs/%d/signal", done), body: `{"signal":"USR1"}`, status: 409, code: "wrong_state"},
		{name: "odd signal", request: fmt.Sprintf("POST /api/v1/jobs/%d/signal", done), body: `{"signal":"NOPE"}`, status: 422, code: "invalid"},
		{name: "range outside", request: fmt.Sprintf("GET /api/v1/runs/%d.1/log/raw", done), header: "Range: bytes=999999-", status: 416, code: "range"},
	}
	for _, c := range cases {
		method, path, _ := strings.Cut(c.request, " ")
		token := admin
		if c.token != "" {
			token = tokens[c.token]
		}
		a := p.request(method, path, token, c.header, c.body)
		var pr problemShape
		if err := json.Unmarshal(a.body, &pr); err != nil {
			t.Errorf("%s: status %d, body is no JSON: %.200s", c.name, a.status, a.body)
			continue
		}
		if a.status != c.status || pr.Code != c.code || pr.Status != c.status {
			t.Errorf("%s: status %d, problem %+v; want %d %s", c.name, a.status, pr, c.status, c.code)
			continue
		}
		if kind := a.header.Get("Content-Type"); !strings.HasPrefix(kind, "application/problem+json") || pr.Hint == "" || pr.Title == "" {
			t.Errorf("%s: content type %q, problem %+v: want problem+json with title and hint", c.name, kind, pr)
		}
		if strings.Contains(string(a.body), admin) || token != "" && len(token) > 20 && strings.Contains(string(a.body), token) {
			t.Errorf("%s: the answer repeats a token", c.name)
		}
	}
	if j := p.job(done); j.State != "SUCCEEDED" {
		t.Errorf("a refused request changed the job: %s", j.State)
	}
	var list struct{ Items []jobShape }
	p.mustGet("/api/v1/jobs", &list)
	if len(list.Items) != 1 {
		t.Errorf("%d jobs after refused requests, want 1", len(list.Items))
	}
}

// request is send with a header line and JSON as the content type of a body.
func (p *plane) request(method, path, token, header, body string) answer {
	p.t.Helper()
	req, err := http.NewRequest(method, p.url()+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if method == "POST" {
		req.Header.Set("Content-Type", "application/json")
	}
	if k, v, ok := strings.Cut(header, ": "); ok && k == "Host" {
		req.Host = v
	} else if ok {
		req.Header.Set(k, v)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return p.do(req)
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	promise(t, "the same Idempotency-Key makes one job; with another body it is a conflict; the token travels by either header")
	p := newPlane(t)
	p.up()
	send := func(body string) (int, jobShape) {
		req, err := http.NewRequest("POST", p.url()+"/api/v1/jobs", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-GPUCTL-Token", p.token())
		req.Header.Set("Idempotency-Key", "once")
		a := p.do(req)
		var j jobShape
		if err := json.Unmarshal(a.body, &j); err != nil {
			t.Fatalf("%s: %v", a.body, err)
		}
		return a.status, j
	}
	s1, j1 := send(`{"argv":["true"],"working_dir":"/","gpus":0}`)
	s2, j2 := send(`{"gpus":0,"working_dir":"/","argv":["true"]}`)
	s3, _ := send(`{"argv":["false"],"working_dir":"/","gpus":0}`)
	if s1 != 201 || s2/100 != 2 || j1.ID != j2.ID || s3 != 409 {
		t.Errorf("statuses %d %d %d, jobs %d %d; want 201, 2xx, 409 and one job", s1, s2, s3, j1.ID, j2.ID)
	}
	var who struct {
		Name     string
		Scope    string
		CanWrite bool `json:"can_write"`
	}
	for _, path := range []string{"/auth/whoami", "/api/v1/auth/whoami"} {
		p.mustGet(path, &who)
		if who.Scope != "admin" || !who.CanWrite || who.Name == "" {
			t.Errorf("%s: %+v", path, who)
		}
	}
}

func TestCurl(t *testing.T) {
	t.Parallel()
	o := promise(t, "a script that has only curl submits, follows, reads, cancels")
	if _, err := exec.LookPath("curl"); err != nil {
		o.skip(t, "curl is not installed")
	}
	p := newPlane(t)
	p.up()
	cmd := exec.Command("sh", "curl.sh")
	cmd.Env = append(os.Environ(), "URL="+p.url(), "TOKEN="+p.token())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "curl: all is well") {
		t.Fatalf("curl.sh: %v\n%s", err, out)
	}
}
