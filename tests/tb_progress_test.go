package tests

// How far a training is, and what it leaves, told from what it writes anyway.

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

type progressShape struct {
	Step  int64
	Total *int64
	ETAMS *int64 `json:"eta_ms"`
	From  string
}

func (p *plane) progress(run string) progressShape {
	p.t.Helper()
	var r struct{ Progress *progressShape }
	if status, err := p.get("/api/v1/runs/"+run, &r); err != nil || status != 200 && status != 404 {
		p.t.Fatalf("run %s: status %d, %v", run, status, err)
	}
	if r.Progress == nil {
		return progressShape{}
	}
	return *r.Progress
}

// wantProgress waits until a run says so of itself; a time left must be there and in the given range.
func (p *plane) wantProgress(run string, step, total int64, from string, least, most time.Duration) {
	p.t.Helper()
	var got progressShape
	waitFor(p.t, 20*time.Second, fmt.Sprintf("run %s at %d of %d by %s", run, step, total, from), func() bool {
		got = p.progress(run)
		return got.Step == step && got.Total != nil && *got.Total == total && got.From == from
	})
	if got.ETAMS == nil || *got.ETAMS < least.Milliseconds() || *got.ETAMS > most.Milliseconds() {
		b, _ := json.Marshal(got)
		p.t.Errorf("time left in %s; want %s to %s", b, least, most)
	}
	if out := p.ok("run", "show", run); !strings.Contains(out, fmt.Sprint(step)) || !strings.Contains(out, fmt.Sprint(total)) {
		p.t.Errorf("run show does not say %d of %d:\n%s", step, total, out)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	o := promise(t, "M9 progress and time left with no change to the script: a tqdm bar, --total-steps with TensorBoard steps")
	python := needPython(t, o, "tqdm")
	p := newPlane(t)
	p.upWide(4)
	// 40 of 100 steps, 0.1 s each: about 6 s left
	bar := p.submit("-g", "0", "--", python, p.writer("bar.py", `
from tqdm import tqdm
for i in tqdm(range(100)):
    if i == 40: gate("bar-done")
    if i < 40: time.sleep(0.1)
`))
	dir := p.folder("steps")
	counted := p.submit("-g", "0", "-d", dir, "--total-steps", "200", "--", "python3", p.writer("steps.py", `
w = Writer(os.path.join("logs", name()))
for i in range(1, 51):
    w.scalar("train/loss", 1 / i, i)
    time.sleep(0.1)
gate("done")
`))
	p.wantProgress(firstRun(bar), 40, 100, "tqdm", 2*time.Second, 20*time.Second)
	p.open(p.work, "bar-done")
	p.wantProgress(firstRun(counted), 50, 200, "total_steps", 5*time.Second, 60*time.Second)
	p.open(dir, "done")
	wantEnd(t, p.waitOver(bar, 30*time.Second), "SUCCEEDED", "", 0)
	wantEnd(t, p.waitOver(counted, 30*time.Second), "SUCCEEDED", "", 0)
	var r struct {
		LastStep   *int64 `json:"last_step"`
		LastStepMS *int64 `json:"last_step_ms"`
	}
	p.mustGet("/api/v1/runs/"+firstRun(counted), &r)
	if r.LastStep == nil || *r.LastStep != 50 || r.LastStepMS == nil || time.Since(time.UnixMilli(*r.LastStepMS)) > time.Minute {
		t.Errorf("last step %+v", r)
	}
}

// TestHuggingFaceLayout: the folders of a Trainer: runs/ with event files, checkpoint-N with trainer_state.json, the oldest one rotated away.
func TestHuggingFaceLayout(t *testing.T) {
	t.Parallel()
	promise(t, "C1 C2 M9 a training laid out like Hugging Face's: curves, checkpoints with step, fingerprint and metrics, progress from trainer_state.json")
	p := newPlane(t)
	p.up()
	dir := p.folder("hf")
	id := p.submit("-g", "0", "-d", dir, "--watch", "out", "--", "python3", p.writer("hf.py", `
import json
w = Writer(os.path.join("out", "runs", "Jun01_12-00-00_host", name(pid=os.getpid())))
w.add(summary(text("args/text_summary", "{}")), 0)
def save(step):
    d = "out/checkpoint-%d" % step
    os.makedirs(d)
    for f in ("config.json", "optimizer.pt", "rng_state.pth", "training_args.bin"): open(os.path.join(d, f), "w").write("{}")
    open(os.path.join(d, "model.safetensors"), "wb").write(struct.pack("<Q", 2) + b"{}" + bytes(100000 + step))
    json.dump({"global_step": step, "max_steps": 400, "epoch": step / 100}, open(os.path.join(d, "trainer_state.json"), "w"))
for step in range(5, 101, 5):
    w.add(summary(simple("train/loss", 100 - step), simple("train/learning_rate", 1e-4)), step)
    if step % 50 == 0: w.scalar("eval/loss", step / 2, step)
    if step in (50, 100): save(step)
    time.sleep(0.05)
gate("more")
for step in range(105, 151, 5): w.scalar("train/loss", 100 - step, step)
save(150)
shutil.rmtree("out/checkpoint-50")
gate("done")
save(200)
`))
	run := firstRun(id)
	p.waitRunning(id)
	ckpts := func() (text string, all map[int64]hfCheckpoint) {
		var l struct{ Items []hfCheckpoint }
		p.mustGet("/api/v1/runs/"+run+"/checkpoints", &l)
		all = map[int64]hfCheckpoint{}
		for _, k := range l.Items {
			if k.Step == nil {
				t.Fatalf("a checkpoint without step: %+v", k)
			}
			text += fmt.Sprintf("%d %s, ", *k.Step, k.State)
			all[*k.Step] = k
		}
		return text, all
	}
	waitFor(t, 60*time.Second, "two checkpoints lie still", func() bool { text, _ := ckpts(); return text == "100 COMPLETE, 50 COMPLETE, " })
	_, all := ckpts()
	for step, loss := range map[int64]float64{50: 50, 100: 0} {
		k := all[step]
		if k.Kind != "folder" || deref(k.StepFrom) != "trainer_state" || len(k.Fingerprint) != 40 || k.SizeBytes < 100000+step {
			t.Errorf("checkpoint %+v", k)
		}
		if k.Metrics["eval/loss"] != float64(step)/2 || k.Metrics["train/loss"] != loss {
			t.Errorf("metrics of checkpoint %d: %v", step, k.Metrics)
		}
	}
	p.wantProgress(run, 100, 400, "trainer_state", 0, time.Hour)
	p.open(dir, "more")
	waitFor(t, 60*time.Second, "the rotation is noticed", func() bool {
		text, _ := ckpts()
		return text == "150 COMPLETE, 100 COMPLETE, 50 GONE, "
	})
	p.wantProgress(run, 150, 400, "trainer_state", 0, time.Hour)
	p.open(dir, "done")
	wantEnd(t, p.waitOver(id, 30*time.Second), "SUCCEEDED", "", 0)
	if text, _ := ckpts(); text != "200 COMPLETE, 150 COMPLETE, 100 COMPLETE, 50 GONE, " { // at once: nobody writes any more
		t.Errorf("after the end: %s", text)
	}
	m := p.runMetric(run)
	loss := m["eval/loss"]
	if len(m) != 3 || loss.Count != 2 || loss.Best == nil || loss.Best.value() != 25 || loss.Best.Step != 50 || deref(loss.Goal) != "min" {
		t.Errorf("metrics in short: %+v", m)
	}
	if c := m["train/loss"]; deref(c.Trend) != "falling" || c.Last.Step != 150 {
		t.Errorf("trend of train/loss: %+v", c)
	}
	if out := p.ok("ckpt", "list", run); !strings.Contains(out, "checkpoint-200") {
		t.Errorf("ckpt list:\n%s", out)
	}
}

type hfCheckpoint struct {
	Kind        string
	Step        *int64
	StepFrom    *string `json:"step_from"`
	SizeBytes   int64   `json:"size_bytes"`
	State       string
	Fingerprint string
	Metrics     map[string]float64
}
