package main

// TensorBoard event files: bytes in, points out (tb_points.go). This file is the framing: a record is a length (uint64 LE), the masked
// CRC32C of the length, data, the masked CRC32C of the data. Pure: no I/O, no clock; what comes out depends on the bytes alone, not on
// how reads cut them, and a reader that is started empty at a clean point goes on alike.
//
// A record that is not whole yet is waited for. Damage (a wrong checksum, a length that no record has) ends at the next offset at which
// a whole valid record starts, or, where only a record's data is damaged, at that record's end; each such stretch is one reject. Records
// up to 64 KiB are held until they are whole, longer ones are walked as they come (tb_walk.go). Of those that have a field of 64 KiB or
// more which is no number (an image, a graph), that field need not be read, and their data checksum is not checked.

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	tbHeadBytes  = 12
	tbFrameBytes = 16        // around the data
	tbHeldBytes  = 64 << 10  // longest data that is held
	tbHopBytes   = 64 << 10  // shortest field that is not read: below it three reads around the hole cost more than the hole
	tbHopLeast   = 4 << 10   // what is left of one
	tbMostBytes  = 1<<31 - 1 // longest data: protobuf has no longer messages. A shorter length with a good checksum was meant
)

// tbState is what the next byte belongs to.
type tbState uint8

const (
	tbWhole   tbState = iota // a record that is held
	tbWalking                // a record that is too long for that
	tbLost                   // damage
	tbProving                // damage, at a head that may be one of a whole valid record
)

// tbReader reads one event file. Call reset before use.
type tbReader struct {
	tbPoints
	table *crc32.Table
	off   int64 // bytes taken
	point int64 // clean
	state tbState
	buf   []byte // taken and not decided
	back  int64  // it must be fed again from so many bytes before off

	at   int64 // tbWalking, tbProving: the record
	left int64 // of its data
	crc  uint32
	walk tbWalk

	bad     int64  // tbLost, tbProving: where the damage begins
	natural int64  // where the damaged record ends, -1 when that is not known
	why     string // what is wrong
	spent   int64  // bytes of heads that turned out to be none
}

// reset empties the reader; the next byte fed is the one at off, a clean point.
func (r *tbReader) reset(off int64) {
	r.table = crc32.MakeTable(crc32.Castagnoli)
	r.off, r.point, r.state, r.back = off, off, tbWhole, 0
	r.buf = nil
	r.walk.drop()
	r.tbPoints.reset(off)
}

// clean is the last clean point.
func (r *tbReader) clean() int64 { return r.point }

// hop is where the next byte fed must come from, as a distance from the last one: positive, so many are not wanted, and feeding some of
// them is allowed; negative, only from there on.
func (r *tbReader) hop() int64 {
	if r.back > 0 {
		return -r.back
	}
	if r.state == tbWalking {
		if n := min(r.walk.hop(), r.left); n >= tbHopLeast {
			return n
		}
	}
	return 0
}

// hopped says that the source did so, if forward perhaps not all the way.
func (r *tbReader) hopped(n int64) {
	r.off += n
	if n < 0 {
		r.back = 0
		return
	}
	r.walk.hopped(n)
	r.left -= n
}

// feed takes bytes; n < len(b) when it cannot go on: the points must be taken first (stuck), it wants to be fed from elsewhere (hop is
// negative), or the history could not be read (err; fed again it tries again).
func (r *tbReader) feed(b []byte) (n int, err error) {
	r.stuck = false
	for n < len(b) && err == nil && !r.stuck && r.back == 0 {
		k, p := 0, b[n:]
		switch {
		case r.state == tbWalking:
			k, err = r.walked(p)
		case r.state == tbLost:
			k = r.scan(p)
		case r.state == tbProving:
			k = r.prove(p)
		case len(r.buf) > 0:
			k, err = r.join(p)
		default:
			k, err = r.run(p)
		}
		n += k
		r.off += int64(k)
		if r.back > 0 && r.back <= int64(n) { // it is here
			n -= int(r.back)
			r.off -= r.back
			r.back = 0
		}
	}
	return n, err
}

