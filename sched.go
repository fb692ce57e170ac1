package main

// The scheduler: which queued job gets which slots. A pass reads everything it needs, decides in memory, then writes the offers
// (sched_offer.go), all in one write transaction. Nothing is remembered between passes. It frees nothing and ends nothing but jobs that
// every fitting node has refused.
//
// The queue may hold 100,000 jobs of a few kinds of requirement. An index by kind gives the distinct kinds by seeks and each kind in
// queue order, so a pass reads only heads of kinds that fit somewhere: its cost does not grow with the queue.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	schedEvery = 5 * time.Second // a lost bell costs this much
	headPage   = 64              // jobs of one kind that are read at once
)

// shape is what a job asks for.
type shape struct {
	gpus   int64
	node   string // by name, "" = any
	model  string // substring, any case
	memory int64  // bytes a card, at least
}

// cards says in words what cards the shape takes: "2 cards", "1 card of model h100 with 40 GiB or more".
func (h shape) cards() string {
	text := fmt.Sprintf("%d cards", h.gpus)
	switch {
	case h.gpus == 1 && h.model == "" && h.memory == 0:
		text = "a card"
	case h.gpus == 1:
		text = "1 card"
	}
	if h.model != "" {
		text += " of model " + h.model
	}
	if h.memory > 0 {
		text += " with " + formatSize(h.memory) + " or more"
	}
	return text
}

// lane is where the shape's slots are, and how many of them it takes: gpu:0 takes one slot of the cpu lane.
func (h shape) lane() (lane string, n int) {
	if h.gpus == 0 {
		return laneCPU, 1
	}
	return laneGPU, int(h.gpus)
}

// fits reports whether one slot of a node is of the kind that the shape asks for.
func (h shape) fits(node string, f freeSlot) bool {
	lane, _ := h.lane()
	if f.lane != lane || h.node != "" && h.node != node {
		return false
	}
	return lane == laneCPU || f.memory >= h.memory && (h.model == "" || strings.Contains(strings.ToLower(f.model), strings.ToLower(h.model)))
}

// freeSlot is a slot that may be handed out.
type freeSlot struct {
	id     int64
	lane   string
	idx    int
	uuid   string
	model  string
	memory int64
}

// schedNode is a node with its free slots, lowest idx first.
type schedNode struct {
	id    int64
	name  string
	slots []freeSlot
}

// take finds the slots that a shape would get here: the lowest of its kind; nil when they do not suffice. fitting counts all of the kind.
func (n *schedNode) take(h shape) (slots []freeSlot, fitting int) {
	_, want := h.lane()
	for _, f := range n.slots {
		if !h.fits(n.name, f) {
			continue
		}
		if fitting++; len(slots) < want {
			slots = append(slots, f)
		}
	}
	if len(slots) < want {
		return nil, fitting
	}
	return slots, fitting
}

// remove takes slots out of what is free.
func (n *schedNode) remove(taken []freeSlot) {
	n.slots = slices.DeleteFunc(n.slots, func(f freeSlot) bool {
		return slices.ContainsFunc(taken, func(x freeSlot) bool { return x.id == f.id })
	})
}

// bestFit chooses the node with the fewest free slots that suffice, then by name, and the slots on it.
func bestFit(nodes []*schedNode, h shape, excluded map[int64]bool) (*schedNode, []freeSlot) {
	var best *schedNode
	var slots []freeSlot
	least := 0
	for _, n := range nodes { // by name
		if excluded[n.id] {
			continue
		}
		if s, fitting := n.take(h); s != nil && (best == nil || fitting < least) {
			best, slots, least = n, s, fitting
		}
	}
	return best, slots
}

// queued is a job at the head of its kind.
type queued struct {
	id, priority, rank int64
}

func (a queued) before(b queued) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.rank, b.rank), cmp.Compare(a.id, b.id))
}

// kind is one distinct requirement of the queue with a window on its jobs, in queue order.
type kind struct {
	shape
	page []queued
	read int // rows read so far
	end  bool
}

// head is the next job of the kind that is not in a back-off.
func (k *kind) head(c *conn, nowMS int64) (queued, bool, error) {
	if len(k.page) == 0 && !k.end {
		err := c.each(`SELECT id, priority, rank FROM jobs INDEXED BY jobs_shape WHERE state = 'QUEUED' AND gpus = ? AND node = ?
			AND gpu_model = ? AND gpu_memory_bytes = ? AND not_before_ms <= ? ORDER BY priority DESC, rank, id LIMIT ? OFFSET ?`,
			[]any{k.gpus, k.node, k.model, k.memory, nowMS, headPage, k.read}, func(get func(...any) error) error {
				var q queued
				err := get(&q.id, &q.priority, &q.rank)
				k.page = append(k.page, q)
				return err
			})
		if err != nil {
			return queued{}, false, err
		}
		k.read += len(k.page)
		k.end = len(k.page) < headPage
	}
	if len(k.page) == 0 {
		return queued{}, false, nil
	}
	return k.page[0], true, nil
}

// offerPlan is a decision: this job gets these slots.
type offerPlan struct {
	jobID int64
	node  *schedNode
	slots []freeSlot
}

// schedStep is one pass.
func (s *server) schedStep(ctx context.Context, now time.Time) (time.Duration, error) {
	return schedEvery, s.store.write(ctx, func(t *tx) error {
		if _, _, on, err := s.inRecovery(t.conn); err != nil || on {
			return err
		}
		if err := s.failRefusedTx(t); err != nil {
			return err
		}
		plans, err := s.planTx(t.conn, now, t.nowMS)
		if err != nil {
			return err
		}
		for _, p := range plans {
			if err := s.offerTx(t, p); err != nil {
				return fmt.Errorf("offer job %d: %w", p.jobID, err)
			}
		}
		return nil
	})
}

