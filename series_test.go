package main

// The chunk coding: bit for bit, small, and safe against whatever comes.

import (
	"math"
	"math/rand"
	"slices"
	"testing"
)

// seriesPack packs columns with a packer of its own.
func seriesPack(steps, atMS []int64, values []float64) []byte {
	return new(seriesPacker).pack(seriesColumns{steps, atMS, values})
}

// seriesUnpack is the inverse.
func seriesUnpack(data []byte, most int) (steps, atMS []int64, values []float64, err error) {
	var c seriesColumns
	if err := new(seriesUnpacker).unpack(data, most, &c); err != nil {
		return nil, nil, nil, err
	}
	return c.steps, c.atMS, c.values, nil
}

// bitEqual compares columns bit for bit; times to the 100 ms that are kept.
func bitEqual(a, b seriesColumns) bool {
	return slices.Equal(a.steps, b.steps) &&
		slices.EqualFunc(a.atMS, b.atMS, func(x, y int64) bool { return seriesRoundMS(x) == y }) &&
		slices.EqualFunc(a.values, b.values, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}

// noisyLoss is what a training writes: a falling float32 with noise, a step and a bit over a second apart.
func noisyLoss(n int, seed int64) seriesColumns {
	r := rand.New(rand.NewSource(seed))
	var c seriesColumns
	at := int64(1_790_000_000_000)
	for i := range n {
		at += 1000 + r.Int63n(30)
		c.add(int64(i), seriesRoundMS(at), float64(float32(2*math.Exp(-float64(i)/50_000)+0.1*r.NormFloat64())))
	}
	return c
}

func TestSeriesPack(t *testing.T) {
	inf, negZero := math.Inf(1), math.Copysign(0, -1)
	payload := math.Float64frombits(0x7FF0000020000000) // a signalling NaN that float32 has too
	extremes := []int64{math.MinInt64, math.MaxInt64, 0, -1, math.MaxInt64, math.MinInt64}
	for _, c := range []struct {
		name   string
		steps  []int64
		atMS   []int64
		values []float64
		kind   byte
	}{
		{"none", nil, nil, nil, seriesInts},
		{"one", []int64{7}, []int64{1_790_000_000_123}, []float64{0.1}, seriesFloat64},
		{"steps and times at the ends", extremes, extremes, []float64{1, 2, 3, 4, 5, 6}, seriesInts},
		{"whole numbers", []int64{1, 2, 3}, []int64{0, 100, 200}, []float64{1 << 53, -(1 << 53), 0}, seriesInts},
		{"minus zero is no whole number", []int64{1}, []int64{0}, []float64{negZero}, seriesFloat32},
		{"float32", []int64{3, 2, 1}, []int64{9, 8, 7}, []float64{float64(float32(0.1)), negZero, math.SmallestNonzeroFloat32}, seriesFloat32},
		{"not finite", []int64{1, 2, 3, 4, 5}, []int64{0, 0, 0, 0, 0}, []float64{inf, -inf, seriesNaN(), payload, -payload}, seriesFloat32},
		{"a NaN that only float64 has", []int64{1, 2}, []int64{0, 0}, []float64{math.NaN(), 1}, seriesFloat64},
		{"float64", []int64{1, 2}, []int64{0, 0}, []float64{0.1, math.SmallestNonzeroFloat64}, seriesFloat64},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := seriesColumns{c.steps, c.atMS, c.values}
			data := seriesPack(c.steps, c.atMS, c.values)
			var out seriesColumns
			var err error
			if out.steps, out.atMS, out.values, err = seriesUnpack(data, len(c.steps)); err != nil || !bitEqual(in, out) {
				t.Fatalf("%v\n got %v\nwant %v", err, out, in)
			}
			if data[0]&seriesKindMask != c.kind {
				t.Errorf("kind %d, want %d", data[0]&seriesKindMask, c.kind)
			}
			if _, _, _, err := seriesUnpack(data, len(c.steps)-1); err == nil {
				t.Error("more points than allowed were taken")
			}
			for cut := range data {
				if _, _, _, err := seriesUnpack(data[:cut], 100); err == nil {
					t.Errorf("cut after %d of %d bytes, and taken", cut, len(data))
				}
			}
			if _, _, _, err := seriesUnpack(append(data[:len(data):len(data)], 0), 100); err == nil {
				t.Error("a byte more was taken")
			}
		})
	}
}

