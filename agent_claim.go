package main

// Claim: may I start this run, or why I will not. A claim is repeated until it is answered; a grant counts only for the incarnation it was
// asked under, only after an accepted hello, and once.

import (
	"context"
	"time"
)

// openClaim reserves a run for one start of this instance. False when one is under way, a grant was taken, or no command may be used.
func (a *agent) openClaim(uid, inc string, giveUp context.CancelFunc) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.record(uid)
	if r.busy || r.used || !a.ok || a.inc != inc {
		return false
	}
	r.busy, r.giveUp = true, giveUp
	return true
}

// closeClaim ends the reservation. granted says that the grant is in the hands of the supervisor.
func (a *agent) closeClaim(uid string, granted bool) {
	a.mu.Lock()
	r := a.record(uid)
	r.busy, r.giveUp = false, nil
	if granted {
		r.granted = time.Now()
	}
	a.mu.Unlock()
}

// useGrant takes a grant: used. Neither used nor never: a hello comes first, and the server repeats the grant. never: it does not count.
func (a *agent) useGrant(uid, inc string, ans claimAnswer) (used, never bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.record(uid)
	switch {
	case a.inc != inc || ans.Incarnation != inc || a.next != "" || r.used:
		return false, true
	case !a.ok:
		return false, false
	}
	r.used = true
	return true, false
}

// askClaim repeats a claim until it is granted and usable (true), or denied or pointless (false). A refusal is done with when answered.
func (a *agent) askClaim(era context.Context, inc, uid string, refuse *claimRefuse) (claimAnswer, bool) {
	b := backoff{first: 100 * time.Millisecond, most: 5 * time.Second}
	for {
		a.mu.Lock()
		q := claimRequest{UID: uid, Instance: a.instance, Session: a.session, Incarnation: inc, BootID: a.boot, Refuse: refuse}
		a.mu.Unlock()
		ans, err := a.door.claim(era, q)
		switch {
		case era.Err() != nil:
			return claimAnswer{}, false
		case err != nil:
			a.complain("claim", err)
		case ans.Incarnation != inc:
			a.heard(ans.Incarnation)
			return claimAnswer{}, false
		case ans.Verdict == verdictDeny, refuse != nil && ans.Verdict != verdictLater:
			return ans, false
		case ans.Verdict == verdictGrant:
			used, never := a.useGrant(uid, inc, ans)
			if used || never {
				return ans, used
			}
			a.helloBell.ring()
		default: // later: hello first
			a.helloBell.ring()
		}
		if !sleep(era, max(b.next(), wantedPause(err))) {
			return claimAnswer{}, false
		}
	}
}