// planTx decides, without writing.
func (s *server) planTx(c *conn, now time.Time, nowMS int64) ([]offerPlan, error) {
	nodes, err := s.freeNodes(c, now)
	if err != nil || len(nodes) == 0 {
		return nil, err
	}
	kinds, err := queueKinds(c)
	if err != nil {
		return nil, err
	}
	alive := slices.DeleteFunc(kinds, func(k *kind) bool { n, _ := bestFit(nodes, k.shape, nil); return n == nil })
	if len(alive) == 0 {
		return nil, nil
	}
	excluded, err := exclusions(c)
	if err != nil {
		return nil, err
	}
	var plans []offerPlan
	for len(alive) > 0 {
		at, first := -1, queued{}
		for i := 0; i < len(alive); i++ {
			q, ok, err := alive[i].head(c, nowMS)
			if err != nil {
				return nil, err
			}
			if !ok {
				alive = slices.Delete(alive, i, i+1)
				i--
				continue
			}
			if at < 0 || q.before(first) < 0 {
				at, first = i, q
			}
		}
		if at < 0 {
			break
		}
		k := alive[at]
		k.page = k.page[1:]
		node, slots := bestFit(nodes, k.shape, excluded[first.id])
		if node == nil {
			continue // its other nodes refused it
		}
		node.remove(slots)
		plans = append(plans, offerPlan{first.id, node, slots})
		alive = slices.DeleteFunc(alive, func(k *kind) bool { n, _ := bestFit(nodes, k.shape, nil); return n == nil })
	}
	return plans, nil
}

// freeNodes are the nodes that may be given work now, by name, with their free, healthy, uncordoned slots: reconciled (heard in this
// incarnation), not cordoned, heard from within unreachableAfter.
func (s *server) freeNodes(c *conn, now time.Time) ([]*schedNode, error) {
	var out []*schedNode
	err := c.each(`SELECT n.id, n.name, n.last_seen_ms, s.id, s.lane, s.idx, s.uuid, s.model, s.memory_bytes FROM slots s JOIN nodes n ON n.id = s.node_id
		WHERE s.run_id IS NULL AND s.health = 'ok' AND s.cordoned = 0 AND n.cordoned = 0 AND n.heard_incarnation = ?
		ORDER BY n.name, s.lane, s.idx, s.id`, []any{s.inc.current()}, func(get func(...any) error) error {
		var n schedNode
		var f freeSlot
		var seen int64
		if err := get(&n.id, &n.name, &seen, &f.id, &f.lane, &f.idx, &f.uuid, &f.model, &f.memory); err != nil {
			return err
		}
		if len(out) == 0 || out[len(out)-1].id != n.id {
			if now.Sub(s.lastSeen(n.id, seen)) > unreachableAfter {
				return nil
			}
			out = append(out, &n)
		}
		last := out[len(out)-1]
		last.slots = append(last.slots, f)
		return nil
	})
	return out, err
}

// nextKind is the kind after one in the index: four seeks at most. (One row-value comparison reads every job of the kind: 26 ms for
// 100,000 jobs of 30 kinds where this takes 0.5 ms.)
const nextKind = `SELECT * FROM (SELECT gpus, node, gpu_model, gpu_memory_bytes FROM jobs INDEXED BY jobs_shape WHERE state = 'QUEUED'
		AND gpus = ?1 AND node = ?2 AND gpu_model = ?3 AND gpu_memory_bytes > ?4 ORDER BY gpu_memory_bytes LIMIT 1)
	UNION ALL SELECT * FROM (SELECT gpus, node, gpu_model, gpu_memory_bytes FROM jobs INDEXED BY jobs_shape WHERE state = 'QUEUED'
		AND gpus = ?1 AND node = ?2 AND gpu_model > ?3 ORDER BY gpu_model, gpu_memory_bytes LIMIT 1)
	UNION ALL SELECT * FROM (SELECT gpus, node, gpu_model, gpu_memory_bytes FROM jobs INDEXED BY jobs_shape WHERE state = 'QUEUED'
		AND gpus = ?1 AND node > ?2 ORDER BY node, gpu_model, gpu_memory_bytes LIMIT 1)
	UNION ALL SELECT * FROM (SELECT gpus, node, gpu_model, gpu_memory_bytes FROM jobs INDEXED BY jobs_shape WHERE state = 'QUEUED'
		AND gpus > ?1 ORDER BY gpus, node, gpu_model, gpu_memory_bytes LIMIT 1)
	LIMIT 1`

// queueKinds gives the distinct requirements of the queue.
func queueKinds(c *conn) ([]*kind, error) {
	var out []*kind
	last := shape{gpus: -1}
	for {
		var k kind
		found, err := c.one(nextKind, []any{last.gpus, last.node, last.model, last.memory}, &k.gpus, &k.node, &k.model, &k.memory)
		if err != nil || !found {
			return out, err
		}
		last = k.shape
		out = append(out, &k)
	}
}

// exclusions are the nodes that refused queued jobs.
func exclusions(c *conn) (map[int64]map[int64]bool, error) {
	out := map[int64]map[int64]bool{}
	err := c.each("SELECT x.job_id, x.node_id FROM job_exclusions x CROSS JOIN jobs j ON j.id = x.job_id WHERE j.state = 'QUEUED'", nil,
		func(get func(...any) error) error {
			var job, node int64
			if err := get(&job, &node); err != nil {
				return err
			}
			if out[job] == nil {
				out[job] = map[int64]bool{}
			}
			out[job][node] = true
			return nil
		})
	return out, err
}
