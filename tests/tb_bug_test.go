package tests

// Bugs that people reported of other programs that read TensorBoard files, each written by a job.

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// one runs a script as a job to its end and returns its run.
func (p *plane) one(name, script string) (run string) {
	p.t.Helper()
	id := p.train(p.folder(name), p.writer(name+".py", script))
	wantEnd(p.t, p.waitOver(id, 60*time.Second), "SUCCEEDED", "", 0)
	return firstRun(id)
}

// TestB01HalfRecord: what is read in the middle of a write is waited for.
func TestB01HalfRecord(t *testing.T) {
	t.Parallel()
	promise(t, "M1 B01 a record cut anywhere is waited for: 2 points, then exactly 1 more, no error; an end that never comes is no error")
	p := newPlane(t)
	p.up()
	dir := p.folder("b01")
	id := p.train(dir, p.writer("b01.py", `
record = frame(event(summary(simple("loss", 3)), 3))
cuts = [1, 7, 8, 11, 12, 20, len(record) - 4, len(record) - 1]
files = []
for i in range(9): # the last one stays as it is
    w = Writer(os.path.join("cut%d" % i, name()))
    w.scalar("loss", 1, 1)
    w.scalar("loss", 2, 2)
    cut = cuts[i % 8]
    w.raw(record[:cut])
    files.append((w, record[cut:]))
gate("rest")
for w, rest in files[:8]: w.raw(rest)
gate("done")
`))
	run := firstRun(id)
	p.waitRunning(id)
	want := curves{}
	for i := range 9 {
		want[fmt.Sprintf("cut%d : loss", i)] = steps(1, 2)
	}
	p.waitCount(run, 20*time.Second, 18)
	pause(t, 2*time.Second)
	wantCurves(t, "cut", p.metrics(run, "").Items, byPlace, want)
	p.open(dir, "rest")
	for i := range 8 {
		want[fmt.Sprintf("cut%d : loss", i)] = steps(1, 2, 3)
	}
	p.waitCount(run, 20*time.Second, 26)
	wantCurves(t, "whole", p.metrics(run, "").Items, byPlace, want)
	p.open(dir, "done")
	wantEnd(t, p.waitOver(id, 30*time.Second), "SUCCEEDED", "", 0)
	wantCurves(t, "after the end", p.metrics(run, "").Items, byPlace, want)
	if types := p.typesOf(run); len(types) != 0 {
		t.Errorf("events %v", types)
	}
}

