package tests

// Recorded trainings written again by a job, piece by piece: what TensorBoard read from them is what we have.

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const replayScript = `
# usage: replay.py SEED SECONDS SRC DST [SRC DST]...
# Writes each DST in pieces cut anywhere, a flush after each, the files in turns. They stay open to the end.
rnd = random.Random(int(sys.argv[1]))
seconds = float(sys.argv[2])
todo = []
for src, dst in zip(sys.argv[3::2], sys.argv[4::2]):
    data = open(src, "rb").read()
    os.makedirs(os.path.dirname(dst) or ".", exist_ok=True)
    cuts = sorted(rnd.sample(range(1, len(data)), min(30, len(data) - 1)) + [1, 7, 9, 12, len(data) - 1])
    todo.append([open(dst, "wb"), [data[a:b] for a, b in zip([0] + cuts, cuts + [len(data)])]])
pieces = sum(len(t[1]) for t in todo)
while any(t[1] for t in todo):
    f, rest = rnd.choice([t for t in todo if t[1]])
    f.write(rest.pop(0))
    f.flush()
    time.sleep(rnd.random() * 2 * seconds / pieces)
gate("done")
`

func TestReplay(t *testing.T) {
	t.Parallel()
	o := promise(t, "M1 each recorded TensorBoard file, written in pieces by a job: every value bit for bit, same steps and order, names intact")
	p := newPlane(t)
	p.upWide(12)
	script := p.writer("replay.py", replayScript)
	type replay struct {
		name string
		dir  string
		id   int64
		want curves
	}
	var jobs []replay
	pair := replay{name: "keras pair", dir: p.folder("keras"), want: curves{}}
	var pairArgs []string
	for i, dir := range recordedCases(t, o) {
		name := filepath.Base(dir)
		file, want := recorded(t, dir)
		if split, ok := strings.CutPrefix(name, "keras-"); ok {
			pairArgs = append(pairArgs, file, filepath.Join(split, filepath.Base(file)))
			for tag, points := range want {
				pair.want[split+"/"+tag] = points
			}
			continue
		}
		r := replay{name: name, dir: p.folder(name), want: want}
		r.id = p.train(r.dir, script, fmt.Sprint(i), "3", file, filepath.Base(file))
		jobs = append(jobs, r)
	}
	pair.id = p.train(pair.dir, script, append([]string{"77", "3"}, pairArgs...)...)
	jobs = append(jobs, pair)
	if len(pairArgs) != 4 || len(jobs) < 2 {
		t.Fatalf("%d jobs, arguments of the pair %q", len(jobs), pairArgs)
	}
	points := 0
	for _, r := range jobs {
		n := int64(0)
		for _, c := range r.want {
			n += int64(len(c))
		}
		p.waitCount(firstRun(r.id), 60*time.Second, n) // all is there while the files are held open
		p.open(r.dir, "done")
	}
	for _, r := range jobs {
		wantEnd(t, p.waitOver(r.id, 60*time.Second), "SUCCEEDED", "", 0)
		points += wantCurves(t, r.name, p.runMetrics(fmt.Sprint(r.id)).Items, byShown, r.want)
		if types := p.typesOf(firstRun(r.id)); len(types) != 0 {
			t.Errorf("%s: events %v", r.name, types)
		}
		for name, want := range r.want { // one series by its name, as it stands there
			m := p.metrics(firstRun(r.id), question("name", name))
			wantCurves(t, r.name+", by name", m.Items, byShown, curves{name: want})
		}
	}
	o.Figure = fmt.Sprintf("%d points of %d jobs", points, len(jobs))
}
