package main

// Hello: who this is, what is alive here, always complete. One in flight; what changes meanwhile leads to another one. This file alone
// enters an incarnation: it burns, then tells everything, and only an accepted hello lets grants and commands be used.

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"time"
)

// slowRetry is the wait after a refusal that time alone does not mend: a wrong token, a clone, a newer instance.
const slowRetry = 30 * time.Second

// problemsMost bounds the list of problems in a hello: what is wrong with fifty folders is wrong with the disk.
const problemsMost = 50

// toldRun is what one hello said of a run, kept until its answer is here.
type toldRun struct {
	truth string
	asked int
}

// heard is told every incarnation that an answer carried. Another one than ours ends the use of grants and commands at once.
func (a *agent) heard(inc string) {
	a.mu.Lock()
	if inc == "" || inc == a.inc || inc == a.next {
		a.mu.Unlock()
		return
	}
	a.next, a.ok = inc, false
	a.endEra()
	a.mu.Unlock()
	a.helloBell.ring()
}

// heardByUploader also asks for the cursors, which the uploader then knows no more.
func (a *agent) heardByUploader(inc string) {
	a.heard(inc)
	a.helloBell.ring()
}

// sendBatch sends a batch for the uploader. A refused token is looked after by hello.
func (a *agent) sendBatch(ctx context.Context, body []byte) (batchAnswer, error) {
	ans, err := a.door.batch(ctx, body)
	if p, ok := asProblem(err); ok && (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden) {
		a.helloBell.ring()
	}
	return ans, err
}

// enter takes an incarnation on: every folder without a fate is burned before the first hello under it.
func (a *agent) enter(ctx context.Context, inc string, now time.Time) {
	a.mu.Lock()
	a.ok = false
	a.endEra() // starts under way end and burn their folder themselves, if this does not
	a.mu.Unlock()
	a.burnAll(now, "new incarnation")
	a.mu.Lock()
	first := a.inc == ""
	a.inc, a.all = inc, true
	if a.next == inc {
		a.next = ""
	}
	a.era, a.endEra = context.WithCancel(ctx)
	clear(a.inWork)
	clear(a.signalled)
	for _, r := range a.runs { // the log of an idle run may have to be sent again
		if r.idle {
			r.idle, r.logOn, r.logEnded, r.drained, r.ckptDone, r.over = false, false, false, false, false, time.Time{}
		}
	}
	a.mu.Unlock()
	if !first {
		a.log.Info("server", keyState, "new incarnation", "incarnation", inc)
	}
}

// helloStep says one hello and acts on its answer.
func (a *agent) helloStep(ctx context.Context, now time.Time) (time.Duration, error) {
	if wait := a.notBefore.Sub(now); wait > 0 { // a bell must not hurry a server that does not answer
		return wait, nil
	}
	a.mu.Lock()
	next := a.next
	a.mu.Unlock()
	if next != "" {
		a.enter(ctx, next, now)
	}
	q, told := a.compose(ctx, now)
	ans, err := a.door.hello(ctx, q)
	if err != nil {
		if ctx.Err() != nil {
			return 0, nil
		}
		a.complain("hello", err)
		a.missed = true
		wait := max(a.retry.next(), wantedPause(err))
		if p, ok := asProblem(err); ok && p.Status >= 400 && p.Status < 500 && p.Code != codeRateLimited && p.Code != codeNotOurServer {
			wait = max(wait, slowRetry)
			a.unready() // not, or no longer, ours to act for
			if (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden) && a.o.renew != nil && a.door.renew(a.o.renew()) {
				a.up.retryNow()
				a.log.Info("server", keyState, "tried with the token that the files name now")
				wait = 0
			}
		}
		a.notBefore = time.Now().Add(wait)
		return wait, nil
	}
	if !ans.Accepted || ans.Incarnation != q.Incarnation {
		if ans.Incarnation == "" {
			return slowRetry, fmt.Errorf("hello: the answer carries no incarnation")
		}
		if ans.Incarnation != q.Incarnation {
			a.enter(ctx, ans.Incarnation, now)
		}
		a.mu.Lock()
		a.session, a.all, a.ok = ans.Session, true, false
		a.mu.Unlock()
		if a.refusals++; a.refusals == 1 { // this is how every agent starts: say it again at once
			return 0, nil
		}
		wait := a.retry.next()
		a.notBefore = time.Now().Add(wait)
		return wait, nil
	}
	a.refusals = 0
	a.retry.reset()
	if a.missed {
		a.missed = false
		a.log.Info("server", keyState, "reached again")
	}
	return a.accepted(ans, q, told), nil
}

