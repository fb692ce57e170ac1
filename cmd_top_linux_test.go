package main

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func topGolden() topView {
	run := func(id, name string, step, total int64) runView {
		return runView{
			ID: id, Name: name, State: runAlive, LastStep: &step, LastStepMS: agoMS(4 * time.Second),
			Progress: &runProgress{Step: step, Total: &total, ETAMS: ptr(int64(92_000)), From: "total_steps"},
		}
	}
	lost := run("13.2", "a-run-with-a-very-long-name", 123_456_789, 1_000_000_000)
	lost.State, lost.Progress.ETAMS = runLost, nil
	card := func(i int, run string) slotView {
		s := slotView{Node: "h1", Lane: laneGPU, Idx: i, Model: "NVIDIA GeForce RTX 5090", MemoryBytes: 33_700_000_000, Health: "ok"}
		if run != "" {
			s.Run, s.HeldMS = &run, agoMS(time.Hour)
		}
		return s
	}
	bad := card(3, "13.2")
	bad.Health, bad.Node = "gone", "h2"
	offered := card(2, "")
	offered.JobID, offered.HeldMS = ptr(int64(14)), agoMS(time.Second)
	cordoned := card(4, "")
	cordoned.Cordoned = true
	cpu := func(i int) slotView { return slotView{Lane: laneCPU, Idx: i, UUID: "cpu", Health: "ok"} }
	return topView{at: goldenNow, runs: map[string]runView{"12.1": run("12.1", "mae-vit", 300, 1000), "13.2": lost}, nodes: []nodeView{
		{Name: "h1", State: "ready", Slots: []slotView{card(0, "12.1"), card(1, ""), offered, cordoned, cpu(0), cpu(1)}},
		{Name: "h2", State: "unreachable", LastSeenMS: *agoMS(10 * time.Minute), Slots: []slotView{bad, cpu(0)}},
	}}
}

