package main

// The TensorBoard reader: frames, forms of scalars, tails, damage, cuts, restarts.

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func tbNames(points []string) string {
	var names []string
	for _, p := range points {
		names = append(names, strings.Fields(p)[0])
	}
	return strings.Join(names, " ")
}

func TestTBForms(t *testing.T) {
	le := binary.LittleEndian
	shape := func(dims ...uint64) []byte {
		var b []byte
		for _, d := range dims {
			b = append(b, pbMsg(2, pbVar(1, d))...)
		}
		return pbMsg(2, b)
	}
	minus := int64(-7)
	val := func(field uint64, vs ...uint64) []byte {
		var b []byte
		for _, v := range vs {
			b = binary.AppendUvarint(b, v)
		}
		return pbMsg(field, b)
	}
	floats := func(vs ...float32) []byte {
		var b []byte
		for _, v := range vs {
			b = le.AppendUint32(b, math.Float32bits(v))
		}
		return pbMsg(5, b)
	}
	content := func(b ...byte) []byte { return pbMsg(4, b) }
	f32 := func(v float32) []byte { return le.AppendUint32(nil, math.Float32bits(v)) }
	none := math.Inf(-1)
	for _, c := range []struct {
		name   string
		tensor [][]byte
		want   float64 // none: no scalar
	}{
		{"float_val", [][]byte{pbVar(1, tfFloat), shape(), floats(0.1)}, float64(float32(0.1))},
		{"float_val unpacked", [][]byte{pbVar(1, tfFloat), pbF32(5, 0.1)}, float64(float32(0.1))},
		{"float_val before dtype", [][]byte{floats(0.1), pbVar(1, tfFloat)}, float64(float32(0.1))},
		{"float content", [][]byte{pbVar(1, tfFloat), content(f32(-2.5)...)}, -2.5},
		{"double_val", [][]byte{pbVar(1, tfDouble), pbMsg(6, le.AppendUint64(nil, math.Float64bits(0.1)))}, 0.1},
		{"double_val unpacked", [][]byte{pbVar(1, tfDouble), pbF64(6, 0.1)}, 0.1},
		{"double content", [][]byte{pbVar(1, tfDouble), content(le.AppendUint64(nil, math.Float64bits(1e300))...)}, 1e300},
		{"int_val", [][]byte{pbVar(1, tfInt32), val(7, 41)}, 41},
		{"int_val negative", [][]byte{pbVar(1, tfInt32), val(7, uint64(minus))}, -7},
		{"int32 content", [][]byte{pbVar(1, tfInt32), content(0xf9, 0xff, 0xff, 0xff)}, -7},
		{"int16", [][]byte{pbVar(1, tfInt16), val(7, uint64(minus))}, -7},
		{"int16 content", [][]byte{pbVar(1, tfInt16), content(0xf9, 0xff)}, -7},
		{"int8", [][]byte{pbVar(1, tfInt8), val(7, uint64(minus))}, -7},
		{"int8 content", [][]byte{pbVar(1, tfInt8), content(0xf9)}, -7},
		{"uint8", [][]byte{pbVar(1, tfUint8), val(7, 255)}, 255},
		{"uint8 content", [][]byte{pbVar(1, tfUint8), content(0xf9)}, 249},
		{"uint16", [][]byte{pbVar(1, tfUint16), val(7, 65535)}, 65535},
		{"uint16 content", [][]byte{pbVar(1, tfUint16), content(0xff, 0xff)}, 65535},
		{"int64_val", [][]byte{pbVar(1, tfInt64), val(10, uint64(minus))}, -7},
		{"int64 content", [][]byte{pbVar(1, tfInt64), content(1, 0, 0, 0, 1, 0, 0, 0)}, 1<<32 + 1},
		{"uint32_val", [][]byte{pbVar(1, tfUint32), val(16, 1<<32-1)}, 1<<32 - 1},
		{"uint64_val", [][]byte{pbVar(1, tfUint64), val(17, 1<<63)}, 1 << 63},
		{"bool_val", [][]byte{pbVar(1, tfBool), val(11, 1)}, 1},
		{"bool content", [][]byte{pbVar(1, tfBool), content(1)}, 1},
		{"bool false", [][]byte{pbVar(1, tfBool), val(11, 0)}, 0},
		{"half_val", [][]byte{pbVar(1, tfHalf), val(13, 0x3555)}, 0.333251953125},
		{"half content", [][]byte{pbVar(1, tfHalf), content(0x00, 0xc0)}, -2},
		{"half subnormal", [][]byte{pbVar(1, tfHalf), val(13, 1)}, 1.0 / (1 << 24)},
		{"half infinity", [][]byte{pbVar(1, tfHalf), val(13, 0x7c00)}, math.Inf(1)},
		{"half NaN", [][]byte{pbVar(1, tfHalf), val(13, 0x7e00)}, math.NaN()},
		{"bfloat16_val", [][]byte{pbVar(1, tfBfloat16), val(13, 0x3fc0)}, 1.5},
		{"bfloat16 content", [][]byte{pbVar(1, tfBfloat16), content(0x49, 0x40)}, 3.140625},
		{"one element, rank 1", [][]byte{pbVar(1, tfFloat), shape(1), floats(3)}, 3},
		{"one element, rank 3", [][]byte{pbVar(1, tfFloat), shape(1, 1, 1), content(f32(3)...)}, 3},
		{"unknown rank", [][]byte{pbVar(1, tfFloat), pbMsg(2, pbVar(3, 1)), floats(3)}, 3},
		{"no element told", [][]byte{pbVar(1, tfFloat), shape()}, 0},
		{"2x2", [][]byte{pbVar(1, tfFloat), shape(2, 2), floats(1, 2, 3, 4)}, none},
		{"2x2 of one value", [][]byte{pbVar(1, tfFloat), shape(2, 2), floats(1)}, none},
		{"two elements without a shape", [][]byte{pbVar(1, tfFloat), floats(1, 2)}, none},
		{"two unpacked", [][]byte{pbVar(1, tfFloat), pbF32(5, 1), pbF32(5, 2)}, none},
		{"content of two", [][]byte{pbVar(1, tfFloat), append(content(), pbMsg(4, f32(1), f32(2))...)}, none},
		{"no element", [][]byte{pbVar(1, tfFloat), shape(0)}, none},
		{"text", [][]byte{pbVar(1, 7), pbText(8, "hello")}, none},
		{"complex", [][]byte{pbVar(1, 8), pbMsg(9, f32(1), f32(2))}, none},
		{"no dtype", [][]byte{floats(1)}, none},
	} {
		for _, plugin := range []string{"", tbScalarsPlugin, "images"} {
			t.Run(c.name+" "+plugin, func(t *testing.T) {
				var want tbSeen
				if c.want != none && plugin != "images" {
					want.point("loss", 5, 1700000000250, c.want)
				}
				record := tbEventOf(1.7e9+0.25, 5, tbTensorOf("loss", plugin, c.tensor...))
				if seen := tbReadWhole(t, record); !seen.equal(want) {
					t.Errorf("got %v, want %v", seen, want)
				}
				// The same beside a large image: walked, not held.
				record = tbEventOf(1.7e9+0.25, 5, tbTensorOf("loss", plugin, c.tensor...), tbImageOf("img", 100<<10))
				if seen := tbReadWhole(t, record); !seen.equal(want) {
					t.Errorf("beside an image: got %v, want %v", seen, want)
				}
			})
		}
	}
}

