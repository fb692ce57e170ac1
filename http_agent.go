package main

// Doors of the agent: poll, claim, batch, command answers. (hello: http_agent_hello.go.) Each finds the node by the token, notes that it
// was heard, and runs one transaction. They decide nothing themselves.

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// agentRoutes is the agent's part of the route table.
func agentRoutes() []route {
	return []route{
		{"POST /api/v1/agent/join", scopePublic, (*server).agentJoin, "Exchange a join code for a token of this machine's own."},
		{"POST /api/v1/agent/hello", scopeAgent, (*server).agentHello, "Who I am, what is alive here: complete and repeatable."},
		{"GET /api/v1/agent/poll", scopeAgent, (*server).agentPoll, "What should I do: waits for a command that is not in have."},
		{"POST /api/v1/agent/claim", scopeAgent, (*server).agentClaim, "May I start this run, or why I will not."},
		{"POST /api/v1/agent/batch", scopeAgent, (*server).agentBatch, "What happened: ndjson of pieces of sources, compare-and-set on their cursors."},
		{"POST /api/v1/agent/commands/{id}", scopeAgent, (*server).agentCommand, "Answer to one command."},
	}
}

// agentNode is the node that the caller speaks for. The token's row is read each time: the first hello binds it.
func (s *server) agentNode(r *http.Request) (id int64, err error) {
	found := false
	err = s.store.read(r.Context(), func(c *conn) (err error) {
		id, found, err = nodeOfToken(c, callerOf(r).tokenID)
		return err
	})
	if err == nil && !found {
		err = newProblem(codeWrongState, "say hello first", "this token speaks for no node yet")
	}
	if err == nil {
		s.contacts.touch(id, time.Now())
	}
	return id, err
}

func (s *server) agentPoll(w http.ResponseWriter, r *http.Request) error {
	node, err := s.agentNode(r)
	if err != nil {
		return err
	}
	wait, have, err := pollQuery(r)
	if err != nil {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	over := false
	for {
		bell := s.hub.listen(bellNode(node))
		commands, err := s.pollCommands(r.Context(), node, have)
		if err != nil {
			return err
		}
		if len(commands) > 0 || over {
			now := time.Now()
			s.contacts.touch(node, now)
			return writeJSON(w, http.StatusOK, pollAnswer{Gpuctl: 1, Commands: commands, Incarnation: s.inc.current(), NowMS: now.UnixMilli()})
		}
		select {
		case <-bell:
		case <-timer.C:
			over = true
		case <-s.stopping:
			over = true
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
}

// pollQuery reads wait (seconds, cut at pollWaitMaxSeconds) and have (numbers, comma between).
func pollQuery(r *http.Request) (time.Duration, map[int64]bool, error) {
	wait := 0.0
	if v := r.URL.Query().Get("wait"); v != "" {
		var err error
		if wait, err = strconv.ParseFloat(v, 64); err != nil || !(wait >= 0) {
			return 0, nil, newProblem(codeUsage, "wait=25", "wait is %q, not a number of seconds", v)
		}
	}
	have := map[int64]bool{}
	for v := range strings.SplitSeq(r.URL.Query().Get("have"), ",") {
		if v == "" {
			continue
		}
		id, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return 0, nil, newProblem(codeUsage, "have=17,19", "have holds %q, not a number", v)
		}
		have[id] = true
	}
	return time.Duration(min(wait, pollWaitMaxSeconds) * float64(time.Second)), have, nil
}

// pollCommands are the open commands of a node, rows and log reads.
func (s *server) pollCommands(ctx context.Context, node int64, have map[int64]bool) ([]wireCommand, error) {
	commands := []wireCommand{}
	err := s.store.read(ctx, func(c *conn) error {
		_, _, recovery, err := s.inRecovery(c)
		if err != nil {
			return err
		}
		rows, err := openCommands(c, node, have, recovery)
		commands = append(commands, rows...)
		return err
	})
	return append(commands, s.relay.commands(node, have)...), err
}

func (s *server) agentClaim(w http.ResponseWriter, r *http.Request) error {
	var q claimRequest
	if err := decodeJSON(r, helloMaxBytes, &q); err != nil {
		return err
	}
	if !isUID(q.UID) || q.Instance == "" {
		return newProblem(codeInvalid, "", "uid is not 32 hex digits, or instance is empty")
	}
	node, err := s.agentNode(r)
	if err != nil {
		return err
	}
	var a claimAnswer
	var highest map[string]int64
	// A claim that was begun is finished: its answer may be lost, the grant is then repeated.
	err = s.store.write(context.WithoutCancel(r.Context()), func(t *tx) (err error) {
		if a, err = s.claimTx(t, node, q); err == nil && a.Verdict == verdictGrant {
			highest, err = highestNumbers(t.conn)
		}
		return err
	})
	if err != nil {
		return err
	}
	if a.Verdict == verdictGrant { // row, file, answer: in this order
		if err := s.inc.saveGrant(a.Grant, highest); err != nil {
			return err
		}
	}
	s.log.Debug("claim", keyRun, q.UID, keyState, a.Verdict)
	return writeJSON(w, http.StatusOK, a)
}

func (s *server) agentCommand(w http.ResponseWriter, r *http.Request) error {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return newProblem(codeUsage, "", "%q is not the number of a command", r.PathValue("id"))
	}
	var a commandAnswer
	if err := decodeJSON(r, commandAnswerMaxByte, &a); err != nil {
		return err
	}
	node, err := s.agentNode(r)
	if err != nil {
		return err
	}
	if id < 0 {
		if !s.relay.take(node, id, a) {
			return newProblem(codeNotFound, "", "nobody waits for this answer any more")
		}
	} else if err := s.store.write(context.WithoutCancel(r.Context()), func(t *tx) error {
		return answerCommandTx(t, node, id, a)
	}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"gpuctl": 1, "incarnation": s.inc.current()})
}
