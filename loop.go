package main

// Loops: a step that says how long to wait. Started in server.go and agent.go only; each tells its last step and last error.

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// loopState is what a loop tells of itself in /api/v1/status.
type loopState struct {
	Name        string `json:"name"`
	LastStepMS  int64  `json:"last_step_ms"`
	LastError   string `json:"last_error,omitempty"`
	LastErrorMS int64  `json:"last_error_ms,omitempty"`
}

// loop repeats step until the context ends. wake, when not nil, gives a channel that cuts the wait short.
type loop struct {
	name string
	log  *slog.Logger
	step func(ctx context.Context, now time.Time) (wait time.Duration, err error)
	wake func() <-chan struct{}

	mu    sync.Mutex
	state loopState
}

// run repeats step; it returns nil when ctx ends. An error is logged when it changes, and the loop goes on.
func (l *loop) run(ctx context.Context) error {
	last := ""
	for ctx.Err() == nil {
		var bell <-chan struct{}
		if l.wake != nil {
			bell = l.wake() // before the step: what changes during it rings
		}
		now := time.Now()
		wait, err := l.step(ctx, now)
		text := ""
		if err != nil && ctx.Err() == nil {
			text = err.Error()
			if text != last {
				l.log.Error("loop", "loop", l.name, "err", err)
			}
		}
		last = text
		l.mu.Lock()
		l.state.Name, l.state.LastStepMS = l.name, now.UnixMilli()
		if text != "" {
			l.state.LastError, l.state.LastErrorMS = text, now.UnixMilli()
		}
		l.mu.Unlock()
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-bell:
		case <-ctx.Done():
		}
		t.Stop()
	}
	return nil
}

// told gives the state for the status page.
func (l *loop) told() loopState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}
