package main

// HTTP: the route table and the one way from a handler to an answer. What is checked before a handler runs is in http_guard.go; what the
// handlers do is in http_*.go. No handler writes an error itself: it returns one.

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// route is one row of the route table: it feeds the mux, the auth check, docs and tests.
type route struct {
	pattern string // "GET /api/v1/jobs/{job}"
	scope   string // scopePublic, scopeAny, scopeRead, ...
	handle  func(s *server, w http.ResponseWriter, r *http.Request) error
	summary string
}

// scopeAny is of routes that every valid token may use.
const scopeAny = "any"

// doorRoutes are the routes for people and programs.
func doorRoutes() []route {
	const v1 = "/api/v1"
	return []route{
		{"GET /healthz", scopePublic, (*server).getHealth, "The process answers."},
		{"GET /readyz", scopePublic, (*server).getReady, "The database answers too."},
		{"GET /auth/whoami", scopeAny, (*server).getWhoami, "Name and scope of the token that asks."},
		{"GET " + v1 + "/auth/whoami", scopeAny, (*server).getWhoami, "Name and scope of the token that asks."},
		{"GET " + v1 + "/version", scopeAny, (*server).getVersion, "Version of the server and of its database."},
		{"GET " + v1 + "/status", scopeRead, (*server).getStatus, "The overview: what runs, what waits, what needs you."},
		{"POST " + v1 + "/jobs", scopeWrite, (*server).postJob, "Submit a job. The header Idempotency-Key makes a repeat answer the same job."},
		{"GET " + v1 + "/jobs", scopeRead, (*server).getJobs, "Jobs, newest first; with after oldest first. Filters: state, node, project, tag, name (a prefix)."},
		{"GET " + v1 + "/jobs/{job}", scopeRead, (*server).getJob, "One job. wait=25&until=done|drained|running answers as soon as that is so, else at the end of the wait."},
		{"GET " + v1 + "/jobs/{job}/why", scopeRead, (*server).getJobWhy, "Why a job waits, or where it is."},
		{"POST " + v1 + "/jobs/{job}/cancel", scopeWrite, (*server).postJobCancel, "Cancel a job: its whole process tree ends."},
		{"POST " + v1 + "/jobs/{job}/retry", scopeWrite, (*server).postJobRetry, "Queue a job that is over again, as its next attempt."},
		{"POST " + v1 + "/jobs/{job}/signal", scopeWrite, (*server).postJobSignal, "Send a signal to the process of a job."},
		{"GET " + v1 + "/runs", scopeRead, (*server).getRuns, "Runs, newest first; with after oldest first. Filters: job, state, node, project."},
		{"GET " + v1 + "/runs/{run}", scopeRead, (*server).getRun, "One run: 12.2, 12 (newest attempt of job 12), r40, last, a name or a uid."},
		{"GET " + v1 + "/runs/{run}/log", scopeRead, (*server).getRunLog, "Lines of the log that the server keeps: the first 200 and the last 2,000."},
		{"GET " + v1 + "/runs/{run}/log/raw", scopeRead, (*server).getRunLogRaw, "The whole log file, byte for byte, read from its node. Takes Range."},
		{"GET " + v1 + "/runs/{run}/checkpoints", scopeRead, (*server).getRunCheckpoints, "Checkpoints of a run, the highest step first; with after in the order they were found, wait=25 waits for one. Filter: state."},
		{"GET " + v1 + "/checkpoints/{id}", scopeRead, (*server).getCheckpoint, "One checkpoint, with the metrics at its step."},
		{"GET " + v1 + "/runs/{run}/metrics", scopeRead, (*server).getRunMetrics, "Curves: points [step, at_ms, value], or with max_points=1..10000 and more than that buckets [step, at_ms, min, max, mean, count]. name= (shown name or tag, repeatable), pattern= (* stands for anything, / too), from= and to= on x=step|wall|relative (times in ms, relative to the start), attempts=run|trained|all, after= and wait=."},
		{"GET " + v1 + "/events", scopeRead, (*server).getEvents, "Events, newest first; with after oldest first. Filters: type, severity (at least), run, job."},
		{"GET " + v1 + "/nodes", scopeRead, (*server).getNodes, "All nodes with their slots."},
		{"GET " + v1 + "/nodes/{node}", scopeRead, (*server).getNode, "One node."},
		{"POST " + v1 + "/nodes:join-code", scopeAdmin, (*server).postJoinCode, "Make a code by which one machine can join: it works once, for 10 minutes."},
		{"GET " + v1 + "/slots", scopeRead, (*server).getSlots, "All slots with their holders."},
		{"POST " + v1 + "/login", scopePublic, (*server).postLogin, "Exchange a token, or the code of a login link, for a token of a page's own."},
		{"POST " + v1 + "/login-links", scopeRead, (*server).postLoginLink, "Make a login link that works once, for 10 minutes."},
		{"POST " + v1 + "/logout", scopeRead, (*server).postLogout, "End the page token that asks."},
		{"GET " + v1 + "/tokens", scopeAdmin, (*server).getTokens, "Tokens, without their secrets."},
		{"POST " + v1 + "/tokens", scopeAdmin, (*server).postToken, "Make a token. The answer is the only one that holds its secret."},
		{"DELETE " + v1 + "/tokens/{id}", scopeAdmin, (*server).deleteToken, "Revoke a token, at once."},
	}
}

