package main

// One TensorBoard record, decoded: the numbers that a protobuf Event holds. By hand, without copies; nothing is known here of frames,
// files or series. Field numbers: event.proto and summary.proto of TensorFlow.

import (
	"encoding/binary"
	"math"
)

// tbValue is what one Summary.Value of an event says, if it says anything. Slices point into the record.
type tbValue struct {
	tag    []byte
	plugin []byte // plugin_data.plugin_name, empty when the value does not tell one
	form   tbForm
	number float64 // with tbSimple and tbOne
}

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

// pbField is one field of a message: number of a varint or the bits of a fixed one, or the bytes.
type pbField struct {
	key  uint64 // field number << 3 | wire type
	bits uint64
	body []byte
}

// pbNext reads the field that begins at b[i]; next is where the following one begins, -1 when these are no protobuf fields. Groups, which
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
		f.body = b[i : i+int(n)]
		return i + int(n)
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
			if values, ok = tbSummary(f.body, values); !ok {
				return e, values, false
			}
		}
	}
	return e, values, true
}

func tbSummary(b []byte, values []tbValue) (_ []tbValue, ok bool) {
	var f pbField
	for i := 0; i < len(b); {
		if i = pbNext(b, i, &f); i < 0 {
			return values, false
		}
		if f.key == 1<<3|pbBytes {
			v, ok := tbParseValue(f.body)
			if !ok {
				return values, false
			}
			if v.form != tbNone || len(v.plugin) > 0 {
				values = append(values, v)
			}
		}
	}
	return values, true
}

// tbParseValue reads a Summary.Value. Of the members of its oneof the last one counts.
func tbParseValue(b []byte) (v tbValue, ok bool) {
	var f pbField
	for i := 0; i < len(b); {
		if i = pbNext(b, i, &f); i < 0 {
			return v, false
		}
		switch f.key {
		case 1<<3 | pbBytes:
			v.tag = f.body
		case 2<<3 | pbFixed4:
			v.form, v.number = tbSimple, float64(math.Float32frombits(uint32(f.bits)))
		case 3<<3 | pbBytes, 4<<3 | pbBytes, 5<<3 | pbBytes, 6<<3 | pbBytes: // old histogram, image, histogram, audio
			v.form = tbNone
		case 8<<3 | pbBytes:
			var one bool
			v.form = tbNone
			if v.number, one, ok = tbTensor(f.body); !ok {
				return v, false
			}
			if one {
				v.form = tbOne
			}
		case 9<<3 | pbBytes:
			if v.plugin, ok = tbPlugin(f.body, v.plugin); !ok {
				return v, false
			}
		}
	}
	return v, true
}

// tbPlugin reads SummaryMetadata.plugin_data.plugin_name; was is what an earlier one said.
func tbPlugin(b, was []byte) (name []byte, ok bool) {
	var f, g pbField
	for i := 0; i < len(b); {
		if i = pbNext(b, i, &f); i < 0 {
			return nil, false
		}
		if f.key != 1<<3|pbBytes {
			continue
		}
		for k := 0; k < len(f.body); {
			if k = pbNext(f.body, k, &g); k < 0 {
				return nil, false
			}
			if g.key == 1<<3|pbBytes {
				was = g.body
			}
		}
	}
	return was, true
}
