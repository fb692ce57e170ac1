package main

// Who may come in, and what everybody else is told.

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// apiCase is one request and what its answer must be.
type apiCase struct {
	name    string
	scope   string // of the token, "" = none
	method  string
	url     string
	headers []string
	body    string
	status  int
	code    string // of a problem, "" = none
	has     string // in the answer
}

func (f *doorsFixture) check(t *testing.T, c apiCase) *httptest.ResponseRecorder {
	t.Helper()
	w := f.do(f.request(c.scope, c.method, c.url, c.body, c.headers...))
	if w.Code != c.status {
		t.Errorf("status %d, want %d: %s", w.Code, c.status, w.Body)
	}
	if w.Header().Get(headerRequestID) == "" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers are not complete: %v", w.Header())
	}
	if !strings.Contains(w.Body.String(), c.has) {
		t.Errorf("answer lacks %q: %s", c.has, w.Body)
	}
	if c.code == "" {
		return w
	}
	var p problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	if p.Code != c.code || p.Status != c.status || p.RequestID != w.Header().Get(headerRequestID) || p.Hint == "" || p.Detail == "" {
		t.Errorf("problem %+v, want code %s with detail, hint and request id", p, c.code)
	}
	if got := w.Header().Get("Content-Type"); got != problemType {
		t.Errorf("content type %q", got)
	}
	return w
}

