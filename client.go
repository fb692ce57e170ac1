package main

// The REST client: one request, its time limit, its answer or its problem. Whatever goes wrong comes back as a problem, the server's own
// one unchanged. The typed calls are in client_api.go. It prints nothing and decides nothing.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	clientSlack     = 10 * time.Second // beyond the wait that a request asks for
	clientReadSlack = 40 * time.Second // a log range goes through to the agent, which has 30 s
	clientMaxAnswer = 64 << 20         // no list or page of ours comes near
)

// client talks to one server. Base may change when the server comes back at another address.
type client struct {
	base   atomic.Pointer[url.URL]
	token  string
	http   *http.Client
	rebase func() string // where the server is now, "" = unknown; asked after a lost connection; may be nil
}

// newClient takes the base URL of a server (http, https; ws and wss of old files are read as these).
func newClient(base, token string) (*client, error) {
	u, err := parseBase(base)
	if err != nil {
		return nil, err
	}
	tr := http.DefaultTransport.(*http.Transport).Clone()
	tr.Proxy = proxyExceptLoopback
	tr.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	c := &client{token: token, http: &http.Client{
		Transport:     tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.base.Store(u)
	return c, nil
}

// parseBase checks the URL of a server.
func parseBase(base string) (*url.URL, error) {
	hint := "write it like http://127.0.0.1:8600"
	u, err := url.Parse(strings.TrimRight(strings.TrimSpace(base), "/"))
	if err != nil {
		return nil, newProblem(codeUsage, hint, "%q is not the address of a server", base)
	}
	switch u.Scheme {
	case "ws":
		u.Scheme = "http"
	case "wss":
		u.Scheme = "https"
	case "http", "https":
	default:
		return nil, newProblem(codeUsage, hint, "%q is not the address of a server", base)
	}
	if u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, newProblem(codeUsage, hint, "%q is not the address of a server", base)
	}
	return u, nil
}

// proxyExceptLoopback takes the proxy from the environment; what listens on this machine is reached directly, whatever NO_PROXY says.
func proxyExceptLoopback(r *http.Request) (*url.URL, error) {
	if isLoopbackHost(r.URL.Hostname()) {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

// isLoopbackHost reports whether a host name of a URL is this machine by loopback.
func isLoopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// apiCall is one request. Query may be nil; in is sent as JSON when not nil; out takes the JSON answer when not nil.
type apiCall struct {
	method string
	path   string // below /api/v1, or absolute with a leading //: "//readyz"
	query  url.Values
	in     any
	out    any
	wait   time.Duration // how long the server was asked to wait
	header map[string]string
}

// call sends a request and decodes its answer.
func (c *client) call(ctx context.Context, a apiCall) error {
	ctx, cancel := context.WithTimeout(ctx, a.wait+clientSlack)
	defer cancel()
	resp, err := c.send(ctx, a)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, clientMaxAnswer+1))
	if err != nil {
		return c.lost(ctx, fmt.Errorf("read the answer: %w", err))
	}
	if len(body) > clientMaxAnswer {
		return newProblem(codeNotOurServer, "", "the answer of %s is larger than %s", c.base.Load(), formatSize(clientMaxAnswer))
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return c.refusal(resp, body)
	}
	if a.out == nil {
		return nil
	}
	if !isJSON(resp.Header) {
		return c.foreign(resp)
	}
	if err := json.Unmarshal(body, a.out); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok && resp.ContentLength < 0 {
			return c.lost(ctx, fmt.Errorf("the answer broke off: %w", err)) // a proxy in between may hide the cut
		}
		p := c.foreign(resp)
		p.Detail = fmt.Sprintf("the answer of %s is not understood: %v", c.base.Load(), err)
		return p
	}
	return nil
}

