package main

// A source that somebody else writes: log.txt of a run, TensorBoard event files. It is read where the server's cursor stands, checked against the file by
// fingerprint, with every read overlapping the last KiB. It never writes the file, keeps nothing on disk, and knows nothing of runs.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	emptyLineBytes  = 64 << 10  // so much without an item makes a line of its own; else each bar refresh would cost a commit
	fileLineTarget  = 128 << 10 // JSON of one line; a read of nothing but newlines would make 900 KiB
	feedSliceBytes  = 4 << 10   // fed at once; 4 KiB of newlines make 120 KiB of JSON, so a line stays below batchLineMaxBytes
	fillMaxBytes    = 4 << 20   // read in one fill: bars without a newline make few lines, the others wait meanwhile
	wideChunkBytes  = 1 << 20   // one read of a backlog of points, and what a line of points stands for
	hopChunkBytes   = 4 << 10   // first read behind a hop: there may be the next thing to hop over
	liveEvery       = time.Second
	timeKnownWithin = 2 * time.Second // a line read so soon after a look that saw the end gets the time of reading
	brakeFree       = 3               // new generations in an hour without a wait
	brakeMost       = 10 * time.Minute
)

// fileDecoder turns bytes into items. Pure; started empty at a clean point it goes on alike (logFold is the model).
type fileDecoder interface {
	reset(off int64)
	// feed takes the first n bytes: all, unless it is full, wants to go back (hop), or could not read what it needs of the file (err).
	feed(b []byte, atMS int64) (n int, err error)
	flush(atMS int64) // no more bytes come; when hop is negative then, some come again, and flush too
	clean() int64
	full(line int) bool // what was made is worth a line of so many bytes of JSON, or nothing more can be made before it is taken
	hop() int64         // from where it wants to be fed: so far ahead at most, or so far back
	hopped(n int64)
	made() (count int64, items []byte) // since the last taken: how many, and their JSON without brackets
	taken()
	live() string // what is unfinished, as it would show now; "" when there is nothing to show
}

// sourceNews is something about a file that people should know.
type sourceNews struct {
	src, event, message string
	gen                 int64
	atMS                int64
	data                any
}

// fileSource reads one file. Its path is opened once; the open file stays the source even when the path is renamed or removed.
type fileSource struct {
	sourceTail
	kind string
	path string
	dec  fileDecoder
	news func(sourceNews)
	read *fileReader // shared with the other sources: one loop reads them all

	f     *os.File
	fed   fedBytes
	piece int64 // of the next read
	load  int64 // read since the last line
	limit int64 // final size, -1 while it is written
	waits bool  // the end is not told yet, whatever the size
	torn  bool  // shorter, or not what was read: a new generation as soon as what was made is acknowledged
	scan  *skipScan
	quiet int64 // no skip before the file is larger than this

	seenSize int64
	seenTime time.Time // modification time at the last look that found nothing new
	caught   time.Time // last look that saw the end

	replaced wireCursor // cursor that the present new generation replaces
	opened   []time.Time
	brake    time.Time

	showed   string // live line as last sent
	showedAt time.Time
}

// fileReader is the buffer for reading, and how large the pieces may be now.
type fileReader struct {
	buf    [printBytes + readChunkBytes]byte
	wide   []byte // for a backlog of points, made when there is one
	points tbScratch
	slice  int // at most feedSliceBytes
	line   int // at most fileLineTarget
}

// room is a buffer of n bytes.
func (r *fileReader) room(n int64) []byte {
	if n <= int64(len(r.buf)) {
		return r.buf[:n]
	}
	if r.wide == nil {
		r.wide = make([]byte, printBytes+wideChunkBytes)
	}
	return r.wide[:n]
}

func newFileSource(src, kind, path string, dec fileDecoder, read *fileReader, news func(sourceNews)) *fileSource {
	s := &fileSource{kind: kind, path: path, dec: dec, read: read, news: news, limit: -1}
	s.src = src
	return s
}

// open opens the file if it is there. What is no regular file (a job can put a fifo in its place) counts as not there, and opening it
// never waits for a writer.
func (s *fileSource) open() (bool, error) {
	if s.f != nil {
		return true, nil
	}
	f, err := os.OpenFile(s.path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return false, errors.Join(err, f.Close())
	}
	s.f = f
	return true, nil
}

func (s *fileSource) close() error {
	if s.f == nil {
		return nil
	}
	f := s.f
	s.f = nil
	return f.Close()
}

// align is the one way to find the place. A file that cannot be read now is looked at again by the next fill.
func (s *fileSource) align(c wireCursor) {
	s.seek(c)
	s.torn, s.scan, s.quiet, s.load = false, nil, 0, 0
	s.fed = fedBytes{pos: -1} // not looked at
	s.seenSize, s.showed, s.showedAt = -1, "", time.Time{}
}

