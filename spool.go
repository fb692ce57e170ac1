package main

// Segments that the agent writes itself: what it knows and the server shall keep, until the server has it. Append only, durable before it
// can be sent, never appended to after a start. A folder spool/<kind>-<uid>/ of files <base>-<n>-<chain>.seg (hex: offset of the first
// byte, records before it, chain before it); a line is `crc32c(chain before, payload) SP payload LF`. Knows no JSON and no network.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	segmentBytes  = 1 << 20 // a segment is closed beyond this
	segmentKeep   = 24 * time.Hour
	segmentsBytes = 256 << 20 // acknowledged segments kept at most: a server restored from a backup asks for them again
	nodeBytes     = 64 << 20  // all of the node source, taken or not: about 40 days of 10 s samples
)

// spool is one folder of segments. append may be called by anybody, the rest by one reader.
type spool struct {
	dir string
	max int64 // 0: nothing is dropped before it was taken; else at most so many bytes are kept, taken or not

	mu   sync.Mutex
	segs []segment  // ascending, at least the newest
	end  spoolPoint // durable
	w    *os.File   // newest segment, nil: open a new one at end first
	size int64      // written to it
}

// openSpool finds home/spool/<kind>-<uid> or makes it, and finds the end of what is whole. Nothing is ever repaired in place.
func openSpool(home, kind string, most int64) (s *spool, src string, err error) {
	root := filepath.Join(home, "spool")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, "", err
	}
	dirs, err := os.ReadDir(root)
	if err != nil {
		return nil, "", err
	}
	for _, d := range dirs {
		if k, uid, ok := strings.Cut(d.Name(), "-"); ok && k == kind && isUID(uid) && d.IsDir() {
			src = d.Name()
			break
		}
	}
	if src == "" {
		src = sourceName(kind, newUID())
		if err := os.Mkdir(filepath.Join(root, src), 0o700); err != nil {
			return nil, "", err
		}
		if err := syncDir(root); err != nil {
			return nil, "", err
		}
	}
	s = &spool{dir: filepath.Join(root, src), max: most}
	if err := s.recover(); err != nil {
		return nil, "", fmt.Errorf("recover %s: %w", s.dir, err)
	}
	return s, src, nil
}

// recover lists the segments and finds the end: the last whole record of the newest one. A newest segment that is damaged in front of
// other records is closed where the file ends, so that the damage becomes a counted hole.
func (s *spool) recover() error {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		var g segment
		if _, err := fmt.Sscanf(f.Name(), "%016x-%012x-%08x.seg", &g.base, &g.n, &g.chain); err != nil || g.name() != f.Name() || g.base < 0 || g.n < 0 {
			continue // not ours, or a name that cannot be believed
		}
		g.path = filepath.Join(s.dir, f.Name())
		s.segs = append(s.segs, g)
	}
	slices.SortFunc(s.segs, func(a, b segment) int { return int(min(max(a.base-b.base, -1), 1)) })
	s.segs = slices.CompactFunc(s.segs, func(a, b segment) bool { return a.base == b.base })
	if len(s.segs) == 0 {
		return nil
	}
	g := s.segs[len(s.segs)-1]
	f, err := os.Open(g.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // written by a life that died before its fsync: durable before it is sent
		return err
	}
	r := segmentReader{f: f, seg: g, at: spoolPoint{g.base, g.n, g.chain}}
	for {
		if _, ok, err := r.next(1 << 62); err != nil {
			return err
		} else if !ok {
			break
		}
	}
	s.end = r.at
	lost, size, err := r.behind()
	if err != nil || lost == 0 {
		return err
	}
	s.end.off, s.end.n = g.base+size, r.at.n+lost
	return s.rotate()
}

