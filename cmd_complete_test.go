package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestComplete(t *testing.T) {
	api := newFakeAPI(t)
	api.json("GET /jobs", list[jobView]{Items: []jobView{{ID: 12, Name: "mae vit", State: jobRunning}, {ID: 7, Name: "x\ty\x1b[31m", State: jobFailed}}})
	api.json("GET /runs", list[runView]{Items: []runView{{ID: "12.1", Name: "mae vit", State: runAlive}}})
	api.json("GET /nodes", list[nodeView]{Items: []nodeView{{Name: "h1", State: "ready"}, {Name: "h\n2"}}})
	api.json("GET /runs/12", metricsRun())
	for _, c := range []struct{ words, want string }{
		{"", "demo up go status top logs ui job run ckpt node slot event token server agent completion version help"},
		{"jo", "job"},
		{"job|", "submit list show why wait cancel signal retry"},
		{"job|wa", "wait"},
		{"-q|--color|never|job|sh", "show"},
		{"--col", "--columns --color"},
		{"--output|", "table wide json ndjson name"},
		{"job|list|--st", "--state"},
		{"job|list|--state|", "QUEUED DISPATCHING RUNNING CANCELLING LOST SUCCEEDED FAILED CANCELLED"},
		{"job|list|--state|=|RU", "RUNNING"},
		{"job|list|--state=RU", "--state=RUNNING"},
		{"run|list|--state|AL", "ALIVE"},
		{"ckpt|list|--state|C", "COMPLETE"},
		{"agent|", "join"},
		{"node|", "list show join"},
		{"run|metrics|-o|", "table wide json ndjson name csv"},
		{"run|metrics|-o|c", "csv"},
		{"job|show|", "12 7"},
		{"job|show|12|", ""},
		{"job|wait|12|", "7"},
		{"job|signal|12|", ""},
		{"run|show|1", "12.1 12"},
		{"logs|-f|12", "12 12.1"},
		{"logs|-n|", ""},
		{"node|show|", "h1"},
		{"top|--node|", "h1"},
		{"run|metrics|12|", "train/loss lr val/accuracy loss [a, b]"},
		{"run|metrics|12|lr|l", "loss [a, b]"},
		{"completion|", "bash zsh fish"},
		{"help|job|s", "submit show signal"},
		{"go|-g|", ""},
		{"go|--|", ""},
		{"go|--|--", ""},
		{"go|python|", ""},
		{"go|python|--", ""},
		{"job|submit|--no|h", ""},
		{"job|show|--|", ""},
		{"__complete|", ""},
		{"nothing|", ""},
		{"job|nothing|", ""},
		{"logs|--=|", "12 7 12.1"},
	} {
		got := runCLI(t, api.URL, nil, append([]string{"__complete"}, strings.Split(c.words, "|")...)...)
		var values []string
		for line := range strings.Lines(got.out) {
			value, help, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			if !ok || strings.ContainsAny(help, "\t\x1b") {
				t.Errorf("%s: line %q", c.words, line)
			}
			values = append(values, value)
		}
		if text := strings.Join(values, " "); text != c.want || got.code != 0 || got.err != "" {
			t.Errorf("%s: %q, exit %d, %s; want %q", c.words, text, got.code, got.err, c.want)
		}
	}
	if got := runCLI(t, api.URL, nil, "__complete"); got.code != 0 || got.out+got.err != "" {
		t.Errorf("%+v", got)
	}
}

// TestCompleteIDs: a server that is away, slow or refuses makes no noise and no wait; an answer is kept for some seconds.
func TestCompleteIDs(t *testing.T) {
	if got := runCLI(t, "http://127.0.0.1:1", nil, "__complete", "job", "show", ""); got.code != 0 || got.out+got.err != "" {
		t.Errorf("%+v", got)
	}
	api := newFakeAPI(t)
	api.on("GET /jobs", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	began := time.Now()
	if got := runCLI(t, api.URL, nil, "__complete", "job", "show", ""); got.code != 0 || got.out+got.err != "" || time.Since(began) > 5*time.Second {
		t.Errorf("%+v after %s", got, time.Since(began))
	}
	api.on("GET /jobs", func(w http.ResponseWriter, r *http.Request) { tellProblem(w, newProblem(codeForbidden, "", "no")) })
	home := "GPUCTL_HOME=" + filepath.Join(t.TempDir(), "new")
	if got := runCLI(t, api.URL, []string{home}, "__complete", "job", "show", ""); got.code != 0 || got.out+got.err != "" {
		t.Errorf("%+v", got)
	}
	api.json("GET /jobs", list[jobView]{Items: []jobView{{ID: 12}}})
	for i, server := range []string{api.URL, api.URL, "http://127.0.0.1:1"} {
		want := "12\t \n"
		if i == 2 { // another server's are not these
			want = ""
		}
		if got := runCLI(t, server, []string{home}, "__complete", "job", "show", ""); got.out != want {
			t.Errorf("%d: %+v", i, got)
		}
	}
	if n := len(api.requests("GET /jobs")); n != 3 {
		t.Errorf("%d requests, want 3: the last answer is kept", n)
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := runCLI(t, "", nil, "completion", shell); got.code != 0 || !strings.Contains(got.out, " __complete ") {
			t.Errorf("%s: %+v", shell, got)
		}
	}
	if got := runCLI(t, "", nil, "completion", "tcsh"); got.code != 2 || !strings.Contains(got.err, "bash|fish|zsh") {
		t.Errorf("%+v", got)
	}
}
