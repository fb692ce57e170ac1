package main

// Curves over HTTP: attempts, names, ranges, buckets, waiting; and what runs show of their series.

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func stepsOf(first, last int64) []float64 {
	var v []float64
	for s := first; s <= last; s++ {
		v = append(v, float64(s))
	}
	return v
}

// TestMetricsTwoFiles is case B04 within one run: a second file in the folder goes on at 11 when the first had come to 15.
func TestMetricsTwoFiles(t *testing.T) {
	w, a, tell, first := pointWorld(t)
	first.send(plain("runs", "loss", 1, stepsOf(1, 15)...))
	second := a.points(sourceTB, tell.UID+"-2a")
	second.send(plain("runs", "loss", 11, 111, 112, 113))
	const old = "1.1 loss 1:1 2:2 3:3 4:4 5:5 6:6 7:7 8:8 9:9 10:10 "
	for query, want := range map[string]string{
		"":                 old + "11:11 12:12 13:13 14:14 15:15 11:111 12:112 13:113",
		"attempts=all":     old + "11:11 12:12 13:13 14:14 15:15 11:111 12:112 13:113",
		"attempts=trained": old + "11:111 12:112 13:113",
	} {
		if got := w.metrics("1", query); got.shapes() != want || got.Next != 18 {
			t.Errorf("%s: next %d\n got %s\nwant %s", query, got.Next, got.shapes(), want)
		}
	}
	w.want("1", "SELECT count(*) FROM events WHERE type = 'STEP_WENT_BACK'")
}

// TestMetricsAttempts is case B04 over two attempts of a job: the newer one shadows, nothing is deleted.
func TestMetricsAttempts(t *testing.T) {
	w, a, tell, first := pointWorld(t)
	first.send(plain("runs/jan01", "loss", 1, stepsOf(1, 15)...), plain("runs/jan01", "old", 1, 1))
	a.hello(tell.ended(exitInfo{Code: 1}))
	a.endLog(tell.UID, "died")
	first.end()
	w.sealAll()
	w.want("1", "SELECT sealed FROM series WHERE id = 1")
	w.write(func(x *tx) error { return w.s.retryJobTx(x, 1, "tester", retryRequest{}) })
	if run, line := w.metrics("1", ""), w.metrics("1", "attempts=trained"); !run.Done || line.Done {
		t.Errorf("the run is done: %v; the line of a job that is tried again: %v", run.Done, line.Done)
	}
	again := a.started()
	second := a.points(sourceTB, again.UID+"-2a")
	second.send(plain("runs/jan02", "loss", 11, 111, 112, 113), plain("runs/jan02", "new", 5, 5))
	const old = "1:1 2:2 3:3 4:4 5:5 6:6 7:7 8:8 9:9 10:10 "
	for _, c := range []struct{ run, query, want string }{
		{"1.1", "name=loss", "1.1 loss " + old + "11:11 12:12 13:13 14:14 15:15"},
		{"1.2", "name=loss", "1.2 loss 11:111 12:112 13:113"},
		{"1", "name=loss&attempts=trained", "1.2 loss " + old + "11:111 12:112 13:113"},
		{"1.1", "name=loss&attempts=trained&from=9&to=11", "1.2 loss 9:9 10:10 11:111"},
		{"1", "attempts=trained&name=old&name=new", "1.2 new 5:5\n1.1 old 1:1"},
		{"1", "name=loss&attempts=all", "1.1 loss " + old + "11:11 12:12 13:13 14:14 15:15\n1.2 loss 11:111 12:112 13:113"},
	} {
		if got := w.metrics(c.run, c.query).shapes(); got != c.want {
			t.Errorf("%s %s:\n got %s\nwant %s", c.run, c.query, got, c.want)
		}
	}
	if got := w.metrics("1", "attempts=trained"); got.Next != 20 || got.Done || got.State != runAlive {
		t.Errorf("%d %v %s", got.Next, got.Done, got.State)
	}
	if b := w.metrics("1", "attempts=trained&name=loss&max_points=5").Items[0]; len(b.Buckets) != 4 || b.Count != 13 || b.Buckets[3].max != 113 || b.Points != nil {
		t.Errorf("%+v", b)
	}
	w.want("0", "SELECT count(*) FROM events WHERE type = 'STEP_WENT_BACK'")
}

