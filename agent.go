package main

// The agent: opens its home, holds what belongs together, starts the loops and stops them. It only calls out. The training processes are
// not its children to keep: at the end of the context everything here returns and the runs go on. No protocol here (agent_hello,
// agent_poll, agent_claim), no processes (agent_start, the supervisor).

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// agentOptions is what the agent is started with. Home is absolute.
type agentOptions struct {
	home          string
	serverURL     string
	token         string
	renew         func() string // the token that the files name now, "" = none; nil = there is no other
	name          string        // shown name of the node, default the host name
	cpuLane       int           // slots of the cpu lane
	fakeGPUs      string        // file with made-up cards, "" = none
	self          string        // path of this program, to start supervisors with
	log           *slog.Logger
	visibleByUUID bool // CUDA_VISIBLE_DEVICES carries UUIDs in place of indexes
	defaultEnv    map[string]string
	ckptStill     time.Duration // how long a checkpoint must lie still, 0 = 10 s
}

// agent is one agent process, an instance.
type agent struct {
	o        agentOptions
	log      *slog.Logger
	uid      string // of the node
	instance string // of this process
	boot     string
	devices  []wireDevice
	print    wireFingerprint
	host     agentHost
	notes    []string // what the agent cannot do, told in every hello
	door     *agentDoor
	up       *uploader
	spare    *spareSupervisor
	sampler  *hostWatch
	ckpt     ckptWatch
	tb       *tbWatch // tb loop only, but for its notices

	helloBell agentBell // something is to be told
	readyBell agentBell // a hello was accepted
	watchBell agentBell // a run came to life
	spareBell agentBell // the spare supervisor was taken
	tbBell    agentBell // a run came to life or ended, or a new event file or folder was noticed
	ckptBell  agentBell // a run came to life or ended
	work      sync.WaitGroup
	reading   chan struct{} // log reads under way
	looking   sync.Mutex    // one environment snapshot at a time

	retry     backoff   // of hello; hello loop only
	notBefore time.Time // no hello before this; hello loop only
	refusals  int       // hellos refused in a row; hello loop only
	missed    bool      // the last hello got no answer; hello loop only
	unsettled backoff   // how soon what is not settled is told again; hello loop only
	ticks     int       // steps of the watch; watch loop only

	pollRetry  backoff // poll loop only
	pollMissed bool    // the last poll failed; poll loop only

	mu        sync.Mutex
	inc       string // incarnation of the server that this agent lives under
	next      string // another one, heard of and not yet entered
	session   int64
	ok        bool // the server took a complete hello of this incarnation and session: grants and commands may be used
	all       bool // the next hello tells settled runs too
	era       context.Context
	endEra    context.CancelFunc
	runs      map[string]*agentRun
	inWork    map[int64]time.Time // command id -> when it was done with, zero while it is worked on
	signalled map[int64]commandAnswer
	said      map[string]time.Time // complaints by text
	tbProblem string               // why event files may be lost, "" = they will not
}

// agentRun is what this instance remembers of a run. What is true lies in the folder; this only says what was done with it.
type agentRun struct {
	busy     bool      // a start is under way: the claim is open, or the grant is not yet handed on
	used     bool      // a grant of this run was taken; there is no second one
	granted  time.Time // when the grant was handed to the supervisor
	stopping bool      // a stop is under way
	giveUp   context.CancelFunc
	asked    int    // counts verify and stop: an older hello settles nothing after them
	settled  string // incarnation whose server stored the end
	idle     bool   // settled and the log is taken: nothing to do until another incarnation
	told     string // truth that was found last
	mark     runMark
	logOn    bool      // the uploader has the log
	logEnded bool      // and knows its final size
	lived    bool      // was seen alive
	over     time.Time // when it was first looked at after its end
	ckptDone bool      // the last look at its checkpoints was taken
	ckptFull bool      // it could not be: the disk of our folder is full
	drained  bool      // all that there is of it was handed to the uploader
	snapped  bool      // the environment was looked at
}