// place checks the file against the cursor, once after align.
func (s *fileSource) place(now time.Time) error {
	fed, print, ok, err := fedAt(s.f, s.cur.Off)
	if err != nil {
		return err
	}
	if !ok || print != s.cur.Print {
		s.newGeneration(now)
		return nil
	}
	s.fed = fed
	s.dec.reset(s.cur.Off)
	return nil
}

// newGeneration starts again at 0, in place of the present cursor.
func (s *fileSource) newGeneration(now time.Time) {
	s.renew()
	s.torn, s.scan, s.quiet, s.load, s.seenSize = false, nil, 0, 0, -1
	s.fed = fedBytes{}
	s.dec.reset(0)
	if len(s.opened) > 0 && s.replaced == s.cur {
		return // the same step, taken again
	}
	s.replaced = s.cur
	for len(s.opened) > 0 && now.Sub(s.opened[0]) > time.Hour {
		s.opened = s.opened[1:]
	}
	s.opened = append(s.opened, now)
	if k := len(s.opened) - brakeFree - 1; k >= 0 {
		wait := brakeMost
		if k < 10 {
			wait = min(time.Second<<k, brakeMost)
		}
		s.brake = now.Add(wait)
		if k == 0 {
			s.news(sourceNews{src: s.src, event: "SOURCE_FLAPPING", gen: s.gen, atMS: now.UnixMilli(), message: fmt.Sprintf("%d new generations of one file within an hour: it is truncated again and again, or two files go by one name", len(s.opened)), data: map[string]any{
				"generations": len(s.opened), "wait_s": wait.Seconds(),
			}})
		}
	}
}

// finish tells the final size. Nothing beyond it is taken, unless it was already.
func (s *fileSource) finish(size int64) {
	if size = max(size, 0); s.limit == size {
		return
	}
	s.limit, s.scan, s.seenSize = size, nil, -1
	if s.known && !s.ended && (s.fed.pos > size || s.from > size) {
		s.align(s.cur) // had read on behind the end
	}
}

// end is where reading stops: the size of the file, or its final size.
func (s *fileSource) end(size int64) int64 {
	if s.limit < 0 {
		return size
	}
	limit := s.limit
	if !s.fresh && s.gen == s.cur.Gen {
		limit = max(limit, s.cur.Off) // taken already: a process that was left alone wrote on after the end
	}
	return min(size, limit)
}

func (s *fileSource) unsent() int64 {
	if s.cur.Done {
		return 0
	}
	size, err := s.size()
	if err != nil {
		return 0
	}
	if n := s.end(size) - s.cur.Off; n >= 0 {
		return n
	}
	return size
}

func (s *fileSource) fill(now time.Time, room int) (again bool, err error) {
	if s.ended || now.Before(s.brake) || s.bytes >= room {
		return false, nil
	}
	there, err := s.open()
	if err != nil {
		return false, err
	}
	if !there {
		s.caught = now
		if s.limit >= 0 && !s.waits && len(s.pend) == 0 { // nothing is left that could be read
			s.push(batchLine{Kind: s.kind, End: true}, s.from, s.prev, 0)
		}
		return false, nil
	}
	if s.fed.pos < 0 {
		if err := s.place(now); err != nil {
			return false, err
		}
	}
	if s.torn {
		if len(s.pend) > 0 {
			return false, nil
		}
		s.newGeneration(now)
	}
	for read := 0; s.bytes < room && !now.Before(s.brake); {
		st, err := s.f.Stat()
		if err != nil {
			return false, err
		}
		size := s.end(st.Size())
		if s.scan != nil || s.backlog(size) {
			return s.skip(size, now)
		}
		final := s.limit >= 0 && !s.waits && s.fed.pos >= size
		if size == s.fed.pos && s.dec.hop() >= 0 && st.Size() == s.seenSize && st.ModTime().Equal(s.seenTime) && !final {
			s.caught = now
			return false, nil
		}
		if read >= fillMaxBytes {
			return true, nil
		}
		n, more, err := s.step(now, size, final)
		if err != nil || s.torn && len(s.pend) > 0 || s.ended {
			return false, err
		}
		if s.torn {
			s.newGeneration(now)
			continue
		}
		read += n
		if !more {
			s.seenSize, s.seenTime, s.caught = st.Size(), st.ModTime(), now
			return false, nil
		}
	}
	return s.bytes >= room, nil
}