func TestDoorProblems(t *testing.T) {
	f := newDoors(t)
	f.submit("train-a")
	const jobs = "/api/v1/jobs"
	job := func(field string) string {
		return `{"argv":["python","train.py"],"working_dir":"/w",` + field + `}`
	}
	cases := []apiCase{
		{"health needs no token", "", "GET", "/healthz", nil, "", 200, "", "ok"},
		{"ready needs no token", "", "GET", "/readyz", nil, "", 200, "", "ready"},
		{"no token", "", "GET", jobs, nil, "", 401, codeUnauthorized, "Bearer"},
		{"unknown token", "", "GET", jobs, []string{"Authorization: Bearer gpc_read_1_x"}, "", 401, codeUnauthorized, "not known"},
		{"basic is no token", "", "GET", jobs, []string{"Authorization: Basic eDp5"}, "", 401, codeUnauthorized, ""},
		{"our header beats a blanked one", "", "GET", jobs, []string{"Authorization: Bearer ", headerToken + ": " + f.tokens[scopeRead]}, "", 200, "", "train-a"},
		{"read token on a write route", scopeRead, "POST", jobs, nil, "{}", 403, codeWriteScope, "WriteScopeError"},
		{"sdk token", scopeSDK, "GET", jobs, nil, "", 403, codeForbidden, ""},
		{"agent token", scopeAgent, "GET", jobs, nil, "", 403, codeForbidden, ""},
		{"write token makes no token", scopeWrite, "POST", "/api/v1/tokens", nil, "{}", 403, codeForbidden, "admin"},
		{"foreign host", scopeRead, "GET", jobs, []string{"Host: evil.example"}, "", 421, codeHost, "public_host"},
		{"foreign host on a public route", "", "GET", "/healthz", []string{"Host: evil.example"}, "", 421, codeHost, ""},
		{"no host", scopeRead, "GET", jobs, []string{"Host: "}, "", 421, codeHost, ""},
		{"own name, other port", scopeRead, "GET", jobs, []string{"Host: Localhost:1"}, "", 200, "", ""},
		{"public name", scopeRead, "GET", jobs, []string{"Host: GPU.example.org."}, "", 200, "", ""},
		{"IPv6", scopeRead, "GET", jobs, []string{"Host: [::1]:8600"}, "", 200, "", ""},
		{"cross-site write", scopeWrite, "POST", jobs, []string{"Sec-Fetch-Site: cross-site"}, "{}", 403, codeCrossOrigin, ""},
		{"foreign origin", scopeWrite, "POST", jobs, []string{"Origin: http://evil.example"}, "{}", 403, codeCrossOrigin, ""},
		{"unknown route", scopeRead, "GET", "/api/v1/jbos", nil, "", 404, codeNotFound, "one of auth, checkpoints, events, jobs"},
		{"unknown route outside", "", "GET", "/jobs", nil, "", 404, codeNotFound, "/api/v1/"},
		{"wrong method", scopeWrite, "DELETE", jobs, nil, "", 405, codeMethod, "GET, HEAD, POST"},
		{"unknown job", scopeRead, "GET", jobs + "/99", nil, "", 404, codeNotFound, "gpuctl job list"},
		{"unknown run", scopeRead, "GET", "/api/v1/runs/9.9", nil, "", 404, codeNotFound, "gpuctl run list"},
		{"unknown node", scopeRead, "GET", "/api/v1/nodes/x", nil, "", 404, codeNotFound, "gpuctl node list"},
		{"job not started", scopeRead, "GET", "/api/v1/runs/1/log", nil, "", 404, codeNotFound, "gpuctl job why 1"},
		{"a run where a job is wanted", scopeRead, "GET", jobs + "/1.2", nil, "", 404, codeNotFound, "its job is 1"},
		{"empty body", scopeWrite, "POST", jobs, nil, "", 400, codeBadJSON, "empty"},
		{"malformed", scopeWrite, "POST", jobs, nil, "{\n \"argv\": [,]}", 400, codeBadJSON, "line 2, byte 11"},
		{"cut", scopeWrite, "POST", jobs, nil, `{"argv":["a"`, 400, codeBadJSON, "too early"},
		{"null", scopeWrite, "POST", jobs, nil, `null`, 400, codeBadJSON, "object"},
		{"list", scopeWrite, "POST", jobs, nil, `[]`, 400, codeBadJSON, "object"},
		{"trailing data", scopeWrite, "POST", jobs, nil, job(`"gpus":0`) + "{}", 400, codeBadJSON, "after the object"},
		{"unknown field", scopeWrite, "POST", jobs, nil, job(`"gpu":1`), 400, codeUnknownField, `\"gpu\"`},
		{"known fields in the hint", scopeWrite, "POST", jobs, nil, job(`"gpu":1`), 400, codeUnknownField, "gpu_memory_bytes"},
		{"wrong type", scopeWrite, "POST", jobs, nil, job(`"gpus":"two"`), 400, codeBadJSON, "field gpus: a whole number is wanted, a string was found"},
		{"wrong type in a list", scopeWrite, "POST", jobs, nil, `{"argv":"python train.py"}`, 400, codeBadJSON, "field argv: a list is wanted"},
		{"not UTF-8", scopeWrite, "POST", jobs, nil, job("\"name\":\"\xff\""), 400, codeBadJSON, "UTF-8"},
		{"deep config", scopeWrite, "POST", jobs, nil, job(`"config":{"a":` + strings.Repeat("[", 1001) + strings.Repeat("]", 1001) + `}`), 422, codeInvalid, "config"},
		{"too big", scopeWrite, "POST", jobs, nil, job(`"reason":"` + strings.Repeat("x", bodyMaxBytes) + `"`), 413, codeTooLarge, ""},
		{"wrong content type", scopeWrite, "POST", jobs, []string{"Content-Type: text/plain"}, "{}", 415, codeMediaType, "application/json"},
		{"a form", scopeWrite, "POST", jobs, []string{"Content-Type: application/x-www-form-urlencoded"}, "argv=x", 415, codeMediaType, ""},
		{"what curl -d sends", scopeWrite, "POST", jobs, []string{"Content-Type: application/x-www-form-urlencoded"}, job(`"gpus":0`), 201, "", ""},
		{"unknown parameter", scopeRead, "GET", jobs + "?staet=QUEUED", nil, "", 400, codeUsage, "known parameters"},
		{"unknown state", scopeRead, "GET", jobs + "?state=WAITING", nil, "", 400, codeUsage, "QUEUED"},
		{"twice", scopeRead, "GET", jobs + "?limit=1&limit=2", nil, "", 400, codeUsage, "2 times"},
		{"limit", scopeRead, "GET", jobs + "?limit=501", nil, "", 400, codeUsage, "500"},
		{"no items", scopeRead, "GET", jobs + "?limit=0", nil, "", 400, codeUsage, "500"},
		{"both directions", scopeRead, "GET", jobs + "?after=1&before=2", nil, "", 400, codeUsage, ""},
		{"long wait", scopeRead, "GET", jobs + "/1?wait=26", nil, "", 400, codeUsage, "25"},
		{"NaN wait", scopeRead, "GET", jobs + "/1?wait=NaN", nil, "", 400, codeUsage, ""},
		{"unknown level", scopeRead, "GET", jobs + "/1?wait=1&until=dead", nil, "", 400, codeUsage, "drained"},
		{"wait without after", scopeRead, "GET", "/api/v1/events?wait=1", nil, "", 400, codeUsage, "after"},
		{"no signal", scopeWrite, "POST", jobs + "/1/signal", nil, "", 422, codeInvalid, "USR1"},
		{"unknown signal", scopeWrite, "POST", jobs + "/1/signal", nil, `{"signal":"SIGFOO"}`, 422, codeInvalid, "SIGFOO"},
		{"negative grace", scopeWrite, "POST", jobs + "/1/cancel", nil, `{"grace_s":-1}`, 422, codeInvalid, "grace_s"},
		{"retry with nothing to run", scopeWrite, "POST", jobs + "/1/retry", nil, `{"argv":[]}`, 422, codeInvalid, "argv"},
		{"bad token name", scopeAdmin, "POST", "/api/v1/tokens", nil, `{"name":"","scope":"read"}`, 422, codeInvalid, "name"},
		{"bad token scope", scopeAdmin, "POST", "/api/v1/tokens", nil, `{"name":"x","scope":"root"}`, 422, codeInvalid, "admin"},
		{"token name taken", scopeAdmin, "POST", "/api/v1/tokens", nil, `{"name":"the-read","scope":"read"}`, 409, codeConflict, "the-read"},
		{"unknown token id", scopeAdmin, "DELETE", "/api/v1/tokens/99", nil, "", 404, codeNotFound, ""},
		{"token id is no number", scopeAdmin, "DELETE", "/api/v1/tokens/x", nil, "", 404, codeNotFound, ""},
		{"last admin token", scopeAdmin, "DELETE", "/api/v1/tokens/5", nil, "", 409, codeWrongState, "last admin"},
		{"bad idempotency key", scopeWrite, "POST", jobs, []string{headerIdempotency + ": " + strings.Repeat("k", 201)}, job(`"gpus":0`), 422, codeInvalid, headerIdempotency},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := f.check(t, c)
			if c.status == http.StatusUnauthorized && w.Header().Get("WWW-Authenticate") == "" {
				t.Error("no WWW-Authenticate")
			}
			if c.status == http.StatusMethodNotAllowed && w.Header().Get("Allow") != "GET, HEAD, POST" {
				t.Errorf("Allow: %q", w.Header().Get("Allow"))
			}
		})
	}
}

