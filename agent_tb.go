package main

// Event files of the runs on this machine: looks for them, asks the rule whose each is (agent_tb_rule.go), holds them and hands them to the
// uploader. Looks at processes about twice a second, at folders when the kernel tells of something new and else now and then, and both
// the rarer the longer they take. It reads no event file and changes nothing of the training.

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

const (
	tbProcsEvery  = 500 * time.Millisecond // of a run that is younger than a minute, else twice as rare
	tbWalksEvery  = time.Second
	tbWalksRare   = 30 * time.Second       // where the kernel tells of everything new
	tbShare       = 100                    // a look that took t is not repeated within 100 t: 1 % of a core
	tbWalkPatient = 200 * time.Millisecond // a walk that takes longer (a dead network disk) is not waited for
	tbTryFor      = time.Minute            // a file that cannot be held is tried again for so long
	tbOlderNames  = 3                      // folders named in TB_OLDER_FILES
	tbRootsFor    = 3 * time.Second        // a file waits so long for the first round, which knows what its folder is called
	tbEndWalks    = 5                      // rounds after the end where one does not read all
)

// tbSubject is a run whose event files are looked for: it lives, or is over and not all of it was found yet.
type tbSubject struct {
	uid     string
	dir     runDir
	starts  bool // granted, and not seen alive yet: it may have files, and nothing can be taken for it
	ended   bool
	endMS   int64 // with ended
	through bool  // nothing is to be looked for: what was taken is only handed on
}

// tbRun is what is known of one run's event files. The loop alone uses it, but for walk while walking.
type tbRun struct {
	tbSubject
	startMS int64
	tree    runTree
	pids    map[procID]*tbPid
	files   map[string]tbRecord // taken, by key
	lost    map[string]tbHold   // of these: nowhere now, may turn up under another name
	adopted bool

	walk     *tbFolderWalk
	roots    []tbRoot
	walking  chan tbWalked // a round under way, nil = none
	began    time.Time     // of the last round
	full     time.Time     // last round that looked at watched folders too
	walks    int           // rounds that were finished
	nextWalk time.Time
	notes    tbNotes // for the next round
	walkCost time.Duration
	atEnd    bool // the round under way began after the end
	endWalks int  // rounds after the end that were finished
	looked   bool // nothing more is to be found after the end
	since    time.Time

	older     map[string]bool // files below --tb that lay still since before the start
	olderTold bool
}

// tbFound is a file whose owner is not decided, or that could not be held yet.
type tbFound struct {
	tbFile
	via    string // path to open it by
	writer string // run that has it open for writing
	since  time.Time
	noRoom bool // the disk of the agent's folder is full: it is tried until it is not
}

// tbWatch finds event files. step and what it calls belong to one loop.
type tbWatch struct {
	runs   func() ([]string, error) // uids of all run folders
	folder func(uid string) runDir
	take   func(uid string, h tbHold) bool // gives a file to the uploader
	tell   func(f factItem) error          // stores a fact
	log    *slog.Logger
	host   string
	notify *tbNotify
	bell   *agentBell
	blind  bool // does not look at processes

	live    map[string]*tbRun
	procs   tbProcs
	procsAt time.Time
	found   map[[2]uint64]*tbFound // by device and inode
	owned   map[uint64][]tbOwned   // by inode; nil: not read yet
	problem string                 // for hello: why a deletion may lose
	buf     []byte
}

func newTBWatch(log *slog.Logger, host string, bell *agentBell) *tbWatch {
	return &tbWatch{
		log: log, host: host, bell: bell, notify: &tbNotify{bell: bell}, blind: !tbSeesProcs,
		live: map[string]*tbRun{}, found: map[[2]uint64]*tbFound{}, buf: make([]byte, 4096),
	}
}

