package main

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestAgentDoorKnowsWhoAnswered(t *testing.T) {
	var answer func(w http.ResponseWriter)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
	defer srv.Close()
	send := func(status int, ctype, body string, head ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", ctype)
			for i := 0; i+1 < len(head); i += 2 {
				w.Header().Set(head[i], head[i+1])
			}
			w.WriteHeader(status)
			if _, err := w.Write([]byte(body)); err != nil {
				t.Error(err)
			}
		}
	}
	cases := []struct {
		name   string
		answer func(http.ResponseWriter)
		code   string
		says   string
		after  time.Duration
	}{
		{"ours", send(200, "application/json", `{"gpuctl":1,"incarnation":"1-a"}`), "", "", 0},
		{"html", send(200, "text/html; charset=utf-8", `<html>login</html>`), codeNotOurServer, "got HTML from " + srv.URL, 0},
		{"json of somebody else", send(200, "application/json", `{"ok":true}`), codeNotOurServer, "got application/json", 0},
		{"empty", send(200, "application/json", ``), codeNotOurServer, "not our server", 0},
		{"redirect", send(302, "text/html", ``, "Location", "https://portal/login"), codeNotOurServer, "redirect to https://portal/login", 0},
		{"bad gateway", send(502, "text/html", `<html>nginx</html>`, "Retry-After", "7"), codeNotOurServer, "HTTP 502", 7 * time.Second},
		{"busy", send(503, problemType, `{"code":"unavailable","status":503,"title":"Unavailable","detail":"starting"}`, "Retry-After", "3"), codeUnavailable, "starting", 3 * time.Second},
		{"too large", send(413, problemType, `{"code":"too_large","title":"Too large"}`), codeTooLarge, "Too large", 0},
		{"token", send(401, problemType, `{"code":"unauthorized","title":"Not authorized"}`), codeUnauthorized, "Not authorized", 0},
		{"problem without a code", send(400, problemType, `{}`), codeNotOurServer, "HTTP 400", 0},
		{"wrong types", send(200, "application/json", `{"gpuctl":1,"incarnation":5}`), codeNotOurServer, "cannot read", 0},
	}
	d, err := newAgentDoor(srv.URL+"/", "tok")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		answer = c.answer
		_, err := d.claim(t.Context(), claimRequest{})
		if c.code == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		p, ok := asProblem(err)
		if !ok || p.Code != c.code || !strings.Contains(err.Error(), c.says) || wantedPause(err) != c.after {
			t.Errorf("%s: %v (after %v), want %s with %q after %v", c.name, err, wantedPause(err), c.code, c.says, c.after)
		}
	}
	srv.Close()
	if _, err := d.claim(t.Context(), claimRequest{}); err == nil {
		t.Error("a closed server answered")
	} else if p, ok := asProblem(err); !ok || p.Code != codeUnreachable {
		t.Errorf("closed server: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.claim(ctx, claimRequest{}); err != context.Canceled {
		t.Errorf("after the end: %v", err)
	}
}

// A kept-alive connection that the server closed just as the next request went out: repeated at once, on a new connection.
func TestAgentDoorRepeatsOnAStaleConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var conns, served atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := conns.Add(1)
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					if n == 1 && served.Load() == 1 {
						return // read, and closed without an answer
					}
					if _, err := r.Discard(int(req.ContentLength)); err != nil {
						return
					}
					served.Add(1)
					body := `{"gpuctl":1,"incarnation":"1-a"}`
					if _, err := c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 32\r\n\r\n" + body)); err != nil {
						return
					}
				}
			}()
		}
	}()
	d, err := newAgentDoor("http://"+l.Addr().String(), "tok")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, err := d.claim(t.Context(), claimRequest{UID: newUID()}); err != nil {
			t.Fatalf("claim %d: %v", i, err)
		}
	}
	if conns.Load() != 2 || served.Load() != 2 {
		t.Errorf("%d connections, %d answers", conns.Load(), served.Load())
	}
}

func TestAgentDoorAddress(t *testing.T) {
	for in, want := range map[string]string{
		"http://h:1": "http://h:1", "https://h/sub/": "https://h/sub", "ws://h:8600": "http://h:8600", "wss://h": "https://h",
		"h:8600": "", "": "", "ftp://h": "", "http://": "",
	} {
		d, err := newAgentDoor(in, "")
		if (err == nil) != (want != "") || err == nil && d.base.String() != want {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"": 0, "x": 0, "-3": 0, "0": 0, "5": 5 * time.Second, " 5 ": 5 * time.Second, "99999999999": 0, "86400": doorPauseMost,
		"Mon, 30 Nov 2026 12:00:09 GMT": 9 * time.Second, "Mon, 30 Nov 2026 11:00:00 GMT": 0,
	} {
		got := parseRetryAfter(in, now)
		if in == "99999999999" {
			want = doorPauseMost
		}
		if got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}
