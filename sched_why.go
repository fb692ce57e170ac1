package main

// Why a job waits, in words and typed: the question that `gpuctl job why` asks. Reads only; the scheduler does not ask it.

import (
	"fmt"
	"strings"
	"time"
)

// whyTx explains where a job is. For a queued one it looks at every node.
func (s *server) whyTx(c *conn, jobID int64, now time.Time) (whyView, error) {
	j, err := loadJob(c, jobID)
	if err != nil {
		return whyView{}, err
	}
	v := whyView{JobID: jobID, State: j.state, Reasons: []whyReason{}}
	if j.state != jobQueued {
		if v.Summary, err = s.whereIs(c, j); err == nil && !jobOver(j.state) { // one that is over has them in its detail
			v.Reasons, err = refusedBy(c, jobID, v.Reasons)
		}
		return v, err
	}
	var priority, rank, notBefore int64
	if _, err := c.one("SELECT priority, rank, not_before_ms FROM jobs WHERE id = ?", []any{jobID}, &priority, &rank, &notBefore); err != nil {
		return v, err
	}
	if _, err := c.one(`SELECT (SELECT count(*) FROM jobs WHERE state = 'QUEUED' AND priority > ?1)
		+ (SELECT count(*) FROM jobs WHERE state = 'QUEUED' AND priority = ?1 AND rank < ?2)
		+ (SELECT count(*) FROM jobs WHERE state = 'QUEUED' AND priority = ?1 AND rank = ?2 AND id <= ?3)`,
		[]any{priority, rank, jobID}, &v.Position); err != nil {
		return v, err
	}
	if why, _, on, err := s.inRecovery(c); err != nil {
		return v, err
	} else if on {
		v.Reasons = append(v.Reasons, whyReason{Type: "recovery", Detail: "nothing is started until every node has told what runs there (" + why + ")"})
	}
	if wait := time.UnixMilli(notBefore).Sub(now); wait > 0 {
		v.Reasons = append(v.Reasons, whyReason{
			Type:   "backoff",
			Detail: fmt.Sprintf("its last attempt failed; it is tried again in %s", wait.Round(time.Second)),
		})
	}
	ready, err := s.whyNodes(c, j, now, &v)
	if err != nil {
		return v, err
	}
	if ready && len(v.Reasons) == 0 {
		if v.Position > 1 {
			v.Reasons = append(v.Reasons, whyReason{Type: "behind_others", Detail: fmt.Sprintf("%d jobs are before it in the queue", v.Position-1)})
		} else {
			v.Reasons = append(v.Reasons, whyReason{Type: "ready", Detail: "it is about to be started"})
		}
	}
	v.Summary = v.Reasons[0].Detail
	if n := len(v.Reasons); n > 1 {
		v.Summary += fmt.Sprintf(" (and %d more reasons)", n-1)
	}
	return v, nil
}

// refusedBy adds a reason for each node that refused a job which does not wait any more.
func refusedBy(c *conn, jobID int64, reasons []whyReason) ([]whyReason, error) {
	err := c.each(`SELECT n.name, x.detail, x.why FROM job_exclusions x JOIN nodes n ON n.id = x.node_id WHERE x.job_id = ? ORDER BY n.name`,
		[]any{jobID}, func(get func(...any) error) error {
			var name, detail, why string
			if err := get(&name, &detail, &why); err != nil {
				return err
			}
			reasons = append(reasons, whyReason{Type: "node_refused", Node: name, Detail: fmt.Sprintf("%s refused it: %s (%s)", name, detail, why)})
			return nil
		})
	return reasons, err
}

// whereIs says in one sentence where a job is that does not wait.
func (s *server) whereIs(c *conn, j jobNow) (string, error) {
	if jobOver(j.state) {
		return howItEnded(c, j)
	}
	var text string
	switch j.state {
	case jobDispatching:
		text = "it is offered and not claimed yet"
	case jobRunning:
		text = "it runs"
	case jobCancelling:
		text = "it is being ended"
	case jobLost:
		text = "its node is silent; it is not started elsewhere, since it may still run there"
	}
	if j.runID == nil {
		return text, nil
	}
	r, err := loadRun(c, *j.runID)
	if err != nil {
		return "", err
	}
	name, err := nodeName(c, r.nodeID)
	if err == nil && name != "" {
		text += " (" + name + ")"
	}
	return text, err
}

// howItEnded says why a job that is over ended as it did, and what there is to do.
func howItEnded(c *conn, j jobNow) (string, error) {
	var reason, detail string
	if _, err := c.one("SELECT COALESCE(reason, ''), COALESCE(detail, '') FROM jobs WHERE id = ?", []any{j.id}, &reason, &detail); err != nil {
		return "", err
	}
	text := "it is over"
	if reason != "" && reason != j.state {
		text += ": " + reason
	}
	if detail != "" {
		text += ": " + detail
	}
	if j.runID != nil {
		return text + fmt.Sprintf("; its log: gpuctl logs %d", j.id), nil
	}
	if j.state != jobSucceeded {
		text += fmt.Sprintf("; to try it again: gpuctl job retry %d", j.id)
	}
	return text, nil
}

