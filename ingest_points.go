package main

// Points in a batch: decoded and checked before the writer is asked, then stored in the batch's transaction with the summary of their
// series. One entry that cannot be used is set aside; the others and their source go on.

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

const (
	pointsStraight  = 1024    // a piece of so many points of one series is a chunk at once: its rows would only be packed later
	pointsLineMost  = 1 << 18 // points in one line: a read of 1 MiB holds a tenth of that
	pointsBatchMost = 1 << 20 // points in one batch, 24 MB decoded; a packed one inflates by a thousand
)

// ingestPoints is one entry of a line of points.
type ingestPoints struct {
	key    seriesKey
	points seriesColumns
	chunks []seriesChunk // the points again, when they are many: stored instead of rows
	rej    string        // cannot be used, why
	torn   bool          // the agent could not read it
}

// pointsReader decodes the points of one batch.
type pointsReader struct {
	packer   seriesPacker
	unpacker seriesUnpacker
	total    int
}

// read decodes the items of a line whose source is of a kind. Only a batch of too many points is an error.
func (d *pointsReader) read(items []byte, kind string) ([]ingestPoints, error) {
	cols, bad, err := splitPoints(items)
	if err != nil {
		return nil, err
	}
	out := make([]ingestPoints, 0, len(cols))
	line := 0
	for i, c := range cols {
		p := ingestPoints{key: seriesKey{kind, c.Folder, c.Name}, rej: bad[i]}
		switch {
		case p.rej != "":
		case c.Rej != "":
			p.rej, p.torn = c.Rej, true
		default:
			if err := d.columns(&p, c, pointsLineMost-line); err != nil {
				p.rej = fmt.Sprintf("points of %.100q: %v", c.Name, err)
				p.points, p.chunks = seriesColumns{}, nil
			}
		}
		line += p.points.len()
		d.total += p.points.len()
		if d.total > pointsBatchMost {
			return nil, newProblem(codeTooLarge, "send fewer lines at once", "the batch holds over %d points", pointsBatchMost)
		}
		out = append(out, p)
	}
	return out, nil
}

// splitPoints decodes items; bad says of each entry why it could not be, "" = it could.
func splitPoints(items []byte) (cols []pointColumns, bad map[int]string, err error) {
	if strictJSON(items, &cols) == nil {
		return cols, nil, nil
	}
	var each []json.RawMessage
	if err := strictJSON(items, &each); err != nil {
		return nil, nil, newProblem(codeBadJSON, "", "items: %v", err)
	}
	cols, bad = make([]pointColumns, len(each)), map[int]string{}
	for i, text := range each {
		if err := strictJSON(text, &cols[i]); err != nil {
			cols[i], bad[i] = pointColumns{}, "an entry of points is not understood: "+err.Error()
		}
	}
	return cols, bad, nil
}

// columns checks one entry and sets its points.
func (d *pointsReader) columns(p *ingestPoints, c pointColumns, room int) error {
	switch {
	case c.Name == "":
		return fmt.Errorf("they have no name")
	case len(c.Name) > nameMaxBytes || len(c.Folder) > nameMaxBytes:
		return fmt.Errorf("a name has at most %d bytes", nameMaxBytes)
	case strings.ContainsRune(c.Name+c.Folder, 0):
		return fmt.Errorf("a name has no zero bytes")
	case c.Packed != nil && len(c.Steps)+len(c.AtMS)+len(c.Values) > 0:
		return fmt.Errorf("they are packed and plain")
	}
	if c.Packed != nil {
		if err := d.unpacker.unpack(c.Packed, min(packedMaxCount, room), &p.points); err != nil {
			return err
		}
	} else if err := plainPoints(p, c, room); err != nil {
		return err
	}
	d.cut(p, c.Packed)
	return nil
}

func plainPoints(p *ingestPoints, c pointColumns, room int) error {
	n := len(c.Steps)
	if len(c.AtMS) != n || len(c.Values) != n {
		return fmt.Errorf("%d steps, %d times and %d values", n, len(c.AtMS), len(c.Values))
	}
	if n > room {
		return fmt.Errorf("there are more than %d points in one line", pointsLineMost)
	}
	p.points = seriesColumns{c.Steps, c.AtMS, make([]float64, n)}
	for i, v := range c.Values {
		if p.points.atMS[i] = seriesRoundMS(c.AtMS[i]); math.IsNaN(float64(v)) {
			v = jsonFloat(seriesNaN())
		}
		p.points.values[i] = float64(v)
	}
	return nil
}

