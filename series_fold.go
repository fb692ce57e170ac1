package main

// The summary of a series, folded point by point as they arrive, so that a list never reads points: counts, first, last, least, most, and
// the averages that the trend is read from.

import "math"

// Weights of the averages: of about the last 20 and the last 100 points, as N-day averages are made, 2/(N+1).
const (
	seriesFast = 2.0 / 21
	seriesSlow = 2.0 / 101

	seriesTrendPoints = 10  // finite points below which there is no trend
	seriesTrendShare  = 0.5 // of the usual distance: a fast average further off than this is a trend; noise alone is there in 1 to 2 of 100 looks
	seriesFallShare   = 100 // a step that falls by more than 1/100 of the highest went back
)

type seriesPoint struct {
	step, atMS int64
	value      float64
}

// seriesSummary is what is known of all points of a series. The averages start at 0 and are corrected for that when they are used: with few
// points the first one, noise and all, would weigh most otherwise.
type seriesSummary struct {
	count, nanCount, infCount, rewinds int64
	highStep                           int64
	first, last                        seriesPoint // there when count > 0; of the first, step and time only
	least, most                        seriesPoint // there when finite() > 0
	emaFast, emaSlow, emaDev           float64
}

// seriesFall is a step that went back.
type seriesFall struct{ from, to int64 }

func (s *seriesSummary) finite() int64 { return s.count - s.nanCount - s.infCount }

// fold takes points. It gives the first step that fell by more than 1 % of the highest so far, nil = none did.
func (s *seriesSummary) fold(c seriesColumns) (fell *seriesFall) {
	for i, v := range c.values {
		p := seriesPoint{c.steps[i], c.atMS[i], v}
		switch {
		case s.count == 0:
			s.first, s.highStep = p, p.step
		case p.step < s.last.step:
			s.rewinds++
			if fell == nil && float64(s.highStep)-float64(p.step) > math.Abs(float64(s.highStep))/seriesFallShare {
				fell = &seriesFall{s.last.step, p.step}
			}
		}
		s.highStep = max(s.highStep, p.step)
		s.last = p
		s.count++
		switch {
		case math.IsNaN(v):
			s.nanCount++
		case math.IsInf(v, 0):
			s.infCount++
		default:
			s.finitePoint(p)
		}
	}
	return fell
}

func (s *seriesSummary) finitePoint(p seriesPoint) {
	n := s.finite()
	if n == 1 || p.value < s.least.value {
		s.least = p
	}
	if n == 1 || p.value > s.most.value {
		s.most = p
	}
	s.emaFast = (1-seriesFast)*s.emaFast + seriesFast*p.value
	s.emaSlow = (1-seriesSlow)*s.emaSlow + seriesSlow*p.value
	if far := math.Abs(p.value - seriesCorrected(s.emaSlow, seriesSlow, n)); !math.IsInf(far, 0) {
		s.emaDev += seriesSlow * (far - s.emaDev)
	}
}

// seriesCorrected is an average of n values that started at 0, without the share that the 0 has.
func seriesCorrected(ema, weight float64, n int64) float64 {
	return ema / -math.Expm1(float64(n)*math.Log1p(-weight))
}

// trend says where the curve goes: falling, rising or flat; "" with fewer than 10 finite points.
func (s *seriesSummary) trend() string {
	n := s.finite()
	if n < seriesTrendPoints {
		return ""
	}
	fast, slow := seriesCorrected(s.emaFast, seriesFast, n), seriesCorrected(s.emaSlow, seriesSlow, n)
	off, usual := fast-slow, seriesCorrected(s.emaDev, seriesSlow, n)
	switch rounding := 1e-9 * max(math.Abs(fast), math.Abs(slow)); {
	case !(math.Abs(off) > max(seriesTrendShare*usual, rounding)):
		return "flat"
	case off < 0:
		return "falling"
	}
	return "rising"
}
