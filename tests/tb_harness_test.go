package tests

// Metrics as the tests see them: what the API and `run metrics` give, what it should be, and the jobs that write TensorBoard files.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// point is [step, time, value] in JSON. The time is ms in what we read and seconds in what TensorBoard reads; value may be a string.
type point struct {
	step  int64
	at    float64
	value float64
}

func (p *point) UnmarshalJSON(b []byte) error {
	var raw []json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil || len(raw) != 3 {
		return fmt.Errorf("%s is no point: %w", b, err)
	}
	if err := json.Unmarshal(raw[0], &p.step); err != nil {
		return err
	}
	if err := json.Unmarshal(raw[1], &p.at); err != nil {
		return err
	}
	switch string(raw[2]) {
	case `"NaN"`:
		p.value = math.NaN()
	case `"Infinity"`:
		p.value = math.Inf(1)
	case `"-Infinity"`:
		p.value = math.Inf(-1)
	default:
		return json.Unmarshal(raw[2], &p.value)
	}
	return nil
}

type seriesShape struct {
	Run     string  `json:"run"`
	Name    string  `json:"name"`
	Source  string  `json:"source"`
	Folder  string  `json:"folder"`
	Tag     string  `json:"tag"`
	Count   int64   `json:"count"`
	Points  []point `json:"points"`
	Buckets [][]any `json:"buckets"`
}

type metricsShape struct {
	Items []seriesShape `json:"items"`
	Next  int64         `json:"next"`
	State string        `json:"state"`
	Done  bool          `json:"done"`
}

// metrics reads the series of a run over REST; query as in "attempts=trained".
func (p *plane) metrics(run, query string) metricsShape {
	p.t.Helper()
	var m metricsShape
	p.mustGet("/api/v1/runs/"+run+"/metrics?"+query, &m)
	return m
}

// runMetrics reads them by the command line.
func (p *plane) runMetrics(run string) metricsShape {
	p.t.Helper()
	var m metricsShape
	out := p.ok("run", "metrics", run, "-o", "json")
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		p.t.Fatalf("run metrics %s -o json: %v in %.300s", run, err, out)
	}
	return m
}

// waitCount waits until so many points of a run are there. With more it fails at once.
func (p *plane) waitCount(run string, within time.Duration, n int64) {
	p.t.Helper()
	var got int64
	waitFor(p.t, within, fmt.Sprintf("%d points of run %s", n, run), func() bool {
		var m metricsShape
		if status, err := p.get("/api/v1/runs/"+run+"/metrics?max_points=1", &m); err != nil || status != 200 && status != 404 {
			p.t.Fatalf("metrics of run %s: status %d, %v", run, status, err)
		}
		got = m.total()
		if m.Next != got {
			p.t.Fatalf("metrics of run %s: %d points, next %d", run, got, m.Next)
		}
		return got >= n
	})
	if got > n {
		p.t.Fatalf("run %s has %d points, %d are written", run, got, n)
	}
}

// curves are points by name.
type curves map[string][]point

// The names to compare by.
func byShown(s seriesShape) string { return s.Name }
func byPlace(s seriesShape) string { return s.Folder + " : " + s.Tag }

// wantCurves fails unless got is exactly want: the same names, and for each the same steps and values, bit for bit, in the same order, with
// times (want: seconds; 0 = not looked at) that differ by no more than rounding to 100 ms does.
func wantCurves(t *testing.T, what string, got []seriesShape, name func(seriesShape) string, want curves) (n int) {
	t.Helper()
	left := maps.Clone(want)
	for _, s := range got {
		w, ok := left[name(s)]
		if !ok {
			t.Errorf("%s: series %q with %d points is not written, or twice there", what, name(s), len(s.Points))
			continue
		}
		delete(left, name(s))
		if s.Source != "tb" || s.Count != int64(len(s.Points)) {
			t.Errorf("%s: %q: source %q, count %d, %d points", what, name(s), s.Source, s.Count, len(s.Points))
		}
		if len(s.Points) != len(w) {
			t.Errorf("%s: %q: %d points, want %d: %v", what, name(s), len(s.Points), len(w), diffSteps(s.Points, w))
			continue
		}
		for i, p := range s.Points {
			if p.step != w[i].step || !sameBits(p.value, w[i].value) {
				t.Errorf("%s: %q: point %d is step %d value %v, want %d %v", what, name(s), i, p.step, p.value, w[i].step, w[i].value)
				break
			}
			if w[i].at != 0 && math.Abs(p.at-w[i].at*1000) > 51 { // 50 of 100 ms, 1 of the float
				t.Errorf("%s: %q: point %d is at %.0f ms, written at %.3f s", what, name(s), i, p.at, w[i].at)
				break
			}
			n++
		}
	}
	for name, w := range left {
		t.Errorf("%s: series %q with %d points is missing", what, name, len(w))
	}
	return n
}

