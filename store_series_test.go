package main

// The series store: whatever came, in whatever pieces, is read back as it came, before and after sealing, after a restart and a late replay.

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checkStored compares what the tables hold of each series with what was sent, and with what the series says of itself.
func checkStored(t *testing.T, st *store, want map[string]*seriesColumns, bits bool) {
	t.Helper()
	if err := st.read(context.Background(), func(c *conn) error {
		rows, err := readSeries(c, "ORDER BY id")
		if err != nil {
			return err
		}
		if len(rows) != len(want) {
			t.Errorf("%d series, want %d", len(rows), len(want))
		}
		r := seriesReader{c: c}
		for i := range rows {
			s := &rows[i]
			var got seriesColumns
			if err := r.walk(s.id, 0, seriesAll(), nil, func(c seriesColumns) {
				for k, v := range c.values {
					got.add(c.steps[k], c.atMS[k], v)
				}
			}); err != nil {
				return err
			}
			sent := want[s.tag]
			same := slices.EqualFunc(got.values, sent.values, func(a, b float64) bool {
				return math.Float64bits(a) == math.Float64bits(b) || !bits && math.IsNaN(a) && math.IsNaN(b)
			})
			if !same || !slices.Equal(got.steps, sent.steps) || !slices.Equal(got.atMS, sent.atMS) {
				t.Errorf("series %s: got %d points, want %d, or others", s.tag, got.len(), sent.len())
			}
			var rowsN, chunked, gaps int64
			parts, err := seriesParts(c, s.id, 0)
			if err != nil {
				return err
			}
			next := int64(0)
			for _, p := range parts {
				if p.seq != next {
					gaps++
				}
				if next = p.seq + p.n; p.chunk == 0 {
					rowsN += p.n
				} else {
					chunked += p.n
				}
			}
			if rowsN != s.hot || rowsN+chunked != s.count || gaps > 0 || rowsN >= seriesHotMost {
				t.Errorf("series %s: %d rows, %d in chunks, %d gaps; it says %d rows of %d", s.tag, rowsN, chunked, gaps, s.hot, s.count)
			}
			if s.sealed && rowsN > 0 {
				t.Errorf("series %s is sealed and has rows", s.tag)
			}
			var sum seriesSummary
			sum.fold(*sent)
			sum.first.value = 0 // not kept
			for _, p := range []*seriesPoint{&sum.last, &sum.least, &sum.most} {
				p.value += 0 // -0 is kept as 0
			}
			if fmt.Sprint(sum) != fmt.Sprint(s.seriesSummary) {
				t.Errorf("series %s:\n got %+v\nwant %+v", s.tag, s.seriesSummary, sum)
			}
			if err := checkAtStep(c, s, sent); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// checkAtStep compares metricsAtStep with a plain loop, at the steps of some points.
func checkAtStep(c *conn, s *seriesRow, sent *seriesColumns) error {
	for i := 0; i < sent.len(); i += 1 + sent.len()/3 {
		step := sent.steps[i] + int64(i%2)
		best := -1
		for k, at := range sent.steps {
			if at <= step && (best < 0 || at >= sent.steps[best]) {
				best = k
			}
		}
		got, err := metricsAtStep(c, s.runID, step)
		if err != nil {
			return err
		}
		if v, want := float64(got[s.tag]), sent.values[best]; v != want && !(math.IsNaN(v) && math.IsNaN(want)) {
			return fmt.Errorf("series %s at step %d: got %v, want %v", s.tag, step, v, want)
		}
	}
	return nil
}

// sealAll lets the seal loop come to rest.
func (w *world) sealAll() {
	w.t.Helper()
	for range 1000 {
		wait, err := w.s.sealStep(context.Background(), w.now)
		w.must(err)
		if wait > 0 {
			return
		}
	}
	w.t.Fatal("sealing does not come to an end")
}

// TestSeriesStoreKeepsWhatCame sends random pieces, plain and packed, of series of every kind, with restarts of the server, sealing and late
// points in between.
func TestSeriesStoreKeepsWhatCame(t *testing.T) {
	for seed := range int64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewSource(seed))
			w, a, tell, src := pointWorld(t)
			want := map[string]*seriesColumns{}
			next := func(tag string, n int) seriesColumns {
				c := want[tag]
				if c == nil {
					c = &seriesColumns{}
					want[tag] = c
				}
				from := c.len()
				step, at := int64(0), int64(1_790_000_000_000)
				if from > 0 {
					step, at = c.steps[from-1], c.atMS[from-1]
				}
				for range n {
					step, at = step+1, at+r.Int63n(5)*100
					if r.Intn(400) == 0 {
						step -= r.Int63n(300)
					}
					c.add(step, at, randomValue(r, tag))
				}
				return c.cut(from, from+n)
			}
			send := func(batches int) {
				for range batches {
					var entries []pointColumns
					for range 1 + r.Intn(3) {
						tag := []string{"float32", "float64", "whole", "odd"}[r.Intn(4)]
						n := 1 + r.Intn(300)
						if r.Intn(3) == 0 {
							n = 900 + r.Intn(9000)
						}
						c := next(tag, n)
						if r.Intn(2) == 0 || n > 3000 {
							entries = append(entries, packedOf("", tag, c))
							continue
						}
						p := pointColumns{Name: tag, Steps: c.steps, AtMS: c.atMS}
						for _, v := range c.values {
							p.Values = append(p.Values, jsonFloat(v))
						}
						entries = append(entries, p)
					}
					src.send(entries...)
				}
			}
			send(12)
			checkStored(t, w.s.store, want, false)
			w.sealAll() // nothing: the run lives
			w.want("0", "SELECT count(*) FROM series WHERE sealed = 1")
			w.stop()
			w.start()
			a.hello(tell)
			send(8)
			a.hello(tell.ended(exitInfo{}))
			a.endLog(tell.UID, "bye")
			src.end()
			w.sealAll()
			checkStored(t, w.s.store, want, false)
			sealed := func() {
				t.Helper()
				w.want("0 0", "SELECT count(*) || ' ' || (SELECT count(*) FROM points) FROM series WHERE sealed = 0")
				w.want("0", `SELECT count(*) FROM chunks a JOIN chunks b ON b.series_id = a.series_id AND b.first_seq = a.first_seq + a.n WHERE a.n < ? AND b.n < ?`, seriesChunkPoints, seriesChunkPoints)
			}
			sealed()
			before := w.get("SELECT group_concat(id, ' ') FROM chunks")
			w.sealAll()
			w.want(before, "SELECT group_concat(id, ' ') FROM chunks")

			send(3) // late: the file was longer than was thought
			w.sealAll()
			if w.get("SELECT count(*) FROM series WHERE sealed = 0") == "0" {
				t.Fatal("sealed while its source is open")
			}
			checkStored(t, w.s.store, want, false)
			src.end()
			w.sealAll()
			sealed()
			checkStored(t, w.s.store, want, false)
			w.want("ok", "PRAGMA integrity_check")
		})
	}
}

