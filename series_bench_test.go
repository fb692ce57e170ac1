package main

// What the series store costs: points a second through HTTP against plain inserts of the same rows, reading curves, bytes a point in the
// file. The limits are held by tests/bench_series_test.go, which runs these at full size.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// cpuTime is what this process has used, user and system.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// httpPoints posts n points of one series, 1,000 a batch, over loopback and gives points a second.
func httpPoints(b *testing.B, n int, pack bool) float64 {
	w, a, _, src := pointWorld(b)
	srv := httptest.NewServer(newHandler(w.s))
	defer srv.Close()
	all := noisyLoss(n, 1)
	var bodies [][]byte
	for from := 0; from < n; from += 1000 {
		c := all.cut(from, min(from+1000, n))
		e := packedOf("", "loss", c)
		if !pack {
			e = pointColumns{Name: "loss", Steps: c.steps, AtMS: c.atMS}
			for _, v := range c.values {
				e.Values = append(e.Values, jsonFloat(v))
			}
		}
		l := src.line([]pointColumns{e})
		src.cur = wireCursor{Off: l.To, Print: l.Print}
		text, err := json.Marshal(l)
		w.must(err)
		bodies = append(bodies, append(text, '\n'))
	}
	began := time.Now()
	for _, body := range bodies {
		r, err := http.NewRequest("POST", srv.URL+"/api/v1/agent/batch", bytes.NewReader(body))
		w.must(err)
		r.Header.Set(headerToken, a.token)
		r.Header.Set("Content-Type", ndjsonType)
		answer, err := http.DefaultClient.Do(r)
		w.must(err)
		text, err := io.ReadAll(answer.Body)
		w.must(err)
		w.must(answer.Body.Close())
		var ack batchAnswer
		w.must(json.Unmarshal(text, &ack))
		if answer.StatusCode != http.StatusOK || len(ack.Refused) > 0 {
			b.Fatalf("%s", text)
		}
	}
	rate := float64(n) / time.Since(began).Seconds()
	w.want(fmt.Sprint(n), "SELECT count FROM series")
	return rate
}

// nativePoints inserts the same rows with a prepared statement, 1,000 a transaction, on a connection like the store's.
func nativePoints(b *testing.B, n int) float64 {
	ctx := context.Background()
	st, err := openStore(ctx, filepath.Join(b.TempDir(), "native.db"), newHub())
	if err != nil {
		b.Fatal(err)
	}
	defer st.close()
	c := st.writer
	for _, q := range []string{
		"INSERT INTO projects (name, created_ms) VALUES ('p', 0)",
		"INSERT INTO runs (uid, source, name, state, project_id) SELECT 'u', 'sdk', 'r', 'ALIVE', min(id) FROM projects",
		"INSERT INTO series (run_id, source, name) SELECT id, 'tb', 'loss' FROM runs",
	} {
		if _, err := c.exec(q); err != nil {
			b.Fatal(err)
		}
	}
	insert, _, err := c.db.Prepare("INSERT INTO points (series_id, seq, step, at_ms, value) VALUES (1,?,?,?,?)")
	if err != nil {
		b.Fatal(err)
	}
	defer insert.Close()
	all := noisyLoss(n, 1)
	began := time.Now()
	for from := 0; from < n; from += 1000 {
		if err := c.db.Exec("BEGIN IMMEDIATE"); err != nil {
			b.Fatal(err)
		}
		for i := from; i < min(from+1000, n); i++ {
			if err := insert.BindInt64(1, int64(i)); err != nil {
				b.Fatal(err)
			}
			if err := insert.BindInt64(2, all.steps[i]); err != nil {
				b.Fatal(err)
			}
			if err := insert.BindInt64(3, all.atMS[i]); err != nil {
				b.Fatal(err)
			}
			if err := insert.BindFloat(4, all.values[i]); err != nil {
				b.Fatal(err)
			}
			if err := insert.Exec(); err != nil {
				b.Fatal(err)
			}
		}
		if err := c.db.Exec("COMMIT"); err != nil {
			b.Fatal(err)
		}
	}
	return float64(n) / time.Since(began).Seconds()
}

// measured reports figures that were taken once: a loop of benchmark rounds has nothing to repeat.
func measured(b *testing.B, figures map[string]float64) {
	for b.Loop() {
	}
	b.ReportMetric(0, "ns/op") // Loop drops what was reported before it
	for unit, v := range figures {
		b.ReportMetric(v, unit)
	}
}

