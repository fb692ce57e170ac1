package main

// One-time codes: the login link of the page, and a machine that joins. The database keeps their SHA-256; a code works once, for a while.

import (
	"fmt"
	"time"
)

// Kinds of codes, and how long they work.
const (
	codeForLogin = "login"
	codeForJoin  = "join"
	codeLife     = 10 * time.Minute

	codePrefix = "gpc_code_" // a code that began with - would read as a flag
)

// makeCodeTx makes a code that can be exchanged for a token of scope.
func makeCodeTx(t *tx, kind, scope, madeBy string) (code string, expiresMS int64, err error) {
	if _, err := t.exec("DELETE FROM codes WHERE expires_ms < ?", t.nowMS-24*time.Hour.Milliseconds()); err != nil {
		return "", 0, err
	}
	code, expiresMS = codePrefix+newSecret(), t.nowMS+codeLife.Milliseconds()
	if _, err := t.exec("INSERT INTO codes (hash, kind, scope, made_by, created_ms, expires_ms) VALUES (?,?,?,?,?,?)",
		tokenHash(code), kind, scope, madeBy, t.nowMS, expiresMS); err != nil {
		return "", 0, fmt.Errorf("make a %s code: %w", kind, err)
	}
	return code, expiresMS, nil
}

// checkCode looks whether a code would be taken, so that guesses do not reach the writer. Only useCodeTx decides.
func checkCode(c *conn, kind, code, hint string, nowMS int64) error {
	found, err := c.one("SELECT 1 FROM codes WHERE hash = ? AND kind = ? AND used_ms IS NULL AND expires_ms > ?", []any{tokenHash(code), kind, nowMS}, new(int64))
	if err == nil && !found {
		err = badCode(hint)
	}
	return err
}

func badCode(hint string) error {
	return newProblem(codeUnauthorized, hint, "this code is not known, was used, or is older than %.0f minutes", codeLife.Minutes())
}

// useCodeTx takes a code, once. Hint says how to get another one. Unknown, used and expired ones are the problem unauthorized.
func useCodeTx(t *tx, kind, code, hint string) (scope, madeBy string, err error) {
	n, err := t.exec("UPDATE codes SET used_ms = ? WHERE hash = ? AND kind = ? AND used_ms IS NULL AND expires_ms > ?", t.nowMS, tokenHash(code), kind, t.nowMS)
	if err != nil {
		return "", "", fmt.Errorf("take a %s code: %w", kind, err)
	}
	if n == 0 {
		return "", "", badCode(hint)
	}
	_, err = t.one("SELECT scope, made_by FROM codes WHERE hash = ?", []any{tokenHash(code)}, &scope, &madeBy)
	return scope, madeBy, err
}
