package main

// The TensorBoard reader on bytes that nobody meant, and its speed.

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzTB: no panic, little memory, and the same answer however the bytes are cut, hopped over and restarted.
func FuzzTB(f *testing.F) {
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 8))
		file := tbRandomFile(rnd, seed%2 == 0)
		f.Add(file[:min(len(file), 8000)], seed)
	}
	plain := tbScalarOf(300, "loss", 1)
	f.Add(plain[tbHeadBytes:len(plain)-4], uint64(2))
	f.Add([]byte("\x09\x00\x00\x00\x00\x00\x00\x00\x00\x2a\x09\x0a\x07\x0a\x00\x15\x00\x00\x00\x3f"), uint64(3))
	one := [][]byte{pbVar(1, tfFloat), pbMsg(2, pbMsg(2, pbVar(1, 1))), pbF32(5, 1)}
	f.Add(tbEventOf(1, 1, tbTensorOf("a", "images", one...), tbTensorOf("a", "", one...), tbSimpleOf("b", 1))[tbHeadBytes:], uint64(1))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		fuzzTBFile(t, data, rnd)
		// The bytes as data of records, some of them damaged.
		var file []byte
		for rest := data; len(rest) > 0; {
			n := min(1+int(rest[0])*2, len(rest))
			rec := tbFrame(rest[:n])
			if rest[0]%8 == 1 {
				rec[rnd.IntN(len(rec))]++
			}
			file, rest = append(file, rec...), rest[n:]
		}
		fuzzTBFile(t, file, rnd)
		fuzzTBWalk(t, data, rnd)
	})
}

func fuzzTBFile(t *testing.T, file []byte, rnd *rand.Rand) {
	want := tbReadWhole(t, file)
	var cleans []int64
	r := &tbReader{}
	for _, hops := range []bool{true, false} {
		r.reset(0)
		seen, _ := tbDrive(t, r, file, 0, func() int { return 1 + rnd.IntN(200) }, hops, func() {
			if cap(r.buf) > 4*tbHeldBytes || cap(r.walk.out) > 4*tbKeptMost {
				t.Fatalf("%d and %d bytes held", cap(r.buf), cap(r.walk.out))
			}
			if r.hop() >= 0 {
				cleans = append(cleans, r.clean())
			}
		})
		if !seen.equal(want) {
			t.Fatalf("got %v\nwant %v", seen, want)
		}
	}
	if len(cleans) == 0 || cleans[0] > int64(len(file)) {
		return
	}
	from := cleans[rnd.IntN(len(cleans))]
	r = &tbReader{}
	r.history = tbPast(file)
	r.reset(from)
	rest, _ := tbDrive(t, r, file, int(from), func() int { return 1 + rnd.IntN(200) }, true, func() {})
	if k := len(want.points) - len(rest.points); k < 0 || !slices.Equal(rest.points, want.points[k:]) {
		t.Fatalf("from %d got %v\nwant the end of %v", from, rest, want)
	}
	if k := len(want.rejects) - len(rest.rejects); k < 0 || !slices.Equal(rest.rejects, want.rejects[k:]) {
		t.Fatalf("from %d got %v\nwant the end of %v", from, rest, want)
	}
}

// fuzzTBWalk: a record that is walked says what it says when it is held.
func fuzzTBWalk(t *testing.T, data []byte, rnd *rand.Rand) {
	if e, v, ok := tbParseOne(data); ok {
		same, values, ok := tbParse(data, nil)
		if !ok || len(values) != 1 || v.number != values[0].number && v.number == v.number {
			t.Fatalf("%v %v, and %v %v", e, v, same, values)
		}
		v.number, values[0].number = 0, 0
		if v != values[0] || e.step != same.step || math.Float64bits(e.wall) != math.Float64bits(same.wall) {
			t.Fatalf("%v %v, and %v %v", e, v, same, values)
		}
	}
	if len(data) > 60_000 {
		return
	}
	data = append(slices.Clone(data), pbText(99, strings.Repeat("x", 70_000))...)
	var held, walked tbPoints
	held.reset(0)
	walked.reset(0)
	e, values, ok := tbParse(data, nil)
	if ok {
		if _, err := held.take(data, e, values, 0); err != nil {
			t.Fatal(err)
		}
	}
	var w tbWalk
	w.start(int64(len(data)))
	for rest := data; len(rest) > 0; {
		if h := w.hop(); h > 0 && rnd.IntN(2) == 0 {
			w.hopped(h)
			rest = rest[h:]
			continue
		}
		n := min(1+rnd.IntN(300), len(rest))
		w.feed(rest[:n])
		rest = rest[n:]
	}
	if w.whole() != ok {
		t.Fatalf("walked: an event %v, held: %v", w.whole(), ok)
	}
	if _, err := walked.long(&w, 0); err != nil {
		t.Fatal(err)
	}
	if w.left || !ok {
		return
	}
	if !slices.EqualFunc(walked.points, held.points, func(a, b tbPoint) bool {
		a.value, b.value = 0, b.value-a.value
		return b.value != b.value || a == b
	}) {
		t.Fatalf("walked: %v, held: %v", walked.points, held.points)
	}
	for i := range walked.series {
		if walked.series[i].name != held.series[i].name {
			t.Fatalf("walked: %q, held: %q", walked.series[i].name, held.series[i].name)
		}
	}
}

