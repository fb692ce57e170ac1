package main

// Stands in for the loop that calls the checkpoint watch until it is merged.

import (
	"context"
	"errors"
	"time"
)

func (a *agent) ckptStep(_ context.Context, now time.Time) (time.Duration, error) {
	a.mu.Lock()
	var uids []string
	for uid, r := range a.runs {
		if r.told == tellAlive || r.told == tellExiting {
			uids = append(uids, uid)
		}
	}
	a.mu.Unlock()
	var errs []error
	for _, uid := range uids {
		dir := a.runFolder(uid)
		if spec, ok, err := dir.spec(); ok && err == nil {
			errs = append(errs, a.ckptLook(dir, spec, false, now))
		}
	}
	return 2 * time.Second, errors.Join(errs...)
}

func (a *agent) ckptLast(dir runDir) {
	if spec, ok, err := dir.spec(); ok && err == nil {
		if err := a.ckptLook(dir, spec, true, time.Now()); err != nil {
			a.complain("look for checkpoints", err)
		}
	}
}
