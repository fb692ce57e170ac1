package tests

// Stories of the command line, testdata/cli/*.txtar. Each has a fresh `gpuctl up`.

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestCLI(t *testing.T) {
	promise(t, "the command line: every story in testdata/cli")
	files, err := filepath.Glob("testdata/cli/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			p := newPlane(t)
			p.up()
			testscript.Run(t, testscript.Params{
				Files: []string{file},
				Setup: func(env *testscript.Env) error {
					for _, kv := range p.plainEnv() {
						k, v, _ := strings.Cut(kv, "=")
						if k != "HOME" {
							env.Setenv(k, v)
						}
					}
					env.Setenv("URL", p.url())
					return nil
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": wantCode},
			})
		})
	}
}

// wantCode is the script command `code N PROGRAM ARGS...`: run it, want exit code N; stdout and stderr can be looked at afterwards.
func wantCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		ee, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = ee.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	promise(t, "without a server every command says so and ends with 5; usage errors need no server")
	p := newPlane(t)
	for _, args := range [][]string{{"job", "list"}, {"status"}, {"go", "--", "true"}, {"job", "submit", "--", "true"}} {
		r := p.cliEnv([]string{"GPUCTL_SERVER_URL=http://127.0.0.1:1"}, args...)
		want := 5
		if args[0] == "go" {
			want = 125
		}
		if r.code != want || !strings.HasPrefix(r.err, "gpuctl: ") || !strings.Contains(r.err, "\nhint: ") || r.out != "" {
			t.Errorf("gpuctl %s: exit %d, stdout %q, stderr %q; want %d", strings.Join(args, " "), r.code, r.out, r.err, want)
		}
	}
	for _, args := range [][]string{{"frobnicate"}, {"job", "lst"}, {"job", "list", "--nope"}, {"job", "show"}, {"-o", "yaml", "job", "list"}} {
		if r := p.cli(args...); r.code != 2 || !strings.Contains(r.err, "hint: ") {
			t.Errorf("gpuctl %s: exit %d, %q; want 2 and a hint", strings.Join(args, " "), r.code, r.err)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(p.home, "server")); err == nil {
		t.Errorf("a client made server files: %v", entries)
	}
}
