package tests

// Whose an event file is, where that is not plain: written by a grandchild, outside of the working_dir, or while nobody looked.

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestWrittenWhileAway(t *testing.T) {
	t.Parallel()
	promise(t, "M1 event files that a job makes and closes while up is away are found when it is back, old ones beside them are not taken")
	p := newPlane(t)
	p.wide(4)
	d := p.up()
	dir := p.folder("training")
	old := p.folder("training/logs/older")
	id := p.train(dir, p.writer("away.py", `
gate("go")
for d, n in (("logs", 20), ("logs/train", 30), ("logs/deep/er/validation", 40)):
    with Writer(os.path.join(d, name(pid=os.getpid() if n == 30 else None))) as w:
        for i in range(n): w.scalar("loss", i, i)
gate("done")
`))
	other := p.train(p.folder("other"), p.writer("other.py", `
gate("go")
with Writer(name()) as w: w.scalar("loss", 7, 7)
gate("done")
`))
	p.waitRunning(id)
	p.waitRunning(other)
	// a file that another training left long ago, copied here now
	runCommand(t, "python3", p.writer("stranger.py", `
shutil.copyfile(sys.argv[1], os.path.join(sys.argv[2], "events.out.tfevents.1600000000.elsewhere"))
`), someEvents(t, p), old)
	d.kill()
	for _, dir := range []string{dir, filepath.Join(p.work, "other")} {
		p.open(dir, "go")
		p.open(dir, "done")
	}
	waitFor(t, 20*time.Second, "both are over", func() bool {
		ended, err := filepath.Glob(filepath.Join(p.home, "runs", "*", "exit.json"))
		return err == nil && len(ended) == 2
	})
	p.up()
	for _, id := range []int64{id, other} {
		wantEnd(t, p.waitOver(id, 40*time.Second), "SUCCEEDED", "", 0)
	}
	wantCurves(t, "while away", p.metrics(firstRun(id), "").Items, byPlace, curves{
		"logs : loss": steps(upTo(0, 19)...), "logs/train : loss": steps(upTo(0, 29)...), "logs/deep/er/validation : loss": steps(upTo(0, 39)...),
	})
	wantCurves(t, "the other", p.metrics(firstRun(other), "").Items, byPlace, curves{" : loss": steps(7)})
}

// someEvents is some event file with scalars in it.
func someEvents(t *testing.T, p *plane) string {
	t.Helper()
	path := filepath.Join(p.work, "some.tfevents.file")
	runCommand(t, "python3", p.writer("some.py", `
with Writer(sys.argv[1]) as w: w.scalar("loss", 1, 1)
`), path)
	return path
}

func TestOutsideTheWorkingDir(t *testing.T) {
	t.Parallel()
	promise(t, "M1 event files outside of the working_dir: those that the job's tree has open, by a grandchild in its own session too, and those in --tb; old ones there are not taken")
	p := newPlane(t)
	p.upWide(4)
	outside := p.folder("outside")
	runCommand(t, "python3", p.writer("old.py", `
with Writer(os.path.join(sys.argv[1], "events.out.tfevents.1600000000.host")) as w: w.scalar("old", 1, 1)
os.utime(w.file.name, (1600000000, 1600000000))
`), outside)
	grandchild := p.writer("grandchild.py", `
if len(sys.argv) == 2:
    import subprocess
    subprocess.Popen([sys.executable, __file__, sys.argv[1], "again"], start_new_session=True)
    gate("done")
    sys.exit()
w = Writer(os.path.join(sys.argv[1], "train", name()))
for i in range(10):
    w.scalar("loss", i, i)
    time.sleep(0.5) # nobody is told of new files there: the open ones of the tree are looked at each second
w.close()
open("done", "w").close()
`)
	id := p.train(p.folder("a"), grandchild, filepath.Join(outside, "open"))
	wantEnd(t, p.waitOver(id, 40*time.Second), "SUCCEEDED", "", 0)
	items := p.metrics(firstRun(id), "").Items
	wantCurves(t, "grandchild", items, byShown, curves{"train/loss": steps(upTo(0, 9)...)})

	quick := p.writer("outside.py", `
with Writer(os.path.join(sys.argv[1], "validation", name(".quick"))) as w:
    for i in range(5): w.scalar("loss", i, i)
with Writer(os.path.join(sys.argv[1], name(".top"))) as w: w.scalar("top", 1, 1)
`)
	id = p.submit("-g", "0", "-d", p.folder("b"), "--tb", outside, "--", "python3", quick, outside)
	run := firstRun(id)
	wantEnd(t, p.waitOver(id, 40*time.Second), "SUCCEEDED", "", 0)
	wantCurves(t, "--tb", p.metrics(run, "").Items, byPlace, curves{"validation : loss": steps(upTo(0, 4)...), " : top": steps(1)})
	told := false
	for _, e := range p.events(run) {
		told = told || strings.Contains(e.Message, "events.out.tfevents.1600000000.host") || strings.Contains(e.Message, outside)
	}
	if !told {
		t.Errorf("the older file in --tb is not named: %v", p.typesOf(run))
	}
	id = p.train(p.folder("c"), quick, outside+"-unknown") // closed at once, and nobody said where
	wantEnd(t, p.waitOver(id, 40*time.Second), "SUCCEEDED", "", 0)
	if n := p.metrics(firstRun(id), "").total(); n != 0 && n != 6 {
		t.Errorf("%d points of files that were open for a moment: all or none", n)
	}
}

// TestEndsInTheMiddle: whatever way a run ends, what it had written is there when it counts as drained.
func TestEndsInTheMiddle(t *testing.T) {
	t.Parallel()
	promise(t, "M1 a run that is cancelled, killed or exits at once after a write: all that is in the file is there when the run is drained")
	p := newPlane(t)
	p.upWide(4)
	script := p.writer("middle.py", `
import signal
w = Writer(os.path.join("logs", name()))
rnd = random.Random(4)
def more(n, a=[0]):
    for i in range(n):
        w.scalar("loss", a[0], a[0])
        a[0] += 1
def leave(*_):
    more(1000)
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
more(1000)
if sys.argv[1] == "exit": os._exit(5)
if sys.argv[1] == "half":
    w.raw(frame(event(summary(simple("loss", 0)), 1000))[:-3])
    os._exit(5)
if sys.argv[1] == "kill": os.kill(os.getpid(), 9)
open("written", "w").close()
while True: time.sleep(1)
`)
	for _, c := range []struct {
		how, state string
		code, n    int64
	}{{"exit", "FAILED", 5, 1000}, {"half", "FAILED", 5, 1000}, {"cancel", "CANCELLED", 0, 2000}} {
		dir := p.folder(c.how)
		id := p.train(dir, script, c.how)
		if c.how == "cancel" {
			waitFile(t, filepath.Join(dir, "written"))
			p.ok("job", "cancel", fmt.Sprint(id))
		}
		wantEnd(t, p.waitOver(id, 30*time.Second), c.state, "", c.code)
		wantCurves(t, c.how, p.metrics(firstRun(id), "").Items, byShown, curves{"loss": steps(upTo(0, c.n-1)...)})
	}
	id := p.submit("-g", "0", "--max-attempts", "1", "-d", p.folder("kill"), "--", "python3", script, "kill")
	wantEnd(t, p.waitOver(id, 30*time.Second), "FAILED", "", -1)
	wantCurves(t, "kill", p.metrics(firstRun(id), "").Items, byShown, curves{"loss": steps(upTo(0, 999)...)})
}