// flush ends the input. What is damaged up to here is a reject, and clean; a record that has only begun stays as it is. When hop is
// negative afterwards the rest is to be fed again, and flush called again.
func (r *tbReader) flush() {
	switch {
	case r.back > 0:
	case r.state == tbProving:
		r.disprove(0) // it will never be whole
	case r.state == tbLost && r.natural >= 0 && r.natural <= r.off:
		r.passed(r.natural)
	case r.state == tbLost:
		r.passed(r.off)
	}
}

// run takes whole records out of p and holds the rest.
func (r *tbReader) run(p []byte) (k int, err error) {
	for len(p)-k >= tbHeadBytes {
		q := p[k:]
		at := r.off + int64(k)
		n, ok := r.head(q)
		if !ok {
			r.lose(at, -1, r.headFault(q))
			return k, nil
		}
		if n > tbHeldBytes {
			r.begin(at, int64(n))
			return k + tbHeadBytes, nil
		}
		size := tbFrameBytes + int(n)
		if len(q) < size {
			break
		}
		data := q[tbHeadBytes : size-4]
		if !r.sound(crc32.Checksum(data, r.table), q[size-4:]) {
			r.lose(at, at+int64(size), tbDataFault)
			return k, nil
		}
		if done, err := r.record(data, at); !done || err != nil {
			return k, err
		}
		k += size
		r.point = at + int64(size)
	}
	r.buf = append(r.buf[:0], p[k:]...)
	return len(p), nil
}

// join takes of p what completes the held record, or its head.
func (r *tbReader) join(p []byte) (k int, err error) {
	have := len(r.buf)
	at := r.off - int64(have)
	size := tbHeadBytes
	if have >= tbHeadBytes {
		size = tbFrameBytes + int(binary.LittleEndian.Uint64(r.buf))
	}
	k = min(size-have, len(p))
	r.buf = append(r.buf, p[:k]...)
	switch {
	case len(r.buf) < size:
	case size == tbHeadBytes:
		n, ok := r.head(r.buf)
		if !ok {
			r.lose(at, -1, r.headFault(r.buf))
			r.again(at, k)
		} else if n > tbHeldBytes {
			r.begin(at, int64(n))
		}
	case !r.sound(crc32.Checksum(r.buf[tbHeadBytes:size-4], r.table), r.buf[size-4:]):
		r.lose(at, at+int64(size), tbDataFault)
		r.again(at, k)
	default:
		if done, err := r.record(r.buf[tbHeadBytes:size-4], at); !done || err != nil {
			r.buf = r.buf[:have]
			return 0, err
		}
		r.release()
		r.point = at + int64(size)
	}
	return k, nil
}

// release empties buf; a hundred files shall not keep a hundred large ones.
func (r *tbReader) release() {
	r.buf = r.buf[:0]
	if cap(r.buf) > 4<<10 {
		r.buf = nil
	}
}

// again makes pos the next byte to be fed, after k bytes that off does not count yet.
func (r *tbReader) again(pos int64, k int) {
	r.back = max(r.off+int64(k)-pos, 0)
	r.release()
}

// head reads a length; ok is false when its checksum is wrong or no record is that long.
func (r *tbReader) head(b []byte) (n uint64, ok bool) {
	n = binary.LittleEndian.Uint64(b)
	return n, n <= tbMostBytes && r.sound(crc32.Checksum(b[:8], r.table), b[8:])
}

// sound reports whether b begins with the masked form of crc.
func (r *tbReader) sound(crc uint32, b []byte) bool {
	return crc>>15|crc<<17 == binary.LittleEndian.Uint32(b)-0xa282ead8
}

// begin walks a record from the end of its head.
func (r *tbReader) begin(at, n int64) {
	r.state, r.at, r.left, r.crc = tbWalking, at, n, 0
	r.release()
	r.walk.start(n)
}