func TestSeriesRoundMS(t *testing.T) {
	for in, want := range map[int64]int64{0: 0, 49: 0, 50: 100, 149: 100, -50: 0, -51: -100, math.MaxInt64: math.MaxInt64 - 7, math.MinInt64: math.MinInt64 + 8} {
		if got := seriesRoundMS(in); got != want {
			t.Errorf("%d is rounded to %d, want %d", in, got, want)
		}
	}
}

// TestSeriesPackBomb: a blob that inflates to far more than its points need costs no memory.
func TestSeriesPackBomb(t *testing.T) {
	zeros := make([]int64, 1<<22)
	bomb := seriesPack(zeros, zeros, make([]float64, 1<<22))
	small := append([]byte{bomb[0], 10}, bomb[5:]...) // 10 points instead of 2^22, whose count takes four bytes
	allocs := testing.AllocsPerRun(5, func() {
		if _, _, _, err := seriesUnpack(small, 1<<16); err == nil {
			t.Error("a bomb was taken")
		}
	})
	if allocs > 50 {
		t.Errorf("%v allocations", allocs)
	}
}

// TestSeriesPackSize holds the sizes that the coding is there for: bytes a point in chunks of 4,096.
func TestSeriesPackSize(t *testing.T) {
	const n = 4096
	r := rand.New(rand.NewSource(1))
	of := func(value func(i int) float64) seriesColumns {
		c := noisyLoss(n, 2)
		for i := range c.values {
			c.values[i] = value(i)
		}
		return c
	}
	for _, c := range []struct {
		name string
		c    seriesColumns
		most float64
	}{
		{"noisy loss", noisyLoss(n, 1), 3.2},
		{"cosine learning rate", of(func(i int) float64 { return float64(float32(1e-3 * (1 + math.Cos(float64(i)/n*math.Pi)))) }), 2.5},
		{"constant", of(func(int) float64 { return float64(float32(3e-4)) }), 0.4},
		{"utilization", of(func(int) float64 { return float64(90 + r.Intn(10)) }), 1},
		{"noisy float64", of(func(int) float64 { return r.NormFloat64() }), 7.3},
	} {
		got := float64(len(seriesPack(c.c.steps, c.c.atMS, c.c.values))) / n
		t.Logf("%s: %.2f bytes a point", c.name, got)
		if got > c.most {
			t.Errorf("%s: %.2f bytes a point, at most %.1f", c.name, got, c.most)
		}
	}
}

func FuzzSeriesUnpack(f *testing.F) {
	c := noisyLoss(300, 3)
	f.Add(seriesPack(c.steps, c.atMS, c.values), uint16(1000))
	f.Add(seriesPack([]int64{1, 2}, []int64{3, 4}, []float64{5, 0.1}), uint16(2))
	f.Add([]byte{}, uint16(0))
	f.Fuzz(func(t *testing.T, data []byte, most uint16) {
		var c seriesColumns
		var err error
		c.steps, c.atMS, c.values, err = seriesUnpack(data, int(most))
		if err != nil {
			return
		}
		if c.len() > int(most) || len(c.atMS) != c.len() || len(c.values) != c.len() {
			t.Fatalf("%d steps, %d times, %d values of at most %d", len(c.steps), len(c.atMS), len(c.values), most)
		}
		var again seriesColumns
		again.steps, again.atMS, again.values, err = seriesUnpack(seriesPack(c.steps, c.atMS, c.values), c.len())
		if err != nil || !bitEqual(c, again) {
			t.Fatalf("%v\n got %v\nwant %v", err, again, c)
		}
	})
}

func BenchmarkSeriesUnpack(b *testing.B) {
	c := noisyLoss(4096, 1)
	data := seriesPack(c.steps, c.atMS, c.values)
	var u seriesUnpacker
	for b.Loop() {
		if err := u.unpack(data, 4096, &c); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4096, "ns/pt")
}

func BenchmarkSeriesPack(b *testing.B) {
	c := noisyLoss(4096, 1)
	var p seriesPacker
	for b.Loop() {
		p.pack(c)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4096, "ns/pt")
}