// tbBenchFile is a million scalars of twenty tags, as training loops write them: 50 MB.
func tbBenchFile() []byte {
	file := make([]byte, 0, 52<<20)
	for i := range 1_000_000 {
		file = append(file, tbScalarOf(int64(i/20), fmt.Sprintf("train/metric_%02d", i%20), float32(i)*0.37)...)
	}
	return file
}

// tbFrames walks the frames and checks both checksums, nothing else.
func tbFrames(file []byte) (records int) {
	table := crc32.MakeTable(crc32.Castagnoli)
	mask := func(b []byte) uint32 {
		c := crc32.Checksum(b, table)
		return (c>>15 | c<<17) + 0xa282ead8
	}
	for o := 0; o < len(file); records++ {
		n := int(binary.LittleEndian.Uint64(file[o:]))
		if mask(file[o:o+8]) != binary.LittleEndian.Uint32(file[o+8:]) || mask(file[o+12:o+12+n]) != binary.LittleEndian.Uint32(file[o+12+n:]) {
			return -1
		}
		o += tbFrameBytes + n
	}
	return records
}

// tbColumns reads a file to columns, in the pieces and to the lines of the real source, without packing them.
func tbColumns(tb testing.TB, file []byte, memory *tbScratch) (points int) {
	d := newTBDecoder("runs/one", nil, memory)
	d.reset(0)
	for pos := 0; pos < len(file); {
		n, err := d.feed(file[pos:min(len(file), pos+feedSliceBytes)], 0)
		if err != nil || n == 0 {
			tb.Fatal(n, err)
		}
		if pos += n; d.full(fileLineTarget) || pos == len(file) {
			c, ends := d.columns()
			if len(ends) != len(d.series)+1 {
				tb.Fatal(len(ends))
			}
			points += len(c.steps)
			d.taken()
		}
	}
	return points
}

// The reader runs at least at a quarter of the speed of a loop that only walks the frames and checks both checksums. They take turns; the
// best of three counts, of more where others disturb.
func TestTBSpeed(t *testing.T) {
	file := tbBenchFile()
	best := [2]time.Duration{time.Hour, time.Hour}
	var memory tbScratch
	for round := 0; round < 3 || round < 15 && best[1] > 4*best[0]; round++ {
		for i, read := range []func() int{func() int { return tbFrames(file) }, func() int { return tbColumns(t, file, &memory) }} {
			began := time.Now()
			if n := read(); n != 1_000_000 {
				t.Fatal(n)
			}
			best[i] = min(best[i], time.Since(began))
		}
	}
	allocs := testing.AllocsPerRun(1, func() { tbColumns(t, file, &memory) })
	mb := func(d time.Duration) float64 { return float64(len(file)) / 1e6 / d.Seconds() }
	t.Logf("%.1f MB: frames and checksums %.0f MB/s, the reader to columns %.0f MB/s (%.2f of it, %.1f M points/s), %.0f allocations", float64(len(file))/1e6, mb(best[0]), mb(best[1]), mb(best[1])/mb(best[0]), 1/best[1].Seconds(), allocs)
	if best[1] > 4*best[0] {
		t.Errorf("%v, the loop takes %v", best[1], best[0])
	}
	if allocs > 5000 { // 0.005 a record: the growth of the lists of each line
		t.Errorf("%.0f allocations", allocs)
	}
}
