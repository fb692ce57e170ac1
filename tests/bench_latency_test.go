package tests

// How old a point is when the API has it.

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestBenchLatency: from the end of the writer's write to the answer of a long-poll.
func TestBenchLatency(t *testing.T) {
	o := promise(t, "M1 a point is in the API within 300 ms at the median after a real flush")
	points, apart := 100, "0.8"
	if !slow {
		points, apart = 30, "0.4"
	}
	p := newPlane(t)
	p.up()
	dir := p.folder("latency")
	id := p.train(dir, p.writer("latency.py", `
n, most = int(sys.argv[1]), float(sys.argv[2])
rnd = random.Random(8)
w = Writer(os.path.join("logs", name()))
times = open("times", "w")
gate("go")
for i in range(1, n + 1):
    time.sleep(rnd.random() * most)
    w.scalar("loss", rnd.random(), i)
    times.write("%d %d\n" % (i, time.time_ns()))
    times.flush()
gate("done")
`), strconv.Itoa(points), apart)
	run := firstRun(id)
	p.waitRunning(id)
	p.open(dir, "go")
	seen := map[int64]time.Time{}
	for next := int64(0); len(seen) < points; {
		var m metricsShape
		status, err := p.get(fmt.Sprintf("/api/v1/runs/%s/metrics?after=%d&wait=20", run, next), &m)
		now := time.Now()
		if err != nil || status != http.StatusOK {
			t.Fatalf("status %d, %v", status, err)
		}
		if m.Next == next {
			t.Fatalf("nothing new in 20 s; %d of %d points", len(seen), points)
		}
		next = m.Next
		for _, s := range m.Items {
			for _, q := range s.Points {
				if _, known := seen[q.step]; !known {
					seen[q.step] = now
				}
			}
		}
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	p.open(dir, "done")
	wantEnd(t, p.waitOver(id, 30*time.Second), "SUCCEEDED", "", 0)
	b, err := os.ReadFile(filepath.Join(dir, "times"))
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for _, line := range splitLines(string(b)) {
		step, ns, _ := strings.Cut(line, " ")
		i, err := strconv.ParseInt(step, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, seen[i].Sub(ranAt(t, []byte(ns))))
	}
	if len(took) != points {
		t.Fatalf("%d times of %d points", len(took), points)
	}
	slices.Sort(took)
	o.Figure = fmt.Sprintf("p50 %.0f ms, p90 %.0f ms, slowest %.0f ms of %d points; limit 300 ms; load %s", ms(median(took)), ms(took[len(took)*9/10]),
		ms(took[len(took)-1]), points, strings.Fields(string(load))[0])
	if median(took) > 300*time.Millisecond {
		t.Errorf("too slow: %s", o.Figure)
	}
}
