package main

// Stand-in for the doors until they are merged; not a part of the product.

import (
	"context"
	"encoding/json"
	"net/http"
)

type callerKey struct{}

func callerOf(r *http.Request) caller {
	c, _ := r.Context().Value(callerKey{}).(caller)
	return c
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}

func decodeJSON(r *http.Request, max int64, v any) error {
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, max))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return newProblem(codeBadJSON, "", "%v", err)
	}
	return nil
}

func newHandler(s *server) http.Handler {
	mux := http.NewServeMux()
	for _, rt := range agentRoutes {
		mux.HandleFunc(rt.pattern, func(w http.ResponseWriter, r *http.Request) {
			var c caller
			err := s.store.read(r.Context(), func(db *conn) error {
				_, err := db.one("SELECT id, name, scope, node_id FROM tokens WHERE hash = ?", []any{tokenHash(r.Header.Get(headerToken))}, &c.tokenID, &c.name, &c.scope, &c.nodeID)
				return err
			})
			if err == nil && !scopeAllows(c.scope, rt.scope) {
				err = newProblem(codeForbidden, "", "scope %q", c.scope)
			}
			if err == nil {
				err = rt.handle(s, w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
			}
			if err != nil {
				p, ok := asProblem(err)
				if !ok {
					p = newProblem(codeInternal, "", "%v", err)
				}
				if err := writeJSON(w, p.Status, p); err != nil {
					s.log.Error("answer", keyErr, err)
				}
			}
		})
	}
	return mux
}
