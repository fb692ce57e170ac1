package main

// Points in batches: what is stored, what is set aside, what is told.

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// pointSource sends pieces of one source, each where the cursor is.
type pointSource struct {
	a   *testAgent
	src string
	cur wireCursor
}

func (a *testAgent) points(kind, uid string) *pointSource {
	return &pointSource{a: a, src: sourceName(kind, uid)}
}

// line is the next piece; it goes 100 bytes further.
func (p *pointSource) line(entries any) batchLine {
	return batchLine{
		Src: p.src, Kind: kindPoints, Gen: p.cur.Gen, From: p.cur.Off, To: p.cur.Off + 100, Prev: p.cur.Print, Print: fmt.Sprint("p", p.cur.Off),
		Items: items(entries),
	}
}

// send sends entries that must be taken.
func (p *pointSource) send(entries ...pointColumns) { p.take(p.line(entries)) }

func (p *pointSource) take(l batchLine) {
	p.a.w.t.Helper()
	ans, problem := p.a.batch(l)
	if problem != nil || ans.Refused[p.src] != "" {
		p.a.w.t.Fatalf("%v %v", problem, ans.Refused)
	}
	p.cur = ans.Acks[p.src]
}

func (p *pointSource) end() {
	p.a.w.t.Helper()
	l := p.line([]pointColumns{})
	l.End = true
	p.take(l)
}

// plain are plain columns of steps from first on, a second apart.
func plain(folder, name string, first int64, values ...float64) pointColumns {
	c := pointColumns{Name: name, Folder: folder}
	for i, v := range values {
		step := first + int64(i)
		c.Steps, c.AtMS, c.Values = append(c.Steps, step), append(c.AtMS, 1_790_000_000_000+1000*step), append(c.Values, jsonFloat(v))
	}
	return c
}

func (c pointColumns) packed() pointColumns {
	values := make([]float64, len(c.Values))
	for i, v := range c.Values {
		values[i] = float64(v)
	}
	return pointColumns{Name: c.Name, Folder: c.Folder, Packed: seriesPack(c.Steps, c.AtMS, values)}
}

func packedOf(folder, name string, c seriesColumns) pointColumns {
	return pointColumns{Name: name, Folder: folder, Packed: seriesPack(c.steps, c.atMS, c.values)}
}

// pointWorld is a run that lives and the source of its event file.
func pointWorld(t testing.TB) (*world, *testAgent, runTell, *pointSource) {
	w := newWorld(t)
	a := w.agent("a", 1)
	w.submit(testJob{})
	tell := a.started()
	return w, a, tell, a.points(sourceTB, tell.UID+"-1f")
}

// metrics asks for curves of a run; query begins after the "?".
func (w *world) metrics(run, query string) metricsPage {
	w.t.Helper()
	var p metricsPage
	if _, problem := w.call("GET", "/api/v1/runs/"+run+"/metrics?"+query, w.token(scopeRead), nil, &p); problem != nil {
		w.t.Fatalf("metrics?%s: %s %s", query, problem.Code, problem.Detail)
	}
	return p
}

// token mints a token of a scope, once.
func (w *world) token(scope string) string {
	w.t.Helper()
	if w.tokens[scope] == "" {
		if w.tokens == nil {
			w.tokens = map[string]string{}
		}
		w.write(func(t *tx) (err error) {
			_, w.tokens[scope], err = mintTokenTx(t, "test-"+scope, scope, nil, nil)
			return err
		})
	}
	return w.tokens[scope]
}

// shape is the points of an item as "step:value step:value".
func (m metricSeries) shape() string {
	var out []string
	for _, p := range m.Points {
		out = append(out, fmt.Sprintf("%d:%v", p.step, p.value))
	}
	return strings.Join(out, " ")
}

// shapes are all items as "run name shape", one a line.
func (p metricsPage) shapes() string {
	var out []string
	for _, m := range p.Items {
		out = append(out, m.Run+" "+m.Name+" "+m.shape())
	}
	return strings.Join(out, "\n")
}

