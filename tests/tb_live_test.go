package tests

// Trainings that write by tensorboardX while the platform is killed, shares their folder, or is away.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// liveScript is the training in testdata/tblive.py.
func liveScript(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("testdata/tblive.py")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLiveTraining(t *testing.T) {
	t.Parallel()
	o := promise(t, "M1 a training written by tensorboardX with kill -9 of up in the middle: the points are what TensorBoard reads from the files")
	python := needPython(t, o, "tensorboardX", "tensorboard")
	seconds, kills, rounds := 8, 3, 1
	if slow {
		seconds, kills, rounds = 30, 8, 2
	}
	points := 0
	for round := range rounds {
		t.Run(fmt.Sprintf("seed%d", round+1), func(t *testing.T) { // one after the other: points is theirs in turn
			rnd := rand.New(rand.NewPCG(uint64(round+1), 4))
			p := newPlane(t)
			d := p.up()
			dir := p.folder("training")
			id := p.submit("-g", "0", "-d", dir, "--", python, liveScript(t), fmt.Sprint(seconds), "logs", fmt.Sprint(round+1))
			began := time.Now()
			span := time.Duration(seconds) * time.Second * 9 / 10 / time.Duration(kills)
			for k := range kills {
				if at := began.Add(time.Duration(k)*span + time.Duration(rnd.Int64N(int64(span)))); at.After(time.Now()) {
					pause(t, time.Until(at))
				}
				d.kill()
				pause(t, time.Duration(rnd.Int64N(int64(time.Second)))) // it writes on while nobody looks
				d = p.up()
			}
			wantEnd(t, p.waitOver(id, 60*time.Second), "SUCCEEDED", "", 0)
			want := tensorBoardReads(t, python, dir)
			if len(want) != 7 || len(want["logs : train/loss"]) < 100 {
				t.Fatalf("TensorBoard reads %d series, %d losses", len(want), len(want["logs : train/loss"]))
			}
			points += wantCurves(t, "live", p.runMetrics(firstRun(id)).Items, byPlace, want)
			if types := slices.DeleteFunc(p.typesOf(firstRun(id)), func(s string) bool { return s == "LOSS_NAN" }); len(types) != 0 {
				t.Errorf("events %v", types)
			}
			for _, s := range p.runMetrics(firstRun(id)).Items {
				if s.Folder == "logs/both/a" && s.Name != "a/both" {
					t.Errorf("add_scalars is shown as %q, want a/both", s.Name)
				}
			}
		})
	}
	o.Figure = fmt.Sprintf("%d points, %d kills", points, kills*rounds)
}

// TestSharedFolder: two jobs, one folder, one tag. One pair of files has no pid in the name (tensorboardX), the other has (torch).
func TestSharedFolder(t *testing.T) {
	t.Parallel()
	o := promise(t, "M1 two writers in one folder from two concurrent jobs: each run gets its own file's points only")
	python := needPython(t, o, "tensorboardX", "tensorboard")
	for _, named := range []bool{false, true} {
		t.Run(map[bool]string{false: "tensorboardX", true: "pid in the name"}[named], func(t *testing.T) {
			t.Parallel()
			p := newPlane(t)
			p.up()
			dir := p.folder("shared")
			script := p.writer("named.py", `
rnd = random.Random(sys.argv[1])
w = Writer(os.path.join("logs", name(pid=os.getpid())))
for i in range(200):
    w.scalar("train/loss", rnd.random(), i)
    time.sleep(0.01)
w.close()
`)
			var ids []int64
			for i := range 2 {
				if named {
					ids = append(ids, p.train(dir, script, fmt.Sprint(i)))
				} else {
					ids = append(ids, p.submit("-g", "0", "-d", dir, "--", python, liveScript(t), "3", "logs", fmt.Sprint(i), fmt.Sprintf(".%d", i)))
				}
			}
			for _, id := range ids {
				wantEnd(t, p.waitOver(id, 60*time.Second), "SUCCEEDED", "", 0)
			}
			a, b := *p.job(ids[0]).EndedMS, *p.job(ids[1]).StartedMS
			if a < b {
				t.Fatal("the two did not run at the same time")
			}
			files, err := filepath.Glob(filepath.Join(dir, "logs", "events.out.tfevents.*"))
			if err != nil || len(files) != 2 {
				t.Fatalf("event files %v, %v", files, err)
			}
			got := map[int64][]seriesShape{}
			for _, id := range ids {
				got[id] = slices.DeleteFunc(p.metrics(firstRun(id), "").Items, func(s seriesShape) bool { return s.Folder != "logs" })
			}
			// which file is whose: the first loss says it. From then on TensorBoard reads each file alone.
			for i, f := range files {
				alone := p.folder(fmt.Sprintf("alone%d", i))
				if err := os.Link(f, filepath.Join(alone, filepath.Base(f))); err != nil {
					t.Fatal(err)
				}
				want := curves{}
				for k, c := range tensorBoardReads(t, python, alone) {
					want["logs"+k] = c
				}
				first := want["logs : train/loss"][0].value
				owners := 0
				for _, id := range ids {
					i := slices.IndexFunc(got[id], func(s seriesShape) bool { return s.Tag == "train/loss" })
					if i < 0 || len(got[id][i].Points) == 0 || !sameBits(got[id][i].Points[0].value, first) {
						continue
					}
					owners++
					wantCurves(t, fmt.Sprintf("job %d", id), got[id], byPlace, want)
				}
				if owners != 1 {
					t.Errorf("%s belongs to %d runs", filepath.Base(f), owners)
				}
			}
		})
	}
}

// TestQuickWriter: the file is open for milliseconds only, and the process is gone soon after.
func TestQuickWriter(t *testing.T) {
	t.Parallel()
	promise(t, "M1 a writer that opens, writes and closes within milliseconds is matched to its run, alone and beside another job in the folder")
	quick := `
with Writer(os.path.join("logs", name(sys.argv[2], os.getpid() if sys.argv[1] == "pid" else None))) as w:
    for i in range(3): w.scalar("quick", i, i)
`
	want := curves{"quick": steps(0, 1, 2)}
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		p := newPlane(t)
		p.up()
		script := p.writer("quick.py", quick)
		for i := range 5 {
			for _, kind := range []string{"pid", "plain"} {
				id := p.train(p.folder(fmt.Sprintf("%s-%d", kind, i)), script, kind, "")
				wantEnd(t, p.waitOver(id, 30*time.Second), "SUCCEEDED", "", 0)
				wantCurves(t, fmt.Sprintf("%s %d", kind, i), p.metrics(firstRun(id), "").Items, byShown, want)
			}
		}
	})
	t.Run("beside another", func(t *testing.T) {
		t.Parallel()
		p := newPlane(t)
		p.upWide(4)
		dir := p.folder("shared")
		script := p.writer("quick.py", quick)
		long := p.train(dir, p.writer("long.py", `
w = Writer(os.path.join("logs", name(".long", os.getpid())))
for i in range(50): w.scalar("slow", i, i)
gate("done")
w.scalar("slow", 50, 50)
`))
		p.waitCount(firstRun(long), 20*time.Second, 50)
		for i := range 4 {
			for _, kind := range []string{"pid", "plain"} {
				id := p.train(dir, script, kind, fmt.Sprintf(".%d", i))
				wantEnd(t, p.waitOver(id, 30*time.Second), "SUCCEEDED", "", 0)
				wantCurves(t, fmt.Sprintf("quick one %d, %s", i, kind), p.metrics(firstRun(id), "").Items, byShown, want)
			}
		}
		p.open(dir, "done")
		wantEnd(t, p.waitOver(long, 30*time.Second), "SUCCEEDED", "", 0)
		wantCurves(t, "the other one", p.metrics(firstRun(long), "").Items, byShown, curves{"slow": steps(upTo(0, 50)...)})
	})
}