// TestB02Damage: what is damaged is left out and told once, with the place; what follows is read.
func TestB02Damage(t *testing.T) {
	t.Parallel()
	promise(t, "M1 B02 a damaged record is skipped and told once with its offset, memory stays bounded, the rest is read")
	p := newPlane(t)
	p.wide(8)
	_, agent := p.apart()
	tail := `
for i in range(3, 8): w.scalar("loss", i, i)
other = Writer(os.path.join("other", name()))
for i in range(5): other.scalar("fine", i, i)
`
	head := `
w = Writer(name())
w.scalar("loss", 1, 1)
open("at", "w").write(str(w.file.tell()))
`
	cases := []struct{ name, damage string }{
		{"flipped byte of the data", `r = bytearray(frame(event(summary(simple("loss", 2)), 2))); r[-7] ^= 16; w.raw(r)`},
		{"flipped byte of the tag", `r = bytearray(frame(event(summary(simple("loss", 2)), 2))); r[30] ^= 1; w.raw(r)`},
		{"flipped byte of the length", `r = bytearray(frame(event(summary(simple("loss", 2)), 2))); r[1] ^= 1; w.raw(r)`},
		{"length 2 to the 40, wrong checksum", `w.raw(struct.pack("<QI", 1 << 40, 7))`},
		{"length 2 to the 40, right checksum", `h = struct.pack("<Q", 1 << 40); w.raw(h + masked(h))`},
		{"length 2 to the 63, right checksum", `h = struct.pack("<Q", 1 << 63); w.raw(h + masked(h))`},
		{"1 MiB of random bytes", `w.raw(random.Random(5).randbytes(1 << 20))`},
		{"a record that is no event", `w.raw(frame(b"\xff" * 40))`},
		{"zeros, as after a power cut", `w.raw(bytes(4096))`},
	}
	ids := map[string]int64{}
	for i, c := range cases {
		dir := p.folder(fmt.Sprintf("case%d", i))
		ids[c.name] = p.train(dir, p.writer(fmt.Sprintf("case%d.py", i), head+c.damage+tail))
	}
	for i, c := range cases {
		run := firstRun(ids[c.name])
		wantEnd(t, p.waitOver(ids[c.name], 60*time.Second), "SUCCEEDED", "", 0)
		wantCurves(t, c.name, p.metrics(run, "").Items, byPlace, curves{" : loss": steps(1, 3, 4, 5, 6, 7), "other : fine": steps(0, 1, 2, 3, 4)})
		at, err := os.ReadFile(filepath.Join(p.work, fmt.Sprintf("case%d", i), "at"))
		if err != nil {
			t.Fatal(err)
		}
		told := 0
		for _, e := range p.events(run) {
			if e.Type == "TB_FILE_CORRUPT" {
				told++
				if !strings.Contains(e.Message, "byte "+string(at)+":") {
					t.Errorf("%s: the damage is at byte %s, told is %q", c.name, at, e.Message)
				}
			}
		}
		if told != 1 {
			t.Errorf("%s: told %d times: %v", c.name, told, p.typesOf(run))
		}
	}
	if hwm := agent.hwm(); hwm >= agentMemoryLimit {
		t.Errorf("the agent used %d MB", hwm>>20)
	}
}

// TestB03Tensors: scalars in each form that TensorFlow and others write. The values are those that tbwrite.py --self-test reads back by
// TensorBoard.
func TestB03Tensors(t *testing.T) {
	t.Parallel()
	promise(t, "M1 B03 scalars written as tensors of every type; other tensors, texts, pictures are left out; metadata only in the first record, also over a restart")
	p := newPlane(t)
	d := p.up()
	dir := p.folder("b03")
	id := p.train(dir, p.writer("b03.py", `
w = Writer(name())
def round(step):
    for form, value in EXAMPLES.items():
        for plugin in ("", "scalars"):
            for rank, sizes in ((0, ()), (1, (1,)), (2, (1, 1))):
                w.tensor("%s %s %d" % (form, plugin, rank), form, value, step, plugin if step == 1 else "", sizes)
    # of another plugin, which only the first record says
    w.tensor("other", "float_val", 9, step, "pr_curves" if step == 1 else "")
    w.add(summary(matrix("matrix", [[1, 2], [3, 4]]), text("words", "hello"), image("picture", b"\x89PNG" * 99)), step)
    w.add(summary(simple("plain", step), matrix("vector", [[1, 2]], "scalars"), simple("plain two", -step)), step)
for step in (1, 2): round(step)
gate("more")
for step in (3, 4): round(step)
`))
	examples := map[string]float64{
		"float_val": float64(float32(0.1)), "double_val": 0.1, "int_val": -7, "int64_val": 123456789012, "bool_val": 1, "half_val": 0.333251953125,
		"content_f32": float64(float32(-0.1)), "content_f64": 1e-300, "content_i32": math.MinInt32, "content_i64": -123456789012,
		"content_u8": 200, "content_bool": 1, "content_f16": -65504, "content_bf16": 3.140625,
	}
	want := func(last int64) curves {
		c := curves{}
		for form, v := range examples {
			for _, plugin := range []string{"", "scalars"} {
				for rank := range 3 {
					name := fmt.Sprintf("%s %s %d", form, plugin, rank)
					for s := range last {
						c[name] = append(c[name], point{step: s + 1, value: v})
					}
				}
			}
		}
		for s := range last {
			c["plain"] = append(c["plain"], point{step: s + 1, value: float64(s + 1)})
			c["plain two"] = append(c["plain two"], point{step: s + 1, value: -float64(s + 1)})
		}
		return c
	}
	run := firstRun(id)
	p.waitRunning(id)
	p.waitCount(run, 20*time.Second, int64(2*len(want(1))))
	wantCurves(t, "before the restart", p.metrics(run, "").Items, byShown, want(2))
	d.kill()
	p.open(dir, "more")
	p.up()
	wantEnd(t, p.waitOver(id, 30*time.Second), "SUCCEEDED", "", 0)
	wantCurves(t, "after the restart", p.runMetrics(run).Items, byShown, want(4))
	if types := p.typesOf(run); len(types) != 0 {
		t.Errorf("events %v", types)
	}
}

