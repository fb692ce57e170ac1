package main

// Poll: asks what the server wants, and gives every command to a handler of its own, so that a slow one keeps nothing else waiting.
// Commands are levels: an open one comes again until the state made it needless, so that a handler may be killed at any point.

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// commandRest is how long a command that was done with stays in `have`: what it changed is told by hello meanwhile, and the server closes
// it. Still open after that, it is done again.
const commandRest = 5 * time.Second

// pollStep waits for commands once. While no hello was accepted it waits for that.
func (a *agent) pollStep(ctx context.Context, now time.Time) (time.Duration, error) {
	a.mu.Lock()
	inc, ok := a.inc, a.ok
	have := make([]int64, 0, len(a.inWork))
	for id, done := range a.inWork {
		if !done.IsZero() && now.Sub(done) > commandRest {
			delete(a.inWork, id)
			continue
		}
		have = append(have, id)
	}
	a.mu.Unlock()
	if !ok {
		return time.Minute, nil
	}
	slices.Sort(have)
	ans, err := a.door.poll(ctx, pollWaitMaxSeconds, have)
	if err != nil {
		if ctx.Err() != nil {
			return 0, nil
		}
		a.complain("poll", err)
		a.pollMissed = true
		wait := max(a.pollRetry.next(), wantedPause(err))
		if p, ok := asProblem(err); ok && (p.Status == 401 || p.Status == 403) {
			wait = max(wait, slowRetry)
			a.helloBell.ring() // it looks for another token
		}
		// A ready bell may cut this short; that needs an accepted hello, and then the server is there.
		return wait, nil
	}
	a.pollRetry.reset()
	if a.pollMissed { // what happened meanwhile is told without waiting for the minute
		a.pollMissed = false
		a.helloBell.ring()
	}
	if ans.Incarnation != inc {
		a.heard(ans.Incarnation)
		return time.Minute, nil // the ready bell follows
	}
	fresh := 0
	for _, c := range ans.Commands {
		if a.take(ctx, inc, c) {
			fresh++
		}
	}
	if fresh == 0 && len(ans.Commands) > 0 {
		return time.Second, nil // a server that repeats what we have must not make us spin
	}
	return 0, nil
}

// take starts the handler of a command, unless it is in work.
func (a *agent) take(ctx context.Context, inc string, c wireCommand) bool {
	a.mu.Lock()
	_, known := a.inWork[c.ID]
	if known || !a.ok || a.inc != inc {
		a.mu.Unlock()
		return false
	}
	a.inWork[c.ID] = time.Time{}
	era := a.era
	a.mu.Unlock()
	a.work.Go(func() {
		if err := a.handle(ctx, era, inc, c); err != nil && ctx.Err() == nil {
			a.complain(fmt.Sprintf("command %s %s", c.Kind, c.RunUID), err)
		}
		a.mu.Lock()
		if a.inc == inc { // ids of another incarnation may mean something else
			if _, there := a.inWork[c.ID]; there {
				a.inWork[c.ID] = time.Now()
			}
		}
		a.mu.Unlock()
	})
	return true
}

// handle does one command. era ends with the incarnation, ctx with the agent.
func (a *agent) handle(ctx, era context.Context, inc string, c wireCommand) error {
	if !isUID(c.RunUID) { // it becomes the name of a folder
		err := fmt.Errorf("%.80q is no uid of a run", c.RunUID)
		if c.Kind == cmdSignal || c.Kind == cmdRead {
			return a.door.answer(ctx, c.ID, commandAnswer{Error: err.Error()})
		}
		return err
	}
	switch c.Kind {
	case cmdStart:
		p, err := decodePayload[startPayload](c)
		if err == nil && p.RunUID != c.RunUID {
			err = fmt.Errorf("its payload is of run %.80q", p.RunUID)
		}
		if err != nil {
			return err
		}
		return a.start(era, inc, c.RunUID, p)
	case cmdStop:
		p, err := decodePayload[stopPayload](c)
		if err != nil {
			return err
		}
		return a.stop(c.RunUID, p)
	case cmdVerify:
		return a.verify(c.RunUID)
	case cmdSignal:
		return a.signal(ctx, c)
	case cmdRead:
		return a.read(ctx, c)
	}
	return fmt.Errorf("unknown kind %.40q: update the agent", c.Kind)
}

// decodePayload reads the payload of a command. Fields of a newer server are passed over.
func decodePayload[T any](c wireCommand) (p T, err error) {
	if err := json.Unmarshal(c.Payload, &p); err != nil {
		return p, fmt.Errorf("read its payload: %w", err)
	}
	return p, nil
}