func randomValue(r *rand.Rand, tag string) float64 {
	switch tag {
	case "float32":
		return float64(float32(r.NormFloat64()))
	case "whole":
		return float64(r.Intn(100))
	case "odd":
		return []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1e300, 5e-324}[r.Intn(7)]
	}
	return r.NormFloat64()
}

// TestSeriesSealIsKilled takes a picture of the database's files before each step of sealing, as a kill -9 leaves them, and goes on from each.
func TestSeriesSealIsKilled(t *testing.T) {
	w, a, tell, src := pointWorld(t)
	want := map[string]*seriesColumns{"loss": {}}
	all := want["loss"]
	*all = noisyLoss(40_000, 1)
	for from := 0; from < all.len(); {
		to := min(from+[]int{700, 2500, 90}[from%3], all.len())
		src.send(packedOf("", "loss", all.cut(from, to)))
		from = to
	}
	a.hello(tell.ended(exitInfo{}))
	a.endLog(tell.UID, "bye")
	src.end()
	ctx := context.Background()
	steps, first := 0, ""
	for sealed := false; !sealed; steps++ {
		dir := t.TempDir()
		for _, end := range []string{"", "-wal"} {
			w.copyFile(w.dataFile("gpuctl.db"+end), filepath.Join(dir, "gpuctl.db"+end))
		}
		st, err := openStore(ctx, filepath.Join(dir, "gpuctl.db"), newHub())
		w.must(err)
		checkStored(t, st, want, true)
		for done := false; !done; {
			done, err = st.sealSeries(ctx, 1)
			w.must(err)
		}
		checkStored(t, st, want, true)
		var chunks string
		w.must(st.read(ctx, func(c *conn) error {
			_, err := c.one("SELECT group_concat(n, ' ') FROM (SELECT n FROM chunks ORDER BY first_seq)", nil, &chunks)
			return err
		}))
		if first == "" {
			first = chunks
		}
		if chunks != first || strings.Count(chunks, "4096") < 8 {
			t.Errorf("after step %d: chunks %s, without a kill %s", steps, chunks, first)
		}
		w.must(st.close())
		sealed, err = w.s.store.sealSeries(ctx, 1)
		w.must(err)
	}
	if steps < 3 {
		t.Errorf("%d steps only", steps)
	}
}