// TestMetricsRange asks for parts of a curve by step and by time.
func TestMetricsRange(t *testing.T) {
	w, _, _, src := pointWorld(t)
	src.send(plain("", "loss", 1, stepsOf(1, 6)...))
	w.write(func(x *tx) error {
		_, err := x.exec("UPDATE runs SET started_ms = 1790000001000")
		return err
	})
	for query, want := range map[string]string{
		"from=3":                       "3 4 5 6",
		"to=2":                         "1 2",
		"from=2&to=3":                  "2 3",
		"from=-5&to=1":                 "1",
		"from=7":                       "",
		"from=3&to=2":                  "",
		"x=wall&from=1790000005000":    "5 6",
		"x=wall&to=1790000002999":      "1 2",
		"x=relative&from=2000&to=3000": "3 4",
		"x=relative&from=-1&to=0":      "1",
		"x=relative&to=9223372036854775807&from=-9223372036854775808": "1 2 3 4 5 6",
		"x=wall": "1 2 3 4 5 6",
	} {
		p := w.metrics("1", query)
		var got []string
		for _, pt := range p.Items[0].Points {
			got = append(got, fmt.Sprint(pt.step))
		}
		if strings.Join(got, " ") != want || p.Items[0].Count != int64(len(got)) || p.Next != 6 {
			t.Errorf("%s: got %v (%d of %d), want %s", query, got, p.Items[0].Count, p.Next, want)
		}
	}
}

