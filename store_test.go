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
		"UPDATE slots SET run_id = 2 WHERE id = 1":                                                       "held by another run",
		"UPDATE slots SET run_id = 1, held_ms = 1 WHERE id = 3":                                          "two nodes",
		"UPDATE slots SET run_id = NULL WHERE id = 1":                                                    "CHECK",
		"UPDATE slots SET node_id = 2 WHERE id = 1":                                                      "stays on its node",
		"UPDATE runs SET node_id = 2 WHERE id = 1":                                                       "stays on its node",
		"INSERT INTO slots (node_id, lane, idx, uuid, run_id, held_ms) VALUES (2, 'gpu', 1, 'u3', 1, 1)": "made free",
	} {
		err := s.write(t.Context(), func(x *tx) error { _, err := x.exec(q); return err })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", q, err, want)
		}
	}
}

// TestRowInvariants: what the rest of the program takes for granted is refused by SQLite itself, whoever writes it.
func TestRowInvariants(t *testing.T) {
	s := openTestStore(t)
	job := func(id, run, project, experiment string) string {
		return "INSERT INTO jobs (id, uid, name, state, state_ms, argv, working_dir, gpus, project_id, experiment_id, submitted_by, created_ms, run_id) VALUES (" +
			id + ", 'j" + id + "', 'j', " + map[bool]string{true: "'QUEUED'", false: "'RUNNING'"}[run == "NULL"] + ", 1, '[]', '/', 0, " + project + ", " +
			experiment + ", 'p', 1, " + run + ")"
	}
	run := func(id, job, state, attempt string) string {
		return "INSERT INTO runs (id, uid, job_id, attempt, source, name, node_id, state, project_id) VALUES (" + id + ", 'r" + id + "', " + job + ", " +
			attempt + ", 'job', 'r', 1, '" + state + "', 1)"
	}
	if err := s.write(t.Context(), func(x *tx) error {
		for _, q := range []string{
			"INSERT INTO projects (id, name, created_ms) VALUES (1, 'p', 1), (2, 'q', 1)",
			"INSERT INTO experiments (id, project_id, name, created_ms) VALUES (1, 1, 'e', 1)",
			"INSERT INTO nodes (id, uid, name, fingerprint, last_seen_ms, created_ms) VALUES (1, 'a', 'a', '{}', 1, 1)",
			job("1", "NULL", "1", "1"), job("2", "NULL", "1", "NULL"), run("1", "1", "ALIVE", "1"),
		} {
			if _, err := x.exec(q); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	command := "INSERT INTO commands (node_id, kind, run_id, payload, created_ms, state, closed_ms) VALUES (1, 'stop', 1, '{}', 1, "
	cursor := "INSERT INTO cursors (source, kind, owner, updated_ms, run_id, off, incomplete) VALUES ("
	for q, want := range map[string]string{
		job("3", "1", "1", "NULL"):                                                                    "FOREIGN KEY", // the run of another job
		"UPDATE jobs SET state = 'RUNNING', run_id = 1 WHERE id = 2":                                  "FOREIGN KEY",
		job("3", "NULL", "2", "1"):                                                                    "FOREIGN KEY", // an experiment of another project
		run("2", "2", "ALIVE", "NULL"):                                                                "CHECK",       // granted, without an attempt
		"UPDATE runs SET job_id = 2 WHERE id = 1":                                                     "of its job",
		"UPDATE runs SET sealed_ms = 1 WHERE id = 1":                                                  "CHECK",
		command + "'done', NULL)":                                                                     "CHECK",
		command + "'open', 1)":                                                                        "CHECK",
		cursor + "'log-a', 'log', 'node:1', 1, NULL, 0, 0)":                                           "CHECK",
		cursor + "'log-a', 'facts', 'node:1', 1, NULL, 0, 0)":                                         "CHECK",
		cursor + "'facts-a', 'facts', 'node:1', 1, NULL, -1, 0)":                                      "CHECK",
		cursor + "'facts-a', 'facts', 'node:1', 1, NULL, 0, 1)":                                       "CHECK",
		"INSERT INTO tokens (name, scope, hash, node_id, created_ms) VALUES ('t', 'read', 'h', 1, 1)": "CHECK",
	} {
		err := s.write(t.Context(), func(x *tx) error { _, err := x.exec(q); return err })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", q, err, want)
		}
	}
}

// TestDatabaseIsClosedToOthers: environments of jobs stand in the WAL, and data_dir may be a folder that others can read.
func TestDatabaseIsClosedToOthers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "gpuctl.db")
	for range 2 { // the second start finds a database
		s, err := openStore(t.Context(), path, newHub())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.write(t.Context(), func(x *tx) error {
			_, err := x.exec("INSERT INTO projects (name, created_ms) VALUES (?, 1)", newUID())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if n := countRows(t, s, "SELECT count(*) FROM projects"); n == 0 {
			t.Error("no rows")
		}
		for _, end := range []string{"", "-wal", "-shm"} {
			if st, err := os.Stat(path + end); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("gpuctl.db%s: %v %v", end, st.Mode(), err)
			}
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
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
