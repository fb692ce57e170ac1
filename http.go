package main

// HTTP: the route table, the one way from a handler to an answer, the checks before it (host, origin, token, scope, size).

import "net/http"

// route is one row of the route table: it feeds the mux, the auth check, docs and tests.
type route struct {
	pattern string // "GET /api/v1/jobs/{job}"
	scope   string // scopePublic, scopeRead, ...
	handle  func(s *server, w http.ResponseWriter, r *http.Request) error
	summary string
}

// caller is who sent a request.
type caller struct {
	tokenID int64
	name    string
	scope   string
	nodeID  *int64 // agent tokens that are bound to a node
}
