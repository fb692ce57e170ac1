package main

// What every source of the agent has in common: the server's cursor, where the next wire line goes on, and the lines that are made
// and not acknowledged. Nothing of it is kept on disk: the cursor is the server's, and align finds the place again in the file.

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// source is one file, or one row of own segments, on its way to the server. The uploader's loop alone calls it, under its lock.
type source interface {
	tail() *sourceTail
	// align goes on at the server's cursor, or opens a new generation where the file is another one.
	align(c wireCursor)
	// fill makes lines until about room bytes of them wait. again: there is more to do at once, whether or not a line was made.
	fill(now time.Time, room int) (again bool, err error)
	unsent() int64
	close() error
}

// sourceTail is the end of a source that the server does not have yet.
type sourceTail struct {
	src   string
	known bool       // a cursor was heard from this incarnation of the server
	cur   wireCursor // what the server has, as last heard

	gen   int64  // of the next line
	from  int64  // where it begins
	prev  string // fingerprint there
	fresh bool   // it opens a new generation
	n     int64  // lines or records in front of it, over all generations
	ended bool   // a line with end was made

	pend  []tailLine
	bytes int // in pend

	epoch  int       // counts seeks: an answer to what was made before one says nothing about pend
	misses int       // answers in a row that were not the expected one
	hold   time.Time // nothing is sent before: a refused source must not spin
}

// tailLine is one line of a batch, ready to be sent.
type tailLine struct {
	raw   []byte // with its newline
	gen   int64
	to    int64
	print string
	end   bool
}

func (t *sourceTail) tail() *sourceTail { return t }

// seek drops what was made and goes on at c.
func (t *sourceTail) seek(c wireCursor) {
	t.epoch++
	t.known, t.cur = true, c
	t.gen, t.from, t.prev, t.n = c.Gen, c.Off, c.Print, c.N
	t.fresh, t.ended = false, c.Done
	t.pend, t.bytes = nil, 0
}

// renew drops what was made and goes on at the start of a new generation, which replaces exactly the present cursor.
func (t *sourceTail) renew() {
	t.seek(t.cur)
	t.gen, t.from, t.prev = t.cur.Gen+1, 0, ""
	t.fresh, t.ended = true, false
}

// push makes a line of [from, to) out of l, which has kind, items, n, why and end; count is how many lines or records it stands for.
func (t *sourceTail) push(l batchLine, to int64, print string, count int64) {
	l.Src, l.Gen, l.From, l.To, l.Prev, l.Print = t.src, t.gen, t.from, to, t.prev, print
	if t.fresh {
		l.Reset, l.Old, l.Prev = true, t.cur.Off, t.cur.Print
		t.fresh = false
	}
	raw := appendBatchLine(make([]byte, 0, len(l.Items)+256), l)
	t.pend = append(t.pend, tailLine{raw: raw, gen: t.gen, to: to, print: print, end: l.End})
	t.bytes += len(raw)
	t.from, t.prev, t.ended = to, print, l.End
	t.n += count
}

// acked takes the first k lines as stored when c is the cursor that they lead to.
func (t *sourceTail) acked(k int, c wireCursor) bool {
	want := t.cur
	if k > 0 {
		l := t.pend[k-1]
		want = wireCursor{Gen: l.gen, Off: l.to, Print: l.print, Done: l.end} // end of its own has the cursor of the line before it, but for Done
	}
	want.N = c.N
	if c != want {
		return false
	}
	for _, l := range t.pend[:k] {
		t.bytes -= len(l.raw)
	}
	t.pend = t.pend[k:]
	if len(t.pend) == 0 {
		t.pend = nil
		t.n = c.N // the server counts; ours is only a guess after a record that it put aside
	}
	t.cur = c
	return true
}

// appendBatchLine writes l as one line of ndjson. By hand: encoding/json checks Items a second time, 3 ms per MB.
func appendBatchLine(b []byte, l batchLine) []byte {
	text := func(key, s string) {
		b = append(b, key...)
		b = appendJSONText(b, s)
	}
	number := func(key string, n int64) {
		b = append(b, key...)
		b = strconv.AppendInt(b, n, 10)
	}
	text(`{"src":`, l.Src)
	number(`,"gen":`, l.Gen)
	number(`,"from":`, l.From)
	number(`,"to":`, l.To)
	text(`,"prev":`, l.Prev)
	text(`,"print":`, l.Print)
	text(`,"kind":`, l.Kind)
	if len(l.Items) > 0 {
		b = append(append(b, `,"items":`...), l.Items...)
	}
	if l.N != 0 {
		number(`,"n":`, l.N)
	}
	if l.Why != "" {
		text(`,"why":`, l.Why)
	}
	if l.End {
		b = append(b, `,"end":true`...)
	}
	if l.Reset {
		b = append(b, `,"reset":true`...)
	}
	if l.Old != 0 {
		number(`,"old":`, l.Old)
	}
	return append(b, '}', '\n')
}

// appendLogItem writes one log line as JSON.
func appendLogItem(b []byte, it logItem) []byte {
	b = appendJSONText(append(b, `{"t":`...), it.Text)
	if it.More {
		b = append(b, `,"m":true`...)
	}
	if it.AtMS != 0 {
		b = strconv.AppendInt(append(b, `,"at":`...), it.AtMS, 10)
	}
	return append(b, '}')
}

// appendJSONText writes s, which is valid UTF-8, as a JSON string; < > & stay as they are.
func appendJSONText(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= utf8.RuneSelf || c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(b, s[from:]...), '"')
}