// walked takes a piece of a long record.
func (r *tbReader) walked(p []byte) (k int, err error) {
	if r.left > 0 {
		k = int(min(r.left, int64(len(p))))
		r.walk.feed(p[:k])
		if !r.walk.blind {
			r.crc = crc32.Update(r.crc, r.table, p[:k])
		}
		r.left -= int64(k)
		return k, nil
	}
	have := len(r.buf)
	k = min(4-have, len(p))
	r.buf = append(r.buf, p[:k]...)
	if len(r.buf) < 4 {
		return k, nil
	}
	end := r.off + int64(k)
	if !r.walk.blind && !r.sound(r.crc, r.buf) {
		r.lose(r.at, end, tbDataFault)
		r.again(r.at+1, k)
		return k, nil
	}
	if done, err := r.long(&r.walk, r.at); !done || err != nil {
		r.buf = r.buf[:have]
		return 0, err
	}
	r.release()
	r.walk.drop()
	r.state, r.point = tbWhole, end
	return k, nil
}

// lose begins the search behind damage at at.
func (r *tbReader) lose(at, natural int64, why string) {
	r.state, r.bad, r.natural, r.why, r.spent = tbLost, at, natural, why, 0
	r.walk.drop()
}

const tbDataFault = "the checksum of a record is wrong"

// headFault says why b is no head of a record.
func (r *tbReader) headFault(b []byte) string {
	if r.sound(crc32.Checksum(b[:8], r.table), b[8:]) {
		return fmt.Sprintf("a record that says it has %d bytes", binary.LittleEndian.Uint64(b))
	}
	return "the checksum of a record's length is wrong"
}

// passed ends the damage at pos.
func (r *tbReader) passed(pos int64) {
	r.reject(fmt.Sprintf("byte %d: %s; %d bytes left out", r.bad, r.why, pos-r.bad))
	r.state, r.point = tbWhole, pos
}

// scan looks for the end of the damage in p; less than a head is held.
func (r *tbReader) scan(p []byte) (k int) {
	have := len(r.buf)
	w, k := p, len(p)
	if have > 0 {
		k = min(tbHeadBytes-1, len(p))
		r.buf = append(r.buf, p[:k]...)
		w = r.buf
	}
	at := r.off - int64(have)
	i, next := r.look(w, at)
	if next != tbLost {
		pos := at + int64(i)
		if next == tbWhole {
			r.passed(pos)
		}
		r.state, r.at, r.left = next, pos, 0
		r.again(pos, k)
		return k
	}
	r.buf = append(r.buf[:0], w[i:]...)
	return k
}

// look gives the first place in w, whose first byte is at at, that may be the end of the damage, and what to do there; else tbLost and
// the first place that is not decided.
func (r *tbReader) look(w []byte, at int64) (i int, next tbState) {
	for ; len(w)-i >= tbHeadBytes; i++ {
		if at+int64(i) == r.natural {
			return i, tbWhole
		}
		// Nearly every place is ruled out at once: a high part of the length, or nothing but zeros, whose checksum is not 0.
		q := w[i:]
		if binary.LittleEndian.Uint32(q[4:]) != 0 || at+int64(i) <= r.bad || binary.LittleEndian.Uint32(q) == 0 && binary.LittleEndian.Uint32(q[8:]) == 0 {
			continue
		}
		n, ok := r.head(q)
		if ok && (n <= tbHeldBytes || r.spent+int64(n) <= tbMostBytes) {
			return i, tbProving
		}
	}
	return i, tbLost
}

// prove reads on to see whether the record at r.at is whole and valid. Its bytes are fed again then, or those from the next place on.
func (r *tbReader) prove(p []byte) (k int) {
	if r.left > 0 {
		k = int(min(r.left, int64(len(p))))
		r.crc = crc32.Update(r.crc, r.table, p[:k])
		r.left -= int64(k)
		return k
	}
	size := tbHeadBytes
	if len(r.buf) >= tbHeadBytes {
		size = tbFrameBytes
	}
	k = min(size-len(r.buf), len(p))
	r.buf = append(r.buf, p[:k]...)
	switch {
	case len(r.buf) == tbHeadBytes:
		r.left, r.crc = int64(binary.LittleEndian.Uint64(r.buf)), 0
	case len(r.buf) < tbFrameBytes:
	case r.sound(r.crc, r.buf[tbHeadBytes:]):
		r.passed(r.at)
		r.again(r.at, k)
	default:
		r.disprove(k)
	}
	return k
}

// disprove goes on with the search behind r.at.
func (r *tbReader) disprove(k int) {
	r.spent += r.off + int64(k) - r.at
	r.state, r.left = tbLost, 0
	r.again(r.at+1, k)
}