// TestDeletedWhileAway: what is known of is kept by a hard link, so it can be deleted before anybody could take it.
func TestDeletedWhileAway(t *testing.T) {
	t.Parallel()
	promise(t, "event files deleted while the server is down, or all of up, lose nothing")
	script := `
files = [Writer(os.path.join(d, name())) for d in (".", "train", "validation")]
for i in range(10):
    for w in files: w.scalar("loss", i, i)
gate("more")
for i in range(10, 500):
    for w in files: w.scalar("loss", i, i)
for w in files: os.remove(w.file.name)
shutil.rmtree("train")
for i in range(500, 1000):
    for w in files: w.scalar("loss", i, i)
for w in files: w.close()
open("written", "w").close()
gate("done")
`
	whole := steps(upTo(0, 999)...)
	want := curves{" : loss": whole, "train : loss": whole, "validation : loss": whole}
	linked := func(t *testing.T, dir string) {
		waitFor(t, 20*time.Second, "the files are held by a second name", func() bool {
			files, err := filepath.Glob(filepath.Join(dir, "*", "events.out.tfevents.*"))
			top, err2 := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
			if err != nil || err2 != nil || len(files)+len(top) != 3 {
				return false
			}
			for _, f := range append(files, top...) {
				var st syscall.Stat_t
				if syscall.Stat(f, &st) != nil || st.Nlink < 2 {
					return false
				}
			}
			return true
		})
	}
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		p := newPlane(t)
		server, _ := p.apart()
		dir := p.folder("training")
		hold := p.writer("t.py", `gate("begin")`+script)
		id := p.train(dir, hold)
		p.waitRunning(id)
		server.kill() // nothing is taken before the files are gone
		p.open(dir, "begin")
		linked(t, dir)
		p.open(dir, "more")
		waitFile(t, filepath.Join(dir, "written"))
		p.open(dir, "done")
		pid := p.runFile("exit.json")
		waitFile(t, pid)
		p.waitServer(p.start("gpuctl", "server"))
		wantEnd(t, p.waitOver(id, 60*time.Second), "SUCCEEDED", "", 0)
		wantCurves(t, "server away", p.metrics(firstRun(id), "").Items, byPlace, want)
	})
	t.Run("up", func(t *testing.T) {
		t.Parallel()
		p := newPlane(t)
		d := p.up()
		dir := p.folder("training")
		id := p.train(dir, p.writer("t.py", script))
		linked(t, dir)
		d.kill()
		p.open(dir, "more")
		waitFile(t, filepath.Join(dir, "written"))
		d = p.up() // and once more with the files gone and the writer alive
		p.waitCount(firstRun(id), 30*time.Second, 3000)
		d.kill()
		p.open(dir, "done")
		waitFile(t, p.runFile("exit.json"))
		p.up()
		wantEnd(t, p.waitOver(id, 60*time.Second), "SUCCEEDED", "", 0)
		wantCurves(t, "up away", p.metrics(firstRun(id), "").Items, byPlace, want)
		waitFor(t, 20*time.Second, "what is taken is let go", func() bool {
			entries, err := os.ReadDir(p.runFile("tb"))
			if err != nil {
				t.Fatal(err)
			}
			return !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return filepath.Ext(e.Name()) == "" })
		})
	})
}
