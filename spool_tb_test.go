package main

// Event files as sources: real files, growing, cut, replaced, restarted; lines within their limits; large files with little of interest.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tbLife is one life of one event file's source against a server that keeps its cursor and points.
type tbLife struct {
	t      testing.TB
	path   string
	folder string
	s      *fileSource
	read   *fileReader
	now    time.Time

	cur     wireCursor
	series  map[string][]tbPoint // of the present generation, by name
	rejects []string
	lines   int
	longest int
}

func newTBLife(t testing.TB, path, folder string) *tbLife {
	l := &tbLife{t: t, path: path, folder: folder, now: time.Now(), series: map[string][]tbPoint{}, read: &fileReader{slice: feedSliceBytes, line: fileLineTarget}}
	l.restart()
	t.Cleanup(func() {
		if err := l.s.close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *tbLife) restart() {
	if l.s != nil {
		if err := l.s.close(); err != nil {
			l.t.Fatal(err)
		}
	}
	l.s = newTBSource(sourceName(sourceTB, "ab12"), l.path, l.folder, l.read, func(sourceNews) {})
	l.s.align(l.cur)
}

func (l *tbLife) finish() {
	st, err := os.Stat(l.path)
	if err != nil {
		l.t.Fatal(err)
	}
	l.s.finish(st.Size())
}

// fill makes lines once.
func (l *tbLife) fill() (again bool, err error) {
	l.now = l.now.Add(100 * time.Millisecond)
	return l.s.fill(l.now, batchTargetBytes)
}

// take gives the server what was made, or loses the last part of it and the answer.
func (l *tbLife) take(lines int, answer bool) {
	l.t.Helper()
	for _, p := range l.s.pend[:lines] {
		l.apply(p.raw)
	}
	if !answer {
		return
	}
	if !l.s.acked(lines, l.cur) {
		l.t.Fatalf("not acked: %+v", l.cur)
	}
}

func (l *tbLife) apply(raw []byte) {
	l.t.Helper()
	l.lines++
	l.longest = max(l.longest, len(raw))
	var b batchLine
	if err := json.Unmarshal(raw, &b); err != nil {
		l.t.Fatal(err)
	}
	switch {
	case b.Kind != kindPoints || b.To < b.From || l.cur.Done:
		l.t.Fatalf("line %.200s after %+v", raw, l.cur)
	case b.Reset && b.Gen == l.cur.Gen+1 && b.From == 0 && b.Old == l.cur.Off && b.Prev == l.cur.Print:
		l.series, l.rejects = map[string][]tbPoint{}, nil
	case b.Gen != l.cur.Gen || b.From != l.cur.Off || b.Prev != l.cur.Print:
		l.t.Fatalf("line %.200s does not follow %+v", raw, l.cur)
	}
	var items []pointColumns
	if len(b.Items) > 0 {
		if err := json.Unmarshal(b.Items, &items); err != nil {
			l.t.Fatal(err)
		}
	}
	n, named := l.cur.N, map[string]bool{}
	for _, it := range items {
		if it.Rej != "" {
			l.rejects = append(l.rejects, it.Rej)
			n++
			continue
		}
		if it.Name == "" || len(it.Name) > nameMaxBytes || named[it.Name] || len(it.Folder) > nameMaxBytes {
			l.t.Fatalf("name %q, folder %q", it.Name, it.Folder)
		}
		named[it.Name] = true
		steps, atMS, values, err := seriesUnpack(it.Packed, packedMaxCount)
		if err != nil {
			l.t.Fatal(err)
		}
		for i := range steps {
			l.series[it.Name] = append(l.series[it.Name], tbPoint{0, steps[i], atMS[i], values[i]})
		}
		n += int64(len(steps))
	}
	l.cur = wireCursor{Gen: b.Gen, Off: b.To, Print: b.Print, N: n, Done: b.End}
}

func (l *tbLife) settle() {
	l.t.Helper()
	for range 100_000 {
		again, err := l.fill()
		if err != nil {
			l.t.Fatal(err)
		}
		if k := len(l.s.pend); k > 0 {
			l.take(k, true)
		} else if !again && !l.s.torn {
			return
		}
	}
	l.t.Fatal("does not settle")
}

func (l *tbLife) points() (n int) {
	for _, s := range l.series {
		n += len(s)
	}
	return n
}

// expect compares with what the second reader says of the file; times are kept to 100 ms.
func (l *tbLife) expect(file []byte) {
	l.t.Helper()
	want := tbPlain(file)
	series := map[string][]tbPoint{}
	for _, p := range want.points {
		f := strings.Fields(p)
		step, err1 := strconv.ParseInt(f[1], 10, 64)
		at, err2 := strconv.ParseInt(f[2], 10, 64)
		bits, err3 := strconv.ParseUint(f[3], 16, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			l.t.Fatal(err)
		}
		series[f[0]] = append(series[f[0]], tbPoint{0, step, at, math.Float64frombits(bits)})
	}
	if !slices.Equal(l.rejects, want.rejects) {
		l.t.Fatalf("rejects %q, want %q", l.rejects, want.rejects)
	}
	if len(series) != len(l.series) {
		l.t.Fatalf("%d series, want %d", len(l.series), len(series))
	}
	for name, w := range series {
		same := slices.EqualFunc(l.series[name], w, func(a, b tbPoint) bool {
			return a.step == b.step && (a.value == b.value || a.value != a.value && b.value != b.value) && a.atMS-b.atMS <= 50 && b.atMS-a.atMS <= 50
		})
		if !same {
			l.t.Fatalf("%s: got %v\nwant %v", name, l.series[name], w)
		}
	}
}

func appendTo(t testing.TB, path string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.Write(b)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Files that grow in pieces, agents that die, answers that are lost: the points are those of one read of the whole.
func TestTBSourceRandom(t *testing.T) {
	rounds := uint64(25)
	if os.Getenv("GPUCTL_SLOW") != "" {
		rounds = 400
	}
	for seed := range rounds {
		rnd := rand.New(rand.NewPCG(seed, 5))
		file := tbRandomFile(rnd, seed%3 != 0)
		l := newTBLife(t, filepath.Join(t.TempDir(), "events"), "train")
		for pos := 0; pos < len(file); {
			n := min(len(file)-pos, 1+rnd.IntN([]int{100, 10_000, 500_000}[rnd.IntN(3)]))
			appendTo(t, l.path, file[pos:pos+n])
			pos += n
			if _, err := l.fill(); err != nil {
				t.Fatal(err)
			}
			switch k := len(l.s.pend); rnd.IntN(6) {
			case 0:
				l.take(rnd.IntN(k+1), false)
				l.restart()
			case 1: // not sent
			case 2:
				l.take(k, false) // the answer is lost: sent again, refused, aligned
				l.s.align(l.cur)
			case 3:
				l.take(rnd.IntN(k+1), true)
			default:
				l.settle()
			}
		}
		l.finish()
		l.settle()
		if !l.cur.Done || len(l.s.pend) > 0 {
			t.Fatalf("seed %d: %+v", seed, l.cur)
		}
		l.expect(file)
	}
}

func TestTBSourceTail(t *testing.T) {
	l := newTBLife(t, filepath.Join(t.TempDir(), "events"), "")
	whole := slices.Concat(tbVersion(), tbScalarOf(1, "loss", 1), tbScalarOf(2, "loss", 2))
	last := tbScalarOf(3, "loss", 3)
	appendTo(t, l.path, whole)
	appendTo(t, l.path, last[:20])
	l.settle()
	if l.points() != 2 || l.cur.Off != int64(len(whole)) {
		t.Fatalf("%d points, %+v", l.points(), l.cur)
	}
	appendTo(t, l.path, last[20:])
	l.settle()
	if l.points() != 3 || l.cur.Off != int64(len(whole)+len(last)) || l.lines != 2 {
		t.Fatalf("%d points, %+v, %d lines", l.points(), l.cur, l.lines)
	}
	// Killed in the middle of a record far longer than what is held: the end is where the last whole record ends.
	appendTo(t, l.path, tbEventOf(4, 4, tbImageOf("img", 3<<20))[:2<<20])
	l.settle()
	l.restart()
	l.finish()
	l.settle()
	if !l.cur.Done || len(l.rejects) != 0 || l.points() != 3 || l.cur.Off != int64(len(whole)+len(last)) {
		t.Fatalf("%+v, %q", l.cur, l.rejects)
	}
}

// A damaged tail is told when the file is finished, or when the next record is there.
func TestTBSourceDamage(t *testing.T) {
	l := newTBLife(t, filepath.Join(t.TempDir(), "events"), "")
	file := slices.Concat(tbScalarOf(1, "loss", 1), make([]byte, 200_000), tbScalarOf(2, "loss", 2), make([]byte, 100))
	appendTo(t, l.path, file[:150_000])
	l.settle()
	if l.points() != 1 || len(l.rejects) != 0 || l.cur.Off != 42 {
		t.Fatalf("%d points, %q, %+v", l.points(), l.rejects, l.cur)
	}
	l.restart()
	appendTo(t, l.path, file[150_000:])
	l.settle()
	if l.points() != 2 || len(l.rejects) != 1 {
		t.Fatalf("%d points, %q", l.points(), l.rejects)
	}
	l.finish()
	l.settle()
	if len(l.rejects) != 2 || !l.cur.Done || l.cur.Off != int64(len(file)) {
		t.Fatalf("%q, %+v", l.rejects, l.cur)
	}
	l.expect(file)
}

// A file that is replaced in place is a new generation, whatever was read or hopped over before.
func TestTBSourceReplaced(t *testing.T) {
	l := newTBLife(t, filepath.Join(t.TempDir(), "events"), "")
	appendTo(t, l.path, slices.Concat(tbScalarOf(1, "loss", 1), tbEventOf(2, 2, tbImageOf("img", 1<<20)), tbScalarOf(3, "loss", 3)))
	l.settle()
	next := slices.Concat(tbScalarOf(7, "loss", 7), tbEventOf(8, 8, tbImageOf("img", 2<<20)), tbScalarOf(9, "loss", 9))
	if err := os.WriteFile(l.path, next, 0o600); err != nil {
		t.Fatal(err)
	}
	l.settle()
	if l.cur.Gen != 1 {
		t.Fatalf("%+v", l.cur)
	}
	l.expect(next)
}

// An error of reading what lies before is one of fill; nothing is lost by it, and what was read is still sent.
func TestTBSourceHistoryError(t *testing.T) {
	one := [][]byte{pbVar(1, tfFloat), pbF32(5, 1)}
	file := slices.Concat(tbEventOf(1, 1, tbTensorOf("img", "images", one...)), tbScalarOf(1, "loss", 1))
	l := newTBLife(t, filepath.Join(t.TempDir(), "events"), "")
	appendTo(t, l.path, file)
	l.settle()
	l.restart()
	more := slices.Concat(tbScalarOf(2, "loss", 2), tbEventOf(2, 2, tbTensorOf("img", "", one...)), tbEventOf(3, 3, tbTensorOf("acc", "", one...)))
	appendTo(t, l.path, more)
	d := l.s.dec.(*tbDecoder)
	right, fail := d.history, errors.New("input/output error")
	d.history = func([]byte, int64) (int, error) { return 0, fail }
	for range 3 {
		if _, err := l.fill(); !errors.Is(err, fail) {
			t.Fatal(err)
		}
		l.take(len(l.s.pend), true)
		if l.points() != 2 {
			t.Fatalf("%d points", l.points())
		}
	}
	d.history = right
	l.settle()
	l.expect(append(file, more...))
}

// Lines stay within the limit, and nothing is lost, whatever names and values there are.
func TestTBSourceLines(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 9))
	nasty := strings.Repeat("\x01", nameMaxBytes)
	for _, c := range []struct {
		name, folder string
		record       func(i int) []byte
		records      int
		left         bool // more in one record than a line holds
	}{
		{"twenty tags", "runs/one", func(i int) []byte { return tbScalarOf(int64(i), fmt.Sprint("loss_", i%20), rnd.Float32()) }, 60_000, false},
		{"new tags in a long folder", nasty, func(i int) []byte { return tbScalarOf(int64(i), fmt.Sprint(i), 1) }, 4000, false},
		{"long new tags", nasty, func(i int) []byte { return tbScalarOf(int64(i), nasty[:nameMaxBytes-8]+fmt.Sprintf("%08d", i), 1) }, 500, false},
		{"wild steps and doubles", "", func(int) []byte {
			v := math.Float64frombits(rnd.Uint64())
			return tbEventOf(rnd.Float64()*1e11, int64(rnd.Uint64()), tbTensorOf("x", "", pbVar(1, tfDouble), pbF64(6, v)))
		}, 60_000, false},
		{"a merged summary", "a/b", func(i int) []byte {
			var v [][]byte
			for j := range 2000 {
				v = append(v, tbSimpleOf(fmt.Sprintf("layer_%d/weights/gradient_norm", j), float32(i)))
			}
			return tbEventOf(float64(i), int64(i), v...)
		}, 5, false},
		{"one record of all too many", nasty, func(i int) []byte {
			var v [][]byte
			for j := range 20_000 {
				v = append(v, tbSimpleOf(fmt.Sprint(j), float32(i)))
			}
			return tbEventOf(float64(i), int64(i), v...)
		}, 2, true},
		{"nothing but damage", "", func(i int) []byte { return tbFrame([]byte{0xff}) }, 40_000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newTBLife(t, filepath.Join(t.TempDir(), "events"), c.folder)
			var file []byte
			for i := range c.records {
				file = append(file, c.record(i)...)
			}
			appendTo(t, l.path, file)
			l.settle()
			if l.longest > batchLineMaxBytes {
				t.Errorf("a line of %d bytes", l.longest)
			}
			t.Logf("%d points, %d rejects, %d lines, the longest %d bytes", l.points(), len(l.rejects), l.lines, l.longest)
			if !c.left {
				l.expect(file)
			} else if len(l.rejects) != c.records || l.points() == 0 {
				t.Errorf("%d points, rejects %q", l.points(), l.rejects)
			}
		})
	}
}

