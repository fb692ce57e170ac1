package main

// The uploader owns every source of this machine and brings them to the server: one batch in flight, compare-and-set on cursors (DESIGN
// section 5). What the rest of the agent calls is here; the making of batches and the taking of answers in agent_batch.go. It knows no
// HTTP and nothing of a run's life: the core says what there is of a run and when it is final (agent_upload_run.go), and what the server's
// cursors are.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	lookEvery      = 100 * time.Millisecond // between looks at logs that are being written: 100 files cost 0.3 % of a core
	batchEvery     = 250 * time.Millisecond // between batches of a slow stream: each costs the server an fsync
	idleEvery      = 10 * time.Second       // nothing to look at: only trimming
	batchFloor     = 16 << 10               // smallest target after 413s
	batchGrowAfter = 100                    // batches taken in a row after which the target doubles again
	denied         = 30 * time.Second       // first wait after 401 or 403: jobs run on, somebody must act
	retryAfterMost = 60 * time.Second
	missFirst      = time.Second // wait of one source after its second unexpected answer in a row, doubling
	missMost       = time.Minute
)

// batchSender posts one batch. An answer without gpuctl: 1 is no answer, with or without an error. The error may wrap a *problem, whose
// Status decides how long to wait, and it may wrap a *retryAfter.
type batchSender func(ctx context.Context, body []byte) (batchAnswer, error)

// retryAfter is an error with the server's wish when to come again.
type retryAfter struct {
	after time.Duration
	err   error
}

func (e *retryAfter) Error() string { return e.err.Error() }
func (e *retryAfter) Unwrap() error { return e.err }

// uploader is safe for use by several goroutines. run is called once.
type uploader struct {
	send          batchSender
	log           *slog.Logger
	onIncarnation func(string)
	bell          chan struct{}
	loop          loop

	facts, node *spool // safe by themselves: addFact must not wait for a read of a log

	mu          sync.Mutex // all below
	own         []*ownSource
	runs        map[string]*runSources // by run uid
	turn        int                    // which log, and which event file, goes first
	read        fileReader
	pendingNews []sourceNews
	incarnation string
	target      int // bytes of a batch
	taken       int // batches in a row
	back        backoff
	deniedBack  backoff
	until       time.Time // no batch before
	trimmed     time.Time
	said        map[string]string // last complaint of a source, so that it is logged once
}

// newUploader opens or creates the facts and node spools in home. onIncarnation is called, without locks, whenever an answer carries
// another incarnation than the one before; nothing but what align named again is sent from then on.
func newUploader(home string, send batchSender, log *slog.Logger, onIncarnation func(string)) (*uploader, error) {
	u := &uploader{
		send: send, log: log, onIncarnation: onIncarnation, bell: make(chan struct{}, 1),
		runs: map[string]*runSources{}, said: map[string]string{}, target: batchTargetBytes,
		back: backoff{first: 500 * time.Millisecond, most: 30 * time.Second}, deniedBack: backoff{first: 2 * denied, most: 4 * denied},
	}
	u.sizeReads()
	facts, src, err := openSpool(home, kindFacts, 0)
	if err != nil {
		return nil, err
	}
	u.facts = facts
	u.own = append(u.own, newOwnSource(src, kindFacts, facts))
	node, src, err := openSpool(home, kindNode, nodeBytes)
	if err != nil {
		return nil, err
	}
	u.node = node
	u.own = append(u.own, newOwnSource(src, kindNode, node))
	u.loop = loop{name: "upload", log: log, step: u.step, wake: func() <-chan struct{} { return u.bell }}
	return u, nil
}

// run sends until ctx ends, then closes every file.
func (u *uploader) run(ctx context.Context) error {
	return errors.Join(u.loop.run(ctx), u.close())
}

