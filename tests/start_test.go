package tests

// Starting: what cannot be started says why; what can gets its arguments as they were given. No shell anywhere.

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStartFailed(t *testing.T) {
	t.Parallel()
	promise(t, "command missing, not executable, folder missing: START_FAILED with the cause")
	p := newPlane(t)
	p.up()
	plain := p.write(filepath.Join(p.work, "plain.txt"), "no program\n")
	broken := p.script("broken.sh", "#!/no/such/interpreter\n")
	cases := []struct {
		name   string
		args   []string
		detail []string // each must stand in the detail
	}{
		{"missing on PATH", []string{"--", "no-such-program-here"}, []string{"no-such-program-here"}},
		{"missing path", []string{"--", "/no/such/file"}, []string{"/no/such/file"}},
		{"not executable", []string{"--", plain}, []string{"plain.txt"}},
		{"a folder", []string{"--", p.work}, []string{p.work}},
		{"interpreter missing", []string{"--", broken}, []string{"broken.sh"}},
		{"folder missing", []string{"-d", "/no/such/folder", "--", "true"}, []string{"/no/such/folder"}},
		{"folder is a file", []string{"-d", plain, "--", "true"}, []string{"plain.txt"}},
	}
	for _, c := range cases {
		id := p.submit(append([]string{"-g", "0"}, c.args...)...)
		j := p.waitOver(id, 20*time.Second)
		wantEnd(t, j, "FAILED", "START_FAILED", -1)
		for _, d := range c.detail {
			if !strings.Contains(deref(j.Detail), d) {
				t.Errorf("%s: detail %q does not name %q", c.name, deref(j.Detail), d)
			}
		}
	}
	if n := p.heldSlots(); n != 0 {
		t.Errorf("%d slots held", n)
	}
}

func TestArgumentsUnharmed(t *testing.T) {
	t.Parallel()
	promise(t, "spaces, quotes, unicode, $, ;, newlines in arguments arrive unharmed; no shell anywhere")
	p := newPlane(t)
	p.up()
	dump := p.script("dump args.py", "#!/usr/bin/env python3\nimport json, os, sys\n"+
		"json.dump([sys.argv[2:], os.getcwd(), os.environ.get('ODD')], open(sys.argv[1], 'w'))\n")
	args := []string{
		"a b", "", `"double"`, `'single'`, "$HOME", "`date`", "$(touch owned)", "; touch owned", "| cat", "*", "~", "\\n", "\\",
		"line\nbreak", "\ttab", "häß 漢字 🎉", "--gpus", "9", "-n", "--", "{lr}", "%s", "!x", "#c", "a=b", "&", ">owned", strings.Repeat("long", 3000),
	}
	check := func(file, cwd string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(p.work, file))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			args []string
			cwd  string
			odd  *string
		}
		if err := json.Unmarshal(b, &[]any{&got.args, &got.cwd, &got.odd}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.args, args) {
			t.Errorf("%s: arguments %q\nwant %q", file, got.args, args)
		}
		if got.cwd != cwd {
			t.Errorf("%s: working folder %q, want %q", file, got.cwd, cwd)
		}
		if deref(got.odd) != `$X "y"; z` {
			t.Errorf("%s: environment %q", file, deref(got.odd))
		}
		if _, err := os.Stat(filepath.Join(cwd, "owned")); err == nil {
			t.Error("a shell ran")
		}
	}
	odd := filepath.Join(p.work, "ordner mit $leerzeichen; und 'ä'")
	if err := os.Mkdir(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	id := p.submit(append([]string{"-g", "0", "-d", odd, "-e", `ODD=$X "y"; z`, "--", dump, filepath.Join(p.work, "by-cli")}, args...)...)
	wantEnd(t, p.waitOver(id, 20*time.Second), "SUCCEEDED", "", 0)
	check("by-cli", odd)

	var made jobShape
	p.post("/api/v1/jobs", map[string]any{
		"argv": append([]string{dump, filepath.Join(p.work, "by-rest")}, args...), "working_dir": odd,
		"gpus": 0, "env": map[string]string{"ODD": `$X "y"; z`},
	}, &made)
	wantEnd(t, p.waitOver(made.ID, 20*time.Second), "SUCCEEDED", "", 0)
	check("by-rest", odd)

	// Without "--" the command begins at the first word that is no flag; its own flags are its own.
	id = p.submit(append([]string{"-g", "0", "-d", odd, "-e", `ODD=$X "y"; z`, dump, filepath.Join(p.work, "no-dashes")}, args...)...)
	wantEnd(t, p.waitOver(id, 20*time.Second), "SUCCEEDED", "", 0)
	check("no-dashes", odd)
}

func TestJobEnvironment(t *testing.T) {
	t.Parallel()
	promise(t, "the job finds the documented environment, and no GPUCTL_* of the submitter")
	p := newPlane(t)
	p.up()
	show := p.script("env.py", "import json, os\njson.dump(dict(os.environ), open('env.json', 'w'))\n")
	id := p.submit("-g", "0", "-e", "EXTRA=1", "--", "python3", show)
	wantEnd(t, p.waitOver(id, 20*time.Second), "SUCCEEDED", "", 0)
	b, err := os.ReadFile(filepath.Join(p.work, "env.json"))
	if err != nil {
		t.Fatal(err)
	}
	var env map[string]string
	if err := json.Unmarshal(b, &env); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"GPUCTL_JOB_ID": "1", "GPUCTL_RUN": "1.1", "GPUCTL_ATTEMPT": "1", "CUDA_VISIBLE_DEVICES": "",
		"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONUNBUFFERED": "1", "EXTRA": "1", "GPUCTL_RUN_UID": p.run("1.1").UID,
	}
	for k, v := range want {
		if got, ok := env[k]; !ok || got != v {
			t.Errorf("%s is %q (set: %v), want %q", k, got, ok, v)
		}
	}
	for k := range env {
		if k == "GPUCTL_TOKEN" || k == "GPUCTL_HOME" || k == "GPUCTL_SERVER_URL" {
			t.Errorf("%s leaked into the job", k)
		}
	}
}

func TestVenvKept(t *testing.T) {
	t.Parallel()
	promise(t, "a venv that is active at submit is the job's: `python` is the venv's (R4)")
	p := newPlane(t)
	p.up()
	venv := filepath.Join(p.work, "venv")
	runCommand(t, "python3", "-m", "venv", "--without-pip", venv)
	env := []string{"VIRTUAL_ENV=" + venv, "PATH=" + filepath.Join(venv, "bin") + ":" + os.Getenv("PATH")}
	r := p.cliEnv(env, "job", "submit", "-q", "-g", "0", "--", "python", "-c", "import sys; print(sys.prefix)")
	if r.code != 0 {
		t.Fatalf("submit: %+v", r)
	}
	wantEnd(t, p.waitOver(1, 20*time.Second), "SUCCEEDED", "", 0)
	if got := p.lines("1.1", 0); len(got) != 1 || got[0].Text != venv {
		t.Errorf("sys.prefix %+v, want %s", got, venv)
	}
}
