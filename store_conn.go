package main

// One SQLite connection with its prepared statements: exec, each, one. The only file that binds and scans values.
// It knows no table. A connection is used by one goroutine at a time.

import (
	"context"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"
)

// conn is a connection to gpuctl.db. Statements are prepared once per SQL text and kept.
type conn struct {
	db    *sqlite3.Conn
	stmts map[string]*sqlite3.Stmt
}

// openConn opens path with the pragmas of DESIGN section 3, busy_timeout first: the other order made 85 of 180 opens fail.
func openConn(ctx context.Context, path string, readOnly bool) (*conn, error) {
	db, err := sqlite3.OpenContext(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	pragmas := `PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
		PRAGMA journal_size_limit = 67108864; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;`
	if readOnly {
		pragmas += "PRAGMA query_only = ON;"
	}
	if err := db.Exec(pragmas); err != nil {
		return nil, errors.Join(fmt.Errorf("set pragmas of %s: %w", path, err), db.Close())
	}
	return &conn{db: db, stmts: map[string]*sqlite3.Stmt{}}, nil
}

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.db.Close())...)
}

// stmt gives the prepared statement of q with args bound, and a function that gives it back.
func (c *conn) stmt(q string, args []any) (*sqlite3.Stmt, func() error, error) {
	s := c.stmts[q]
	kept := s != nil
	if s == nil || s.Busy() { // busy: the same text is being stepped further up the call stack
		n, tail, err := c.db.Prepare(q)
		if err != nil {
			return nil, nil, fmt.Errorf("prepare %.60q: %w", q, err)
		}
		if tail != "" || n == nil {
			return nil, nil, fmt.Errorf("prepare %.60q: one statement expected", q)
		}
		if !kept {
			c.stmts[q] = n
		}
		s, kept = n, !kept
	}
	if len(args) != s.BindCount() {
		return nil, nil, fmt.Errorf("%.60q: %d arguments for %d parameters", q, len(args), s.BindCount())
	}
	for i, a := range args {
		if err := bind(s, i+1, a); err != nil {
			return nil, nil, fmt.Errorf("bind %d of %.60q: %w", i+1, q, err)
		}
	}
	done := func() error {
		if !kept {
			return s.Close()
		}
		return errors.Join(s.Reset(), s.ClearBindings())
	}
	return s, done, nil
}

// bind takes nil, bool, int, int64, float64, string, []byte and pointers to int64, float64, string (nil pointer = NULL).
// A NaN is stored as NULL by SQLite.
func bind(s *sqlite3.Stmt, i int, a any) error {
	switch v := a.(type) {
	case nil:
		return s.BindNull(i)
	case bool:
		return s.BindBool(i, v)
	case int:
		return s.BindInt64(i, int64(v))
	case int64:
		return s.BindInt64(i, v)
	case float64:
		return s.BindFloat(i, v)
	case string:
		return s.BindText(i, v)
	case []byte:
		return s.BindBlob(i, v)
	case *int64:
		if v == nil {
			return s.BindNull(i)
		}
		return s.BindInt64(i, *v)
	case *float64:
		if v == nil {
			return s.BindNull(i)
		}
		return s.BindFloat(i, *v)
	case *string:
		if v == nil {
			return s.BindNull(i)
		}
		return s.BindText(i, *v)
	}
	return fmt.Errorf("cannot bind a %T", a)
}

// scan reads the present row into dest: pointers to bool, int, int64, float64, string, []byte, and to *int64, *float64, *string
// (nil for NULL). NULL into a plain one gives its zero value.
func scan(s *sqlite3.Stmt, dest []any) error {
	if len(dest) != s.ColumnCount() {
		return fmt.Errorf("%d destinations for %d columns", len(dest), s.ColumnCount())
	}
	for i, d := range dest {
		null := s.ColumnType(i) == sqlite3.NULL
		switch p := d.(type) {
		case *bool:
			*p = s.ColumnBool(i)
		case *int:
			*p = s.ColumnInt(i)
		case *int64:
			*p = s.ColumnInt64(i)
		case *float64:
			*p = s.ColumnFloat(i)
		case *string:
			*p = s.ColumnText(i)
		case *[]byte:
			*p = s.ColumnBlob(i, nil)
		case **int64:
			*p = nil
			if !null {
				v := s.ColumnInt64(i)
				*p = &v
			}
		case **float64:
			*p = nil
			if !null {
				v := s.ColumnFloat(i)
				*p = &v
			}
		case **string:
			*p = nil
			if !null {
				v := s.ColumnText(i)
				*p = &v
			}
		default:
			return fmt.Errorf("cannot scan into a %T", d)
		}
	}
	return nil
}