func TestTopPage(t *testing.T) {
	p := &printer{now: goldenNow}
	want := `gpuctl top 12:00:00, 3 of 5 cards held, 0 of 3 cpu slots; q leaves
SLOT    CARD           MEM  RUN      NAME                   TIME      STEP  AGE   LEFT

h1
  gpu0  RTX 5090       31G  12.1     mae-vit               1h00m  300/1000   4s  1m32s
`
	view := topGolden()
	got := p.topPage(view, "q leaves", 100, 0)
	if !strings.HasPrefix(got, strings.ReplaceAll(want, "12:00:00", goldenNow.Format(time.TimeOnly))) {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	for _, must := range []string{
		"  gpu1  RTX 5090       31G  free\n", "  gpu2  RTX 5090       31G  offered  to job 14 ", "  gpu4  RTX 5090       31G  free     cordoned\n", "\nh2 unreachable, heard 10m00s ago\n",
		"gone RTX 5090 ", "LOST a-run-with-a-v…", "  12.3%   4s\n", "  cpu1                      free\n",
	} {
		if !strings.Contains(got, must) {
			t.Errorf("no %q in\n%s", must, got)
		}
	}
	for drop, must := range []string{"cpu1", "h1, 2 more free", "h1, 4 more free"} {
		if got := p.topLines(view, "", 80, drop); !strings.Contains(got, must) {
			t.Errorf("drop %d: no %q in\n%s", drop, must, got)
		}
	}
	for range 40 {
		view.nodes = append(view.nodes, view.nodes[0])
	}
	for _, height := range []int{0, 1, 2, 5, 24, 50} {
		page := p.topPage(view, "q leaves", 80, height)
		lines := strings.Split(strings.TrimSuffix(page, "\n"), "\n")
		if height > 0 && len(lines) > height {
			t.Errorf("%d lines of %d", len(lines), height)
		}
		for _, l := range lines {
			if textWidth(l) > 80 {
				t.Errorf("height %d: %d columns: %s", height, textWidth(l), l)
			}
		}
	}
	if got := p.topPage(topView{}, "", 80, 24); !strings.Contains(got, "no machine yet: gpuctl up") {
		t.Error(got)
	}
}

func topAPI(t *testing.T) *fakeAPI {
	api := newFakeAPI(t)
	v := topGolden()
	api.json("GET /nodes", list[nodeView]{Items: v.nodes})
	api.json("GET /nodes/h", v.nodes[1])
	api.json("GET /runs", list[runView]{Items: []runView{v.runs["12.1"], v.runs["13.2"]}})
	slots := list[slotView]{}
	for _, n := range v.nodes {
		slots.Items = append(slots.Items, n.Slots...)
	}
	api.json("GET /slots", slots)
	return api
}

func TestTopOnce(t *testing.T) {
	api := topAPI(t)
	got := runCLI(t, api.URL, nil, "top")
	if got.code != 0 || got.err != "" || strings.Contains(got.out, "\x1b") || strings.Contains(got.out, "q leaves") || strings.Count(got.out, "\n") != 14 {
		t.Errorf("exit %d, %s\n%s", got.code, got.err, got.out)
	}
	if q := api.requests("GET /runs")[0].query; !strings.Contains(q, "state=STARTING%2CALIVE%2CEXITING%2CLOST") {
		t.Error(q)
	}
	if got := runCLI(t, api.URL, nil, "top", "--once", "--node", "h"); got.code != 0 || !strings.Contains(got.out, "h2") || strings.Contains(got.out, "mae-vit") {
		t.Errorf("%+v", got)
	}
	if got := runCLI(t, api.URL, nil, "top", "-o", "json"); !strings.HasPrefix(got.out, "{\n  \"items\": [\n    {\n      \"node\": \"h1\",") {
		t.Errorf("%+v", got)
	}
	if got := runCLI(t, api.URL, nil, "top", "-o", "wide", "--columns", "slot,name,step,left"); !strings.HasPrefix(got.out, "SLOT     NAME                             STEP                  LEFT\nh1:gpu0") && !strings.Contains(got.out, "mae-vit") {
		t.Errorf("%+v", got)
	}
	if got := runCLI(t, api.URL, nil, "top", "--node", "nowhere"); got.code != 3 {
		t.Errorf("%+v", got)
	}
}

// TestTopLive: on a terminal the page comes again, q and Ctrl-C leave with 0, an error with its code, and the terminal is as before.
func TestTopLive(t *testing.T) {
	api := topAPI(t)
	for name, c := range map[string]struct {
		act  func(tm *testTerminal, signals chan os.Signal)
		code int
	}{
		"q":      {func(tm *testTerminal, _ chan os.Signal) { tm.keys("xq") }, 0},
		"Ctrl-C": {func(_ *testTerminal, signals chan os.Signal) { signals <- os.Interrupt }, 0},
		"error": {func(*testTerminal, chan os.Signal) {
			api.on("GET /nodes", func(w http.ResponseWriter, _ *http.Request) { tellProblem(w, newProblem(codeForbidden, "", "no")) })
		}, 4},
		"server away": {func(tm *testTerminal, _ chan os.Signal) {
			api.on("GET /nodes", func(w http.ResponseWriter, _ *http.Request) { tellProblem(w, newProblem(codeUnavailable, "", "no")) })
			tm.await("trying again")
			tm.keys("q")
		}, 0},
	} {
		api.json("GET /nodes", list[nodeView]{Items: topGolden().nodes})
		tm := newTestTerminal(t)
		signals := make(chan os.Signal, 2)
		var errs strings.Builder
		cl := newCLI(tm.tty, tm.tty, &errs, []string{"GPUCTL_HOME=" + t.TempDir(), "GPUCTL_SERVER_URL=" + api.URL})
		cl.signals = signals
		before := tm.modes()
		code := make(chan int)
		go func() { code <- cl.run(t.Context(), []string{"top"}) }()
		tm.await("mae-vit")
		if tm.modes() == before {
			t.Errorf("%s: keys are not read one by one", name)
		}
		c.act(tm, signals)
		if got := <-code; got != c.code {
			t.Errorf("%s: exit %d, want %d: %s", name, got, c.code, errs.String())
		}
		if tm.modes() != before {
			t.Errorf("%s: the terminal is left with other modes", name)
		}
		tm.await(screenClose)
		if text := tm.text(); strings.Count(text, screenOpen) != 1 || !strings.HasSuffix(text, screenClose) {
			t.Errorf("%s: %q", name, text)
		}
	}
}