// What a line is reckoned to need is not less than what packing makes of it.
func TestTBReckoning(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 4))
	for _, c := range []struct {
		name  string
		point func(i int) (step, atMS int64, v float64)
	}{
		{"plain", func(i int) (int64, int64, float64) {
			return int64(i), int64(i)*1000 + 1.7e12, float64(rnd.Float32())
		}},
		{"wild", func(int) (int64, int64, float64) {
			return int64(rnd.Uint64()), rnd.Int64N(253402300799999), math.Float64frombits(rnd.Uint64())
		}},
		{"large whole numbers", func(int) (int64, int64, float64) { return 0, 0, float64(rnd.Int64N(1<<54) - 1<<53) }},
		{"whole float32", func(int) (int64, int64, float64) { return 0, 0, float64(float32(rnd.Int64N(1<<54) - 1<<53)) }},
		{"whole numbers", func(int) (int64, int64, float64) { return 0, 0, float64(rnd.Int64N(1<<27) - 1<<26) }},
	} {
		for _, n := range []int{1, 2, 10, 100, 5000} {
			p := &tbPoints{}
			p.reset(0)
			tag := p.newTag([]byte("x"))
			for i := range n {
				step, atMS, v := c.point(i)
				p.add(tag, step, atMS, v)
			}
			d := &tbDecoder{folder: `""`, memory: &tbScratch{}}
			d.tbPoints = *p
			if _, items := d.made(); len(items) > p.size {
				t.Errorf("%s: %d points are %d bytes, reckoned %d", c.name, n, len(items), p.size)
			}
		}
	}
}