// exec runs one statement and returns how many rows it changed.
func (c *conn) exec(q string, args ...any) (changed int64, err error) {
	s, done, err := c.stmt(q, args)
	if err != nil {
		return 0, err
	}
	before := c.db.TotalChanges()
	for s.Step() { // INSERT ... RETURNING and kin: rows are not wanted here
	}
	err = s.Err()
	if derr := done(); err == nil {
		err = derr
	}
	if err != nil {
		return 0, fmt.Errorf("%.60q: %w", q, err)
	}
	if c.db.TotalChanges() == before {
		return 0, nil
	}
	return c.db.Changes(), nil
}

// execColumns runs one statement n times. Its parameters are columns: []int64, []float64 (NaN is stored as NULL) or one int64 for all rows.
// For many rows: exec took a fifth more.
func (c *conn) execColumns(q string, n int, columns ...any) error {
	s, done, err := c.stmt(q, make([]any, len(columns)))
	if err != nil {
		return err
	}
	for i := 0; i < n && err == nil; i++ {
		for k, col := range columns {
			var berr error
			switch v := col.(type) {
			case int64:
				berr = s.BindInt64(k+1, v)
			case []int64:
				berr = s.BindInt64(k+1, v[i])
			case []float64:
				berr = s.BindFloat(k+1, v[i])
			default:
				berr = fmt.Errorf("cannot bind a %T", col)
			}
			err = errors.Join(err, berr)
		}
		if err == nil {
			err = s.Exec()
		}
	}
	if derr := done(); err == nil {
		err = derr
	}
	if err != nil {
		return fmt.Errorf("%.60q: %w", q, err)
	}
	return nil
}

// appendColumns appends the rows of a query to columns: *[]int64 or *[]float64, where NULL is NaN.
func (c *conn) appendColumns(q string, args []any, columns ...any) error {
	s, done, err := c.stmt(q, args)
	if err != nil {
		return err
	}
	for err == nil && s.Step() {
		for k, col := range columns {
			switch p := col.(type) {
			case *[]int64:
				*p = append(*p, s.ColumnInt64(k))
			case *[]float64:
				v := s.ColumnFloat(k)
				if v == 0 && s.ColumnType(k) == sqlite3.NULL {
					v = seriesNaN()
				}
				*p = append(*p, v)
			default:
				err = fmt.Errorf("cannot scan into a %T", col)
			}
		}
	}
	if err == nil {
		err = s.Err()
	}
	if derr := done(); err == nil {
		err = derr
	}
	if err != nil {
		return fmt.Errorf("%.60q: %w", q, err)
	}
	return nil
}

// each calls row for every row of a query; row gets a function that reads the row into pointers (see scan).
func (c *conn) each(q string, args []any, row func(get func(dest ...any) error) error) error {
	s, done, err := c.stmt(q, args)
	if err != nil {
		return err
	}
	get := func(dest ...any) error { return scan(s, dest) }
	for err == nil && s.Step() {
		err = row(get)
	}
	if err == nil {
		err = s.Err()
	}
	if derr := done(); err == nil {
		err = derr
	}
	if err != nil {
		return fmt.Errorf("%.60q: %w", q, err)
	}
	return nil
}

// one reads at most one row; found is false when there is none.
func (c *conn) one(q string, args []any, dest ...any) (found bool, err error) {
	s, done, err := c.stmt(q, args)
	if err != nil {
		return false, err
	}
	if s.Step() {
		found, err = true, scan(s, dest)
	}
	if err == nil {
		err = s.Err()
	}
	if derr := done(); err == nil {
		err = derr
	}
	if err != nil {
		return false, fmt.Errorf("%.60q: %w", q, err)
	}
	return found, nil
}
