package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func metricsRun() runView {
	point := func(step int64, v float64) *metricPoint { return &metricPoint{step, 1_764_500_000_000, jsonFloat(v)} }
	return runView{ID: "12.1", UID: strings.Repeat("a", 32), State: runAlive, Metrics: []metricView{
		{
			Name: "train/loss", Source: "tb", Tag: "train/loss", Goal: ptr("min"), GoalFrom: "inferred", Last: point(300, math.NaN()), Best: point(200, 0.012345678), Min: point(200, 0.012345678),
			Max: point(0, 2.25), Count: 301, NaNCount: 2, Trend: ptr("falling"),
		},
		{Name: "lr", Source: "tb", Tag: "lr", Last: point(300, 5e-5), Min: point(300, 5e-5), Max: point(0, 0.001), Count: 301},
		{Name: "val/accuracy", Source: "tb", Tag: "val/accuracy", Goal: ptr("max"), GoalFrom: "job", Primary: true, Last: point(300, 0.85), Best: point(200, 0.9), Min: point(100, 0.5), Max: point(200, 0.9), Count: 3},
		{Name: "loss [a, b]", Source: "tb", Tag: "loss [a, b]", Count: 1, Last: point(1, 1)},
	}}
}

// metricsAPI serves the points of one run as REST does.
type metricsAPI struct {
	mu     sync.Mutex
	names  []string
	points map[string][]pointRow
	done   bool
	grow   func(m *metricsAPI) // called before a waiting answer
	looks  int
}

func (m *metricsAPI) add(name string, steps ...int64) {
	if m.points[name] == nil {
		m.names = append(m.names, name)
	}
	for _, s := range steps {
		m.points[name] = append(m.points[name], pointRow{s, 1000 * s, float64(len(m.points[name]))})
	}
}

func (m *metricsAPI) serve(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := r.URL.Query()
	if q.Get("wait") != "" && m.grow != nil {
		m.grow(m)
	}
	m.looks++
	page := metricsPage{Items: []metricSeries{}, State: runAlive, Done: m.done}
	from, err := strconv.ParseInt(q.Get("from"), 10, 64)
	if err != nil {
		from = math.MinInt64
	}
	for _, name := range m.names {
		page.Next += int64(len(m.points[name]))
		s := metricSeries{Run: "12.1", Name: name, Source: "tb", Tag: name}
		for _, p := range m.points[name] {
			if p.step >= from {
				s.Points = append(s.Points, p)
			}
		}
		s.Count = int64(len(s.Points))
		if len(s.Points) > 0 && (q.Get("name") == "" || q.Get("name") == name) {
			page.Items = append(page.Items, s)
		}
	}
	tellJSON(w, 200, page)
}

func (m *metricsAPI) run(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := runView{ID: "12.1", State: runAlive}
	for _, name := range m.names {
		v.Metrics = append(v.Metrics, metricView{Name: name, Source: "tb", Tag: name, Count: int64(len(m.points[name]))})
	}
	tellJSON(w, 200, v)
}

func TestMetricsTable(t *testing.T) {
	api := newFakeAPI(t)
	api.json("GET /runs/12", metricsRun())
	got := runCLI(t, api.URL, nil, "run", "metrics", "12")
	want := `NAME           LAST           BEST       MIN    MAX  COUNT  NAN  TREND
train/loss      NaN  0.012346 @200  0.012346   2.25    301    2  falling
lr            5e-05              -     5e-05  0.001    301    -  -
val/accuracy   0.85       0.9 @200       0.5    0.9      3    -  -
loss [a, b]       1              -         -      -      1    -  -
`
	if got.code != 0 || got.out != want || got.err != "" {
		t.Errorf("exit %d, %s\n%s\nwant\n%s", got.code, got.err, got.out, want)
	}
	if got := runCLI(t, api.URL, nil, "run", "metrics", "12", "-o", "name"); got.out != "train/loss\nlr\nval/accuracy\nloss [a, b]\n" {
		t.Errorf("%s%s", got.out, got.err)
	}
	if got := runCLI(t, api.URL, nil, "run", "metrics", "12", "-o", "wide", "--columns", "name,goal,step"); !strings.Contains(got.out, "val/accuracy  max, primary (job)   300\n") {
		t.Errorf("%s%s", got.out, got.err)
	}
	api.json("GET /runs/13", runView{ID: "13.1", State: runAlive})
	if got := runCLI(t, api.URL, nil, "run", "metrics", "13"); got.code != 0 || !strings.Contains(got.err, "no metrics yet") {
		t.Errorf("%+v", got)
	}
	api.json("GET /runs/12.1/metrics", metricsPage{Items: []metricSeries{{Source: "tb", Tag: "lr"}}})
	if got := runCLI(t, api.URL, nil, "run", "metrics", "12", "--pattern", "l?", "--columns", "name"); got.out != "NAME\nlr\n" || api.requests("GET /runs/12.1/metrics")[0].query != "max_points=1&pattern=l%3F" {
		t.Errorf("%+v %+v", got, api.requests("GET /runs/12.1/metrics"))
	}
}

