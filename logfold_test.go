package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// foldAll is the reference: one fold over everything at once.
func foldAll(b []byte) []logItem {
	var f logFold
	f.reset(0)
	out := slices.Clone(f.feed(b))
	return append(out, f.flush()...)
}

func TestFoldTable(t *testing.T) {
	long := strings.Repeat("x", logLineBytes)
	for _, c := range []struct {
		name, in string
		want     []string // a trailing + is More
	}{
		{"nothing", "", nil},
		{"empty lines", "\n\n", []string{"", ""}},
		{"crlf", "a\r\nb\r\r\n", []string{"a", "b"}},
		{"bar", "\r10%\r20%\r30%\nend", []string{"30%", "end"}},
		{"bar unfinished", "\r10%\r20%", []string{"20%"}},
		{"shorter overwrites whole", "long line\rab\n", []string{"ab"}},
		{"colours stay", "\x1b[31mred\x1b[0m\n", []string{"\x1b[31mred\x1b[0m"}},
		{"colour after cr", "old\r\x1b[32mnew\x1b[0m\n", []string{"\x1b[32mnew\x1b[0m"}},
		{"nested bars", "outer 0\n\rinner 0\x1b[A\router 1\n\rinner 1\x1b[A\router 2\n\rinner 2\x1b[A\n\ndone\n", []string{"outer 0", "outer 2", "inner 2", "done"}},
		{"up two", "a\nb\n\x1b[2Ax\ny\nz\n", []string{"a", "b", "x", "y", "z"}},
		{"escape does not swallow a newline", "a\x1b\nb\x1b[3\nc\n", []string{"a\x1b", "b\x1b[3", "c"}},
		{"up with other parameters is text", "\x1b[?1Ab\n", []string{"\x1b[?1Ab"}},
		{"cut escape at the end", "a\x1b[", []string{"a\x1b["}},
		{"cut escape after a cr", "99%\r\x1b[", []string{"99%"}},
		{"exactly 8 KiB", long + "\n", []string{long}},
		{"8 KiB and one", long + "y\n", []string{long + "+", "y"}},
		{"split rune", strings.Repeat("x", logLineBytes-1) + "éz\n", []string{strings.Repeat("x", logLineBytes-1) + "é+", "z"}},
		{"bad bytes", "a\xff\xfeb\xe6\xb8\xf0\x9f\x98c\xe6\xb8\xa9\n", []string{"a\uFFFD\uFFFDb\uFFFD\uFFFDc温"}},
		{"surrogate and overlong", "\xed\xa0\x80\xc0\xaf\n", []string{strings.Repeat("\uFFFD", 5)}},
	} {
		var got []string
		for _, it := range foldAll([]byte(c.in)) {
			s := it.Text
			if it.More {
				s += "+"
			}
			got = append(got, s)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %.200q, want %.200q", c.name, got, c.want)
		}
	}
}

func TestFoldLive(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"done\n", ""},
		{"\r 10%|█ | 1/10\r 20%|██ | 2/10", " 20%|██ | 2/10"},
		{"\r 10%\r", " 10%"},
		{"half \xe6\xb8", "half "},
		{"bad \xff", "bad \uFFFD"},
		{"o\n\rinner 3\x1b[A\router 4", "inner 3"},
		{"x\x1b[3", "x"},
	} {
		var f logFold
		f.reset(0)
		f.feed([]byte(c.in))
		if got := f.live(); got != c.want {
			t.Errorf("live of %q is %q, want %q", c.in, got, c.want)
		}
	}
}

// A tqdm bar is one line in the end, and memory is bounded whatever comes.
func TestFoldBounds(t *testing.T) {
	var bar bytes.Buffer
	for i := range 100_000 {
		fmt.Fprintf(&bar, "\r%3d%%|%-20s| %d/100000", i/1000, strings.Repeat("█", i/5000), i)
	}
	if got := foldAll(bar.Bytes()); len(got) != 1 || !strings.HasSuffix(got[0].Text, "99999/100000") {
		t.Fatalf("100,000 refreshes gave %d lines", len(got))
	}
	noise := make([]byte, 1<<20)
	rng := rand.NewChaCha8([32]byte{7})
	rng.Read(noise)
	for _, in := range [][]byte{bytes.Repeat([]byte("z"), 12<<20), noise, bytes.Repeat([]byte("\x1b[A\x1b[31mbar"), 100_000), bytes.Repeat([]byte{0x80}, 1<<20), bytes.Repeat([]byte("\x1b["), 1<<19)} {
		var f logFold
		f.reset(0)
		var lines int
		for o := 0; o < len(in); o += readChunkBytes {
			for _, it := range f.feed(in[o:min(o+readChunkBytes, len(in))]) {
				lines++
				if len(it.Text) > 3*(logLineBytes+3) || !utf8.ValidString(it.Text) {
					t.Fatalf("a line of %d bytes, valid %v", len(it.Text), utf8.ValidString(it.Text))
				}
			}
			held := 0
			for _, r := range f.rows {
				held += cap(r)
			}
			if f.sum > logLineBytes+3 || len(f.rows) > foldRows || held > foldRows*2*logLineBytes || len(f.esc) > foldEscape {
				t.Fatalf("held: sum %d, rows %d, capacity %d, escape %d", f.sum, len(f.rows), held, len(f.esc))
			}
		}
	}
}

