package tests

// Benchmarks with limits. Run at full size only: they need the machine for themselves.

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
		j = p.waitOver(j.ID, 20*time.Second)
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
	var ours, bare []time.Duration
	for range benchRounds {
		var a, b []time.Duration
		for range 12 {
			a, b = append(a, throughUs()), append(b, alone())
		}
		ours, bare = append(ours, median(a)), append(bare, median(b))
	}
	got, base := median(ours), median(bare)
	limit := 4*base + 8*time.Millisecond
	o.Figure = fmt.Sprintf("p50 %.1f ms; fork+exec %.1f ms; limit %.1f ms", ms(got), ms(base), ms(limit))
	if got > limit {
		t.Errorf("too slow: %s", o.Figure)
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// TestBenchSchedule runs the Go benchmark of a scheduling pass: it needs the store from inside.
func TestBenchSchedule(t *testing.T) {
	o := promise(t, "a scheduling pass with 100,000 queued jobs takes at most 2 ms CPU")
	if !slow {
		o.skip(t, "GPUCTL_SLOW is not set")
	}
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", "^BenchmarkSchedulePass$", "-benchtime", "100x", "-count", strconv.Itoa(benchRounds), ".")
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var passes []float64
	for _, m := range regexp.MustCompile(`(?m)^BenchmarkSchedulePass\S*\s.*?([\d.]+) cpu-ms/op`).FindAllSubmatch(out, -1) {
		v, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		passes = append(passes, v)
	}
	if len(passes) != benchRounds {
		t.Fatalf("%d results, want %d (metric cpu-ms/op):\n%s", len(passes), benchRounds, out)
	}
	o.Figure = fmt.Sprintf("%.2f ms CPU a pass; limit 2 ms", median(passes))
	if median(passes) > 2 {
		t.Errorf("too slow: %s", o.Figure)
	}
}
