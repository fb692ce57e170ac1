package main

// Event files for tests, made by hand from the field numbers of event.proto, summary.proto and tensor.proto, and a second reader: the
// rules of tb.go said over a whole file at once.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"testing"
)

func tbMask(b []byte) uint32 {
	c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return (c>>15 | c<<17) + 0xa282ead8
}

// tbFrame is a record of data.
func tbFrame(data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, tbMask(b))
	return binary.LittleEndian.AppendUint32(append(b, data...), tbMask(data))
}

func pbVar(field, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, field<<3), v)
}

func pbF32(field uint64, v float32) []byte {
	return binary.LittleEndian.AppendUint32(binary.AppendUvarint(nil, field<<3|5), math.Float32bits(v))
}

func pbF64(field uint64, v float64) []byte {
	return binary.LittleEndian.AppendUint64(binary.AppendUvarint(nil, field<<3|1), math.Float64bits(v))
}

func pbMsg(field uint64, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	return append(binary.AppendUvarint(binary.AppendUvarint(nil, field<<3|2), uint64(len(body))), body...)
}

func pbText(field uint64, s string) []byte { return pbMsg(field, []byte(s)) }

// tbEventOf is a record of an Event with these Summary.Values.
func tbEventOf(wall float64, step int64, values ...[]byte) []byte {
	return tbFrame(slices.Concat(pbF64(1, wall), pbVar(2, uint64(step)), pbMsg(5, values...)))
}

func tbSimpleOf(tag string, v float32) []byte { return pbMsg(1, pbText(1, tag), pbF32(2, v)) }

func tbScalarOf(step int64, tag string, v float32) []byte {
	return tbEventOf(1.7e9+float64(step), step, tbSimpleOf(tag, v))
}

func tbMeta(plugin string) []byte { return pbMsg(9, pbMsg(1, pbText(1, plugin))) }

func tbTensorOf(tag, plugin string, tensor ...[]byte) []byte {
	v := slices.Concat(pbText(1, tag), pbMsg(8, tensor...))
	if plugin != "" {
		v = append(v, tbMeta(plugin)...)
	}
	return pbMsg(1, v)
}

// tbImageOf is a value with an image of n bytes that do not compress.
func tbImageOf(tag string, n int) []byte {
	px := make([]byte, n)
	for i := range px {
		px[i] = byte(i*7 + i>>8)
	}
	return pbMsg(1, pbText(1, tag), pbMsg(4, pbVar(1, 10), pbVar(2, 10), pbVar(3, 3), pbMsg(4, px)))
}

func tbVersion() []byte { return tbFrame(slices.Concat(pbF64(1, 1.7e9), pbText(3, "brain.Event:2"))) }

// tbSeen is what came out of a file, in order of arrival; points and rejects apart.
type tbSeen struct{ points, rejects []string }

func (s *tbSeen) point(name string, step, atMS int64, v float64) {
	if math.IsNaN(v) {
		v = math.NaN() // its payload is nobody's
	}
	s.points = append(s.points, fmt.Sprintf("%s %d %d %016x", name, step, atMS, math.Float64bits(v)))
}

func (s *tbSeen) take(r *tbReader) {
	for _, p := range r.points {
		s.point(r.series[p.slot].name, p.step, p.atMS, p.value)
	}
	s.rejects = append(s.rejects, r.rejects...)
	r.taken()
}

func (s tbSeen) equal(o tbSeen) bool {
	return slices.Equal(s.points, o.points) && slices.Equal(s.rejects, o.rejects)
}