func TestTBRecords(t *testing.T) {
	tensor := func(tag, plugin string) []byte { return tbTensorOf(tag, plugin, pbVar(1, tfFloat), pbF32(5, 1)) }
	long := strings.Repeat("é", 600)
	for _, c := range []struct {
		name  string
		file  []byte
		names string
	}{
		{"nothing", nil, ""},
		{"the version alone", tbVersion(), ""},
		{"an empty record", tbFrame(nil), ""},
		{"simple", tbScalarOf(1, "a", 1), "a"},
		{"several in one", tbEventOf(1, 1, tbSimpleOf("a", 1), tbSimpleOf("b", 2), tbSimpleOf("a", 3)), "a b a"},
		{"step and time behind the summary", tbFrame(slices.Concat(pbMsg(5, tbSimpleOf("a", 1)), pbVar(2, 9), pbF64(1, 5))), "a"},
		{"plugin in the first event only", slices.Concat(tbEventOf(1, 1, tensor("a", "images")), tbEventOf(2, 2, tensor("a", ""))), ""},
		{"plugin of an event without a number", slices.Concat(tbEventOf(1, 1, pbMsg(1, pbText(1, "a"), tbMeta("hparams"))), tbEventOf(2, 2, tensor("a", ""))), ""},
		{"plugin told anew", slices.Concat(tbEventOf(1, 1, tensor("a", "images")), tbEventOf(2, 2, tensor("a", tbScalarsPlugin)), tbEventOf(2, 2, tensor("a", ""))), "a a"},
		{"simple of a foreign plugin", tbEventOf(1, 1, pbMsg(1, pbText(1, "a"), pbF32(2, 1), tbMeta("pr_curves"))), ""},
		{"metadata without a plugin", tbEventOf(1, 1, pbMsg(1, pbText(1, "a"), pbF32(2, 1), pbMsg(9, pbText(2, "shown")))), "a"},
		{"the last of a oneof", tbEventOf(1, 1, pbMsg(1, pbText(1, "a"), pbF32(2, 1), pbMsg(4, pbVar(1, 1)))), ""},
		{"a histogram", tbEventOf(1, 1, pbMsg(1, pbText(1, "h"), pbMsg(5, pbF64(1, 0)))), ""},
		{"session log, graph", slices.Concat(tbFrame(pbMsg(7, pbVar(1, 1))), tbFrame(pbText(4, "graph"))), ""},
		{"no tag", tbEventOf(1, 1, pbMsg(1, pbF32(2, 1))), "(no"},
		{"tag with a bad byte", tbScalarOf(1, "a\xffb", 1), "a\ufffdb"},
		{"long tag", tbScalarOf(1, long, 1), tbShortName(long)},
		{"an unknown field", tbFrame(slices.Concat(pbVar(99, 1), pbMsg(5, pbText(77, "x"), tbSimpleOf("a", 1)))), "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := tbReadWhole(t, c.file)
			if tbNames(seen.points) != c.names || len(seen.rejects) > 0 {
				t.Errorf("got %q %q, want %q", seen.points, seen.rejects, c.names)
			}
		})
	}
	if n := tbShortName(long); len(n) > nameMaxBytes || n == tbShortName(long+"x") || !strings.HasPrefix(n, "éééé") {
		t.Errorf("%d bytes: %s", len(n), n)
	}
}