// sameBits compares floats as they are stored; all NaN are one.
func sameBits(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
}

// diffSteps says in short where two curves part.
func diffSteps(got, want []point) string {
	for i := range min(len(got), len(want)) {
		if got[i].step != want[i].step || !sameBits(got[i].value, want[i].value) {
			return fmt.Sprintf("they part at point %d: step %d, want %d", i, got[i].step, want[i].step)
		}
	}
	return "one is the beginning of the other"
}

// steps gives a curve of whole numbers: value = step.
func steps(numbers ...int64) []point {
	var c []point
	for _, n := range numbers {
		c = append(c, point{step: n, value: float64(n)})
	}
	return c
}

// upTo is a, a+1, ..., b.
func upTo(a, b int64) (out []int64) {
	for ; a <= b; a++ {
		out = append(out, a)
	}
	return out
}

// total counts points.
func (m metricsShape) total() (n int64) {
	for _, s := range m.Items {
		n += s.Count
	}
	return n
}

// writer writes a Python script for a job. It has everything of tbwrite.py, and gate(NAME), which waits for a file of the working_dir.
func (p *plane) writer(name, code string) string {
	p.t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		p.t.Fatal(err)
	}
	return p.write(filepath.Join(p.work, name), fmt.Sprintf(`import math, os, random, shutil, struct, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, %q)
from tbwrite import *

def gate(name):
    while not os.path.exists(name): time.sleep(0.01)

`, here)+code)
}

// open opens a gate of a job's working_dir.
func (p *plane) open(dir, name string) { p.write(filepath.Join(dir, name), "") }

// folder makes a folder for a job below the work folder.
func (p *plane) folder(name string) string {
	p.t.Helper()
	dir := filepath.Join(p.work, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	return dir
}

// train submits a Python script as a job in a folder.
func (p *plane) train(dir, script string, args ...string) int64 {
	p.t.Helper()
	return p.submit(append([]string{"-g", "0", "-d", dir, "--", "python3", script}, args...)...)
}

// wide lets so many jobs without a card run side by side. Call it before up.
func (p *plane) wide(n int) {
	p.t.Helper()
	p.write(filepath.Join(p.home, "agent.yaml"), fmt.Sprintf("cpu_lane: %d\n", n))
}

// upWide is up with room for n jobs.
func (p *plane) upWide(n int) *daemon {
	p.t.Helper()
	p.wide(n)
	return p.up()
}

// firstRun is the run of a job's first attempt.
func firstRun(job int64) string { return fmt.Sprintf("%d.1", job) }

// waitRunning waits until a job's first run lives.
func (p *plane) waitRunning(job int64) {
	p.t.Helper()
	waitFor(p.t, 30*time.Second, fmt.Sprintf("job %d is alive", job), func() bool {
		return len(p.job(job).Runs) == 1 && p.run(firstRun(job)).State == "ALIVE"
	})
}

// waitFile waits until a file is there.
func waitFile(t *testing.T, path string) {
	t.Helper()
	waitFor(t, 30*time.Second, path, func() bool { _, err := os.Stat(path); return err == nil })
}

// tbPython is the Python that has the packages of requirements.txt: GPUCTL_PYTHON, which .ci/run makes, else python3.
func tbPython() string {
	if name := os.Getenv("GPUCTL_PYTHON"); name != "" {
		return name
	}
	return "python3"
}

// needPython gives that Python. Where it lacks a module the test is skipped on a developer's machine and fails in CI.
func needPython(t *testing.T, o *outcome, modules ...string) string {
	t.Helper()
	path, err := exec.LookPath(tbPython())
	if err != nil {
		o.missing(t, err.Error())
	}
	if out, err := exec.Command(path, "-c", "import "+strings.Join(modules, ", ")).CombinedOutput(); err != nil {
		o.missing(t, fmt.Sprintf("%s: %s; pip install -r tests/requirements.txt", path, lastLine(out)))
	}
	return path
}

func lastLine(b []byte) []byte {
	b = bytes.TrimSpace(b)
	return b[bytes.LastIndexByte(b, '\n')+1:]
}

// missing skips a test for want of something that CI must have.
func (o *outcome) missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	o.skip(t, why)
}

