package tests

// Benchmarks with limits. Run at full size only: they need the machine for themselves.

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const benchRounds = 5

func median[T cmp.Ordered](v []T) T {
	s := slices.Clone(v)
	slices.Sort(s)
	return s[len(s)/2]
}

// ranAt reads what `date +%s%N` printed.
func ranAt(t *testing.T, out []byte) time.Time {
	t.Helper()
	ns, err := strconv.ParseInt(string(bytes.TrimSpace(out)), 10, 64)
	if err != nil {
		t.Fatalf("date printed %q", out)
	}
	return time.Unix(0, ns)
}

// TestBenchStart compares submit -> first instruction with fork+exec of the same program. The program is date: it prints when it ran.
func TestBenchStart(t *testing.T) {
	o := promise(t, "submit to first instruction: p50 at most 4x fork+exec of the same program plus 8 ms")
	if !slow {
		o.skip(t, "GPUCTL_SLOW is not set")
	}
	p := newPlane(t)
	p.up()
	date, err := exec.LookPath("date")
	if err != nil {
		t.Fatal(err)
	}
	body := map[string]any{"argv": []string{date, "+%s%N"}, "working_dir": p.work, "gpus": 0}
	throughUs := func() time.Duration {
		var j jobShape
		began := time.Now()
		p.post("/api/v1/jobs", body, &j)
		p.mustGet(fmt.Sprintf("/api/v1/jobs/%d?wait=25&until=drained", j.ID), &j) // one question: asking again and again would be in the way
		wantEnd(t, j, "SUCCEEDED", "", 0)
		waitFor(t, 10*time.Second, "the environment snapshot is taken: it runs beside the job, and would run beside the next one", func() bool {
			return p.run(j.Runs[0]).EnvSnapshot != nil
		})
		out, err := os.ReadFile(filepath.Join(p.home, "runs", p.run(j.Runs[0]).UID, "log.txt"))
		if err != nil {
			t.Fatal(err)
		}
		return ranAt(t, out).Sub(began)
	}
	alone := func() time.Duration {
		began := time.Now()
		out, err := exec.Command(date, "+%s%N").Output()
		if err != nil {
			t.Fatal(err)
		}
		return ranAt(t, out).Sub(began)
	}
	throughUs() // the first job makes projects and prepares statements
	var ours, bare, best []time.Duration
	for range benchRounds {
		var a, b []time.Duration
		for range 12 {
			a, b = append(a, throughUs()), append(b, alone())
		}
		ours, bare, best = append(ours, median(a)), append(bare, median(b)), append(best, slices.Min(a))
	}
	got, base := median(ours), median(bare)
	limit := 4*base + 8*time.Millisecond
	o.Figure = fmt.Sprintf("p50 %.1f ms (best %.1f); fork+exec %.1f ms; limit %.1f ms", ms(got), ms(median(best)), ms(base), ms(limit))
	if got > limit {
		t.Errorf("too slow: %s", o.Figure)
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// TestBenchSchedule runs the Go benchmark of a scheduling pass: it needs the store from inside. A pass is one goroutine, so its wall time
// is at least its CPU time.
func TestBenchSchedule(t *testing.T) {
	o := promise(t, "a scheduling pass with 100,000 queued jobs takes at most 2 ms CPU")
	if !slow {
		o.skip(t, "GPUCTL_SLOW is not set")
	}
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", "^BenchmarkSchedPass100k$", "-benchtime", "100x", "-count", strconv.Itoa(benchRounds), ".")
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	passes := map[string][]float64{}
	for _, m := range regexp.MustCompile(`(?m)^BenchmarkSchedPass100k/(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op`).FindAllSubmatch(out, -1) {
		ns, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			t.Fatal(err)
		}
		passes[string(m[1])] = append(passes[string(m[1])], ns/1e6)
	}
	if len(passes) == 0 {
		t.Fatalf("no results:\n%s", out)
	}
	for _, name := range slices.Sorted(maps.Keys(passes)) {
		if len(passes[name]) != benchRounds {
			t.Errorf("%s: %d results, want %d", name, len(passes[name]), benchRounds)
		}
		o.Figure += fmt.Sprintf("%s %.2f ms; ", strings.ReplaceAll(name, "_", " "), median(passes[name]))
		if median(passes[name]) > 2 {
			t.Errorf("%s is too slow", name)
		}
	}
	o.Figure += "limit 2 ms"
}
