package main

// A second machine over HTTP: the code that lets it in, and the exchange of the code for a token of its own. What the token is worth is
// decided by the doors of the agent.

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

const (
	joinMaxBytes = 4 << 10
	joinAgain    = "on the server: gpuctl node join"
)

// postJoinCode makes a code. A server that only its own machine reaches has no use for one, unless the asker knows a way to it.
func (s *server) postJoinCode(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	var q joinCodeRequest
	if err := decodeOptionalJSON(r, joinMaxBytes, &q); err != nil {
		return err
	}
	var out oneTimeCode
	switch {
	case q.URL != "":
		u, err := parseBase(q.URL)
		if err != nil {
			return newProblem(codeInvalid, "write it like http://gpu1:8600", "url: %v", err)
		}
		out.URLs = []string{u.String()}
	case !beyondLoopback(s.cfg.Host):
		return newProblem(codeWrongState,
			"host: 0.0.0.0 (or this machine's address) in "+serverYAML+", then restart it; through an ssh tunnel or a proxy: gpuctl node join --url URL",
			"node join on a loopback server: no other machine reaches %s", s.cfg.Host)
	default:
		out.URLs = outsideURLs(s.cfg.Host, s.cfg.PublicHost, s.port())
	}
	status, err := s.writeAs(r, func(t *tx) (_ int, err error) {
		out.Code, out.ExpiresMS, err = makeCodeTx(t, codeForJoin, scopeAgent, callerOf(r).name)
		return http.StatusCreated, err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, status, out)
}

// port is where the server listens.
func (s *server) port() int {
	if u, err := parseBase(s.baseURL); err == nil {
		if n, err := strconv.Atoi(u.Port()); err == nil {
			return n
		}
	}
	return s.cfg.Port
}

// agentJoin takes a code, once, and answers a new token. It is bound to the machine by that machine's first hello.
func (s *server) agentJoin(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	var q joinRequest
	if err := decodeJSON(r, joinMaxBytes, &q); err != nil {
		return err
	}
	if err := checkName("name", q.Name); err != nil {
		return err
	}
	if err := s.store.read(r.Context(), func(c *conn) error {
		return checkCode(c, codeForJoin, q.Code, joinAgain, time.Now().UnixMilli())
	}); err != nil {
		return err
	}
	var out joinAnswer
	// A code that was taken is exchanged, whether or not somebody waits for the answer.
	status, err := s.writeAs(r.WithContext(context.WithoutCancel(r.Context())), func(t *tx) (int, error) {
		scope, madeBy, err := useCodeTx(t, codeForJoin, q.Code, joinAgain)
		if err != nil {
			return 0, err
		}
		exchangeOf(r).caller.name = "join code of " + madeBy // for the audit
		if out.Name, err = freeTokenName(t.conn, q.Name); err != nil {
			return 0, err
		}
		_, out.Token, err = mintTokenTx(t, out.Name, scope, nil, nil)
		return http.StatusCreated, err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, status, out)
}
