package main

// When processes and folders are looked at for event files, and how long a look may take. What is found is only noted.

import (
	"fmt"
	"runtime"
	"time"
)

// procsDue is how long after a look at the processes the next is due.
func (w *tbWatch) procsDue() time.Duration {
	wait := 2 * tbProcsEvery
	for _, r := range w.live {
		if w.procsAt.UnixMilli()-r.startMS < time.Minute.Milliseconds() {
			wait = tbProcsEvery
		}
	}
	return max(wait, tbShare*w.procs.cost)
}

// lookAtProcs finds the files that processes of the runs have open.
func (w *tbWatch) lookAtProcs(now time.Time) error {
	w.procsAt = now
	if w.blind {
		return nil
	}
	runtime.LockOSThread() // not by the clock: beside a training that has all cores a look of 2 ms takes 70, and the next would come after 7 s
	defer runtime.UnlockOSThread()
	began := threadTime()
	trees := map[string]runTree{}
	for uid, r := range w.live {
		t := r.tree
		t.uid = uid
		trees[uid] = t
	}
	if err := w.procs.look(trees, now); err != nil {
		return fmt.Errorf("look for processes of runs: %w", err)
	}
	for uid, r := range w.live {
		w.procs.remember(uid, r.pids, now)
	}
	for pid, uid := range w.procs.owner {
		openTBs(pid, w.buf, func(path, via string) { w.see(path, via, uid, now) })
	}
	w.procs.cost = threadTime() - began
	return nil
}

// unasked reports whether there are files that were found after the last look at the processes.
func (w *tbWatch) unasked() bool {
	for _, f := range w.found {
		if f.since.After(w.procsAt) || f.since.Equal(w.procsAt) && f.writer == "" {
			return true
		}
	}
	return false
}

// lookAtFolders begins a round where one is due, and takes what it found. A walk that hangs is left to itself: its run waits, no other.
func (w *tbWatch) lookAtFolders(r *tbRun, n tbNotes, now time.Time) {
	if r.looked {
		return
	}
	r.notes.folders = append(r.notes.folders, n.folders...)
	r.notes.gone = append(r.notes.gone, n.gone...)
	r.notes.lost = r.notes.lost || n.lost
	if r.walking == nil {
		news := len(r.notes.folders)+len(r.notes.gone) > 0 || r.notes.lost
		due := r.ended || !now.Before(r.nextWalk)
		if !due && !(news && now.Sub(r.began) >= tbShare*r.walkCost) {
			return
		}
		notes, all := r.notes, r.notes.lost || r.ended || now.Sub(r.full) >= tbWalksRare
		if all {
			r.full = now
		}
		r.notes, r.began, r.atEnd = tbNotes{}, now, r.ended
		out, walk := make(chan tbWalked, 1), r.walk
		r.walking = out
		go func() { // not waited for at the end of the agent: it may hang in a dead disk
			walk.again(notes)
			found := walk.round(all)
			out <- found
			if found.took > tbWalkPatient/2 {
				w.bell.ring()
			}
		}()
	}
	t := time.NewTimer(tbWalkPatient)
	defer t.Stop()
	select {
	case found := <-r.walking:
		r.walking = nil
		r.walks++
		r.walkCost = found.cost
		wait := tbWalksEvery
		if found.still {
			wait = tbWalksRare
		}
		r.nextWalk = now.Add(max(wait, tbShare*found.cost))
		r.roots = found.roots
		for _, path := range found.files {
			w.see(path, path, "", now)
		}
		if r.atEnd {
			r.endWalks++
			r.looked = !found.cut || r.endWalks >= tbEndWalks
		}
	case <-t.C:
	}
}