// TestMetricsPoints: every value as it was, in every format.
func TestMetricsPoints(t *testing.T) {
	values := []float64{0.1, float64(float32(0.1)), math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 5e-324, math.MaxFloat64, 1.0 / 3}
	page := metricsPage{Next: 9, State: runEnded, Done: true, Items: []metricSeries{{Run: "12.1", Name: `loss "a, b"`, Source: "tb", Tag: `loss "a, b"`, Count: 9}}}
	for i, v := range values {
		page.Items[0].Points = append(page.Items[0].Points, pointRow{int64(i), 1_764_500_000_100, v})
	}
	raw, err := json.Marshal(page)
	if err != nil {
		t.Fatal(err)
	}
	api := newFakeAPI(t)
	run := metricsRun()
	run.Metrics[0].Name = `loss "a, b"`
	api.json("GET /runs/12", run)
	api.on("GET /runs/12/metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(append(raw, '\n'))
	})
	api.on("GET /runs/12.1/metrics", api.answer["GET /runs/12/metrics"])
	if got := runCLI(t, api.URL, nil, "run", "metrics", "12", "-o", "json"); got.out != string(raw)+"\n" {
		t.Errorf("%s%s", got.out, got.err)
	}
	if got := runCLI(t, api.URL, nil, "run", "metrics", "12", `loss "a, b"`, "-o", "json"); got.out != string(raw)+"\n" {
		t.Errorf("%s%s", got.out, got.err)
	}
	csv := runCLI(t, api.URL, nil, "run", "metrics", "12", "-o", "csv")
	lines := strings.Split(strings.TrimSpace(csv.out), "\n")
	if csv.code != 0 || len(lines) != 10 || lines[0] != "run,name,step,at,value" || lines[3] != `12.1,"loss ""a, b""",2,2025-11-30T10:53:20.100Z,NaN` {
		t.Errorf("exit %d, %s\n%s", csv.code, csv.err, csv.out)
	}
	nd := strings.Split(strings.TrimSpace(runCLI(t, api.URL, nil, "run", "metrics", "12", "-o", "ndjson").out), "\n")
	for i, v := range values {
		text := lines[i+1][strings.LastIndex(lines[i+1], ",")+1:]
		got, err := strconv.ParseFloat(text, 64)
		if err != nil || math.Float64bits(got) != math.Float64bits(v) && !math.IsNaN(v) {
			t.Errorf("csv: %v came as %s", v, text)
		}
		var p pointLine
		if err := json.Unmarshal([]byte(nd[i]), &p); err != nil || p.Name != `loss "a, b"` || p.Step != int64(i) || math.Float64bits(float64(*p.Value)) != math.Float64bits(v) && !math.IsNaN(v) {
			t.Errorf("ndjson: %v came as %s (%v)", v, nd[i], err)
		}
	}
	table := runCLI(t, api.URL, []string{"TZ=UTC"}, "run", "metrics", "12", `loss "a, b"`)
	if rows := strings.Split(table.out, "\n"); table.code != 0 || !strings.HasPrefix(rows[0], "STEP  AT") || !strings.HasSuffix(rows[2], "  0.1") || !strings.HasSuffix(rows[3], "  NaN") {
		t.Errorf("exit %d, %s\n%s", table.code, table.err, table.out)
	}
	for _, c := range []struct {
		args string
		code int
		err  string
	}{
		{"run metrics 12 los", 3, `no metric "los"`},
		{"run metrics 12 acuracy", 3, "hint: gpuctl run metrics 12.1"},
		{"run metrics", 2, "RUN or JOB is missing"},
		{"run metrics 12 --x time", 2, "--x step|wall|relative"},
		{"run metrics 12 --attempts 2", 2, "--attempts run|trained|all"},
		{"run metrics 12 --max-points -1", 2, "below 0"},
		{"run metrics 12 --from x", 2, "is not a step"},
		{"run metrics 12 -f --max-points 5", 2, "--follow takes one run"},
		{"run list -o csv", 2, "no output format"},
		{"run metrics 12 --x wall --from never", 2, "is not a time"},
	} {
		api.json("GET /runs/12.1/metrics", metricsPage{Items: []metricSeries{}})
		if got := runCLI(t, api.URL, nil, strings.Fields(c.args)...); got.code != c.code || !strings.Contains(got.err, c.err) || got.out != "" {
			t.Errorf("%s: exit %d, %s%s; want %d, %s", c.args, got.code, got.err, got.out, c.code, c.err)
		}
	}
	api.answer["GET /runs/12.1/metrics"] = api.answer["GET /runs/12/metrics"]
	runCLI(t, api.URL, nil, "run", "metrics", "12", "--attempts", "all", "--from", "5", "--to", "9", "--max-points", "100", "--pattern", "v*")
	asked := api.requests("GET /runs/12.1/metrics")
	if q := asked[len(asked)-1].query; q != "attempts=all&from=5&max_points=100&pattern=v%2A&to=9" {
		t.Error(q)
	}
}