// TestMetricsNames asks by shown name, tag and pattern; a keras pair is apart.
func TestMetricsNames(t *testing.T) {
	w, a, tell, src := pointWorld(t)
	src.send(plain("train", "epoch_loss", 1, 1), plain("validation", "epoch_loss", 1, 2), plain("validation", "epoch acc [%]", 1, 3))
	sdk := a.points(sourceSDK, tell.UID)
	sdk.send(plain("", "epoch_loss", 1, 4))
	for query, want := range map[string]string{
		"":                                    "epoch_loss train/epoch_loss validation/epoch acc [%] validation/epoch_loss",
		"name=epoch_loss":                     "epoch_loss train/epoch_loss validation/epoch_loss",
		"name=train/epoch_loss":               "train/epoch_loss",
		"name=validation/epoch%20acc%20[%25]": "validation/epoch acc [%]",
		"pattern=*loss":                       "epoch_loss train/epoch_loss validation/epoch_loss",
		"pattern=val*[%25]":                   "validation/epoch acc [%]",
		"pattern=train*&name=none":            "train/epoch_loss",
		"name=loss":                           "",
	} {
		var got []string
		for _, m := range w.metrics("1", query).Items {
			got = append(got, m.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	for _, query := range []string{"x=time", "attempts=both", "max_points=0", "max_points=10001", "max_points=x", "from=1.5", "wait=1", "nam=loss", "to=", "wait=99&after=1"} {
		_, p := w.call("GET", "/api/v1/runs/1/metrics?"+query, w.token(scopeRead), nil, nil)
		if (p == nil) != (query == "to=") || p != nil && p.Status != 400 {
			t.Errorf("%s: %+v", query, p)
		}
	}
	if _, p := w.call("GET", "/api/v1/runs/7/metrics", w.token(scopeRead), nil, nil); p == nil || p.Status != 404 {
		t.Errorf("%+v", p)
	}
}

// TestMetricsNeverStale asks for the same curves again and again while points come: every answer is that of all points so far, as buckets
// and as points, in ranges too, and a spike is always in it.
func TestMetricsNeverStale(t *testing.T) {
	w, a, tell, src := pointWorld(t)
	all := noisyLoss(14_000, 1)
	all.values[777] = 1e6
	check := func(n int) {
		t.Helper()
		for _, query := range []string{"max_points=50", "max_points=50&from=500&to=20000", "max_points=50&attempts=trained", "max_points=10000", ""} {
			span, most := seriesAll(), 50
			if strings.Contains(query, "from") {
				span = seriesSpan{from: 500, to: 20000}
			}
			if query == "max_points=10000" {
				most = 10_000
			} else if query == "" {
				most = metricAnswerMost
			}
			fresh := newSeriesSampler(most)
			addInSpan(fresh, all.cut(0, n), span)
			var want metricSeries
			if err := json.Unmarshal(append(append([]byte(`{"run":""`), renderCurve(fresh)...), '}'), &want); err != nil {
				t.Fatal(err)
			}
			p := w.metrics("1", query)
			got := p.Items[0]
			if p.Next != int64(n) || got.Count != fresh.n || !slices.Equal(got.Points, want.Points) || !slices.Equal(got.Buckets, want.Buckets) {
				t.Fatalf("%s at %d points: next %d, count %d of %d, %d points of %d, %d buckets of %d", query, n, p.Next, got.Count, fresh.n,
					len(got.Points), len(want.Points), len(got.Buckets), len(want.Buckets))
			}
			if most == 50 && n > 777 && !slices.ContainsFunc(got.Buckets, func(b pointBucket) bool { return b.max == 1e6 }) {
				t.Fatalf("%s: the spike is gone", query)
			}
		}
	}
	sent := 0
	for i := 0; sent < all.len(); i++ {
		n := min([]int{1, 60, 1500, 3, 4000, 900}[i%6], all.len()-sent)
		src.send(packedOf("", "loss", all.cut(sent, sent+n)))
		sent += n
		check(sent)
	}
	a.hello(tell.ended(exitInfo{}))
	a.endLog(tell.UID)
	src.end()
	for range 4 {
		_, err := w.s.store.sealSeries(t.Context(), 1)
		w.must(err)
		check(sent)
	}
	w.sealAll()
	check(sent)
	w.stop()
	w.start()
	check(sent)
}

// TestMetricsCoarse: a range of too many points is made of the headers of chunks; nothing is lost of count, least and greatest.
func TestMetricsCoarse(t *testing.T) {
	w, _, _, src := pointWorld(t)
	c := noisyLoss(8192, 1)
	src.send(packedOf("", "loss", c))
	src.send(packedOf("", "loss", c.cut(0, 900)))
	const chunks = seriesDecodeMost/8192 + 10
	w.write(func(x *tx) error { // the same chunk many times, steps going on
		for i := range int64(chunks) {
			if _, err := x.exec(`INSERT INTO chunks (series_id, first_seq, n, min_step, max_step, min_ms, max_ms, min_value, max_value, sum_value, finite_n, data)
				SELECT series_id, 9092 + ? * n, n, min_step, max_step, min_ms, max_ms, min_value, max_value, sum_value, finite_n, data FROM chunks WHERE first_seq = 0`, i); err != nil {
				return err
			}
		}
		_, err := x.exec("UPDATE series SET count = count + ? * 8192", chunks)
		return err
	})
	got := w.metrics("1", "max_points=100").Items[0]
	if want := int64(9092 + chunks*8192); got.Count != want || len(got.Buckets) > 100 || len(got.Buckets) < 50 {
		t.Fatalf("%d points of %d, %d buckets", got.Count, want, len(got.Buckets))
	}
	n := int64(0)
	least, most, mean := math.Inf(1), math.Inf(-1), 0.0
	for _, b := range got.Buckets {
		n += b.count
		least, most, mean = min(least, b.min), max(most, b.max), mean+b.mean*float64(b.count)
	}
	whole := newSeriesChunk(c, nil)
	if n != got.Count || least != *whole.min || most != *whole.max || math.Abs(mean/float64(n)-whole.sum/8192) > 0.01 {
		t.Errorf("%d points, %v to %v, mean %v", n, least, most, mean/float64(n))
	}
	part := w.metrics("1", "max_points=100&from=5000&to=5009").Items[0] // ends of chunks are decoded
	if part.Count != 10*(chunks+1) {
		t.Errorf("%d points, want %d", part.Count, 10*(chunks+1))
	}
	_, p := w.call("GET", "/api/v1/runs/1/metrics", w.token(scopeRead), nil, nil)
	if p == nil || p.Code != codeInvalid {
		t.Errorf("an answer without end: %v", p)
	}
}

// TestMetricsWait: a wait ends with a new point, and nothing comes before.
func TestMetricsWait(t *testing.T) {
	w, a, tell, src := pointWorld(t)
	src.send(plain("", "loss", 1, 1, 2))
	if p := w.metrics("1", "after=2"); len(p.Items) != 0 || p.Next != 2 || p.Done {
		t.Fatalf("%+v", p)
	}
	for _, attempts := range []string{attemptsRun, attemptsTrained, attemptsAll} {
		answered := make(chan metricsPage)
		next := w.metrics("1", "").Next
		token := w.token(scopeRead)
		go func() {
			var p metricsPage
			w.call("GET", fmt.Sprintf("/api/v1/runs/1/metrics?after=%d&wait=20&attempts=%s", next, attempts), token, nil, &p)
			answered <- p
		}()
		waitFor(t, "the wait listens", func() bool {
			w.s.hub.mu.Lock()
			defer w.s.hub.mu.Unlock()
			return w.s.hub.bells[bellRun(1)] != nil
		})
		began := time.Now()
		src.send(plain("", "loss", next+1, 3))
		if p := <-answered; p.Next != next+1 || len(p.Items) != 1 || len(p.Items[0].Points) != int(next+1) {
			t.Errorf("%s: %+v", attempts, p)
		}
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("%s: answered after %v", attempts, d)
		}
	}
	a.hello(tell.ended(exitInfo{}))
	a.endLog(tell.UID)
	src.end()
	if p := w.metrics("1", "after=5&wait=20"); !p.Done || p.State != runEnded || len(p.Items) != 0 {
		t.Errorf("%+v", p)
	}
}

// TestRunMetrics is what runs show of their series.
func TestRunMetrics(t *testing.T) {
	w, _, _, src := pointWorld(t)
	w.write(func(x *tx) error {
		_, err := x.exec(`UPDATE jobs SET primary_metric = '{"name":"validation/score","goal":"max"}'`)
		return err
	})
	src.send(plain("validation", "score", 1, 1, 5, 2), plain("train", "score", 1, 9), plain("", "zeta", 1, stepsOf(0, 40)...))
	src.send(plain("", "alpha", 100, math.NaN()))
	var v runView
	w.call("GET", "/api/v1/runs/1", w.token(scopeRead), nil, &v)
	var names []string
	for _, m := range v.Metrics {
		names = append(names, m.Name)
	}
	if got := strings.Join(names, " "); got != "validation/score alpha train/score zeta" {
		t.Fatal(got)
	}
	if v.LastStep == nil || *v.LastStep != 100 || v.LastStepMS == nil || *v.LastStepMS != 1_790_000_100_000 {
		t.Errorf("last step %v at %v", v.LastStep, v.LastStepMS)
	}
	p := v.Metrics[0]
	if !p.Primary || p.Goal == nil || *p.Goal != "max" || p.GoalFrom != "job" || *p.Best != (metricPoint{2, 1_790_000_002_000, 5}) || *p.Min != (metricPoint{1, 1_790_000_001_000, 1}) ||
		*p.Last != (metricPoint{3, 1_790_000_003_000, 2}) || p.Count != 3 || p.Trend != nil || p.Tag != "score" || p.Folder != "validation" || p.Source != sourceTB {
		t.Errorf("%+v", p)
	}
	if m := v.Metrics[1]; m.Primary || m.NaNCount != 1 || m.Min != nil || m.Best != nil || !math.IsNaN(float64(m.Last.Value)) {
		t.Errorf("%+v", m)
	}
	if m := v.Metrics[3]; m.Trend == nil || *m.Trend != "rising" || m.Max.Value != 40 {
		t.Errorf("%+v", m)
	}
	w.submit(testJob{})
	var runs list[runView]
	w.call("GET", "/api/v1/runs", w.token(scopeRead), nil, &runs)
	if len(runs.Items) != 1 || len(runs.Items[0].Metrics) != 4 || !runs.Items[0].Metrics[0].Primary {
		t.Errorf("%+v", runs)
	}
	if got := w.metrics("1", "").Items[0].Name; got != "validation/score" {
		t.Errorf("the primary metric is not first: %s", got)
	}
}
