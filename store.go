package main

// The database: opening, migrations, one writer with group commit, a few readers. It knows no table; store_*.go do.

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

const (
	sqliteOldest   = "3.51.3" // older ones can lose a WAL reset
	readConns      = 4
	groupCommitMax = 128 // write requests that share one fsync at most
)

// store is the open database.
type store struct {
	path    string
	hub     *hub
	readers chan *conn // idle read-only connections; nil entries are opened on demand

	mu      sync.Mutex // guards queue and leading
	queue   []*writeRequest
	leading bool
	writer  *conn // used by the present leader only
}

// tx is one write transaction. now is fixed for the whole of it. Bells are rung after the commit.
type tx struct {
	*conn
	now   time.Time
	nowMS int64
	bells []string
}

func (t *tx) ring(topics ...string) { t.bells = append(t.bells, topics...) }

// insert runs an INSERT and returns the rowid.
func (t *tx) insert(q string, args ...any) (int64, error) {
	if _, err := t.exec(q, args...); err != nil {
		return 0, err
	}
	return t.db.LastInsertRowID(), nil
}

type writeRequest struct {
	ctx  context.Context
	fn   func(*tx) error
	tx   *tx
	err  error
	wake chan bool // true: done; false: lead
}

// openStore opens or creates the database and brings its schema up to date.
func openStore(ctx context.Context, path string, h *hub) (*store, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) // SQLite would create it by the umask
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	w, err := openConn(ctx, path, false)
	if err != nil {
		return nil, storageProblem(err)
	}
	s := &store{path: path, hub: h, writer: w, readers: make(chan *conn, readConns)}
	for range readConns {
		s.readers <- nil
	}
	if err := s.migrate(ctx); err != nil {
		return nil, storageProblem(errors.Join(err, w.close()))
	}
	// SQLite made the WAL by the umask. It holds what the database does, environments of jobs too, and lives as long as the writer.
	for _, end := range []string{"-wal", "-shm"} {
		if err := os.Chmod(path+end, 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("close the database to others: %w", err), w.close())
		}
	}
	return s, nil
}

// migrate applies the embedded steps 0001.sql, 0002.sql, ... that PRAGMA user_version has not seen, each in a transaction.
func (s *store) migrate(ctx context.Context) error {
	var version string
	if _, err := s.writer.one("SELECT sqlite_version()", nil, &version); err != nil {
		return err
	}
	if versionLess(version, sqliteOldest) {
		return fmt.Errorf("SQLite %s is older than %s", version, sqliteOldest)
	}
	steps, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		return err
	}
	var have int
	if _, err := s.writer.one("PRAGMA user_version", nil, &have); err != nil {
		return err
	}
	if have > len(steps) {
		return newProblem(codeUnavailable, "start the newer gpuctl, or restore a backup of this version",
			"%s has schema %d, this gpuctl knows %d", s.path, have, len(steps))
	}
	for i := have; i < len(steps); i++ {
		sql, err := migrationFiles.ReadFile("migrations/" + steps[i].Name())
		if err != nil {
			return err
		}
		script := fmt.Sprintf("BEGIN IMMEDIATE;\n%s\nPRAGMA user_version = %d;\nCOMMIT;", sql, i+1)
		if err := s.writer.db.Exec(script); err != nil {
			return errors.Join(fmt.Errorf("migrate to %d: %w", i+1, err), s.writer.db.Exec("ROLLBACK"))
		}
	}
	return ctx.Err()
}

// versionLess compares dotted versions number by number.
func versionLess(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		var x, y int
		if i < len(as) {
			fmt.Sscan(as[i], &x)
		}
		if i < len(bs) {
			fmt.Sscan(bs[i], &y)
		}
		if x != y {
			return x < y
		}
	}
	return false
}

// close ends the readers and the writer. Nobody may use the store any more.
func (s *store) close() error {
	var errs []error
	for range readConns {
		if c := <-s.readers; c != nil {
			errs = append(errs, c.close())
		}
	}
	_, err := s.writer.exec("PRAGMA wal_checkpoint(TRUNCATE)")
	return errors.Join(append(errs, err, s.writer.close())...)
}

