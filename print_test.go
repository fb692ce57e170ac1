package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// goldenNow is the time at which the golden outputs are written.
var goldenNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func goldenPrinter(out *bytes.Buffer, format string) *printer {
	return &printer{out: out, err: out, format: format, now: goldenNow}
}

func agoMS(d time.Duration) *int64 { return ptr(goldenNow.Add(-d).UnixMilli()) }

func goldenJobs() list[jobView] {
	return list[jobView]{Items: []jobView{
		{ID: 12, Name: "train.py", State: jobRunning, GPUs: 2, Node: ptr("box"), CreatedMS: *agoMS(2 * time.Hour), StartedMS: agoMS(123 * time.Minute), Argv: []string{"python", "train.py"}},
		{ID: 11, Name: "数字 training", State: jobFailed, GPUs: 0, Reason: ptr(reasonHostOOM), Signal: ptr(int64(9)), CreatedMS: *agoMS(49 * time.Hour), StartedMS: agoMS(48 * time.Hour), EndedMS: agoMS(47 * time.Hour)},
		{ID: 3, Name: "bad\x1b[2J\nname", State: jobQueued, GPUs: 1, WaitReason: ptr("both cards are busy"), CreatedMS: *agoMS(3 * time.Second)},
	}}
}

func TestGoldenJobList(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*printer)
		want string
	}{
		{"table", func(p *printer) {}, `
ID  NAME                STATE    END                  GPUS  NODE  CREATED     TIME
12  train.py            RUNNING  -                       2  box   2h00m ago  2h03m
11  数字 training       FAILED   HOST_OOM signal 9       0  -     2d01h ago  1h00m
 3  bad\x1b[2J\x0aname  QUEUED   both cards are busy     1  -     3.0s ago       -
`},
		{"columns", func(p *printer) { p.columns = []string{"name", "ID", " command"}; p.noHeaders = true }, `
train.py            12  python train.py
数字 training       11  -
bad\x1b[2J\x0aname   3  -
`},
		{"terminal of 40 columns", func(p *printer) { p.width = 40 }, `
ID  NAME                STATE    END    
12  train.py            RUNNING  -      
11  数字 training       FAILED   HOST_O…
 3  bad\x1b[2J\x0aname  QUEUED   both c…
`},
		{"names", func(p *printer) { p.format = outName }, "\n12\n11\n3\n"},
	} {
		var out bytes.Buffer
		p := goldenPrinter(&out, outTable)
		c.set(p)
		if err := printList(p, goldenJobs(), p.jobColumns(), jobName); err != nil {
			t.Fatal(err)
		}
		if got := "\n" + out.String(); got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", c.name, got, c.want)
		}
		for line := range strings.Lines(out.String()) {
			if w := textWidth(strings.TrimSuffix(line, "\n")); c.name == "terminal of 40 columns" && w > 40 {
				t.Errorf("%q is %d columns wide", line, w)
			}
		}
	}
}

func TestPrintJSON(t *testing.T) {
	var out bytes.Buffer
	p := goldenPrinter(&out, outJSON)
	if err := printList(p, list[jobView]{}, p.jobColumns(), jobName); err != nil || out.String() != "{\n  \"items\": [],\n  \"next\": null\n}\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	out.Reset()
	p.format = outNDJSON
	if err := printList(p, goldenJobs(), p.jobColumns(), jobName); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var job jobView
	if len(lines) != 3 || json.Unmarshal([]byte(lines[2]), &job) != nil || job.Name != "bad\x1b[2J\nname" {
		t.Errorf("%q", lines)
	}
}

func TestUnknownColumn(t *testing.T) {
	p := goldenPrinter(&bytes.Buffer{}, outTable)
	p.columns = []string{"nmae"}
	err := printList(p, goldenJobs(), p.jobColumns(), jobName)
	if pr, ok := asProblem(err); !ok || pr.Code != codeUsage || !strings.Contains(pr.Hint, "name,state") {
		t.Errorf("%v", err)
	}
}

