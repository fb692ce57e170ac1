package main

// The typed calls of the REST contract, one line each where possible. References to jobs and runs (12, 12.2, r40, names, prefixes, last)
// go to the server as they are: it alone resolves them.

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// seg is one path segment, escaped.
func seg(s string) string { return url.PathEscape(s) }

func getOne[T any](ctx context.Context, c *client, path string, query url.Values) (T, error) {
	var v T
	err := c.call(ctx, apiCall{method: http.MethodGet, path: path, query: query, out: &v})
	return v, err
}

func postOne[T any](ctx context.Context, c *client, path string, in any) (T, error) {
	var v T
	err := c.call(ctx, apiCall{method: http.MethodPost, path: path, in: in, out: &v})
	return v, err
}

// submitJob sends a job; key makes sending it twice the same as once.
func (c *client) submitJob(ctx context.Context, req jobRequest, key string) (jobView, error) {
	var v jobView
	err := c.call(ctx, apiCall{method: http.MethodPost, path: "/jobs", in: req, out: &v, header: map[string]string{headerIdempotency: key}})
	return v, err
}

func (c *client) job(ctx context.Context, ref string) (jobView, error) {
	return getOne[jobView](ctx, c, "/jobs/"+seg(ref), nil)
}

// jobUntil is job, answered when the job is running, done or drained (until), at the latest after wait.
func (c *client) jobUntil(ctx context.Context, ref, until string, wait time.Duration) (jobView, error) {
	var v jobView
	q := url.Values{"until": {until}, "wait": {waitSeconds(wait)}}
	err := c.call(ctx, apiCall{method: http.MethodGet, path: "/jobs/" + seg(ref), query: q, out: &v, wait: wait})
	return v, err
}

func (c *client) jobWhy(ctx context.Context, ref string) (whyView, error) {
	return getOne[whyView](ctx, c, "/jobs/"+seg(ref)+"/why", nil)
}

func (c *client) cancelJob(ctx context.Context, ref string, req cancelRequest) (jobView, error) {
	return postOne[jobView](ctx, c, "/jobs/"+seg(ref)+"/cancel", req)
}

func (c *client) signalJob(ctx context.Context, ref, signal string) (jobView, error) {
	return postOne[jobView](ctx, c, "/jobs/"+seg(ref)+"/signal", signalRequest{Signal: signal})
}

func (c *client) retryJob(ctx context.Context, ref string, req retryRequest) (jobView, error) {
	return postOne[jobView](ctx, c, "/jobs/"+seg(ref)+"/retry", req)
}

func (c *client) run(ctx context.Context, ref string) (runView, error) {
	return getOne[runView](ctx, c, "/runs/"+seg(ref), nil)
}

func (c *client) node(ctx context.Context, name string) (nodeView, error) {
	return getOne[nodeView](ctx, c, "/nodes/"+seg(name), nil)
}

func (c *client) nodes(ctx context.Context) (list[nodeView], error) {
	return getOne[list[nodeView]](ctx, c, "/nodes", nil)
}

// joinCode asks for a code that lets one machine in; address is the way to the server, "" = as it says itself.
func (c *client) joinCode(ctx context.Context, address string) (oneTimeCode, error) {
	return postOne[oneTimeCode](ctx, c, "/nodes:join-code", joinCodeRequest{URL: address})
}

func (c *client) join(ctx context.Context, code, name string) (joinAnswer, error) {
	return postOne[joinAnswer](ctx, c, "/agent/join", joinRequest{Code: code, Name: name})
}

func (c *client) status(ctx context.Context) (statusView, error) {
	return getOne[statusView](ctx, c, "/status", nil)
}

func (c *client) version(ctx context.Context) (versionView, error) {
	return getOne[versionView](ctx, c, "/version", nil)
}

func (c *client) createToken(ctx context.Context, req tokenRequest) (tokenView, error) {
	return postOne[tokenView](ctx, c, "/tokens", req)
}

func (c *client) revokeToken(ctx context.Context, id int64) error {
	return c.call(ctx, apiCall{method: http.MethodDelete, path: "/tokens/" + strconv.FormatInt(id, 10)})
}

// loginLink makes a link to the page that logs in once. It leads to the address that this client itself uses: that one works from here.
func (c *client) loginLink(ctx context.Context) (oneTimeCode, error) {
	v, err := postOne[oneTimeCode](ctx, c, "/login-links", struct{}{})
	if err != nil {
		return v, err
	}
	own := c.base.Load().String() + loginPath(v.Code)
	v.URLs = append([]string{own}, slices.DeleteFunc(v.URLs, func(u string) bool { return u == own })...)
	return v, nil
}

// ready asks /readyz.
func (c *client) ready(ctx context.Context) error {
	return c.call(ctx, apiCall{method: http.MethodGet, path: "//readyz"})
}