// A file of images is passed without reading them, with flat memory (B08).
func TestTBSourceImages(t *testing.T) {
	total, each := int64(100<<20), 500<<10
	if os.Getenv("GPUCTL_SLOW") != "" {
		total = 3 << 30
	}
	path := filepath.Join(t.TempDir(), "events")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	image := tbEventOf(1, 1, tbImageOf("img", each))
	head := image[:200] // the rest stays a hole
	steps := int64(0)
	for off := int64(0); off < total; steps++ {
		rec := append(tbScalarOf(steps, "loss", float32(steps)), head...)
		if _, err := f.WriteAt(rec, off); err != nil {
			t.Fatal(err)
		}
		off += int64(len(rec) - len(head) + len(image))
		if err := f.Truncate(off); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	l := newTBLife(t, path, "")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began, readBefore := time.Now(), bytesRead(t)
	l.settle()
	took, read := time.Since(began), bytesRead(t)-readBefore
	runtime.ReadMemStats(&after)
	if l.points() != int(steps) || len(l.rejects) != 0 || l.cur.Off < total-emptyLineBytes {
		t.Errorf("%d points of %d, %q, %+v", l.points(), steps, l.rejects, l.cur)
	}
	t.Logf("%d MiB with %d scalars: %v, %d KiB read, %d KiB allocated, heap %+d KiB", total>>20, steps, took, read>>10, (after.TotalAlloc-before.TotalAlloc)>>10, (int64(after.HeapSys)-int64(before.HeapSys))>>10)
	if read > total/20 {
		t.Errorf("%d of %d bytes were read", read, total)
	}
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 16<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	last := l.series["loss"][steps-1]
	if last.step != steps-1 || last.value != float64(steps-1) {
		t.Errorf("last point %+v", last)
	}
}

// bytesRead is what this process has read so far; 0 where the system does not say.
func bytesRead(t testing.TB) int64 {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(b, []byte("rchar: "))
	n, err := strconv.ParseInt(string(rest[:bytes.IndexByte(rest, '\n')]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Sources that nobody writes to hold little memory.
func TestTBSourceIdle(t *testing.T) {
	dir := t.TempDir()
	read := &fileReader{slice: feedSliceBytes, line: fileLineTarget}
	var file []byte
	for i := range 5000 {
		file = append(file, tbScalarOf(int64(i), fmt.Sprint("loss_", i%20), 1)...)
	}
	const many = 100
	var list []*tbLife
	for i := range many {
		l := newTBLife(t, filepath.Join(dir, fmt.Sprint(i)), "")
		l.read = read
		l.restart()
		appendTo(t, l.path, file)
		list = append(list, l)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, l := range list {
		l.settle()
		if l.points() != 5000 {
			t.Fatal(l.points())
		}
		l.series = nil
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / many; each > 64<<10 {
		t.Errorf("%d bytes for each idle source", each)
	} else {
		t.Logf("%d bytes for each idle source", each)
	}
	runtime.KeepAlive(list)
}