func TestMetricsBuckets(t *testing.T) {
	api := newFakeAPI(t)
	api.json("GET /runs/12", metricsRun())
	api.json("GET /runs/12.1/metrics", metricsPage{Items: []metricSeries{
		{Run: "12.1", Name: "a", Buckets: []pointBucket{{0, 1000, 0.5, 1.5, 1, 10}, {10, 2000, math.NaN(), math.NaN(), math.NaN(), 2}}},
		{Run: "12.1", Name: "b", Points: []pointRow{{5, 1500, 0.25}}},
	}})
	want := "run,name,step,at,min,max,mean,count\n12.1,a,0,1970-01-01T00:00:01.000Z,0.5,1.5,1,10\n12.1,a,10,1970-01-01T00:00:02.000Z,NaN,NaN,NaN,2\n12.1,b,5,1970-01-01T00:00:01.500Z,0.25,0.25,0.25,1\n"
	if got := runCLI(t, api.URL, nil, "run", "metrics", "12", "--max-points", "2", "-o", "csv"); got.out != want {
		t.Errorf("%s%s", got.out, got.err)
	}
	got := runCLI(t, api.URL, nil, "run", "metrics", "12", "--max-points", "2")
	if !strings.Contains(got.out, "a of run 12.1\nSTEP  AT") || !strings.Contains(got.out, "\n\nb of run 12.1\nSTEP  AT") || !strings.Contains(got.out, "NaN  NaN   NaN      2\n") {
		t.Errorf("%s%s", got.out, got.err)
	}
	if got := runCLI(t, api.URL, nil, "run", "metrics", "12", "--max-points", "2", "-o", "ndjson"); !strings.HasPrefix(got.out, `{"run":"12.1","name":"a","step":0,"at_ms":1000,"min":0.5,"max":1.5,"mean":1,"count":10}`+"\n") {
		t.Errorf("%s%s", got.out, got.err)
	}
}

// TestMetricsCut: an answer that breaks off is told as that, whatever was written of it; one that is larger than any list goes through.
func TestMetricsCut(t *testing.T) {
	api := newFakeAPI(t)
	api.json("GET /runs/12", metricsRun())
	large := 0
	api.on("GET /runs/12/metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"items":[{"run":"12.1","name":"a","points":[[0,0,1]`)
		for range large {
			w.Write([]byte(strings.Repeat(",[12345678,1764500000000,0.3333333333333333]", 1000)))
		}
		if large > 0 {
			fmt.Fprint(w, `]}],"next":1,"state":"ENDED","done":true}`)
		}
	})
	api.answer["GET /runs/12.1/metrics"] = api.answer["GET /runs/12/metrics"]
	for _, args := range [][]string{{"-o", "json"}, {"-o", "csv"}, {"-o", "ndjson"}} {
		got := runCLI(t, api.URL, nil, append([]string{"run", "metrics", "12"}, args...)...)
		if got.code != 5 || !strings.Contains(got.err, "broke off") {
			t.Errorf("%v: exit %d, %s", args, got.code, got.err)
		}
	}
	large = 1600 // 70 MB
	if got := runCLI(t, api.URL, nil, "run", "metrics", "12", "-o", "json"); got.code != 0 || len(got.out) < clientMaxAnswer {
		t.Errorf("exit %d, %s, %d bytes", got.code, got.err, len(got.out))
	}
	api.json("GET /runs/12/metrics", []int{1})
	api.on("GET /runs/12.1/metrics", func(w http.ResponseWriter, r *http.Request) { tellProblem(w, newProblem(codeUsage, "", "no")) })
	if got := runCLI(t, api.URL, nil, "run", "metrics", "12", "-o", "csv"); got.code != 2 || got.err != "gpuctl: no\nhint: gpuctl help run metrics\n" {
		t.Errorf("%+v", got)
	}
}

