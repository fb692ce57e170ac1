package main

// Limits of the HTTP server: connections, headers, times. They hold for everybody, before any token is looked at.

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	headersWithin  = 10 * time.Second
	idleFor        = 2 * time.Minute // keep-alive: longer than any pause of an agent between two polls
	headerMaxBytes = 16 << 10
	connsMost      = 512
	requestIDMost  = 64
)

// newHTTPServer is the server around newHandler. ctx is the context of every request: when it ends, what they wait for ends.
func newHTTPServer(ctx context.Context, s *server) *http.Server {
	return &http.Server{
		Handler:           newHandler(s),
		ReadHeaderTimeout: headersWithin,
		IdleTimeout:       idleFor,
		MaxHeaderBytes:    headerMaxBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnState: func(c net.Conn, state http.ConnState) {
			if c, ok := c.(*limitedConn); ok {
				c.from.note(c, state == http.StateIdle)
			}
		},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// limitedListener lets at most cap(room) connections be open; the next one waits in the kernel's queue, and the one that is idle for longest
// makes room for it. Else whoever opens enough connections and says nothing more, for which no token is needed, shuts everybody out.
type limitedListener struct {
	net.Listener
	room   chan struct{}
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	full bool           // somebody waits for room
	idle []*limitedConn // between two requests, longest first
}

func limitListener(l net.Listener) net.Listener {
	return &limitedListener{Listener: l, room: make(chan struct{}, connsMost), closed: make(chan struct{})}
}

func (l *limitedListener) Accept() (net.Conn, error) {
	l.setFull(len(l.room) == cap(l.room))
	select {
	case l.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	l.setFull(false)
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &limitedConn{Conn: c, from: l}, nil
}

func (l *limitedListener) setFull(full bool) {
	l.mu.Lock()
	l.full = full
	l.mu.Unlock()
	l.makeRoom()
}

// note hears that a connection became idle, or is not any more.
func (l *limitedListener) note(c *limitedConn, idle bool) {
	l.mu.Lock()
	l.idle = slices.DeleteFunc(l.idle, func(other *limitedConn) bool { return other == c })
	if idle {
		l.idle = append(l.idle, c)
	}
	l.mu.Unlock()
	l.makeRoom()
}

// makeRoom closes the connection that is idle for longest when somebody waits for room.
func (l *limitedListener) makeRoom() {
	l.mu.Lock()
	var c *limitedConn
	if l.full && len(l.idle) > 0 {
		c, l.idle, l.full = l.idle[0], l.idle[1:], false
	}
	l.mu.Unlock()
	if c != nil && c.Close() != nil {
		return // closed by its other end meanwhile: that is room too
	}
}

func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	from *limitedListener
	once sync.Once
}

func (c *limitedConn) Close() error {
	c.once.Do(func() { <-c.from.room })
	return c.Conn.Close()
}

// limitTime sets when the body must be here and the answer out. A deadline stays on a kept connection, so each request sets its own.
func (d *doors) limitTime(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	d.noteDeadline(r, rc.SetWriteDeadline(time.Now().Add(answerWithin)))
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	d.noteDeadline(r, rc.SetReadDeadline(time.Now().Add(bodyWithin)))
	r.Body = &timedBody{ReadCloser: r.Body, arrived: func() { d.noteDeadline(r, rc.SetReadDeadline(time.Time{})) }}
}

// noteDeadline logs a deadline that could not be set: the connection is gone. A recorder in a test has none at all.
func (d *doors) noteDeadline(r *http.Request, err error) {
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		d.s.log.Debug("deadline", keyRequest, exchangeOf(r).requestID, keyErr, err)
	}
}

// timedBody lifts the read deadline once the body is here: left on, it would end a long wait as if the client were gone.
type timedBody struct {
	io.ReadCloser
	arrived func()
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && b.arrived != nil {
		b.arrived()
		b.arrived = nil
	}
	return n, err
}

// requestIDOf takes the request id that a caller gave, when it is harmless, else makes one.
func requestIDOf(r *http.Request) string {
	id := r.Header.Get(headerRequestID)
	if id == "" || len(id) > requestIDMost {
		return newUID()[:16]
	}
	for _, c := range []byte(id) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return newUID()[:16]
		}
	}
	return id
}
