package main

// Lines from heads, ring and seal, following them, and the file itself.

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// logFixture is a run 1.1 whose lines 1..200 are in the heads and first..last in the ring.
func logFixture(t *testing.T, first, last int64) (f *doorsFixture, runID int64) {
	f = newDoors(t)
	f.node("n1")
	f.submit("a")
	runID = f.run(1, 1, runAlive)
	f.write(func(x *tx) error {
		for n := int64(1); n <= last; n++ {
			for table, in := range map[string]bool{"log_heads": n <= logHeadLines, "log_lines": n >= first} {
				if !in {
					continue
				}
				if _, err := x.exec("INSERT INTO "+table+" (run_id, n, at_ms, text, continued) VALUES (?, ?, ?, ?, ?)", runID, n, n*10, fmt.Sprintf("line %d", n), n == 7); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return f, runID
}

// seal puts the ring away as ingest does once a run is over.
func (f *doorsFixture) seal(runID int64, lines []string) {
	f.t.Helper()
	var blob bytes.Buffer
	z, err := flate.NewWriter(&blob, flate.BestSpeed)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := z.Write([]byte(strings.Join(lines, "\n") + "\n")); err != nil {
		f.t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		f.t.Fatal(err)
	}
	f.write(func(x *tx) error {
		var first, last int64
		if _, err := x.one("SELECT min(n), max(n) FROM log_lines WHERE run_id = ?", []any{runID}, &first, &last); err != nil {
			return err
		}
		if _, err := x.exec("INSERT INTO log_seals (run_id, first_n, last_n, data) VALUES (?, ?, ?, ?)", runID, first, last, blob.Bytes()); err != nil {
			return err
		}
		_, err := x.exec("DELETE FROM log_lines WHERE run_id = ?", runID)
		return err
	})
}

// spans writes the line numbers of a page as "1-3 7".
func spans(lines []logLine) string {
	var out []string
	for i := 0; i < len(lines); {
		j := i
		for j+1 < len(lines) && lines[j+1].N == lines[j].N+1 {
			j++
		}
		s := fmt.Sprint(lines[i].N)
		if j > i {
			s += fmt.Sprintf("-%d", lines[j].N)
		}
		out = append(out, s)
		i = j + 1
	}
	return strings.Join(out, " ")
}

func TestLogPages(t *testing.T) {
	const first, last = 1001, 3000
	f, runID := logFixture(t, first, last)
	cases := []struct {
		query, want string
		next        int64
	}{
		{"", "2801-3000", 3000},
		{"?limit=3", "2998-3000", 3000},
		{"?after=0", "1-200", 200},
		{"?after=150&limit=100", "151-200 1001-1050", 1050},
		{"?after=500&limit=2", "1001-1002", 1002},
		{"?after=2999", "3000", 3000},
		{"?after=3000", "", 3000},
		{"?after=9999", "", 9999},
		{"?before=1003&limit=4", "199-200 1001-1002", 1002},
		{"?before=3&limit=10", "1-2", 2},
		{"?before=1", "", 0},
		{"?limit=2000", "1001-3000", 3000},
	}
	look := func(where string) {
		t.Helper()
		for _, c := range cases {
			var p logPage
			f.get("/api/v1/runs/1/log"+c.query, &p)
			if got := spans(p.Items); got != c.want || p.Next != c.next {
				t.Errorf("%s %s: %s next %d, want %s next %d", where, c.query, got, p.Next, c.want, c.next)
			}
			for _, l := range p.Items {
				if l.Text != fmt.Sprintf("line %d", l.N) || l.AtMS == nil || *l.AtMS != l.N*10 || l.Continued != (l.N == 7) {
					t.Fatalf("%s %s: %+v", where, c.query, l)
				}
			}
		}
	}
	look("ring")
	var lines []string
	for n := int64(first); n <= last; n++ {
		b, err := json.Marshal(logItem{Text: fmt.Sprintf("line %d", n), AtMS: n * 10})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(b))
	}
	f.seal(runID, lines)
	look("seal")
	f.sql("UPDATE runs SET state = 'ENDED', drained_ms = 5")
	var p logPage
	f.get("/api/v1/runs/1.1/log?after=0&limit=2000", &p)
	if p.Done {
		t.Error("done on a page that is full")
	}
	f.get("/api/v1/runs/1.1/log?after=3000", &p)
	if !p.Done || p.State != runEnded {
		t.Errorf("end: %+v", p)
	}
}

// Lines that were skipped within the ring leave a gap in the numbers of the seal too.
func TestLogSealGap(t *testing.T) {
	f, runID := logFixture(t, 1, 2)
	f.seal(runID, []string{`{"t":"a"}`, `{"n":50,"t":"b","m":true}`, `{"t":"c"}`})
	var p logPage
	f.get("/api/v1/runs/last/log", &p)
	if spans(p.Items) != "1 50-51" || !p.Items[1].Continued {
		t.Errorf("%+v", p.Items)
	}
	f.sql("UPDATE log_seals SET data = x'00'")
	f.check(t, apiCase{"", scopeRead, "GET", "/api/v1/runs/1/log", nil, "", 500, codeInternal, ""})
}

func TestLogShort(t *testing.T) {
	f, _ := logFixture(t, 1, 3) // everything is in both
	for query, want := range map[string]string{"": "1-3", "?after=0": "1-3", "?after=1": "2-3", "?before=3": "1-2", "?limit=2": "2-3", "?after=0&limit=2": "1-2"} {
		var p logPage
		f.get("/api/v1/runs/1/log"+query, &p)
		if spans(p.Items) != want {
			t.Errorf("%s: %s, want %s", query, spans(p.Items), want)
		}
	}
}

func TestLogFollow(t *testing.T) {
	page := func(w *httptest.ResponseRecorder) (p logPage) {
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatalf("%v in %s", err, w.Body)
		}
		return p
	}
	synctest.Test(t, func(t *testing.T) {
		f, runID := logFixture(t, 1, 3)
		answer := f.waiting(f.request(scopeRead, "GET", "/api/v1/runs/1/log?after=3&wait=25", ""))
		time.Sleep(time.Second)
		f.write(func(x *tx) error {
			x.ring(bellRun(runID))
			_, err := x.exec("INSERT INTO log_lines (run_id, n, at_ms, text, continued) VALUES (?, 4, 0, 'new', 0)", runID)
			return err
		})
		if w, took := answer(); took != time.Second || spans(page(w).Items) != "4" || page(w).Items[0].AtMS != nil { // 0 in the database is "not known"
			t.Errorf("a line: %v %s", took, w.Body)
		}
		answer = f.waiting(f.request(scopeRead, "GET", "/api/v1/runs/1/log?after=4&wait=25", ""))
		f.sql("UPDATE runs SET state = 'ENDED', drained_ms = 5")
		f.s.hub.ring(bellRun(runID))
		if w, took := answer(); took != 0 || !page(w).Done {
			t.Errorf("the end: %v %s", took, w.Body)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f, _ := logFixture(t, 1, 3)
		if w, took := f.waiting(f.request(scopeRead, "GET", "/api/v1/runs/1/log?after=3&wait=2.5", ""))(); took != 2500*time.Millisecond || page(w).Done || page(w).Next != 3 {
			t.Errorf("nothing: %v %s", took, w.Body)
		}
	})
}

// fakeFile is a file as readPiece gives it.
func fakeFile(content *string) readPiece {
	return func(off, n int64) ([]byte, int64, int64, error) {
		size := int64(len(*content))
		if off < 0 {
			off = max(0, size+off)
		}
		if n > logPieceMaxBytes {
			return nil, 0, 0, errors.New("piece is too big")
		}
		from := min(off, size)
		return []byte((*content)[from:min(size, from+n)]), from, size, nil
	}
}

func TestLogRaw(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 60_000) // almost four pieces
	empty := ""
	n := len(content)
	for _, c := range []struct {
		method, header string
		file           *string
		status         int
		want           string
		contentRange   string
	}{
		{"GET", "", &content, 200, content, ""},
		{"HEAD", "", &content, 200, "", ""},
		{"GET", "", &empty, 200, "", ""},
		{"GET", "bytes=0-9", &content, 206, content[:10], fmt.Sprintf("bytes 0-9/%d", n)},
		{"GET", "bytes=3-", &content, 206, content[3:], fmt.Sprintf("bytes 3-%d/%d", n-1, n)},
		{"GET", "bytes=-5", &content, 206, content[n-5:], fmt.Sprintf("bytes %d-%d/%d", n-5, n-1, n)},
		{"GET", "bytes=-600000", &content, 206, content[n-600000:], fmt.Sprintf("bytes %d-%d/%d", n-600000, n-1, n)},
		{"GET", "bytes=-99999999", &content, 206, content, fmt.Sprintf("bytes 0-%d/%d", n-1, n)},
		{"GET", "bytes=959990-9999999", &content, 206, content[959990:], fmt.Sprintf("bytes 959990-%d/%d", n-1, n)},
		{"GET", "bytes=100000-800000", &content, 206, content[100000:800001], fmt.Sprintf("bytes 100000-800000/%d", n)},
		{"GET", "bytes=960000-", &content, 416, "", fmt.Sprintf("bytes */%d", n)},
		{"GET", "bytes=-0", &content, 416, "", fmt.Sprintf("bytes */%d", n)},
		{"GET", "bytes=0-", &empty, 416, "", "bytes */0"},
		{"GET", "bytes=0-1,5-6", &content, 200, content, ""},
		{"GET", "bytes=9-1", &content, 200, content, ""},
		{"GET", "lines=1-2", &content, 200, content, ""},
		{"GET", "bytes=-", &content, 200, content, ""},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		if c.header != "" {
			r.Header.Set("Range", c.header)
		}
		w := httptest.NewRecorder()
		err := answerRaw(w, r, "1.1", fakeFile(c.file))
		if p, ok := asProblem(err); ok {
			w.Code = p.Status
		} else if err != nil {
			t.Errorf("%s: %v", c.header, err)
		}
		if w.Code != c.status || w.Body.String() != c.want || w.Header().Get("Content-Range") != c.contentRange {
			t.Errorf("%s %q: status %d, %d bytes, Content-Range %q", c.method, c.header, w.Code, w.Body.Len(), w.Header().Get("Content-Range"))
		}
		if w.Code < 300 && (w.Header().Get("Accept-Ranges") != "bytes" || !strings.HasPrefix(w.Header().Get("Content-Disposition"), "attachment")) {
			t.Errorf("headers %v", w.Header())
		}
		if w.Code < 300 && c.method == "GET" && w.Header().Get("Content-Length") != fmt.Sprint(len(c.want)) {
			t.Errorf("%q: Content-Length %s", c.header, w.Header().Get("Content-Length"))
		}
	}
}

// A file that grows is answered up to the size it had first; one that shrinks cuts the answer, and so does a node that goes away.
func TestLogRawChanges(t *testing.T) {
	content := strings.Repeat("x", 3*logPieceMaxBytes)
	for what, change := range map[string]func() error{
		"grows":   func() error { content += "y"; return nil },
		"shrinks": func() error { content = content[:logPieceMaxBytes+5]; return nil },
		"gone":    func() error { return newProblem(codeNodeUnreachable, "wait", "node n1 does not answer") },
	} {
		content = strings.Repeat("x", 3*logPieceMaxBytes)
		reads := 0
		read := func(off, n int64) ([]byte, int64, int64, error) {
			if reads++; reads == 3 {
				if err := change(); err != nil {
					return nil, 0, 0, err
				}
			}
			return fakeFile(&content)(off, n)
		}
		w := httptest.NewRecorder()
		err := answerRaw(w, httptest.NewRequest("GET", "/", nil), "1.1", read)
		if whole := w.Body.Len() == 3*logPieceMaxBytes; whole != (what == "grows") || (err == nil) != whole || strings.Contains(w.Body.String(), "y") {
			t.Errorf("%s: %d bytes, %v", what, w.Body.Len(), err)
		}
	}
}

// Over a real connection a cut answer is seen as one, never as a short file: with a length, and without.
func TestLogRawCut(t *testing.T) {
	f := newDoors(t)
	d := f.h.(*doors)
	content := strings.Repeat("x", 2*logPieceMaxBytes)
	cuts := map[string]func(s *server, w http.ResponseWriter, r *http.Request) error{
		"/length": func(_ *server, w http.ResponseWriter, r *http.Request) error {
			reads := 0
			return answerRaw(w, r, "1.1", func(off, n int64) ([]byte, int64, int64, error) {
				if reads++; reads == 2 {
					return nil, 0, 0, errors.New("the agent went away")
				}
				return fakeFile(&content)(off, n)
			})
		},
		"/chunks": func(_ *server, w http.ResponseWriter, r *http.Request) error {
			if _, err := w.Write([]byte(content)); err != nil {
				return err
			}
			return errors.New("the agent went away")
		},
	}
	for path, handle := range cuts {
		rt := route{scope: scopePublic, handle: handle}
		d.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { d.answer(rt, w, r) })
	}
	srv := httptest.NewServer(f.h)
	defer srv.Close()
	for path := range cuts {
		res, err := srv.Client().Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if _, err := got.ReadFrom(res.Body); err == nil {
			t.Errorf("%s: %d bytes without an error", path, got.Len())
		}
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestLogRawNoNode(t *testing.T) {
	f := newDoors(t)
	f.submit("a")
	f.run(1, 1, runEnded) // no node is known: node_id NULL
	f.check(t, apiCase{"", scopeRead, "GET", "/api/v1/runs/1/log/raw", nil, "", 404, codeNotFound, "no node"})
}
