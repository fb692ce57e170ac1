package main

// A TensorProto of one number: every dtype of TensorFlow that is a real number, in tensor_content or in the *_val field of its family.
// Tensors of more elements are told from it by their lengths, never decoded. Numbers: tensor.proto and types.proto of TensorFlow.

import (
	"encoding/binary"
	"math"
)

// Element types.
const (
	tfFloat    = 1
	tfDouble   = 2
	tfInt32    = 3
	tfUint8    = 4
	tfInt16    = 5
	tfInt8     = 6
	tfInt64    = 9
	tfBool     = 10
	tfBfloat16 = 14
	tfUint16   = 17
	tfHalf     = 19
	tfUint32   = 22
	tfUint64   = 23
)

// tbValsMost is the longest *_val field that can hold one element: packed, a varint of 10 bytes. tbWalk cuts longer ones behind it.
const tbValsMost = 10

// tbVals are the elements of one *_val field: how many, up to 2, and the first one's bits.
type tbVals struct {
	n    int
	bits uint64
}

// add takes the elements of f, a field of b, packed or not. ok is false when the bytes are no elements.
func (v *tbVals) add(b []byte, f *pbField, wire uint64) (ok bool) {
	if f.key&7 == wire {
		v.put(f.bits)
		return true
	}
	if f.key&7 != pbBytes || f.to-f.from > tbValsMost {
		v.n = 2 // not one of this family, or several
		return true
	}
	b = b[:f.to]
	for i := f.from; i < len(b); {
		var bits uint64
		switch wire {
		case pbVarint:
			bits, i = pbUint(b, i)
		case pbFixed4:
			if len(b)-i < 4 {
				return false
			}
			bits = uint64(binary.LittleEndian.Uint32(b[i:]))
			i += 4
		default:
			if len(b)-i < 8 {
				return false
			}
			bits = binary.LittleEndian.Uint64(b[i:])
			i += 8
		}
		if i < 0 {
			return false
		}
		v.put(bits)
	}
	return true
}

func (v *tbVals) put(bits uint64) {
	if v.n == 0 {
		v.bits = bits
	}
	v.n = min(v.n+1, 2)
}

// tbTensor gives the number of the tensor from b[i] on, if it has one element. ok is false when these bytes are no TensorProto.
func tbTensor(b []byte, i int) (number float64, one, ok bool) {
	var (
		dtype                                uint64
		content                              []byte
		floats, doubles, ints, longs, bools  tbVals
		halves, unsigned, unsignedLongs, not tbVals
		single                               = true
		f                                    pbField
	)
	for i < len(b) {
		if i = pbNext(b, i, &f); i < 0 {
			return 0, false, false
		}
		ok := true
		switch f.key >> 3 {
		case 1:
			if f.key&7 == pbVarint {
				dtype = f.bits
			}
		case 2:
			if f.key&7 == pbBytes {
				single, ok = tbShape(b[:f.to], f.from)
			}
		case 4:
			if f.key&7 == pbBytes {
				content = b[f.from:f.to]
			}
		case 5:
			ok = floats.add(b, &f, pbFixed4)
		case 6:
			ok = doubles.add(b, &f, pbFixed8)
		case 7:
			ok = ints.add(b, &f, pbVarint)
		case 10:
			ok = longs.add(b, &f, pbVarint)
		case 11:
			ok = bools.add(b, &f, pbVarint)
		case 13:
			ok = halves.add(b, &f, pbVarint)
		case 16:
			ok = unsigned.add(b, &f, pbVarint)
		case 17:
			ok = unsignedLongs.add(b, &f, pbVarint)
		}
		if !ok {
			return 0, false, false
		}
	}
	size, vals := 0, &not
	switch dtype {
	case tfFloat:
		size, vals = 4, &floats
	case tfDouble:
		size, vals = 8, &doubles
	case tfInt32:
		size, vals = 4, &ints
	case tfInt16, tfUint16:
		size, vals = 2, &ints
	case tfInt8, tfUint8:
		size, vals = 1, &ints
	case tfInt64:
		size, vals = 8, &longs
	case tfBool:
		size, vals = 1, &bools
	case tfHalf, tfBfloat16:
		size, vals = 2, &halves
	case tfUint32:
		size, vals = 4, &unsigned
	case tfUint64:
		size, vals = 8, &unsignedLongs
	}
	if size == 0 || !single {
		return 0, false, true
	}
	bits := vals.bits // of no element at all: zero, as TensorFlow fills it (Tensor::FromProto)
	switch {
	case len(content) > 0 && len(content) == size:
		var word [8]byte
		copy(word[:], content)
		bits = binary.LittleEndian.Uint64(word[:])
	case len(content) > 0 || vals.n > 1:
		return 0, false, true
	}
	return tbNumber(dtype, bits), true, true
}

// tbShape reads the TensorShapeProto from b[i] on: single when every dimension is 1, or none is told.
func tbShape(b []byte, i int) (single, ok bool) {
	single = true
	var f, g pbField
	for i < len(b) {
		if i = pbNext(b, i, &f); i < 0 {
			return false, false
		}
		if f.key != 2<<3|pbBytes {
			continue
		}
		size := uint64(0)
		for k := f.from; k < f.to; {
			if k = pbNext(b[:f.to], k, &g); k < 0 {
				return false, false
			}
			if g.key == 1<<3|pbVarint {
				size = g.bits
			}
		}
		single = single && size == 1
	}
	return single, true
}

// tbNumber is the element with these bits.
func tbNumber(dtype, bits uint64) float64 {
	switch dtype {
	case tfFloat:
		return float64(math.Float32frombits(uint32(bits)))
	case tfDouble:
		return math.Float64frombits(bits)
	case tfHalf:
		return float64(halfFloat(uint16(bits)))
	case tfBfloat16:
		return float64(math.Float32frombits(uint32(uint16(bits)) << 16))
	case tfInt32:
		return float64(int32(bits))
	case tfInt16:
		return float64(int16(bits))
	case tfInt8:
		return float64(int8(bits))
	case tfUint16:
		return float64(uint16(bits))
	case tfUint8:
		return float64(uint8(bits))
	case tfUint32:
		return float64(uint32(bits))
	case tfInt64:
		return float64(int64(bits))
	case tfUint64:
		return float64(bits)
	}
	if bits != 0 {
		return 1
	}
	return 0
}

// halfFloat widens an IEEE 754 binary16.
func halfFloat(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0: // zero and subnormal: frac * 2^-24 is exact
		return math.Float32frombits(sign | math.Float32bits(float32(frac)/(1<<24)))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}
