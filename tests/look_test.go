package tests

// What a person sees of a run that lives, by the command line: how far it is, what holds the slots, what fits at the prompt.

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// runProgress is the part of a run that these tests look at.
type runProgress struct {
	Step  int64   `json:"step"`
	Total *int64  `json:"total"`
	ETAMS *int64  `json:"eta_ms"`
	From  string  `json:"from"`
	Part  *string `json:"part"`
}

func (p *plane) shownProgress(run string) *runProgress {
	p.t.Helper()
	var v struct {
		Progress *runProgress `json:"progress"`
	}
	r := p.cli("run", "show", "-o", "json", run)
	if r.code == 3 { // not granted yet
		return nil
	}
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		p.t.Fatalf("exit %d: %s%s: %v", r.code, r.out, r.err, err)
	}
	return v.Progress
}

func TestProgressOfABar(t *testing.T) {
	t.Parallel()
	promise(t, "a tqdm bar in the log is the progress of its run, with the time left; nothing in the script says so")
	p := newPlane(t)
	p.up()
	bar := p.script("bar.sh", `#!/bin/sh
printf '\r  0%%|          | 0/1000 [00:00<?, ?it/s]'
printf '\r 12%%|█▏        | 120/1000 [00:12<01:30, 9.80it/s, loss=0.3]'
while [ ! -e gate ]; do sleep 0.05; done
printf '\r100%%|██████████| 1000/1000 [01:42<00:00, 9.80it/s]\n'
`)
	epochs := p.script("epochs.sh", `#!/bin/sh
printf '\repoch 2/10:  50%%|#####     | 50/100 [00:10<00:10, 5.0it/s]'
while [ ! -e gate ]; do sleep 0.05; done
`)
	one, two := p.submit("-g", "0", "-n", "bar", "--", bar), p.submit("-g", "0", "-n", "epochs", "--", epochs)
	waitFor(t, 30*time.Second, "the progress of both", func() bool {
		a, b := p.shownProgress("1.1"), p.shownProgress("2.1")
		return a != nil && a.Total != nil && *a.Total == 1000 && b != nil && b.Total != nil
	})
	if a := p.shownProgress("1.1"); a.Step != 120 || a.From != "tqdm" || a.ETAMS == nil || *a.ETAMS != 90_000 {
		t.Errorf("%+v", a)
	}
	if b := p.shownProgress("2.1"); b.Step != 150 || *b.Total != 1000 || b.ETAMS == nil || *b.ETAMS != 10_000+8*20_000 {
		t.Errorf("%+v", b)
	}
	for _, c := range []struct{ args, want string }{
		{"run show bar", "120 of 1000 (12%), about 1m30s left, by tqdm"},
		{"top --once", "1.1  bar"},
		{"top", "120/1000"},
		{"top", "2m50s"},
		{"status", "150/1000"},
		{"run list", "120/1000"},
		{"top -o json", `"lane": "cpu"`},
	} {
		if out := p.ok(strings.Fields(c.args)...); !strings.Contains(out, c.want) {
			t.Errorf("gpuctl %s: no %q in\n%s", c.args, c.want, out)
		}
	}
	p.write(filepath.Join(p.work, "gate"), "")
	wantEnd(t, p.waitOver(one, 20*time.Second), "SUCCEEDED", "", 0)
	wantEnd(t, p.waitOver(two, 20*time.Second), "SUCCEEDED", "", 0)
	if got := p.shownProgress("1.1"); got != nil && got.ETAMS != nil {
		t.Errorf("over, and still time left: %+v", got)
	}
}

func TestCompletionInBash(t *testing.T) {
	t.Parallel()
	promise(t, "bash completes commands, flags, values and ids from gpuctl's own table; a server that is away makes no noise")
	p := newPlane(t)
	p.up()
	id := p.submit("-g", "0", "-n", "hello", "--", "true")
	wantEnd(t, p.waitOver(id, 20*time.Second), "SUCCEEDED", "", 0)
	script := p.write(filepath.Join(p.work, "complete.bash"), `
source <(gpuctl completion bash) || exit 1
fits() {
	COMP_WORDS=(gpuctl "$@") COMP_CWORD=$#
	_gpuctl
	echo "$*: ${COMPREPLY[*]}"
}
fits to
fits job sh
fits job list --state = SUCC
fits run metrics -o cs
fits job show ""
fits run show ""
fits go -- ""
export GPUCTL_SERVER_URL=http://127.0.0.1:1
fits job show ""
fits job sh
complete -p gpuctl
`)
	cmd := exec.Command("bash", script)
	cmd.Env = p.plainEnv()
	out, err := cmd.CombinedOutput()
	want := `to: top token
job sh: show
job list --state = SUCC: SUCCEEDED
run metrics -o cs: csv
job show : 1
run show : 1.1 1
go -- : 
job show : 
job sh: show
complete -o default -F _gpuctl gpuctl
`
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}