// cut makes chunks of many points; what came packed, and is not too much for one chunk, is kept as it came.
func (d *pointsReader) cut(p *ingestPoints, packed []byte) {
	n := p.points.len()
	switch {
	case n < pointsStraight:
	case packed != nil && n <= seriesHotMost:
		p.chunks = []seriesChunk{newSeriesChunk(p.points, packed)}
	default:
		for from := 0; from < n; from += seriesChunkPoints {
			c := p.points.cut(from, min(from+seriesChunkPoints, n))
			p.chunks = append(p.chunks, newSeriesChunk(c, d.packer.pack(c)))
		}
	}
}

// pointItems stores the points of a line in order of arrival. Series beyond what a run may have are set aside together: one by one they would
// push what is set aside of others out.
func (b *batchApply) pointItems(src *applySource, l *ingestLine) error {
	over, first := 0, ""
	for i := range l.points {
		p := &l.points[i]
		if p.rej != "" {
			src.N++
			if err := b.rejectPoints(src, l, p); err != nil {
				return err
			}
			continue
		}
		src.N += int64(p.points.len())
		if p.points.len() == 0 {
			continue
		}
		stored, err := b.storePoints(src, p)
		if err != nil {
			return err
		}
		if !stored {
			if over++; over == 1 {
				first = p.key.tag
			}
		}
	}
	if over == 0 {
		return nil
	}
	return b.reject(l, fmt.Sprintf("points of %.100q and %d other new series: the run has %d series, more are not kept", first, over-1, seriesRunMost))
}

// storePoints stores one entry: rows or chunks, and the summary, which is written once at the end of the batch. stored is false when the run
// has too many series to get this one too.
func (b *batchApply) storePoints(src *applySource, p *ingestPoints) (stored bool, err error) {
	key := batchSeries{src.run.id, p.key}
	r := b.series[key]
	if r == nil {
		if r, err = openSeriesTx(b.t, src.run.id, p.key, b.had); err != nil || r == nil {
			return false, err
		}
		b.series[key] = r
	}
	seq := r.count
	fell := r.fold(p.points)
	r.sealed = false
	if fell != nil {
		if err := b.stepWentBack(src, p.key, *fell); err != nil {
			return false, err
		}
	}
	for _, k := range p.chunks {
		if err := insertChunkTx(b.t, r.id, seq, k); err != nil {
			return false, err
		}
		seq += k.n
	}
	if len(p.chunks) > 0 {
		return true, nil
	}
	if err := insertPointsTx(b.t, r.id, seq, p.points); err != nil {
		return false, err
	}
	r.hot += int64(p.points.len())
	return true, packOldestTx(b.t, &b.s.packing, r)
}

// batchSeries names a series within a batch.
type batchSeries struct {
	runID int64
	seriesKey
}

// saveSeries writes the summaries of the series that got points.
func (b *batchApply) saveSeries() error {
	for _, r := range b.series {
		if err := saveSeriesTx(b.t, r); err != nil {
			return err
		}
	}
	return nil
}

// stepWentBack tells, once a run and folder, that an attempt wrote steps again that it had passed.
func (b *batchApply) stepWentBack(src *applySource, key seriesKey, fell seriesFall) error {
	r := src.run
	where := ""
	if key.folder != "" {
		where = " in " + key.folder
	}
	return addEventTx(b.t, newEvent{
		typ: "STEP_WENT_BACK", severity: sevNotice, jobID: r.jobID, runID: &r.id, nodeID: r.nodeID, actor: actorServer,
		message: fmt.Sprintf("run %s: the step of %s%s went back from %d to %d within one attempt; all points are kept", r.label(), key.tag, where, fell.from, fell.to),
		data:    map[string]any{"source": key.source, "folder": key.folder, "tag": key.tag, "from": fell.from, "to": fell.to},
		dedup:   fmt.Sprintf("step-back:%d:%s", r.id, key.folder),
	})
}

// rejectPoints sets an entry aside. What the agent could not read of an event file is told once a file and generation, in its words: they
// say where.
func (b *batchApply) rejectPoints(src *applySource, l *ingestLine, p *ingestPoints) error {
	if !p.torn || src.kind != sourceTB {
		return b.reject(l, p.rej)
	}
	if err := b.setAside(l, p.rej); err != nil {
		return err
	}
	r := src.run
	return addEventTx(b.t, newEvent{
		typ: "TB_FILE_CORRUPT", severity: sevWarning, jobID: r.jobID, runID: &r.id, nodeID: r.nodeID, actor: actorAgent,
		message: fmt.Sprintf("run %s: an event file is damaged, what follows the damage is read: %s", r.label(), p.rej),
		data:    map[string]any{"source": l.Src, "from": l.From, "to": l.To},
		dedup:   fmt.Sprintf("tb-corrupt:%s:%d", l.Src, l.Gen),
	})
}