// listPages gets a list, newest first, page by page, until it has at least most items (0 = all of it). Next of the answer is where the
// rest begins.
func listPages[T any](ctx context.Context, c *client, path string, query url.Values, most int) (list[T], error) {
	const page = 200
	all := list[T]{Items: []T{}}
	q := url.Values{}
	for k, v := range query {
		q[k] = v
	}
	for {
		n := page
		if most > 0 {
			n = min(page, most-len(all.Items))
		}
		q.Set("limit", strconv.Itoa(n))
		part, err := getOne[list[T]](ctx, c, path, q)
		if err != nil {
			return all, err
		}
		all.Items, all.Next = append(all.Items, part.Items...), part.Next
		if part.Next == nil || len(part.Items) == 0 || most > 0 && len(all.Items) >= most {
			return all, nil
		}
		q.Set("before", strconv.FormatInt(*part.Next, 10))
	}
}

// eventsAfter waits up to wait for events with an id above after, oldest first.
func (c *client) eventsAfter(ctx context.Context, after int64, wait time.Duration, query url.Values) (list[eventView], error) {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}, "wait": {waitSeconds(wait)}}
	for k, v := range query {
		q[k] = v
	}
	var v list[eventView]
	err := c.call(ctx, apiCall{method: http.MethodGet, path: "/events", query: q, out: &v, wait: wait})
	return v, err
}

// lastEvent is the id of the newest event, 0 when there is none.
func (c *client) lastEvent(ctx context.Context) (int64, error) {
	l, err := getOne[list[eventView]](ctx, c, "/events", url.Values{"limit": {"1"}})
	if err != nil || len(l.Items) == 0 {
		return 0, err
	}
	return l.Items[0].ID, nil
}

// logAfter gets lines of a run above number after, oldest first, waiting up to wait for one.
func (c *client) logAfter(ctx context.Context, run string, after int64, limit int, wait time.Duration) (logPage, error) {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {strconv.Itoa(limit)}}
	if wait > 0 {
		q.Set("wait", waitSeconds(wait))
	}
	var v logPage
	err := c.call(ctx, apiCall{method: http.MethodGet, path: "/runs/" + seg(run) + "/log", query: q, out: &v, wait: wait})
	return v, err
}

func waitSeconds(d time.Duration) string {
	return strconv.Itoa(min(int(d.Seconds()), pollWaitMaxSeconds))
}

// logBytes copies log.txt of a run from its first byte to the size that it has at the first answer, piece by piece through the agent.
// Every piece must continue the one before: a server that answers another range is a problem, not a hole in the copy.
func (c *client) logBytes(ctx context.Context, run string, w io.Writer) error {
	end := int64(-1)
	for off := int64(0); end < 0 || off < end; {
		n, size, err := c.logPiece(ctx, run, off, w)
		if err != nil {
			return err
		}
		if end < 0 {
			end = size
		}
		if n == 0 && off < end {
			return newProblem(codeUnavailable, "run it again", "the log of %s became shorter while it was read: %d of %d bytes", run, off, end)
		}
		off += n
	}
	return nil
}

// logPiece copies one piece that begins at off; size is how long the file is now.
func (c *client) logPiece(ctx context.Context, run string, off int64, w io.Writer) (n, size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, clientReadSlack)
	defer cancel()
	resp, err := c.send(ctx, apiCall{
		method: http.MethodGet, path: "/runs/" + seg(run) + "/log/raw",
		header: map[string]string{"Range": fmt.Sprintf("bytes=%d-%d", off, off+logPieceMaxBytes-1), "Accept": "*/*"},
	})
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	piece, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, 0, c.lost(ctx, fmt.Errorf("read the log: %w", err))
	}
	switch {
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && strings.HasPrefix(resp.Header.Get("Content-Range"), "bytes */"):
		size, err = strconv.ParseInt(strings.TrimPrefix(resp.Header.Get("Content-Range"), "bytes */"), 10, 64)
		if err != nil || off < size {
			return 0, 0, c.refusal(resp, piece)
		}
		return 0, size, nil // nothing at or behind off: an empty file, or its end
	case resp.StatusCode == http.StatusOK && off == 0: // the whole file in one piece
		size = int64(len(piece))
	case resp.StatusCode == http.StatusPartialContent:
		var from, to int64
		if _, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &from, &to, &size); err != nil || from != off || to-from+1 != int64(len(piece)) {
			return 0, 0, newProblem(codeNotOurServer, "", "asked for bytes from %d, got %q with %d bytes", off, resp.Header.Get("Content-Range"), len(piece))
		}
	default:
		return 0, 0, c.refusal(resp, piece)
	}
	if _, err := w.Write(piece); err != nil {
		return 0, 0, fmt.Errorf("write the log: %w", err)
	}
	return int64(len(piece)), size, nil
}