// allRoutes is the whole table.
func (s *server) allRoutes() []route { return slices.Concat(doorRoutes(), agentRoutes(), pageRoutes()) }

// caller is who sent a request.
type caller struct {
	tokenID int64
	name    string
	scope   string
	nodeID  *int64 // agent tokens that are bound to a node
}

// exchange is what is known of one request while it is handled.
type exchange struct {
	caller    caller
	requestID string
	audited   bool // its audit row is committed
}

type exchangeKey struct{}

// exchangeOf finds the exchange of a request that came through newHandler; any other has an empty one.
func exchangeOf(r *http.Request) *exchange {
	if ex, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		return ex
	}
	return &exchange{}
}

// callerOf says who sent a request. On a public route nobody: the zero caller.
func callerOf(r *http.Request) caller { return exchangeOf(r).caller }

// doors is the handler of everything that the server answers.
type doors struct {
	s     *server
	mux   *http.ServeMux
	guard *doorGuard
}

// newHandler builds the handler of the whole route table. Waits end when the context of a request ends, or when the server stops.
func newHandler(s *server) http.Handler {
	d := &doors{s: s, mux: http.NewServeMux(), guard: newDoorGuard(s.cfg)}
	for _, rt := range s.allRoutes() {
		d.mux.HandleFunc(rt.pattern, func(w http.ResponseWriter, r *http.Request) { d.answer(rt, w, r) })
	}
	return d
}

// Times of one exchange. A wait of 25 s and a slow reader fit in answerWithin; whoever streams extends it.
const (
	bodyWithin   = 30 * time.Second
	answerWithin = 60 * time.Second
)

// ServeHTTP gives every request its id and its limits, and finds the route.
func (d *doors) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	ex := &exchange{requestID: requestIDOf(r)}
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, ex))
	w := &answerWriter{ResponseWriter: rw}
	h := w.Header()
	h.Set(headerRequestID, ex.requestID)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	defer d.caught(w, r)
	d.limitTime(w, r)
	if err := d.guard.checkHost(r.Host); err != nil {
		d.fail(w, r, err)
		return
	}
	if h, pattern := d.mux.Handler(r); pattern == "" {
		d.fail(w, r, noRoute(h, w, r))
		return
	}
	d.mux.ServeHTTP(w, r)
}

// answer runs one route: who asks, may it, the handler, then the rows that every request leaves.
func (d *doors) answer(rt route, w http.ResponseWriter, r *http.Request) {
	aw := w.(*answerWriter) // the mux passes on what ServeHTTP gave it
	ex := exchangeOf(r)
	var tok knownToken
	err := d.guard.checkOrigin(r)
	if err == nil && rt.scope != scopePublic {
		tok, err = d.authenticate(r)
		ex.caller = tok.caller
	}
	if err == nil {
		err = checkScope(ex.caller.scope, rt)
	}
	if err != nil {
		d.fail(aw, r, err)
		return
	}
	if err := rt.handle(d.s, aw, r); err != nil {
		d.fail(aw, r, d.slowGuesses(rt, r, err))
	}
	if writes(r.Method) && rt.scope != scopeAgent && rt.scope != scopePublic && !ex.audited {
		d.note(r, "audit", d.s.store.write(r.Context(), func(t *tx) error { return auditTx(t, r, aw.status) }))
	}
	if d.guard.touchDue(tok, time.Now()) {
		d.note(r, "note use of token", d.s.store.write(r.Context(), func(t *tx) error { return touchTokenTx(t, tok.tokenID) }))
	}
}