// TestPointsNotFinite is case B09: a NaN and both infinities, plain and packed, are stored, counted and answered as strings, and the other
// metrics of the batch are kept.
func TestPointsNotFinite(t *testing.T) {
	values := []float64{1, math.NaN(), math.Inf(1), math.Inf(-1)}
	for _, form := range []string{"plain", "packed"} {
		for _, kind := range []string{sourceTB, sourceSDK} {
			t.Run(form+" "+kind, func(t *testing.T) {
				w, a, tell, _ := pointWorld(t)
				src := a.points(kind, tell.UID)
				loss, other := plain("", "loss", 1, values...), plain("", "lr", 1, 0.5, 0.25)
				if form == "packed" {
					loss, other = loss.packed(), other.packed()
				}
				src.send(loss, other)
				p := w.metrics("1.1", "")
				if got := p.shapes(); got != "1.1 loss 1:1 2:NaN 3:+Inf 4:-Inf\n1.1 lr 1:0.5 2:0.25" || p.Next != 6 {
					t.Fatalf("%d points: %s", p.Next, got)
				}
				w.want("4 1 2 1.0 1.0", "SELECT count || ' ' || nan_count || ' ' || inf_count || ' ' || least_value || ' ' || most_value FROM series WHERE name = 'loss'")
				var raw json.RawMessage
				w.call("GET", "/api/v1/runs/1/metrics?name=loss", w.token(scopeRead), nil, &raw)
				if want := `"points":[[1,1790000001000,1],[2,1790000002000,"NaN"],[3,1790000003000,"Infinity"],[4,1790000004000,"-Infinity"]]`; !strings.Contains(string(raw), want) {
					t.Errorf("%s\ndoes not hold %s", raw, want)
				}
				w.call("GET", "/api/v1/runs/1", w.token(scopeRead), nil, &raw)
				if want := `"last":{"step":4,"at_ms":1790000004000,"value":"-Infinity"}`; !strings.Contains(string(raw), want) {
					t.Errorf("%s\ndoes not hold %s", raw, want)
				}
				m := w.metrics("1.1", "name=loss&max_points=1").Items[0].Buckets
				if len(m) != 1 || m[0].min != 1 || m[0].max != 1 || m[0].mean != 1 || m[0].count != 4 {
					t.Errorf("%+v", m)
				}
				m = w.metrics("1.1", "name=loss&max_points=1&from=2").Items[0].Buckets
				if len(m) != 1 || !math.IsNaN(m[0].min) || !math.IsNaN(m[0].max) || !math.IsNaN(m[0].mean) || m[0].count != 3 || m[0].step != 2 {
					t.Errorf("%+v", m)
				}
			})
		}
	}
}

// TestPointsGoBack is case B11: nothing is dropped, the order is that of arrival, each series has its own steps, and one event tells of it.
func TestPointsGoBack(t *testing.T) {
	w, _, _, src := pointWorld(t)
	at := []int64{1_790_000_000_000, 1_790_000_000_100, 1_790_000_000_200}
	src.send(
		pointColumns{Name: "loss", Folder: "runs/x", Steps: []int64{607500, 583600, 583601}, AtMS: at, Values: []jsonFloat{1, 2, 3}},
		pointColumns{Name: "acc", Folder: "runs/x", Steps: []int64{-1, 0, 0}, AtMS: at, Values: []jsonFloat{1, 2, 3}},
		pointColumns{Name: "slow", Folder: "runs/y", Steps: []int64{1000, 995, 996}, AtMS: at, Values: []jsonFloat{1, 2, 3}},
	)
	src.send(pointColumns{Name: "acc", Folder: "runs/x", Steps: []int64{5, 1}, AtMS: at[:2], Values: []jsonFloat{4, 5}})
	if got := w.metrics("1", "").shapes(); got != "1.1 acc -1:1 0:2 0:3 5:4 1:5\n1.1 loss 607500:1 583600:2 583601:3\n1.1 slow 1000:1 995:2 996:3" {
		t.Fatal(got)
	}
	w.want("1 run 1.1: the step of loss in runs/x went back from 607500 to 583600 within one attempt; all points are kept",
		"SELECT count(*) || ' ' || message FROM events WHERE type = 'STEP_WENT_BACK' AND run_id IS NOT NULL")
	w.want("1 1 1", "SELECT group_concat(rewinds, ' ') FROM series")
}

