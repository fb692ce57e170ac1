package main

// One round of the uploader: read the sources, make a batch, send it, take the answer.

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

const collectMost = 200 * time.Millisecond // of reading in one round, so that callers and other sources do not wait for a huge backlog

// batchPart is what a batch has of one source.
type batchPart struct {
	src   source
	epoch int
	lines int
	live  string // shown with it
	shows bool
}

// step is one round. It waits on its own only in send.
func (u *uploader) step(ctx context.Context, now time.Time) (time.Duration, error) {
	u.mu.Lock()
	if wait := u.until.Sub(now); wait > 0 {
		u.mu.Unlock()
		return wait, nil
	}
	body, parts, again := u.collect(now)
	wait := u.pause(now, again)
	full := len(body) >= u.target/2
	u.mu.Unlock()
	if err := u.tellNews(); err != nil {
		return wait, err
	}
	if len(body) == 0 {
		return wait, nil
	}
	sendCtx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	ans, err := u.send(sendCtx, body)
	if err == nil && ans.Gpuctl != 1 {
		err = newProblem(codeNotOurServer, "check server_url and proxy settings", "the answer to a batch is not one of a gpuctl server")
	}
	if err != nil {
		if ctx.Err() != nil {
			return 0, nil
		}
		return u.failed(err, now), fmt.Errorf("send batch: %w", err)
	}
	u.mu.Lock()
	changed := u.heard(ans.Incarnation)
	err = u.settle(ans, parts, now)
	again = u.openGates() || again
	u.mu.Unlock()
	if changed {
		u.onIncarnation(ans.Incarnation)
	}
	if again || full {
		return 0, err
	}
	return max(wait, batchEvery), err
}

// collect fills the sources and takes what fits: facts, then logs in turn, then event files, their folders in turn, then node samples, for
// which a little room is kept.
func (u *uploader) collect(now time.Time) (body []byte, parts []batchPart, again bool) {
	take := func(s source, room int) (lines int, more bool, err error) {
		t := s.tail()
		if !t.known || t.cur.Done || now.Before(t.hold) {
			return 0, false, nil
		}
		more, err = s.fill(now, room)
		u.complain(t.src, err)
		again = again || more
		p := batchPart{src: s, epoch: t.epoch}
		for _, l := range t.pend {
			if len(body) > 0 && len(body)+len(l.raw) > u.target || p.lines > 0 && room < len(l.raw) {
				again = true
				break
			}
			body = append(body, l.raw...)
			room -= len(l.raw)
			p.lines++
		}
		if f, ok := s.(*fileSource); ok && p.lines == len(t.pend) {
			var raw []byte
			if raw, p.live, p.shows = f.show(now); p.shows && len(body)+len(raw) <= batchTargetBytes {
				body = append(body, raw...)
			} else {
				p.shows = false
			}
		}
		if p.lines > 0 || p.shows {
			parts = append(parts, p)
		}
		return p.lines, more, err
	}
	u.openGates()
	take(u.own[0], u.target)
	logs, folders := u.files()
	u.turn++
	began := time.Now()
	for i := range len(logs) + len(folders) {
		if time.Since(began) > collectMost {
			again = true
			break
		}
		room := u.target - u.target/16 - len(body)
		if left := len(logs) + len(folders) - i; left > 1 {
			room = max(room/2, u.target/16) // one large source leaves room for the others
		}
		if i < len(logs) && len(folders) > 0 {
			room = min(room, u.target-u.target/4-len(body)) // however many logs are loud, points go too
		}
		switch {
		case i < len(logs) && room > 0:
			take(logs[(u.turn+i)%len(logs)], room)
		case i >= len(logs) && room > 0:
			for _, s := range folders[(u.turn+i-len(logs))%len(folders)] {
				if !s.due(now) {
					continue
				}
				if room <= 0 || time.Since(began) > collectMost {
					again = true
					break
				}
				pos, size, held := s.fed.pos, len(body), now.Before(s.hold)
				lines, more, err := take(s.fileSource, room)
				s.looked(now, pos, err)
				u.giveUp(s, err, now)
				room -= len(body) - size
				if err == nil && !held && !s.cur.Done && s.keepsBack(lines, more) {
					break
				}
			}
		default:
			again = true
		}
	}
	take(u.own[1], max(u.target-len(body), 1))
	return body, parts, again
}

// pause is how long until the next look when nothing is sent now.
func (u *uploader) pause(now time.Time, again bool) time.Duration {
	if again {
		return 0
	}
	if now.Sub(u.trimmed) > time.Minute {
		u.trimmed = now
		for _, s := range u.own {
			if s.known && s.gen == s.cur.Gen {
				u.complain(s.src, s.sp.trim(now, s.cur.Off))
			}
		}
	}
	wait := idleEvery
	logs, folders := u.files()
	for _, s := range logs {
		if s.known && !s.cur.Done {
			wait = lookEvery
		}
	}
	for _, s := range slices.Concat(folders...) {
		if s.known && !s.cur.Done {
			wait = min(wait, max(lookEvery, s.next.Sub(now)))
		}
	}
	for _, s := range u.own {
		if d := s.hold.Sub(now); d > 0 {
			wait = min(wait, d)
		}
	}
	return wait
}

