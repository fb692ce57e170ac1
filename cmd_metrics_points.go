package main

// How points of a metric are written: as a table, as JSON one a line, as CSV with every digit. No request but what it is given.

import (
	"context"
	"encoding/csv"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"time"
)

// pointLine is one point of -o ndjson; of buckets Value is left out and the others are set.
type pointLine struct {
	Run   string     `json:"run"`
	Name  string     `json:"name"`
	Step  int64      `json:"step"`
	AtMS  int64      `json:"at_ms"`
	Value *jsonFloat `json:"value,omitempty"`
	Min   *jsonFloat `json:"min,omitempty"`
	Max   *jsonFloat `json:"max,omitempty"`
	Mean  *jsonFloat `json:"mean,omitempty"`
	Count int64      `json:"count,omitempty"`
}

// pointSink writes series in the format of its printer.
type pointSink struct {
	p       *printer
	csv     *csv.Writer
	buckets bool // columns of buckets in CSV: the user asked for them
	many    bool // tables name their series
	stream  bool // tables are one point a line, as they come
	headed  bool
}

func newPointSink(p *printer, buckets, many bool) *pointSink {
	s := &pointSink{p: p, buckets: buckets, many: many}
	if p.format == outCSV {
		s.csv = csv.NewWriter(p.out)
	}
	return s
}

// series writes one curve.
func (s *pointSink) series(m metricSeries) error {
	switch {
	case s.csv != nil:
		return s.rows(m)
	case s.p.format == outNDJSON:
		return s.lines(m)
	}
	return s.table(m)
}

func (s *pointSink) rows(m metricSeries) error {
	if !s.headed && !s.p.noHeaders {
		heads := []string{"run", "name", "step", "at", "value"}
		if s.buckets {
			heads = []string{"run", "name", "step", "at", "min", "max", "mean", "count"}
		}
		if err := s.csv.Write(heads); err != nil {
			return err
		}
	}
	s.headed = true
	for _, p := range m.Points {
		row := []string{m.Run, m.Name, strconv.FormatInt(p.step, 10), rfcMilli(p.atMS), valueWhole(p.value)}
		if s.buckets {
			row = append(row, row[4], row[4], "1")
		}
		if err := s.csv.Write(row); err != nil {
			return err
		}
	}
	for _, b := range m.Buckets {
		row := []string{m.Run, m.Name, strconv.FormatInt(b.step, 10), rfcMilli(b.atMS), valueWhole(b.min), valueWhole(b.max), valueWhole(b.mean), strconv.FormatInt(b.count, 10)}
		if err := s.csv.Write(row); err != nil {
			return err
		}
	}
	s.csv.Flush()
	return s.csv.Error()
}

func (s *pointSink) lines(m metricSeries) error {
	for _, p := range m.Points {
		v := jsonFloat(p.value)
		if err := s.p.writeJSON(pointLine{Run: m.Run, Name: m.Name, Step: p.step, AtMS: p.atMS, Value: &v}); err != nil {
			return err
		}
	}
	for _, b := range m.Buckets {
		least, most, mean := jsonFloat(b.min), jsonFloat(b.max), jsonFloat(b.mean)
		if err := s.p.writeJSON(pointLine{Run: m.Run, Name: m.Name, Step: b.step, AtMS: b.atMS, Min: &least, Max: &most, Mean: &mean, Count: b.count}); err != nil {
			return err
		}
	}
	return nil
}

// table writes a curve as a table, below its name when there are several.
func (s *pointSink) table(m metricSeries) error {
	if s.stream {
		return s.streamed(m)
	}
	if s.many {
		head := m.Name + " of run " + m.Run
		if s.headed {
			head = "\n" + plainText(head)
		}
		if _, err := fmt.Fprintln(s.p.out, head); err != nil {
			return err
		}
	}
	s.headed = true
	if len(m.Buckets) > 0 {
		return printTable(s.p, m.Buckets, []column[pointBucket]{
			{name: "step", right: true, cell: func(b pointBucket) string { return strconv.FormatInt(b.step, 10) }},
			{name: "at", cell: func(b pointBucket) string { return s.p.clock(b.atMS) }},
			{name: "min", right: true, cell: func(b pointBucket) string { return valueText(b.min) }},
			{name: "max", right: true, cell: func(b pointBucket) string { return valueText(b.max) }},
			{name: "mean", right: true, cell: func(b pointBucket) string { return valueText(b.mean) }},
			{name: "count", right: true, cell: func(b pointBucket) string { return strconv.FormatInt(b.count, 10) }},
		})
	}
	return printTable(s.p, m.Points, []column[pointRow]{
		{name: "step", right: true, cell: func(r pointRow) string { return strconv.FormatInt(r.step, 10) }},
		{name: "at", cell: func(r pointRow) string { return s.p.clock(r.atMS) }},
		{name: "value", right: true, cell: func(r pointRow) string { return valueShort(r.value) }},
	})
}

// streamed writes points as they come: columns of a fixed width, the name last.
func (s *pointSink) streamed(m metricSeries) error {
	if !s.headed && !s.p.noHeaders {
		if _, err := fmt.Fprintf(s.p.out, "%-19s  %10s  %13s  NAME\n", "AT", "STEP", "VALUE"); err != nil {
			return err
		}
	}
	s.headed = true
	for _, r := range m.Points {
		if _, err := fmt.Fprintf(s.p.out, "%-19s  %10d  %13s  %s\n", s.p.clock(r.atMS), r.step, valueShort(r.value), plainText(m.Name)); err != nil {
			return err
		}
	}
	return nil
}

func printTable[T any](p *printer, items []T, cols []column[T]) error {
	return printList(p, list[T]{Items: items}, cols, func(T) string { return "" })
}

// valueWhole is a value with every digit that it takes to read the same float64 back; NaN, Infinity and -Infinity in words.
func valueWhole(v float64) string {
	b := appendJSONFloat(nil, v)
	if b[0] == '"' {
		b = b[1 : len(b)-1]
	}
	return string(b)
}

// valueShort is a value in the shortest form that reads back as the same float32, when it is one, else as valueWhole.
func valueShort(v float64) string {
	if !math.IsInf(v, 0) && float64(float32(v)) == v {
		return strconv.FormatFloat(v, 'g', -1, 32)
	}
	return valueWhole(v)
}

// clock is a time of day with its date; -o wide shows RFC 3339.
func (p *printer) clock(ms int64) string {
	if p.format == outWide {
		return rfcMilli(ms)
	}
	return time.UnixMilli(ms).In(p.now.Location()).Format(time.DateTime)
}

func rfcMilli(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// metricPoints writes the points of some metrics, or of all.
func (c *cli) metricPoints(ctx context.Context, cl *client, ref string, names []string, query url.Values) error {
	run, err := cl.run(ctx, ref)
	if err != nil {
		return err
	}
	if err := wantMetrics(run, names, query); err != nil {
		return err
	}
	sink := newPointSink(c.p, query.Get("max_points") != "", len(names) != 1 || query.Get("attempts") != "")
	_, err = c.metricsNamed(ctx, cl, run, metricQuery(query, names), names, sink.series)
	return err
}