// TestB04Restart: a restart from a checkpoint writes steps again. 15 steps, then a second file from 11 on that has got to 13.
func TestB04Restart(t *testing.T) {
	t.Parallel()
	promise(t, "M7 B04 a restart in the same folder, with and without SessionLog START: one line in which the newer points win, all points kept")
	p := newPlane(t)
	p.upWide(8)
	first := `
w = Writer(os.path.join("logs", name(".1")))
for i in range(1, 16): w.scalar("loss", i, i)
w.close()
`
	second := `
w = Writer(os.path.join("logs", name(".2")))
%s
for i in range(11, 14): w.scalar("loss", i + 100, i)
w.close()
`
	newer := []point{{step: 11, value: 111}, {step: 12, value: 112}, {step: 13, value: 113}}
	line := append(steps(upTo(1, 10)...), newer...)
	all := append(steps(upTo(1, 15)...), newer...)
	for name, mark := range map[string]string{"plain": "", "start": "w.add(session_start(), 11)"} {
		run := p.one("one-run-"+name, first+fmt.Sprintf(second, mark))
		wantCurves(t, name+", one run", p.metrics(run, "").Items, byShown, curves{"loss": all})
		wantCurves(t, name+", one run, attempts=run", p.metrics(run, "attempts=run").Items, byShown, curves{"loss": all})
		wantCurves(t, name+", one run, attempts=trained", p.metrics(run, "attempts=trained").Items, byShown, curves{"loss": line})

		dir := p.folder("two-runs-" + name)
		id := p.train(dir, p.writer("two-"+name+".py", "if os.environ['GPUCTL_ATTEMPT'] == '1':"+indent(first+"sys.exit(3)")+fmt.Sprintf(second, mark)))
		wantEnd(t, p.waitOver(id, 30*time.Second), "FAILED", "EXIT_CODE", 3)
		p.ok("job", "retry", fmt.Sprint(id))
		waitFor(t, 30*time.Second, "the second attempt is over", func() bool {
			j := p.job(id)
			return len(j.Runs) == 2 && j.State == "SUCCEEDED" && j.Drained
		})
		run = fmt.Sprintf("%d.2", id)
		wantCurves(t, name+", first attempt", p.metrics(firstRun(id), "").Items, byShown, curves{"loss": steps(upTo(1, 15)...)})
		wantCurves(t, name+", second attempt", p.metrics(run, "attempts=run").Items, byShown, curves{"loss": newer})
		m := p.metrics(run, "attempts=trained")
		wantCurves(t, name+", as trained", m.Items, byShown, curves{"loss": line})
		if len(m.Items) == 1 && m.Items[0].Run != run {
			t.Errorf("%s: the line is of run %s, want that of the newest attempt", name, m.Items[0].Run)
		}
		byRun := func(s seriesShape) string { return s.Run + " " + s.Name }
		wantCurves(t, name+", all attempts", p.metrics(run, "attempts=all").Items, byRun,
			curves{firstRun(id) + " loss": steps(upTo(1, 15)...), run + " loss": newer})
	}
}

// indent puts Python lines into a block.
func indent(code string) string { return strings.ReplaceAll("\n"+code, "\n", "\n    ") + "\n" }