// step reads once, up to size, and feeds. more: the end of the file was not seen.
func (s *fileSource) step(now time.Time, size int64, final bool) (n int, more bool, err error) {
	have := s.fed.overlap()
	hop := min(s.dec.hop(), max(0, size-s.fed.pos))
	want := max(0, min(s.chunk(size), size-s.fed.pos))
	if hop != 0 {
		want = 0
	}
	b := s.read.room(int64(len(have)) + want)
	got, err := s.f.ReadAt(b, s.fed.pos-int64(len(have)))
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, false, err
	}
	same := got >= len(have) && bytes.Equal(b[:len(have)], have) && size >= s.fed.pos
	if same && s.fed.pos > printBytes { // a bar drawn again in a new file can have the same last KiB: look at the first one too
		same, err = s.sameHead()
		if err != nil {
			return 0, false, err
		}
	}
	if same && hop != 0 {
		same, err = s.hop(hop)
		if err != nil || same {
			return hopChunkBytes, true, err // of work
		}
	}
	if !same {
		s.tear()
		return 0, true, nil
	}
	b = b[len(have):got]
	s.piece *= 2
	var atMS int64
	if now.Sub(s.caught) <= timeKnownWithin {
		atMS = now.UnixMilli()
	}
	full := false
	for len(b) > 0 && err == nil && !full && s.dec.hop() == 0 {
		var k int
		k, err = s.dec.feed(b[:min(len(b), s.read.slice)], atMS)
		s.fed.eat(b[:k])
		s.fed.settle(s.dec.clean())
		b = b[k:]
		n += k
		full = s.dec.full(s.read.line)
	}
	end := n == 0 && final && err == nil && !full
	if end {
		s.dec.flush(atMS)
	}
	more = n > 0 || full
	if back := s.dec.hop(); back < 0 && err == nil {
		end, more = false, true
		if same, err = s.hop(back); err == nil && !same {
			s.tear()
			return n, true, nil
		}
	}
	s.load += int64(n)
	if s.kind != kindPoints || end || full || err != nil || s.fed.pos >= size || s.load >= wideChunkBytes {
		s.make(end)
	}
	return n, more, err
}

// tear ends what was read of a file that is not the same any more: it is still sent.
func (s *fileSource) tear() {
	s.torn = true
	s.dec.flush(0) // nobody will ever finish the last line
	s.make(false)
}

// hop goes n bytes on, or back; ok is false when the file is not the same any more.
func (s *fileSource) hop(n int64) (ok bool, err error) {
	if ok, err = s.fed.jump(s.f, s.fed.pos+n, s.dec.clean()); ok {
		s.dec.hopped(n)
		s.piece = hopChunkBytes
	}
	return ok, err
}

// chunk is how much to read at once: ever more of a backlog of points, where nothing is hopped over.
func (s *fileSource) chunk(size int64) int64 {
	if s.kind != kindPoints {
		return readChunkBytes
	}
	most := int64(readChunkBytes)
	if size-s.fed.pos >= wideChunkBytes {
		most = wideChunkBytes
	}
	s.piece = min(max(s.piece, hopChunkBytes), most)
	return s.piece
}

func (s *fileSource) sameHead() (bool, error) {
	var head [printBytes]byte
	n, err := s.f.ReadAt(head[:len(s.fed.head)], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return bytes.Equal(head[:n], s.fed.head), nil
}

// make pushes what the decoder made, if it is worth a line.
func (s *fileSource) make(end bool) {
	count, items := s.dec.made()
	to := s.dec.clean()
	if count == 0 && to-s.from < emptyLineBytes && !end || !s.fed.knows(to) {
		return
	}
	s.load = 0
	l := batchLine{Kind: s.kind, End: end}
	if count > 0 {
		l.Items = make(json.RawMessage, 0, len(items)+2)
		l.Items = append(append(append(l.Items, '['), items...), ']')
	}
	s.push(l, to, s.fed.print(to), count)
	s.dec.taken()
}

// show gives the live line when it should be sent: at the end of the file, changed, at most one a second; a cleared one at once.
func (s *fileSource) show(now time.Time) (raw []byte, text string, ok bool) {
	if s.fed.pos < 0 || s.scan != nil || s.torn || !s.caught.Equal(now) && !s.ended {
		return nil, "", false
	}
	text = s.dec.live()
	if text == s.showed || text != "" && now.Sub(s.showedAt) < liveEvery {
		return nil, "", false
	}
	items := append(appendLogItem([]byte{'['}, logItem{Text: text, AtMS: now.UnixMilli()}), ']')
	return appendBatchLine(nil, batchLine{Src: s.src, Kind: kindLive, Items: items}), text, true
}

func (s *fileSource) shown(text string, now time.Time) { s.showed, s.showedAt = text, now }
