package main

// Tokens as they are listed, and their revocation. A secret is never here.

// listTokens reads all tokens, oldest first.
func listTokens(c *conn, id *int64) ([]tokenView, error) {
	tokens := []tokenView{}
	err := c.each(`SELECT t.id, t.name, t.scope, n.name, t.created_ms, t.last_used_ms, t.expires_ms, t.revoked_ms
		FROM tokens t LEFT JOIN nodes n ON n.id = t.node_id WHERE ?1 IS NULL OR t.id = ?1 ORDER BY t.id`, []any{id}, func(get func(...any) error) error {
		var v tokenView
		if err := get(&v.ID, &v.Name, &v.Scope, &v.Node, &v.CreatedMS, &v.LastUsedMS, &v.ExpiresMS, &v.RevokedMS); err != nil {
			return err
		}
		tokens = append(tokens, v)
		return nil
	})
	return tokens, err
}

// readToken reads one token.
func readToken(c *conn, id int64) (tokenView, error) {
	tokens, err := listTokens(c, &id)
	if err == nil && len(tokens) == 0 {
		err = newProblem(codeNotFound, "gpuctl token list", "there is no token %d", id)
	}
	if err != nil {
		return tokenView{}, err
	}
	return tokens[0], nil
}

// revokeTokenTx ends a token and the page tokens that came from it. A second time changes nothing. The last admin token stays: nobody could make another.
func revokeTokenTx(t *tx, id int64) error {
	v, err := readToken(t.conn, id)
	if err != nil || v.RevokedMS != nil {
		return err
	}
	if v.Scope == scopeAdmin {
		var others int64
		if _, err := t.one("SELECT count(*) FROM tokens WHERE scope = 'admin' AND id <> ? AND revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > ?)",
			[]any{id, t.nowMS}, &others); err != nil {
			return err
		}
		if others == 0 {
			return newProblem(codeWrongState, "make another admin token first: gpuctl token create --scope admin", "%s is the last admin token", v.Name)
		}
	}
	_, err = t.exec(`WITH RECURSIVE down (id) AS (SELECT ?1 UNION SELECT k.id FROM tokens k JOIN down ON k.parent_id = down.id)
		UPDATE tokens SET revoked_ms = ?2 WHERE id IN (SELECT id FROM down) AND revoked_ms IS NULL`, id, t.nowMS)
	return err
}