// note logs what went wrong beside an answer that is given already.
func (d *doors) note(r *http.Request, what string, err error) {
	if err != nil && r.Context().Err() == nil {
		d.s.log.Warn(what, keyRequest, exchangeOf(r).requestID, keyErr, err)
	}
}

// fail is the only place where an error becomes an answer. What is not a problem is "internal": its text goes to the log only.
func (d *doors) fail(w *answerWriter, r *http.Request, err error) {
	id := exchangeOf(r).requestID
	level := slog.LevelDebug
	p, known := asProblem(err)
	switch {
	case !known && r.Context().Err() != nil && errors.Is(err, r.Context().Err()):
		p = newProblem(codeUnavailable, "try again", "the server is stopping")
	case !known:
		level = slog.LevelError
		p = newProblem(codeInternal, "look for request "+id+" in the server's log", "the server could not do this")
	case p.Code == codeStorageFull || p.Code == codeInternal:
		level = slog.LevelError
	}
	d.s.log.Log(r.Context(), level, "request", keyRequest, id, "method", r.Method, "path", r.URL.Path, keyErr, err)
	if w.status != 0 {
		panic(http.ErrAbortHandler) // half an answer is out: a cut connection is the only honest end
	}
	q := *p
	q.RequestID = id
	h := w.Header()
	switch q.Code {
	case codeUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="gpuctl"`)
	case codeRateLimited:
		h.Set("Retry-After", "60")
	case codeUnavailable, codeStorageFull, codeNodeUnreachable:
		h.Set("Retry-After", "3")
	}
	if werr := writeBody(w, q.Status, problemType, &q); werr != nil {
		d.s.log.Debug("answer", keyRequest, id, keyErr, werr)
	}
}

// caught turns a panic of a handler into an internal error.
func (d *doors) caught(w *answerWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	d.s.log.Error("panic", keyRequest, exchangeOf(r).requestID, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	d.fail(w, r, newProblem(codeInternal, "look for request "+exchangeOf(r).requestID+" in the server's log", "the server could not do this"))
}

// noRoute tells "no such path" from "not with this method": the mux has its own handler for each.
func noRoute(h http.Handler, w http.ResponseWriter, r *http.Request) error {
	seen := &answerWriter{ResponseWriter: headerOnly{http.Header{}}}
	h.ServeHTTP(seen, r)
	if allow := seen.Header().Get("Allow"); seen.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allow)
		return newProblem(codeMethod, "use "+allow, "%s does not take %s", r.URL.Path, r.Method)
	}
	hint := "the routes are in docs/rest.md; each begins with one of " + strings.Join(routeNouns(), ", ")
	if !strings.HasPrefix(r.URL.Path, "/api/v1/") {
		hint = "the routes begin with /api/v1/"
	}
	return newProblem(codeNotFound, hint, "there is no route %s", r.URL.Path)
}

// routeNouns are the first words of the routes under /api/v1/ that are for people and programs.
func routeNouns() []string {
	var nouns []string
	for _, rt := range doorRoutes() {
		if _, path, ok := strings.Cut(rt.pattern, "/api/v1/"); ok {
			noun, _, _ := strings.Cut(path, "/")
			noun, _, _ = strings.Cut(noun, ":")
			nouns = append(nouns, noun)
		}
	}
	slices.Sort(nouns)
	return slices.Compact(nouns)
}

// headerOnly takes an answer that nobody shall see.
type headerOnly struct{ h http.Header }

func (o headerOnly) Header() http.Header         { return o.h }
func (o headerOnly) Write(b []byte) (int, error) { return len(b), nil }
func (o headerOnly) WriteHeader(int)             {}

// answerWriter knows whether the answer has begun, and with which status.
type answerWriter struct {
	http.ResponseWriter
	status int
}

func (w *answerWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
