package main

// Tokens of pages: what a browser keeps after a login. Each comes from a token of a person, reaches no further than that one, and ends
// with it.

import (
	"fmt"
	"time"
)

// pageTokenLife is how long a page stays logged in. A month: short of the token it came from, long enough for a phone that is looked at
// now and then.
const pageTokenLife = 30 * 24 * time.Hour

// mintPageTokenTx makes a token of a page's own out of the token parentID: scope read of a read token, write of a write or admin one; it
// expires with its parent at the latest. Page tokens that have been over for a day are cleared away.
func mintPageTokenTx(t *tx, parentID int64) (id int64, a loginAnswer, err error) {
	if _, err := t.exec("DELETE FROM tokens WHERE parent_id IS NOT NULL AND expires_ms < ?", t.nowMS-24*time.Hour.Milliseconds()); err != nil {
		return 0, a, err
	}
	var name string
	var expires, revoked *int64
	if _, err := t.one("SELECT name, scope, expires_ms, revoked_ms FROM tokens WHERE id = ?", []any{parentID}, &name, &a.Scope, &expires, &revoked); err != nil {
		return 0, a, err
	}
	if err := stillGood(name, a.Scope, expires, revoked, t.nowMS); err != nil {
		return 0, a, err
	}
	if !scopeAllows(a.Scope, scopeRead) {
		return 0, a, newProblem(codeForbidden, "use a token of scope read or write: gpuctl token create", "a token of scope %s is not for a person", a.Scope)
	}
	if a.Scope == scopeAdmin {
		a.Scope = scopeWrite
	}
	if a.Name, err = pageTokenNameTx(t, parentID); err != nil {
		return 0, a, err
	}
	a.ExpiresMS = t.nowMS + pageTokenLife.Milliseconds()
	if expires != nil {
		a.ExpiresMS = min(a.ExpiresMS, *expires)
	}
	if id, a.Token, err = mintTokenTx(t, a.Name, a.Scope, nil, &a.ExpiresMS); err != nil {
		return 0, a, err
	}
	_, err = t.exec("UPDATE tokens SET parent_id = ? WHERE id = ?", parentID, id)
	return id, a, err
}

// pageTokenNameTx names the next page token after the person's token that it comes from in the end.
func pageTokenNameTx(t *tx, parentID int64) (string, error) {
	var n int64
	var person string
	if _, err := t.one("SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'tokens'", nil, &n); err != nil {
		return "", err
	}
	if _, err := t.one(`WITH RECURSIVE up (parent_id, name) AS (SELECT parent_id, name FROM tokens WHERE id = ?
		UNION ALL SELECT k.parent_id, k.name FROM tokens k JOIN up ON k.id = up.parent_id)
		SELECT name FROM up WHERE parent_id IS NULL`, []any{parentID}, &person); err != nil {
		return "", err
	}
	for ; ; n++ { // somebody may have named a token like this by hand
		name := fmt.Sprintf("page %d of %s", n, person)
		taken, err := t.one("SELECT 1 FROM tokens WHERE name = ?", []any{name}, new(int64))
		if err != nil || !taken {
			return name, err
		}
	}
}

// codeExists reports whether there is such a code at all, used or not: what was made up does not get as far as the writer.
func codeExists(c *conn, kind, code string) (bool, error) {
	return c.one("SELECT 1 FROM codes WHERE hash = ? AND kind = ?", []any{tokenHash(code), kind}, new(int64))
}

// tokenNamedTx finds a token by its name, which is never given twice.
func tokenNamedTx(t *tx, name string) (id int64, found bool, err error) {
	found, err = t.one("SELECT id FROM tokens WHERE name = ?", []any{name}, &id)
	return id, found, err
}

// endPageTokenTx revokes a page token, and only such a one.
func endPageTokenTx(t *tx, id int64) error {
	n, err := t.exec("UPDATE tokens SET revoked_ms = ? WHERE id = ? AND parent_id IS NOT NULL AND revoked_ms IS NULL", t.nowMS, id)
	if err == nil && n == 0 {
		err = newProblem(codeWrongState, "gpuctl token revoke", "this token belongs to no page")
	}
	return err
}
