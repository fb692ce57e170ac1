package main

// The checks before a handler: host, origin, token, scope; the rows that a checked request leaves (audit, last use of a token).
// It decides who may come in, never what happens then.

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	badTokensAMinute = 20          // of one address; a good token is never refused for it
	throttleMost     = 10_000      // addresses remembered; beyond it the count starts anew
	tokenUseEvery    = time.Minute // last_used_ms is this exact
)

// doorGuard is what the checks remember.
type doorGuard struct {
	hosts  map[string]bool // lower case, no port
	beyond bool            // others reach it: each address of the machine is a name of ours
	origin *http.CrossOriginProtection

	mu       sync.Mutex
	since    time.Time           // begin of the present minute of bad tokens
	bad      map[string]int      // address -> bad tokens in this minute
	lastUsed map[int64]time.Time // token -> when its use was last written
}

func newDoorGuard(cfg serverConfig) *doorGuard {
	g := &doorGuard{
		hosts:    map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true},
		origin:   http.NewCrossOriginProtection(),
		bad:      map[string]int{},
		lastUsed: map[int64]time.Time{},
	}
	names := append([]string{cfg.Host}, cfg.PublicHost...)
	if name, err := os.Hostname(); err == nil { // a machine without a name has none to allow
		short, _, _ := strings.Cut(name, ".")
		names = append(names, name, short, short+".local") // the last one by mDNS
	}
	for _, n := range names {
		if n = hostOnly(n); n != "" {
			g.hosts[n] = true
		}
	}
	g.beyond = beyondLoopback(cfg.Host)
	return g
}

// hostOnly is the host of a Host header, lower case, without port, brackets and final dot.
func hostOnly(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// checkHost refuses names that are not ours: a page elsewhere whose name was made to point here (DNS rebinding) passes every other check.
func (g *doorGuard) checkHost(host string) error {
	h := hostOnly(host)
	if g.hosts[h] || g.beyond && ownAddress(h) {
		return nil
	}
	return newProblem(codeHost, "add it to public_host in "+serverYAML, "%q is not a name of this server", h)
}

// ownAddress reports whether h is an address of this machine now.
func ownAddress(h string) bool {
	ip, err := netip.ParseAddr(h)
	if err != nil {
		return false
	}
	own, err := machineAddresses()
	return err == nil && slices.Contains(own, ip.Unmap().WithZone(""))
}

// checkOrigin refuses writes that a browser sends from another site.
func (g *doorGuard) checkOrigin(r *http.Request) error {
	if err := g.origin.Check(r); err != nil {
		return newProblem(codeCrossOrigin, "send it from a program, or from the server's own page", "a page of another site sent this request")
	}
	return nil
}

// knownToken is a token that is good now.
type knownToken struct {
	caller
	lastUsedMS *int64
}

// tokenText finds the token of a request. Our own header wins: a proxy may blank Authorization, or use it for itself.
func tokenText(r *http.Request) string {
	if t := strings.TrimSpace(r.Header.Get(headerToken)); t != "" {
		return t
	}
	scheme, t, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(t)
	}
	return ""
}

// authenticate finds the caller of a request by its token. The look-up is by hash: what its timing tells is of a hash, not of a token.
func (d *doors) authenticate(r *http.Request) (knownToken, error) {
	const hint = "send it as 'Authorization: Bearer TOKEN'; the admin token is admin_token in the server's " + serverYAML
	text := tokenText(r)
	if text == "" {
		return knownToken{}, newProblem(codeUnauthorized, hint, "this needs a token")
	}
	now := time.Now()
	var k knownToken
	var found bool
	err := d.s.store.read(r.Context(), func(c *conn) (err error) {
		k, found, err = readTokenByText(c, text, now)
		return err
	})
	switch {
	case err != nil:
		return knownToken{}, err
	case !found && d.guard.tooManyBad(r.RemoteAddr, now):
		return knownToken{}, tooManyGuesses()
	case !found:
		return knownToken{}, newProblem(codeUnauthorized, hint, "this token is not known")
	}
	return k, nil
}

func tooManyGuesses() error {
	return newProblem(codeRateLimited, "wait a minute, then send a good token", "too many unknown tokens from this address")
}