// TestSeriesSealMeetsAPoint: points that come, and rows that are packed, between reading and writing of a step of sealing.
func TestSeriesSealMeetsAPoint(t *testing.T) {
	w, _, _, src := pointWorld(t)
	want := map[string]*seriesColumns{"loss": {}}
	*want["loss"] = noisyLoss(9000, 1)
	all := want["loss"]
	send := func(from, to int) { src.send(packedOf("", "loss", all.cut(from, to))) }
	for from := 0; from < 8000; from += 1000 {
		send(from, from+1000)
	}
	var m seriesMend
	ctx := context.Background()
	w.must(w.s.store.read(ctx, func(c *conn) error {
		parts, err := seriesParts(c, 1, 0)
		if err == nil {
			m, err = packMend(c, 1, planMend(parts))
		}
		return err
	}))
	send(8000, 9000) // the oldest 4,096 are packed
	w.write(func(x *tx) error { return mendTx(x, 1, m) })
	checkStored(t, w.s.store, want, true)
	w.want("4096", "SELECT group_concat(n, ' ') FROM chunks")
}

// TestSeriesBits: a float32, whatever its bits, is answered as the same float32, as rows, as chunks and sealed.
func TestSeriesBits(t *testing.T) {
	w, a, tell, src := pointWorld(t)
	r := rand.New(rand.NewSource(1))
	var c seriesColumns
	for i := range 3000 {
		v := math.Float32frombits(r.Uint32())
		if v != v {
			v = math.Float32frombits(uint32(i)) // a small one without an exponent
		}
		if i%700 == 1 {
			v = math.Float32frombits(1 << 31) // -0
		}
		c.add(int64(i), 1_790_000_000_000, float64(v))
	}
	src.send(packedOf("", "loss", c.cut(0, 1000)))
	src.send(packedOf("", "loss", c.cut(1000, 3000)))
	check := func() {
		t.Helper()
		got := w.metrics("1", "").Items[0].Points
		for i, p := range got {
			if float32(p.value) != float32(c.values[i]) || math.Float64bits(p.value) != math.Float64bits(c.values[i]) || p.step != int64(i) {
				t.Fatalf("point %d: got %v, want %v", i, p, c.values[i])
			}
		}
		if len(got) != c.len() {
			t.Fatalf("%d points", len(got))
		}
	}
	check()
	a.hello(tell.ended(exitInfo{}))
	a.endLog(tell.UID)
	src.end()
	w.sealAll()
	w.want("1 0", "SELECT count(*) || ' ' || (SELECT count(*) FROM points) FROM chunks")
	check()
}