// look is one round over the runs; wait is when the next is due without a bell.
func (w *tbWatch) look(now time.Time, subjects []tbSubject) (wait time.Duration, err error) {
	w.keep(subjects, now)
	if len(w.live) == 0 {
		w.procs = tbProcs{}
		clear(w.found)
		return time.Minute, nil
	}
	if w.owned == nil {
		if err := w.readOwned(); err != nil {
			return tbWalksEvery, err
		}
	}
	var errs []error
	for _, r := range w.live {
		if !r.starts {
			errs = append(errs, w.adopt(r))
		}
	}
	notes := w.notify.taken()
	for _, path := range notes.files {
		w.see(path, path, "", now)
	}
	if len(notes.files) > 0 || now.Sub(w.procsAt) >= w.procsDue() {
		errs = append(errs, w.lookAtProcs(now))
	}
	for _, r := range w.live {
		w.lookAtFolders(r, notes, now)
	}
	if w.unasked() { // found after the look at the processes
		errs = append(errs, w.lookAtProcs(time.Now()))
	}
	errs = append(errs, w.decide(now))
	for _, r := range w.live {
		w.tellOlder(r, now)
	}
	return w.pause(now), errors.Join(errs...)
}

// keep takes up the runs that are new and lets go of those that are through.
func (w *tbWatch) keep(subjects []tbSubject, now time.Time) {
	there := map[string]bool{}
	for _, s := range subjects {
		there[s.uid] = true
		r := w.live[s.uid]
		if r == nil {
			r = &tbRun{
				tbSubject: s, since: now,
				pids: map[procID]*tbPid{}, files: map[string]tbRecord{}, lost: map[string]tbHold{}, older: map[string]bool{},
			}
			w.live[s.uid] = r
		}
		r.tbSubject = s
		r.looked = r.looked || s.through
		w.begin(r)
	}
	for uid := range w.live {
		if !there[uid] {
			delete(w.live, uid)
			w.notify.leave(uid)
		}
	}
}

// begin reads what the folder says of a run, until it is all there.
func (w *tbWatch) begin(r *tbRun) {
	if r.walk == nil {
		spec, ok, err := r.dir.spec()
		if err != nil || !ok {
			spec = runSpec{}
		}
		uid := r.uid // r is not the walk's to read
		r.walk = newTBWalk(spec, func(dir string) bool { return w.notify.watch(uid, dir) })
		r.roots = r.walk.given
	}
	if r.tree.leader.pid != 0 {
		return
	}
	if f, ok, err := r.dir.fate(); err == nil && ok {
		r.startMS = f.AtMS
	}
	p, ok, err := r.dir.pid()
	if err != nil || !ok {
		return
	}
	if r.startMS == 0 {
		r.startMS = p.StartedMS
	}
	if t, err := runTreeOf(r.dir); err == nil && t.leader.pid != 0 {
		r.tree = t
		r.pids[t.leader] = &tbPid{startMS: r.startMS}
		if r.ended {
			r.pids[t.leader].goneMS = r.endMS
		}
	}
}

// readOwned reads whose the event files of all run folders are.
func (w *tbWatch) readOwned() error {
	owned := map[uint64][]tbOwned{}
	uids, err := w.runs()
	if err != nil {
		return fmt.Errorf("read the run folders: %w", err)
	}
	for _, uid := range uids {
		records, err := w.folder(uid).tbRecords()
		if err != nil {
			return fmt.Errorf("read the event files of run %s: %w", uid, err)
		}
		for key, rec := range records {
			inode, _ := tbInode(key)
			owned[inode] = append(owned[inode], tbOwned{uid, key, rec})
		}
	}
	w.owned = owned
	return nil
}

// adopt goes on with the files that a former life of the agent took for a run.
func (w *tbWatch) adopt(r *tbRun) error {
	if r.adopted {
		return nil
	}
	records, err := r.dir.tbRecords()
	if err != nil {
		return fmt.Errorf("read the event files of run %s: %w", r.uid, err)
	}
	for key, rec := range records {
		if _, ok := r.files[key]; ok {
			continue
		}
		if _, err := os.Lstat(r.dir.tbLink(key)); r.through && err != nil {
			continue // taken
		}
		h, found, err := r.dir.findTB(key, rec)
		if err != nil {
			return fmt.Errorf("find event file %s again: %w", rec.Path, err)
		}
		if rec.Path == "" { // a link alone: a look will tell what it is called
			found = false
			if f, _, ok := statTB(h.path); ok {
				rec.Dev, rec.BornMS = f.dev, f.bornMS
			}
		}
		if found {
			rec.Linked = h.file == nil
			w.hand(r, rec, h)
		} else {
			r.lost[key] = h
		}
		r.files[key] = rec
		inode, _ := tbInode(key)
		for i, o := range w.owned[inode] {
			if o.uid == r.uid && o.key == key {
				w.owned[inode][i].rec = rec
			}
		}
	}
	r.adopted = true
	return nil
}

