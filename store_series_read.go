package main

// Reading the points of a series: chunks and rows merged in order of arrival, for a range, thinned to so many. What was read of a curve is
// kept, so that a look again reads only what came since. Read only.

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// seriesDecodeMost is how many points of a range are decoded, 25 ns each; with more the headers of chunks stand for them.
const seriesDecodeMost = 4 << 20

// seriesSpan is a range of points, both ends included, by step or by time.
type seriesSpan struct {
	byTime   bool
	from, to int64
}

// seriesAll is every point.
func seriesAll() seriesSpan { return seriesSpan{from: math.MinInt64, to: math.MaxInt64} }

func (s seriesSpan) has(step, atMS int64) bool {
	if s.byTime {
		step = atMS
	}
	return step >= s.from && step <= s.to
}

// of says how much of a chunk lies in the range.
func (s seriesSpan) of(k *chunkHead) (some, all bool) {
	least, most := k.minStep, k.maxStep
	if s.byTime {
		least, most = k.minMS, k.maxMS
	}
	return most >= s.from && least <= s.to, least >= s.from && most <= s.to
}

// chunkHead is a chunk without its points.
type chunkHead struct {
	seriesChunk
	id, seq int64
}

// bucket is what the header says of the points.
func (k *chunkHead) bucket() seriesBucket {
	b := seriesBucket{step: k.minStep, atMS: k.minMS, sum: k.sum, finite: k.finite, count: k.n}
	if k.min != nil && k.max != nil {
		b.least, b.most = *k.min, *k.max
	}
	return b
}

// readHeads lists the chunks of a series that reach beyond seq.
func readHeads(c *conn, seriesID, seq int64) ([]chunkHead, error) {
	var heads []chunkHead
	err := c.each(`SELECT id, first_seq, n, min_step, max_step, min_ms, max_ms, min_value, max_value, sum_value, finite_n FROM chunks
		WHERE series_id = ? AND first_seq + n > ? ORDER BY first_seq`, []any{seriesID, seq}, func(get func(...any) error) error {
		var k chunkHead
		err := get(&k.id, &k.seq, &k.n, &k.minStep, &k.maxStep, &k.minMS, &k.maxMS, &k.min, &k.max, &k.sum, &k.finite)
		heads = append(heads, k)
		return err
	})
	return heads, err
}

// seriesReader reads one series after the other with the same memory. It belongs to one transaction.
type seriesReader struct {
	c     *conn
	u     seriesUnpacker
	rows  seriesRows
	piece seriesColumns
}

// walk gives the points from seq on, in order of arrival, piece by piece; of chunks that have none in the span it gives nothing, of others
// all. Pieces are good until the next one. With coarse, chunks that lie in the span whole are given as their headers only.
func (r *seriesReader) walk(id, seq int64, span seriesSpan, coarse func(*chunkHead), take func(seriesColumns)) error {
	heads, err := readHeads(r.c, id, seq)
	if err != nil {
		return err
	}
	if err := readRows(r.c, &r.rows, "series_id = ? AND seq >= ? ORDER BY seq", id, seq); err != nil {
		return err
	}
	row := 0
	for i := range heads {
		k := &heads[i]
		end, _ := slices.BinarySearch(r.rows.seqs, k.seq)
		take(r.rows.cut(row, end))
		row = end
		some, all := span.of(k)
		switch {
		case !some:
		case all && coarse != nil && k.seq >= seq:
			coarse(k)
		default:
			if err := readChunk(r.c, &r.u, k.id, k.n, &r.piece); err != nil {
				return err
			}
			take(r.piece.cut(int(max(seq-k.seq, 0)), r.piece.len()))
		}
	}
	take(r.rows.cut(row, r.rows.len()))
	return nil
}

// sample thins the points of a series in a span to at most most.
func (r *seriesReader) sample(cache *seriesCache, s *seriesRow, span seriesSpan, most int) (*seriesCached, error) {
	key := seriesCacheKey{ids: strconv.FormatInt(s.id, 10), span: span, most: most}
	known := cache.get(key)
	if known != nil && known.seq == s.count {
		return known, nil
	}
	out, seq := newSeriesSampler(most), int64(0)
	if known != nil {
		out, seq = known.sampler.clone(), known.seq
	} else if coarse, err := r.coarse(s, span); err != nil {
		return nil, err
	} else if coarse {
		return &seriesCached{sampler: out}, r.walk(s.id, 0, span, func(k *chunkHead) { out.addBucket(k.bucket()) }, func(c seriesColumns) { addCoarse(out, c, span) })
	}
	if err := r.walk(s.id, seq, span, nil, func(c seriesColumns) { addInSpan(out, c, span) }); err != nil {
		return nil, err
	}
	return cache.put(key, out, s.count), nil
}

