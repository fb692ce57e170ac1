package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestEnvFields(t *testing.T) {
	full := `{"os":"linux 6.1 amd64","cpus":8,"python":{"version":"3.12.1","path":"/usr/bin/python3"},"gpu_driver":"570.86.15",
		"packages":{"virtual_env":"/v","count":214,"versions":{"accelerate":"1.0","numpy":"2.1.0","torch":"2.5.1"},"torch":{"cuda":"12.4"}},
		"git":{"commit":"0123456789abcdef","branch":"main","dirty":true}}`
	for _, c := range []struct {
		raw   string
		state string
		want  string
	}{
		{full, runEnded, "python=3.12.1, venv /v|packages=torch 2.5.1 (CUDA 12.4), numpy 2.1.0, accelerate 1.0; 214 installed|git=0123456789ab on main with uncommitted changes|gpu driver=570.86.15|machine=linux 6.1 amd64, 8 CPUs"},
		{`{"os":"x","python":null,"git":null,"gpu_driver":null}`, runEnded, "python=none found|packages=|git=no work tree|gpu driver=none found|machine=x"},
		{
			`{"os":"x","cpus":2,"python":{"path":"/p","error":"timed out"},"packages":{"error":"timed out"},"git":{"error":"git is not there"}}`, runEnded,
			"python=version not known: timed out, /p|packages=not known: timed out|git=not known: git is not there|gpu driver=none found|machine=x, 2 CPUs",
		},
		{`{"os":"x","python":{"version":"3.9"},"git":{"commit":"abc","dirty":null}}`, runEnded, "python=3.9|packages=not known|git=abc, whether changed is not known|gpu driver=none found|machine=x"},
		{"", runAlive, "environment=not known yet"},
		{"null", runEnded, "environment=not known"},
		{"{", runEnded, "environment=not known: the snapshot cannot be read"},
	} {
		var got []string
		for _, f := range envFields(runView{State: c.state, Drained: true, EnvSnapshot: json.RawMessage(c.raw)}) {
			got = append(got, f.key+"="+f.text)
		}
		if text := strings.Join(got, "|"); text != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.raw, text, c.want)
		}
	}
}

func TestProgressText(t *testing.T) {
	for want, c := range map[string]struct {
		p     *runProgress
		state string
	}{
		"": {nil, runAlive},
		"120 of 1000 (12%), about 1m30s left, by tqdm":                       {&runProgress{Step: 120, Total: ptr(int64(1000)), ETAMS: ptr(int64(90_000)), From: "tqdm"}, runAlive},
		"120 of 1000 (12%), time left not known, by total_steps":             {&runProgress{Step: 120, Total: ptr(int64(1000)), From: "total_steps"}, runAlive},
		"1000 of 1000 (100%), by trainer_state":                              {&runProgress{Step: 1000, Total: ptr(int64(1000)), From: "trainer_state"}, runEnded},
		`450 of 1000 (45%) of the bar "Epoch 3", which is a part of the run`: {&runProgress{Step: 450, Total: ptr(int64(1000)), From: "tqdm", Part: ptr("Epoch 3")}, runAlive},
		"60 of 120 (50%) of the bar in the log, which is a part of the run":  {&runProgress{Step: 60, Total: ptr(int64(120)), From: "tqdm", Part: ptr("")}, runAlive},
	} {
		if got := progressText(runView{Progress: c.p, State: c.state}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestRunShowMetrics: newest, best and trend of each metric, the primary one first, and what is known of the progress.
func TestRunShowMetrics(t *testing.T) {
	api := newFakeAPI(t)
	run := metricsRun()
	run.Progress, run.Checkpoints = &runProgress{Step: 300, Total: ptr(int64(1000)), ETAMS: ptr(int64(61_000)), From: "total_steps"}, 3
	run.LastStep, run.LastStepMS = ptr(int64(300)), ptr(int64(1))
	for range 30 {
		run.Metrics = append(run.Metrics, metricView{Name: "more"})
	}
	api.json("GET /runs/12", run)
	got := runCLI(t, api.URL, nil, "run", "show", "12")
	for _, want := range []string{
		"last step    300, ", "progress     300 of 1000 (30%), about 1m01s left, by total_steps\n", "checkpoints  3: gpuctl ckpt list 12.1\n",
		"environment  not known yet\n", "and 14 more: gpuctl run metrics 12.1\n",
	} {
		if !strings.Contains(got.out, want) {
			t.Errorf("no %q in\n%s", want, got.out)
		}
	}
	lines := strings.Split(got.out, "\n")
	i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "NAME") })
	if got.code != 0 || i < 0 || !strings.HasPrefix(lines[i+1], "val/accuracy ") || !strings.HasPrefix(lines[i+2], "train/loss ") {
		t.Errorf("exit %d, %s\n%s", got.code, got.err, got.out)
	}
	api.json("GET /runs", list[runView]{Items: []runView{run}})
	if got := runCLI(t, api.URL, nil, "run", "list", "-o", "wide", "--columns", "id,step,metric"); got.out != "ID        STEP  METRIC\n12.1  300/1000  val/accuracy 0.9 @200\n" {
		t.Errorf("%s%s", got.out, got.err)
	}
}