// Steps as they are (B11), numbers that are none (B09), float32 as its bits.
func TestTBNumbers(t *testing.T) {
	var file []byte
	var want tbSeen
	for i, s := range []int64{607500, 583600, -1, 0, math.MaxInt64, math.MinInt64} {
		file = append(file, tbScalarOf(s, "a", float32(i))...)
		want.point("a", s, tbMillis(1.7e9+float64(s)), float64(i))
	}
	file = append(file, tbFrame(slices.Concat(pbF64(1, 2), pbMsg(5, tbSimpleOf("a", 0.1))))...)
	want.point("a", 0, 2000, float64(float32(0.1)))
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat32, math.SmallestNonzeroFloat32, math.Copysign(0, -1)} {
		file = append(file, tbEventOf(3.0004999, 1, tbSimpleOf("b", float32(v)))...)
		want.point("b", 1, 3000, float64(float32(v)))
	}
	for _, w := range []float64{math.NaN(), math.Inf(1), -5, 1e300} {
		file = append(file, tbEventOf(w, 1, tbSimpleOf("c", 1))...)
		want.point("c", 1, 0, 1)
	}
	if seen := tbReadWhole(t, file); !seen.equal(want) {
		t.Errorf("got  %v\nwant %v", seen.points, want.points)
	}
}