// slowGuesses counts what a public route refused for its token or code as an unknown token: logging in is no way around the limit.
func (d *doors) slowGuesses(rt route, r *http.Request, err error) error {
	p, known := asProblem(err)
	if known && rt.scope == scopePublic && p.Code == codeUnauthorized && d.guard.tooManyBad(r.RemoteAddr, time.Now()) {
		return tooManyGuesses()
	}
	return err
}

// readTokenByText finds a token by its text. One that was revoked or has expired is a problem.
func readTokenByText(c *conn, text string, now time.Time) (k knownToken, found bool, err error) {
	var expires, revoked *int64
	found, err = c.one("SELECT id, name, scope, node_id, expires_ms, revoked_ms, last_used_ms FROM tokens WHERE hash = ?",
		[]any{tokenHash(text)}, &k.tokenID, &k.name, &k.scope, &k.nodeID, &expires, &revoked, &k.lastUsedMS)
	if err != nil || !found {
		return knownToken{}, false, err
	}
	return k, true, stillGood(k.name, k.scope, expires, revoked, now.UnixMilli())
}

// stillGood says whether a token that exists may be used.
func stillGood(name, scope string, expires, revoked *int64, nowMS int64) error {
	hint := "ask for a new one: gpuctl token create"
	if scope == scopeAgent {
		hint = "on the server: gpuctl node join; on that machine what it prints"
	}
	switch {
	case revoked != nil:
		return newProblem(codeUnauthorized, hint, "the token %s was revoked", name)
	case expires != nil && *expires <= nowMS:
		return newProblem(codeUnauthorized, hint, "the token %s has expired", name)
	}
	return nil
}

// tooManyBad counts an unknown token and reports whether its address has sent too many of them in this minute.
func (g *doorGuard) tooManyBad(remote string, now time.Time) bool {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.since) >= time.Minute || len(g.bad) >= throttleMost {
		g.since = now
		clear(g.bad)
	}
	g.bad[host]++
	return g.bad[host] > badTokensAMinute
}

// checkScope says whether a token of scope have may use a route.
func checkScope(have string, rt route) error {
	switch {
	case rt.scope == scopeAny, scopeAllows(have, rt.scope):
		return nil
	case rt.scope == scopeWrite && have == scopeRead:
		return newProblem(codeWriteScope, "use a token of scope write: gpuctl token create --scope write", "this token may only read")
	}
	return newProblem(codeForbidden, "use a token of scope "+rt.scope, "a token of scope %s may not do this", have)
}

// touchDue reports whether the use of a token should be written now, and counts it as written: a full disk shall not be asked each time.
func (g *doorGuard) touchDue(k knownToken, now time.Time) bool {
	if k.tokenID == 0 || k.lastUsedMS != nil && now.Sub(time.UnixMilli(*k.lastUsedMS)) < tokenUseEvery {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.lastUsed[k.tokenID]) < tokenUseEvery {
		return false
	}
	g.lastUsed[k.tokenID] = now
	return true
}

func touchTokenTx(t *tx, id int64) error {
	_, err := t.exec("UPDATE tokens SET last_used_ms = ? WHERE id = ?", t.nowMS, id)
	return err
}

// writes reports whether a method may change something.
func writes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// auditTx writes the audit row of a request.
func auditTx(t *tx, r *http.Request, status int) error {
	ex := exchangeOf(r)
	_, err := t.exec("INSERT INTO audit (at_ms, token, method, path, status, remote, request_id) VALUES (?, ?, ?, ?, ?, ?, ?)",
		t.nowMS, ex.caller.name, r.Method, r.URL.Path, status, r.RemoteAddr, ex.requestID)
	return err
}

// writeAs is store.write for a handler: fn says the status of the answer, and the audit row is written in the same transaction.
func (s *server) writeAs(r *http.Request, fn func(t *tx) (status int, err error)) (status int, err error) {
	err = s.store.write(r.Context(), func(t *tx) error {
		if status, err = fn(t); err != nil {
			return err
		}
		return auditTx(t, r, status)
	})
	exchangeOf(r).audited = err == nil
	return status, err
}
