package main

// TensorBoard event files as a source: what tb.go reads becomes items of points, packed, one entry a series for each wire line. Nothing
// is ever left out of a backlog, and what lies before the cursor is read again only when a tensor needs its tag's plugin.

import (
	"encoding/base64"
)

const (
	tbRejectBytes = 160 // of a reject's text; together with its frame below tbRejectCost
)

// tbDecoder makes items of one event file.
type tbDecoder struct {
	tbReader
	folder string // as JSON, with quotes
	pack   *seriesPacker
	items  []byte
}

// newTBDecoder decodes the event file of a folder, as pointColumns has it; one that is no name is made one (tbName). history reads the
// file anew, when it needs what lies before the place where a reset began.
// pack is shared with other decoders of the same loop.
func newTBDecoder(folder string, history tbReadAt, pack *seriesPacker) *tbDecoder {
	d := &tbDecoder{folder: string(appendJSONText(nil, tbShortName(folder))), pack: pack}
	d.history, d.tbPoints.folder = history, len(d.folder)
	return d
}

// newTBSource reads the event file at path, which lies in folder.
func newTBSource(src, path, folder string, read *fileReader, news func(sourceNews)) *fileSource {
	s := newFileSource(src, kindPoints, path, nil, read, news)
	s.dec = newTBDecoder(folder, s.again, &read.pack)
	return s
}

func (d *tbDecoder) feed(b []byte, _ int64) (int, error) { return d.tbReader.feed(b) }
func (d *tbDecoder) flush(int64)                         { d.tbReader.flush() }
func (d *tbDecoder) live() string                        { return "" }

// full: lines of points are larger than those of logs, so that a MiB of scalars is one.
func (d *tbDecoder) full(line int) bool { return d.stuck || d.size >= line+line/2 }

func (d *tbDecoder) taken() {
	d.tbPoints.taken()
	d.items = nil
}

// made packs what was read.
func (d *tbDecoder) made() (count int64, items []byte) {
	count = int64(len(d.points) + len(d.rejects))
	if count == 0 || d.items != nil {
		return count, d.items
	}
	// Sorted by series: first how many each has, then each point to its place.
	ends := make([]int, len(d.series)+1)
	for i, t := range d.series {
		ends[i+1] = ends[i] + t.count
	}
	steps, atMS, values := make([]int64, len(d.points)), make([]int64, len(d.points)), make([]float64, len(d.points))
	for _, p := range d.points {
		i := ends[p.slot]
		ends[p.slot]++
		steps[i], atMS[i], values[i] = p.step, p.atMS, p.value
	}
	b := make([]byte, 0, d.size)
	from := 0
	for i, t := range d.series {
		to := ends[i]
		b = appendJSONText(append(b, `{"name":`...), t.name)
		b = append(append(b, `,"folder":`...), d.folder...)
		b = append(b, `,"packed":"`...)
		b = base64.StdEncoding.AppendEncode(b, d.pack.pack(seriesColumns{steps[from:to], atMS[from:to], values[from:to]}))
		b = append(b, `"},`...)
		from = to
	}
	for _, why := range d.rejects {
		b = appendJSONText(append(b, `{"r":`...), why[:min(len(why), tbRejectBytes)])
		b = append(b, `},`...)
	}
	d.items = b[:len(b)-1]
	return count, d.items
}

// again reads the file anew, for a decoder that needs what lies before the place where it began.
func (s *fileSource) again(b []byte, off int64) (int, error) { return s.f.ReadAt(b, off) }
