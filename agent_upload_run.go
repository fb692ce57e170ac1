package main

// The sources of one run on their way to the server: its log, and any number of event files. The end of the log is the end of everything:
// it is sent when the server has every event file and every fact that was told before, so that a drained run has its last points and
// checkpoints. Which files are a run's is decided elsewhere (agent_tb), and when nobody writes any more too (agent_drain).

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	restedShare = 600             // an event file that rested for t is looked at again after t/600: a flush every two minutes is seen within 0.2 s
	restedMost  = 2 * time.Second // at most; a look is one fstat, 100 files that rest for long cost 50 of them a second
	readWithin  = time.Minute     // what cannot be read so long after the end is told and left
)

// runSources are the sources of one run.
type runSources struct {
	log   *fileSource
	tb    []*tbSource
	sized bool      // the final size of the log is known
	found time.Time // when all that there is had been found, zero before: then every file has its final size
	facts int64     // the server must have the facts up to here before the log ends
}

// tbSource is one event file. Path is that of the link that holds it, or the user's where a link is not possible.
type tbSource struct {
	*fileSource
	run    *runSources
	folder string    // of its series
	name   string    // the user's path
	madeMS int64     // when it was made
	first  bool      // younger files of the folder wait for it
	next   time.Time // no look before
	moved  time.Time // when something was read last
	told   bool      // that it is not whole
}

// tbHold is an event file that was taken for a run.
type tbHold struct {
	key    string   // tells it from the other event files of its run: the inode, see agent_tb_hold.go
	path   string   // to read
	name   string   // as the user knows it
	folder string   // of its series
	madeMS int64    // when it was made, 0: not known
	file   *os.File // already open, where nothing else holds it; nil: path is opened
	fresh  bool     // it was never named to any server
}

// tbSourceName is the source of an event file.
func tbSourceName(uid, key string) string { return sourceName(sourceTB, uid+"-"+key) }

// runOfSource is the uid of the run that a log, sdk or tb source is of.
func runOfSource(src string) string {
	kind, uid, _ := strings.Cut(src, "-")
	uid, _ = sourceRun(kind, uid)
	return uid
}

// files gives the logs of all runs and their event files, those of one folder of a run together, the oldest first. In an order that stays.
func (u *uploader) files() (logs []*fileSource, folders [][]*tbSource) {
	for _, uid := range slices.Sorted(maps.Keys(u.runs)) {
		logs = append(logs, u.runs[uid].log)
		for tb := u.runs[uid].tb; len(tb) > 0; {
			n := 1
			for n < len(tb) && tb[n].folder == tb[0].folder {
				n++
			}
			folders = append(folders, tb[:n])
			tb = tb[n:]
		}
	}
	return logs, folders
}

// before orders the event files of a run: a training that goes on from a checkpoint makes a new file beside the old one.
func (s *tbSource) before(o *tbSource) int {
	return cmp.Or(cmp.Compare(s.folder, o.folder), cmp.Compare(s.madeMS, o.madeMS), cmp.Compare(s.name, o.name), cmp.Compare(s.src, o.src))
}

// keepsBack reports whether the younger files of the folder wait for this one, of which so many lines were taken: points that were written
// before theirs come before theirs. more: not all that is in it was read. Once it was taken as far as it goes it keeps nothing back.
func (s *tbSource) keepsBack(lines int, more bool) bool {
	s.first = s.first && (!s.known || more || lines < len(s.pend))
	return s.first
}

// addLog starts reading log.txt of a run folder, which may not exist yet. Doing it again changes nothing. A log that is still empty
// needs no hello: its cursor can only be the zero one, and where that is wrong the server refuses and tells it.
func (u *uploader) addLog(dir runDir) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.runs[dir.uid()] != nil {
		return
	}
	s := newFileSource(sourceName(kindLog, dir.uid()), kindLog, dir.logPath(), &logDecoder{}, &u.read, u.hear)
	if dir.logSize() == 0 {
		s.align(wireCursor{})
		s.caught = time.Now()
	} else if st, err := os.Stat(dir.file("fate")); err == nil {
		s.caught = st.ModTime() // no line is older than the start: the first ones of a run that just began have a time too
	}
	u.runs[dir.uid()] = &runSources{log: s}
	u.ring()
}

// hear keeps what a source noticed until the lock is free. u.mu is held.
func (u *uploader) hear(n sourceNews) { u.pendingNews = append(u.pendingNews, n) }

// addTB starts reading an event file of a run whose log was added. Doing it again changes nothing. It takes the open file over; false:
// there is no such run here, and the file stays the caller's.
func (u *uploader) addTB(uid string, h tbHold) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.runs[uid]
	src := tbSourceName(uid, h.key)
	if r == nil || slices.ContainsFunc(r.tb, func(s *tbSource) bool { return s.src == src }) {
		return false
	}
	s := &tbSource{fileSource: newTBSource(src, h.path, h.folder, &u.read, u.hear), run: r, folder: h.folder, name: h.name, madeMS: h.madeMS, moved: time.Now()}
	s.f = h.file
	if h.fresh {
		s.align(wireCursor{})
	}
	at, _ := slices.BinarySearchFunc(r.tb, s, (*tbSource).before)
	r.tb = slices.Insert(r.tb, at, s)
	for i := at; i >= 0 && r.tb[i].folder == s.folder; i-- {
		r.tb[i].first = i+1 < len(r.tb) && r.tb[i+1].folder == s.folder
	}
	u.ring()
	return true
}