// TestPointsBatches: a doubled or late batch changes nothing, a bad entry is set aside and the others of its batch are stored.
func TestPointsBatches(t *testing.T) {
	w, a, _, src := pointWorld(t)
	first := src.line([]pointColumns{plain("", "loss", 1, 1, 2)})
	src.take(first)
	if ans, _ := a.batch(first); ans.Refused[src.src] == "" {
		t.Fatal("a doubled batch was taken")
	}
	good := plain("", "loss", 3, 3)
	good.AtMS[0] += 49
	long := strings.Repeat("n", nameMaxBytes+1)
	bomb := plain("", "bomb", 0).packed()
	bomb.Packed[1] = 0xFF
	src.take(src.line([]any{
		pointColumns{Name: "odd", Steps: []int64{1, 2}, AtMS: []int64{1, 2}, Values: []jsonFloat{1}},
		pointColumns{Name: long, Steps: []int64{1}, AtMS: []int64{1}, Values: []jsonFloat{1}},
		pointColumns{Folder: long, Name: "n", Steps: []int64{1}, AtMS: []int64{1}, Values: []jsonFloat{1}},
		pointColumns{Steps: []int64{1}, AtMS: []int64{1}, Values: []jsonFloat{1}},
		pointColumns{Name: "both", Packed: seriesPack(nil, nil, nil), Steps: []int64{1}},
		pointColumns{Name: "packed", Packed: []byte("nonsense")},
		pointColumns{Name: "a\x00b", Steps: []int64{1}, AtMS: []int64{1}, Values: []jsonFloat{1}},
		map[string]any{"name": "typed", "steps": []string{"one"}, "at_ms": []int64{1}, "values": []int64{1}},
		map[string]any{"name": "word", "steps": []int64{1}, "at_ms": []int64{1}, "values": []string{"high"}},
		map[string]any{"name": "field", "colour": "red"},
		bomb,
		pointColumns{Name: "empty"},
		good,
	}))
	if got := w.metrics("1", "").shapes(); got != "1.1 loss 1:1 2:2 3:3" {
		t.Fatal(got)
	}
	w.want("11", "SELECT count(*) FROM rejects WHERE source = ?", src.src)
	w.want("1", "SELECT count(*) FROM events WHERE type = 'RECORD_REJECTED'")
	w.want("14", "SELECT n FROM cursors WHERE source = ?", src.src)
	w.want("1790000003000", "SELECT at_ms FROM points WHERE seq = 2")
	w.want("1", "SELECT count(*) FROM series")

	var many []pointColumns
	zeros := seriesPack(make([]int64, packedMaxCount), make([]int64, packedMaxCount), make([]float64, packedMaxCount))
	for range pointsBatchMost/packedMaxCount + 1 {
		many = append(many, pointColumns{Name: "z", Packed: zeros})
	}
	l := src.line(many[:4])
	lines := []batchLine{l}
	for range 4 {
		l.From, l.To, l.Prev, l.Print = l.To, l.To+100, l.Print, l.Print+"x"
		lines = append(lines, l)
	}
	if _, p := a.batch(lines...); p == nil || p.Code != codeTooLarge {
		t.Fatalf("a batch of too many points: %v", p)
	}
	w.want("1", "SELECT count(*) FROM series")
	src.send(many...) // in one line: the first four fit
	w.want(fmt.Sprint(pointsLineMost), "SELECT count FROM series WHERE name = 'z'")
}

// TestPointsOwners: points of a run that is not here, or not this node's, or was never granted, are refused.
func TestPointsOwners(t *testing.T) {
	w, a, tell, src := pointWorld(t)
	src.send(plain("", "loss", 1, 1))
	b := w.agent("b", 1)
	w.submit(testJob{})
	w.pass()
	for name, src := range map[string]*pointSource{
		"a source of another node":     b.points(sourceTB, tell.UID+"-1f"),
		"a run of another node":        b.points(sourceTB, tell.UID+"-2f"),
		"a run that is not known":      b.points(sourceTB, newUID()+"-1"),
		"a run that was not granted":   b.points(sourceSDK, b.offered().RunUID),
		"an sdk source of that node's": b.points(sourceSDK, tell.UID),
	} {
		if ans, p := src.a.batch(src.line([]pointColumns{plain("", "loss", 1, 1)})); p != nil || ans.Refused[src.src] == "" {
			t.Errorf("%s: %v %+v", name, p, ans)
		}
	}
	for _, l := range []batchLine{
		{Src: sourceName(kindLog, tell.UID), Kind: kindPoints, To: 1},
		{Src: src.src, Kind: kindLog, To: 1},
		{Src: src.src, Kind: sourceTB, To: 1},
		{Src: src.src, Kind: kindPoints, To: 1, Items: json.RawMessage(`{"a":1}`)},
		{Src: src.src, Kind: kindLive, Items: logItems("x")},
	} {
		if _, p := a.batch(l); p == nil {
			t.Errorf("%+v was taken", l)
		}
	}
	w.want("1", "SELECT count(*) FROM points")
}