// complain logs what is wrong with a source when it changes.
func (u *uploader) complain(src string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if u.said[src] != text && err != nil {
		u.log.Error("source", "source", src, keyErr, err)
	}
	u.said[src] = text
	if err == nil {
		delete(u.said, src)
	}
}

// tellNews makes facts of what the sources noticed.
func (u *uploader) tellNews() error {
	u.mu.Lock()
	news := u.pendingNews
	u.pendingNews = nil
	u.mu.Unlock()
	for i, n := range news {
		err := u.tell(n)
		if err != nil {
			u.mu.Lock()
			u.pendingNews = append(slices.Clone(news[i:]), u.pendingNews...)
			u.mu.Unlock()
			return err
		}
	}
	return nil
}

func (u *uploader) tell(n sourceNews) error {
	data, err := json.Marshal(n.data)
	if err != nil {
		return err
	}
	e, err := json.Marshal(wireEvent{Type: n.event, Severity: "warning", Message: n.message, Data: data})
	if err != nil {
		return err
	}
	uid := runOfSource(n.src)
	u.log.Info("source", keyEvent, n.event, "source", n.src, "generation", n.gen)
	err = u.addFact(factItem{Key: fmt.Sprintf("%s-%s-%d", n.event, n.src, n.gen), Kind: "event", RunUID: uid, AtMS: n.atMS, Data: e})
	if err == nil {
		u.factsFirst(uid)
	}
	return err
}

// failed decides how long to wait after a batch that got no answer. What was made is sent again, but for 413, where it is made again
// in smaller lines.
func (u *uploader) failed(err error, now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.taken = 0
	status := 0
	if p, ok := asProblem(err); ok {
		status = p.Status
	}
	wait := time.Duration(0)
	switch {
	case status == 413 && u.target > batchFloor:
		u.target = max(u.target/2, batchFloor)
		u.sizeReads()
		for _, s := range u.all() {
			if t := s.tail(); t.known && len(t.pend) > 0 {
				s.align(t.cur)
			}
		}
	case status == 401 || status == 403:
		wait = u.deniedBack.next()
	default:
		wait = u.back.next()
	}
	if after := min(wantedPause(err), retryAfterMost); after > 0 {
		wait = max(wait, after)
		wait += rand.N(wait/10 + 1) // a hundred agents were told the same
	}
	u.until = now.Add(wait)
	return wait
}

// sizeReads fits the lines of files to the target.
func (u *uploader) sizeReads() {
	u.read.line = min(fileLineTarget, u.target/2)
	u.read.slice = min(feedSliceBytes, u.target/64)
}

// settle takes an answer: lines that are acknowledged as expected go, any other cursor is where to go on.
func (u *uploader) settle(ans batchAnswer, parts []batchPart, now time.Time) error {
	u.back.reset()
	u.deniedBack.reset()
	u.until = time.Time{}
	if u.taken++; u.taken >= batchGrowAfter && u.target < batchTargetBytes {
		u.taken, u.target = 0, min(u.target*2, batchTargetBytes)
		u.sizeReads()
	}
	var missing []string
	for _, p := range parts {
		t := p.src.tail()
		c, ok := ans.Acks[t.src]
		if f, is := p.src.(*fileSource); is && p.shows && p.epoch == t.epoch {
			f.shown(p.live, now)
		}
		lines := p.lines
		if p.epoch != t.epoch {
			lines = 0 // aligned meanwhile: pend is another one now
		}
		switch {
		case !ok && p.lines == 0: // a live line is not acknowledged
		case ok && t.acked(lines, c):
			if p.lines > 0 {
				t.misses = 0
			}
			if c.Done {
				u.complain(t.src, p.src.close())
			}
		default:
			if !ok {
				missing = append(missing, t.src)
				c = t.cur
			}
			u.refused(p.src, c, ans.Refused[t.src], now)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the answer to a batch has no cursor for %s", strings.Join(missing, ", "))
	}
	return nil
}

// refused goes on at the cursor that the server has. The first time at once: that is how the place is found. Then ever slower.
func (u *uploader) refused(s source, c wireCursor, why string, now time.Time) {
	t := s.tail()
	s.align(c)
	if t.misses++; t.misses > 1 {
		t.hold = now.Add(min(missFirst<<min(t.misses-2, 10), missMost))
	}
	if t.misses == 2 {
		u.log.Warn("source refused", "source", t.src, "why", why, "generation", c.Gen, "offset", c.Off)
	}
}
