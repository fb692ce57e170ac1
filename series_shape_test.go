package main

// Buckets, layers, shown names, and the summary with its trend.

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"
)

// TestSeriesSampler: for every number of points up to some hundred there are never too many buckets, they cover all points in order, and
// they are what a plain loop over the points says.
func TestSeriesSampler(t *testing.T) {
	for _, most := range []int{1, 2, 3, 7, 16, 100} {
		for n := range 300 {
			c := noisyLoss(n, int64(n))
			if n > 20 {
				c.values[n/2], c.values[n/3], c.values[n/4] = math.NaN(), math.Inf(1), 1e6
			}
			s := newSeriesSampler(most)
			addInSpan(s, c, seriesAll())
			got := s.buckets()
			if n <= most {
				if got != nil || !bitEqual(s.points, c) {
					t.Fatalf("most %d, %d points: %v", most, n, s)
				}
				continue
			}
			if len(got) > most || 2*len(got) < most || s.points.len() > 0 || s.n != int64(n) {
				t.Fatalf("most %d, %d points: %d buckets of %d", most, n, len(got), s.n)
			}
			from := 0
			for i, b := range got {
				if i < len(got)-1 && b.count != got[0].count {
					t.Fatalf("most %d, %d points: bucket %d has %d points, the first %d", most, n, i, b.count, got[0].count)
				}
				checkBucket(t, b, c.cut(from, from+int(b.count)))
				from += int(b.count)
			}
			if from != n {
				t.Fatalf("most %d: the buckets hold %d of %d points", most, from, n)
			}
		}
	}
}

// checkBucket compares a bucket with a plain loop over its points.
func checkBucket(t *testing.T, b seriesBucket, c seriesColumns) {
	t.Helper()
	var finite []float64
	var sum float64
	for _, v := range c.values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			finite = append(finite, v)
			sum += v
		}
	}
	least, most, mean := b.shown()
	if b.step != c.steps[0] || b.atMS != c.atMS[0] {
		t.Fatalf("%+v does not begin with its first point", b)
	}
	if len(finite) == 0 {
		if !math.IsNaN(least) || !math.IsNaN(most) || !math.IsNaN(mean) {
			t.Fatalf("%+v of no finite value", b)
		}
		return
	}
	if least != slices.Min(finite) || most != slices.Max(finite) || math.Abs(mean-sum/float64(len(finite))) > 1e-9*math.Abs(sum)+1e-12 {
		t.Fatalf("%+v of %v", b, c.values)
	}
}

// TestSeriesSamplerCopies: what a sampler gives does not depend on where it was copied meanwhile, to the last bit of a mean, and a copy
// changes nothing of the one it was made of.
func TestSeriesSamplerCopies(t *testing.T) {
	c := noisyLoss(5000, 1)
	for i := 7; i < c.len(); i += 61 {
		c.values[i] = math.Inf(1)
	}
	whole := newSeriesSampler(37)
	for i, v := range c.values {
		whole.add(c.steps[i], c.atMS[i], v)
	}
	parts := newSeriesSampler(37)
	r := rand.New(rand.NewSource(2))
	for from := 0; from < c.len(); {
		to := min(from+r.Intn(200), c.len())
		before := parts.buckets()
		next := parts.clone()
		addInSpan(next, c.cut(from, to), seriesAll())
		if !slices.Equal(before, parts.buckets()) {
			t.Fatal("the copy wrote into what it was made of")
		}
		parts, from = next, to
	}
	if !slices.Equal(whole.buckets(), parts.buckets()) {
		t.Fatal("another answer in pieces")
	}
}

func TestSeriesLine(t *testing.T) {
	for _, c := range []struct {
		name     string
		attempts []string // steps of each; the value is attempt*100 + place
		want     string
	}{
		{"two files in one folder", []string{"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 11 12 13"}, "1 2 3 4 5 6 7 8 9 10 11' 12' 13'"},
		{"a second attempt", []string{"1 2 3 4 5", "4 5 6"}, "1 2 3 4' 5' 6'"},
		{"a second attempt begins beyond", []string{"1 2 3", "7 8"}, "1 2 3 7' 8'"},
		{"a second attempt begins anew", []string{"1 2 3", "0 1"}, "0' 1'"},
		{"equal steps in one layer are kept", []string{"1 1 2 2", "2 2"}, "1 1 2' 2'"},
		{"an attempt at the same step", []string{"3", "3"}, "3'"},
		{"three layers", []string{"1 2 3 4 5 3 4 5 6 2", "2 3"}, "1 2' 3'"},
		{"a step by mistake", []string{"607500 583600 583601"}, "583600' 583601'"},
		{"steps below zero", []string{"-1 0 1", "-5"}, "-5'"},
		{"nothing", []string{"", ""}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l seriesLine
			layer := map[float64]bool{}
			v := 0.0
			for i, steps := range c.attempts {
				l.begin()
				last, below := int64(math.MinInt64), i > 0
				for _, text := range strings.Fields(steps) {
					var step int64
					if _, err := fmt.Sscan(text, &step); err != nil {
						t.Fatal(err)
					}
					below = below || step < last
					layer[v], last = below, step
					l.add(step, int64(v), v)
					v++
				}
			}
			var got []string
			for i, step := range l.steps {
				mark := ""
				if layer[l.values[i]] {
					mark = "'"
				}
				got = append(got, fmt.Sprint(step, mark))
			}
			if s := strings.ReplaceAll(strings.Join(got, " "), " '", "'"); s != c.want {
				t.Errorf("got %s, want %s", s, c.want)
			}
		})
	}
}