// hand gives a held file to the uploader.
func (w *tbWatch) hand(r *tbRun, rec tbRecord, h tbHold) {
	delete(r.lost, h.key)
	h.madeMS = rec.madeMS()
	if !w.take(r.uid, h) && h.file != nil {
		if err := h.file.Close(); err != nil {
			w.log.Warn("close event file", "path", rec.Path, keyErr, err)
		}
	}
	if h.file != nil && w.problem == "" {
		w.problem = fmt.Sprintf("event files in %s are on another file system than the agent's folder: one that is deleted while the agent is down is lost", filepath.Dir(rec.Path))
	}
	if rec.Path != "" {
		w.notify.watch(r.uid, filepath.Dir(rec.Path))
	}
}

// see notes a file that lies at a path, unless it is somebody's already.
func (w *tbWatch) see(path, via, writer string, now time.Time) {
	f, _, ok := statTB(via)
	if !ok {
		return
	}
	f.path, f.name = path, parseTBName(filepath.Base(path), w.host)
	if w.ownerOf(f, via) != nil {
		return
	}
	id := [2]uint64{f.dev, f.ino}
	if old := w.found[id]; old != nil {
		old.changedMS = f.changedMS
		if writer != "" {
			old.writer, old.via = writer, via
		}
		return
	}
	w.found[id] = &tbFound{tbFile: f, via: via, writer: writer, since: now}
}

// ownerOf finds the run that has taken a file. One that nothing but an open file holds is remembered by its newest path, and one that was
// lost is held again.
func (w *tbWatch) ownerOf(f tbFile, via string) *tbOwned {
	list := w.owned[f.ino]
	for i := range list {
		o := &list[i]
		r := w.live[o.uid]
		lost := false
		if r != nil {
			_, lost = r.lost[o.key]
		}
		held := r != nil && !lost && o.rec.Dev == f.dev // while it is held, its number is nobody else's
		if !held && !o.rec.is(f) {
			continue
		}
		if r == nil || o.rec.Path == f.path && !lost {
			return o
		}
		if lost {
			rec := o.rec
			if rec.Path == "" {
				rec.Folder = tbFolderName(r.roots, filepath.Dir(f.path))
			}
			rec.Path = f.path
			h, err := r.dir.holdTB(o.key, f, via, rec)
			if err != nil {
				w.log.Warn("hold an event file again", "path", f.path, keyErr, err)
				return o
			}
			h.fresh, rec.Linked = false, h.file == nil
			o.rec, r.files[o.key] = rec, rec
			w.hand(r, rec, h)
		} else if !o.rec.Linked {
			o.rec.Path = f.path
			if err := writeAtomicJSON(r.dir.tbLink(o.key)+".json", o.rec); err != nil {
				w.log.Warn("note the new path of an event file", "path", f.path, keyErr, err)
			}
		}
		return o
	}
	return nil
}

// pause is how long nothing is due.
func (w *tbWatch) pause(now time.Time) time.Duration {
	wait := tbWalksRare
	if !w.blind {
		wait = w.procsDue() - now.Sub(w.procsAt)
	}
	for _, r := range w.live {
		if r.walking == nil {
			wait = min(wait, r.nextWalk.Sub(now))
			if len(r.notes.folders)+len(r.notes.gone) > 0 || r.notes.lost {
				wait = min(wait, tbShare*r.walkCost-now.Sub(r.began))
			}
		}
	}
	if len(w.found) > 0 {
		wait = min(wait, tbProcsEvery)
	}
	return max(wait, 10*time.Millisecond)
}