// Every route of the table with every kind of token: whoever may not come in is told so, whoever may is let in.
func TestDoorScopes(t *testing.T) {
	f := newDoors(t)
	f.node("n1")
	f.sql("UPDATE tokens SET node_id = 1 WHERE scope = 'agent'") // as its first hello does
	mayUse := map[string][]string{
		scopePublic: {"", scopeRead, scopeWrite, scopeAgent, scopeSDK, scopeAdmin},
		scopeAny:    {scopeRead, scopeWrite, scopeAgent, scopeSDK, scopeAdmin},
		scopeRead:   {scopeRead, scopeWrite, scopeAdmin},
		scopeWrite:  {scopeWrite, scopeAdmin},
		scopeAgent:  {scopeAgent},
		scopeAdmin:  {scopeAdmin},
	}
	seen := map[string]bool{}
	for _, rt := range f.s.allRoutes() {
		if seen[rt.pattern] {
			t.Errorf("%s is there twice", rt.pattern)
		}
		seen[rt.pattern] = true
		if mayUse[rt.scope] == nil || rt.summary == "" {
			t.Errorf("%s: scope %q, summary %q", rt.pattern, rt.scope, rt.summary)
		}
		method, url, _ := strings.Cut(rt.pattern, " ")
		url = strings.NewReplacer("{job}", "77", "{run}", "77", "{node}", "none", "{id}", "77").Replace(url)
		for _, scope := range append([]string{""}, tokenScopes...) {
			w := f.do(f.request(scope, method, url, ""))
			allowed := false
			for _, s := range mayUse[rt.scope] {
				allowed = allowed || s == scope
			}
			refused := w.Code == http.StatusUnauthorized || w.Code == http.StatusForbidden
			if allowed == refused || !allowed && (w.Code == http.StatusUnauthorized) != (scope == "") {
				t.Errorf("%s with token %q: %d %s", rt.pattern, scope, w.Code, w.Body)
			}
			if rt.scope == scopeWrite && scope == scopeRead && !strings.Contains(w.Body.String(), codeWriteScope) {
				t.Errorf("%s with a read token: %s", rt.pattern, w.Body)
			}
		}
	}
}

