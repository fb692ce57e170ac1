package main

// One TensorBoard record, decoded: the numbers that a protobuf Event holds. By hand, without copies; nothing is known here of frames,
// files or series. Field numbers: event.proto and summary.proto of TensorFlow.

import (
	"encoding/binary"
	"math"
)

// tbValue is what one Summary.Value of an event says, if it says anything. No pointers, for the speed of it.
type tbValue struct {
	tag    tbSpan
	plugin tbSpan // plugin_data.plugin_name, empty when the value does not tell one
	form   tbForm
	number float64 // with tbSimple and tbOne
}

// tbSpan are the bytes [from, to) of a record.
type tbSpan struct{ from, to int32 }

func (s tbSpan) of(record []byte) []byte { return record[s.from:s.to] }
func (s tbSpan) empty() bool             { return s.from == s.to }

// tbForm is how a value holds a number.
type tbForm uint8

const (
	tbNone   tbForm = iota // an image, a histogram, a tensor of several elements, text, nothing
	tbSimple               // simple_value
	tbOne                  // a numeric tensor of one element
)

// tbEvent is the head of an Event. A missing step is 0, as protobuf has it.
type tbEvent struct {
	wall float64 // Unix seconds
	step int64
}

// Wire types of protobuf.
const (
	pbVarint = 0
	pbFixed8 = 1
	pbBytes  = 2
	pbFixed4 = 5
)

// pbField is one field of a message: number of a varint or the bits of a fixed one, or where its bytes are.
type pbField struct {
	key      uint64 // field number << 3 | wire type
	bits     uint64
	from, to int
}

// pbNext reads the field that begins at b[i], in a message that ends with b; next is where the following one begins, -1 when these are no protobuf fields. Groups, which
// nobody writes since 2008, count as such.
func pbNext(b []byte, i int, f *pbField) (next int) {
	key, i := pbUint(b, i)
	if i < 0 || key>>3 == 0 {
		return -1
	}
	f.key = key
	switch key & 7 {
	case pbVarint:
		f.bits, i = pbUint(b, i)
		return i
	case pbFixed8:
		if len(b)-i < 8 {
			return -1
		}
		f.bits = binary.LittleEndian.Uint64(b[i:])
		return i + 8
	case pbFixed4:
		if len(b)-i < 4 {
			return -1
		}
		f.bits = uint64(binary.LittleEndian.Uint32(b[i:]))
		return i + 4
	case pbBytes:
		n, i := pbUint(b, i)
		if i < 0 || n > uint64(len(b)-i) {
			return -1
		}
		f.from, f.to = i, i+int(n)
		return f.to
	}
	return -1
}

// pbUint reads a varint of at most 10 bytes at b[i]; next is -1 when there is none.
func pbUint(b []byte, i int) (v uint64, next int) {
	if i < len(b) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	for shift := uint(0); shift < 70 && i < len(b); shift += 7 {
		c := b[i]
		i++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, i
		}
	}
	return 0, -1
}

// tbParse reads one Event and appends its values. ok is false when these bytes are no Event; then nothing of it counts.
func tbParse(b []byte, values []tbValue) (e tbEvent, _ []tbValue, ok bool) {
	var f pbField
	for i := 0; i < len(b); {
		if i = pbNext(b, i, &f); i < 0 {
			return e, values, false
		}
		switch f.key {
		case 1<<3 | pbFixed8:
			e.wall = math.Float64frombits(f.bits)
		case 2<<3 | pbVarint:
			e.step = int64(f.bits)
		case 5<<3 | pbBytes:
			if values, ok = tbSummary(b[:f.to], f.from, values); !ok {
				return e, values, false
			}
		}
	}
	return e, values, true
}

// tbParseOne reads an Event of one simple_value as nearly all writers make it, byte for byte of one shape: time, step, one value of tag and
// number. ok is false for every other one; tbParse says the same of it at half the speed.
func tbParseOne(b []byte) (e tbEvent, v tbValue, ok bool) {
	const wall, step, summary, value, tag, number = 1<<3 | pbFixed8, 2<<3 | pbVarint, 5<<3 | pbBytes, 1<<3 | pbBytes, 1<<3 | pbBytes, 2<<3 | pbFixed4
	if len(b) < 20 || len(b) > 0x7f || b[0] != wall {
		return e, v, false
	}
	i := 9
	if b[i] == step {
		var n uint64
		if n, i = pbUint(b, i+1); i < 0 {
			return e, v, false
		}
		e.step = int64(n)
	}
	if len(b)-i < 11 || b[i] != summary || int(b[i+1]) != len(b)-i-2 || b[i+2] != value || int(b[i+3]) != len(b)-i-4 || b[i+4] != tag {
		return e, v, false
	}
	v.tag = tbSpan{int32(i + 6), int32(len(b) - 5)}
	if int(b[i+5]) != int(v.tag.to-v.tag.from) || b[v.tag.to] != number {
		return e, v, false
	}
	e.wall = math.Float64frombits(binary.LittleEndian.Uint64(b[1:]))
	v.form, v.number = tbSimple, float64(math.Float32frombits(binary.LittleEndian.Uint32(b[len(b)-4:])))
	return e, v, true
}

func tbSummary(b []byte, i int, values []tbValue) (_ []tbValue, ok bool) {
	var f pbField
	for i < len(b) {
		if i = pbNext(b, i, &f); i < 0 {
			return values, false
		}
		if f.key == 1<<3|pbBytes {
			k := len(values)
			values = append(values, tbValue{})
			v := &values[k]
			if !v.parse(b[:f.to], f.from) {
				return values, false
			}
			if v.form == tbNone && v.plugin.empty() {
				values = values[:k]
			}
		}
	}
	return values, true
}

// parse reads the Summary.Value from b[i] on. Of the members of its oneof the last one counts.
func (v *tbValue) parse(b []byte, i int) (ok bool) {
	var f pbField
	for i < len(b) {
		if i = pbNext(b, i, &f); i < 0 {
			return false
		}
		switch f.key {
		case 1<<3 | pbBytes:
			v.tag = tbSpan{int32(f.from), int32(f.to)}
		case 2<<3 | pbFixed4:
			v.form, v.number = tbSimple, float64(math.Float32frombits(uint32(f.bits)))
		case 3<<3 | pbBytes, 4<<3 | pbBytes, 5<<3 | pbBytes, 6<<3 | pbBytes: // old histogram, image, histogram, audio
			v.form = tbNone
		case 8<<3 | pbBytes:
			var one bool
			v.form = tbNone
			if v.number, one, ok = tbTensor(b[:f.to], f.from); !ok {
				return false
			}
			if one {
				v.form = tbOne
			}
		case 9<<3 | pbBytes:
			if !v.metadata(b[:f.to], f.from) {
				return false
			}
		}
	}
	return true
}

// metadata reads plugin_data.plugin_name of a SummaryMetadata.
func (v *tbValue) metadata(b []byte, i int) (ok bool) {
	var f, g pbField
	for i < len(b) {
		if i = pbNext(b, i, &f); i < 0 {
			return false
		}
		if f.key != 1<<3|pbBytes {
			continue
		}
		for k := f.from; k < f.to; {
			if k = pbNext(b[:f.to], k, &g); k < 0 {
				return false
			}
			if g.key == 1<<3|pbBytes {
				v.plugin = tbSpan{int32(g.from), int32(g.to)}
			}
		}
	}
	return true
}
