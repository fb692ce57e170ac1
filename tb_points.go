package main

// What the records of a TensorBoard file say, as points of series in order of arrival: which values are scalars, what a tag's plugin is,
// what a series is called, and how much of it fits into one wire line. It knows nothing of frames.

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strings"
	"unicode/utf8"
)

const (
	tbScalarsPlugin = "scalars"
	tbNoTag         = "(no tag)" // name of a series whose tag is empty

	// Of one wire line, as JSON. One line must stay below batchLineMaxBytes whatever the file holds; between these and that lie the rejects
	// of one feeding, and what the packing needs more than was reckoned.
	tbLineMost   = 440 << 10 // no point fits into packedMaxCount before
	tbEntryCost  = 56        // of a series, without its name and folder: member names, head of the packing
	tbPointCost  = 40        // of a point, at most
	tbRejectCost = 200

	tbTagsMost   = 1 << 16 // remembered between lines
	tbPointsKept = 64      // room for points that a source keeps between lines
)

// What is known of a tag's plugin.
const (
	tbUnknown = iota
	tbScalars
	tbOther
)

// tbTag is one tag of a file.
type tbTag struct {
	name   string // valid UTF-8, not empty, at most nameMaxBytes
	plugin uint8
	next   *tbTag // that came after it the last time: loops log their tags in one order
	line   int    // in which slot and what follows are valid
	slot   int32
	count  int
	wide   bool // has a value that may need more than 4 bytes
	step   int64
	stepBy int64
	atMS   int64
	atMSBy int64
}

// tbPoint is one point; slot is its series, an index of tbPoints.series.
type tbPoint struct {
	slot  int32
	step  int64
	atMS  int64
	value float64
}

// tbReadAt reads the file that is being read from off on, as io.ReaderAt does.
type tbReadAt func(b []byte, off int64) (n int, err error)

const tbPastBytes = 64 << 10 // one read of what lies before

// tbPoints collects. Points, series and rejects are those since the last taken.
type tbPoints struct {
	history tbReadAt // nil: what lies before is not looked at
	folder  int      // bytes of the folder, as JSON
	tagOnly bool     // learn of plugins in front of upto, nothing else
	upto    int64

	points  []tbPoint
	spare   *[]tbPoint // memory for points, shared with others; nil: each has its own
	series  []*tbTag
	rejects []string
	size    int  // as JSON, about
	stuck   bool // what comes next does not fit

	tags   map[string]*tbTag
	began  int64 // what lies before it is not known, 0: nothing does
	line   int
	last   *tbTag    // of the last value
	values []tbValue // scratch
}

func (p *tbPoints) reset(off int64) {
	p.tags, p.last, p.began = map[string]*tbTag{}, nil, off
	p.taken()
}

// taken forgets what was collected.
func (p *tbPoints) taken() {
	p.line++
	p.points, p.series, p.rejects, p.size, p.stuck = p.points[:0], p.series[:0], p.rejects[:0], 0, false
	if cap(p.points) > tbPointsKept {
		if p.spare != nil && cap(p.points) > cap(*p.spare) {
			*p.spare = p.points
		}
		p.points = nil
	}
	if cap(p.values) > 64 {
		p.values = nil
	}
	p.forget()
}

// forget keeps the memory of tags bounded. A tag without a word of its plugin, or with "scalars", is the same to us; what a file with
// more tags than that says of others is lost to the values that do not say it themselves.
func (p *tbPoints) forget() {
	if len(p.tags) <= tbTagsMost {
		return
	}
	kept := map[string]*tbTag{}
	for k, t := range p.tags {
		if t.plugin == tbOther && len(kept) < tbTagsMost/2 {
			kept[k] = t
		}
	}
	p.tags, p.last = kept, nil
	for _, t := range kept {
		t.next = nil
	}
}

func (p *tbPoints) reject(why string) {
	if p.tagOnly {
		return
	}
	p.rejects = append(p.rejects, why)
	p.size += tbRejectCost
}