// runAgentCore runs an agent until ctx ends. Problems of the configuration are returned at once; a server that cannot be reached is not one.
func runAgentCore(ctx context.Context, o agentOptions) (err error) {
	for _, d := range []string{o.home, filepath.Join(o.home, "runs"), filepath.Join(o.home, "spool")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return newProblem(codeUsage, "check the permissions, or set GPUCTL_HOME", "agent folder: %v", err)
		}
	}
	lock, err := lockFile(filepath.Join(o.home, agentLockFile))
	if errors.Is(err, errLocked) {
		return newProblem(codeConflict, "stop the other one, or set GPUCTL_HOME", "another agent runs in %s", o.home)
	}
	if err != nil {
		return fmt.Errorf("lock the agent's folder: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	a, err := newAgent(o)
	if err != nil {
		return err
	}
	return a.run(ctx)
}

// newAgent reads who and where this agent is. It starts nothing.
func newAgent(o agentOptions) (*agent, error) {
	a := &agent{
		o: o, log: o.log, instance: newUID(), boot: bootID(), all: true,
		spare:     &spareSupervisor{self: o.self},
		reading:   make(chan struct{}, readsInFlight),
		retry:     backoff{first: 500 * time.Millisecond, most: 5 * time.Second}, // a restarted server adopts within seconds
		unsettled: backoff{first: time.Second, most: 15 * time.Second},
		pollRetry: backoff{first: 500 * time.Millisecond, most: 5 * time.Second},
		runs:      map[string]*agentRun{}, inWork: map[int64]time.Time{}, signalled: map[int64]commandAnswer{}, said: map[string]time.Time{},
	}
	var err error
	if a.uid, err = nodeUID(filepath.Join(o.home, "agent-uid")); err != nil {
		return nil, err
	}
	if o.fakeGPUs != "" {
		if a.devices, err = loadFakeGPUs(o.fakeGPUs); err != nil {
			return nil, err
		}
		a.notes = append(a.notes, fmt.Sprintf("its cards (%d) are made up: --fake-gpus %s", len(a.devices), o.fakeGPUs))
		a.log.Warn("CARDS ARE FAKE: jobs get made-up cards", "file", o.fakeGPUs, "cards", len(a.devices))
	}
	if a.print, err = agentFingerprint(a.devices); err != nil {
		return nil, err
	}
	a.host = lookAtHost()
	if a.o.name == "" {
		a.o.name = a.host.name
	}
	if a.door, err = newAgentDoor(o.serverURL, o.token); err != nil {
		return nil, err
	}
	if a.up, err = newUploader(o.home, a.sendBatch, o.log, a.heardByUploader); err != nil {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	a.sampler = &hostWatch{home: o.home, add: a.up.addNodeSample}
	a.tb = newTBWatch(o.log, a.host.name, &a.tbBell)
	a.tb.runs, a.tb.folder, a.tb.take, a.tb.tell = a.runNames, a.runFolder, a.takeTB, a.up.addFact
	a.host.memory = max(a.sampler.sample(time.Now()).MemoryTotalBytes, 0)
	a.era, a.endEra = context.WithCancel(context.Background())
	return a, nil
}

// run starts the loops and waits for all of them. Command handlers see the context end; what they leave is in the folders.
func (a *agent) run(ctx context.Context) error {
	a.log.Info("agent", keyState, "started", "uid", a.uid, "home", a.o.home, "server", a.o.serverURL)
	hello := &loop{name: "hello", log: a.log, step: a.helloStep, wake: a.helloBell.listen}
	poll := &loop{name: "poll", log: a.log, step: a.pollStep, wake: a.readyBell.listen}
	watch := &loop{name: "watch", log: a.log, step: a.watchStep, wake: a.watchBell.listen}
	spare := &loop{name: "spare", log: a.log, step: a.spareStep, wake: a.spareBell.listen}
	tb := &loop{name: "event files", log: a.log, step: a.tbStep, wake: a.tbBell.listen}
	ckpt := &loop{name: "checkpoints", log: a.log, step: a.ckptStep, wake: a.ckptBell.listen}
	sample := &loop{name: "sample", log: a.log, step: a.sampler.step}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, f := range []func(context.Context) error{hello.run, poll.run, watch.run, spare.run, sample.run, tb.run, a.tb.notify.run, ckpt.run, a.up.run} {
		wg.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
				stop() // a loop that cannot go on ends the agent; the runs go on
			}
		})
	}
	wg.Wait()
	a.mu.Lock()
	a.endEra()
	alive := 0
	for _, r := range a.runs {
		if r.told == tellAlive || r.told == tellExiting {
			alive++
		}
	}
	a.mu.Unlock()
	a.work.Wait()
	errs = append(errs, a.spare.close())
	a.door.close()
	a.log.Info("agent", keyState, "stopped", "runs_that_go_on", alive)
	return errors.Join(errs...)
}

// spareDelay keeps the start of the next supervisor off the cores while the run that took the last one starts.
const spareDelay = 50 * time.Millisecond

func (a *agent) spareStep(_ context.Context, now time.Time) (time.Duration, error) {
	if wait := spareDelay - now.Sub(a.spare.lastTaken()); wait > 0 {
		return wait, nil
	}
	return time.Minute, a.spare.refill()
}

// nodeUID reads the node's uid, making it at the first start. Where it is there nothing is written: an agent starts on a full disk too.
func nodeUID(path string) (string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := writeOnce(path, []byte(newUID()+"\n")); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("make the node's uid: %w", err)
		}
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return "", fmt.Errorf("read the node's uid: %w", err)
	}
	uid := strings.TrimSpace(string(b))
	if !isUID(uid) {
		return "", newProblem(codeUsage, "put the file back from a backup, or remove it: the machine then joins as a new node", "%s holds no uid", path)
	}
	return uid, nil
}

// runFolder is the folder of a run. The uid must have passed isUID.
func (a *agent) runFolder(uid string) runDir { return runDir(filepath.Join(a.o.home, "runs", uid)) }

// record is what is remembered of a run; a.mu must be held.
func (a *agent) record(uid string) *agentRun {
	r := a.runs[uid]
	if r == nil {
		r = &agentRun{}
		a.runs[uid] = r
	}
	return r
}

// complain logs a trouble that repeats: the same text once a minute.
func (a *agent) complain(what string, err error) {
	text := what + ": " + err.Error()
	now := time.Now()
	a.mu.Lock()
	last, known := a.said[text]
	quiet := known && now.Sub(last) < time.Minute
	if !quiet {
		for t, at := range a.said { // the map keeps a minute's worth
			if now.Sub(at) >= time.Minute {
				delete(a.said, t)
			}
		}
		a.said[text] = now
	}
	a.mu.Unlock()
	if quiet {
		return
	}
	args := []any{keyErr, err}
	if p, ok := asProblem(err); ok && p.Hint != "" {
		args = append(args, "hint", p.Hint)
	}
	a.log.Warn(what, args...)
}

// agentBell wakes whoever listens. It carries nothing: look again.
type agentBell struct {
	mu sync.Mutex
	c  chan struct{}
}

// listen gives the channel that the next ring closes. Take it before looking.
func (b *agentBell) listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *agentBell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
