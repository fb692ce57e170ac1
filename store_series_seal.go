package main

// Sealing the points of a run that is over and drained: rows and small chunks become full chunks. A late point opens its series again, and
// it is sealed again.

import (
	"context"
	"fmt"
	"slices"
)

// sealableSeries lists series of runs that are over, drained, and have nothing under way.
func sealableSeries(c *conn, limit int) ([]int64, error) {
	var out []int64
	err := c.each(`SELECT s.id FROM series s INDEXED BY series_open JOIN runs r ON r.id = s.run_id WHERE s.sealed = 0 AND r.state = 'ENDED' AND r.drained_ms IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM cursors WHERE run_id = r.id AND done = 0) LIMIT ?`, []any{limit}, func(get func(...any) error) error {
		var id int64
		err := get(&id)
		out = append(out, id)
		return err
	})
	return out, err
}

// seriesPart is a piece of a series as it lies in the database: points from seq on, in one chunk (chunk is its id) or in rows (chunk is 0).
type seriesPart struct{ seq, n, chunk int64 }

// seriesParts lists the parts of a series that reach beyond seq, in order. Rows next to each other are one part.
func seriesParts(c *conn, seriesID, seq int64) ([]seriesPart, error) {
	var parts []seriesPart
	err := c.each("SELECT first_seq, n, id FROM chunks WHERE series_id = ? AND first_seq + n > ? ORDER BY first_seq", []any{seriesID, seq},
		func(get func(...any) error) error {
			var p seriesPart
			err := get(&p.seq, &p.n, &p.chunk)
			parts = append(parts, p)
			return err
		})
	if err != nil {
		return nil, err
	}
	err = c.each("SELECT seq FROM points WHERE series_id = ? AND seq >= ? ORDER BY seq", []any{seriesID, seq}, func(get func(...any) error) error {
		var at int64
		if err := get(&at); err != nil {
			return err
		}
		if last := len(parts) - 1; last >= 0 && parts[last].chunk == 0 && parts[last].seq+parts[last].n == at {
			parts[last].n++
		} else {
			parts = append(parts, seriesPart{seq: at, n: 1})
		}
		return nil
	})
	slices.SortStableFunc(parts, func(a, b seriesPart) int { return int(min(max(a.seq-b.seq, -1), 1)) })
	return parts, err
}

// seriesMend is one step of sealing: parts next to each other, and the chunks that take their place.
type seriesMend struct {
	parts  []seriesPart
	chunks []seriesChunk
}

// planMend finds the first parts that are not as full as they go; nil when there are none. At most two full chunks come of one step, so
// that its transaction is short (8,192 rows take 10 to 20 ms).
func planMend(parts []seriesPart) []seriesPart {
	var mend []seriesPart
	var n int64
	for i, p := range parts {
		full := p.chunk != 0 && p.n >= seriesChunkPoints
		apart := len(mend) > 0 && mend[len(mend)-1].seq+mend[len(mend)-1].n != p.seq
		if full || apart {
			if mendWorth(mend) {
				return mend
			}
			mend, n = nil, 0
		}
		if full {
			continue
		}
		mend, n = append(mend, parts[i]), n+p.n
		if n >= seriesHotMost {
			return mend
		}
	}
	if mendWorth(mend) {
		return mend
	}
	return nil
}

// mendWorth reports whether parts are anything but one chunk.
func mendWorth(parts []seriesPart) bool {
	return len(parts) > 1 || len(parts) == 1 && parts[0].chunk == 0
}

// packMend reads the points of parts and packs them anew.
func packMend(c *conn, seriesID int64, parts []seriesPart) (seriesMend, error) {
	m := seriesMend{parts: parts}
	var all seriesColumns
	var u seriesUnpacker
	for _, p := range parts {
		if err := readPart(c, &u, seriesID, p, &all); err != nil {
			return m, err
		}
	}
	var pk seriesPacker
	for from := 0; from < all.len(); from += seriesChunkPoints {
		cut := all.cut(from, min(from+seriesChunkPoints, all.len()))
		m.chunks = append(m.chunks, newSeriesChunk(cut, pk.pack(cut)))
	}
	return m, nil
}