// TestB06Gone: the folder is removed, replaced, renamed while it is read.
func TestB06Gone(t *testing.T) {
	t.Parallel()
	promise(t, "M1 B06 a folder removed, replaced by a smaller file, cut or renamed while it is read: nothing lost, nothing twice, the watcher lives")
	p := newPlane(t)
	d := p.upWide(8)
	story := func(name, before, after string, count int64, restart bool, want curves, key func(seriesShape) string) {
		t.Helper()
		dir := p.folder(name)
		id := p.train(dir, p.writer(name+".py", before+"\ngate('go')\n"+after+"\ngate('done')\n"))
		run := firstRun(id)
		p.waitRunning(id)
		p.waitCount(run, 20*time.Second, count)
		if restart {
			d.kill()
		}
		p.open(dir, "go")
		if restart {
			d = p.up()
		}
		n := int64(0)
		for _, c := range want {
			n += int64(len(c))
		}
		p.waitCount(run, 20*time.Second, n) // it is told while the job lives
		p.open(dir, "done")
		wantEnd(t, p.waitOver(id, 30*time.Second), "SUCCEEDED", "", 0)
		wantCurves(t, name, p.metrics(run, "").Items, key, want)
	}
	tag := func(s seriesShape) string { return s.Tag }
	ten := `
w = Writer(os.path.join("logs", "events.out.tfevents.1700000000.host"))
def put(w, a, b, tag="loss"):
    for i in range(a, b): w.scalar(tag, i, i)
put(w, 1, 11)
`
	story("removed", ten, `
shutil.rmtree("logs")
put(w, 11, 14) # the removed one is still open
w = Writer(os.path.join("logs2", name()))
put(w, 1, 4, "second")`, 10, false, curves{"loss": steps(upTo(1, 13)...), "second": steps(1, 2, 3)}, tag)
	story("replaced", ten, `
w.close()
os.remove(w.file.name)
w = Writer(w.file.name)
put(w, 11, 14)`, 10, false, curves{"logs : loss": steps(upTo(1, 13)...)}, byPlace)
	story("cut", ten, `
w.close()
w = Writer(w.file.name, "wb")
put(w, 11, 14)`, 10, false, curves{"logs : loss": steps(upTo(1, 13)...)}, byPlace)
	story("moved-over", ten, `
w.close()
n = Writer("new")
put(n, 11, 14)
os.rename("new", w.file.name)
put(n, 14, 16)`, 10, false, curves{"logs : loss": steps(upTo(1, 15)...)}, byPlace)
	renamed := `
os.rename("logs", "older")
put(w, 11, 14)
v = Writer(os.path.join("older", "events.out.tfevents.1700000001.host"))
put(v, 1, 4, "second")`
	story("renamed", ten, renamed, 10, false, curves{"loss": steps(upTo(1, 13)...), "second": steps(1, 2, 3)}, tag)
	story("renamed-while-away", ten, renamed, 10, true, curves{"loss": steps(upTo(1, 13)...), "second": steps(1, 2, 3)}, tag)
	run := p.one("flicker", `
for i in range(200): # gone before anybody can look; some are seen
    Writer(os.path.join("logs", name(".%d" % i))).close()
    shutil.rmtree("logs")
w = Writer(os.path.join("logs", name()))
for i in range(5): w.scalar("loss", i, i)
`)
	wantCurves(t, "flicker", p.metrics(run, "").Items, tag, curves{"loss": steps(0, 1, 2, 3, 4)})
	if !d.running() {
		t.Error("up ended")
	}
}

