package main

// A TensorBoard record that is too long to be held: it is passed as its bytes come, in whatever pieces, and what is kept of it is a short
// Event that says the same about numbers. What it leaves out is never decoded, and mostly never read: hop. No checksums here.

import "encoding/binary"

const (
	tbTagMost  = 64 << 10 // of a tag; the rest is not kept
	tbOneMost  = 96 << 10 // kept of one Summary.Value; more means very many fields, so no number
	tbKeptMost = 1 << 20  // kept of one record: 15,000 scalars of one merged summary with long names
)

// tbMessage is the kind of message that the walk is in.
type tbMessage uint8

const (
	tbMsgEvent tbMessage = iota
	tbMsgSummary
	tbMsgValue
	tbMsgMetadata
	tbMsgPlugin
	tbMsgTensor
	tbMsgShape
	tbMsgDim
)

// tbOpen is a message that the walk is inside of.
type tbOpen struct {
	kind tbMessage
	end  int64 // of its bytes in the record
	at   int   // of its length in out
}

// tbPhase is what the next byte belongs to.
type tbPhase uint8

const (
	tbAtKey tbPhase = iota
	tbAtVarint
	tbAtLength
	tbAtBody
)

const tbPadded = 5 // bytes of a length that is known only later: a varint with needless high parts

// tbWalk is the state of one walk.
type tbWalk struct {
	out   []byte
	pos   int64 // in the record
	open  []tbOpen
	phase tbPhase
	key   uint64
	acc   uint64
	shift uint
	keep  int   // bytes of the field to be copied
	skip  int64 // bytes of the field to be passed after them
	blind bool  // a field of tbHopBytes or more is passed unread: nobody can check the record's checksum
	far   bool  // it is this one
	bad   bool  // no protobuf
	left  bool  // more small fields than are kept
}

// start begins a record of n bytes.
func (w *tbWalk) start(n int64) {
	*w = tbWalk{out: w.out[:0], open: append(w.open[:0], tbOpen{kind: tbMsgEvent, end: n})}
}

// drop gives the memory back.
func (w *tbWalk) drop() { *w = tbWalk{} }

// hop is how many of the next bytes need not be fed.
func (w *tbWalk) hop() int64 {
	if w.far && w.keep == 0 {
		return w.skip
	}
	return 0
}

// hopped passes n bytes of what hop told.
func (w *tbWalk) hopped(n int64) {
	w.pos += n
	w.skip -= n
	w.fieldEnd()
}

// whole reports whether the record ended where its messages end.
func (w *tbWalk) whole() bool {
	return !w.bad && len(w.open) == 1 && w.phase == tbAtKey && w.shift == 0
}

// feed takes all of b, which does not go beyond the record.
func (w *tbWalk) feed(b []byte) {
	for len(b) > 0 {
		if w.bad {
			w.pos += int64(len(b))
			return
		}
		if w.phase == tbAtBody {
			k := min(w.keep, len(b))
			w.out = append(w.out, b[:k]...)
			w.keep -= k
			s := int(min(w.skip, int64(len(b)-k)))
			w.skip -= int64(s)
			w.pos += int64(k + s)
			b = b[k+s:]
			w.fieldEnd()
			continue
		}
		c := b[0]
		b = b[1:]
		w.pos++
		if w.shift >= 70 || w.pos > w.top().end {
			w.bad = true
			continue
		}
		w.acc |= uint64(c&0x7f) << w.shift
		w.shift += 7
		if c < 0x80 {
			v := w.acc
			w.acc, w.shift = 0, 0
			w.varint(v)
		}
	}
}

func (w *tbWalk) top() *tbOpen { return &w.open[len(w.open)-1] }

// varint takes a key, a value or a length.
func (w *tbWalk) varint(v uint64) {
	end := w.top().end
	switch w.phase {
	case tbAtKey:
		w.key = v
		size := int64(0)
		switch v & 7 {
		case pbVarint:
			w.phase = tbAtVarint
		case pbBytes:
			w.phase = tbAtLength
		case pbFixed8:
			size = 8
		case pbFixed4:
			size = 4
		default:
			w.bad = true
		}
		if v>>3 == 0 || w.pos+size > end || size == 0 && w.pos == end {
			w.bad = true
		}
		if size > 0 {
			w.phase = tbAtBody
			if w.number() {
				w.out = binary.AppendUvarint(w.out, v)
				w.keep = int(size)
			} else {
				w.skip = size
			}
		}
	case tbAtVarint:
		if w.number() {
			w.out = binary.AppendUvarint(binary.AppendUvarint(w.out, w.key), v)
		}
		w.fieldEnd()
	case tbAtLength:
		if v > uint64(end-w.pos) {
			w.bad = true
			return
		}
		w.bytes(int64(v))
	}
}

