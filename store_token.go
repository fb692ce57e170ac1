package main

// Tokens: making them. The database keeps the SHA-256 of the whole text; the text is shown once.

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// tokenHash is what the database keeps of a token.
func tokenHash(token string) string {
	h := sha256.Sum256([]byte(token))
	return hex.EncodeToString(h[:])
}

// mintTokenTx makes a token gpc_<scope>_<id>_<43 characters>. A name that exists is the problem conflict.
func mintTokenTx(t *tx, name, scope string, nodeID *int64, expiresMS *int64) (id int64, token string, err error) {
	taken, err := t.one("SELECT 1 FROM tokens WHERE name = ?", []any{name}, new(int64))
	if err != nil {
		return 0, "", err
	}
	if taken {
		return 0, "", newProblem(codeConflict, "choose another name, or revoke the old one", "there is a token %q already", name)
	}
	id, err = t.insert("INSERT INTO tokens (name, scope, hash, node_id, created_ms, expires_ms) VALUES (?,?,?,?,?,?)",
		name, scope, newSecret(), nodeID, t.nowMS, expiresMS) // the hash needs the id
	if err != nil {
		return 0, "", fmt.Errorf("make token %s: %w", name, err)
	}
	token = fmt.Sprintf("gpc_%s_%d_%s", scope, id, newSecret())
	if _, err := t.exec("UPDATE tokens SET hash = ? WHERE id = ?", tokenHash(token), id); err != nil {
		return 0, "", fmt.Errorf("make token %s: %w", name, err)
	}
	return id, token, nil
}

// freeTokenName makes a name unique among tokens, the revoked ones too: gpu1, gpu1-2, gpu1-3, ...
func freeTokenName(c *conn, want string) (string, error) {
	for i := 1; ; i++ {
		name := want
		if i > 1 {
			name = fmt.Sprintf("%s-%d", want, i)
		}
		taken, err := c.one("SELECT 1 FROM tokens WHERE name = ?", []any{name}, new(int64))
		if err != nil || !taken {
			return name, err
		}
	}
}

// ensureTokenTx makes sure that a token kept in a file of the server works: known as it is, put back after a restore, or, with text "",
// minted. An older secret under the same name is replaced. It returns the text.
func ensureTokenTx(t *tx, name, scope, text string) (string, error) {
	if text == "" {
		var id int64
		found, err := t.one("SELECT id FROM tokens WHERE name = ?", []any{name}, &id)
		if err != nil {
			return "", err
		}
		if !found {
			_, text, err = mintTokenTx(t, name, scope, nil, nil)
			return text, err
		}
		text = fmt.Sprintf("gpc_%s_%d_%s", scope, id, newSecret())
	}
	hash := tokenHash(text)
	known, err := t.one("SELECT 1 FROM tokens WHERE hash = ?", []any{hash}, new(int64))
	if err != nil || known {
		return text, err
	}
	n, err := t.exec("UPDATE tokens SET hash = ?, scope = ?, revoked_ms = NULL, expires_ms = NULL WHERE name = ?", hash, scope, name)
	if err != nil || n > 0 {
		return text, err
	}
	return text, insertTokenTx(t, tokenID(text), name, scope, hash, nil)
}

// restoreTokenTx puts an agent's token back that only the incarnation file knows.
func restoreTokenTx(t *tx, k incarnationToken, nodeID int64) error {
	known, err := t.one("SELECT 1 FROM tokens WHERE hash = ?", []any{k.Hash}, new(int64))
	if err != nil || known {
		return err
	}
	name := k.Name
	if taken, err := t.one("SELECT 1 FROM tokens WHERE name = ?", []any{name}, new(int64)); err != nil {
		return err
	} else if taken {
		name = fmt.Sprintf("%s (restored %s)", k.Name, k.Hash[:min(8, len(k.Hash))])
	}
	return insertTokenTx(t, k.ID, name, scopeAgent, k.Hash, &nodeID)
}

// insertTokenTx inserts a token whose text exists already, under its own number when that is free.
func insertTokenTx(t *tx, id int64, name, scope, hash string, nodeID *int64) error {
	var want *int64
	if id > 0 {
		taken, err := t.one("SELECT 1 FROM tokens WHERE id = ?", []any{id}, new(int64))
		if err != nil {
			return err
		}
		if !taken {
			want = &id
		}
	}
	_, err := t.exec("INSERT INTO tokens (id, name, scope, hash, node_id, created_ms) VALUES (?,?,?,?,?,?)", want, name, scope, hash, nodeID, t.nowMS)
	if err != nil {
		return fmt.Errorf("put token %s back: %w", name, err)
	}
	return nil
}

// tokenID is the number that stands in a token's text, 0 when there is none.
func tokenID(token string) int64 {
	parts := strings.SplitN(token, "_", 4)
	if len(parts) != 4 {
		return 0
	}
	id, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return 0
	}
	return id
}
