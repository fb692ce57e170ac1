package main

// Logging in and out: what a page gets for what, and for how long.

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// login exchanges a body at /login.
func (f *doorsFixture) login(body string) loginAnswer {
	f.t.Helper()
	var a loginAnswer
	f.good(f.request("", "POST", "/api/v1/login", body, "Sec-Fetch-Site: same-origin"), http.StatusCreated, &a)
	return a
}

func (f *doorsFixture) link(scope string) oneTimeCode {
	f.t.Helper()
	var c oneTimeCode
	f.good(f.request(scope, "POST", "/api/v1/login-links", ""), http.StatusCreated, &c)
	return c
}

func TestLoginScopes(t *testing.T) {
	f := newDoors(t)
	for _, c := range []struct{ from, want string }{{scopeRead, scopeRead}, {scopeWrite, scopeWrite}, {scopeAdmin, scopeWrite}} {
		link := f.link(c.from)
		for how, body := range map[string]string{"token": `{"token":"` + f.tokens[c.from] + `"}`, "code": `{"code":"` + link.Code + `"}`} {
			a := f.login(body)
			if a.Scope != c.want || !strings.HasSuffix(a.Name, " of the-"+c.from) || !strings.HasPrefix(a.Token, "gpc_"+c.want+"_") {
				t.Errorf("%s of a %s token: %+v", how, c.from, a)
			}
			if left := time.Until(time.UnixMilli(a.ExpiresMS)); left < pageTokenLife-time.Minute || left > pageTokenLife {
				t.Errorf("%s of a %s token lives %s", how, c.from, left)
			}
			f.tokens["page"] = a.Token
			var me whoami
			f.good(f.request("page", "GET", "/auth/whoami", ""), 200, &me)
			if me.Name != a.Name || me.Scope != c.want {
				t.Errorf("the page is %+v", me)
			}
			if n := f.count("SELECT count(*) FROM audit WHERE token = ? AND path = '/api/v1/login' AND status = 201", a.Name); n != 1 {
				t.Errorf("%d audit rows of the login of %s", n, a.Name)
			}
		}
		if want := "http://127.0.0.1:8600/login#code=" + link.Code; len(link.URLs) != 2 || link.URLs[0] != want || !strings.HasPrefix(link.URLs[1], "http://gpu.example.org:8600/login#code=") {
			t.Errorf("links %q, want first %s", link.URLs, want)
		}
	}
	if n := f.count("SELECT count(*) FROM codes WHERE hash NOT IN (SELECT hash FROM codes WHERE length(hash) = 64)"); n != 0 {
		t.Error("a code is kept as it is")
	}
}

func TestLoginRefusals(t *testing.T) {
	f := newDoors(t)
	used := f.link(scopeRead)
	f.login(`{"code":"` + used.Code + `"}`)
	old, orphan := f.link(scopeRead), f.link(scopeWrite)
	f.sql("UPDATE codes SET expires_ms = 1 WHERE hash = '"+tokenHash(old.Code)+"'",
		"UPDATE tokens SET revoked_ms = 1 WHERE scope = 'write' AND name = 'the-write'")
	f.write(func(x *tx) error {
		_, _, err := makeCodeTx(x, codeForJoin, scopeAgent, "the-admin")
		return err
	})
	const at = "/api/v1/login"
	for _, c := range []apiCase{
		{"used code", "", "POST", at, nil, `{"code":"` + used.Code + `"}`, 401, codeUnauthorized, "gpuctl ui"},
		{"old code", "", "POST", at, nil, `{"code":"` + old.Code + `"}`, 401, codeUnauthorized, "gpuctl ui"},
		{"code of a revoked token", "", "POST", at, nil, `{"code":"` + orphan.Code + `"}`, 401, codeUnauthorized, "revoked"},
		{"revoked token", "", "POST", at, nil, `{"token":"` + f.tokens[scopeWrite] + `"}`, 401, codeUnauthorized, "revoked"},
		{"unknown token", "", "POST", at, nil, `{"token":"gpc_read_1_x"}`, 401, codeUnauthorized, "not known"},
		{"agent token", "", "POST", at, nil, `{"token":"` + f.tokens[scopeAgent] + `"}`, 403, codeForbidden, "scope agent"},
		{"sdk token", "", "POST", at, nil, `{"token":"` + f.tokens[scopeSDK] + `"}`, 403, codeForbidden, "scope sdk"},
		{"both", "", "POST", at, nil, `{"token":"a","code":"b"}`, 422, codeInvalid, "either"},
		{"neither", "", "POST", at, nil, `{}`, 422, codeInvalid, "either"},
		{"much", "", "POST", at, nil, `{"token":"` + strings.Repeat("x", loginMaxBytes) + `"}`, 413, codeTooLarge, ""},
		{"from another site", "", "POST", at, []string{"Sec-Fetch-Site: cross-site"}, `{"token":"` + f.tokens[scopeRead] + `"}`, 403, codeCrossOrigin, ""},
		{"a link for an agent", scopeAgent, "POST", "/api/v1/login-links", nil, "", 403, codeForbidden, ""},
		{"logging out of no page", scopeRead, "POST", "/api/v1/logout", nil, "", 409, codeWrongState, "no page"},
	} {
		t.Run(c.name, func(t *testing.T) { f.check(t, c) })
	}
	if n := f.count("SELECT count(*) FROM tokens WHERE parent_id IS NOT NULL"); n != 1 {
		t.Errorf("%d page tokens, want the one of the good login", n)
	}
}