// coarse reports whether a span has too many points to decode them all.
func (r *seriesReader) coarse(s *seriesRow, span seriesSpan) (bool, error) {
	if s.count <= seriesDecodeMost {
		return false, nil
	}
	heads, err := readHeads(r.c, s.id, 0)
	var n int64
	for i := range heads {
		if some, _ := span.of(&heads[i]); some {
			n += heads[i].n
		}
	}
	return n > seriesDecodeMost, err
}

func addInSpan(to *seriesSampler, c seriesColumns, span seriesSpan) {
	for i := 0; i < c.len(); i++ {
		from := i
		for i < c.len() && span.has(c.steps[i], c.atMS[i]) {
			i++
		}
		to.addAll(c.cut(from, i))
	}
}

// addCoarse adds points beside headers of chunks: as one bucket, about as many as a chunk has.
func addCoarse(to *seriesSampler, c seriesColumns, span seriesSpan) {
	var b seriesBucket
	for i, v := range c.values {
		if !span.has(c.steps[i], c.atMS[i]) {
			continue
		}
		if p := seriesBucketOf(c.steps[i], c.atMS[i], v); b.count == 0 {
			b = p
		} else {
			b = b.joined(p)
		}
	}
	if b.count > 0 {
		to.addBucket(b)
	}
}

// sampleLine thins the one line that a curve is over all attempts, which are given oldest first.
func (r *seriesReader) sampleLine(cache *seriesCache, attempts []seriesRow, span seriesSpan, most int) (*seriesCached, error) {
	ids, count := make([]string, len(attempts)), int64(0)
	for i := range attempts {
		ids[i], count = strconv.FormatInt(attempts[i].id, 10), count+attempts[i].count
	}
	key := seriesCacheKey{ids: "line " + strings.Join(ids, " "), span: span, most: most}
	if known := cache.get(key); known != nil && known.seq == count {
		return known, nil
	}
	if count > 2*seriesDecodeMost {
		return nil, newProblem(codeInvalid, "ask for attempts=run or attempts=all", "%d points are too many for one line over all attempts", count)
	}
	var line seriesLine
	for i := range attempts {
		line.begin()
		if err := r.walk(attempts[i].id, 0, seriesAll(), nil, func(c seriesColumns) {
			for k, v := range c.values {
				line.add(c.steps[k], c.atMS[k], v)
			}
		}); err != nil {
			return nil, err
		}
	}
	out := newSeriesSampler(most)
	addInSpan(out, line.seriesColumns, span)
	return cache.put(key, out, count), nil
}

// metricsAtStep gives the value that each series of a run has at a step, by shown name: of the point with the greatest step that is not
// beyond it, the one that came last. Series without such a point are left out.
func metricsAtStep(c *conn, runID, step int64) (map[string]jsonFloat, error) {
	rows, err := readSeries(c, "WHERE run_id = ? ORDER BY id", runID)
	if err != nil {
		return nil, err
	}
	out := map[string]jsonFloat{}
	r := seriesReader{c: c}
	span := seriesSpan{from: math.MinInt64, to: step}
	for i, name := range namesOfSeries(rows) {
		best, seq, found := seriesPoint{}, int64(-1), false
		offer := func(at int64, p seriesPoint) {
			if p.step <= step && (!found || p.step > best.step || p.step == best.step && at > seq) {
				best, seq, found = p, at, true
			}
		}
		if err := readRows(c, &r.rows, "series_id = ? AND step <= ? ORDER BY step DESC, seq DESC LIMIT 1", rows[i].id, step); err != nil {
			return nil, err
		}
		for k, v := range r.rows.values {
			offer(r.rows.seqs[k], seriesPoint{r.rows.steps[k], r.rows.atMS[k], v})
		}
		heads, err := readHeads(c, rows[i].id, 0)
		if err != nil {
			return nil, err
		}
		slices.Reverse(heads) // the newest decide nearly always
		for k := range heads {
			h := &heads[k]
			if some, _ := span.of(h); !some || found && min(h.maxStep, step) < best.step {
				continue
			}
			if err := readChunk(c, &r.u, h.id, h.n, &r.piece); err != nil {
				return nil, err
			}
			for at, v := range r.piece.values {
				offer(h.seq+int64(at), seriesPoint{r.piece.steps[at], r.piece.atMS[at], v})
			}
		}
		if found {
			out[name] = jsonFloat(best.value)
		}
	}
	return out, nil
}
