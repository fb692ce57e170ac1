package main

// The source over own segments: facts and node samples on their way to the server. What was dropped or cannot be read becomes a skip line
// that counts it, and the stream moves on.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

const ownLineBytes = 64 << 10 // payloads of one line, or one larger record alone

// ownSource reads a spool where the server's cursor stands.
type ownSource struct {
	sourceTail
	kind   string
	sp     *spool
	placed bool
	at     spoolPoint     // where reading goes on; n is -1 when it is not known how many records lie before it
	r      *segmentReader // stands at `at`, or nil
}

func newOwnSource(src, kind string, sp *spool) *ownSource {
	s := &ownSource{kind: kind, sp: sp}
	s.src = src
	return s
}

// ownPrint is the fingerprint of own segments: the chain, which covers everything before.
func ownPrint(p spoolPoint) string {
	if p.off == 0 {
		return ""
	}
	return fmt.Sprintf("%08x", p.chain)
}

func (s *ownSource) align(c wireCursor) {
	s.seek(c)
	s.placed = false
}

// place checks the segments against the cursor, once after align.
func (s *ownSource) place() error {
	p, known, gone, err := s.sp.find(s.cur.Off)
	if err != nil {
		return err
	}
	switch {
	case known && ownPrint(p) == s.cur.Print:
		s.at = p
	case gone:
		s.at = spoolPoint{off: s.cur.Off, n: -1}
		if s.cur.Gen == 0 {
			s.at.n = s.cur.N
		}
	default:
		s.renew()
		s.at = spoolPoint{}
	}
	s.placed = true
	return s.close()
}

func (s *ownSource) close() error {
	if s.r == nil {
		return nil
	}
	r := s.r
	s.r = nil
	return r.close()
}

func (s *ownSource) unsent() int64 {
	end := s.sp.durable().off
	if n := end - s.cur.Off; n >= 0 {
		return n
	}
	return end
}

func (s *ownSource) fill(_ time.Time, room int) (again bool, err error) {
	if !s.placed {
		if err := s.place(); err != nil {
			return false, err
		}
	}
	for s.bytes < room {
		g, limit, hole, ok := s.sp.at(s.at.off)
		if !ok {
			return false, nil
		}
		if hole {
			s.skip(spoolPoint{g.base, g.n, g.chain}, "dropped")
			continue
		}
		items, to, err := s.records(g, limit, min(room, ownLineBytes))
		if err != nil {
			return false, err
		}
		if len(items) > 0 {
			count := to.n - s.r.from.n
			s.push(batchLine{Kind: s.kind, Items: items}, to.off, ownPrint(to), count)
			s.at = to
			continue
		}
		if err := s.damaged(g, limit); err != nil {
			return false, err
		}
	}
	return true, nil
}

// records reads whole records at s.at as a JSON array; none: what is there cannot be read.
func (s *ownSource) records(g segment, limit int64, most int) (items json.RawMessage, to spoolPoint, err error) {
	if s.r == nil || s.r.seg.base != g.base {
		if err := s.close(); err != nil {
			return nil, to, err
		}
		r, err := openSegment(g)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, to, nil
		}
		if err != nil {
			return nil, to, err
		}
		s.r = r
		for r.at.off < s.at.off {
			if _, ok, err := r.next(limit); err != nil || !ok {
				return nil, to, err
			}
		}
	}
	if s.r.at.off != s.at.off {
		return nil, to, nil
	}
	s.r.from = s.r.at
	for len(items) < most {
		p, ok, err := s.r.next(limit)
		if err != nil {
			return nil, to, err
		}
		if !ok {
			break
		}
		if len(items) == 0 {
			items = append(items, '[')
		} else {
			items = append(items, ',')
		}
		items = append(items, p...)
	}
	if len(items) == 0 {
		return nil, to, nil
	}
	return append(items, ']'), s.r.at, nil
}

// damaged passes over what cannot be read, to the end of its segment. The newest one is closed there, so that a later life finds the
// same end.
func (s *ownSource) damaged(g segment, limit int64) error {
	if err := s.close(); err != nil {
		return err
	}
	if limit == s.sp.durable().off {
		if err := s.sp.seal(); err != nil {
			return err
		}
	}
	p, known, _, err := s.sp.find(limit)
	if err != nil {
		return err
	}
	if !known {
		return fmt.Errorf("pass over damage in %s: no segment begins at %d", g.path, limit)
	}
	s.skip(p, "unreadable")
	return nil
}

func (s *ownSource) skip(to spoolPoint, why string) {
	var n int64
	if s.at.n >= 0 {
		n = max(0, to.n-s.at.n)
	}
	s.push(batchLine{Kind: kindSkip, N: n, Why: why}, to.off, ownPrint(to), n)
	s.at = to
}
