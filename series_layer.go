package main

// One line out of a curve that was begun anew: a restart from a checkpoint writes steps again that the attempt before had written. What
// came later shadows what it replaces; nothing is deleted, this is only how it is drawn.

import "slices"

// seriesLine takes points in order of arrival, attempt after attempt, and keeps those that the line is made of. A layer begins with a point
// whose step is below the step before it, or with a newer attempt; it shadows all older points at steps where it begins and beyond. Equal
// steps within one layer are kept. Steps of the line never fall, so that is a cut at its end: n points cost O(n).
type seriesLine struct {
	seriesColumns
	last  int64
	fresh bool // the next point begins a layer
}

// begin says that a newer attempt follows.
func (l *seriesLine) begin() { l.fresh = true }

func (l *seriesLine) add(step, atMS int64, v float64) {
	if l.fresh || step < l.last {
		keep, _ := slices.BinarySearch(l.steps, step)
		l.seriesColumns = l.cut(0, keep)
	}
	l.fresh, l.last = false, step
	l.seriesColumns.add(step, atMS, v)
}
