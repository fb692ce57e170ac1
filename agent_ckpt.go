package main

// The checkpoint watch: what a run leaves in the folders of --watch is told as facts once it lies still, again when it was overwritten, and
// when it is gone. It only looks and reads; it never moves, locks or holds a file of the training. Looking is agent_ckpt_scan.go, reading
// agent_ckpt_print.go, what was told agent_ckpt_told.go.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	ckptFile = "file"
	ckptDir  = "folder"

	errNotFolder = unix.ENOTDIR
)

const (
	ckptStill     = 10 * time.Second // nothing of a checkpoint may change so long, by our own looks: clocks of network file systems differ
	ckptGoneAfter = 2 * time.Second  // nothing lies there at two looks so far apart: between unlink and write nothing does either
	ckptShare     = 100              // a look may cost at most 1/100 of the time to the next one: 10,000 files take about 60 ms
	ckptWaitMost  = time.Minute
	ckptTellMost  = 100  // told in one look of a living run: each is an fsync and up to 128 MiB of reading
	ckptKeepMost  = 2000 // present at once in one run
)

// ckptWatch holds what this instance remembers of the runs it looks at. The zero value is ready.
type ckptWatch struct {
	mu   sync.Mutex
	runs map[string]*ckptRun // by uid
}

// ckptRun is one run. mu is held during a look.
type ckptRun struct {
	mu      sync.Mutex
	loaded  bool
	book    ckptBook
	unsaved bool
	startMS int64
	next    time.Time // no look before
	looked  map[string]bool
	seen    map[string]*ckptSeen // by path
	missing map[string]time.Time // told, and not there since
	names   map[string]bool      // file name -> is a checkpoint
}

// ckptSeen is something that lies there.
type ckptSeen struct {
	mark  string
	since time.Time // looks the same since
	old   bool      // lay there before the run began
}

func (w *ckptWatch) run(uid string) *ckptRun {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs == nil {
		w.runs = map[string]*ckptRun{}
	}
	r := w.runs[uid]
	if r == nil {
		r = &ckptRun{looked: map[string]bool{}, seen: map[string]*ckptSeen{}, missing: map[string]time.Time{}, names: map[string]bool{}}
		w.runs[uid] = r
	}
	return r
}

func (w *ckptWatch) drop(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.runs, uid)
}

// ckptLook looks into the watched folders of a run and tells what is new, overwritten or gone. It is called about every 2 s while the run
// lives, and once with last when its tree is empty: then all that lies there is told at once. Calls that come too soon, or while another one
// is at work, do nothing. now must carry the monotonic clock. An error says that something could not be kept, so was not told: the next call
// goes on, also with last. What cannot be seen is only complained of: it must not keep a run from its end.
func (a *agent) ckptLook(dir runDir, spec runSpec, last bool, now time.Time) error {
	if len(spec.Watch) == 0 {
		return nil
	}
	r := a.ckpt.run(dir.uid())
	if last {
		r.mu.Lock()
	} else if !r.mu.TryLock() {
		return nil
	}
	defer r.mu.Unlock()
	if !last && now.Before(r.next) {
		return nil
	}
	if err := r.load(dir); err != nil {
		return err
	}
	l := ckptLooker{ckptRun: r, a: a, dir: dir, last: last, now: now, still: cmp.Or(a.o.ckptStill, ckptStill)}
	err := l.look(spec)
	if last && err == nil {
		a.ckpt.drop(dir.uid())
	}
	return err
}

// load reads what was told before, once, and when the run began.
func (r *ckptRun) load(dir runDir) error {
	if r.loaded {
		return nil
	}
	book, err := loadCkptBook(dir)
	if err != nil {
		return err
	}
	if p, ok, err := dir.pid(); ok && err == nil {
		r.startMS = p.StartedMS
	} else if f, ok, err := dir.fate(); ok && err == nil {
		r.startMS = f.AtMS
	}
	r.book, r.loaded = book, true
	return nil
}

// ckptLooker is one look.
type ckptLooker struct {
	*ckptRun
	a     *agent
	dir   runDir
	last  bool
	now   time.Time
	still time.Duration
	scan  *ckptScan
}

