package main

// Taking event files: what ties each run to a file that was found, the rule's word on it, and what follows: it is held for its run and
// handed to the uploader, or left alone. What people should know of it becomes an event of the run.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// bonds says what ties each run to a file.
func (w *tbWatch) bonds(f *tbFound) []tbBond {
	var list []tbBond
	dir := filepath.Dir(f.path)
	for uid, r := range w.live {
		b := tbBond{uid: uid, startMS: r.startMS, writes: f.writer == uid, named: namedBy(f.tbFile, r.pids)}
		if r.ended {
			b.endMS = r.endMS
		}
		_, _, b.tbDir = tbNearest(r.roots, dir, true)
		_, _, b.workDir = tbNearest(r.roots, dir, false)
		list = append(list, b)
	}
	return list
}

// decide asks the rule about every file that is nobody's, and takes what is a run's.
func (w *tbWatch) decide(now time.Time) error {
	var errs []error
	ids := slices.SortedFunc(maps.Keys(w.found), func(a, b [2]uint64) int { // the oldest first: the uploader reads along
		return cmp.Or(cmp.Compare(w.found[a].madeMS(), w.found[b].madeMS()), cmp.Compare(w.found[a].path, w.found[b].path))
	})
	for _, id := range ids {
		f := w.found[id]
		stranger := tbStrangerNone
		if f.writer == "" {
			stranger = w.procs.stranger(f.tbFile)
			f.shared = f.name.away && sharedTB(f.path)
		}
		v := decideTB(f.tbFile, w.bonds(f), stranger, now.Sub(f.since))
		for _, uid := range v.older {
			if r := w.live[uid]; r != nil {
				r.older[f.path] = true
			}
		}
		r := w.live[v.uid]
		switch {
		case v.wait, r != nil && r.starts:
		case r != nil && r.walks == 0 && r.walking != nil && now.Sub(r.since) < tbRootsFor: // its folder has no name yet
		case v.uid == "":
			delete(w.found, id)
		default:
			err := w.hold(r, f, v, now)
			if err == nil || errors.Is(err, errReplaced) || errors.Is(err, fs.ErrNotExist) {
				delete(w.found, id)
				continue
			}
			errs = append(errs, err)
			f.noRoom = diskFull(err)
			if now.Sub(f.since) >= tbTryFor && !f.noRoom {
				delete(w.found, id)
				errs = append(errs, w.event(v.uid, "TB_INCOMPLETE-"+v.uid+"-"+f.path, wireEvent{
					Type: "TB_INCOMPLETE", Severity: "warning", Message: fmt.Sprintf("event file %s could not be taken: %v", f.path, err),
				}, map[string]any{"path": f.path, "taken_bytes": 0, "why": err.Error()}, now))
			}
		}
	}
	return errors.Join(errs...)
}

// hold takes one file for a run.
func (w *tbWatch) hold(r *tbRun, f *tbFound, v tbVerdict, now time.Time) error {
	key := tbKey(f.ino, func(k string) bool { _, taken := r.files[k]; return taken })
	rec := tbRecord{Path: f.path, Folder: tbFolderName(r.roots, filepath.Dir(f.path)), Why: v.why, FoundMS: now.UnixMilli()}
	h, err := r.dir.holdTB(key, f.tbFile, f.via, rec)
	if err != nil && f.via != f.path { // its writer is gone, or closed it
		h, err = r.dir.holdTB(key, f.tbFile, f.path, rec)
	}
	if err != nil {
		return err
	}
	rec.Dev, rec.BornMS, rec.Linked = f.dev, f.bornMS, h.file == nil
	w.owned[f.ino] = append(w.owned[f.ino], tbOwned{r.uid, key, rec})
	r.files[key] = rec
	w.hand(r, rec, h)
	w.log.Info("run", keyRun, r.uid, keyState, "event file", "path", f.path, "folder", rec.Folder, "why", v.why, "linked", rec.Linked)
	if len(v.others) == 0 {
		return nil
	}
	return w.event(r.uid, "TB_AMBIGUOUS-"+r.uid+"-"+key, wireEvent{
		Type: "TB_AMBIGUOUS", Severity: "warning",
		Message: fmt.Sprintf("event file %s may be of %d runs that share the folder; it was given to the one that started last before the file was made. Give each run a folder of its own", f.path, len(v.others)+1),
	}, map[string]any{"path": f.path, "others": v.others}, now)
}

