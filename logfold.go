package main

// Folding of a log: bytes in, lines out, as a terminal would show them. Pure: no I/O, no clock. A fold that is started empty at a
// clean point gives the same lines from there on as one that saw everything, so nobody has to keep its state.
//
// Rules, in the order of precedence:
//
//	\n          on the lowest row ends every row of the window; above it moves down, and what is written next overwrites
//	\r          what is written next overwrites the row; \r\n and \r\r\n are line ends
//	ESC [ n A   moves up n rows (0 and none are 1); opens a window of at most 32 rows; what is written next overwrites
//	other       escape sequences stay in the text, as all bytes do
//	8 KiB       in the rows together: everything is given out in front of the next rune, the line goes on (More)
//
// Bytes that are no UTF-8 become U+FFFD, one for each maximal part of a rune, as browsers and Python's errors="replace" do it.

import (
	"strings"
	"unicode/utf8"
)

const (
	foldRows   = 32 // height of the window in which cursor-up bars are drawn
	foldEscape = 32 // longest escape sequence that is looked at as one, bytes
)

// logFold is the state of folding. Call reset before use.
type logFold struct {
	off   int64    // bytes fed
	point int64    // last clean point
	rows  [][]byte // the window, top first; nil is a row that was never written; the last one is never nil
	row   int      // where the cursor is
	sum   int      // bytes in all rows
	over  bool     // what is written next overwrites the row
	esc   []byte   // escape sequence that is not complete yet
	out   []logItem
	made  int64 // lines given out since reset
	mute  bool  // count lines, make no text
}

// reset empties the fold; the next byte fed is the one at off.
func (f *logFold) reset(off int64) {
	*f = logFold{off: off, point: off, rows: [][]byte{{}}, out: f.out[:0], mute: f.mute}
}

// clean is the last clean point: every line in front of it was given out, and nothing is carried over it.
func (f *logFold) clean() int64 { return f.point }

// feed takes all of b and gives the lines that it completes; the slice is good until the next call.
func (f *logFold) feed(b []byte) []logItem {
	f.out = f.out[:0]
	for len(b) > 0 {
		if len(f.esc) > 0 {
			if f.escape(b[0]) {
				b = b[1:]
			}
			continue
		}
		switch i := foldRun(b); {
		case i > 0 && i < len(b) && b[i] == '\n' && i <= logLineBytes && f.empty():
			f.give(b[:i], false) // a whole plain line: no copy into the window
			f.off += int64(i + 1)
			f.point = f.off
			b = b[i+1:]
		case i > 0:
			f.off += int64(i)
			f.write(b[:i], f.off-int64(i))
			b = b[i:]
		default:
			f.off++
			f.control(b[0])
			b = b[1:]
		}
	}
	return f.out
}

// flush ends the input: what is unfinished becomes lines, and the clean point is the end.
func (f *logFold) flush() []logItem {
	f.out = f.out[:0]
	if n := len(f.esc); n > 0 && !f.over { // half a sequence overwrites nothing
		f.write(f.esc, f.off-int64(n))
	}
	if f.sum > 0 {
		f.emit(false)
	}
	out, made := f.out, f.made
	f.reset(f.off)
	f.made = made
	return out
}

// live is the unfinished last line as it would show now: the lowest row with text, without a rune that is still incomplete.
func (f *logFold) live() string {
	for i := len(f.rows) - 1; i >= 0; i-- {
		if b := f.rows[i]; len(b) > 0 {
			for k := 1; k < utf8.UTFMax && k <= len(b); k++ {
				if c := b[len(b)-k]; utf8.RuneStart(c) {
					if c >= utf8.RuneSelf && foldBad(b[len(b)-k:]) == k && !utf8.FullRune(b[len(b)-k:]) {
						b = b[:len(b)-k]
					}
					break
				}
			}
			return foldText(b)
		}
	}
	return ""
}

func (f *logFold) empty() bool { return f.sum == 0 && len(f.rows) == 1 && !f.over && len(f.esc) == 0 }

// foldRun is how many bytes in front of b are neither \n, \r nor ESC.
func foldRun(b []byte) int {
	for i, c := range b {
		if c <= 0x1b && (c == '\n' || c == '\r' || c == 0x1b) {
			return i
		}
	}
	return len(b)
}