// BenchmarkSeriesIngest compares, in turns, the best of five.
func BenchmarkSeriesIngest(b *testing.B) {
	const n = 100_000
	var plain, packed, native []float64
	for range 5 {
		native = append(native, nativePoints(b, n))
		packed = append(packed, httpPoints(b, n, true))
		plain = append(plain, httpPoints(b, n, false))
	}
	measured(b, map[string]float64{"native-pts/s": slices.Max(native), "packed-pts/s": slices.Max(packed), "plain-pts/s": slices.Max(plain)})
}

// BenchmarkSeriesRead fills a run with 1,000,000 points of 10 noisy float32 series as a training does, ends it, and reads it: the first
// look at all curves with 1,000 buckets, the same again, and one with a range. Best of three, CPU of the whole process.
func BenchmarkSeriesRead(b *testing.B) {
	const series, perSeries, piece = 10, 100_000, 500
	w, a, tell, src := pointWorld(b)
	empty := w.usedBytes()
	var curves []seriesColumns
	for i := range series {
		curves = append(curves, noisyLoss(perSeries, int64(i)))
	}
	for from := 0; from < perSeries; from += piece {
		var entries []pointColumns
		for i, c := range curves {
			entries = append(entries, packedOf("runs", fmt.Sprint("loss/", i), c.cut(from, from+piece)))
		}
		src.send(entries...)
	}
	token, h := w.token(scopeRead), newHandler(w.s)
	read := func(query string) float64 {
		var best []float64
		for range 5 {
			if query != "again" {
				w.s.curves = seriesCache{}
			}
			before := cpuTime(b)
			w.readAll(h, token, "/api/v1/runs/1/metrics?max_points=1000")
			best = append(best, float64(cpuTime(b)-before)/1e6)
		}
		return slices.Min(best)
	}
	live := read("first")
	a.hello(tell.ended(exitInfo{}))
	a.endLog(tell.UID)
	src.end()
	sealing := cpuTime(b)
	w.sealAll()
	sealing = cpuTime(b) - sealing
	w.want("0", "SELECT count(*) FROM points")
	size := w.usedBytes() - empty
	measured(b, map[string]float64{
		"live-ms": live, "first-ms": read("first"), "again-ms": read("again"),
		"sealing-ms": float64(sealing) / 1e6, "B/point": float64(size) / series / perSeries,
	})
}

// BenchmarkRunList reads a list of 200 runs with 30 series each.
func BenchmarkRunList(b *testing.B) {
	w, _, tell, _ := pointWorld(b)
	w.write(func(x *tx) error {
		for range 199 {
			if _, err := x.exec("INSERT INTO runs (uid, source, name, state, project_id) SELECT ?, 'sdk', 'r', 'ENDED', project_id FROM runs WHERE uid = ?", newUID(), tell.UID); err != nil {
				return err
			}
		}
		_, err := x.exec(`INSERT INTO series (run_id, source, name, count, first_step, first_ms, last_step, last_ms, last_value, least_step, least_ms, least_value,
			most_step, most_ms, most_value, high_step) SELECT r.id, 'tb', 'train/metric_' || value, 100, 1, 1, 100, 100, 0.1, 1, 1, 0.1, 1, 1, 0.9, 100
			FROM runs r, generate_series(1, 30)`)
		return err
	})
	token, h := w.token(scopeRead), newHandler(w.s)
	for b.Loop() {
		w.readAll(h, token, "/api/v1/runs?limit=200")
	}
}

// usedBytes is the size of the database's pages but for free ones, which rows that were packed leave for the next.
func (w *world) usedBytes() (n int64) {
	w.t.Helper()
	var pages, free, size int64
	w.must(w.s.store.read(context.Background(), func(c *conn) error {
		_, err := c.one("SELECT (SELECT page_count FROM pragma_page_count), (SELECT freelist_count FROM pragma_freelist_count), (SELECT page_size FROM pragma_page_size)",
			nil, &pages, &free, &size)
		return err
	}))
	return (pages - free) * size
}

// readAll reads an answer that must be good, without decoding it.
func (w *world) readAll(h http.Handler, token, path string) []byte {
	w.t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	r.Host = w.s.baseURL[len("http://"):]
	r.Header.Set(headerToken, token)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	if rec.Code != http.StatusOK {
		w.t.Fatalf("%s: %d %s", path, rec.Code, rec.Body)
	}
	return rec.Body.Bytes()
}