func TestSeriesNames(t *testing.T) {
	tb := func(folder, tag string) seriesKey { return seriesKey{"tb", folder, tag} }
	sdk := func(tag string) seriesKey { return seriesKey{"sdk", "", tag} }
	for _, c := range []struct {
		name string
		keys []seriesKey
		want []string
	}{
		{"one folder", []seriesKey{tb("runs/Dec01_host", "loss"), tb("runs/Dec01_host", "lr")}, []string{"loss", "lr"}},
		{"a keras pair", []seriesKey{tb("logs/train", "epoch_loss"), tb("logs/validation", "epoch_loss"), tb("logs/validation", "evaluation_loss_vs_iterations")}, []string{"train/epoch_loss", "validation/epoch_loss", "validation/evaluation_loss_vs_iterations"}},
		{"a folder that is a split, alone", []seriesKey{tb("/data/Eval/", "acc")}, []string{"Eval/acc"}},
		{"two folders, one tag", []seriesKey{tb("", "loss"), tb("a", "loss"), tb("a", "lr")}, []string{"loss", "a/loss", "lr"}},
		{"the last parts are the same", []seriesKey{tb("a/x", "loss"), tb("b/x", "loss"), tb("x", "loss")}, []string{"a/x/loss", "b/x/loss", "x/loss"}},
		{"splits below two folders", []seriesKey{tb("a/train", "loss"), tb("b/train", "loss"), tb("b/val", "acc")}, []string{"a/train/loss", "b/train/loss", "val/acc"}},
		{"a tag that looks like another's name", []seriesKey{tb("a", "loss"), tb("b", "loss"), tb("c", "a/loss")}, []string{"a/loss", "b/loss", "c/a/loss"}},
		{"sdk beside tb", []seriesKey{tb("runs", "loss"), sdk("loss"), sdk("lr")}, []string{"loss", "loss (sdk)", "lr"}},
		{"nothing tells them apart", []seriesKey{tb("", "a/loss"), tb("a", "loss"), tb("", "loss"), tb("/a", "loss")}, []string{"a/loss", "a/loss #2", "loss", "a/loss #3"}},
		{"spaces and brackets", []seriesKey{tb("x", "loss [train] (a/b)")}, []string{"loss [train] (a/b)"}},
		{"none", nil, []string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := seriesNames(c.keys)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestSeriesNamesDiffer: whatever the keys, no two series have one name.
func TestSeriesNamesDiffer(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	parts := []string{"", "a", "b", "a/b", "train", "a/train", "/a", "a #2", "b/a"}
	tags := []string{"loss", "a/loss", "b/a/loss", "loss (sdk)", "loss #2", "loss (sdk) #2"}
	for range 2000 {
		seen := map[seriesKey]bool{}
		var keys []seriesKey
		for range r.Intn(25) {
			k := seriesKey{[]string{"tb", "sdk"}[r.Intn(2)], parts[r.Intn(len(parts))], tags[r.Intn(len(tags))]}
			if !seen[k] {
				seen[k] = true
				keys = append(keys, k)
			}
		}
		names := seriesNames(keys)
		if sorted := slices.Sorted(slices.Values(names)); len(slices.Compact(sorted)) != len(keys) {
			t.Fatalf("%q\n%q", keys, names)
		}
	}
}

func TestSeriesGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"loss", "loss", true},
		{"loss", "loss2", false},
		{"*loss", "validation/epoch_loss", true},
		{"val*", "validation/epoch_loss", true},
		{"*/epoch_?oss", "validation/epoch_loss", true},
		{"*a*b*c*", "xxaxxbxxcxx", true},
		{"*a*b*c", "xxaxxbxxcxx", false},
		{"loss [train]", "loss [train]", true},
		{"loss [train]", "loss t", false},
		{`a\*`, "a*", true},
		{`a\*`, "ab", false},
		{"", "", true},
		{"*", "", true},
		{"?", "", false},
		{"?", "é", true},
		{strings.Repeat("*a", 50) + "b", strings.Repeat("a", 2000), false},
	} {
		if got := seriesGlob(c.pattern, c.name); got != c.want {
			t.Errorf("%q fits %q: %v", c.pattern, c.name, got)
		}
	}
}

