package main

// How far a training is, told from the progress bars in its log and from the times of its points. What is no count of steps (a download,
// a data set that is prepared, a validation beside the training) is no progress. Bars: tqdm's meter, which the Trainer of Hugging Face and
// Lightning use too, and Keras' in its two forms.

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// barMeter is what one drawing of a progress bar says. -1 is not known.
type barMeter struct {
	label   string
	step    int64
	total   int64
	spentMS int64
	leftMS  int64
}

// done reports whether the bar came to its end.
func (m barMeter) done() bool { return m.total >= 0 && m.step >= m.total }

// logProgress is how far a run is by its log. Line is the index of the line that says so. Part names the bar when it counts only a part
// of the run of which nobody says how large the whole is: "Epoch 3", or "" with Partly. Total and LeftMS are -1 when not known.
type logProgress struct {
	step   int64
	total  int64
	leftMS int64
	line   int
	partly bool
	part   string
}

// progressOfLines finds the bar that stands for the whole run in the last lines of a log, oldest first, the unfinished one last. Of bars
// that run inside of each other it is the one that takes longest. A bar that says which epoch of how many it is, or stands below a line
// that does, is counted on to all epochs; one that ran to its end before, or is one epoch of nobody knows how many, is a part. LastAgain: the
// one in the last line is known to have begun anew.
func progressOfLines(lines []string, lastAgain bool) (logProgress, bool) {
	type found struct {
		barMeter
		line   int
		again  bool // it ran to its end before
		beside bool // a validation: counts where there is nothing else
	}
	var bars []found // one for each bar, its newest drawing, newest first
	for i, line := range slices.Backward(lines) {
		m, ok := readBar(line)
		if !ok || barIsNoTraining(m.label) {
			continue
		}
		same := slices.IndexFunc(bars, func(b found) bool { return b.total == m.total && barName(b.label) == barName(m.label) })
		switch {
		case same < 0:
			bars = append(bars, found{barMeter: m, line: i, beside: barIsBeside(m.label)})
		case m.done() && (!bars[same].done() || m.spentMS >= bars[same].spentMS):
			bars[same].again = true
		}
	}
	if slices.ContainsFunc(bars, func(b found) bool { return !b.beside }) {
		bars = slices.DeleteFunc(bars, func(b found) bool { return b.beside })
	}
	if len(bars) == 0 {
		return logProgress{}, false
	}
	best := bars[0]
	for _, b := range bars[1:] {
		if !b.done() && (best.done() && b.total >= 0 || b.spentMS+max(0, b.leftMS) > best.spentMS+max(0, best.leftMS)) {
			best = b
		}
	}
	p := logProgress{step: best.step, total: best.total, leftMS: best.leftMS, line: best.line}
	epoch, epochs := epochOf(best.label)
	if epoch < 0 && best.line > 0 {
		epoch, epochs = epochAbove(lines[:best.line])
	}
	switch {
	case best.total > 0 && epochs > 0 && epoch >= 1 && epoch <= epochs && epochs < math.MaxInt32 && best.total < math.MaxInt32:
		switch whole := best.wholeMS(); {
		case p.leftMS < 0 || epoch == epochs:
		case whole <= 0:
			p.leftMS = -1
		default:
			p.leftMS += (epochs - epoch) * whole
		}
		p.step, p.total = (epoch-1)*best.total+best.step, epochs*best.total
	case epoch >= 0 || best.again || lastAgain && best.line == len(lines)-1:
		p.partly, p.part, p.leftMS = true, best.label, -1
	}
	return p, true
}

// wholeMS is how long the bar takes from its begin to its end.
func (m barMeter) wholeMS() int64 {
	switch {
	case m.spentMS >= 0:
		return m.spentMS + max(0, m.leftMS)
	case m.leftMS > 0 && m.step < m.total:
		return int64(float64(m.leftMS) / float64(m.total-m.step) * float64(m.total))
	}
	return 0
}

// barName is what tells bars apart: the label without its numbers, so that "Epoch 3" and "Epoch 4" are one.
func barName(label string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, strings.ToLower(label))
}

