package main

// schema.sql is the whole present schema and the documentation of it; the migrations must lead to exactly the same.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readSchema lists every table, index and trigger as "type name sql", without comments and with white space made one.
func readSchema(t *testing.T, c *conn) []string {
	t.Helper()
	comment := regexp.MustCompile(`--[^\n]*`)
	space := regexp.MustCompile(`\s+`)
	tight := regexp.MustCompile(` ?([(),]) ?`)
	var got []string
	err := c.each("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name", nil,
		func(get func(...any) error) error {
			var kind, name, sql string
			if err := get(&kind, &name, &sql); err != nil {
				return err
			}
			sql = tight.ReplaceAllString(space.ReplaceAllString(comment.ReplaceAllString(sql, ""), " "), "$1")
			got = append(got, kind+" "+name+": "+strings.TrimSpace(sql))
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSchemaMatchesMigrations(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(context.Background(), filepath.Join(dir, "migrated.db"), newHub())
	if err != nil {
		t.Fatal(err)
	}
	migrated := readSchema(t, s.writer)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	c, err := openConn(context.Background(), filepath.Join(dir, "fresh.db"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	text, err := os.ReadFile("schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.db.Exec(string(text)); err != nil {
		t.Fatalf("schema.sql: %v", err)
	}
	fresh := readSchema(t, c)
	if len(fresh) < 20 {
		t.Fatalf("schema.sql made only %d things", len(fresh))
	}
	for _, x := range fresh {
		if !slices.Contains(migrated, x) {
			t.Errorf("only in schema.sql: %s", x)
		}
	}
	for _, x := range migrated {
		if !slices.Contains(fresh, x) {
			t.Errorf("only after the migrations: %s", x)
		}
	}
}

func TestSchemaTablesAreStrict(t *testing.T) {
	s, err := openStore(context.Background(), filepath.Join(t.TempDir(), "gpuctl.db"), newHub())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	err = s.writer.each("SELECT name, strict FROM pragma_table_list WHERE type = 'table' AND name NOT LIKE 'sqlite_%'", nil,
		func(get func(...any) error) error {
			var name string
			var strict bool
			if err := get(&name, &strict); err != nil {
				return err
			}
			if !strict {
				t.Errorf("table %s is not STRICT", name)
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSchemaNewerIsRefused: a database of a newer gpuctl is left alone, and the error says what to do.
func TestSchemaNewerIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpuctl.db")
	s, err := openStore(context.Background(), path, newHub())
	if err != nil {
		t.Fatal(err)
	}
	var have int
	if _, err := s.writer.one("PRAGMA user_version", nil, &have); err != nil {
		t.Fatal(err)
	}
	if have < 1 {
		t.Fatalf("user_version %d after the migrations", have)
	}
	if _, err := s.writer.exec(fmt.Sprintf("PRAGMA user_version = %d", have+1)); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	s, err = openStore(context.Background(), path, newHub())
	if err == nil {
		t.Fatal(s.close(), "a newer schema was opened")
	}
	p, ok := asProblem(err)
	if !ok || p.Hint == "" || !strings.Contains(p.Detail, fmt.Sprint(have+1)) {
		t.Errorf("got %v, want a problem that names schema %d and has a hint", err, have+1)
	}
}
