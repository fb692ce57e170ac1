package main

// Join codes: who gets one, what it is worth, and that it works once.

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func (f *doorsFixture) joinCode(t *testing.T) string {
	t.Helper()
	var c oneTimeCode
	f.good(f.request(scopeAdmin, "POST", "/api/v1/nodes:join-code", `{"url":"http://gpu1:8600/"}`), 201, &c)
	if len(c.URLs) != 1 || c.URLs[0] != "http://gpu1:8600" {
		t.Fatalf("urls %q", c.URLs)
	}
	return c.Code
}

func (f *doorsFixture) join(code, name string) (status int, a joinAnswer, text string) {
	w := f.do(f.request("", "POST", "/api/v1/agent/join", `{"code":"`+code+`","name":"`+name+`"}`))
	if w.Code == http.StatusCreated {
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			f.t.Fatal(err)
		}
	}
	return w.Code, a, w.Body.String()
}

func TestJoinCode(t *testing.T) {
	f := newDoors(t)
	const url = "/api/v1/nodes:join-code"
	for _, c := range []apiCase{
		{"loopback", scopeAdmin, "POST", url, nil, "", 409, codeWrongState, "host: 0.0.0.0"},
		{"write token", scopeWrite, "POST", url, nil, `{"url":"http://gpu1:8600"}`, 403, codeForbidden, "admin"},
		{"not an address", scopeAdmin, "POST", url, nil, `{"url":"gpu1:8600"}`, 422, codeInvalid, "http://gpu1:8600"},
		{"a password in it", scopeAdmin, "POST", url, nil, `{"url":"http://me:pw@gpu1:8600"}`, 422, codeInvalid, ""},
		{"unknown field", scopeAdmin, "POST", url, nil, `{"urls":[]}`, 400, codeUnknownField, ""},
		{"parameter", scopeAdmin, "POST", url + "?url=x", nil, "", 400, codeUsage, ""},
	} {
		t.Run(c.name, func(t *testing.T) { f.check(t, c) })
	}
	if n := f.count("SELECT count(*) FROM codes"); n != 0 {
		t.Fatalf("%d codes were made", n)
	}
	code := f.joinCode(t)
	if strings.HasPrefix(code, "-") || f.count("SELECT count(*) FROM codes WHERE hash = ?", code) != 0 ||
		f.count("SELECT count(*) FROM codes WHERE kind = 'join' AND scope = 'agent' AND made_by = 'the-admin'") != 1 {
		t.Errorf("code %q is not stored as it should be", code)
	}
	f.s.cfg.Host, f.s.cfg.Port = "10.1.2.3", 8600
	var c oneTimeCode
	f.good(f.request(scopeAdmin, "POST", url, ""), 201, &c)
	if strings.Join(c.URLs, " ") != "http://gpu.example.org:8600 http://10.1.2.3:8600" {
		t.Errorf("urls %q", c.URLs)
	}
}

func TestJoinExchange(t *testing.T) {
	f := newDoors(t)
	status, a, text := f.join(f.joinCode(t), "gpu1")
	if status != 201 || a.Name != "gpu1" || !strings.HasPrefix(a.Token, "gpc_agent_") {
		t.Fatalf("%d %s", status, text)
	}
	f.tokens["gpu1"] = a.Token
	f.check(t, apiCase{"", "gpu1", "GET", "/api/v1/jobs", nil, "", 403, codeForbidden, "scope agent"})
	var me whoami
	f.good(f.request("gpu1", "GET", "/api/v1/auth/whoami", ""), 200, &me)
	if me.Scope != scopeAgent || me.Name != "gpu1" || me.Node != nil {
		t.Errorf("%+v", me)
	}
	if _, a, text = f.join(f.joinCode(t), "gpu1"); a.Name != "gpu1-2" {
		t.Errorf("a second machine of that name: %s", text)
	}
	if n := f.count("SELECT count(*) FROM audit WHERE path = '/api/v1/agent/join' AND token = 'join code of the-admin' AND status = 201"); n != 2 {
		t.Errorf("%d audit rows of joins", n)
	}
}

func TestJoinRefused(t *testing.T) {
	f := newDoors(t)
	used, old, login := f.joinCode(t), f.joinCode(t), ""
	f.join(used, "x")
	f.write(func(x *tx) (err error) {
		if _, err = x.exec("UPDATE codes SET expires_ms = ? WHERE hash = ?", x.nowMS-1, tokenHash(old)); err == nil {
			login, _, err = makeCodeTx(x, codeForLogin, scopeWrite, "me")
		}
		return err
	})
	good := f.joinCode(t)
	for name, code := range map[string]string{"used": used, "expired": old, "of a login": login, "empty": "", "unknown": "gpc_code_x", "its hash": tokenHash(good), "SQL": "' OR 1=1 --"} {
		if status, _, text := f.join(code, "x"); status != 401 || !strings.Contains(text, "gpuctl node join") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	for _, c := range []apiCase{
		{"no name", "", "POST", "/api/v1/agent/join", nil, `{"code":"` + good + `"}`, 422, codeInvalid, "name"},
		{"line break", "", "POST", "/api/v1/agent/join", nil, `{"code":"` + good + `","name":"a\nb"}`, 422, codeInvalid, "name"},
		{"no body", "", "POST", "/api/v1/agent/join", nil, "", 400, codeBadJSON, ""},
		{"too much", "", "POST", "/api/v1/agent/join", nil, `{"code":"` + strings.Repeat("x", joinMaxBytes) + `"}`, 413, codeTooLarge, ""},
		{"a page of another site", "", "POST", "/api/v1/agent/join", []string{"Origin: http://evil.example"}, `{"code":"` + good + `","name":"x"}`, 403, codeCrossOrigin, ""},
	} {
		t.Run(c.name, func(t *testing.T) { f.check(t, c) })
	}
	if status, _, text := f.join(good, "x"); status != 201 {
		t.Errorf("a code is used up by a refused request: %d %s", status, text)
	}
	if n := f.count("SELECT count(*) FROM tokens WHERE scope = 'agent' AND name LIKE 'x%'"); n != 2 {
		t.Errorf("%d tokens were made", n)
	}
}

// Two machines with one code at once: one wins.
func TestJoinRace(t *testing.T) {
	f := newDoors(t)
	code := f.joinCode(t)
	var won atomic.Int32
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if status, _, text := f.join(code, "x"); status == 201 {
				won.Add(1)
			} else if status != 401 {
				t.Errorf("%d %s", status, text)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 || f.count("SELECT count(*) FROM tokens WHERE name LIKE 'x%'") != 1 {
		t.Errorf("%d won", won.Load())
	}
}

// Guesses are slowed down by address, like unknown tokens and together with them; a good code from there still works.
func TestJoinThrottle(t *testing.T) {
	f := newDoors(t)
	good := f.joinCode(t)
	for i := range badTokensAMinute {
		if status, _, text := f.join("guess", "x"); status != 401 {
			t.Fatalf("try %d: %d %s", i, status, text)
		}
	}
	if status, _, text := f.join("guess", "x"); status != 429 || !strings.Contains(text, codeRateLimited) {
		t.Errorf("%d %s", status, text)
	}
	if w := f.do(f.request("", "GET", "/api/v1/jobs", "", headerToken+": guess")); w.Code != 429 {
		t.Errorf("an unknown token after that: %d", w.Code)
	}
	if status, _, text := f.join(good, "x"); status != 201 {
		t.Errorf("%d %s", status, text)
	}
}
