package main

// The agent's way to its server: HTTP/1.1 calls with a deadline each. It knows an answer of ours from a proxy's page and turns refusals
// back into problems. It decides nothing and repeats nothing, but for a request that fell on a connection the other side had closed.

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	doorDialTimeout = 10 * time.Second
	doorTimeout     = 30 * time.Second // of a request that does not wait; a hello of many runs over a slow line
	batchTimeout    = 60 * time.Second // 256 KiB at 5 KiB/s
	pollSlack       = 10 * time.Second // beyond the wait that was asked for
	doorAnswerBytes = 16 << 20
	doorPauseMost   = 10 * time.Minute
	// doorIdle is longer than agentHelloEverySec, so that there is a warm connection for the next claim.
	doorIdle = 3 * time.Minute
)

// agentDoor is the client side of /api/v1/agent. Poll and batch have connections of their own: neither waits behind the other.
type agentDoor struct {
	base          *url.URL
	token         atomic.Pointer[string]
	talk          *http.Client // hello, claim, command answers
	pollClient    *http.Client
	batchClient   *http.Client
	userAgent     string
	closeIdleFunc []func()
}

// newAgentDoor takes the server's base URL (http, https; ws and wss of old files are read as http and https).
func newAgentDoor(base, token string) (*agentDoor, error) {
	u, err := url.Parse(strings.TrimRight(base, "/"))
	if err != nil {
		return nil, newProblem(codeUsage, "server_url: http://HOST:8600", "server_url: %v", err)
	}
	switch u.Scheme {
	case "ws":
		u.Scheme = "http"
	case "wss":
		u.Scheme = "https"
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, newProblem(codeUsage, "server_url: http://HOST:8600", "server_url %q is no http address", base)
	}
	d := &agentDoor{base: u, userAgent: "gpuctl-agent/" + buildVersion()}
	d.token.Store(&token)
	for _, c := range []**http.Client{&d.talk, &d.pollClient, &d.batchClient} {
		t := &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: doorDialTimeout, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout: doorDialTimeout,
			TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1 only
			DisableCompression:  true,
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     doorIdle,
		}
		*c = &http.Client{
			Transport:     t,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		d.closeIdleFunc = append(d.closeIdleFunc, t.CloseIdleConnections)
	}
	return d, nil
}

// renew takes another token from now on, and reports whether it is another.
func (d *agentDoor) renew(token string) bool {
	if token == "" || token == *d.token.Load() {
		return false
	}
	d.token.Store(&token)
	return true
}

func (d *agentDoor) close() {
	for _, f := range d.closeIdleFunc {
		f()
	}
}

func (d *agentDoor) hello(ctx context.Context, q helloRequest) (a helloAnswer, err error) {
	return a, d.post(ctx, "hello", q, &a)
}

func (d *agentDoor) claim(ctx context.Context, q claimRequest) (a claimAnswer, err error) {
	return a, d.post(ctx, "claim", q, &a)
}

// answer tells what came of a command. Any 2xx will do: the command's row says the rest.
func (d *agentDoor) answer(ctx context.Context, id int64, q commandAnswer) error {
	return d.post(ctx, "commands/"+strconv.FormatInt(id, 10), q, nil)
}

func (d *agentDoor) post(ctx context.Context, path string, q, out any) error {
	body, err := json.Marshal(q)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return d.call(ctx, d.talk, doorTimeout, http.MethodPost, path, "application/json", body, out)
}

// batch is a batchSender: one ndjson body, one answer.
func (d *agentDoor) batch(ctx context.Context, body []byte) (a batchAnswer, err error) {
	return a, d.call(ctx, d.batchClient, batchTimeout, http.MethodPost, "batch", ndjsonType, body, &a)
}