// TestMetricsFollow: each point once, in order of arrival: those that come, of a new series, and when steps go back.
func TestMetricsFollow(t *testing.T) {
	api := newFakeAPI(t)
	m := &metricsAPI{points: map[string][]pointRow{}}
	m.add("a", 1, 2, 2, 3)
	m.add("b", 1)
	round := 0
	m.grow = func(m *metricsAPI) {
		round++
		switch round {
		case 1:
			m.add("a", 3, 4)
		case 2:
			m.add("c", 0, 9)
		case 3:
			m.add("a", 1, 2, 8) // back below where b stands, and on
		case 4:
			m.add("b", 20)
		case 5:
		default:
			m.done = true
		}
	}
	api.on("GET /runs/12", m.run)
	api.on("GET /runs/12.1", m.run)
	api.on("GET /runs/12.1/metrics", m.serve)
	got := runCLI(t, api.URL, nil, "run", "metrics", "-f", "12", "-o", "csv")
	seen := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(got.out), "\n")[1:] {
		f := strings.Split(line, ",")
		seen[f[1]] += f[2] + ":" + f[4] + " "
	}
	if got.code != 0 || seen["a"] != "1:0 2:1 2:2 3:3 3:4 4:5 1:6 2:7 8:8 " || seen["b"] != "1:0 20:1 " || seen["c"] != "0:0 9:1 " {
		t.Errorf("exit %d, %s, %v", got.code, got.err, seen)
	}
	m.done, m.grow = true, nil
	if got := runCLI(t, api.URL, nil, "run", "metrics", "-f", "12", "b", "-o", "json"); got.out != `{"run":"12.1","name":"b","step":1,"at_ms":1000,"value":0}`+"\n"+`{"run":"12.1","name":"b","step":20,"at_ms":20000,"value":1}`+"\n" {
		t.Errorf("%s%s", got.out, got.err)
	}
	if got := runCLI(t, api.URL, nil, "run", "metrics", "-f", "12", "--from", "9"); strings.Count(got.out, "\n") != 3 || !strings.Contains(got.out, "        20              1  b\n") {
		t.Errorf("%s%s", got.out, got.err)
	}
}

func TestParseWhen(t *testing.T) {
	now := time.Date(2026, 11, 30, 15, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h": now.Add(-2 * time.Hour), "14:00": now.Add(-time.Hour), "2026-11-29": now.Add(-39 * time.Hour), "2026-11-30T14:00:00Z": now.Add(-time.Hour),
		"2026-11-30 14:30": now.Add(-30 * time.Minute), "1795791600000": time.UnixMilli(1_795_791_600_000), "90": now.Add(-90 * time.Second),
	} {
		if got, err := parseWhen(text, now); err != nil || got != want.UnixMilli() {
			t.Errorf("%s: %s, %v; want %s", text, time.UnixMilli(got).UTC(), err, want.UTC())
		}
	}
	for _, text := range []string{"", "yesterday", "25:00", "-5m"} {
		if got, err := parseWhen(text, now); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}

// roundTrip answers requests in place of a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestMetricsIdle: a server that stops in the middle is given up after a while; one that goes on slowly is not, however long it takes.
func TestMetricsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl, err := newClient("http://x", "")
		if err != nil {
			t.Fatal(err)
		}
		served := 0
		cl.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			served++
			stop := served > 1 // the second answer stops after its first part
			out, in := io.Pipe()
			go func() {
				defer in.Close()
				for _, part := range []string{`{"items":[`, `{"name":"a"}`, `],`, `"next":7}`} {
					io.WriteString(in, part)
					if !sleep(r.Context(), clientReadSlack-time.Second) {
						in.CloseWithError(r.Context().Err())
					}
					for stop && r.Context().Err() == nil {
						sleep(r.Context(), time.Minute)
					}
				}
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: out, Request: r}, nil
		})
		names := 0
		page, err := cl.metricsEach(t.Context(), "12", nil, 0, func(metricSeries) error { names++; return nil })
		if err != nil || names != 1 || page.Next != 7 {
			t.Errorf("slow: %v, %d series, %+v", err, names, page)
		}
		began := time.Now()
		_, err = cl.metricsEach(t.Context(), "12", nil, 0, func(metricSeries) error { return nil })
		if p, ok := asProblem(err); !ok || p.Code != codeUnreachable || time.Since(began) != clientReadSlack {
			t.Errorf("stopped: %v after %s", err, time.Since(began))
		}
	})
}