// send makes the request and gives the response as it is; a redirect or a failed connection is a problem.
func (c *client) send(ctx context.Context, a apiCall) (*http.Response, error) {
	var body io.Reader
	if a.in != nil {
		b, err := json.Marshal(a.in)
		if err != nil {
			return nil, newProblem(codeUsage, "", "this cannot be sent as JSON: %v", err)
		}
		body = bytes.NewReader(b)
	}
	path, ok := strings.CutPrefix(a.path, "/")
	if !ok || !strings.HasPrefix(path, "/") {
		path = "/api/v1" + a.path
	}
	target := c.base.Load().String() + path
	if len(a.query) > 0 {
		target += "?" + a.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, a.method, target, body)
	if err != nil {
		return nil, newProblem(codeUsage, "", "%v", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "gpuctl/"+release)
	if c.token != "" { // twice: a strict proxy blanks Authorization
		req.Header.Set("Authorization", "Bearer "+c.token)
		req.Header.Set(headerToken, c.token)
	}
	for k, v := range a.header {
		req.Header.Set(k, v)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.lost(ctx, err)
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		defer resp.Body.Close()
		return nil, newProblem(codeNotOurServer, "give the final address with --server",
			"%s redirects to %q; redirects are not followed, the token would go with them", c.base.Load(), resp.Header.Get("Location"))
	}
	return resp, nil
}

// lost turns a failed exchange into a problem: interrupted, timed out, or unreachable.
func (c *client) lost(ctx context.Context, err error) error {
	if p, ok := asProblem(context.Cause(ctx)); ok {
		return p
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return newProblem(codeInterrupted, "", "interrupted")
	}
	base := c.base.Load()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return newProblem(codeUnreachable, "gpuctl status", "%s did not answer in time", base)
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return newProblem(codeUnreachable, "write http://"+base.Host, "%s speaks plain HTTP, not HTTPS", base.Host)
	}
	hint := "see that the server runs and that --server is its address"
	if errors.Is(err, syscall.ECONNREFUSED) {
		if isLoopbackHost(base.Hostname()) {
			return newProblem(codeUnreachable, "gpuctl up", "no server at %s: connection refused", base)
		}
		return newProblem(codeUnreachable, hint, "no server at %s: connection refused", base)
	}
	return newProblem(codeUnreachable, hint, "lost the connection to %s: %v", base, err)
}

// refusal decodes an error answer: the server's problem, or what a proxy in between said.
func (c *client) refusal(resp *http.Response, body []byte) error {
	var p problem
	if isJSON(resp.Header) && json.Unmarshal(body, &p) == nil && p.Code != "" {
		p.Status = resp.StatusCode
		if p.Hint == "" && p.Code == codeUnauthorized {
			p.Hint = "give a token: export GPUCTL_TOKEN=..., --token-file FILE, or token_file in cli.yaml"
		}
		return &p
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return newProblem(codeUnavailable, "gpuctl status", "something in front of %s answered %s: the server behind it does not", c.base.Load(), resp.Status)
	}
	return c.foreign(resp)
}

// foreign says that whatever answered is not a gpuctl server.
func (c *client) foreign(resp *http.Response) *problem {
	what := resp.Header.Get("Content-Type")
	if t, _, err := mime.ParseMediaType(what); err == nil {
		what = t
	}
	switch what {
	case "text/html":
		what = "HTML"
	case "":
		what = "an answer without a content type"
	}
	return newProblem(codeNotOurServer, "check --server; behind a proxy or login page: set NO_PROXY for its host",
		"got %s from %s (status %d), not an answer of gpuctl", what, c.base.Load(), resp.StatusCode)
}

func isJSON(h http.Header) bool {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (t == "application/json" || t == problemType)
}

// moved looks where the server is now and reports whether that is another address than before.
func (c *client) moved() bool {
	if c.rebase == nil {
		return false
	}
	u, err := parseBase(c.rebase())
	if err != nil || u.String() == c.base.Load().String() {
		return false
	}
	c.base.Store(u)
	return true
}

// passing reports whether an error is one that a server's restart or a bad network makes, so that the same call may work later.
func passing(err error) bool {
	p, ok := asProblem(err)
	if !ok {
		return false
	}
	switch p.Code {
	case codeUnreachable, codeUnavailable, codeNotOurServer, codeRateLimited, codeNodeUnreachable, codeTimeout, codeStorageFull, codeInternal:
		return true
	}
	return false
}