// casesTB are the real files; the one reason to do without them is that they are not there.
func casesTB(t *testing.T) []string {
	t.Helper()
	root := os.Getenv("GPUCTL_CASES")
	if root == "" {
		root = "../shared/cases"
	}
	list, err := filepath.Glob(filepath.Join(root, "tb", "*", "events.out.tfevents.*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Skip("no event files below " + root)
	}
	return list
}

// Each real file, in pieces, is what TensorBoard reads from it.
func TestTBRealFiles(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, path := range casesTB(t) {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(filepath.Join(filepath.Dir(path), "expected.json"))
			if err != nil {
				t.Fatal(err)
			}
			var want map[string][][3]json.Number
			if err := json.Unmarshal(raw, &want); err != nil || len(want) == 0 {
				t.Fatal(err, len(want))
			}
			for name, cut := range map[string]func() int{
				"1": func() int { return 1 }, "7": func() int { return 7 }, "4096": func() int { return 4096 },
				"random": func() int { return 1 + rnd.IntN(20000) }, "whole": func() int { return len(file) },
			} {
				got := map[string][]tbPoint{}
				r := &tbReader{}
				r.reset(0)
				for pos := 0; pos < len(file); {
					if h := r.hop(); h > 0 {
						h = min(h, int64(len(file)-pos))
						r.hopped(h)
						pos += int(h)
						continue
					}
					n, err := r.feed(file[pos:min(len(file), pos+cut())])
					if err != nil {
						t.Fatal(err)
					}
					pos += n
					for _, p := range r.points {
						name := r.series[p.slot].name
						got[name] = append(got[name], p)
					}
					if len(r.rejects) > 0 {
						t.Fatal(r.rejects)
					}
					r.taken()
				}
				if len(got) != len(want) || r.clean() != int64(len(file)) {
					t.Errorf("%s: %d series, want %d; clean %d of %d", name, len(got), len(want), r.clean(), len(file))
				}
				for tag, list := range want {
					if len(got[tag]) != len(list) {
						t.Errorf("%s: %s has %d points, want %d", name, tag, len(got[tag]), len(list))
						continue
					}
					for i, w := range list {
						step, _ := w[0].Int64()
						at, _ := w[1].Float64()
						v, _ := w[2].Float64()
						if g := got[tag][i]; g.step != step || math.Abs(float64(g.atMS)-at*1000) > 1 || g.value != v || float64(float32(v)) != v {
							t.Errorf("%s: %s[%d] is %v, want %v", name, tag, i, g, w)
						}
					}
				}
			}
		})
	}
}

// A half-written record is waited for, at every cut (B01).
func TestTBTornTail(t *testing.T) {
	head := slices.Concat(tbVersion(), tbScalarOf(1, "loss", 1), tbScalarOf(2, "loss", 2))
	last := tbScalarOf(3, "loss", 3)
	big := tbEventOf(3, 3, tbImageOf("img", 200<<10), tbSimpleOf("loss", 3))
	for _, last := range [][]byte{last, big} {
		for cut := 1; cut < len(last); cut++ {
			if cut > 100 && cut < len(last)-100 && cut%4099 != 0 {
				continue
			}
			r := &tbReader{}
			r.reset(0)
			pos := len(head) + cut
			if n, err := r.feed(append(slices.Clone(head), last[:cut]...)); n != pos || err != nil {
				t.Fatal(n, err)
			}
			if len(r.points) != 2 || len(r.rejects) != 0 || r.clean() != int64(len(head)) {
				t.Fatalf("cut %d: %d points, %v, clean %d", cut, len(r.points), r.rejects, r.clean())
			}
			r.flush() // the end of a file whose writer was killed is no damage
			if len(r.rejects) != 0 || r.clean() != int64(len(head)) {
				t.Fatalf("cut %d, ended: %v, clean %d", cut, r.rejects, r.clean())
			}
			if n, err := r.feed(last[cut:]); n != len(last)-cut || err != nil {
				t.Fatal(n, err)
			}
			if len(r.points) != 3 || r.points[2].step != 3 || r.clean() != int64(len(head)+len(last)) {
				t.Fatalf("cut %d, whole: %d points, clean %d", cut, len(r.points), r.clean())
			}
		}
	}
}