func (f *logFold) control(c byte) {
	switch c {
	case '\r':
		f.over = true
	case 0x1b:
		f.esc = append(f.esc[:0], c)
	case '\n':
		if f.row < len(f.rows)-1 {
			f.row++
			f.over = true
			return
		}
		f.emit(false)
		f.point = f.off
	}
}

// escape looks at one more byte of a sequence; false: c does not belong to it and is still to be taken.
func (f *logFold) escape(c byte) bool {
	n := len(f.esc)
	switch {
	case n == 1 && c == '[', n > 1 && n < foldEscape && c >= 0x20 && c <= 0x3f:
		f.esc = append(f.esc, c)
		f.off++
		return true
	case n > 1 && c >= 0x40 && c <= 0x7e:
		f.off++
		e := append(f.esc, c)
		f.esc = e[:0]
		if up, ok := foldUp(e); ok {
			f.up(up)
		} else {
			f.write(e, f.off-int64(len(e)))
		}
		return true
	}
	e := f.esc
	f.esc = e[:0]
	f.write(e, f.off-int64(n))
	return false
}

// foldUp reads ESC [ n A.
func foldUp(e []byte) (n int, ok bool) {
	if e[len(e)-1] != 'A' {
		return 0, false
	}
	for _, d := range e[2 : len(e)-1] {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = min(n*10+int(d-'0'), foldRows)
	}
	return max(n, 1), true
}

func (f *logFold) up(n int) {
	for ; n > 0; n-- {
		if f.row > 0 {
			f.row--
		} else if len(f.rows) < foldRows {
			f.rows = append([][]byte{nil}, f.rows...)
		}
	}
	f.over = true
}

// write puts p, a run of text or one escape sequence that begins at offset at, on the row.
func (f *logFold) write(p []byte, at int64) {
	if f.over {
		f.over = false
		f.sum -= len(f.rows[f.row])
		f.rows[f.row] = f.rows[f.row][:0]
		if len(f.rows) == 1 {
			f.point = at // an overwritten line needs no memory
		}
	}
	for len(p) > 0 {
		k := min(logLineBytes-f.sum, len(p))
		if p[0] == 0x1b && k < len(p) {
			k = 0 // an escape sequence stays whole
		}
		if k <= 0 {
			if f.sum > 0 && (utf8.RuneStart(p[0]) || f.sum >= logLineBytes+3) {
				f.emit(true)
				f.point = at
				continue
			}
			k = 1
		}
		f.rows[f.row] = append(f.rows[f.row], p[:k]...)
		f.sum += k
		at += int64(k)
		p = p[k:]
	}
}

// emit gives out the window and leaves one empty row. more: the row of the cursor goes on in the next line.
func (f *logFold) emit(more bool) {
	last := len(f.rows) - 1
	for i, r := range f.rows {
		if r != nil {
			f.give(r, more && i == f.row && i == last)
		}
	}
	f.rows[0] = f.rows[last][:0]
	f.rows = f.rows[:1]
	f.row, f.sum, f.over = 0, 0, false
}

func (f *logFold) give(b []byte, more bool) {
	f.made++
	if !f.mute {
		f.out = append(f.out, logItem{Text: foldText(b), More: more})
	}
}

// foldText makes valid UTF-8 of b.
func foldText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	s.Grow(len(b) + len(b)/4)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			s.WriteRune(utf8.RuneError)
			n = foldBad(b)
		} else {
			s.Write(b[:n])
		}
		b = b[n:]
	}
	return s.String()
}

// foldBad is the length of the maximal part of a rune in front of b, which begins with no whole rune: at least 1 (Unicode 16,
// section 3.9, table 3-7).
func foldBad(b []byte) int {
	lo, hi, most := byte(0x80), byte(0xbf), 0
	switch c := b[0]; {
	case c >= 0xc2 && c <= 0xdf:
		most = 2
	case c >= 0xe0 && c <= 0xef:
		most = 3
		if c == 0xe0 {
			lo = 0xa0
		} else if c == 0xed {
			hi = 0x9f
		}
	case c >= 0xf0 && c <= 0xf4:
		most = 4
		if c == 0xf0 {
			lo = 0x90
		} else if c == 0xf4 {
			hi = 0x8f
		}
	}
	n := 1
	for n < most && n < len(b) && b[n] >= lo && b[n] <= hi {
		n++
		lo, hi = 0x80, 0xbf
	}
	return n
}