// tellOlder tells once how many files a run's --tb folders had from before the start.
func (w *tbWatch) tellOlder(r *tbRun, now time.Time) {
	if r.olderTold || len(r.older) == 0 || r.walking != nil {
		return
	}
	var dirs []string
	for _, root := range r.roots {
		for path := range r.older {
			if _, ok := tbBelow(root.real, path); ok && root.tb && len(dirs) < tbOlderNames {
				dirs = append(dirs, root.dir)
				break
			}
		}
	}
	if len(dirs) == 0 {
		return
	}
	hint := "gpuctl import-run " + dirs[0]
	err := w.event(r.uid, "TB_OLDER_FILES-"+r.uid, wireEvent{
		Type: "TB_OLDER_FILES", Severity: "info",
		Message: fmt.Sprintf("%d event files in %s are older than the start of the run and were left alone; to have them too: %s", len(r.older), strings.Join(dirs, ", "), hint),
	}, map[string]any{"count": len(r.older), "folder": dirs[0], "hint": hint}, now)
	if err != nil {
		w.log.Warn("tell of older event files", keyRun, r.uid, keyErr, err)
		return
	}
	r.olderTold, r.older = true, map[string]bool{}
}

// event tells something about a run, under a key that makes it one however often it is told.
func (w *tbWatch) event(uid, key string, e wireEvent, data map[string]any, now time.Time) error {
	var err error
	if e.Data, err = json.Marshal(data); err != nil {
		return err
	}
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return w.tell(factItem{Key: key, Kind: "event", RunUID: uid, AtMS: now.UnixMilli(), Data: b})
}

// pending reports whether anything of a run may still be found or taken, after its end.
func (w *tbWatch) pending(uid string) bool {
	r := w.live[uid]
	if r == nil || !r.looked || !r.adopted {
		return true
	}
	return w.waits(uid, func(*tbFound) bool { return true })
}

// noRoom reports whether a file of a run waits for room on the disk of the agent's folder. That is waited for: the file lies there meanwhile.
func (w *tbWatch) noRoom(uid string) bool {
	return w.waits(uid, func(f *tbFound) bool { return f.noRoom })
}

// waits reports whether a file that may be of a run is found and not taken yet.
func (w *tbWatch) waits(uid string, which func(*tbFound) bool) bool {
	for _, f := range w.found {
		for _, b := range w.bonds(f) {
			if b.uid == uid && (b.writes || b.named || b.tbDir > 0 || b.workDir > 0) && which(f) {
				return true
			}
		}
	}
	return false
}

// giveUpLooking ends the looking for files of a run whose folders do not answer, or whose files cannot be held, and tells it.
func (w *tbWatch) giveUpLooking(uid string, now time.Time) error {
	r := w.live[uid]
	if r == nil {
		return nil
	}
	dir := "its folders"
	if len(r.roots) > 0 {
		dir = r.roots[len(r.roots)-1].dir
	}
	r.looked, r.adopted = true, true
	return w.event(uid, "TB_INCOMPLETE-"+uid, wireEvent{
		Type: "TB_INCOMPLETE", Severity: "warning", Message: fmt.Sprintf("event files may be missing: %s could not be looked through for %v", dir, drainPatience),
	}, map[string]any{"path": dir, "taken_bytes": 0, "why": "the folder does not answer"}, now)
}

// handLost hands the files on that turned up nowhere until the end of their run: they end where they were read to.
func (w *tbWatch) handLost(uid string) {
	r := w.live[uid]
	if r == nil {
		return
	}
	for key, h := range r.lost {
		w.hand(r, r.files[key], h)
	}
}