func TestTBDamage(t *testing.T) {
	rec := func(i int) []byte { return tbScalarOf(int64(i), "loss", float32(i)) }
	flip := func(b []byte, at int) []byte {
		b = slices.Clone(b)
		b[at] ^= 0x10
		return b
	}
	length := func(n uint64) []byte {
		b := binary.LittleEndian.AppendUint64(nil, n)
		return append(binary.LittleEndian.AppendUint32(b, tbMask(b)), "and some data that is not so long"...)
	}
	image := tbEventOf(2, 2, tbImageOf("img", 200<<10), tbSimpleOf("loss", 2))
	merged := func() []byte { // long, without anything to hop over
		var v [][]byte
		for range 3000 {
			v = append(v, tbImageOf("img", 30))
		}
		return tbEventOf(2, 2, append(v, tbSimpleOf("loss", 2))...)
	}()
	for _, c := range []struct {
		name  string
		bad   []byte // between record 1 and 3
		steps string
		why   string
	}{
		{"a data byte", flip(rec(2), 20), "1 3", "byte 42: the checksum of a record is wrong; 42 bytes left out"},
		{"the data checksum", flip(rec(2), len(rec(2))-1), "1 3", "byte 42: the checksum of a record is wrong; 42 bytes left out"},
		{"a length byte", flip(rec(2), 0), "1 3", "byte 42: the checksum of a record's length is wrong; 42 bytes left out"},
		{"the length checksum", flip(rec(2), 9), "1 3", "byte 42: the checksum of a record's length is wrong; 42 bytes left out"},
		{"a length of 2^40 with its checksum", length(1 << 40), "1 3", "byte 42: a record that says it has 1099511627776 bytes; 45 bytes left out"},
		{"a length of 2^40 without", flip(length(1<<40), 9), "1 3", "byte 42: the checksum of a record's length is wrong; 45 bytes left out"},
		{"a length of 2^63", length(1 << 63), "1 3", "byte 42: a record that says it has 9223372036854775808 bytes; 45 bytes left out"},
		{"zeros", make([]byte, 5000), "1 3", "byte 42: the checksum of a record's length is wrong; 5000 bytes left out"},
		{"a torn record that another follows", rec(2)[:40], "1 3", "byte 42: the checksum of a record is wrong; 40 bytes left out"},
		{"a torn record behind damage", append(make([]byte, 20), tbEventOf(2, 2, tbImageOf("img", 5000))[:100]...), "1 3", "byte 42: the checksum of a record's length is wrong; 120 bytes left out"},
		{"a torn long record behind damage", append(make([]byte, 20), merged[:40000]...), "1 3", "byte 42: the checksum of a record's length is wrong; 40020 bytes left out"},
		{"a torn long record that another follows", merged[:40000], "1", ""}, // it may still be whole
		{"a byte of a long record", flip(merged, 50000), "1 3", fmt.Sprintf("byte 42: the checksum of a record is wrong; %d bytes left out", len(merged))},
		{"a byte of an image that is not read", flip(image, 100000), "1 2 3", ""},
		{"no event", tbFrame([]byte("\xff\xff\xff")), "1 3", "byte 42: a record that is no TensorBoard event"},
		{"half an event", tbFrame(slices.Concat(pbMsg(5, tbSimpleOf("loss", 2)), []byte{0x2a, 0x50})), "1 3", "byte 42: a record that is no TensorBoard event"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := slices.Concat(rec(1), c.bad, rec(3))
			if len(rec(1)) != 42 {
				t.Fatal(len(rec(1)))
			}
			for _, k := range []int{1, 7, 43, len(file)} {
				r := &tbReader{}
				r.reset(0)
				seen, _ := tbDrive(t, r, file, 0, func() int { return k }, true, func() {})
				var steps []string
				for _, p := range seen.points {
					steps = append(steps, strings.Fields(p)[1])
				}
				if strings.Join(steps, " ") != c.steps || strings.Join(seen.rejects, "|") != c.why {
					t.Errorf("pieces of %d: steps %v, rejects %q", k, steps, seen.rejects)
				}
			}
		})
	}
	t.Run("two apart are two rejects, two together too", func(t *testing.T) {
		bad := flip(rec(2), 20)
		seen := tbReadWhole(t, slices.Concat(bad, bad, rec(3), bad))
		if len(seen.points) != 1 || len(seen.rejects) != 3 {
			t.Error(seen)
		}
	})
	t.Run("only what may become whole is waited for", func(t *testing.T) {
		r := &tbReader{}
		r.reset(0)
		file := slices.Concat(rec(1), length(1<<40), rec(3), rec(4)[:30])
		seen, _ := tbDrive(t, r, file, 0, func() int { return len(file) }, true, func() {})
		if len(seen.points) != 2 || len(seen.rejects) != 1 || r.clean() != int64(len(file)-30) {
			t.Error(seen, r.clean())
		}
	})
	t.Run("the next record is not whole yet", func(t *testing.T) {
		r := &tbReader{}
		r.reset(0)
		file := slices.Concat(rec(1), make([]byte, 100), rec(3))
		for cut := 42; cut < len(file); cut++ {
			r.reset(0)
			n, err := r.feed(file[:cut])
			if err != nil || len(r.rejects) != 0 || len(r.points) != 1 || r.clean() != 42 {
				t.Fatalf("cut %d: %v, %d points, %v, clean %d", cut, err, len(r.points), r.rejects, r.clean())
			}
			for n < len(file) {
				k, err := r.feed(file[n:])
				if err != nil {
					t.Fatal(err)
				}
				h := r.hop()
				r.hopped(h)
				n += k + int(h)
			}
			if len(r.rejects) != 1 || len(r.points) != 2 || r.clean() != int64(len(file)) {
				t.Fatalf("cut %d, whole: %d points, %v, clean %d", cut, len(r.points), r.rejects, r.clean())
			}
		}
	})
}

