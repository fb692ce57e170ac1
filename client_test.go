package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

func clientOf(t *testing.T, f *fakeAPI) *client {
	t.Helper()
	c, err := newClient(f.URL, "gpc_read_1_x")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestClientAnswers: whatever answers, the caller gets a value or a problem with the right code.
func TestClientAnswers(t *testing.T) {
	write := func(contentType, body string, status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		code   string // "" = no error
		detail string
		passes bool
	}{
		{"ours", write("application/json", `{"id":12,"new_field":1}`, 200), "", "", false},
		{"a problem", write(problemType, `{"code":"wrong_state","status":409,"title":"t","detail":"d","hint":"h","request_id":"r"}`, 409), codeWrongState, "d", false},
		{"a problem without a detail", write(problemType, `{"code":"not_found","title":"Not found"}`, 404), codeNotFound, "Not found", false},
		{"HTML instead", write("text/html; charset=utf-8", "<html>log in</html>", 200), codeNotOurServer, "got HTML from", true},
		{"HTML error of another server", write("text/html", "<h1>404</h1>", 404), codeNotOurServer, "got HTML from", true},
		{"a proxy's 502", write("text/html", "bad gateway", 502), codeUnavailable, "502", true},
		{"a proxy's 503", write("text/plain", "no", 503), codeUnavailable, "503", true},
		{"JSON that is not ours", write("application/json", `[1,2]`, 200), codeNotOurServer, "not understood", true},
		{"broken JSON", write("application/json", `{"id":`, 200), codeNotOurServer, "not understood", true},
		{"no body", write("application/json", ``, 200), codeNotOurServer, "not understood", true},
		{"an error in JSON that is not ours", write("application/json", `{"error":"x"}`, 500), codeNotOurServer, "status 500", true},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://other.example/", http.StatusFound)
		}, codeNotOurServer, "other.example", true},
		{"cut by length", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"id":1`)
		}, codeUnreachable, "lost the connection", true},
		{"cut in chunks", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":1`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, codeUnreachable, "lost the connection", true},
		{"closed at once", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, codeUnreachable, "lost the connection", true},
	} {
		f := newFakeAPI(t)
		f.on("GET /jobs/12", c.answer)
		job, err := clientOf(t, f).job(t.Context(), "12")
		if c.code == "" {
			if err != nil || job.ID != 12 {
				t.Errorf("%s: %v, %v", c.name, job.ID, err)
			}
			continue
		}
		p, ok := asProblem(err)
		if !ok || p.Code != c.code || !strings.Contains(p.Error(), c.detail) || passing(err) != c.passes {
			t.Errorf("%s: %v (%+v)", c.name, err, p)
		}
	}
}

func TestClientKeepsProblem(t *testing.T) {
	f := newFakeAPI(t)
	f.on("GET /jobs/x", func(w http.ResponseWriter, _ *http.Request) {
		p := newProblem(codeAmbiguous, "say which", "two fit")
		p.RequestID = "req-1"
		tellProblem(w, p)
	})
	_, err := clientOf(t, f).job(t.Context(), "x")
	if p, ok := asProblem(err); !ok || p.Hint != "say which" || p.RequestID != "req-1" || p.Status != 409 {
		t.Errorf("%+v", err)
	}
}

func TestClientSendsTokenTwice(t *testing.T) {
	f := newFakeAPI(t)
	f.json("GET /jobs/a%2Fb%20c", jobView{ID: 1})
	if _, err := clientOf(t, f).job(t.Context(), "a/b c"); err != nil {
		t.Fatal(err)
	}
	h := f.requests("GET")[0].header
	if h.Get("Authorization") != "Bearer gpc_read_1_x" || h.Get(headerToken) != "gpc_read_1_x" {
		t.Errorf("%v", h)
	}
}

func TestClientRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := newClient("http://"+addr, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.status(t.Context())
	if p, ok := asProblem(err); !ok || p.Code != codeUnreachable || p.Hint != "gpuctl up" || !strings.Contains(p.Detail, "refused") {
		t.Errorf("%+v", err)
	}
}

