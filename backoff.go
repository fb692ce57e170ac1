package main

// Waiting between tries: doubling with full jitter.

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff doubles from first to most. The zero value is not usable; make one per thing that is tried.
type backoff struct {
	first, most time.Duration
	now         time.Duration
}

// next is how long to wait before the coming try: random within the upper half of the present step.
func (b *backoff) next() time.Duration {
	b.now = min(max(b.now*2, b.first), b.most)
	return b.now/2 + rand.N(b.now/2+1)
}

// reset is called after a success.
func (b *backoff) reset() { b.now = 0 }

// sleep waits for d or until ctx ends; it reports whether d passed.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
