package main

// What only the running server knows and may lose: when each node was heard last, which session was accepted, the unfinished last line of
// each run's log.

import (
	"sync"
	"time"
)

// contacts is made by newServer; all of it is lost at a restart without harm.
type contacts struct {
	mu       sync.Mutex
	seen     map[int64]time.Time // by node
	since    map[int64]time.Time // by node: begin of the time in which it was heard without a gap of unreachableAfter
	accepted map[int64]int64     // by node: newest session that said a complete hello to this process
	live     map[int64]logItem   // by run
	bars     map[int64]liveBar   // by run
}

// liveBar is the progress bar that an unfinished line showed last. Again: it began anew since, so it counts a part of its run. Of bars that
// are drawn below each other only the lowest is the unfinished line, and that one runs again and again.
type liveBar struct {
	barMeter
	again bool
}

func newContacts() *contacts {
	return &contacts{seen: map[int64]time.Time{}, since: map[int64]time.Time{}, accepted: map[int64]int64{}, live: map[int64]logItem{}, bars: map[int64]liveBar{}}
}

// touch notes that a node was heard.
func (c *contacts) touch(nodeID int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, known := c.seen[nodeID]; !known || now.Sub(before) > unreachableAfter {
		c.since[nodeID] = now
	}
	c.seen[nodeID] = now
}

// heardSince is since when a node is heard without a gap; found is false when this process never heard it.
func (c *contacts) heardSince(nodeID int64) (since time.Time, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, found = c.since[nodeID]
	return since, found
}

func (c *contacts) accept(nodeID, session int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accepted[nodeID] = session
}

func (c *contacts) acceptedSession(nodeID int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.accepted[nodeID]
}

// setLive keeps the unfinished last line of a run; nil drops it.
func (c *contacts) setLive(runID int64, line *logItem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if line == nil {
		delete(c.live, runID)
		return
	}
	c.live[runID] = *line
	if m, ok := readBar(line.Text); ok {
		before, known := c.bars[runID]
		same := known && before.total == m.total && barName(before.label) == barName(m.label)
		c.bars[runID] = liveBar{m, same && (before.again || m.step < before.step)}
	}
}

// forgetLive drops all that is known of the last line of a run that is over.
func (c *contacts) forgetLive(runID int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, runID)
	delete(c.bars, runID)
}

// lastSeen is when a node was heard last: by this process, else as the last hello stored it.
func (s *server) lastSeen(nodeID int64, storedMS int64) time.Time {
	s.contacts.mu.Lock()
	defer s.contacts.mu.Unlock()
	if at, ok := s.contacts.seen[nodeID]; ok {
		return at
	}
	return time.UnixMilli(storedMS)
}

// liveLine is the unfinished last line of a run's log, when there is one.
func (s *server) liveLine(runID int64) (logItem, bool) {
	s.contacts.mu.Lock()
	defer s.contacts.mu.Unlock()
	line, ok := s.contacts.live[runID]
	return line, ok
}

// liveAgain is liveLine, with whether the bar in it began anew since it was first seen.
func (s *server) liveAgain(runID int64) (line logItem, again, ok bool) {
	s.contacts.mu.Lock()
	defer s.contacts.mu.Unlock()
	line, ok = s.contacts.live[runID]
	return line, s.contacts.bars[runID].again, ok
}