// Of many that come with one code at once, one gets in.
func TestLoginCodeOnce(t *testing.T) {
	f := newDoors(t)
	body := `{"code":"` + f.link(scopeRead).Code + `"}`
	codes := make(chan int, 8)
	for range cap(codes) {
		go func() { codes <- f.do(f.request("", "POST", "/api/v1/login", body)).Code }()
	}
	got := map[int]int{}
	for range cap(codes) {
		got[<-codes]++
	}
	if got[http.StatusCreated] != 1 || got[http.StatusUnauthorized] != cap(codes)-1 {
		t.Errorf("answers %v", got)
	}
}

// A page reaches no further than the token it came from, and ends with it; logging out ends one page only.
func TestLoginEnds(t *testing.T) {
	f := newDoors(t)
	var laptop tokenView
	f.good(f.request(scopeAdmin, "POST", "/api/v1/tokens", `{"name":"laptop","scope":"read","expires_s":3600}`), 201, &laptop)
	first := f.login(`{"token":"` + laptop.Token + `"}`)
	if first.ExpiresMS != *laptop.ExpiresMS {
		t.Errorf("the page expires at %d, its token at %d", first.ExpiresMS, *laptop.ExpiresMS)
	}
	f.tokens["first"] = first.Token
	second := f.login(`{"code":"` + f.link("first").Code + `"}`) // opened from the first page
	if second.Scope != scopeRead || second.ExpiresMS > first.ExpiresMS || !strings.HasSuffix(second.Name, "of laptop") {
		t.Errorf("the second page: %+v", second)
	}
	f.tokens["second"] = second.Token
	if w := f.do(f.request("first", "POST", "/api/v1/logout", "")); w.Code != http.StatusNoContent {
		t.Fatalf("log out: %d %s", w.Code, w.Body)
	}
	f.check(t, apiCase{"", "first", "GET", "/api/v1/runs", nil, "", 401, codeUnauthorized, "revoked"})
	f.check(t, apiCase{"", "second", "GET", "/api/v1/runs", nil, "", 200, "", ""})
	f.good(f.request(scopeAdmin, "DELETE", "/api/v1/tokens/6", ""), 200, &laptop)
	if laptop.Name != "laptop" {
		t.Fatalf("token 6 is %s", laptop.Name)
	}
	f.check(t, apiCase{"", "second", "GET", "/api/v1/runs", nil, "", 401, codeUnauthorized, "revoked"})

	f.sql("UPDATE tokens SET expires_ms = 5 WHERE parent_id IS NOT NULL") // long over
	f.login(`{"token":"` + f.tokens[scopeRead] + `"}`)
	if n := f.count("SELECT count(*) FROM tokens WHERE parent_id IS NOT NULL"); n != 1 {
		t.Errorf("%d page tokens: those of long ago are still there", n)
	}
}

// Guessing at the login is slowed down like guessing a token; a good login from there is not.
func TestLoginThrottle(t *testing.T) {
	f := newDoors(t)
	for i := range badTokensAMinute {
		body := []string{`{"token":"guess"}`, `{"code":"guess"}`}[i%2]
		if w := f.do(f.request("", "POST", "/api/v1/login", body)); w.Code != 401 {
			t.Fatalf("try %d: %d %s", i, w.Code, w.Body)
		}
	}
	f.check(t, apiCase{"", "", "POST", "/api/v1/login", nil, `{"code":"guess"}`, 429, codeRateLimited, ""})
	f.login(`{"token":"` + f.tokens[scopeRead] + `"}`)
}