// record takes one whole record that begins at at. done is false when nothing was taken: it does not fit, or the history could not be read.
func (p *tbPoints) record(data []byte, at int64) (done bool, err error) {
	if e, v, ok := tbParseOne(data); ok && p.size+tbEntryCost+tbPointCost+p.folder+6*nameMaxBytes <= tbLineMost {
		if !p.tagOnly { // it says nothing of a plugin
			p.add(p.tag(v.tag.of(data)), e.step, tbMillis(e.wall), v.number)
		}
		return true, nil
	}
	e, values, ok := tbParse(data, p.values[:0])
	p.values = values
	if !ok {
		p.reject(fmt.Sprintf("byte %d: a record that is no TensorBoard event", at))
		return true, nil
	}
	return p.take(data, e, values, at)
}

// long takes a record that was walked.
func (p *tbPoints) long(w *tbWalk, at int64) (done bool, err error) {
	if !w.whole() {
		p.reject(fmt.Sprintf("byte %d: a record that is no TensorBoard event", at))
		return true, nil
	}
	done, err = p.record(w.out, at)
	if done && w.left {
		p.reject(fmt.Sprintf("byte %d: a record with more small fields than are looked at; the others are left out", at))
	}
	return done, err
}

func (p *tbPoints) take(data []byte, e tbEvent, values []tbValue, at int64) (done bool, err error) {
	if p.tagOnly && at >= p.upto {
		return true, nil
	}
	bound := 0
	for i := range values {
		v := &values[i]
		if v.form != tbNone {
			bound += tbEntryCost + tbPointCost + p.folder + 6*min(3*int(v.tag.to-v.tag.from)+len(tbNoTag), nameMaxBytes)
		}
		if v.form == tbOne && v.plugin.empty() && p.began > 0 && p.history != nil && p.tags[string(v.tag.of(data))].known() == tbUnknown {
			if err := p.remember(); err != nil {
				return false, err
			}
		}
	}
	if p.size > 0 && p.size+bound > tbLineMost && !p.tagOnly {
		p.stuck = true
		return false, nil
	}
	atMS, left := tbMillis(e.wall), 0
	for i := range values {
		v := &values[i]
		t := p.tag(v.tag.of(data))
		plugin := uint8(tbScalars)
		switch {
		case !v.plugin.empty():
			if string(v.plugin.of(data)) != tbScalarsPlugin {
				plugin = tbOther
			}
			t.plugin = plugin
		case v.form == tbOne && t.plugin == tbOther:
			plugin = tbOther
		}
		if v.form == tbNone || plugin == tbOther || p.tagOnly {
			continue
		}
		if p.size+tbEntryCost+tbPointCost+p.folder+6*len(t.name) > tbLineMost {
			left++
			continue
		}
		p.add(t, e.step, atMS, v.number)
	}
	if left > 0 {
		p.reject(fmt.Sprintf("byte %d: %d values of one record left out: more than one message holds", at, left))
	}
	if p.tagOnly {
		p.forget()
	}
	return true, nil
}

func (t *tbTag) known() uint8 {
	if t == nil {
		return tbUnknown
	}
	return t.plugin
}

// add collects one point and reckons its bytes: chunk coding stores differences of differences as varints and values by their width, and
// base64 makes four of three.
func (p *tbPoints) add(t *tbTag, step, atMS int64, value float64) {
	if t.line != p.line {
		t.line, t.slot, t.count, t.wide = p.line, int32(len(p.series)), 0, false
		t.step, t.stepBy, t.atMS, t.atMSBy = 0, 0, 0, 0
		p.series = append(p.series, t)
		p.size += tbEntryCost + p.folder + tbTextBytes(t.name)
	}
	width := 4
	if t.wide {
		width = 8
	} else if tbWide(value) {
		t.wide, width = true, 8
		p.size += t.count * 6
	}
	by, atBy := step-t.step, atMS-t.atMS
	p.size += (tbVarint(by-t.stepBy)+tbVarint(atBy-t.atMSBy)+width)*4/3 + 1
	t.step, t.stepBy, t.atMS, t.atMSBy = step, by, atMS, atBy
	t.count++
	if len(p.points) == cap(p.points) {
		p.grow()
	}
	p.points = append(p.points, tbPoint{t.slot, step, atMS, value})
}