// TestB09NotANumber: NaN and the infinities pass through JSON, and what came with them stays.
func TestB09NotANumber(t *testing.T) {
	t.Parallel()
	promise(t, "M4 B09 NaN and infinities: strings in JSON, counted, least and greatest over finite values, other metrics of the record kept")
	p := newPlane(t)
	p.up()
	nan, inf := math.NaN(), math.Inf(1)
	run := p.one("b09", `
w = Writer(name())
values = [1, math.nan, math.inf, -math.inf, 2]
for i, v in enumerate(values): w.add(summary(simple("before", i), simple("loss", v), simple("after", -i)), i)
for i in range(3): w.scalar("all nan", math.nan, i)
w.tensor("as tensor", "content_f64", math.nan, 0)
w.raw(frame(event(summary(simple("payload", 0)[:-4] + struct.pack("<I", 0xffc12345)), 0))) # a NaN with another payload
`)
	want := curves{
		"loss":    {{step: 0, value: 1}, {step: 1, value: nan}, {step: 2, value: inf}, {step: 3, value: -inf}, {step: 4, value: 2}},
		"before":  steps(0, 1, 2, 3, 4),
		"all nan": {{step: 0, value: nan}, {step: 1, value: nan}, {step: 2, value: nan}}, "as tensor": {{step: 0, value: nan}}, "payload": {{value: nan}},
	}
	for i := range int64(5) {
		want["after"] = append(want["after"], point{step: i, value: 0 - float64(i)})
	}
	wantCurves(t, "b09", p.runMetrics(run).Items, byShown, want)
	body := p.ok("run", "metrics", run, "-o", "json")
	for _, word := range []string{`"NaN"`, `"Infinity"`, `"-Infinity"`} {
		if !strings.Contains(body, word) {
			t.Errorf("run metrics -o json has no %s", word)
		}
	}
	r := p.runMetric(run)
	loss, none := r["loss"], r["all nan"]
	if loss.Count != 5 || loss.NaN != 1 || loss.Inf != 2 || loss.Min == nil || loss.Min.value() != 1 || loss.Max == nil || loss.Max.value() != 2 {
		t.Errorf("summary of loss: %+v", loss)
	}
	if loss.Last == nil || loss.Last.Step != 4 || loss.Best == nil || loss.Best.value() != 1 {
		t.Errorf("last and best of loss: %+v", loss)
	}
	if none.Count != 3 || none.NaN != 3 || none.Min != nil || none.Max != nil || none.Best != nil || none.Last == nil || string(none.Last.Value) != `"NaN"` {
		t.Errorf("summary of a series of NaN: %+v", none)
	}
	m := p.metrics(run, question("name", "all nan", "max_points", "2"))
	if len(m.Items) != 1 || len(m.Items[0].Buckets) == 0 || m.Items[0].Buckets[0][2] != "NaN" {
		t.Errorf("buckets of a series of NaN: %+v", m.Items)
	}
	p.ok("run", "show", run)
}

// TestB11StepBack: what a step says is kept, whatever it is.
func TestB11StepBack(t *testing.T) {
	t.Parallel()
	promise(t, "M1 B11 a step that goes back, is -1 or missing: nothing dropped, order kept, told once; series with step axes of their own")
	p := newPlane(t)
	p.up()
	run := p.one("b11", `
w = Writer(name())
for i in (583400, 583500, 607500, 583600, 583700): w.scalar("loss", i, i)
for i in range(3): w.scalar("epoch", i, i)
for i in range(-1, 3): w.scalar("minus", i, i)
for i in range(3): w.scalar("none", i)
w.scalar("huge", 0, 1 << 62)
w.scalar("huge", 1, -(1 << 62))
for i in (1, 1, 1): w.scalar("same", i, i)
`)
	want := curves{
		"loss": steps(583400, 583500, 607500, 583600, 583700), "epoch": steps(0, 1, 2), "minus": steps(-1, 0, 1, 2),
		"none": {{value: 0}, {value: 1}, {value: 2}}, "huge": {{step: 1 << 62, value: 0}, {step: -1 << 62, value: 1}}, "same": steps(1, 1, 1),
	}
	wantCurves(t, "b11", p.runMetrics(run).Items, byShown, want)
	r := p.runMetric(run)
	if r["loss"].Rewinds != 1 || r["minus"].Rewinds != 0 || r["same"].Rewinds != 0 || r["huge"].Rewinds != 1 {
		t.Errorf("rewinds: %+v", r)
	}
	n := 0
	for _, e := range p.events(run) {
		if e.Type == "STEP_WENT_BACK" {
			n++
			if !strings.Contains(e.Message, "607500") || !strings.Contains(e.Message, "583600") {
				t.Errorf("event says %q", e.Message)
			}
		}
	}
	if n != 1 {
		t.Errorf("STEP_WENT_BACK %d times", n)
	}
}