// number reports whether a field that is no bytes is kept.
func (w *tbWalk) number() bool {
	switch n := w.key >> 3; w.top().kind {
	case tbMsgEvent:
		if len(w.out) > 2*tbKeptMost { // repeated for ever
			w.left = true
			return false
		}
		return n == 1 || n == 2
	case tbMsgValue:
		return n == 2
	case tbMsgTensor:
		return true
	case tbMsgDim:
		return n == 1
	}
	return false
}

// bytes begins a field of n bytes: a message to go into, or bytes of which some are kept.
func (w *tbWalk) bytes(n int64) {
	const none = -1
	keep, in := none, tbMsgEvent
	switch f := w.key >> 3; w.top().kind {
	case tbMsgEvent:
		if f == 5 {
			in = tbMsgSummary
		}
	case tbMsgSummary:
		if f == 1 && len(w.out) < tbKeptMost {
			in = tbMsgValue
		} else if f == 1 {
			w.left = true
		}
	case tbMsgValue:
		switch f {
		case 1:
			keep = tbTagMost
		case 3, 4, 5, 6:
			keep = 0 // that it is there says that the value is no number
		case 8:
			in = tbMsgTensor
		case 9:
			in = tbMsgMetadata
		}
	case tbMsgMetadata:
		if f == 1 {
			in = tbMsgPlugin
		}
	case tbMsgPlugin:
		if f == 1 {
			keep = len(tbScalarsPlugin) + 1
		}
	case tbMsgTensor:
		if f == 2 {
			in = tbMsgShape
		} else if f >= 4 {
			keep = tbValsMost + 1
		}
	case tbMsgShape:
		if f == 2 {
			in = tbMsgDim
		}
	}
	switch {
	case in != tbMsgEvent:
		w.out = binary.AppendUvarint(w.out, w.key)
		w.open = append(w.open, tbOpen{kind: in, end: w.pos + n, at: len(w.out)})
		w.out = append(w.out, make([]byte, tbPadded)...)
		w.phase = tbAtKey
		w.close()
		return
	case keep == none:
		w.skip = n
	default:
		w.keep = int(min(int64(keep), n))
		w.skip = n - int64(w.keep)
		w.out = binary.AppendUvarint(w.out, w.key)
		w.out = binary.AppendUvarint(w.out, uint64(w.keep))
	}
	w.pass()
}

// pass begins the body of a field.
func (w *tbWalk) pass() {
	w.phase = tbAtBody
	w.far = w.skip >= tbHopBytes
	w.blind = w.blind || w.far
	w.fieldEnd()
}

// fieldEnd goes on to the next key when the field is over.
func (w *tbWalk) fieldEnd() {
	if w.phase == tbAtBody && (w.keep > 0 || w.skip > 0) {
		return
	}
	w.phase, w.far = tbAtKey, false
	for i := range w.open {
		if o := w.open[i]; o.kind == tbMsgValue && len(w.out)-o.at > tbOneMost {
			w.left = true
			w.out = w.out[:o.at+tbPadded]
			w.open = w.open[:i+1]
			if w.skip = o.end - w.pos; w.skip > 0 {
				w.pass()
				return
			}
		}
	}
	w.close()
}

// close ends the messages that end here and writes their lengths.
func (w *tbWalk) close() {
	for len(w.open) > 1 && w.top().end == w.pos {
		o := w.top()
		n := len(w.out) - o.at - tbPadded
		for i := range tbPadded {
			w.out[o.at+i] = byte(n>>(7*i)) & 0x7f
			if i < tbPadded-1 {
				w.out[o.at+i] |= 0x80
			}
		}
		w.open = w.open[:len(w.open)-1]
	}
}
