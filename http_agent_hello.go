package main

// The door for hello: the handshake of session and incarnation, the check for a copied machine, and, when accepted, everything that the
// node tells, in one transaction.

import (
	"context"
	"fmt"
	"net/http"
)

// helloVerdict is what the transaction of a hello came to.
type helloVerdict struct {
	answer  helloAnswer
	node    nodeNow
	save    bool     // the incarnation file has to be written before the answer
	refused *problem // committed (its event is kept), then answered as this
	renamed string   // a new incarnation begins with the commit
}

func (s *server) agentHello(w http.ResponseWriter, r *http.Request) error {
	var h helloRequest
	if err := decodeJSON(r, helloMaxBytes, &h); err != nil {
		return err
	}
	if err := checkHello(&h); err != nil {
		return err
	}
	s.helloing.Lock() // one at a time: a rollback told by one changes the incarnation of the next
	defer s.helloing.Unlock()
	var v helloVerdict
	err := s.store.write(context.WithoutCancel(r.Context()), func(t *tx) (err error) {
		v, err = s.helloTx(t, callerOf(r).tokenID, h)
		return err
	})
	if err != nil {
		return err
	}
	if v.renamed != "" {
		s.inc.set(v.renamed)
		v.answer.Incarnation = v.renamed
	}
	if v.save || v.renamed != "" || s.inc.behind(nil) {
		if err := s.store.read(context.WithoutCancel(r.Context()), s.inc.save); err != nil {
			return err
		}
	}
	if v.refused != nil {
		s.log.Warn("hello refused", keyNode, v.node.name, keyErr, v.refused)
		return v.refused
	}
	if v.answer.Accepted {
		s.contacts.accept(v.node.id, v.answer.Session)
	}
	return writeJSON(w, http.StatusOK, v.answer)
}

// helloTx is the whole of a hello.
func (s *server) helloTx(t *tx, tokenID int64, h helloRequest) (v helloVerdict, err error) {
	v.answer = helloAnswer{Gpuctl: 1, Incarnation: s.inc.current(), Cursors: map[string]wireCursor{}, Settled: []string{}, NowMS: t.nowMS}
	if v.node, v.save, err = helloNodeTx(t, tokenID, h); err != nil {
		return v, err
	}
	if v.node.fingerprint.differs(h.Fingerprint) {
		v.save = false
		v.refused = newProblem(codeClone, "if this machine was moved or its cards were changed, accept it: gpuctl node accept-move "+v.node.name,
			"this machine differs from the one that node %s was", v.node.name)
		return v, addEventTx(t, newEvent{
			typ: "CLONE_SUSPECTED", severity: sevWarning, nodeID: &v.node.id, actor: actorAgent,
			message: fmt.Sprintf("another machine says that it is node %s; it gets nothing", v.node.name),
			data:    map[string]any{"fingerprint": h.Fingerprint}, dedup: "clone:" + h.UID + ":" + h.Fingerprint.MachineID,
		})
	}
	v.answer.Node = v.node.name
	s.contacts.touch(v.node.id, t.now)
	fresh := h.Incarnation == v.answer.Incarnation
	if !fresh || h.Session == 0 || h.Session != v.node.session || h.Instance != v.node.instance {
		return v, s.sessionTx(t, &v, h, fresh)
	}
	v.answer.Accepted, v.answer.Session = true, v.node.session
	return v, s.acceptedTx(t, &v, h)
}

// sessionTx answers a hello of another session or incarnation: say it again with these. A node whose acknowledged cursor is ahead of ours
// proves that this database was rolled back.
func (s *server) sessionTx(t *tx, v *helloVerdict, h helloRequest, fresh bool) error {
	n := &v.node
	if fresh && h.Session != 0 && h.Instance != n.instance && s.contacts.acceptedSession(n.id) == n.session && h.Session < n.session {
		v.refused = newProblem(codeSession, "stop this agent: a newer one runs on this machine", "node %s has a newer agent", n.name)
		return nil
	}
	if !fresh {
		ahead, err := aheadOf(t.conn, n.id, h.Sources)
		if err != nil {
			return err
		}
		_, _, recovery, err := s.inRecovery(t.conn)
		if err != nil {
			return err
		}
		if ahead != "" && !recovery {
			if err := beginRecoveryTx(t, s.inc.known(), fmt.Sprintf("node %s has more of %s acknowledged than this database holds", n.name, ahead)); err != nil {
				return err
			}
			var counter int64
			if _, err := t.one("SELECT start_counter FROM server_state WHERE id = 1", nil, &counter); err != nil {
				return err
			}
			v.renamed = newIncarnationName(counter)
		}
	}
	if n.instance != h.Instance || n.session == 0 {
		n.session = max(n.session, h.Session) + 1
		if _, err := t.exec("UPDATE nodes SET session = ?, instance = ?, last_seen_ms = ? WHERE id = ?", n.session, h.Instance, t.nowMS, n.id); err != nil {
			return fmt.Errorf("give node %s a session: %w", n.name, err)
		}
	}
	v.answer.Session = n.session
	return nil
}

// acceptedTx applies a hello of the newest session: the machine, its runs, the boot, what is wanted of it now.
func (s *server) acceptedTx(t *tx, v *helloVerdict, h helloRequest) error {
	n := v.node
	if err := updateNodeTx(t, n, h); err != nil {
		return err
	}
	settled, err := s.tellsTx(t, n, h)
	if err != nil {
		return err
	}
	v.answer.Settled = append(v.answer.Settled, settled...)
	if err := carriedTx(t, n.id, h.Sources); err != nil {
		return err
	}
	for _, src := range h.Sources {
		c, err := loadCursor(t.conn, src.Src)
		if err != nil {
			return err
		}
		if c.owner != "" && c.owner != ownerNode(n.id) {
			continue
		}
		v.answer.Cursors[src.Src] = c.wireCursor
	}
	if h.All && n.heardIn != v.answer.Incarnation {
		if _, err := t.exec("UPDATE nodes SET heard_incarnation = ? WHERE id = ?", v.answer.Incarnation, n.id); err != nil {
			return err
		}
		t.ring(bellSched)
	}
	_, err = s.endRecoveryTx(t)
	return err
}

// aheadOf names a source of which a node has seen more acknowledged than this database holds; "" when there is none.
func aheadOf(c *conn, nodeID int64, sources []helloSource) (string, error) {
	for _, src := range sources {
		have, err := loadCursor(c, src.Src)
		if err != nil {
			return "", err
		}
		if have.owner != "" && have.owner != ownerNode(nodeID) {
			continue
		}
		if src.Gen > have.Gen || src.Gen == have.Gen && src.Off > have.Off {
			return src.Src, nil
		}
	}
	return "", nil
}

// checkHello refuses what no agent of ours says.
func checkHello(h *helloRequest) error {
	bad := func(detail string, args ...any) error {
		return newProblem(codeInvalid, "update the agent", detail, args...)
	}
	switch {
	case !isUID(h.UID):
		return bad("uid is not 32 hex digits")
	case h.Instance == "" || len(h.Instance) > 64:
		return bad("instance is empty or longer than 64 characters")
	case h.CPULane < 0 || h.CPULane > 1024:
		return bad("cpu_lane is %d", h.CPULane)
	}
	for i, d := range h.Devices {
		if d.UUID == "" || d.Idx < 0 || d.MemoryBytes < 0 {
			return bad("devices[%d] has no uuid, or a negative idx or memory_bytes", i)
		}
	}
	for i, src := range h.Sources {
		if _, _, err := parseSource(src.Src); err != nil {
			return bad("sources[%d]: %v", i, err)
		}
	}
	return checkTells(h)
}
