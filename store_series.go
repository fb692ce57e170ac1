package main

// Series: their rows, their hot points and the chunks that older ones are packed into. Writing, inside the transaction of a batch; reading
// for charts is in store_series_read.go, what happens after the end of a run in store_series_seal.go.

import (
	"fmt"
	"math"
)

const (
	seriesChunkPoints = 4096 // a full chunk: 3.2 bytes a point with its pages; 1,024 points took 4.0
	seriesHotMost     = 8192 // with so many rows the oldest seriesChunkPoints of them are packed

	// seriesRunMost is how many series a run may have. A tag that holds the step makes one a point, and every list of runs reads them all.
	seriesRunMost = 10_000
)

// seriesRow is a row of series.
type seriesRow struct {
	id, runID int64
	seriesKey
	seriesSummary
	hot    int64
	sealed bool
}

const seriesColumnsSQL = `id, run_id, source, folder, name, count, nan_count, inf_count, rewinds, high_step, first_step, first_ms, last_step, last_ms,
	last_value, least_step, least_ms, least_value, most_step, most_ms, most_value, ema_fast, ema_slow, ema_dev, hot_count, sealed`

// scanSeries reads a row of seriesColumnsSQL.
func scanSeries(get func(...any) error) (r seriesRow, err error) {
	var last *float64
	if err := get(&r.id, &r.runID, &r.source, &r.folder, &r.tag, &r.count, &r.nanCount, &r.infCount, &r.rewinds, &r.highStep, &r.first.step, &r.first.atMS,
		&r.last.step, &r.last.atMS, &last, &r.least.step, &r.least.atMS, &r.least.value, &r.most.step, &r.most.atMS, &r.most.value,
		&r.emaFast, &r.emaSlow, &r.emaDev, &r.hot, &r.sealed); err != nil {
		return r, err
	}
	r.last.value = seriesNaN()
	if last != nil {
		r.last.value = *last
	}
	return r, nil
}

// readSeries reads the series that tail selects.
func readSeries(c *conn, tail string, args ...any) ([]seriesRow, error) {
	var rows []seriesRow
	err := c.each("SELECT "+seriesColumnsSQL+" FROM series "+tail, args, func(get func(...any) error) error {
		r, err := scanSeries(get)
		rows = append(rows, r)
		return err
	})
	return rows, err
}

// openSeriesTx gives the series of a run, made on first sight; nil when the run has too many. had is how many each run has, counted once a
// transaction: 10,000 take 0.25 ms to count, and a tag that holds the step brings 17,000 new names in one batch.
func openSeriesTx(t *tx, runID int64, key seriesKey, had map[int64]int64) (*seriesRow, error) {
	rows, err := readSeries(t.conn, "WHERE run_id = ? AND source = ? AND folder = ? AND name = ?", runID, key.source, key.folder, key.tag)
	if err != nil {
		return nil, err
	}
	if len(rows) == 1 {
		return &rows[0], nil
	}
	n, counted := had[runID]
	if !counted {
		if _, err := t.one("SELECT count(*) FROM series WHERE run_id = ?", []any{runID}, &n); err != nil {
			return nil, err
		}
		had[runID] = n
	}
	if n >= seriesRunMost {
		return nil, nil
	}
	id, err := t.insert("INSERT INTO series (run_id, source, folder, name) VALUES (?,?,?,?)", runID, key.source, key.folder, key.tag)
	if err != nil {
		return nil, fmt.Errorf("make series %q of run %d: %w", key.tag, runID, err)
	}
	had[runID]++
	return &seriesRow{id: id, runID: runID, seriesKey: key}, nil
}

// saveSeriesTx writes the summary of a series back.
func saveSeriesTx(t *tx, r *seriesRow) error {
	some := func(p seriesPoint, there bool) (step, atMS *int64, value *float64) {
		if !there {
			return nil, nil, nil
		}
		return &p.step, &p.atMS, &p.value
	}
	firstStep, firstMS, _ := some(r.first, r.count > 0)
	lastStep, lastMS, lastValue := some(r.last, r.count > 0)
	leastStep, leastMS, leastValue := some(r.least, r.finite() > 0)
	mostStep, mostMS, mostValue := some(r.most, r.finite() > 0)
	highStep, _, _ := some(seriesPoint{step: r.highStep}, r.count > 0)
	_, err := t.exec(`UPDATE series SET count = ?, nan_count = ?, inf_count = ?, rewinds = ?, high_step = ?, first_step = ?, first_ms = ?, last_step = ?,
		last_ms = ?, last_value = ?, least_step = ?, least_ms = ?, least_value = ?, most_step = ?, most_ms = ?, most_value = ?,
		ema_fast = ?, ema_slow = ?, ema_dev = ?, hot_count = ?, sealed = ? WHERE id = ?`,
		r.count, r.nanCount, r.infCount, r.rewinds, highStep, firstStep, firstMS, lastStep, lastMS, lastValue, leastStep, leastMS, leastValue,
		mostStep, mostMS, mostValue, r.emaFast, r.emaSlow, r.emaDev, r.hot, r.sealed, r.id)
	if err != nil {
		return fmt.Errorf("write series %d: %w", r.id, err)
	}
	return nil
}