// hostileLog makes bytes of everything that is awkward.
func hostileLog(r *rand.Rand) []byte {
	pool := []string{
		"a", "loss=0.1", "\r", "\n", "\x1b[A", "\x1b[2A", "\x1b[40A", "\x1b[31m", "\x1b", "[", "A", "é", "😀", "\xff", "\xe6", "\xb8", "\xf0\x9f", "\r\n", "\r\r\n", "\x1b[2K",
		"\x1b[" + strings.Repeat("1;", 20) + "m", "\x00", "\x1b[?25l", "\x1b\x1b[A",
	}
	big := []string{strings.Repeat("z", 3000), strings.Repeat("\x80", 2100), strings.Repeat("度", 1400)}
	var b []byte
	size := r.IntN(30)
	for range 20 + r.IntN(100) {
		if size < 3 && r.IntN(8) == 0 {
			b = append(b, big[r.IntN(len(big))]...)
		}
		b = append(b, pool[r.IntN(len(pool))]...)
	}
	return b
}

// checkFoldPure folds b in random pieces and dies at random, going on with nothing but the clean offset.
func checkFoldPure(t *testing.T, r *rand.Rand, b []byte) (resumes int) {
	t.Helper()
	want := foldAll(b)
	var f, counter logFold
	counter.mute = true
	f.reset(0)
	counter.reset(0)
	var got []logItem
	for o := 0; o < len(b); {
		n := min(len(b)-o, 1+r.IntN(60))
		if r.IntN(4) == 0 {
			n = min(len(b)-o, 9000)
		}
		got = append(got, f.feed(b[o:o+n])...)
		o += n
		if resumes < 25 && r.IntN(5) == 0 {
			o = int(f.clean())
			f = logFold{}
			f.reset(int64(o))
			resumes++
		}
	}
	got = append(got, f.flush()...)
	if !slices.Equal(got, want) {
		t.Fatalf("%.400q\n got %.300v\nwant %.300v", b, got, want)
	}
	counter.feed(b)
	counter.flush()
	if counter.made != int64(len(want)) || len(counter.out) != 0 {
		t.Fatalf("counted %d, want %d", counter.made, len(want))
	}
	if f.clean() != int64(len(b)) {
		t.Fatalf("clean point at the end is %d, want %d", f.clean(), len(b))
	}
	return resumes
}

func TestFoldPurity(t *testing.T) {
	inputs, resumes := 20_000, 0
	if testing.Short() {
		inputs = 2_000
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range inputs {
		resumes += checkFoldPure(t, r, hostileLog(r))
	}
	if resumes < inputs {
		t.Fatalf("only %d resumes", resumes)
	}
}

func FuzzLogFold(f *testing.F) {
	f.Add([]byte("a\r\nb\x1b[A\rc\n\xff"), uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		checkFoldPure(t, rand.New(rand.NewPCG(seed, 3)), b)
	})
}

func BenchmarkFoldPlain(b *testing.B) {
	benchFold(b, logSample(8<<20))
}

func BenchmarkFoldBars(b *testing.B) {
	var s bytes.Buffer
	for i := 0; s.Len() < 8<<20; i++ {
		fmt.Fprintf(&s, "\r%3d%%|%-60s| %d/100000 [00:12<01:33, 9.1it/s, loss=%.4f]", i%100, strings.Repeat("█", i%20), i, float64(i)/7)
	}
	benchFold(b, s.Bytes())
}

func BenchmarkFoldNoise(b *testing.B) {
	s := make([]byte, 8<<20)
	rng := rand.NewChaCha8([32]byte{7})
	rng.Read(s)
	benchFold(b, s)
}

func benchFold(b *testing.B, s []byte) {
	b.SetBytes(int64(len(s)))
	var f logFold
	for b.Loop() {
		f.reset(0)
		for o := 0; o < len(s); o += readChunkBytes {
			f.feed(s[o:min(o+readChunkBytes, len(s))])
		}
	}
}

// logSample is what a training prints.
func logSample(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "2026-11-30 20:%02d:%02d INFO step=%d loss=%.6f lr=%.8f tokens/s=%d\n", i/60%60, i%60, i, float64(i%977)/977, float64(i%31)/31000, 1000+i%90000)
	}
	return b.Bytes()
}