// tbRandomFile has everything, and damage in it.
func tbRandomFile(rnd *rand.Rand, damage bool) []byte {
	var b []byte
	for i := range 1 + rnd.IntN(60) {
		var rec []byte
		switch k := rnd.IntN(20); {
		case k < 10:
			rec = tbScalarOf(int64(i), string('a'+rune(rnd.IntN(4))), rnd.Float32())
		case k < 15:
			plugin := []string{"", "", "", tbScalarsPlugin, "images"}[rnd.IntN(5)]
			rec = tbEventOf(float64(i), int64(i), tbTensorOf(string('t'+rune(rnd.IntN(4))), plugin, pbVar(1, tfFloat), pbF32(5, rnd.Float32())), tbSimpleOf("a", 1))
		case k < 16:
			rec = tbEventOf(float64(i), int64(i), tbImageOf("img", rnd.IntN(200<<10)), tbSimpleOf("a", 1), tbTensorOf("t", "", pbVar(1, tfFloat), pbF32(5, 1)))
		case k < 17:
			var v [][]byte
			for j := range 3000 {
				v = append(v, tbImageOf(fmt.Sprint("img", j), 30))
			}
			rec = tbEventOf(float64(i), int64(i), append(v, tbTensorOf("u", []string{"", "images"}[rnd.IntN(2)], pbVar(1, tfInt64), pbVar(10, 3)))...)
		case k < 18:
			rec = tbFrame(pbText(4, strings.Repeat("g", rnd.IntN(100<<10))))
		case k < 19:
			rec = tbFrame([]byte("\x0a\xff"))
		default:
			rec = tbFrame(nil)
		}
		if damage && rnd.IntN(8) == 0 {
			switch rnd.IntN(5) {
			case 0:
				rec[rnd.IntN(len(rec))] ^= 1 << rnd.IntN(8)
			case 1:
				rec = rec[:rnd.IntN(len(rec))]
			case 2:
				rec = append(rec, make([]byte, rnd.IntN(100))...)
			case 3:
				rec = append(rec[:min(12, len(rec))], tbScalarOf(int64(i), "inside", 1)...)
			default:
				rec = append(rec[:min(rnd.IntN(14), len(rec))], rec[min(rnd.IntN(40), len(rec)):]...)
			}
		}
		b = append(b, rec...)
	}
	return b
}

