package main

// Tokens over HTTP: list, make, revoke, and who am I.

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

func (s *server) getTokens(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	var tokens []tokenView
	if err := s.store.read(r.Context(), func(c *conn) (err error) {
		tokens, err = listTokens(c, nil)
		return err
	}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, list[tokenView]{Items: tokens})
}

func (s *server) postToken(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	var req tokenRequest
	if err := decodeJSON(r, bodyMaxBytes, &req); err != nil {
		return err
	}
	if err := checkName("name", req.Name); err != nil {
		return err
	}
	switch {
	case !slices.Contains(tokenScopes, req.Scope):
		return newProblem(codeInvalid, "one of "+strings.Join(tokenScopes, ", "), "scope is %q", req.Scope)
	case req.Expires < 0 || req.Expires > timeMostS:
		return newProblem(codeInvalid, "seconds from now; 0 or left out = never", "expires_s is %g", req.Expires)
	}
	var view tokenView
	status, err := s.writeAs(r, func(t *tx) (int, error) {
		var expires *int64
		if req.Expires > 0 {
			ms := t.now.Add(time.Duration(req.Expires * float64(time.Second))).UnixMilli()
			expires = &ms
		}
		id, text, err := mintTokenTx(t, req.Name, req.Scope, nil, expires)
		if err != nil {
			return 0, err
		}
		view, err = readToken(t.conn, id)
		view.Token = text
		return http.StatusCreated, err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, status, view)
}

func (s *server) deleteToken(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	id, ok := refDigits(r.PathValue("id"))
	if !ok {
		return newProblem(codeNotFound, "gpuctl token list", "%q is not the number of a token", r.PathValue("id"))
	}
	var view tokenView
	status, err := s.writeAs(r, func(t *tx) (int, error) {
		err := revokeTokenTx(t, id)
		if err == nil {
			view, err = readToken(t.conn, id)
		}
		return http.StatusOK, err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, status, view)
}

func (s *server) getWhoami(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	who := callerOf(r)
	me := whoami{Name: who.name, Scope: who.scope, CanWrite: scopeAllows(who.scope, scopeWrite)}
	if who.nodeID != nil {
		if err := s.store.read(r.Context(), func(c *conn) error {
			_, err := c.one("SELECT name FROM nodes WHERE id = ?", []any{*who.nodeID}, &me.Node)
			return err
		}); err != nil {
			return err
		}
	}
	return writeJSON(w, http.StatusOK, me)
}
