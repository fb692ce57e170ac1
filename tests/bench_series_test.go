package tests

// Limits of the series store. The benchmarks need the store from inside, so they are Go benchmarks of the program's package; they compare
// in turns and give the best of several rounds.

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// seriesFigures runs one benchmark of the series store and gives its figures by unit.
func seriesFigures(t *testing.T, name string) map[string]float64 {
	t.Helper()
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", "^"+name+"$", "-benchtime", "1x", ".")
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	figures := map[string]float64{}
	for _, m := range regexp.MustCompile(`\s([\d.e+]+) (\S+/s|\S+-ms|B/point)`).FindAllSubmatch(out, -1) {
		v, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		figures[string(m[2])] = v
	}
	return figures
}

// figure is a figure that must be there.
func figure(t *testing.T, figures map[string]float64, unit string) float64 {
	t.Helper()
	v, ok := figures[unit]
	if !ok || v <= 0 {
		t.Fatalf("no %s in %v", unit, figures)
	}
	return v
}

func TestBenchPoints(t *testing.T) {
	o := promise(t, "points through HTTP, 1,000 a batch: at least 40 % of inserting the same rows, packed as an agent sends them; 30 % as plain JSON")
	if !slow {
		o.skip(t, "GPUCTL_SLOW is not set")
	}
	f := seriesFigures(t, "BenchmarkSeriesIngest")
	native := figure(t, f, "native-pts/s")
	o.Figure = fmt.Sprintf("inserts %.0f k points/s; ", native/1000)
	for _, form := range []struct {
		name  string
		share float64
	}{{"packed", 0.4}, {"plain", 0.3}} {
		rate := figure(t, f, form.name+"-pts/s")
		o.Figure += fmt.Sprintf("%s %.0f k (%.0f %%, limit %.0f %%); ", form.name, rate/1000, 100*rate/native, 100*form.share)
		if rate < form.share*native {
			t.Errorf("%s is too slow: %.0f points/s of %.0f", form.name, rate, native)
		}
	}
}

func TestBenchCurves(t *testing.T) {
	o := promise(t, "1,000,000 points of 10 series: at most 4 bytes a point, first read of 1,000 buckets 120 ms CPU, again 5 ms")
	if !slow {
		o.skip(t, "GPUCTL_SLOW is not set")
	}
	f := seriesFigures(t, "BenchmarkSeriesRead")
	size, first, again := figure(t, f, "B/point"), figure(t, f, "first-ms"), figure(t, f, "again-ms")
	o.Figure = fmt.Sprintf("%.2f bytes a point; first read %.0f ms CPU (%.0f ms while the run lives), again %.1f ms; limits 4, 120, 5",
		size, first, figure(t, f, "live-ms"), again)
	if size > 4 || first > 120 || again > 5 {
		t.Errorf("over a limit: %s", o.Figure)
	}
}