func TestDoorTokens(t *testing.T) {
	f := newDoors(t)
	var me whoami
	f.get("/auth/whoami", &me)
	if me.Name != "the-read" || me.Scope != scopeRead || me.CanWrite {
		t.Errorf("whoami %+v", me)
	}
	f.good(f.request(scopeWrite, "GET", "/api/v1/auth/whoami", ""), 200, &me)
	if !me.CanWrite {
		t.Error("a write token cannot write")
	}
	var made tokenView
	f.good(f.request(scopeAdmin, "POST", "/api/v1/tokens", `{"name":"laptop","scope":"read","expires_s":3600}`), 201, &made)
	if made.Token == "" || made.ExpiresMS == nil {
		t.Fatalf("made %+v", made)
	}
	f.tokens["laptop"] = made.Token
	f.check(t, apiCase{"", "laptop", "GET", "/api/v1/jobs", nil, "", 200, "", ""})
	if n := f.count("SELECT count(*) FROM tokens WHERE name = 'laptop' AND last_used_ms IS NOT NULL"); n != 1 {
		t.Error("the use of the token was not noted")
	}
	f.sql("UPDATE tokens SET last_used_ms = 5 WHERE name = 'laptop'")
	f.check(t, apiCase{"", "laptop", "GET", "/api/v1/jobs", nil, "", 200, "", ""})
	if n := f.count("SELECT last_used_ms FROM tokens WHERE name = 'laptop'"); n != 5 {
		t.Error("the use of the token was noted twice in a minute")
	}
	w := f.do(f.request(scopeAdmin, "GET", "/api/v1/tokens", ""))
	if strings.Contains(w.Body.String(), made.Token) || !strings.Contains(w.Body.String(), "laptop") {
		t.Errorf("list of tokens: %s", w.Body)
	}
	f.sql("UPDATE tokens SET expires_ms = 1 WHERE name = 'laptop'")
	f.check(t, apiCase{"", "laptop", "GET", "/api/v1/jobs", nil, "", 401, codeUnauthorized, "expired"})
	f.sql("UPDATE tokens SET expires_ms = NULL WHERE name = 'laptop'")
	url := "/api/v1/tokens/6"
	for range 2 { // the second time changes nothing
		f.good(f.request(scopeAdmin, "DELETE", url, ""), 200, &made)
	}
	if made.RevokedMS == nil {
		t.Error("not revoked")
	}
	f.check(t, apiCase{"", "laptop", "GET", "/api/v1/jobs", nil, "", 401, codeUnauthorized, "revoked"})
}

