package main

// The one error type that leaves the program: over HTTP as application/problem+json, on the CLI as two lines. The table of codes is
// closed; docs/errors.md is rendered from it by a test. Anything that is not a problem becomes "internal" at the door.

import (
	"errors"
	"fmt"
)

// problem is an error somebody can act on. It is sent as application/problem+json (RFC 9457) and decoded back by the client.
type problem struct {
	Code      string `json:"code"`
	Status    int    `json:"status"`
	Title     string `json:"title"`
	Type      string `json:"type"`
	Detail    string `json:"detail,omitempty"`
	Hint      string `json:"hint,omitempty"`
	RequestID string `json:"request_id,omitempty"`
}

func (p *problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return p.Title
}

// Codes.
const (
	codeBadJSON         = "bad_json"
	codeUnknownField    = "unknown_field"
	codeInvalid         = "invalid"
	codeUsage           = "usage"
	codeUnauthorized    = "unauthorized"
	codeWriteScope      = "write_scope"
	codeForbidden       = "forbidden"
	codeNotFound        = "not_found"
	codeAmbiguous       = "ambiguous"
	codeWrongState      = "wrong_state"
	codeConflict        = "conflict"
	codeSession         = "session_conflict"
	codeClone           = "clone_suspected"
	codeTooLarge        = "too_large"
	codeMediaType       = "media_type"
	codeMethod          = "method_not_allowed"
	codeHost            = "host_not_allowed"
	codeCrossOrigin     = "cross_origin"
	codeRateLimited     = "rate_limited"
	codeTimeout         = "timeout"
	codeNodeUnreachable = "node_unreachable"
	codeUnavailable     = "unavailable"
	codeStorageFull     = "storage_full"
	codeUnreachable     = "unreachable"
	codeNotOurServer    = "not_our_server"
	codeInterrupted     = "interrupted"
	codeRange           = "range"
	codeInternal        = "internal"
)

// problemKind is one row of the table: code, HTTP status, CLI exit code, title, and what it means in a sentence.
type problemKind struct {
	code   string
	status int
	exit   int
	title  string
	means  string
}

var problemKinds = []problemKind{
	{codeBadJSON, 400, 2, "Bad JSON", "The body is not JSON, or a field has the wrong type; the detail says where."},
	{codeUnknownField, 400, 2, "Unknown field", "The body has a field that this route does not know."},
	{codeInvalid, 422, 2, "Invalid value", "A value is out of range or does not fit the others."},
	{codeUsage, 400, 2, "Wrong usage", "The command line or the query is not understood."},
	{codeUnauthorized, 401, 4, "Not authorized", "No token, or one that is unknown, expired or revoked."},
	{codeWriteScope, 403, 4, "WriteScopeError", "The token may read; this needs one that may write."},
	{codeForbidden, 403, 4, "Forbidden", "The token's scope does not cover this route."},
	{codeNotFound, 404, 3, "Not found", "There is no such thing, or no such route."},
	{codeAmbiguous, 409, 3, "Ambiguous", "The name fits more than one; the detail lists them."},
	{codeWrongState, 409, 6, "Not in this state", "The job or run is in a state in which this cannot be done."},
	{codeConflict, 409, 6, "Conflict", "The request contradicts an earlier one, as a reused idempotency key with another body."},
	{codeSession, 409, 6, "Another agent has this identity", "A newer instance of this node's agent is known; an older one must stop."},
	{codeClone, 409, 6, "CLONE_SUSPECTED", "The machine differs from the one that this node was; accept the move or give the agent a new folder."},
	{codeTooLarge, 413, 2, "Too large", "The body is over the limit of this route."},
	{codeMediaType, 415, 2, "Wrong content type", "The route takes another Content-Type."},
	{codeMethod, 405, 2, "Method not allowed", "The path exists, with other methods."},
	{codeHost, 421, 4, "Host not allowed", "The Host header names no address of this server; set public_host."},
	{codeCrossOrigin, 403, 4, "Cross-origin request refused", "A browser sent this from another site."},
	{codeRange, 416, 2, "Range not satisfiable", "The range lies outside of the file."},
	{codeRateLimited, 429, 5, "Too many requests", "Wait as long as Retry-After says."},
	{codeTimeout, 504, 124, "Timed out", "What was waited for did not come in time."},
	{codeNodeUnreachable, 503, 5, "Node unreachable", "The agent of that node does not answer; what it holds can be read when it is back."},
	{codeUnavailable, 503, 5, "Unavailable", "The server cannot do this now; try again."},
	{codeStorageFull, 507, 5, "Storage full", "The server's disk is full; nothing was stored."},
	{codeUnreachable, 503, 5, "Server unreachable", "No connection to the server."},
	{codeNotOurServer, 502, 5, "Not our server", "Something answered, but it is not a gpuctl server (a proxy or portal?)."},
	{codeInterrupted, 499, 130, "Interrupted", "Stopped by a signal."},
	{codeInternal, 500, 1, "Internal error", "A fault of ours; the request id leads to the line in the server's log."},
}

// kindOf finds the row of a code; an unknown code reads as internal.
func kindOf(code string) problemKind {
	for _, k := range problemKinds {
		if k.code == code {
			return k
		}
	}
	return problemKind{code: codeInternal, status: 500, exit: 1, title: "Internal error"}
}

// newProblem builds a problem of a code with a detail; hint says what to do next and may be empty.
func newProblem(code, hint, detail string, args ...any) *problem {
	k := kindOf(code)
	if len(args) > 0 {
		detail = fmt.Sprintf(detail, args...)
	}
	return &problem{Code: k.code, Status: k.status, Title: k.title, Type: "about:blank#" + k.code, Detail: detail, Hint: hint}
}

// asProblem finds a problem in an error chain.
func asProblem(err error) (*problem, bool) {
	return errors.AsType[*problem](err)
}

// exitCode is what the CLI ends with for an error: 0 for nil, the table's code for a problem, 1 for anything else.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if p, ok := asProblem(err); ok {
		return kindOf(p.Code).exit
	}
	return 1
}