func (l *ckptLooker) look(spec runSpec) error {
	start := time.Now()
	l.scan = newCkptScan(l.isName)
	folders := watchFolders(spec)
	for _, w := range folders {
		l.scan.watch(w)
	}
	ready := l.ready()
	l.next = l.now.Add(min(ckptWaitMost, ckptShare*time.Since(start)))
	for _, err := range l.scan.errs {
		l.a.complain("checkpoints of "+l.dir.uid(), err)
	}
	var errs []error
	isNew := func(f *ckptFound) bool { return l.book.Told[ckptPathText(f.path)] == nil }
	over := len(l.book.Told) - ckptKeepMost
	for _, f := range ready {
		if isNew(f) {
			over++
		}
	}
	if over > 0 {
		l.a.complain("checkpoints of "+l.dir.uid(), fmt.Errorf("over %d lie in the watched folders: the oldest %d are passed over", ckptKeepMost, over))
	}
	told := 0
	for _, f := range ready {
		if told >= ckptTellMost && !l.last {
			l.next = l.now
			break
		}
		if over > 0 && isNew(f) {
			over--
			continue
		}
		done, err := l.tell(f)
		if err != nil {
			errs = append(errs, err)
			break // the disk is full: the next one would not fit either
		}
		if done {
			told++
		}
	}
	if err := l.gone(); err != nil {
		errs = append(errs, err)
	}
	if l.last {
		for _, w := range folders {
			if err := l.never(w); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if l.unsaved {
		if err := l.book.save(l.dir); err != nil {
			errs = append(errs, err)
		} else {
			l.unsaved = false
		}
	}
	return errors.Join(errs...)
}

// watchFolders are the folders of --watch as absolute paths.
func watchFolders(spec runSpec) []string {
	var out []string
	for _, w := range spec.Watch {
		if !filepath.IsAbs(w) {
			w = filepath.Join(spec.WorkingDir, w)
		}
		out = append(out, filepath.Clean(w))
	}
	return out
}

// never tells of a watched folder that nobody ever saw: most often a typing error, and else nothing would say so.
func (l *ckptLooker) never(folder string) error {
	if l.looked[folder] || len(l.book.Told) > 0 {
		return nil
	}
	path := ckptPathText(folder)
	why := "was never there"
	if l.scan.failed[folder] {
		why = "cannot be read as a folder"
	}
	return l.fact("event", "ckptwatch", path, "", wireEvent{
		Type: "WATCH_NOT_SEEN", Severity: sevInfo, Message: fmt.Sprintf("the watched folder %s %s: no checkpoints were looked for in it", path, why),
	})
}

// isName remembers what a name says: of 10,000 files deciding again costs more than looking at them.
func (l *ckptLooker) isName(name string) bool {
	is, known := l.names[name]
	if !known {
		if len(l.names) > 2*ckptEntriesMost {
			clear(l.names)
		}
		is = ckptFileName(name)
		l.names[name] = is
	}
	return is
}

// ready notes what lies there and gives what is to be told: oldest first, of the same time in the order of the numbers in their names.
func (l *ckptLooker) ready() []*ckptFound {
	var out []*ckptFound
	fresh := map[string]bool{} // watched folders seen for the first time
	for _, root := range l.scan.roots {
		fresh[root] = !l.looked[root]
		l.looked[root] = true
	}
	for path, f := range l.scan.found {
		told := l.book.Told[ckptPathText(path)]
		mark := f.mark()
		s := l.seen[path]
		switch {
		case s == nil:
			s = &ckptSeen{mark: mark, since: l.now}
			s.old = told == nil && fresh[l.rootOf(path)] && f.mtimeNS() < (l.startMS-ckptStartSlack)*1e6
			l.seen[path] = s
		case s.mark != mark:
			s.mark, s.since, s.old = mark, l.now, false
		}
		switch {
		case s.old, told != nil && told.Mark == mark:
		case f.size() == 0 && told == nil:
		case l.last || l.now.Sub(s.since) >= l.still:
			out = append(out, f)
		}
	}
	for path, s := range l.seen {
		if l.scan.found[path] == nil && !s.old { // what was there before the run stays known, also when its disk goes and comes
			delete(l.seen, path)
		}
	}
	slices.SortFunc(out, func(a, b *ckptFound) int {
		return cmp.Or(cmp.Compare(a.mtimeNS(), b.mtimeNS()), ckptNatural(a.path, b.path))
	})
	return out
}

// ckptStartSlack is how much older than the run's start a file may look that it wrote: times of files go by the tick of the kernel, 10 ms.
const ckptStartSlack = 50

// rootOf is the watched folder that holds a path, "" when none is there.
func (l *ckptLooker) rootOf(path string) string {
	for _, root := range l.scan.roots {
		if strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/") {
			return root
		}
	}
	return ""
}

// tell reads a checkpoint and tells it. done is false when it changed meanwhile: then it is not still.
func (l *ckptLooker) tell(f *ckptFound) (done bool, err error) {
	got := readCheckpoint(f)
	if got.changed {
		if s := l.seen[f.path]; s != nil {
			s.since = l.now
		}
		if !l.last {
			return false, nil
		}
	}
	path := ckptPathText(f.path)
	c := wireCheckpoint{
		Path: path, Kind: f.kind, Step: got.step, StepFrom: got.stepFrom, TotalSteps: got.total, SizeBytes: f.size(), MtimeMS: f.mtimeNS() / 1e6,
		Fingerprint: got.fingerprint, Incomplete: got.incomplete,
	}
	before := l.book.Told[path]
	t := &ckptTold{Fingerprint: got.fingerprint, Mark: f.mark(), Kind: f.kind, Dev: f.dev, Incomplete: got.incomplete != ""}
	if path != f.path {
		t.Raw = []byte(f.path)
	}
	if f.kind == ckptDir {
		t.parts = f.parts
		c.Grew = before != nil && ckptGrew(before.parts, f.parts)
	}
	if before == nil || before.Fingerprint != t.Fingerprint || before.Incomplete != t.Incomplete {
		if err := l.fact("checkpoint", "ckpt", path, t.Fingerprint, c); err != nil {
			return false, err
		}
	}
	l.book.Told[path], l.unsaved = t, true
	delete(l.missing, path)
	return true, nil
}

// ckptGrew reports whether all old files are there unchanged, and more.
func ckptGrew(old, parts []ckptPart) bool {
	if len(old) == 0 || len(old) >= len(parts) {
		return false
	}
	have := make(map[ckptPart]bool, len(parts))
	for _, p := range parts {
		have[p] = true
	}
	return !slices.ContainsFunc(old, func(p ckptPart) bool { return !have[p] })
}

// gone tells what was told and lies there no more. As long as its watched folder is missing, or another file system lies where its folder
// was, nothing is said: a disk that is not mounted deletes nothing.
func (l *ckptLooker) gone() error {
	for _, path := range slices.SortedFunc(maps.Keys(l.book.Told), ckptNatural) {
		t := l.book.Told[path]
		at := t.at(path)
		if l.scan.found[at] != nil || !l.vanished(at, t) {
			delete(l.missing, path)
			continue
		}
		since, known := l.missing[path]
		if !known {
			since = l.now
			l.missing[path] = since
		}
		if !l.last && l.now.Sub(since) < min(ckptGoneAfter, l.still/5) {
			continue
		}
		if err := l.fact("checkpoint_gone", "ckptgone", path, t.Fingerprint, wireCheckpointGone{Path: path, Fingerprint: t.Fingerprint}); err != nil {
			return err
		}
		delete(l.book.Told, path)
		delete(l.missing, path)
		l.unsaved = true
	}
	return nil
}

// vanished reports whether something that was told, and was not found by this look, is certainly not there.
func (l *ckptLooker) vanished(at string, t *ckptTold) bool {
	if l.rootOf(at) == "" || l.scan.failed[at] {
		return false
	}
	switch st, err := os.Stat(filepath.Dir(at)); {
	case err == nil && ckptStat(st).dev != t.Dev:
		return false
	case err != nil && !ckptNotThere(filepath.Dir(at)):
		return false
	}
	if ckptNotThere(at) {
		return true
	}
	if t.Kind != ckptDir {
		return false // there, and not taken for a checkpoint this time
	}
	list, err := os.ReadDir(at) // a folder without files: it is being removed, or was
	return err == nil && !slices.ContainsFunc(list, func(e os.DirEntry) bool { return !e.IsDir() })
}

func (l *ckptLooker) fact(kind, prefix, path, fingerprint string, data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	uid := l.dir.uid()
	return l.a.up.addFact(factItem{
		Key: ckptKey(prefix, uid, path, fingerprint), Kind: kind, RunUID: uid, AtMS: l.book.next(l.now.UnixMilli()), Data: b,
	})
}
