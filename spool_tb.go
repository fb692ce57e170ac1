package main

// TensorBoard event files as a source: what tb.go reads becomes items of points, packed, one entry a series for each wire line. Nothing
// is ever left out of a backlog, and what lies before the cursor is read again only when a tensor needs its tag's plugin.

import (
	"encoding/base64"
)

const (
	tbRejectBytes = 160 // of a reject's text; together with its frame below tbRejectCost
)

// tbScratch is memory that the decoders of one loop share, so that each holds next to nothing between two lines.
type tbScratch struct {
	points  []tbPoint
	columns seriesColumns
	pack    seriesPacker
}

// tbDecoder makes items of one event file.
type tbDecoder struct {
	tbReader
	folder string // as JSON, with quotes
	memory *tbScratch
	items  []byte
}

// newTBDecoder decodes the event file of a folder, as pointColumns has it; one that is no name is made one (tbShortName). history reads the
// file anew, when it needs what lies before the place where a reset began.
func newTBDecoder(folder string, history tbReadAt, memory *tbScratch) *tbDecoder {
	d := &tbDecoder{folder: string(appendJSONText(nil, tbShortName(folder))), memory: memory}
	d.history, d.tbPoints.folder, d.spare = history, len(d.folder), &memory.points
	return d
}

// newTBSource reads the event file at path, which lies in folder.
func newTBSource(src, path, folder string, read *fileReader, news func(sourceNews)) *fileSource {
	s := newFileSource(src, kindPoints, path, nil, read, news)
	s.dec = newTBDecoder(folder, s.again, &read.points)
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
	c, ends := d.columns()
	b := make([]byte, 0, d.size)
	for i, t := range d.series {
		b = appendJSONText(append(b, `{"name":`...), t.name)
		b = append(append(b, `,"folder":`...), d.folder...)
		b = append(b, `,"packed":"`...)
		b = base64.StdEncoding.AppendEncode(b, d.memory.pack.pack(seriesColumns{c.steps[ends[i]:ends[i+1]], c.atMS[ends[i]:ends[i+1]], c.values[ends[i]:ends[i+1]]}))
		b = append(b, `"},`...)
	}
	for _, why := range d.rejects {
		b = appendJSONText(append(b, `{"r":`...), why[:min(len(why), tbRejectBytes)])
		b = append(b, `},`...)
	}
	d.items = b[:len(b)-1]
	return count, d.items
}

// columns are the points sorted by series, in memory that the next call uses again: those of series i stand from ends[i] to ends[i+1].
func (d *tbDecoder) columns() (c seriesColumns, ends []int) {
	ends = make([]int, len(d.series)+2) // one on, so that filling leaves the beginnings
	for i, t := range d.series {
		ends[i+2] = ends[i+1] + t.count
	}
	n := len(d.points)
	if cap(d.memory.columns.steps) < n {
		d.memory.columns = seriesColumns{make([]int64, 2*n), make([]int64, 2*n), make([]float64, 2*n)}
	}
	c = seriesColumns{d.memory.columns.steps[:n], d.memory.columns.atMS[:n], d.memory.columns.values[:n]}
	for _, p := range d.points {
		i := ends[p.slot+1]
		ends[p.slot+1]++
		c.steps[i], c.atMS[i], c.values[i] = p.step, p.atMS, p.value
	}
	return c, ends[:len(ends)-1]
}

// again reads the file anew, for a decoder that needs what lies before the place where it began.
func (s *fileSource) again(b []byte, off int64) (int, error) { return s.f.ReadAt(b, off) }
