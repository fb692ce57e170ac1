package tests

// Checkpoints: what a training leaves in the folders of --watch, as the built binary lists it.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type checkpointShape struct {
	ID          int64
	Run         string
	Path        string
	Kind        string
	Step        *int64
	StepFrom    *string `json:"step_from"`
	SizeBytes   int64   `json:"size_bytes"`
	State       string
	Fingerprint string
}

// checkpoints is `ckpt list -o json`, each as "name step state".
func (p *plane) checkpoints(run string) (list []checkpointShape, text string) {
	p.t.Helper()
	var l struct{ Items []checkpointShape }
	if err := json.Unmarshal([]byte(p.ok("ckpt", "list", run, "-o", "json")), &l); err != nil {
		p.t.Fatal(err)
	}
	var lines []string
	for _, k := range l.Items {
		step := "-"
		if k.Step != nil {
			step = fmt.Sprint(*k.Step)
		}
		lines = append(lines, filepath.Base(k.Path)+" "+step+" "+k.State)
	}
	return l.Items, strings.Join(lines, ", ")
}

func TestCheckpoints(t *testing.T) {
	t.Parallel()
	promise(t, "checkpoints in --watch: listed in numeric order, overwritten and deleted ones told, the last ones right after the end although they did not lie still")
	p := newPlane(t)
	p.up()
	p.script("train.sh", `#!/bin/sh
mkdir -p out/checkpoint-10
echo one > out/model_2.pt
echo two > out/model_100.pt
echo '{"global_step": 10, "max_steps": 400}' > out/checkpoint-10/trainer_state.json
echo weights > out/checkpoint-10/pytorch_model.bin
echo log > out/train.log
ln -s model_2.pt out/last.pt
echo half > out/model_7.pt.tmp
while [ ! -e go1 ]; do sleep 0.1; done
echo other >> out/model_2.pt
rm out/model_100.pt
while [ ! -e go2 ]; do sleep 0.1; done
echo three > out/model_9.pt
`)
	id := p.submit("-g", "0", "--watch", "out", "--", "./train.sh")
	run := fmt.Sprintf("%d.1", id)
	p.waitState(id, 20*time.Second, "RUNNING")
	var text string
	waitFor(t, 40*time.Second, "three checkpoints lie still", func() bool {
		_, text = p.checkpoints(run)
		return strings.Count(text, "COMPLETE") >= 3
	})
	if text != "model_100.pt 100 COMPLETE, checkpoint-10 10 COMPLETE, model_2.pt 2 COMPLETE" {
		t.Error(text)
	}
	p.write(filepath.Join(p.work, "go1"), "")
	waitFor(t, 20*time.Second, "the deletion is noticed", func() bool {
		_, text = p.checkpoints(run)
		return strings.Contains(text, "model_100.pt 100 GONE")
	})
	p.write(filepath.Join(p.work, "go2"), "")
	p.ok("job", "wait", fmt.Sprint(id))
	list, text := p.checkpoints(run)
	if text != "model_100.pt 100 GONE, checkpoint-10 10 COMPLETE, model_9.pt 9 COMPLETE, model_2.pt 2 COMPLETE, model_2.pt 2 OVERWRITTEN" {
		t.Error(text)
	}
	for _, k := range list {
		if k.Run != run || !filepath.IsAbs(k.Path) || k.Fingerprint == "" || k.SizeBytes == 0 {
			t.Errorf("%+v", k)
		}
	}
	if k := list[1]; k.Kind != "folder" || *k.StepFrom != "trainer_state" {
		t.Errorf("%+v", k)
	}
	var r struct{ Checkpoints int }
	p.mustGet("/api/v1/runs/"+run, &r)
	if r.Checkpoints != 3 {
		t.Errorf("the run counts %d", r.Checkpoints)
	}
	if n, m := p.countEvents(run, "CHECKPOINT_SAVED"), p.countEvents(run, "CHECKPOINT_GONE"); n != 5 || m != 1 {
		t.Errorf("%d saved, %d gone", n, m)
	}
	var one checkpointShape
	p.mustGet(fmt.Sprintf("/api/v1/checkpoints/%d", list[2].ID), &one)
	if one.Path != filepath.Join(p.work, "out", "model_9.pt") {
		t.Errorf("%+v", one)
	}
	if out := p.ok("ckpt", "show", fmt.Sprint(list[1].ID)); !strings.Contains(out, "trainer_state.json") || !strings.Contains(out, "checkpoint-10") {
		t.Error(out)
	}
	if out := p.ok("ckpt", "list", run, "--state", "gone"); !strings.Contains(out, "model_100.pt") || strings.Contains(out, "model_2.pt") {
		t.Error(out)
	}
}

func TestCheckpointsOfTheExample(t *testing.T) {
	t.Parallel()
	promise(t, "the bundled example's checkpoints are found with their steps")
	p := newPlane(t)
	p.up()
	example, err := filepath.Abs("../examples/mnist")
	if err != nil {
		t.Fatal(err)
	}
	for _, watch := range []string{"out", "out/checkpoints"} {
		if err := os.RemoveAll(filepath.Join(p.work, "out")); err != nil {
			t.Fatal(err)
		}
		id := p.submit("-g", "0", "--watch", watch, "--", "python3", filepath.Join(example, "train.py"), "--epochs", "3", "--hidden", "8", "--out", "out")
		p.ok("job", "wait", fmt.Sprint(id))
		list, text := p.checkpoints(fmt.Sprint(id))
		for i, want := range []string{"epoch-003.json 270 COMPLETE", "epoch-002.json 180 COMPLETE", "epoch-001.json 90 COMPLETE"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %s in %s", watch, want, text)
			}
			if watch == "out/checkpoints" && (len(list) != 3 || !strings.HasSuffix(list[i].Path, strings.Fields(want)[0])) {
				t.Errorf("%s: order %s", watch, text)
			}
		}
		if best := strings.Contains(text, "best.json"); best != (watch == "out") || len(list) > 4 {
			t.Errorf("%s: %s", watch, text)
		}
	}
}