// whyNode is what one node has for a job.
type whyNode struct {
	nodeRef
	seenMS           int64
	heard, refusal   string
	cordoned         bool
	total, free, off int // slots of the kind: all that are there, free, free but cordoned or unhealthy
	holders          []string
}

// whyNodes adds a reason for every node that has what the job asks for. ready is true when one could take it now.
func (s *server) whyNodes(c *conn, j jobNow, now time.Time, v *whyView) (ready bool, err error) {
	h := j.shape()
	lane, want := h.lane()
	nodes, err := s.lookAtNodes(c, j)
	if err != nil {
		return false, err
	}
	add := func(typ, node, detail string, args ...any) {
		v.Reasons = append(v.Reasons, whyReason{Type: typ, Node: node, Detail: fmt.Sprintf(detail, args...)})
	}
	if len(nodes) == 0 {
		if h.node != "" {
			add("no_such_node", h.node, "there is no node %s", h.node)
		} else {
			add("no_node", "", "there is no node yet")
		}
		return false, nil
	}
	before := len(v.Reasons)
	most := 0
	for _, n := range nodes {
		most = max(most, n.total)
		if n.total < want {
			continue
		}
		busy := "slots_busy"
		if lane == laneCPU {
			busy = "cpu_lane_busy"
		}
		switch {
		case n.refusal != "":
			add("node_refused", n.name, "%s refused it: %s", n.name, n.refusal)
		case n.heard != s.inc.current():
			add("node_unreachable", n.name, "%s has not told yet what runs there", n.name)
		case now.Sub(s.lastSeen(n.id, n.seenMS)) > unreachableAfter:
			add("node_unreachable", n.name, "%s was not heard from for %s", n.name, now.Sub(s.lastSeen(n.id, n.seenMS)).Round(time.Second))
		case n.cordoned:
			add("cordoned", n.name, "%s is cordoned: it takes no new jobs", n.name)
		case n.free >= want:
			ready = true
		case n.free+n.off >= want:
			add("cordoned", n.name, "%s: %d of its %s slots are cordoned or not healthy", n.name, n.off, lane)
		case len(n.holders) == 0:
			add(busy, n.name, "%s: %d of %d %s slots are free, %d wanted", n.name, n.free, n.total, lane, want)
		default:
			add(busy, n.name, "%s: %d of %d %s slots are free, %d wanted; busy with %s", n.name, n.free, n.total, lane, want,
				strings.Join(n.holders, ", "))
		}
	}
	if most < want {
		what := "no node has " + h.cards()
		if h.node != "" {
			what = h.node + " does not have " + h.cards()
		}
		if most > 0 {
			what += fmt.Sprintf("; the most is %d", most)
		}
		if lane == laneCPU {
			what = "no node has a cpu lane"
		}
		add("not_enough_cards", h.node, "%s", what)
	}
	if ready { // another node's trouble is not why it waits
		v.Reasons = v.Reasons[:before]
	}
	return ready, nil
}

// lookAtNodes counts the slots of a job's kind on every node that its constraint allows.
func (s *server) lookAtNodes(c *conn, j jobNow) ([]*whyNode, error) {
	h := j.shape()
	var out []*whyNode
	byID := map[int64]*whyNode{}
	if err := c.each(`SELECT n.id, n.name, n.last_seen_ms, n.heard_incarnation, n.cordoned, COALESCE(x.detail || ' (' || x.why || ')', '')
		FROM nodes n LEFT JOIN job_exclusions x ON x.node_id = n.id AND x.job_id = ? WHERE ? = '' OR n.name = ? ORDER BY n.name`,
		[]any{j.id, h.node, h.node}, func(get func(...any) error) error {
			n := &whyNode{}
			err := get(&n.id, &n.name, &n.seenMS, &n.heard, &n.cordoned, &n.refusal)
			out = append(out, n)
			byID[n.id] = n
			return err
		}); err != nil {
		return nil, err
	}
	return out, c.each(`SELECT s.node_id, s.lane, s.model, s.memory_bytes, s.cordoned OR s.health <> 'ok', r.id, r.job_id, r.attempt
		FROM slots s LEFT JOIN runs r ON r.id = s.run_id WHERE s.health <> 'gone' ORDER BY s.node_id, s.lane, s.idx`, nil,
		func(get func(...any) error) error {
			var node int64
			var f freeSlot
			var off bool
			var run, job, attempt *int64
			if err := get(&node, &f.lane, &f.model, &f.memory, &off, &run, &job, &attempt); err != nil {
				return err
			}
			n := byID[node]
			if n == nil || !h.fits(n.name, f) {
				return nil
			}
			n.total++
			switch {
			case run != nil:
				label := runLabel(*run, job, attempt)
				if label == "" && job != nil {
					label = fmt.Sprintf("job %d (offered)", *job)
				}
				n.holders = append(n.holders, label)
			case off:
				n.off++
			default:
				n.free++
			}
			return nil
		})
}