// rotate opens a new newest segment at the end.
func (s *spool) rotate() error {
	if s.w != nil {
		err := s.w.Close()
		s.w = nil
		if err != nil {
			return err
		}
	}
	g := segment{base: s.end.off, n: s.end.n, chain: s.end.chain}
	g.path = filepath.Join(s.dir, g.name())
	// The same name is there already when the newest segment has no whole record: nothing in it was ever visible.
	w, err := os.OpenFile(g.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := syncDir(s.dir); err != nil {
		return errors.Join(err, w.Close())
	}
	if k := len(s.segs); k > 0 && s.segs[k-1].base == g.base {
		s.segs[k-1] = g
	} else {
		s.segs = append(s.segs, g)
	}
	s.w, s.size = w, 0
	for s.max > 0 && s.end.off-s.segs[0].base > s.max && s.dropOldest() {
	}
	return nil
}

// append stores records, durable on return. A payload has no newline. When the disk is full, a spool that may drop does so.
func (s *spool) append(payloads ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		err := s.write(payloads)
		if err == nil {
			return nil
		}
		if !diskFull(err) || s.max == 0 || !s.dropOldest() {
			return err
		}
	}
}

func diskFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// makeRoom gives up the oldest segment of a spool that may drop; false when there is none to give.
func (s *spool) makeRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.max > 0 && s.dropOldest()
}

func (s *spool) write(payloads [][]byte) error {
	if s.w == nil || s.size > segmentBytes {
		if err := s.rotate(); err != nil {
			return err
		}
	}
	var b []byte
	to := s.end
	for _, p := range payloads {
		to.chain = spoolChain(to.chain, p)
		to.n++
		b = fmt.Appendf(b, "%08x ", to.chain)
		b = append(append(b, p...), '\n')
	}
	to.off += int64(len(b))
	_, err := s.w.Write(b)
	if err == nil {
		err = s.w.Sync()
	}
	if err != nil { // what the file holds now is not known: leave it behind
		err = errors.Join(err, s.w.Close())
		s.w = nil
		return err
	}
	s.size += int64(len(b))
	s.end = to
	return nil
}

// dropOldest removes the oldest segment, never the newest.
func (s *spool) dropOldest() bool {
	if len(s.segs) < 2 {
		return false
	}
	if err := os.Remove(s.segs[0].path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	s.segs = slices.Delete(s.segs, 0, 1)
	return true
}

// durable is the end of what may be sent.
func (s *spool) durable() spoolPoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// at finds the segment that holds the record at off, and where it ends; hole: off lies in none, seg is the next one that is there.
func (s *spool) at(off int64) (seg segment, end int64, hole, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, g := range s.segs {
		end := s.end.off
		if i+1 < len(s.segs) {
			end = s.segs[i+1].base
		}
		if off < g.base {
			return g, end, true, true
		}
		if off < end {
			return g, end, false, true
		}
	}
	return segment{}, 0, false, false
}

// close ends the newest segment where it stands.
func (s *spool) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil {
		return nil
	}
	w := s.w
	s.w = nil
	return w.Close()
}

// seal closes the newest segment and opens a new one, so that damage in the old one becomes a hole with a known end.
func (s *spool) seal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rotate()
}

// find tells the place at off: known, or gone with its segment (trimmed, dropped, damaged: to be believed), or no place of ours.
func (s *spool) find(off int64) (p spoolPoint, known, gone bool, err error) {
	if off == 0 {
		return spoolPoint{}, true, false, nil
	}
	end := s.durable()
	if off == end.off {
		return end, true, false, nil
	}
	g, limit, hole, ok := s.at(off)
	if !ok {
		return p, false, false, nil
	}
	if hole || off == g.base {
		return spoolPoint{g.base, g.n, g.chain}, !hole, hole, nil
	}
	r, err := openSegment(g)
	if errors.Is(err, fs.ErrNotExist) {
		return p, false, true, nil
	}
	if err != nil {
		return p, false, false, err
	}
	defer r.close()
	for r.at.off < off {
		_, ok, err := r.next(limit)
		if err != nil {
			return p, false, false, err
		}
		if !ok {
			return r.at, false, true, nil
		}
	}
	return r.at, r.at.off == off, false, nil
}

// trim removes segments that the server has, taken bytes of them: older than segmentKeep, or the oldest beyond segmentsBytes. Never the newest.
func (s *spool) trim(now time.Time, taken int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.segs) > 1 && s.segs[1].base <= taken {
		st, err := os.Stat(s.segs[0].path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && now.Sub(st.ModTime()) <= segmentKeep && s.end.off-s.segs[0].base <= segmentsBytes {
			return nil
		}
		if !s.dropOldest() {
			return fmt.Errorf("remove %s: not possible", s.segs[0].path)
		}
	}
	return nil
}