// sizeLog tells the final size of a run's log: exit.json is there. Nothing beyond it is taken; the end is told after endRun.
func (u *uploader) sizeLog(uid string, size int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r := u.runs[uid]; r != nil && r.log.limit != size {
		r.log.finish(size)
		r.sized = true
		u.ring()
	}
}

// endRun tells that every event file of a run was added and nobody writes them any more, and that all facts about it were added: the
// event files end at their present size, and after them and the facts the log does.
func (u *uploader) endRun(uid string, now time.Time) {
	facts := u.facts.durable().off
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.runs[uid]
	if r == nil || !r.found.IsZero() {
		return
	}
	r.found, r.facts = now, max(r.facts, facts)
	for _, s := range r.tb {
		size, err := s.size()
		if err != nil { // it is not waited for for ever, see giveUp
			u.complain(s.src, err)
			continue
		}
		s.finish(size)
		s.next = time.Time{}
	}
	u.ring()
}

// factsFirst makes the end of a run's log wait for the facts that are there now.
func (u *uploader) factsFirst(uid string) {
	facts := u.facts.durable().off
	u.mu.Lock()
	defer u.mu.Unlock()
	if r := u.runs[uid]; r != nil {
		r.facts = max(r.facts, facts)
	}
}

// openGates lets the logs end for which nothing is left to wait, and holds the others; opened: one of them may end now.
func (u *uploader) openGates() (opened bool) {
	facts := u.own[0]
	for _, r := range u.runs {
		wait := r.found.IsZero() || !facts.known || facts.gen != facts.cur.Gen || facts.cur.Off < r.facts
		for _, s := range r.tb {
			wait = wait || !s.known || !s.cur.Done
		}
		wait = wait || slices.ContainsFunc(u.pendingNews, func(n sourceNews) bool { return u.runs[runOfSource(n.src)] == r })
		if r.log.waits != wait {
			r.log.waits = wait
			if opened = opened || !wait && r.sized; !wait {
				r.log.seenSize = -1
			}
		}
	}
	return opened
}

// due reports whether a look is worth its fstat.
func (s *tbSource) due(now time.Time) bool {
	return len(s.pend) > 0 || !now.Before(s.next)
}

// looked plans the next look after one that went from pos.
func (s *tbSource) looked(now time.Time, pos int64, err error) {
	if s.fed.pos != pos {
		s.moved = now
	}
	wait := min(now.Sub(s.moved)/restedShare, restedMost)
	if err != nil {
		wait = time.Second
	}
	s.next = time.Time{}
	if wait > lookEvery {
		s.next = now.Add(wait)
	}
}

// giveUp tells, once, of an event file that cannot be taken to its end after its run is over: its bytes cannot be read, or it is nowhere
// any more. It ends where it was read to. A server that is away is not a reason.
func (u *uploader) giveUp(s *tbSource, why error, now time.Time) {
	if s.told || s.run.found.IsZero() || !s.known || s.cur.Done {
		return
	}
	since := s.moved
	if s.run.found.After(since) {
		since = s.run.found
	}
	text := ""
	switch {
	case s.ended && s.f == nil: // closed only when all is taken
		text = "it was removed while nothing held it"
	case s.ended || len(s.pend) > 0 || now.Before(since.Add(readWithin)):
		return
	case why != nil:
		text = why.Error()
	default:
		text = "it could not be read"
	}
	s.told = true
	u.hear(sourceNews{src: s.src, event: "TB_INCOMPLETE", gen: s.gen, atMS: now.UnixMilli(), message: fmt.Sprintf("event file %s was not taken to its end: %s", s.name, text), data: map[string]any{
		"path": s.name, "taken_bytes": s.cur.Off, "why": text,
	}})
	s.giveUp()
}

// logState is what is known of the end of a run's log on the server: known, and done.
func (u *uploader) logState(uid string) (known, done bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.runs[uid]
	return r != nil && r.log.known, r != nil && r.log.known && r.log.cur.Done
}

// runDone reports whether the server has the end of a run's log and of all its event files.
func (u *uploader) runDone(uid string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.runs[uid]
	if r == nil || !r.log.known || !r.log.cur.Done {
		return false
	}
	for _, s := range r.tb {
		if !s.known || !s.cur.Done {
			return false
		}
	}
	return true
}

// dropRun forgets the sources of a run: all is taken, it was burned, or its folder is gone.
func (u *uploader) dropRun(uid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.runs[uid]
	if r == nil {
		return
	}
	delete(u.runs, uid)
	err := r.log.close()
	for _, s := range r.tb {
		err = errors.Join(err, s.close())
	}
	if err != nil {
		u.log.Warn("close sources", keyRun, uid, keyErr, err)
	}
}

// size is how large the file is now; 0 when it is nowhere.
func (s *fileSource) size() (int64, error) {
	st, err := os.FileInfo(nil), error(nil)
	if s.f != nil {
		st, err = s.f.Stat()
	} else {
		st, err = os.Stat(s.path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// giveUp ends the source where it was read to.
func (s *fileSource) giveUp() {
	if !s.ended && len(s.pend) == 0 {
		s.push(batchLine{Kind: s.kind, End: true}, s.from, s.prev, 0)
	}
}
