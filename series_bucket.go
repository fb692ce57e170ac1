package main

// From many points to few: buckets of points next to each other in order of arrival, each with its least, greatest and mean value, so that
// a spike of one point is seen however far one looks from. Pure sums; which points is somebody else's choice.
//
// A bucket holds 2^k points, the least k for which they are at most so many. Equal counts by position keep a step that went back in its
// place, where an equal width of steps would mix the old part of a curve with the new; powers of two let a curve grow without all its
// buckets moving at every point, and let a sum that was kept go on exactly where it was.

import (
	"math"
	"slices"
)

// seriesBucket is what is kept of points that follow each other. least, most and sum are over finite values; count is of all.
type seriesBucket struct {
	step, atMS       int64 // of the first point
	least, most, sum float64
	finite, count    int64
}

func seriesBucketOf(step, atMS int64, v float64) seriesBucket {
	b := seriesBucket{step: step, atMS: atMS, count: 1}
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		b.least, b.most, b.sum, b.finite = v, v, v, 1
	}
	return b
}

// joined is a bucket of what is in b and, after it, in o.
func (b seriesBucket) joined(o seriesBucket) seriesBucket {
	b.count += o.count
	switch {
	case o.finite == 0:
	case b.finite == 0:
		b.least, b.most, b.sum, b.finite = o.least, o.most, o.sum, o.finite
	default:
		b.least, b.most = min(b.least, o.least), max(b.most, o.most)
		b.sum, b.finite = b.sum+o.sum, b.finite+o.finite
	}
	return b
}

// shown gives least, greatest and mean value; NaN when none is finite.
func (b seriesBucket) shown() (least, most, mean float64) {
	if b.finite == 0 {
		return seriesNaN(), seriesNaN(), seriesNaN()
	}
	return b.least, b.most, min(max(b.sum/float64(b.finite), b.least), b.most)
}

// seriesSampler takes points in order and keeps them all while they are at most `most`, else buckets of them. What it gives depends on the
// points alone, not on when it was asked or copied meanwhile: sums are always made along the same tree.
type seriesSampler struct {
	most   int
	n      int64         // points taken
	points seriesColumns // all of them, while n <= most
	level  int           // a bucket holds 2^level units; a unit is one point, or what pushBucket was given
	units  int64
	whole  []seriesBucket
	open   []seriesBucket // by level: halves that wait for their other half; used where that bit of units is set
	tree   []float64      // scratch of block
}

func newSeriesSampler(most int) *seriesSampler { return &seriesSampler{most: max(most, 1)} }

// clone is a sampler that goes on from here; the two share nothing that changes.
func (s *seriesSampler) clone() *seriesSampler {
	c := *s
	c.points = seriesColumns{slices.Clone(s.points.steps), slices.Clone(s.points.atMS), slices.Clone(s.points.values)}
	c.whole, c.open, c.tree = slices.Clone(s.whole), slices.Clone(s.open), nil
	return &c
}

// bytes is about how much memory it holds.
func (s *seriesSampler) bytes() int {
	return 256 + 24*cap(s.points.steps) + 56*(cap(s.whole)+cap(s.open))
}

func (s *seriesSampler) add(step, atMS int64, v float64) {
	s.n++
	switch {
	case s.units == 0 && s.n <= int64(s.most):
		s.points.add(step, atMS, v)
		return
	case s.points.len() > 0:
		s.spill()
	}
	s.push(seriesBucketOf(step, atMS, v))
}

// addAll takes many points; it gives the same as add for each, whole buckets at a time.
func (s *seriesSampler) addAll(c seriesColumns) {
	for i, n := 0, c.len(); i < n; {
		width := 1 << s.level
		if s.units == 0 || s.level == 0 || n-i < width || s.units&int64(width-1) != 0 || len(s.whole) == s.most {
			s.add(c.steps[i], c.atMS[i], c.values[i])
			i++
			continue
		}
		s.whole = append(s.whole, s.block(c.cut(i, i+width)))
		s.n, s.units, i = s.n+int64(width), s.units+int64(width), i+width
	}
}

// block is the bucket of points whose number is a power of two, summed by twos as joining them one by one does.
func (s *seriesSampler) block(c seriesColumns) seriesBucket {
	n := c.len()
	s.tree = seriesSized(s.tree, n)
	b := seriesBucket{step: c.steps[0], atMS: c.atMS[0], count: int64(n), finite: int64(n)}
	least, most := math.Inf(1), math.Inf(-1)
	for i, v := range c.values {
		switch {
		case v-v != 0: // NaN or infinite
			v = 0
			b.finite--
		default:
			if v < least {
				least = v
			}
			if v > most {
				most = v
			}
		}
		s.tree[i] = v
	}
	if b.finite == 0 {
		return b
	}
	for n > 1 {
		n /= 2
		for i := range n {
			s.tree[i] = s.tree[2*i] + s.tree[2*i+1]
		}
	}
	b.least, b.most, b.sum = least, most, s.tree[0]
	return b
}

// addBucket takes points that were summed before. There are only buckets from then on.
func (s *seriesSampler) addBucket(b seriesBucket) {
	s.spill()
	s.n += b.count
	s.push(b)
}

func (s *seriesSampler) spill() {
	p := s.points
	s.points = seriesColumns{}
	for i, v := range p.values {
		s.push(seriesBucketOf(p.steps[i], p.atMS[i], v))
	}
}

func (s *seriesSampler) push(b seriesBucket) {
	if len(s.whole) == s.most && s.units&(1<<s.level-1) == 0 {
		s.raise()
	}
	at := s.units
	s.units++
	for l := range s.level {
		if at>>l&1 == 0 {
			s.open[l] = b
			return
		}
		b = s.open[l].joined(b)
	}
	s.whole = append(s.whole, b)
}

// raise joins the buckets by twos.
func (s *seriesSampler) raise() {
	half := len(s.whole) / 2
	var odd seriesBucket
	if len(s.whole)%2 == 1 {
		odd = s.whole[2*half]
	}
	for i := range half {
		s.whole[i] = s.whole[2*i].joined(s.whole[2*i+1])
	}
	s.whole, s.open = s.whole[:half], append(s.open, odd)
	s.level++
}

// thinned reports whether there are buckets instead of points.
func (s *seriesSampler) thinned() bool { return s.units > 0 }

// len is about how many points or buckets there are.
func (s *seriesSampler) len() int {
	if s.thinned() {
		return len(s.whole) + 1
	}
	return s.points.len()
}

// buckets gives what there is now, at most `most` of them; nil while all points are kept.
func (s *seriesSampler) buckets() []seriesBucket {
	if s.units == 0 {
		return nil
	}
	out := slices.Clone(s.whole)
	var rest seriesBucket
	for l := s.level - 1; l >= 0; l-- {
		switch {
		case s.units>>l&1 == 0:
		case rest.count == 0:
			rest = s.open[l]
		default:
			rest = rest.joined(s.open[l])
		}
	}
	if rest.count > 0 {
		out = append(out, rest)
	}
	return out
}