// grow makes room for more points.
func (p *tbPoints) grow() {
	n := len(p.points)
	var room []tbPoint
	if n >= tbPointsKept && p.spare != nil && cap(*p.spare) > n {
		room, *p.spare = (*p.spare)[:n], nil
	} else {
		room = make([]tbPoint, n, max(16, 2*n))
	}
	copy(room, p.points)
	p.points = room
}

// tbWide reports whether a value may need more than 4 bytes: it is no float32, or so large that a difference of whole numbers is longer.
func tbWide(v float64) bool {
	return float64(float32(v)) != v && (v == v || math.Float64bits(v)<<35 != 0) || v >= 1<<26 || v <= -1<<26
}

// tbVarint is the length of a signed varint.
func tbVarint(v int64) int {
	return (bits.Len64(uint64(v<<1)^uint64(v>>63)|1) + 6) / 7
}

// tbTextBytes is at least the length of s in JSON, without the quotes.
func tbTextBytes(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20:
			n += 5
		case c == '"' || c == '\\':
			n++
		}
	}
	return n
}

// tag finds a tag or begins it.
func (p *tbPoints) tag(raw []byte) *tbTag {
	var t *tbTag
	if p.last != nil {
		if t = p.last.next; t != nil && t.name == string(raw) {
			p.last = t
			return t
		}
	}
	if t = p.tags[string(raw)]; t == nil {
		t = p.newTag(raw)
	}
	if p.last != nil {
		p.last.next = t
	}
	p.last = t
	return t
}

// newTag begins a tag. Two tags that get the same name are one series.
func (p *tbPoints) newTag(raw []byte) *tbTag {
	name := tbShortName(string(raw))
	if name == "" {
		name = tbNoTag
	}
	t := p.tags[name]
	if t == nil {
		t = &tbTag{name: name}
		p.tags[name] = t
	}
	if name != string(raw) && len(raw) <= nameMaxBytes {
		p.tags[string(raw)] = t
	}
	return t
}

// tbShortName is s as a name: valid UTF-8, and where it is longer than nameMaxBytes its beginning and a hash of it all.
func tbShortName(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, string(utf8.RuneError))
	}
	if len(s) <= nameMaxBytes {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	cut := nameMaxBytes - 24
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..." + hex.EncodeToString(sum[:8])
}

// remember reads the plugins of the tags that lie before the place where this reader began. It reads beyond that where damage claims
// to be a record that ends there.
func (p *tbPoints) remember() error {
	past := &tbReader{}
	past.tagOnly, past.upto = true, p.began
	past.reset(0)
	buf := make([]byte, tbPastBytes)
	for past.clean() < p.began {
		if h := past.hop(); h != 0 {
			past.hopped(h)
			continue
		}
		n, err := p.history(buf, past.off)
		if n == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read tags again: %w", err)
		}
		if _, err := past.feed(buf[:n]); err != nil { // it asks for no history, so there is none
			return err
		}
	}
	for k, was := range past.tags {
		if t := p.tags[k]; t == nil {
			p.tags[k] = &tbTag{name: was.name, plugin: was.plugin}
		} else if t.plugin == tbUnknown {
			t.plugin = was.plugin
		}
	}
	p.began = 0
	return nil
}

// tbMillis is a wall time in Unix ms; 0 where it is none that a calendar has.
func tbMillis(seconds float64) int64 {
	ms := seconds * 1000
	if !(ms >= 0 && ms <= 253402300799999) {
		return 0
	}
	return int64(ms + 0.5)
}