func TestColour(t *testing.T) {
	f := newFakeAPI(t)
	f.json("GET /jobs", goldenJobs())
	for _, c := range []struct {
		env, args string
		coloured  bool
	}{
		{"", "", false}, // no terminal
		{"CLICOLOR_FORCE=1", "", true},
		{"CLICOLOR_FORCE=1 NO_COLOR=1", "", false},
		{"NO_COLOR=1", "--color always", true},
		{"CLICOLOR_FORCE=1", "--color never", false},
	} {
		got := runCLI(t, f.URL, strings.Fields(c.env), append(strings.Fields(c.args), "job", "list")...)
		if got.code != 0 || strings.Contains(got.out, "\x1b[31mFAILED\x1b[0m") != c.coloured || strings.Contains(got.out, "\x1b[2J") {
			t.Errorf("%s %s: %q", c.env, c.args, got.out)
		}
	}
}

func TestSafeWriter(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain\ttext\r\nü 数\n", "plain\ttext\r\nü 数\n"},
		{"\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m\x1b[0m"},
		{"\x1b[38;2;1;2;3;48:5:7mx", "\x1b[38;2;1;2;3;48:5:7mx\x1b[0m"},
		{"\x1b[2Jwipe", `\x1b[2Jwipe`},
		{"\x1b]0;title\x07", `\x1b]0;title\x07`},
		{"\x1b[31", `\x1b[31`},
		{"\x1b", `\x1b`},
		{"\x1b\x1b[1mx", `\x1b` + "\x1b[1mx\x1b[0m"},
		{"\x00\x08\x7f", `\x00\x08\x7f`},
		{"\u009b31m\u202e", `\x9b31m\u202e`},
		{"\xff\xc3", "\ufffd\ufffd"},
		{"\x1b[" + strings.Repeat("1;", 100) + "m", `\x1b[` + strings.Repeat("1;", 100) + "m"},
	} {
		for cut := range len(c.in) + 1 { // however the text is cut, the same comes out
			var out bytes.Buffer
			w := &safeWriter{w: &out}
			for _, part := range []string{c.in[:cut], c.in[cut:]} {
				if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatalf("%q: %d, %v", part, n, err)
				}
			}
			if err := w.flush(); err != nil || out.String() != c.want {
				t.Errorf("%q cut at %d: %q, %v", c.in, cut, out.String(), err)
			}
		}
	}
}

func FuzzSafeWriter(f *testing.F) {
	f.Add([]byte("\x1b[31mred\x1b[0m \x1b[2J ü"), 3)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		cut = min(max(cut, 0), len(in))
		var out bytes.Buffer
		w := &safeWriter{w: &out}
		fmt.Fprintf(w, "%s", in[:cut])
		fmt.Fprintf(w, "%s", in[cut:])
		if err := w.flush(); err != nil {
			t.Fatal(err)
		}
		if !utf8.Valid(out.Bytes()) {
			t.Errorf("%q gives %q: not UTF-8", in, out.Bytes())
		}
		for i, r := range out.String() {
			if n, _ := sgrLen(out.Bytes()[i:]); r == 0x1b && n == 0 || !harmless(r) && r != 0x1b && r != '\n' && r != '\t' && r != '\r' {
				t.Errorf("%q gives %q: a terminal obeys byte %d", in, out.Bytes(), i)
			}
		}
	})
}

