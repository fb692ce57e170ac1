package main

// The server: what belongs together and the order in which it starts and stops. Stop order: listener, long-polls, loops, database, lock.
// What a first start writes is in server_start.go.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

const (
	shortRequests = time.Second     // how long a stop waits for requests that are not long-polls
	longRequests  = 3 * time.Second // and how long for the rest, after they were told
)

// server is one running server process.
type server struct {
	cfg      serverConfig
	log      *slog.Logger
	store    *store
	hub      *hub
	inc      *incarnation
	contacts *contacts
	relay    *logRelay
	timers   timers // used by the timers' loop only
	told     int64  // newest event in the log; used by the log's loop only
	loops    []*loop
	packing  seriesPacker // used in write transactions only
	curves   seriesCache
	started  time.Time
	baseURL  string // how this machine reaches it: "http://127.0.0.1:8600"

	helloing sync.Mutex    // one hello at a time
	stopping chan struct{} // closed when the server stops: long-polls end

	lock     *os.File
	listener net.Listener
}

// serverOptions is what a command gives to newServer.
type serverOptions struct {
	home    string // GPUCTL_HOME, absolute
	cfg     serverConfig
	log     *slog.Logger
	forceFS bool // accept a network file system for data_dir
}

// newServer takes the lock, opens the database, begins a new incarnation and listens. It starts nothing: serve does. After an error
// nothing is left open.
func newServer(ctx context.Context, o serverOptions) (s *server, err error) {
	s = &server{
		cfg: o.cfg, log: o.log, hub: newHub(), contacts: newContacts(), relay: newLogRelay(), started: time.Now(),
		stopping: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
			s = nil
		}
	}()
	if err := prepareDataDir(o.cfg.DataDir, o.forceFS); err != nil {
		return s, err
	}
	if s.lock, err = lockFile(filepath.Join(o.cfg.DataDir, "server.lock")); err != nil {
		if errors.Is(err, errLocked) {
			err = newProblem(codeUnavailable, "use it, or stop it first: gpuctl status", "another server uses %s", o.cfg.DataDir)
		}
		return s, err
	}
	if s.store, err = openStore(ctx, filepath.Join(o.cfg.DataDir, "gpuctl.db"), s.hub); err != nil {
		return s, err
	}
	if err := s.begin(ctx); err != nil {
		return s, err
	}
	if err := s.ensureTokens(ctx, o.home); err != nil {
		return s, err
	}
	if err := checkBind(s.cfg, s.log); err != nil {
		return s, err
	}
	addr := net.JoinHostPort(s.cfg.Host, strconv.Itoa(s.cfg.Port))
	if s.listener, err = net.Listen(listenNetwork(s.cfg.Host), addr); err != nil {
		return s, newProblem(codeUnavailable, "stop what listens there, or choose another port: --port 8601", "listen on %s: %v", addr, err)
	}
	s.baseURL = localURL(s.listener.Addr())
	s.loops = []*loop{
		{name: "scheduler", log: s.log, step: s.schedStep, wake: func() <-chan struct{} { return s.hub.listen(bellSched) }},
		{name: "timers", log: s.log, step: s.timersStep},
		{name: "log", log: s.log, step: s.tellStep, wake: func() <-chan struct{} { return s.hub.listen(bellEvents) }},
		{name: "seal", log: s.log, step: s.sealStep},
		{name: "wal", log: s.log, step: s.walStep},
	}
	return s, nil
}

// begin starts a new incarnation: row first, then the file.
func (s *server) begin(ctx context.Context) error {
	inc, err := readIncarnation(filepath.Join(s.cfg.DataDir, "incarnation"))
	if err != nil {
		return err
	}
	s.inc = inc
	var counter int64
	if err := s.store.write(ctx, func(t *tx) (err error) {
		if _, err = t.one("SELECT COALESCE(max(id), 0) FROM events", nil, &s.told); err == nil {
			counter, err = inc.beginTx(t)
		}
		return err
	}); err != nil {
		return fmt.Errorf("begin an incarnation: %w", err)
	}
	inc.set(newIncarnationName(counter))
	if err := s.store.read(ctx, inc.save); err != nil {
		return err
	}
	return nil
}

// serve runs until ctx ends or the listener fails, then stops everything in order. The server cannot be used again.
func (s *server) serve(ctx context.Context) error {
	requests, cancelRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelRequests()
	web := newHTTPServer(requests, s)
	served := make(chan error, 1)
	go func() { served <- web.Serve(limitListener(s.listener)) }()

	loops, cancelLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelLoops()
	var joined sync.WaitGroup
	for _, l := range s.loops {
		joined.Go(func() {
			if err := l.run(loops); err != nil {
				s.log.Error("loop ended", "loop", l.name, keyErr, err)
			}
		})
	}
	err := writeAtomic(filepath.Join(s.cfg.DataDir, addressFile), []byte(s.baseURL+"\n"))
	if err == nil {
		s.log.Info("listening", "address", s.baseURL, "host", s.cfg.Host, "incarnation", s.inc.current())
		select {
		case <-ctx.Done():
		case err = <-served:
		}
	}
	return errors.Join(err, s.stop(web, cancelRequests, cancelLoops, &joined))
}

// stop ends a serving server: listener, long-polls, loops, database.
func (s *server) stop(web *http.Server, cancelRequests, cancelLoops context.CancelFunc, joined *sync.WaitGroup) error {
	close(s.stopping)
	short, cancel := context.WithTimeout(context.Background(), shortRequests)
	defer cancel()
	if web.Shutdown(short) != nil { // waits of others than the agent: they end with their context
		cancelRequests()
		long, cancel := context.WithTimeout(context.Background(), longRequests)
		defer cancel()
		if web.Shutdown(long) != nil {
			if err := web.Close(); err != nil {
				s.log.Warn("close connections", keyErr, err)
			}
		}
	}
	cancelLoops()
	joined.Wait()
	s.listener = nil // closed by Shutdown
	if err := os.Remove(filepath.Join(s.cfg.DataDir, addressFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Warn("remove address file", keyErr, err)
	}
	err := s.release()
	s.log.Info("stopped")
	return err
}

// release gives back what newServer took, in reverse.
func (s *server) release() error {
	var errs []error
	if s.listener != nil {
		errs = append(errs, s.listener.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	s.listener, s.store, s.lock = nil, nil, nil
	return errors.Join(errs...)
}

// loopStates is what the loops tell of themselves.
func (s *server) loopStates() []loopState {
	out := make([]loopState, 0, len(s.loops))
	for _, l := range s.loops {
		out = append(out, l.told())
	}
	return out
}
