package main

// What is special about logs: the decoder, and leaving out lines when far too many wait.

import (
	"errors"
	"io"
	"os"
	"time"
)

// logDecoder folds a log and writes its lines as JSON.
type logDecoder struct {
	fold  logFold
	count int64
	json  []byte
}

func (d *logDecoder) reset(off int64) {
	d.fold.reset(off)
	d.taken()
}

func (d *logDecoder) feed(b []byte, atMS int64) (int, error) {
	d.add(d.fold.feed(b), atMS)
	return len(b), nil
}

func (d *logDecoder) flush(atMS int64)      { d.add(d.fold.flush(), atMS) }
func (d *logDecoder) clean() int64          { return d.fold.clean() }
func (d *logDecoder) live() string          { return d.fold.live() }
func (d *logDecoder) made() (int64, []byte) { return d.count, d.json }
func (d *logDecoder) full(line int) bool    { return len(d.json) >= line }
func (d *logDecoder) hop() int64            { return 0 }
func (d *logDecoder) hopped(int64)          {}

func (d *logDecoder) add(items []logItem, atMS int64) {
	for _, it := range items {
		if d.count++; d.count > 1 {
			d.json = append(d.json, ',')
		}
		it.AtMS = atMS
		d.json = appendLogItem(d.json, it)
	}
}

func (d *logDecoder) taken() {
	d.count, d.json = 0, d.json[:0]
	if cap(d.json) > readChunkBytes { // a hundred logs shall not keep a hundred large buffers
		d.json = nil
	}
}

const skipStepBytes = 16 << 20 // counted in one fill, about 20 ms: other sources go on meanwhile

// skipScan counts the lines of a backlog in one pass, with the decoder that would have read them, and remembers the clean points that
// have fewer than logRingLines lines behind them so far.
type skipScan struct {
	fold  logFold
	fed   fedBytes
	end   int64
	marks []skipMark
}

// skipMark is a clean point: lines in front of it, and its fingerprint out of what was fed.
type skipMark struct {
	lines, off int64
	print      string
}

// backlog reports whether so much waits that lines should be left out. The head of the run is never left out.
func (s *fileSource) backlog(size int64) bool {
	return s.kind == kindLog && size-s.from > skipBacklogBytes && size > s.quiet && s.n >= logHeadLines
}

// skip goes on counting; at the end it makes the skip line, when more than logRingLines lines wait.
func (s *fileSource) skip(size int64, now time.Time) (again bool, err error) {
	if s.scan == nil {
		fed, print, ok, err := fedAt(s.f, s.from)
		if err != nil {
			return false, err
		}
		if !ok || print != s.prev {
			s.torn = true
			return true, nil
		}
		s.scan = &skipScan{fed: fed, end: size}
		s.scan.fold.mute = true
		s.scan.fold.reset(s.from)
	}
	done, err := s.scan.advance(s.f, s.read.buf[:readChunkBytes])
	if err != nil || !done {
		return err == nil, err
	}
	scan := s.scan
	s.scan = nil
	s.quiet = scan.end + skipBacklogBytes
	if scan.fed.pos < scan.end {
		s.torn = true // got shorter meanwhile
		return true, nil
	}
	m, ok := scan.best()
	if !ok {
		return true, nil
	}
	fed, print, ok, err := fedAt(s.f, m.off)
	if err != nil {
		return false, err
	}
	if !ok || print != m.print {
		s.torn = true
		return true, nil
	}
	s.push(batchLine{Kind: kindSkip, N: m.lines, Why: "backlog"}, m.off, m.print, m.lines)
	s.fed = fed
	s.dec.reset(m.off)
	return true, nil
}

// advance counts up to skipStepBytes more; done: the end was reached, or the file ended before it.
func (c *skipScan) advance(f *os.File, buf []byte) (done bool, err error) {
	for read := 0; read < skipStepBytes; {
		if c.fed.pos >= c.end {
			return true, nil
		}
		n, err := f.ReadAt(buf[:min(int64(len(buf)), c.end-c.fed.pos)], c.fed.pos)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if n == 0 {
			return true, nil
		}
		read += n
		c.fed.eat(buf[:n])
		c.fold.feed(buf[:n])
		c.mark()
		c.fed.settle(c.fold.clean())
	}
	return false, nil
}

func (c *skipScan) mark() {
	lines, off := c.fold.made, c.fold.clean()
	k := len(c.marks)
	if lines == 0 || k > 0 && c.marks[k-1].off == off || !c.fed.covers(off) {
		return
	}
	m := skipMark{lines, off, c.fed.print(off)}
	if k > 0 && c.marks[k-1].lines == lines {
		c.marks[k-1] = m
		return
	}
	c.marks = append(c.marks, m)
	i := 0
	for i+1 < len(c.marks) && lines-c.marks[i+1].lines >= logRingLines {
		i++
	}
	if i > 0 {
		c.marks = c.marks[:copy(c.marks, c.marks[i:])]
	}
}

// best is the last clean point with logRingLines lines behind it.
func (c *skipScan) best() (m skipMark, ok bool) {
	if len(c.marks) == 0 || c.fold.made-c.marks[0].lines < logRingLines {
		return skipMark{}, false
	}
	return c.marks[0], true
}