func TestClientCancelled(t *testing.T) {
	f := newFakeAPI(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.on("GET /jobs/1", func(w http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, err := clientOf(t, f).job(ctx, "1")
	if p, ok := asProblem(err); !ok || p.Code != codeInterrupted || exitCode(err) != 130 {
		t.Errorf("%+v", err)
	}
}

func TestParseBase(t *testing.T) {
	for in, want := range map[string]string{
		"http://h:1/": "http://h:1", "https://h": "https://h", "ws://h:1": "http://h:1", "wss://h/gp/": "https://h/gp", " http://[::1]:8600 ": "http://[::1]:8600",
	} {
		if u, err := parseBase(in); err != nil || u.String() != want {
			t.Errorf("parseBase(%q) = %v, %v", in, u, err)
		}
	}
	for _, in := range []string{"", "h:1", "localhost", "ftp://h", "http://", "http://u:p@h", "http://h?x=1", "http://h#x", "http://h\x00"} {
		if u, err := parseBase(in); exitCode(err) != 2 {
			t.Errorf("parseBase(%q) = %v, %v", in, u, err)
		}
	}
}

func TestProxyExceptLoopback(t *testing.T) {
	for _, host := range []string{"127.0.0.1:80", "localhost", "[::1]:5", "127.9.9.9"} {
		r := httptest.NewRequest("GET", "http://"+host+"/", nil)
		if u, err := proxyExceptLoopback(r); u != nil || err != nil {
			t.Errorf("%s: %v, %v", host, u, err)
		}
	}
}

// rawServer answers ranges of data, as the product does; edit changes an answer before it goes.
func rawServer(t *testing.T, data []byte, edit func(n int, w http.ResponseWriter, piece []byte) []byte) *fakeAPI {
	f := newFakeAPI(t)
	n := 0
	f.on("GET /runs/12.1/log/raw", func(w http.ResponseWriter, r *http.Request) {
		var from, to int
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err != nil {
			t.Errorf("range %q: %v", r.Header.Get("Range"), err)
		}
		if from >= len(data) {
			w.Header().Set("Content-Range", "bytes */"+strconv.Itoa(len(data)))
			tellProblem(w, newProblem(codeRange, "", "outside"))
			return
		}
		to = min(to+1, len(data))
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(data)))
		piece := data[from:to]
		if n++; edit != nil {
			piece = edit(n, w, piece)
		}
		w.WriteHeader(http.StatusPartialContent)
		w.Write(piece)
	})
	return f
}

func TestLogBytes(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789\xff\x00\r\n"), 60_000) // more than three pieces
	for _, data := range [][]byte{nil, []byte("x"), big, big[:logPieceMaxBytes], big[:logPieceMaxBytes+1]} {
		f := rawServer(t, data, nil)
		var got bytes.Buffer
		if err := clientOf(t, f).logBytes(t.Context(), "12.1", &got); err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("%d bytes: got %d, %v", len(data), got.Len(), err)
		}
	}
	for name, edit := range map[string]func(int, http.ResponseWriter, []byte) []byte{
		"a piece too short": func(n int, _ http.ResponseWriter, p []byte) []byte { return p[:len(p)-n/2] },
		"another range": func(n int, w http.ResponseWriter, p []byte) []byte {
			if n == 2 {
				w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(p)-1, len(big)))
			}
			return p
		},
	} {
		f := rawServer(t, big, edit)
		var got bytes.Buffer
		err := clientOf(t, f).logBytes(t.Context(), "12.1", &got)
		if p, ok := asProblem(err); !ok || p.Code != codeNotOurServer {
			t.Errorf("%s: %v with %d bytes written", name, err, got.Len())
		}
		if !bytes.Equal(got.Bytes(), big[:got.Len()]) {
			t.Errorf("%s: wrong bytes were written", name)
		}
	}
}

// TestLogBytesWhole: a proxy that strips Range makes one answer of it.
func TestLogBytesWhole(t *testing.T) {
	f := newFakeAPI(t)
	f.on("GET /runs/r4/log/raw", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "all of it") })
	var got bytes.Buffer
	if err := clientOf(t, f).logBytes(t.Context(), "r4", &got); err != nil || got.String() != "all of it" {
		t.Errorf("%q, %v", got.String(), err)
	}
}

func TestListPages(t *testing.T) {
	f := newFakeAPI(t)
	f.on("GET /jobs", func(w http.ResponseWriter, r *http.Request) {
		limit, _ := strconv.ParseInt(r.URL.Query().Get("limit"), 10, 64)
		before, err := strconv.ParseInt(r.URL.Query().Get("before"), 10, 64)
		if err != nil {
			before = 501
		}
		l := list[jobView]{Items: []jobView{}}
		for id := before - 1; id > 0 && int64(len(l.Items)) < limit; id-- {
			l.Items = append(l.Items, jobView{ID: id})
		}
		if n := len(l.Items); n > 0 && l.Items[n-1].ID > 1 {
			l.Next = &l.Items[n-1].ID
		}
		tellJSON(w, 200, l)
	})
	for most, want := range map[int]int{0: 500, 1: 1, 200: 200, 450: 450, 1000: 500} {
		l, err := listPages[jobView](t.Context(), clientOf(t, f), "/jobs", nil, most)
		if err != nil || len(l.Items) != want || (l.Next == nil) != (want == 500) {
			t.Fatalf("most %d: %d items, %v", most, len(l.Items), err)
		}
		for i, j := range l.Items {
			if j.ID != int64(500-i) {
				t.Fatalf("most %d: item %d is %d", most, i, j.ID)
			}
		}
	}
}

// TestClientWaitEnds: a server that never answers is given up after the wait it was asked for and the slack, not before.
func TestClientWaitEnds(t *testing.T) {
	f := newFakeAPI(t)
	f.on("GET /jobs/1", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // stands for wait and slack
	defer cancel()
	_, err := clientOf(t, f).job(ctx, "1")
	if p, ok := asProblem(err); !ok || p.Code != codeUnreachable || !strings.Contains(p.Detail, "in time") {
		t.Errorf("%v", err)
	}
}