// readPart appends the points of a part.
func readPart(c *conn, u *seriesUnpacker, seriesID int64, p seriesPart, into *seriesColumns) error {
	if p.chunk != 0 {
		var piece seriesColumns
		err := readChunk(c, u, p.chunk, p.n, &piece)
		into.append(piece)
		return err
	}
	var rows seriesRows
	err := readRows(c, &rows, "series_id = ? AND seq >= ? AND seq < ? ORDER BY seq", seriesID, p.seq, p.seq+p.n)
	if got := int64(rows.len()); err == nil && got != p.n {
		err = fmt.Errorf("series %d has %d rows from %d on, %d were there", seriesID, got, p.seq, p.n)
	}
	into.append(rows.seriesColumns)
	return err
}

// readChunk decodes a chunk that is known to hold n points into piece, whose memory it uses.
func readChunk(c *conn, u *seriesUnpacker, id, n int64, piece *seriesColumns) error {
	var data []byte
	_, err := c.one("SELECT data FROM chunks WHERE id = ?", []any{id}, &data)
	if err == nil {
		err = u.unpack(data, int(n), piece)
	}
	if err == nil && int64(piece.len()) != n {
		err = fmt.Errorf("it holds %d points instead of %d", piece.len(), n)
	}
	if err != nil {
		err = fmt.Errorf("read chunk %d: %w", id, err)
	}
	return err
}

// sealSeries takes a series one step nearer to being sealed. It packs outside of the writer and puts the chunks in place if what they
// replace is still there: points are never changed, only added and packed. Done is told by the mark; stopped anywhere it goes on.
func (s *store) sealSeries(ctx context.Context, id int64) (sealed bool, err error) {
	var m seriesMend
	var count int64
	err = s.read(ctx, func(c *conn) error {
		if _, err := c.one("SELECT count FROM series WHERE id = ?", []any{id}, &count); err != nil {
			return err
		}
		parts, err := seriesParts(c, id, 0)
		if err != nil {
			return err
		}
		if parts = planMend(parts); parts == nil {
			return nil
		}
		m, err = packMend(c, id, parts)
		return err
	})
	if err != nil {
		return false, err
	}
	return m.parts == nil, s.write(ctx, func(t *tx) error {
		if m.parts == nil {
			_, err := t.exec("UPDATE series SET sealed = 1 WHERE id = ? AND count = ? AND hot_count = 0", id, count)
			return err
		}
		return mendTx(t, id, m)
	})
}

// mendTx replaces parts by chunks of the same points. When a part is not there any more, somebody packed it meanwhile: nothing is done.
func mendTx(t *tx, seriesID int64, m seriesMend) error {
	var hot int64
	for _, p := range m.parts {
		var there int64
		q, args := "SELECT count(*) FROM points WHERE series_id = ? AND seq >= ? AND seq < ?", []any{seriesID, p.seq, p.seq + p.n}
		want := p.n
		if p.chunk != 0 {
			q, args, want = "SELECT count(*) FROM chunks WHERE id = ? AND first_seq = ? AND n = ?", []any{p.chunk, p.seq, p.n}, 1
		}
		if _, err := t.one(q, args, &there); err != nil {
			return err
		}
		if there != want {
			return nil
		}
	}
	for _, p := range m.parts {
		if p.chunk != 0 {
			if _, err := t.exec("DELETE FROM chunks WHERE id = ?", p.chunk); err != nil {
				return err
			}
			continue
		}
		n, err := t.exec("DELETE FROM points WHERE series_id = ? AND seq >= ? AND seq < ?", seriesID, p.seq, p.seq+p.n)
		if err != nil {
			return err
		}
		hot += n
	}
	seq := m.parts[0].seq
	for _, k := range m.chunks {
		if err := insertChunkTx(t, seriesID, seq, k); err != nil {
			return err
		}
		seq += k.n
	}
	_, err := t.exec("UPDATE series SET hot_count = hot_count - ? WHERE id = ?", hot, seriesID)
	return err
}
