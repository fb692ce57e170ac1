package main

// The nouns of the product and the one transition table of jobs and runs. Pure: no I/O, no clock.
// DESIGN section 4 is the source; the store changes a state only through moveJob/moveRun, which look here.

import "slices"

// Job states: what was asked.
const (
	jobQueued      = "QUEUED"
	jobDispatching = "DISPATCHING"
	jobRunning     = "RUNNING"
	jobCancelling  = "CANCELLING"
	jobLost        = "LOST"
	jobSucceeded   = "SUCCEEDED"
	jobFailed      = "FAILED"
	jobCancelled   = "CANCELLED"
)

var jobStates = []string{jobQueued, jobDispatching, jobRunning, jobCancelling, jobLost, jobSucceeded, jobFailed, jobCancelled}

// Run states: what happened. IMPORTED and ENDED_UNKNOWN are for runs that never had our supervisor.
const (
	runOffered      = "OFFERED"
	runStarting     = "STARTING"
	runAlive        = "ALIVE"
	runExiting      = "EXITING"
	runEnded        = "ENDED"
	runLost         = "LOST"
	runBurned       = "BURNED"
	runImported     = "IMPORTED"
	runEndedUnknown = "ENDED_UNKNOWN"
)

var runStates = []string{runOffered, runStarting, runAlive, runExiting, runEnded, runLost, runBurned, runImported, runEndedUnknown}

// Reasons of an end.
const (
	reasonExitCode       = "EXIT_CODE"
	reasonSignal         = "SIGNAL"
	reasonOOM            = "OOM"
	reasonHostOOM        = "HOST_OOM"
	reasonCancelled      = "CANCELLED"
	reasonTimeout        = "TIMEOUT"
	reasonStartFailed    = "START_FAILED"
	reasonDispatchFailed = "DISPATCH_FAILED"
	reasonKilledByHost   = "KILLED_BY_HOST"
	reasonNodeReboot     = "NODE_REBOOT"
	reasonSupervisorLost = "SUPERVISOR_LOST"
	reasonFenced         = "FENCED"
)

// retriedByItself are the reasons after which a job is queued again up to max_attempts; every other end is final until
// somebody asks for a retry.
var retriedByItself = []string{reasonKilledByHost, reasonNodeReboot, reasonSupervisorLost, reasonFenced}

// Lanes of a slot.
const (
	laneGPU = "gpu"
	laneCPU = "cpu"
)

// Severities of an event, lowest first.
const (
	sevInfo     = "info"
	sevNotice   = "notice"
	sevWarning  = "warning"
	sevCritical = "critical"
)

// Scopes of a token.
const (
	scopePublic = "public" // of a route: no token needed
	scopeRead   = "read"
	scopeWrite  = "write"
	scopeAgent  = "agent"
	scopeSDK    = "sdk"
	scopeAdmin  = "admin"
)

var tokenScopes = []string{scopeRead, scopeWrite, scopeAgent, scopeSDK, scopeAdmin}

// scopeAllows reports whether a token of scope have may use a route of scope want.
func scopeAllows(have, want string) bool {
	switch want {
	case scopePublic:
		return true
	case scopeRead:
		return have == scopeRead || have == scopeWrite || have == scopeAdmin
	case scopeWrite:
		return have == scopeWrite || have == scopeAdmin
	default:
		return have == want
	}
}

// moveEvent is what happened to a job or run; each has one target state and the states that it is allowed from.
type moveEvent string

// Events of a job.
const (
	jobDispatch       moveEvent = "dispatch"        // the scheduler claimed slots and wrote an offer
	jobGrant          moveEvent = "grant"           // the agent claimed in time and was granted
	jobOfferExpired   moveEvent = "offer_expired"   // no claim in ack_timeout, fewer than three in a row
	jobOfferFailed    moveEvent = "offer_failed"    // the third in a row: DISPATCH_FAILED
	jobOfferWithdrawn moveEvent = "offer_withdrawn" // burned by the server (end of RECOVERY, a live run adopted in its place)
	jobRefused        moveEvent = "refused"         // the node will not; it is excluded
	jobNoNodeLeft     moveEvent = "no_node_left"    // every fitting node is excluded: START_FAILED
	jobCancel         moveEvent = "cancel"          // nothing was granted: over at once
	jobCancelRunning  moveEvent = "cancel_running"  // granted (or in RECOVERY, whatever the row says): wait for the node's word
	jobSilent         moveEvent = "silent"          // its node was not heard from for lost_after
	jobHeard          moveEvent = "heard"           // the node is back and the run lives
	jobSucceed        moveEvent = "succeed"         // the run ended with code 0
	jobFail           moveEvent = "fail"            // the run ended otherwise and is not tried again by itself
	jobRequeue        moveEvent = "requeue"         // the run ended by a reason that is retried by itself, or was burned after its grant
	jobCancelDone     moveEvent = "cancel_done"     // the run of a cancelling job is over
	jobAdopt          moveEvent = "adopt"           // RECOVERY: a live run of this job was told; a live process wins over any row
	jobAdoptSucceed   moveEvent = "adopt_succeed"   // RECOVERY: a newer run of this job was told as ended, code 0
	jobAdoptFail      moveEvent = "adopt_fail"      // RECOVERY: likewise, failed
	jobAdoptRequeue   moveEvent = "adopt_requeue"   // RECOVERY: likewise, retried by itself
	jobRetry          moveEvent = "retry"           // by hand
)

