package main

// Reading one drawing of a progress bar out of a line of a log. It only says what stands there; what it means for the run is decided in
// semantic_progress.go.

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// readBar reads the last bar in a line. ok is false when there is none that counts steps.
//
//	desc:  45%|####5     | 54/120 [00:01<00:01, 45.2it/s, loss=0.31]    tqdm, with total
//	desc: 120it [00:12, 9.85it/s]                                       tqdm, without
//	 120/1000 [==>...........................] - ETA: 1:30 - loss: 0.4  Keras 2
//	 120/1000 ━━━━━━━━━━━━━━━━━━━━ 1:30 102ms/step - loss: 0.4          Keras 3
func readBar(line string) (barMeter, bool) {
	line = withoutEscapes(line)
	for end := len(line); ; {
		i := strings.LastIndexByte(line[:end], '[')
		if i < 0 {
			return readKerasBar(line)
		}
		if m, ok := readMeter(line[:i], line[i+1:]); ok {
			return m, true
		}
		end = i
	}
}

// readMeter reads tqdm's meter: head is what stands before the "[", times what follows it. A bar of bytes or of rows of a data set is none.
func readMeter(head, times string) (barMeter, bool) {
	m := barMeter{total: -1, leftMS: -1}
	spent, rest, ok := cutClock(times)
	if !ok {
		return m, false
	}
	m.spentMS = spent
	after, between := strings.CutPrefix(rest, "<")
	if between {
		if left, tail, ok := cutClock(after); ok {
			m.leftMS, rest = left, tail
		} else {
			rest = strings.TrimPrefix(after, "?")
		}
	}
	if !strings.HasPrefix(rest, ",") && !strings.HasPrefix(rest, "]") {
		return m, false
	}
	if rate, ok := strings.CutPrefix(rest, ","); ok {
		if i := strings.IndexAny(rate, ",]"); i >= 0 {
			rate = rate[:i]
		}
		if !unitIsStep(rate) {
			return m, false
		}
	}
	head = strings.TrimRight(head, " ")
	at := strings.LastIndexAny(head, " |") + 1
	done, all, has := strings.Cut(head[at:], "/")
	head = head[:at]
	if has != between { // what is left is told exactly where the total is known
		return m, false
	}
	if has {
		m.total, ok = cutCount(all)
		if i := strings.LastIndex(head, "%|"); i >= 0 {
			head = strings.TrimRight(head[:i], "0123456789")
		}
	} else { // 120it; shortened 1.20kit
		number := strings.TrimRightFunc(done, unicode.IsLetter)
		if unit := done[len(number):]; strings.Contains(number, ".") && len(unit) > 1 {
			number += unit[:1]
		}
		ok = len(number) < len(done)
		done = number
	}
	if ok {
		m.step, ok = cutCount(done)
	}
	m.label = strings.Trim(head, " :|")
	if m.done() {
		m.leftMS = 0
	}
	return m, ok && m.total != 0
}

// unitIsStep tells by tqdm's rate ("45.2it/s", "1.20s/it", "2.1MB/s", "450 examples/s") whether steps are counted.
func unitIsStep(rate string) bool {
	unit := strings.TrimLeft(rate, " 0123456789.?")
	if !strings.Contains(unit, "/") {
		return false
	}
	if per, ok := strings.CutPrefix(unit, "s/"); ok {
		unit = per
	} else {
		unit = strings.TrimSuffix(unit, "/s")
	}
	switch strings.TrimLeft(strings.TrimSpace(unit), "kKMGTPEZY") {
	case "B", "iB", "b", "ib", "examples", "example", "files", "file", "rows", "row", "shards", "splits", "tables", "docs":
		return false
	}
	return true
}

// readKerasBar reads a bar of Keras: the count stands first.
func readKerasBar(line string) (barMeter, bool) {
	m := barMeter{total: -1, spentMS: -1, leftMS: -1}
	count, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	done, all, ok := strings.Cut(count, "/")
	if !ok {
		return m, false
	}
	if m.step, ok = cutCount(done); !ok || strings.ContainsAny(done, ".kMGT") {
		return m, false
	}
	if all != "Unknown" {
		if m.total, ok = cutCount(all); !ok || strings.ContainsAny(all, ".kMGT") {
			return m, false
		}
	}
	rest = strings.TrimLeft(rest, " ")
	if bar, ok := strings.CutPrefix(rest, "["); ok {
		end := strings.IndexByte(bar, ']')
		if end < 1 || strings.Trim(bar[:end], "=>.") != "" {
			return m, false
		}
		rest = bar[end+1:]
	} else if r, _ := utf8.DecodeRuneInString(rest); r == '━' || r == '╸' || r == '╺' {
		rest = strings.TrimLeft(rest, "━╸╺")
	} else if m.total >= 0 {
		return m, false
	}
	rest = strings.TrimLeft(rest, " -")
	rest = strings.TrimPrefix(rest, "ETA: ")
	clock, _, ok := cutClock(rest)
	switch {
	case m.done():
		m.leftMS = 0
		if ok {
			m.spentMS = clock
		}
	case ok && m.total >= 0:
		m.leftMS = clock
	}
	return m, m.total > 0 || m.total < 0 && strings.Contains(rest, "/step")
}

// cutCount reads 120, or 1.20k and 10.0M as tqdm shortens them.
func cutCount(s string) (int64, bool) {
	scale := 1.0
	if i := strings.IndexAny(s, "kMGT"); i > 0 && i == len(s)-1 {
		scale = map[byte]float64{'k': 1e3, 'M': 1e6, 'G': 1e9, 'T': 1e12}[s[i]]
		s = s[:i]
	}
	if s == "" || s[0] < '0' || s[0] > '9' || strings.Trim(s, "0123456789.") != "" || scale == 1 && strings.Contains(s, ".") {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v*scale > 1e18 {
		return 0, false
	}
	return int64(v*scale + 0.5), true
}

// cutClock reads 01:30, 1:02:03, 45s or 120ms at the begin of a text, in ms.
func cutClock(s string) (ms int64, rest string, ok bool) {
	n, rest, ok := leadingNumber(s)
	if !ok || n > 1e9 {
		return 0, s, false
	}
	if tail, ok := strings.CutPrefix(rest, "ms"); ok {
		return n, tail, true
	}
	if tail, ok := strings.CutPrefix(rest, "s"); ok {
		return n * 1000, tail, true
	}
	colons := 0
	for ; colons < 2 && strings.HasPrefix(rest, ":"); colons++ {
		more, tail, ok := leadingNumber(rest[1:])
		if !ok || more > 59 || len(rest)-len(tail) != len(":00") {
			return 0, s, false
		}
		n, rest = n*60+more, tail
	}
	return n * 1000, rest, colons > 0
}

// withoutEscapes leaves out terminal sequences: colours, cursor movements.
func withoutEscapes(s string) string {
	i := strings.IndexByte(s, 0x1b)
	if i < 0 {
		return s
	}
	var b strings.Builder
	for i >= 0 {
		b.WriteString(s[:i])
		s = s[i+1:]
		if strings.HasPrefix(s, "[") {
			end := strings.IndexFunc(s[1:], func(r rune) bool { return r >= 0x40 && r <= 0x7e })
			if end < 0 {
				return b.String()
			}
			s = s[1+end+1:]
		}
		i = strings.IndexByte(s, 0x1b)
	}
	b.WriteString(s)
	return b.String()
}
