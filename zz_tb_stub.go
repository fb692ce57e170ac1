package main

// Stand-in for the chunk coding of series.go: plain varints and float64 bits, until that is here. Dropped when it is.

import (
	"encoding/binary"
	"errors"
	"math"
)

type seriesColumns struct {
	steps, atMS []int64
	values      []float64
}

type seriesPacker struct{}

func (p *seriesPacker) pack(c seriesColumns) []byte { return seriesPack(c.steps, c.atMS, c.values) }

func seriesPack(steps, atMS []int64, values []float64) []byte {
	b := binary.AppendUvarint(nil, uint64(len(steps)))
	var step, by, at, atBy int64
	for i := range steps {
		s, a := steps[i]-step, atMS[i]-at
		b = binary.AppendVarint(binary.AppendVarint(b, s-by), a-atBy)
		step, by, at, atBy = steps[i], s, atMS[i], a
	}
	for _, v := range values {
		if f := float32(v); float64(f) == v || v != v {
			continue
		}
		b = append(b, 8)
		for _, v := range values {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
		return b
	}
	b = append(b, 4)
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	}
	return b
}

func seriesUnpack(data []byte, most int) (steps, atMS []int64, values []float64, err error) {
	bad := errors.New("no packed columns")
	n, k := binary.Uvarint(data)
	if k <= 0 || n > uint64(most) {
		return nil, nil, nil, bad
	}
	data = data[k:]
	var step, by, at, atBy int64
	for range n {
		s, k := binary.Varint(data)
		if k <= 0 {
			return nil, nil, nil, bad
		}
		a, m := binary.Varint(data[k:])
		if m <= 0 {
			return nil, nil, nil, bad
		}
		data = data[k+m:]
		by, atBy = by+s, atBy+a
		step, at = step+by, at+atBy
		steps, atMS = append(steps, step), append(atMS, at)
	}
	if len(data) == 0 || len(data) != 1+int(n)*int(data[0]) {
		return nil, nil, nil, bad
	}
	width := int(data[0])
	for data = data[1:]; len(data) > 0; data = data[width:] {
		if width == 8 {
			values = append(values, math.Float64frombits(binary.LittleEndian.Uint64(data)))
		} else {
			values = append(values, float64(math.Float32frombits(binary.LittleEndian.Uint32(data))))
		}
	}
	return steps, atMS, values, nil
}