// read runs fn in one read transaction on a connection of its own. fn must be short: a long one keeps the WAL from shrinking.
func (s *store) read(ctx context.Context, fn func(*conn) error) error {
	var c *conn
	select {
	case c = <-s.readers:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.readers <- c }()
	if c == nil {
		var err error
		if c, err = openConn(context.Background(), s.path, true); err != nil {
			return storageProblem(err)
		}
	}
	if _, err := c.exec("BEGIN"); err != nil {
		return storageProblem(err)
	}
	err := fn(c)
	if _, cerr := c.exec("COMMIT"); err == nil {
		err = cerr
	}
	return storageProblem(err)
}

// write runs fn in a write transaction and returns once it is durable (synchronous=FULL). Requests that wait together share one
// transaction and one fsync, each in a savepoint of its own: an error of fn rolls back its own changes only. A request that began
// is finished even when ctx ends.
func (s *store) write(ctx context.Context, fn func(*tx) error) error {
	r := &writeRequest{ctx: ctx, fn: fn, wake: make(chan bool, 1)}
	s.mu.Lock()
	s.queue = append(s.queue, r)
	lead := !s.leading
	s.leading = true
	s.mu.Unlock()
	if !lead && <-r.wake {
		return r.err
	}
	s.lead()
	return r.err
}

// lead commits one group, the caller's request first in it, and hands the lead on.
func (s *store) lead() {
	s.mu.Lock()
	n := min(len(s.queue), groupCommitMax)
	group := s.queue[:n:n]
	s.queue = s.queue[n:]
	s.mu.Unlock()
	s.commit(group)
	for _, r := range group[1:] {
		r.wake <- true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.leading = false
		return
	}
	s.queue[0].wake <- false
}

// commit runs a group in one transaction.
func (s *store) commit(group []*writeRequest) {
	now := time.Now()
	failAll := func(err error) {
		if !s.writer.db.GetAutocommit() {
			err = errors.Join(err, s.writer.db.Exec("ROLLBACK"))
		}
		for _, r := range group {
			r.err = storageProblem(err)
		}
	}
	if _, err := s.writer.exec("BEGIN IMMEDIATE"); err != nil {
		failAll(err)
		return
	}
	for _, r := range group {
		if r.err = r.ctx.Err(); r.err != nil {
			continue
		}
		if _, err := s.writer.exec("SAVEPOINT request"); err != nil {
			failAll(err)
			return
		}
		r.tx = &tx{conn: s.writer, now: now, nowMS: now.UnixMilli()}
		r.err = runRequest(r)
		if s.writer.db.GetAutocommit() { // a full disk rolls the whole transaction back
			failAll(fmt.Errorf("transaction was rolled back: %w", r.err))
			return
		}
		end := "RELEASE request"
		if r.err != nil {
			r.tx.bells = nil
			end = "ROLLBACK TO request"
		}
		if _, err := s.writer.exec(end); err != nil {
			failAll(err)
			return
		}
	}
	if _, err := s.writer.exec("COMMIT"); err != nil {
		failAll(err)
		return
	}
	for _, r := range group {
		r.err = storageProblem(r.err)
		if r.tx != nil {
			s.hub.ring(r.tx.bells...)
		}
	}
}

// runRequest turns a panic of one request into its error, so that it cannot take the others of its group along.
func runRequest(r *writeRequest) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a write: %v", p)
		}
	}()
	return r.fn(r.tx)
}

// storageProblem turns "the disk is full", "cannot be read or written" and "is damaged" into problems; other errors pass.
func storageProblem(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := asProblem(err); ok {
		return err
	}
	switch {
	case errors.Is(err, sqlite3.FULL), errors.Is(err, sqlite3.IOERR):
		return errors.Join(newProblem(codeStorageFull, "free space on the server's disk; it goes on by itself",
			"the database cannot be written"), err)
	case errors.Is(err, sqlite3.NOTADB), errors.Is(err, sqlite3.CORRUPT):
		return errors.Join(newProblem(codeInternal, "stop the server, move gpuctl.db and its -wal and -shm away, put a backup in their place or none: the nodes tell what runs",
			"the database is damaged"), err)
	case errors.Is(err, sqlite3.BUSY):
		return errors.Join(newProblem(codeUnavailable, "try again", "the database is busy"), err)
	}
	return err
}
