package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// openTestStore opens a store in a folder of the test.
func openTestStore(t *testing.T) *store {
	t.Helper()
	s, err := openStore(t.Context(), filepath.Join(t.TempDir(), "gpuctl.db"), newHub())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func countRows(t *testing.T, s *store, q string, args ...any) (n int) {
	t.Helper()
	if err := s.read(t.Context(), func(c *conn) error {
		_, err := c.one(q, args, &n)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestGroupCommit: many writers at once are all stored, share transactions, and an error or panic of one rolls back its own rows only.
func TestGroupCommit(t *testing.T) {
	s := openTestStore(t)
	const writers = 200
	var group sync.WaitGroup
	var stamps sync.Map
	var failed atomic.Int64
	for i := range writers {
		group.Go(func() {
			err := s.write(t.Context(), func(x *tx) error {
				stamps.Store(x.now, true)
				if _, err := x.insert("INSERT INTO projects (name, created_ms) VALUES (?, ?)", string(rune('A'+i)), x.nowMS); err != nil {
					return err
				}
				switch i % 10 {
				case 3:
					return errors.New("no")
				case 7:
					panic("at work")
				}
				return nil
			})
			if (err != nil) != (i%10 == 3 || i%10 == 7) {
				t.Errorf("writer %d: %v", i, err)
			}
			if err != nil {
				failed.Add(1)
			}
		})
	}
	group.Wait()
	if n := countRows(t, s, "SELECT count(*) FROM projects"); n != writers-int(failed.Load()) || failed.Load() != writers/5 {
		t.Errorf("%d rows, %d failed of %d", n, failed.Load(), writers)
	}
	transactions := 0
	stamps.Range(func(any, any) bool { transactions++; return true })
	t.Logf("%d writers in %d transactions", writers, transactions)
}

// TestWriteBells: a bell rings after the commit and not for what was rolled back; a caller who gave up before his turn changes nothing.
func TestWriteBells(t *testing.T) {
	s := openTestStore(t)
	good, bad := s.hub.listen("good"), s.hub.listen("bad")
	if err := s.write(t.Context(), func(x *tx) error { x.ring("good"); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.write(t.Context(), func(x *tx) error { x.ring("bad"); return errors.New("no") }); err == nil {
		t.Error("the error got lost")
	}
	select {
	case <-good:
	default:
		t.Error("no bell after the commit")
	}
	select {
	case <-bad:
		t.Error("a bell for what was rolled back")
	default:
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.write(gone, func(x *tx) error {
		_, err := x.insert("INSERT INTO projects (name, created_ms) VALUES ('x', 1)")
		return err
	})
	if !errors.Is(err, context.Canceled) || countRows(t, s, "SELECT count(*) FROM projects") != 0 {
		t.Errorf("a caller who had given up: %v", err)
	}
}

// TestReadersCannotWrite: what is meant to read gets an error from SQLite itself.
func TestReadersCannotWrite(t *testing.T) {
	s := openTestStore(t)
	err := s.read(t.Context(), func(c *conn) error {
		_, err := c.exec("INSERT INTO projects (name, created_ms) VALUES ('x', 1)")
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "readonly") {
		t.Errorf("a reader wrote: %v", err)
	}
	if err := s.read(t.Context(), func(c *conn) error { return nil }); err != nil {
		t.Errorf("the connection is spoiled: %v", err)
	}
}

// TestSameStatementNested: a statement may run again while its own rows are being read.
func TestSameStatementNested(t *testing.T) {
	s := openTestStore(t)
	if err := s.write(t.Context(), func(x *tx) error {
		for _, n := range []string{"a", "b", "c"} {
			if _, err := x.insert("INSERT INTO projects (name, created_ms) VALUES (?, 1)", n); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	pairs := 0
	const q = "SELECT name FROM projects WHERE name >= ? ORDER BY name"
	if err := s.read(t.Context(), func(c *conn) error {
		return c.each(q, []any{"a"}, func(get func(...any) error) error {
			var outer string
			if err := get(&outer); err != nil {
				return err
			}
			return c.each(q, []any{outer}, func(func(...any) error) error { pairs++; return nil })
		})
	}); err != nil {
		t.Fatal(err)
	}
	if pairs != 6 {
		t.Errorf("%d pairs, want 6", pairs)
	}
}

// TestSlotInvariants: SQLite itself refuses a slot for two runs and a run on two nodes.
func TestSlotInvariants(t *testing.T) {
	s := openTestStore(t)
	setup := func(x *tx) error {
		for _, q := range []string{
			"INSERT INTO projects (id, name, created_ms) VALUES (1, 'p', 1)",
			"INSERT INTO nodes (id, uid, name, fingerprint, last_seen_ms, created_ms) VALUES (1, 'a', 'a', '{}', 1, 1), (2, 'b', 'b', '{}', 1, 1)",
			"INSERT INTO slots (id, node_id, lane, idx, uuid) VALUES (1, 1, 'gpu', 0, 'u0'), (2, 1, 'gpu', 1, 'u1'), (3, 2, 'gpu', 0, 'u2')",
			`INSERT INTO runs (id, uid, source, name, node_id, state, project_id) VALUES (1, 'r1', 'observe', 'r1', 1, 'ALIVE', 1),
				(2, 'r2', 'observe', 'r2', 1, 'ALIVE', 1)`,
			"UPDATE slots SET run_id = 1, held_ms = 1 WHERE id = 1",
		} {
			if _, err := x.exec(q); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.write(t.Context(), setup); err != nil {
		t.Fatal(err)
	}
	for q, want := range map[string]string{
		"UPDATE slots SET run_id = 2 WHERE id = 1":              "held by another run",
		"UPDATE slots SET run_id = 1, held_ms = 1 WHERE id = 3": "two nodes",
		"UPDATE slots SET run_id = NULL WHERE id = 1":           "CHECK",
	} {
		err := s.write(t.Context(), func(x *tx) error { _, err := x.exec(q); return err })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", q, err, want)
		}
	}
}

// Whoever starts on a damaged file is told what to do.
func TestDamagedDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpuctl.db")
	if err := os.WriteFile(path, bytes.Repeat([]byte("garbage "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := openStore(t.Context(), path, newHub())
	if p, ok := asProblem(err); !ok || p.Hint == "" || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
}