// TestPointsTold: damage, a replaced file and a file that nobody carries are told in words that suit an event file, and a source of points
// leaves the log alone.
func TestPointsTold(t *testing.T) {
	w, a, tell, src := pointWorld(t)
	log := sourceName(kindLog, tell.UID)
	a.batch(batchLine{Src: log, Kind: kindLog, To: 10, Print: "A", Items: logItems("a", "b")}, batchLine{Src: log, Kind: kindLive, Items: logItems("50%")})
	const damage = "events.out.tfevents.17.host.1: the record at byte 4711 is damaged"
	src.send(pointColumns{Rej: damage}, plain("", "loss", 1, 1), pointColumns{Rej: damage})
	w.want("2", "SELECT count(*) FROM rejects WHERE why = ?", damage)
	w.want("1 warning 1.1", `SELECT count(*) || ' ' || severity || ' ' || (SELECT job_id || '.' || attempt FROM runs WHERE id = run_id) FROM events
		WHERE type = 'TB_FILE_CORRUPT' AND message LIKE 'run 1.1: %byte 4711%'`)
	w.want("0", "SELECT count(*) FROM events WHERE type = 'RECORD_REJECTED'")

	src.take(batchLine{Src: src.src, Kind: kindPoints, Gen: 1, Prev: src.cur.Print, Old: src.cur.Off, To: 100, Print: "n", Reset: true, Items: items([]pointColumns{{Rej: damage}})})
	w.want("2", "SELECT count(*) FROM events WHERE type = 'TB_FILE_CORRUPT'")
	w.want("1", "SELECT count(*) FROM events WHERE type = 'TB_FILE_TRUNCATED' AND message LIKE '%after 100 bytes%' AND message NOT LIKE '%stderr%'")
	w.want("0", "SELECT count(*) FROM events WHERE type = 'LOG_TRUNCATED'")

	src.take(batchLine{Src: src.src, Kind: kindSkip, Gen: 1, From: 100, To: 200, Prev: "n", Print: "s", N: 5000, Why: "backlog"})
	l := src.line([]pointColumns{plain("", "loss", 2, 2)})
	l.End = true
	src.take(l)
	w.want("2", "SELECT count(*) FROM log_lines")
	var page logPage
	w.call("GET", "/api/v1/runs/1/log", w.token(scopeRead), nil, &page)
	if page.Live == nil || *page.Live != "50%" {
		t.Errorf("the live line is gone: %+v", page)
	}

	other := a.points(sourceTB, tell.UID+"-2f")
	other.send(plain("", "lr", 1, 1))
	a.hello(tell.ended(exitInfo{}))
	w.timers(carrierGone + 60*1e9)
	w.want("1", "SELECT count(*) FROM events WHERE type = 'SOURCE_INCOMPLETE' AND message LIKE '%a file with its metrics was not sent to the end%'")
	w.want("1", "SELECT count(*) FROM events WHERE type = 'SOURCE_INCOMPLETE' AND message LIKE '%its log was not sent to the end%'")
}

// TestPointsHoldTheEnd: a run is drained when its event files are taken too.
func TestPointsHoldTheEnd(t *testing.T) {
	w, a, tell, src := pointWorld(t)
	src.send(plain("", "loss", 1, 1))
	a.hello(tell.ended(exitInfo{}))
	a.endLog(tell.UID, "bye")
	w.want("NULL", "SELECT drained_ms FROM runs")
	src.end()
	if w.get("SELECT drained_ms FROM runs") == "NULL" {
		t.Fatal("not drained after the last source")
	}
}

// TestPointsManySeries: a tag a step makes no end of series.
func TestPointsManySeries(t *testing.T) {
	w, _, _, src := pointWorld(t)
	w.write(func(t *tx) error {
		_, err := t.exec(`INSERT INTO series (run_id, source, name) SELECT 1, 'tb', 'old' || value FROM generate_series(1, ?)`, seriesRunMost-1)
		return err
	})
	src.send(plain("", "a", 1, 1), plain("", "b", 1, 1), plain("", "a", 2, 2), plain("", "c", 1, 1))
	w.want("1:1 2:2", "SELECT group_concat(step || ':' || CAST(value AS INTEGER), ' ') FROM points")
	w.want(`points of "b" and 1 other new series: the run has 10000 series, more are not kept`, "SELECT group_concat(why, '; ') FROM rejects")
}

// TestPointsManySeriesCost: refusing new series costs less than making them, however many the run has; the writer is everybody's.
func TestPointsManySeriesCost(t *testing.T) {
	w, _, _, src := pointWorld(t)
	const n = 4000
	sent := func(name string) time.Duration {
		var entries []pointColumns
		for i := range n {
			entries = append(entries, plain("", fmt.Sprintf("%s%d", name, i), 1, 1))
		}
		began := time.Now()
		src.send(entries...)
		return time.Since(began)
	}
	made := sent("made")
	w.write(func(t *tx) error {
		_, err := t.exec(`INSERT INTO series (run_id, source, name) SELECT 1, 'tb', 'old' || value FROM generate_series(1, ?)`, seriesRunMost-n)
		return err
	})
	refused := min(sent("x"), sent("y"), sent("z"))
	if refused > made {
		t.Fatalf("%d new series took %v to make and %v to refuse", n, made, refused)
	}
	w.want("3", "SELECT count(*) FROM rejects")
}