// tbDrive feeds file from off on, as it grows by cut() bytes each time, and ends it. Without hops nothing is hopped over that need not
// be. each is called after each piece.
func tbDrive(t testing.TB, r *tbReader, file []byte, off int, cut func() int, hops bool, each func()) (seen tbSeen, read int) {
	t.Helper()
	pos := off
	for size := off; ; {
		size = min(size+cut(), len(file))
		for rounds := 0; ; rounds++ {
			if rounds > 100*len(file)+1000 {
				t.Fatal("does not end")
			}
			if h := r.hop(); h < 0 || h > 0 && hops && pos < size {
				h = min(h, int64(size-pos))
				r.hopped(h)
				pos += int(h)
				continue
			}
			if pos == size {
				if size < len(file) {
					break
				}
				r.flush()
				if r.hop() >= 0 {
					seen.take(r)
					each()
					return seen, read
				}
				continue
			}
			n, err := r.feed(file[pos:min(size, pos+4096)])
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 && r.hop() == 0 && !r.stuck {
				t.Fatalf("stands at %d in state %d", pos, r.state)
			}
			pos += n
			read += n
			if r.off != int64(pos) || r.clean() > r.off+max(0, -r.hop()) {
				t.Fatalf("at %d, it says %d, clean %d", pos, r.off, r.clean())
			}
			seen.take(r)
			each()
		}
	}
}

// tbPast reads a file again.
func tbPast(file []byte) tbReadAt { return bytes.NewReader(file).ReadAt }

// tbReadWhole reads a file at once.
func tbReadWhole(t testing.TB, file []byte) tbSeen {
	r := &tbReader{}
	r.reset(0)
	seen, _ := tbDrive(t, r, file, 0, func() int { return len(file) }, true, func() {})
	return seen
}

// tbPlain is the second reader.
func tbPlain(b []byte) (seen tbSeen) {
	le := binary.LittleEndian
	plugins := map[string]string{}
	far := func(data []byte) bool { // has a field that is hopped over
		for i, f := 0, (pbField{}); i < len(data); {
			if i = pbNext(data, i, &f); i < 0 {
				return false
			}
			if f.key != 5<<3|2 {
				if f.key&7 == 2 && f.to-f.from >= tbHopBytes {
					return true
				}
				continue
			}
			for k, v := f.from, (pbField{}); k < f.to; {
				if k = pbNext(data[:f.to], k, &v); k < 0 {
					return false
				}
				for m, g := v.from, (pbField{}); v.key&7 == 2 && m < v.to; {
					if m = pbNext(data[:v.to], m, &g); m < 0 {
						return false
					}
					if g.key&7 == 2 && g.to-g.from >= tbHopBytes && g.key>>3 > 1 && g.key>>3 < 8 {
						return true
					}
				}
			}
		}
		return false
	}
	headAt := func(o int) (size int, ok bool) {
		if len(b)-o < 12 || tbMask(b[o:o+8]) != le.Uint32(b[o+8:]) || le.Uint64(b[o:]) > tbMostBytes {
			return 0, false
		}
		return 16 + int(le.Uint64(b[o:])), true
	}
	valid := func(o, size int) bool { return tbMask(b[o+12:o+size-4]) == le.Uint32(b[o+size-4:]) }
	for o := 0; len(b)-o >= 12; {
		size, ok := headAt(o)
		if ok && size > len(b)-o {
			return seen
		}
		natural, why := len(b), "the checksum of a record's length is wrong"
		if ok {
			data := b[o+12 : o+size-4]
			if valid(o, size) || len(data) > tbHeldBytes && far(data) {
				e, values, ok := tbParse(data, nil)
				if !ok {
					seen.rejects = append(seen.rejects, fmt.Sprintf("byte %d: a record that is no TensorBoard event", o))
				} else {
					for _, v := range values {
						tag := string(v.tag.of(data))
						if !v.plugin.empty() {
							plugins[tag] = string(v.plugin.of(data))
						}
						if p := plugins[tag]; v.form == tbSimple && v.plugin.empty() || v.form != tbNone && (p == "" || p == tbScalarsPlugin) {
							seen.point(tag, e.step, tbMillis(e.wall), v.number)
						}
					}
				}
				o += size
				continue
			}
			natural, why = o+size, tbDataFault
		} else if tbMask(b[o:o+8]) == le.Uint32(b[o+8:]) {
			why = fmt.Sprintf("a record that says it has %d bytes", le.Uint64(b[o:]))
		}
		c := o + 1
		for ; c < natural; c++ {
			if size, ok := headAt(c); ok && size <= len(b)-c && valid(c, size) {
				break
			}
		}
		seen.rejects = append(seen.rejects, fmt.Sprintf("byte %d: %s; %d bytes left out", o, why, c-o))
		o = c
	}
	return seen
}