// unready stops the use of grants and commands until a hello is accepted.
func (a *agent) unready() {
	a.mu.Lock()
	a.ok, a.all = false, true
	a.mu.Unlock()
}

// accepted stores what the server took and says when the next hello is due.
func (a *agent) accepted(ans helloAnswer, q helloRequest, told map[string]toldRun) time.Duration {
	a.up.align(ans.Cursors)
	waiting := len(a.up.unknown()) > 0
	a.mu.Lock()
	if a.next == "" && a.inc == ans.Incarnation {
		if q.All {
			if !a.ok {
				a.log.Info("server", keyState, "accepted", keyNode, ans.Node, "incarnation", ans.Incarnation)
			}
			a.ok, a.all = true, false
		}
		for _, uid := range ans.Settled {
			t, r := told[uid], a.runs[uid]
			if r != nil && t.asked == r.asked && (t.truth == tellEnded || t.truth == tellGone) {
				r.settled = a.inc
			}
		}
	}
	var over []string
	for uid, r := range a.runs {
		switch {
		case r.told != tellEnded && r.told != tellGone, r.idle:
		case r.settled != a.inc:
			waiting = true
		case r.logOn:
			over = append(over, uid)
		default:
			r.idle = true
		}
	}
	ok := a.ok
	a.mu.Unlock()
	for _, uid := range over { // the uploader has a lock of its own
		if a.up.runDone(uid) {
			a.up.dropRun(uid)
			a.mu.Lock()
			a.record(uid).idle = true
			a.mu.Unlock()
			if err := a.runFolder(uid).unlinkTBs(); err != nil {
				a.complain("let event files of "+uid+" go", err)
			}
		}
	}
	if ok {
		a.readyBell.ring()
	}
	a.tbBell.ring() // cursors may be known now
	a.ckptBell.ring()
	if !waiting {
		a.unsettled.reset()
		return agentHelloEverySec * time.Second
	}
	return a.unsettled.next()
}