// TestSinkOnTerminal: the unfinished line is redrawn in place, taken back before a whole one, clipped, and never obeyed.
func TestSinkOnTerminal(t *testing.T) {
	var out bytes.Buffer
	p := goldenPrinter(&out, outTable)
	p.width = 10
	s := newLineSink(p, false)
	s.showLive(ptr("\x1b[32m10%\x1b[0m"))
	s.showLive(ptr("10% of a long bar"))
	s.showLive(ptr("10% of a long bar")) // the same: nothing is drawn
	if err := s.line(logLine{Text: "done\x1b[2J"}); err != nil {
		t.Fatal(err)
	}
	s.showLive(nil)
	if err := s.line(logLine{Text: "\x1b[31mred", Continued: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.line(logLine{Text: " on"}); err != nil {
		t.Fatal(err)
	}
	if want := "\r\x1b[K10%\r\x1b[K10% of a…\r\x1b[Kdone" + `\x1b[2J` + "\n\x1b[31mred on\x1b[0m\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestAgo(t *testing.T) {
	p := goldenPrinter(nil, outTable)
	for _, c := range []struct {
		ms   *int64
		want string
	}{{nil, ""}, {ptr(int64(0)), ""}, {agoMS(5 * time.Minute), "5m00s ago"}, {agoMS(0), "now"}, {agoMS(-time.Second), "now"}, {agoMS(-time.Hour), "in 1h00m"}} {
		if got := p.ago(c.ms); got != c.want {
			t.Errorf("ago = %q, want %q", got, c.want)
		}
	}
	p.format = outWide
	if _, err := time.Parse(time.RFC3339, p.ago(agoMS(time.Hour))); err != nil {
		t.Error(err)
	}
}

func TestQuoteArgv(t *testing.T) {
	for want, argv := range map[string][]string{
		"python train.py --lr=1e-4":     {"python", "train.py", "--lr=1e-4"},
		`echo 'a b' '$x;' '' 'it'\''s'`: {"echo", "a b", "$x;", "", "it's"},
	} {
		if got := quoteArgv(argv); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// busyStatus is the fullest page that status must hold on a screen.
func busyStatus() statusView {
	st := statusView{Version: "v1", NowMS: goldenNow.UnixMilli(), StartedMS: *agoMS(50 * time.Hour), Jobs: map[string]int64{jobRunning: 9, jobQueued: 70, jobFailed: 12345}}
	for i := range 9 {
		st.NeedsYou = append(st.NeedsYou, "job "+strings.Repeat("x", 90))
		st.Nodes = append(st.Nodes, nodeView{Name: fmt.Sprintf("a-machine-with-a-very-long-name-%d", i), State: "unreachable", CPU: ptr(0.5), Memory: &usedTotal{Used: 100 << 30, Total: 500 << 30}})
		st.Running = append(st.Running, jobView{ID: int64(1000 + i), Name: strings.Repeat("数", 60), State: jobCancelling, Node: ptr("a-machine-with-a-very-long-name"), StartedMS: agoMS(time.Hour), Runs: []string{fmt.Sprintf("%d.1", 1000+i)}})
		st.Queued = append(st.Queued, jobView{ID: int64(2000 + i), Name: strings.Repeat("q", 80), State: jobQueued, WaitReason: ptr(strings.Repeat("because ", 20))})
	}
	return st
}

// busyRuns are the runs of busyStatus.
func busyRuns() map[string]runView {
	runs := map[string]runView{}
	for i := range 9 {
		id := fmt.Sprintf("%d.1", 1000+i)
		runs[id] = runView{ID: id, LastStepMS: agoMS(13 * time.Hour), Progress: &runProgress{Step: 123, Total: ptr(int64(9999))}}
	}
	return runs
}

func TestStatusFits(t *testing.T) {
	p := goldenPrinter(&bytes.Buffer{}, outTable)
	text := p.statusText(busyStatus(), busyRuns())
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > statusLines {
		t.Errorf("%d lines", len(lines))
	}
	for _, l := range lines {
		if w := textWidth(l); w > 80 {
			t.Errorf("%d columns: %q", w, l)
		}
	}
	for _, want := range []string{"9 running, 12345 failed", "and 67 more: gpuctl job list --state QUEUED", "and 6 more: gpuctl node list", "up 2d02h", "123/9999  13h"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// TestStatusCountsAreWhole: no number of the head is cut.
func TestStatusCountsAreWhole(t *testing.T) {
	st := statusView{Version: "v0.1.0-dev", Jobs: map[string]int64{}}
	for _, s := range jobStates {
		st.Jobs[s] = 123456
	}
	text := goldenPrinter(&bytes.Buffer{}, outTable).statusText(st, nil)
	for _, s := range jobStates {
		if !strings.Contains(text, "123456 "+strings.ToLower(s)) {
			t.Errorf("%s is missing in\n%s", s, text)
		}
	}
	for l := range strings.SplitSeq(text, "\n") {
		if textWidth(l) > 80 {
			t.Errorf("%q", l)
		}
	}
}

func TestStatusExit(t *testing.T) {
	f := newFakeAPI(t)
	f.json("GET /status", statusView{Version: "v1"})
	if got := runCLI(t, f.URL, nil, "status"); got.code != 0 || !strings.Contains(got.out, "no machine yet") {
		t.Errorf("exit %d, %s", got.code, got.out)
	}
	f.json("GET /status", busyStatus())
	f.json("GET /runs", list[runView]{})
	if got := runCLI(t, f.URL, nil, "status"); got.code != 1 || got.err != "" {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
	if got := runCLI(t, f.URL, nil, "status", "-o", "json"); got.code != 1 || !strings.HasPrefix(got.out, "{") {
		t.Errorf("exit %d, %s", got.code, got.out)
	}
}
