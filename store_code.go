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
)

// makeCodeTx makes a code that can be exchanged for a token of scope.
func makeCodeTx(t *tx, kind, scope, madeBy string) (code string, expiresMS int64, err error) {
	if _, err := t.exec("DELETE FROM codes WHERE expires_ms < ?", t.nowMS-24*time.Hour.Milliseconds()); err != nil {
		return "", 0, err
	}
	code, expiresMS = newSecret(), t.nowMS+codeLife.Milliseconds()
	if _, err := t.exec("INSERT INTO codes (hash, kind, scope, made_by, created_ms, expires_ms) VALUES (?,?,?,?,?,?)",
		tokenHash(code), kind, scope, madeBy, t.nowMS, expiresMS); err != nil {
		return "", 0, fmt.Errorf("make a %s code: %w", kind, err)
	}
	return code, expiresMS, nil
}

// useCodeTx takes a code, once. Hint says how to get another one. Unknown, used and expired ones are the problem unauthorized.
func useCodeTx(t *tx, kind, code, hint string) (scope, madeBy string, err error) {
	n, err := t.exec("UPDATE codes SET used_ms = ? WHERE hash = ? AND kind = ? AND used_ms IS NULL AND expires_ms > ?", t.nowMS, tokenHash(code), kind, t.nowMS)
	if err != nil {
		return "", "", fmt.Errorf("take a %s code: %w", kind, err)
	}
	if n == 0 {
		return "", "", newProblem(codeUnauthorized, hint, "this code is not known, was used, or is older than %s", codeLife)
	}
	_, err = t.one("SELECT scope, made_by FROM codes WHERE hash = ?", []any{tokenHash(code)}, &scope, &madeBy)
	return scope, madeBy, err
}