// compose looks at every folder and every marked process, and builds a complete hello.
func (a *agent) compose(ctx context.Context, now time.Time) (helloRequest, map[string]toldRun) {
	a.mu.Lock()
	q := helloRequest{UID: a.uid, Instance: a.instance, Session: a.session, Incarnation: a.inc, All: a.all}
	a.mu.Unlock()
	problems := slices.Clone(a.notes)
	marked, err := markedRuns()
	if err != nil {
		problems = append(problems, fmt.Sprintf("cannot look for processes of runs: %v", err))
	}
	names, err := a.runNames()
	if err != nil {
		problems = append(problems, fmt.Sprintf("cannot read the run folders: %v", err))
	}
	told := map[string]toldRun{}
	there := map[string]bool{}
	for _, uid := range names {
		there[uid] = true
		a.mu.Lock()
		r := a.record(uid)
		skip := !q.All && r.settled != "" && r.settled == q.Incarnation
		asked := r.asked
		a.mu.Unlock()
		if skip {
			continue
		}
		dir := a.runFolder(uid)
		mark := markOf(dir, false, runMark{}) // before the look: a change in between rings again
		t := a.tellRun(dir, marked[uid], now)
		a.noteTruth(t, mark)
		a.followLog(dir, t)
		a.snapshotOnce(ctx, dir, t)
		if t.DetailError != "" {
			problems = append(problems, fmt.Sprintf("run %s: %.300s", uid, t.DetailError))
		}
		told[uid] = toldRun{t.Truth, asked}
		q.Runs = append(q.Runs, t)
	}
	for uid, pids := range marked { // the folder was wiped, the process lives
		if !there[uid] && a.startedHere(uid, pids) {
			t := runTell{UID: uid, Truth: tellAlive, DetailError: "its folder is missing"}
			a.noteTruth(t, runMark{}) // its supervisor puts the folder back at the end: watched
			there[uid] = true
			q.Runs = append(q.Runs, t)
		}
	}
	a.forget(there)
	problems = append(problems, a.strangers()...)
	a.mu.Lock()
	if a.tbProblem != "" {
		problems = append(problems, a.tbProblem)
	}
	a.mu.Unlock()
	q.Fingerprint, q.Name, q.BootID, q.Version, q.OS, q.User = a.print, a.o.name, a.boot, buildVersion(), a.host.os, a.host.user
	q.CPUs, q.MemoryBytes, q.CPULane = runtime.NumCPU(), a.host.memory, a.o.cpuLane
	q.Devices, q.Sources, q.NowMS, q.Unsent, q.Problems = a.devices, a.up.sources(), now.UnixMilli(), a.up.unsent(), problems[:min(len(problems), problemsMost)]
	if q.Runs == nil {
		q.Runs = []runTell{}
	}
	if q.Devices == nil {
		q.Devices = []wireDevice{}
	}
	if q.Sources == nil {
		q.Sources = []helloSource{}
	}
	if q.Problems == nil {
		q.Problems = []string{}
	}
	return q, told
}

// noteTruth remembers what was found, and logs a change.
func (a *agent) noteTruth(t runTell, mark runMark) {
	a.mu.Lock()
	r := a.record(t.UID)
	before, started := r.told, r.used
	r.told = t.Truth
	r.lived = r.lived || t.Truth == tellAlive || t.Truth == tellExiting
	orphan := r.mark.orphan
	r.mark = mark
	r.mark.orphan = orphan && mark.fate
	a.mu.Unlock()
	if before == t.Truth {
		return
	}
	if t.Truth == tellAlive || t.Truth == tellExiting || t.Truth == tellPending {
		a.watchBell.ring()
	}
	args := []any{keyRun, t.UID, keyState, t.Truth, keyJob, t.JobID}
	if before == "" && !started {
		args = append(args, "found", true) // adopted, or an old folder
	}
	if t.Exit != nil {
		args = append(args, "code", t.Exit.Code, "signal", t.Exit.Signal, "reason", t.Exit.Reason)
	}
	a.log.Info("run", args...)
}

// forget drops the memory of runs whose folder is gone, but never that a grant was used.
func (a *agent) forget(there map[string]bool) {
	var lost []string
	a.mu.Lock()
	for uid, r := range a.runs {
		if there[uid] || r.busy || r.stopping {
			continue
		}
		if r.logOn {
			lost = append(lost, uid)
		}
		if r.used {
			a.runs[uid] = &agentRun{used: true, asked: r.asked}
		} else {
			delete(a.runs, uid)
		}
	}
	a.mu.Unlock()
	for _, uid := range lost {
		a.up.dropRun(uid)
	}
}

// strangers names what lies in runs/ and is no run folder, at most ten.
func (a *agent) strangers() []string {
	entries, err := os.ReadDir(string(a.runFolder("")))
	if err != nil {
		return nil // told by compose
	}
	var out []string
	for _, e := range entries {
		if (!e.IsDir() || !isUID(e.Name())) && len(out) < 10 {
			out = append(out, fmt.Sprintf("runs/%.80q is no run folder", e.Name()))
		}
	}
	return out
}