// However a file is cut, hopped over, and restarted: what comes out is what the second reader says of the whole.
func TestTBRandom(t *testing.T) {
	rounds := uint64(40)
	if os.Getenv("GPUCTL_SLOW") != "" {
		rounds = 1000
	}
	for seed := range rounds {
		rnd := rand.New(rand.NewPCG(seed, 3))
		file := tbRandomFile(rnd, seed%4 != 0)
		want := tbPlain(file)
		most := []int{100, 5000, 300000}[rnd.IntN(3)]
		type stop struct {
			off             int64
			points, rejects int
		}
		var stops []stop
		var seen tbSeen
		for _, hops := range []bool{false, true} {
			r := &tbReader{}
			r.reset(0)
			stops = stops[:0]
			points, rejects := 0, 0
			seen, _ = tbDrive(t, r, file, 0, func() int { return 1 + rnd.IntN(most) }, hops, func() {})
			if !seen.equal(want) {
				t.Fatalf("seed %d, hops %v:\ngot  %d points, %q\nwant %d points, %q", seed, hops, len(seen.points), seen.rejects, len(want.points), want.rejects)
			}
			// Once more, with the clean points: what was made up to there, and what is made from there on by another reader.
			r.reset(0)
			var count tbSeen
			for pos, ended := 0, false; !ended; {
				if h := r.hop(); h < 0 || h > 0 && hops {
					h = min(h, int64(len(file)-pos))
					if h != 0 {
						r.hopped(h)
						pos += int(h)
						continue
					}
				}
				if pos == len(file) {
					r.flush()
					ended = r.hop() >= 0
				}
				n, err := r.feed(file[pos:min(len(file), pos+1+rnd.IntN(most))])
				if err != nil {
					t.Fatal(err)
				}
				pos += n
				count.take(r)
				points, rejects = len(count.points), len(count.rejects)
				stops = append(stops, stop{r.clean(), points, rejects})
			}
		}
		for range 5 {
			s := stops[rnd.IntN(len(stops))]
			r := &tbReader{}
			r.history = tbPast(file)
			r.reset(s.off)
			rest, _ := tbDrive(t, r, file, int(s.off), func() int { return 1 + rnd.IntN(most) }, true, func() {})
			if !slices.Equal(rest.points, want.points[s.points:]) || !slices.Equal(rest.rejects, want.rejects[s.rejects:]) {
				t.Fatalf("seed %d, from %d: %d points and %q, want %d and %q", seed, s.off, len(rest.points), rest.rejects, len(want.points)-s.points, want.rejects[s.rejects:])
			}
		}
	}
}

// A reader that begins in the middle asks for what lies before only when a tensor needs it, and an error there loses nothing.
func TestTBHistory(t *testing.T) {
	one := [][]byte{pbVar(1, tfFloat), pbF32(5, 1)}
	before := slices.Concat(tbVersion(), tbEventOf(1, 1, tbTensorOf("img", "images", one...)), tbEventOf(1, 1, tbTensorOf("loss", tbScalarsPlugin, one...)))
	simple := tbScalarOf(2, "other", 1)
	after := slices.Concat(tbEventOf(2, 2, tbTensorOf("img", "", one...)), tbEventOf(3, 3, tbTensorOf("loss", "", one...)))
	file := slices.Concat(before, simple, after)

	asked, fail := 0, errors.New("disk is gone")
	r := &tbReader{}
	r.history = func(b []byte, off int64) (int, error) {
		if asked++; asked == 1 {
			return 0, fail
		}
		return tbPast(file)(b, off)
	}
	r.reset(int64(len(before)))
	if n, err := r.feed(simple); n != len(simple) || err != nil || asked != 0 {
		t.Fatalf("%d %v, asked %d times by a simple value", n, err, asked)
	}
	n, err := r.feed(after)
	if !errors.Is(err, fail) || n != 0 || r.clean() != int64(len(before)+len(simple)) || len(r.points) != 1 {
		t.Fatalf("%d %v, clean %d, %d points", n, err, r.clean(), len(r.points))
	}
	if n, err = r.feed(after); n != len(after) || err != nil || asked != 2 {
		t.Fatalf("%d %v, asked %d times", n, err, asked)
	}
	var seen tbSeen
	seen.take(r)
	if tbNames(seen.points) != "other loss" { // without the history: img too
		t.Error(seen.points)
	}

	// In pieces of one byte: the error comes with the last byte of the record, which is not taken.
	asked = 0
	r.reset(int64(len(before)))
	for i := len(before); i < len(file); {
		n, err := r.feed(file[i : i+1])
		if err != nil && (n != 0 || asked != 1) {
			t.Fatalf("%d %v, asked %d", n, err, asked)
		}
		i += n
	}
	seen = tbSeen{}
	seen.take(r)
	if tbNames(seen.points) != "other loss" || asked != 2 {
		t.Error(seen.points, asked)
	}
}