// poll waits at the server for a command that is not in have.
func (d *agentDoor) poll(ctx context.Context, wait int, have []int64) (a pollAnswer, err error) {
	q := url.Values{"wait": {strconv.Itoa(wait)}}
	if len(have) > 0 {
		ids := make([]string, len(have))
		for i, id := range have {
			ids[i] = strconv.FormatInt(id, 10)
		}
		q.Set("have", strings.Join(ids, ","))
	}
	limit := time.Duration(wait)*time.Second + pollSlack
	return a, d.call(ctx, d.pollClient, limit, http.MethodGet, "poll?"+q.Encode(), "", nil, &a)
}

// call sends one request. Every refusal comes back as a problem in the chain; wantedPause finds how long the server wants to be left alone.
func (d *agentDoor) call(ctx context.Context, c *http.Client, limit time.Duration, method, path, ctype string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.base.String()+"/api/v1/agent/"+path, bytes.NewReader(body)) // sets Content-Length and GetBody
	if err != nil {
		return fmt.Errorf("make request %s: %w", path, err)
	}
	if ctype != "" {
		req.Header.Set("Content-Type", ctype)
	}
	token := *d.token.Load()
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set(headerToken, token)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", d.userAgent)
	// Every call may be sent twice without harm. The empty key is not sent; it lets the transport repeat a request at once that fell on a
	// kept-alive connection which the other side had closed.
	req.Header["X-Idempotency-Key"] = []string{}
	res, err := c.Do(req)
	if err != nil {
		return d.noAnswer(ctx, err)
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, doorAnswerBytes))
	if cerr := res.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return d.noAnswer(ctx, err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return &retryAfter{after: parseRetryAfter(res.Header.Get("Retry-After"), time.Now()), err: d.refusal(res, b)}
	}
	if out == nil {
		return nil
	}
	var ours struct {
		Gpuctl int `json:"gpuctl"`
	}
	if json.Unmarshal(b, &ours) != nil || ours.Gpuctl != 1 {
		return d.notOurs(res)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return newProblem(codeNotOurServer, "update the agent or the server", "%s: cannot read the answer to %s: %v", d.base, path, err)
	}
	return nil
}

// noAnswer is for a request that got none, or half of one.
func (d *agentDoor) noAnswer(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return newProblem(codeUnreachable, "server_url: http://"+d.base.Host, "%s speaks plain HTTP, not HTTPS", d.base.Host)
	}
	return newProblem(codeUnreachable, "is the server running, and server_url right?", "%s does not answer: %v", d.base, err)
}

// refusal decodes a problem body; anything else comes from somebody who is not our server.
func (d *agentDoor) refusal(res *http.Response, body []byte) *problem {
	if strings.HasPrefix(res.Header.Get("Content-Type"), problemType) {
		var p problem
		if json.Unmarshal(body, &p) == nil && p.Code != "" {
			p.Status = res.StatusCode
			return &p
		}
	}
	return d.notOurs(res)
}

func (d *agentDoor) notOurs(res *http.Response) *problem {
	got := strings.TrimSpace(strings.Split(res.Header.Get("Content-Type"), ";")[0])
	switch {
	case res.StatusCode >= 300 && res.StatusCode < 400:
		got = "a redirect to " + res.Header.Get("Location")
	case got == "text/html":
		got = "HTML"
	case got == "":
		got = "something without a type"
	}
	p := newProblem(codeNotOurServer, "check server_url and the proxy between", "not our server: got %s from %s (HTTP %d)", got, d.base, res.StatusCode)
	p.Status = res.StatusCode
	return p
}

// wantedPause is what Retry-After of the answer behind err said, 0 when nothing.
func wantedPause(err error) time.Duration {
	if r, ok := errors.AsType[*retryAfter](err); ok {
		return r.after
	}
	return 0
}

// parseRetryAfter reads seconds or an HTTP date; at most doorPauseMost.
func parseRetryAfter(text string, now time.Time) time.Duration {
	if s, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && s > 0 {
		return min(time.Duration(min(s, int(doorPauseMost/time.Second)))*time.Second, doorPauseMost)
	}
	if t, err := http.ParseTime(text); err == nil {
		return min(max(t.Sub(now), 0), doorPauseMost)
	}
	return 0
}