// Bad tokens are slowed down by address; a good one from there is not.
func TestDoorThrottle(t *testing.T) {
	f := newDoors(t)
	bad := []string{headerToken + ": guess"}
	for i := range badTokensAMinute {
		if w := f.do(f.request("", "GET", "/api/v1/jobs", "", bad...)); w.Code != 401 {
			t.Fatalf("try %d: %d", i, w.Code)
		}
	}
	w := f.check(t, apiCase{"", "", "GET", "/api/v1/jobs", bad, "", 429, codeRateLimited, ""})
	if w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	f.check(t, apiCase{"", scopeRead, "GET", "/api/v1/jobs", nil, "", 200, "", ""})
	r := f.request("", "GET", "/api/v1/jobs", "", bad...)
	r.RemoteAddr = "192.0.2.77:1"
	if w := f.do(r); w.Code != 401 {
		t.Errorf("another address: %d", w.Code)
	}
}

// Each write by a token leaves one audit row, with the status it was answered.
func TestDoorAudit(t *testing.T) {
	f := newDoors(t)
	f.submit("a")
	f.do(f.request(scopeWrite, "POST", "/api/v1/jobs", "{}", headerRequestID+": mine-1"))
	f.do(f.request(scopeWrite, "POST", "/api/v1/jobs/1/cancel", ""))
	f.do(f.request(scopeRead, "POST", "/api/v1/jobs", "{}"))
	f.do(f.request(scopeRead, "GET", "/api/v1/jobs", ""))
	for _, c := range []struct {
		status int
		path   string
		want   int64
	}{{201, "/api/v1/jobs", 1}, {422, "/api/v1/jobs", 1}, {200, "/api/v1/jobs/1/cancel", 1}} {
		if n := f.count("SELECT count(*) FROM audit WHERE status = ? AND path = ? AND token = 'the-write' AND method = 'POST'", c.status, c.path); n != c.want {
			t.Errorf("%d audit rows of %s with %d", n, c.path, c.status)
		}
	}
	if n := f.count("SELECT count(*) FROM audit"); n != 3 {
		t.Errorf("%d audit rows in all", n)
	}
	if n := f.count("SELECT count(*) FROM audit WHERE request_id = 'mine-1'"); n != 1 {
		t.Error("the request id of the caller is lost")
	}
}

// What is not a problem is told as internal, without its text; a panic too.
func TestDoorInternal(t *testing.T) {
	f := newDoors(t)
	f.sql("DROP TABLE node_samples")
	f.node("n1")
	w := f.do(f.request(scopeRead, "GET", "/api/v1/nodes", ""))
	if w.Code != 500 || strings.Contains(w.Body.String(), "node_samples") || !strings.Contains(w.Body.String(), w.Header().Get(headerRequestID)) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	d := f.h.(*doors)
	d.mux.HandleFunc("GET /boom", func(http.ResponseWriter, *http.Request) { panic("secret") })
	w = f.do(f.request("", "GET", "/boom", ""))
	if w.Code != 500 || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("panic: %d %s", w.Code, w.Body)
	}
}

func TestOwnAddress(t *testing.T) {
	for host, want := range map[string]bool{"127.0.0.1": true, "203.0.113.9": false, "evil.example": false, "": false} {
		if ownAddress(host) != want {
			t.Errorf("%q: %v", host, !want)
		}
	}
	g := newDoorGuard(serverConfig{Host: "0.0.0.0"})
	if g.checkHost("127.0.0.1:9") != nil || g.checkHost("203.0.113.9:8600") == nil || g.checkHost("evil.example") == nil {
		t.Error("bound to every address: own ones only")
	}
}