// tensorBoardReads gives what TensorBoard reads from a folder, by folder and tag as byPlace has them.
func tensorBoardReads(t *testing.T, python, dir string) curves {
	t.Helper()
	cmd := exec.Command(python, "tbread.py", dir)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tbread.py %s: %v\n%s", dir, err, errs.Bytes())
	}
	var folders map[string]map[string][]point
	if err := json.Unmarshal(out, &folders); err != nil {
		t.Fatal(err)
	}
	all := curves{}
	for folder, tags := range folders {
		for tag, points := range tags {
			all[byPlace(seriesShape{Folder: folder, Tag: tag})] = points
		}
	}
	return all
}

// recordedCases lists the folders of GPUCTL_CASES/tb.
func recordedCases(t *testing.T, o *outcome) []string {
	t.Helper()
	root := os.Getenv("GPUCTL_CASES")
	if root == "" {
		o.missing(t, "GPUCTL_CASES, the folder of recorded cases, is not set")
	}
	if !filepath.IsAbs(root) { // it is relative to the repository
		root = filepath.Join("..", root)
	}
	found, err := filepath.Glob(filepath.Join(root, "tb", "*", "expected.json"))
	if err != nil || len(found) == 0 {
		o.missing(t, fmt.Sprintf("there are no cases in %s/tb: %v", root, err))
	}
	var dirs []string
	for _, f := range found {
		dir, err := filepath.Abs(filepath.Dir(f))
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// recorded is one case: its event file, and what TensorBoard read from it.
func recorded(t *testing.T, dir string) (file string, want curves) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: event files %v, %v", dir, files, err)
	}
	return files[0], want
}

// question makes a query of names that may have spaces and brackets.
func question(pairs ...string) string {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q.Encode()
}

// typesOf are the types of events of a run, sorted, those that every run has left out.
func (p *plane) typesOf(run string) []string {
	p.t.Helper()
	var types []string
	for _, e := range p.events(run) {
		if !strings.HasPrefix(e.Type, "RUN_") && !strings.HasPrefix(e.Type, "JOB_") {
			types = append(types, e.Type)
		}
	}
	slices.Sort(types)
	return types
}

// shortShape is one series of a run in short.
type shortShape struct {
	Name     string
	Source   string
	Goal     *string
	GoalFrom string `json:"goal_from"`
	Primary  bool
	Last     *shortPoint
	Best     *shortPoint
	Min      *shortPoint
	Max      *shortPoint
	Count    int64
	NaN      int64 `json:"nan_count"`
	Inf      int64 `json:"inf_count"`
	Rewinds  int64
	Trend    *string
}

type shortPoint struct {
	Step  int64
	AtMS  int64 `json:"at_ms"`
	Value json.RawMessage
}

// value is the value when it is a number.
func (p *shortPoint) value() float64 {
	var v float64
	if json.Unmarshal(p.Value, &v) != nil {
		return math.NaN()
	}
	return v
}

// runMetric gives the series of a run in short, by shown name.
func (p *plane) runMetric(run string) map[string]shortShape {
	p.t.Helper()
	var r struct{ Metrics []shortShape }
	p.mustGet("/api/v1/runs/"+run, &r)
	all := map[string]shortShape{}
	for _, m := range r.Metrics {
		all[m.Name] = m
	}
	if len(all) != len(r.Metrics) {
		p.t.Errorf("run %s: %d metrics with %d names", run, len(r.Metrics), len(all))
	}
	return all
}