// insertPointsTx stores points as rows, the first with number seq.
func insertPointsTx(t *tx, seriesID, seq int64, c seriesColumns) error {
	seqs := make([]int64, c.len())
	for i := range seqs {
		seqs[i] = seq + int64(i)
	}
	err := t.execColumns("INSERT INTO points (series_id, seq, step, at_ms, value) VALUES (?,?,?,?,?)", c.len(), seriesID, seqs, c.steps, c.atMS, c.values)
	if err != nil {
		return fmt.Errorf("store points of series %d: %w", seriesID, err)
	}
	return nil
}

// seriesRows are points that lie in rows, with their numbers.
type seriesRows struct {
	seriesColumns
	seqs []int64
}

// readRows reads the rows of points that tail selects, into what rows has memory for.
func readRows(c *conn, rows *seriesRows, tail string, args ...any) error {
	rows.reset()
	rows.seqs = rows.seqs[:0]
	return c.appendColumns("SELECT seq, step, at_ms, value FROM points WHERE "+tail, args, &rows.seqs, &rows.steps, &rows.atMS, &rows.values)
}

// seriesChunk is a row of chunks but for where it belongs.
type seriesChunk struct {
	n                              int64
	minStep, maxStep, minMS, maxMS int64
	min, max                       *float64 // of finite values
	sum                            float64  // likewise
	finite                         int64
	data                           []byte
}

// newSeriesChunk makes the chunk of at least one point; data is the points packed.
func newSeriesChunk(c seriesColumns, data []byte) seriesChunk {
	k := seriesChunk{n: int64(c.len()), minStep: c.steps[0], maxStep: c.steps[0], minMS: c.atMS[0], maxMS: c.atMS[0], data: data}
	var b seriesBucket
	for i, v := range c.values {
		b = b.joined(seriesBucketOf(c.steps[i], c.atMS[i], v))
		k.minStep, k.maxStep = min(k.minStep, c.steps[i]), max(k.maxStep, c.steps[i])
		k.minMS, k.maxMS = min(k.minMS, c.atMS[i]), max(k.maxMS, c.atMS[i])
	}
	if k.finite = b.finite; b.finite > 0 {
		k.min, k.max = &b.least, &b.most
	}
	if k.sum = b.sum; math.IsNaN(b.sum) { // +Inf - Inf of sums over the range of a float64
		k.sum = 0
	}
	return k
}

func insertChunkTx(t *tx, seriesID, seq int64, k seriesChunk) error {
	_, err := t.exec(`INSERT INTO chunks (series_id, first_seq, n, min_step, max_step, min_ms, max_ms, min_value, max_value, sum_value, finite_n, data)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?)`, seriesID, seq, k.n, k.minStep, k.maxStep, k.minMS, k.maxMS, k.min, k.max, k.sum, k.finite, k.data)
	if err != nil {
		return fmt.Errorf("store a chunk of series %d: %w", seriesID, err)
	}
	return nil
}

// packOldestTx packs the oldest rows of a series while it has too many. A chunk ends where the rows do: points between may lie in chunks.
func packOldestTx(t *tx, p *seriesPacker, r *seriesRow) error {
	var rows seriesRows
	for r.hot >= seriesHotMost {
		if err := readRows(t.conn, &rows, "series_id = ? ORDER BY seq LIMIT ?", r.id, seriesChunkPoints); err != nil {
			return err
		}
		n := rows.len()
		if n == 0 {
			return fmt.Errorf("series %d says to have %d rows and has none", r.id, r.hot)
		}
		for from, to := 0, 0; from < n; from = to {
			for to = from + 1; to < n && rows.seqs[to] == rows.seqs[to-1]+1; {
				to++
			}
			c := rows.cut(from, to)
			if err := insertChunkTx(t, r.id, rows.seqs[from], newSeriesChunk(c, p.pack(c))); err != nil {
				return err
			}
		}
		if _, err := t.exec("DELETE FROM points WHERE series_id = ? AND seq <= ?", r.id, rows.seqs[n-1]); err != nil {
			return err
		}
		r.hot -= int64(n)
	}
	return nil
}