func TestSeriesFold(t *testing.T) {
	inf := math.Inf(1)
	var s seriesSummary
	fell := s.fold(seriesColumns{[]int64{1, 2, 3, 3, 4}, []int64{10, 20, 30, 40, 50}, []float64{3, math.NaN(), -1, inf, -inf}})
	if fell != nil {
		t.Fatalf("%+v", fell)
	}
	s.fold(seriesColumns{[]int64{5, 6, 7}, []int64{60, 70, 80}, []float64{-1, 3, 2}})
	want := seriesSummary{
		count: 8, nanCount: 1, infCount: 2, highStep: 7, first: seriesPoint{1, 10, 3}, last: seriesPoint{7, 80, 2},
		least: seriesPoint{3, 30, -1}, most: seriesPoint{1, 10, 3}, emaFast: s.emaFast, emaSlow: s.emaSlow, emaDev: s.emaDev,
	}
	if s != want {
		t.Errorf("got %+v\nwant %+v", s, want)
	}
	var odd seriesSummary
	odd.fold(seriesColumns{[]int64{1, 2}, []int64{1, 2}, []float64{math.NaN(), inf}})
	if odd.finite() != 0 || odd.trend() != "" {
		t.Errorf("%+v", odd)
	}
	var huge seriesSummary
	for i := range 50 {
		huge.fold(seriesColumns{[]int64{int64(i)}, []int64{0}, []float64{math.MaxFloat64 * float64(1-2*(i%2))}})
	}
	if math.IsNaN(huge.emaFast) || math.IsNaN(huge.emaSlow) || math.IsNaN(huge.emaDev) || math.IsInf(huge.emaDev, 0) {
		t.Errorf("%+v", huge)
	}
}

func TestSeriesFoldSteps(t *testing.T) {
	for _, c := range []struct {
		steps   []int64
		rewinds int64
		fell    *seriesFall
	}{
		{[]int64{1, 2, 3, 3, 10}, 0, nil},
		{[]int64{1, 15, 11, 12, 13}, 1, &seriesFall{15, 11}},
		{[]int64{607500, 583600, 583601}, 1, &seriesFall{607500, 583600}},
		{[]int64{1000, 990}, 1, nil},
		{[]int64{1000, 995, 992, 989}, 3, &seriesFall{992, 989}},
		{[]int64{0, -1}, 1, &seriesFall{0, -1}},
		{[]int64{5, -1, 5}, 1, &seriesFall{5, -1}},
		{[]int64{math.MaxInt64, math.MinInt64}, 1, &seriesFall{math.MaxInt64, math.MinInt64}},
	} {
		var s seriesSummary
		n := len(c.steps)
		fell := s.fold(seriesColumns{c.steps, make([]int64, n), make([]float64, n)})
		if s.rewinds != c.rewinds || (fell == nil) != (c.fell == nil) || fell != nil && *fell != *c.fell {
			t.Errorf("%v: %d rewinds, fell %v", c.steps, s.rewinds, fell)
		}
	}
}

// TestSeriesTrend looks at curves of many lengths: a flat one with noise may seem to go somewhere in few looks, a falling one with noise is
// seen falling in nearly all. With some 20 points only a clear trend is one.
func TestSeriesTrend(t *testing.T) {
	const curves = 200
	look := func(at []int, value func(i int, noise float64) float64) map[string]int {
		seen := map[string]int{}
		for seed := range curves {
			r := rand.New(rand.NewSource(int64(seed)))
			var s seriesSummary
			for i := range 600 {
				s.fold(seriesColumns{[]int64{int64(i)}, []int64{0}, []float64{value(i, r.NormFloat64())}})
				if i == 8 && s.trend() != "" {
					t.Fatal("a trend of 9 points")
				}
				if slices.Contains(at, i) {
					seen[s.trend()]++
				}
			}
		}
		return seen
	}
	early, late := []int{9, 20, 100, 599}, []int{60, 150, 300}
	for _, c := range []struct {
		name, want string
		at         []int
		share      float64
		value      func(i int, noise float64) float64
	}{
		{"noise", "flat", early, 0.96, func(_ int, z float64) float64 { return 1 + 0.1*z }},
		{"small noise on a large value", "flat", early, 0.96, func(_ int, z float64) float64 { return 1e6 + z }},
		{"constant", "flat", early, 1, func(int, float64) float64 { return 0.1 }},
		{"zero", "flat", early, 1, func(int, float64) float64 { return 0 }},
		{"a loss", "falling", late, 0.98, func(i int, z float64) float64 { return 3*math.Exp(-float64(i)/200) + 0.05*z }},
		{"a loss that has come to rest", "flat", []int{599}, 0.96, func(i int, z float64) float64 { return 3*math.Exp(-float64(i)/50) + 0.05*z }},
		{"a line up", "rising", late, 0.98, func(i int, z float64) float64 { return 0.01*float64(i) + 0.1*z }},
		{"a line down without noise", "falling", late, 1, func(i int, _ float64) float64 { return -float64(i) }},
	} {
		seen := look(c.at, c.value)
		t.Logf("%s: %v", c.name, seen)
		if float64(seen[c.want]) < c.share*float64(curves*len(c.at)) {
			t.Errorf("%s: %v, want %.0f %% %s", c.name, seen, 100*c.share, c.want)
		}
	}
}