// Events of a run.
const (
	runGrant    moveEvent = "grant"     // claim answered
	runToldLive moveEvent = "told_live" // a hello says alive
	runToldExit moveEvent = "told_exit" // a hello says the leader ended, the tree not yet
	runSilent   moveEvent = "silent"    // node not heard from for lost_after
	runEnd      moveEvent = "end"       // proof: ended, new boot_id, or an operator's fence
	runBurn     moveEvent = "burn"      // never started, will never start
	runAdopt    moveEvent = "adopt"     // RECOVERY: told alive though the row says offered or burned
	runAdoptEnd moveEvent = "adopt_end" // RECOVERY: told as ended though the row says offered or burned
)

// transition is one row of the table: event ev leads from any of from to to.
type transition struct {
	ev   moveEvent
	from []string
	to   string
}

// jobTransitions is the whole life of a job. A pair that is not here does not exist.
var jobTransitions = []transition{
	{jobDispatch, []string{jobQueued}, jobDispatching},
	{jobGrant, []string{jobDispatching}, jobRunning},
	{jobOfferExpired, []string{jobDispatching}, jobQueued},
	{jobOfferFailed, []string{jobDispatching}, jobFailed},
	{jobOfferWithdrawn, []string{jobDispatching}, jobQueued},
	{jobRefused, []string{jobDispatching}, jobQueued},
	{jobNoNodeLeft, []string{jobQueued, jobDispatching}, jobFailed},
	{jobCancel, []string{jobQueued, jobDispatching}, jobCancelled},
	{jobCancelRunning, []string{jobQueued, jobDispatching, jobRunning, jobLost}, jobCancelling},
	{jobSilent, []string{jobRunning}, jobLost},
	{jobHeard, []string{jobLost}, jobRunning},
	{jobSucceed, []string{jobRunning, jobLost}, jobSucceeded},
	{jobFail, []string{jobRunning, jobLost}, jobFailed},
	{jobRequeue, []string{jobRunning, jobLost}, jobQueued},
	{jobCancelDone, []string{jobCancelling}, jobCancelled},
	{jobAdopt, []string{jobQueued, jobDispatching, jobLost, jobSucceeded, jobFailed, jobCancelled}, jobRunning},
	{jobAdoptSucceed, []string{jobQueued, jobDispatching, jobRunning, jobLost, jobFailed, jobCancelled}, jobSucceeded},
	{jobAdoptFail, []string{jobQueued, jobDispatching, jobRunning, jobLost, jobSucceeded, jobCancelled}, jobFailed},
	{jobAdoptRequeue, []string{jobDispatching, jobRunning, jobLost, jobSucceeded, jobFailed, jobCancelled}, jobQueued},
	{jobRetry, []string{jobSucceeded, jobFailed, jobCancelled}, jobQueued},
}

// runTransitions is the whole life of a run with our supervisor.
var runTransitions = []transition{
	{runGrant, []string{runOffered}, runStarting},
	{runToldLive, []string{runStarting, runLost}, runAlive},
	{runToldExit, []string{runStarting, runAlive, runLost}, runExiting},
	{runSilent, []string{runStarting, runAlive, runExiting}, runLost},
	{runEnd, []string{runStarting, runAlive, runExiting, runLost}, runEnded},
	{runBurn, []string{runOffered, runStarting, runAlive, runExiting, runLost}, runBurned},
	{runAdopt, []string{runOffered, runBurned}, runAlive},
	{runAdoptEnd, []string{runOffered, runBurned}, runEnded},
}

// nextState looks a move up: the target state, or false when the table has no such move.
func nextState(table []transition, ev moveEvent, from string) (string, bool) {
	for _, t := range table {
		if t.ev == ev && slices.Contains(t.from, from) {
			return t.to, true
		}
	}
	return "", false
}

// jobOver reports whether a job is in a terminal state, which only a retry leaves.
func jobOver(state string) bool {
	return state == jobSucceeded || state == jobFailed || state == jobCancelled
}

// runGranted reports whether a run was granted and is not known to be over: only its node, or a new boot_id, may free its slots.
func runGranted(state string) bool {
	return state == runStarting || state == runAlive || state == runExiting || state == runLost
}

// runOver reports whether nothing more can happen to a run.
func runOver(state string) bool {
	return state == runEnded || state == runBurned || state == runImported || state == runEndedUnknown
}