// barIsNoTraining knows the labels of bars that prepare something: those of the datasets, huggingface_hub and transformers packages, and
// what people write above a loop that reads files.
func barIsNoTraining(label string) bool {
	low := strings.ToLower(label)
	for _, begin := range [...]string{
		"map", "filter", "tokeniz", "load", "download", "fetch", "resolving", "extract", "saving", "creating", "flattening", "casting", "preprocess",
		"upload", "unpack", "reading", "caching", "sanity",
	} {
		if strings.HasPrefix(low, begin) {
			return true
		}
	}
	return strings.HasPrefix(low, "generating") && strings.HasSuffix(low, "split")
}

// barIsBeside knows the labels of what runs between the steps of a training.
func barIsBeside(label string) bool {
	low := strings.ToLower(label)
	for _, begin := range [...]string{"val", "eval", "test", "predict", "infer"} {
		if strings.HasPrefix(low, begin) {
			return true
		}
	}
	return false
}

// epochOf reads "Epoch 3/20", "epoch [3/20]", "Epoch 3": epochs is -1 when the text does not say how many, epoch too when it has none.
func epochOf(text string) (epoch, epochs int64) {
	_, after, ok := strings.Cut(strings.ToLower(text), "epoch")
	if !ok {
		return -1, -1
	}
	rest := strings.TrimLeft(after, " :[(=#")
	epoch, rest, ok = leadingNumber(rest)
	if !ok {
		return -1, -1
	}
	rest = strings.TrimLeft(rest, " ")
	if !strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, "of ") {
		return epoch, -1
	}
	epochs, _, ok = leadingNumber(strings.TrimLeft(strings.TrimPrefix(rest, "of "), "/ "))
	if !ok {
		return epoch, -1
	}
	return epoch, epochs
}

// epochAbove finds the newest line that is a heading like "Epoch 3/20" and nothing else. A line that says more ("epoch 3/20 loss=0.1")
// may as well close an epoch: it does not count.
func epochAbove(lines []string) (epoch, epochs int64) {
	for _, line := range slices.Backward(lines) {
		rest, ok := strings.CutPrefix(strings.ToLower(strings.Trim(withoutEscapes(line), " \t\r-=*#")), "epoch")
		if !ok || strings.Trim(strings.Replace(rest, " of ", "/", 1), " :[](/#)0123456789") != "" {
			continue
		}
		if epoch, epochs := epochOf(line); epochs > 0 {
			return epoch, epochs
		}
	}
	return -1, -1
}

func leadingNumber(s string) (n int64, rest string, ok bool) {
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(s[:end], 10, 64)
	return n, s[end:], err == nil
}

// stepAt is one point of a series: which step was done when, Unix ms.
type stepAt struct{ step, atMS int64 }

// timeLeft is how long the rest takes, ms, at the rate of a run's newest points in order of arrival; -1 when they do not tell. Only the
// points since a step last went back count. A newest point that is older than the longest pause between two of them is a stall: that time
// slows the rate, so that what is left grows.
func timeLeft(points []stepAt, total, nowMS int64) int64 {
	first := len(points) - 1
	for first > 0 && points[first-1].step <= points[first].step && points[first-1].atMS <= points[first].atMS {
		first--
	}
	if first < 0 {
		return -1
	}
	begin, last := points[first], points[len(points)-1]
	if last.step >= total {
		return 0
	}
	steps, span := last.step-begin.step, last.atMS-begin.atMS
	if steps <= 0 || span <= 0 {
		return -1
	}
	age, apart := max(0, nowMS-last.atMS), int64(0)
	for i := first + 1; i < len(points); i++ {
		apart = max(apart, points[i].atMS-points[i-1].atMS)
	}
	stalled := max(0, age-apart)
	left := float64(total-last.step) * float64(span+stalled) / float64(steps)
	if left >= math.MaxInt64/2 {
		return -1
	}
	return max(0, int64(left)-min(age, apart))
}
