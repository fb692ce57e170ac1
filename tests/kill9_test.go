package tests

// kill -9 of `gpuctl up` at random points of a training: the training goes on, is adopted, and everything that the server says
// afterwards is what lies in the log file.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

const adoptWithin = 5 * time.Second

// killPlan is how long a training goes on and how often up is killed during it. GPUCTL_KILL_ROUNDS repeats it with other seeds.
func killPlan(t *testing.T) (seconds, kills, rounds int) {
	seconds, kills, rounds = 10, 2, 1
	if slow {
		seconds, kills, rounds = 60, 6, 3
	}
	if n, err := strconv.Atoi(os.Getenv("GPUCTL_KILL_ROUNDS")); err == nil && n > 0 {
		rounds = n
	}
	return seconds, kills, rounds
}

func TestKill9(t *testing.T) {
	o := promise(t, "kill -9 of up: the training goes on, adopted within 5 s, true exit, log counted exactly")
	seconds, kills, rounds := killPlan(t)
	slowest := time.Duration(0)
	for round := range rounds {
		if !t.Run(fmt.Sprintf("seed%d", round+1), func(t *testing.T) {
			slowest = max(slowest, killRound(t, uint64(round+1), seconds, kills))
		}) {
			return
		}
	}
	o.Figure = fmt.Sprintf("%d rounds of %d s, %d kills each, slowest adoption %.1f s", rounds, seconds, kills, slowest.Seconds())
}

func killRound(t *testing.T, seed uint64, seconds, kills int) (slowest time.Duration) {
	p := newPlane(t)
	d := p.up()
	soak, err := filepath.Abs("testdata/soak.py")
	if err != nil {
		t.Fatal(err)
	}
	id := p.submit("-g", "0", "-n", "soak", "--", "python3", soak, strconv.Itoa(seconds), "7", strconv.FormatUint(seed, 10))
	p.waitState(id, 20*time.Second, "RUNNING")
	var lead struct{ Pid int }
	waitFor(t, 10*time.Second, "pid.json", func() bool {
		b, err := os.ReadFile(p.runFile("pid.json"))
		return err == nil && json.Unmarshal(b, &lead) == nil && lead.Pid > 0
	})
	began := time.Now()
	rnd := rand.New(rand.NewPCG(seed, 9))
	span := time.Duration(seconds) * time.Second * 8 / 10 / time.Duration(kills)
	for k := range kills {
		at := began.Add(time.Duration(k)*span + time.Duration(rnd.Int64N(int64(span))))
		if at.After(time.Now()) {
			pause(t, time.Until(at))
		}
		d.kill()
		pause(t, time.Duration(rnd.Int64N(int64(500*time.Millisecond)))) // it writes on while nobody looks
		if !alive(lead.Pid) && time.Since(began) < time.Duration(seconds)*time.Second {
			t.Fatalf("kill %d: the training died with up", k+1)
		}
		restart := time.Now()
		d = p.up() // waits until the node said a complete hello to this incarnation
		took := time.Since(restart)
		slowest = max(slowest, took)
		if took > adoptWithin {
			t.Errorf("kill %d: adopted after %s, more than %s", k+1, took, adoptWithin)
		}
		if j := p.job(id); alive(lead.Pid) && j.State != "RUNNING" {
			t.Errorf("kill %d: job is %s while the training lives", k+1, j.State)
		}
	}
	j := p.waitOver(id, time.Duration(seconds+60)*time.Second)
	wantEnd(t, j, "FAILED", "EXIT_CODE", 7)
	if len(j.Runs) != 1 || j.Runs[0] != fmt.Sprintf("%d.1", id) {
		t.Errorf("runs %v, want one", j.Runs)
	}
	if n := p.heldSlots(); n != 0 {
		t.Errorf("%d slots are held after the end", n)
	}
	wantLogExact(t, p, j.Runs[0])
	if code := d.stop(); code != 0 {
		t.Errorf("up ended with %d on SIGTERM", code)
	}
	return slowest
}

// referenceLines folds a log file by fold.py.
func referenceLines(t *testing.T, path string) []lineShape {
	t.Helper()
	cmd := exec.Command("python3", "fold.py", path)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var lines []lineShape
	sc := bufio.NewScanner(bytes.NewReader(out))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var l lineShape
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		l.N = int64(len(lines) + 1)
		lines = append(lines, l)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// wantLogExact compares everything that the server says about the log of the home's only run with the file.
func wantLogExact(t *testing.T, p *plane, run string) {
	t.Helper()
	path := p.runFile("log.txt")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := referenceLines(t, path)
	r := p.run(run)
	if r.Log.Bytes != int64(len(file)) || r.Log.Lines != int64(len(want)) || r.Log.Truncations != 0 || r.Log.Incomplete || !r.Log.Done {
		t.Errorf("server says %+v of the log; the file has %d bytes, %d lines", r.Log, len(file), len(want))
	}
	ring := want[max(0, len(want)-2000):]
	got := p.lines(run, int64(len(want)-len(ring)))
	compareLines(t, got, ring)
	if raw := p.ok("logs", "--full", "--raw", run); raw != string(file) {
		t.Errorf("logs --full --raw gives %d bytes that are not the file's %d", len(raw), len(file))
	}
}

func compareLines(t *testing.T, got, want []lineShape) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d lines, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("line %d differs:\n got  %d %.200q %v\n want %d %.200q %v", i+1, got[i].N, got[i].Text, got[i].Continued,
				want[i].N, want[i].Text, want[i].Continued)
			return
		}
	}
}
