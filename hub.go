package main

// Bells: "look again". A bell carries no data and may be lost at the cost of a poll interval, never of data: what is followed is a
// table with an ascending id. Rung after the commit.

import (
	"strconv"
	"sync"
)

// hub holds one bell a topic that somebody waits for.
type hub struct {
	mu    sync.Mutex
	bells map[string]chan struct{}
}

func newHub() *hub { return &hub{bells: map[string]chan struct{}{}} }

// listen gives the channel that is closed by the next ring of topic. Take it before looking at the table.
func (h *hub) listen(topic string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.bells[topic]
	if c == nil {
		c = make(chan struct{})
		h.bells[topic] = c
	}
	return c
}

// ring wakes everybody who listens to one of the topics.
func (h *hub) ring(topics ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range topics {
		if c := h.bells[t]; c != nil {
			close(c)
			delete(h.bells, t)
		}
	}
}

// Topics.
const (
	bellSched  = "sched"  // something changed that the scheduler should look at
	bellEvents = "events" // a row in events
)

func bellNode(id int64) string { return "node:" + strconv.FormatInt(id, 10) } // a command for this node
func bellRun(id int64) string  { return "run:" + strconv.FormatInt(id, 10) }  // log lines or state of this run
func bellJob(id int64) string  { return "job:" + strconv.FormatInt(id, 10) }  // state of this job