func (u *uploader) close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	errs := []error{u.facts.close(), u.node.close()}
	for _, s := range u.all() {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

func (u *uploader) ring() {
	select {
	case u.bell <- struct{}{}:
	default:
	}
}

// addFact stores a fact, durable on return. Facts over factMaxBytes are cut, and say so. On a full disk old host samples make room.
func (u *uploader) addFact(f factItem) error {
	b, err := encodeFact(f)
	if err != nil {
		return fmt.Errorf("encode fact %s: %w", f.Key, err)
	}
	for {
		if err := u.facts.append(b); err == nil {
			break
		} else if !diskFull(err) || !u.node.makeRoom() {
			return fmt.Errorf("store fact %s: %w", f.Key, err)
		}
	}
	u.ring()
	return nil
}

// addNodeSample stores a look at the host. When it cannot be stored it is lost, which is logged.
func (u *uploader) addNodeSample(n nodeSample) {
	b, err := json.Marshal(n)
	if err == nil {
		err = u.node.append(b)
	}
	if err != nil {
		u.log.Error("store host sample", keyErr, err)
		return
	}
	u.ring()
}

// all gives the sources in the order in which they are sent: facts, logs, event files, node.
func (u *uploader) all() []source {
	all := []source{u.own[0]}
	logs, folders := u.files()
	for _, s := range logs {
		all = append(all, s)
	}
	for _, s := range slices.Concat(folders...) {
		all = append(all, s.fileSource)
	}
	return append(all, u.own[1])
}

// unknown names the sources whose cursor was not heard from this incarnation of the server: hello must ask for them.
func (u *uploader) unknown() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var names []string
	for _, s := range u.all() {
		if t := s.tail(); !t.known {
			names = append(names, t.src)
		}
	}
	return names
}

// sources lists, for hello, what is not finished as far as this incarnation is known to have it, with the last acknowledged cursor.
func (u *uploader) sources() []helloSource {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := []helloSource{}
	for _, s := range u.all() {
		if t := s.tail(); !t.known || !t.cur.Done {
			list = append(list, helloSource{Src: t.src, Gen: t.cur.Gen, Off: t.cur.Off})
		}
	}
	return list
}

// align takes the cursors of an accepted hello. A source that was unknown and is not among them is new to the server. Of one that is
// known, a cursor that is not behind says nothing that the next batch would not say.
func (u *uploader) align(cursors map[string]wireCursor) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, s := range u.all() {
		t := s.tail()
		c, told := cursors[t.src]
		if t.known && (!told || c.Gen > t.cur.Gen || c.Gen == t.cur.Gen && c.Off > t.cur.Off || c == t.cur) {
			continue
		}
		t.misses, t.hold = 0, time.Time{}
		s.align(c)
	}
	u.ring()
}

// retryNow ends the wait that a refused batch led to: another token is used from now on.
func (u *uploader) retryNow() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.until = time.Time{}
	u.deniedBack.reset()
	u.ring()
}

// unsent is how many bytes of all sources the server does not have.
func (u *uploader) unsent() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	var n int64
	for _, s := range u.all() {
		n += s.unsent()
	}
	return n
}

// heard takes an incarnation out of an answer. After another one than before, every cursor must be asked for again.
func (u *uploader) heard(incarnation string) (changed bool) {
	if incarnation == "" || incarnation == u.incarnation {
		return false
	}
	if u.incarnation != "" {
		for _, s := range u.all() {
			s.tail().known = false
		}
	}
	u.incarnation = incarnation
	return true
}

// encodeFact writes a fact in at most factMaxBytes: members of its data are left out, the largest first, and named under "cut".
func encodeFact(f factItem) ([]byte, error) {
	b, err := json.Marshal(f)
	if err != nil || len(b) <= factMaxBytes {
		return b, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(f.Data, &members); err != nil || members == nil {
		members = map[string]json.RawMessage{"data": f.Data}
	}
	var cut []string
	for len(b) > factMaxBytes {
		largest := ""
		for k, v := range members {
			if k != "cut" && (largest == "" || len(k)+len(v) > len(largest)+len(members[largest])) {
				largest = k
			}
		}
		if largest == "" {
			return nil, fmt.Errorf("%d bytes without its data", len(b))
		}
		delete(members, largest)
		cut = append(cut, largest[:min(len(largest), 100)])
		if members["cut"], err = json.Marshal(cut); err != nil {
			return nil, err
		}
		if f.Data, err = json.Marshal(members); err != nil {
			return nil, err
		}
		if b, err = json.Marshal(f); err != nil {
			return nil, err
		}
	}
	return b, nil
}
