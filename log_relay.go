package main

// Reading a run's log file through to the agent: a rendezvous in memory. The question goes out with the node's next poll under a negative
// number, the answer comes to /agent/commands/<number>. A restart loses the question; the client asks again.

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

const (
	relayWait    = 30 * time.Second
	relayPerNode = 4 // pieces in flight; more wait for their turn
)

// logRelay holds the open questions.
type logRelay struct {
	mu    sync.Mutex
	last  int64 // numbers go down from -1
	open  map[int64]*relayRead
	turns map[int64]chan struct{} // by node
}

// relayRead is one question; answer has room for one.
type relayRead struct {
	node    int64
	command wireCommand
	answer  chan commandAnswer
}

func newLogRelay() *logRelay {
	return &logRelay{open: map[int64]*relayRead{}, turns: map[int64]chan struct{}{}}
}

func (l *logRelay) turn(node int64) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turns[node] == nil {
		l.turns[node] = make(chan struct{}, relayPerNode)
	}
	return l.turns[node]
}

func (l *logRelay) ask(node int64, runUID string, p readPayload) (*relayRead, error) {
	b, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last--
	q := &relayRead{
		node: node, answer: make(chan commandAnswer, 1),
		command: wireCommand{ID: l.last, Kind: cmdRead, RunUID: runUID, Payload: b},
	}
	l.open[l.last] = q
	return q, nil
}

func (l *logRelay) drop(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, id)
}

// commands are the open questions to a node that are not in have.
func (l *logRelay) commands(node int64, have map[int64]bool) []wireCommand {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []wireCommand
	for id, q := range l.open {
		if q.node == node && !have[id] {
			out = append(out, q.command)
		}
	}
	return out
}

// take gives an answer to who asked; it reports whether anybody did.
func (l *logRelay) take(node, id int64, a commandAnswer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.open[id]
	if q == nil || q.node != node {
		return false
	}
	delete(l.open, id)
	q.answer <- a // room for one, and it was open until now
	return true
}

// readLog reads bytes [off, off+n) of a run's log file from its node; off < 0 counts from the end, n is cut at logPieceMaxBytes. It gives
// where the data begins and the size of the file now. A node that does not answer within 30 s is the problem node_unreachable.
func (s *server) readLog(ctx context.Context, nodeID int64, runUID string, off, n int64) (data []byte, start, size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, relayWait)
	defer cancel()
	gone := func() error {
		return newProblem(codeNodeUnreachable, "try again when the node is back; the last lines are on the server: gpuctl logs JOB",
			"the agent that has this log did not answer within %s", relayWait)
	}
	turn := s.relay.turn(nodeID)
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, 0, 0, gone()
	}
	q, err := s.relay.ask(nodeID, runUID, readPayload{Off: off, Len: min(max(n, 1), logPieceMaxBytes)})
	if err != nil {
		return nil, 0, 0, err
	}
	defer s.relay.drop(q.command.ID)
	s.hub.ring(bellNode(nodeID))
	select {
	case a := <-q.answer:
		if !a.OK {
			return nil, 0, 0, newProblem(codeNotFound, "the last lines may be on the server: gpuctl logs JOB", "the node cannot read this log: %s", a.Error)
		}
		if len(a.Data) > logPieceMaxBytes {
			return nil, 0, 0, fmt.Errorf("read log of run %s: %d bytes for at most %d", runUID, len(a.Data), logPieceMaxBytes)
		}
		return a.Data, a.Off, a.Size, nil
	case <-s.stopping:
		return nil, 0, 0, newProblem(codeUnavailable, "try again", "the server stops")
	case <-ctx.Done():
		return nil, 0, 0, gone()
	}
}
