package main

// Nodes and their slots as a hello tells them: who the machine is, which cards it has, which session is the newest. Runs are not touched here.

import (
	"encoding/json"
	"fmt"
	"strings"
)

// nodeNow is what a hello or a claim needs to know of a node's row.
type nodeNow struct {
	id                                   int64
	uid, name, bootID, instance, heardIn string
	session                              int64
	fingerprint                          wireFingerprint
}

func loadNode(c *conn, where string, arg any) (n nodeNow, found bool, err error) {
	var print string
	found, err = c.one("SELECT id, uid, name, boot_id, instance, heard_incarnation, session, fingerprint FROM nodes WHERE "+where+" = ?", []any{arg},
		&n.id, &n.uid, &n.name, &n.bootID, &n.instance, &n.heardIn, &n.session, &print)
	if err != nil || !found {
		return n, false, err
	}
	if err := json.Unmarshal([]byte(print), &n.fingerprint); err != nil {
		return n, false, fmt.Errorf("read fingerprint of node %s: %w", n.name, err)
	}
	return n, true, nil
}

// nodeOfToken is the node that an agent's token speaks for; found is false before its first hello.
func nodeOfToken(c *conn, tokenID int64) (id int64, found bool, err error) {
	var p *int64
	if _, err := c.one("SELECT node_id FROM tokens WHERE id = ?", []any{tokenID}, &p); err != nil || p == nil {
		return 0, false, err
	}
	return *p, true, nil
}

// freeNodeName makes a name unique: gpu1, gpu1-2, gpu1-3, ... A name of digits would read as a number, so it gets a word before it.
func freeNodeName(c *conn, want string) (string, error) {
	want = strings.TrimSpace(want)
	if want == "" || strings.Trim(want, "0123456789.") == "" {
		want = strings.TrimSuffix("node-"+want, "-")
	}
	for i := 1; ; i++ {
		name := want
		if i > 1 {
			name = fmt.Sprintf("%s-%d", want, i)
		}
		taken, err := c.one("SELECT 1 FROM nodes WHERE name = ?", []any{name}, new(int64))
		if err != nil || !taken {
			return name, err
		}
	}
}

// helloNodeTx finds the node that a hello speaks for, making it (and binding the token) when it is new. created tells that the
// incarnation file has to be written before the answer.
func helloNodeTx(t *tx, tokenID int64, h helloRequest) (n nodeNow, created bool, err error) {
	bound, isBound, err := nodeOfToken(t.conn, tokenID)
	if err != nil {
		return n, false, err
	}
	n, found, err := loadNode(t.conn, "uid", h.UID)
	if err != nil {
		return n, false, err
	}
	if isBound && (!found || n.id != bound) {
		return n, false, newProblem(codeForbidden, "give this agent a token of its own: gpuctl node join on the server",
			"this token belongs to another node")
	}
	if !found {
		print, err := json.Marshal(h.Fingerprint)
		if err != nil {
			return n, false, err
		}
		name, err := freeNodeName(t.conn, h.Name)
		if err != nil {
			return n, false, err
		}
		n = nodeNow{uid: h.UID, name: name, fingerprint: h.Fingerprint}
		if n.id, err = t.insert("INSERT INTO nodes (uid, name, fingerprint, last_seen_ms, created_ms) VALUES (?,?,?,?,?)",
			h.UID, name, string(print), t.nowMS, t.nowMS); err != nil {
			return n, false, fmt.Errorf("make node %s: %w", name, err)
		}
		if err := addEventTx(t, newEvent{
			typ: "NODE_JOINED", severity: sevNotice, nodeID: &n.id, actor: actorAgent,
			message: fmt.Sprintf("node %s joined (%d cards, %d CPUs)", name, len(h.Devices), h.CPUs),
		}); err != nil {
			return n, false, err
		}
	}
	if n.fingerprint.differs(h.Fingerprint) {
		return n, false, nil // the caller refuses; the token is not bound to a machine that may be a copy
	}
	if !isBound {
		if _, err := t.exec("UPDATE tokens SET node_id = ? WHERE id = ?", n.id, tokenID); err != nil {
			return n, false, fmt.Errorf("bind token to node %s: %w", n.name, err)
		}
	}
	return n, !found || !isBound, nil
}

// updateNodeTx stores what an accepted hello says of the machine.
func updateNodeTx(t *tx, n nodeNow, h helloRequest) error {
	if h.Fingerprint.DMI == "" { // what could be read once still counts when it cannot be read
		h.Fingerprint.DMI = n.fingerprint.DMI
	}
	if len(h.Fingerprint.GPUs) == 0 {
		h.Fingerprint.GPUs = n.fingerprint.GPUs
	}
	print, err := json.Marshal(h.Fingerprint)
	if err != nil {
		return err
	}
	problems := h.Problems
	if problems == nil {
		problems = []string{}
	}
	list, err := json.Marshal(problems)
	if err != nil {
		return err
	}
	_, err = t.exec(`UPDATE nodes SET fingerprint = ?, version = ?, os = ?, user = ?, cpus = ?, memory_bytes = ?, problems = ?, unsent_bytes = ?,
		skew_ms = ?, last_seen_ms = ? WHERE id = ?`, string(print), h.Version, h.OS, h.User, h.CPUs, h.MemoryBytes, string(list), h.Unsent,
		h.NowMS-t.nowMS, t.nowMS, n.id)
	if err != nil {
		return fmt.Errorf("update node %s: %w", n.name, err)
	}
	return syncSlotsTx(t, n, h)
}

// slotWant is a slot as the machine has it.
type slotWant struct {
	lane, uuid, model, health string
	idx                       int
	memory                    int64
	fake                      bool
}

// syncSlotsTx makes the slots what the hello says. Cards are known by UUID; one that vanished is gone but keeps whoever holds it, and a
// free slot of the cpu lane beyond the lane's size goes.
func syncSlotsTx(t *tx, n nodeNow, h helloRequest) error {
	var wants []slotWant
	for _, d := range h.Devices {
		health := "ok"
		if !d.Healthy {
			health = "unhealthy"
		}
		wants = append(wants, slotWant{laneGPU, d.UUID, d.Model, health, d.Idx, d.MemoryBytes, d.Fake})
	}
	for i := range h.CPULane {
		wants = append(wants, slotWant{laneCPU, fmt.Sprintf("cpu-%d", i), "", "ok", i, 0, false})
	}
	type key struct{ lane, uuid string }
	listed := map[key]bool{}
	changed := false
	for _, w := range wants {
		listed[key{w.lane, w.uuid}] = true
		rows, err := t.exec(`INSERT INTO slots (node_id, lane, idx, uuid, model, memory_bytes, fake, health) VALUES (?,?,?,?,?,?,?,?)
			ON CONFLICT (node_id, lane, uuid) DO UPDATE SET idx = excluded.idx, model = excluded.model, memory_bytes = excluded.memory_bytes,
			fake = excluded.fake, health = excluded.health
			WHERE (idx, model, memory_bytes, fake, health) <> (excluded.idx, excluded.model, excluded.memory_bytes, excluded.fake, excluded.health)`,
			n.id, w.lane, w.idx, w.uuid, w.model, w.memory, w.fake, w.health)
		if err != nil {
			return fmt.Errorf("store slot %s of node %s: %w", w.uuid, n.name, err)
		}
		changed = changed || rows > 0
	}
	type have struct {
		id     int64
		key    key
		health string
		held   *int64
	}
	var haves []have
	if err := t.each("SELECT id, lane, uuid, health, run_id FROM slots WHERE node_id = ?", []any{n.id}, func(get func(...any) error) error {
		var s have
		err := get(&s.id, &s.key.lane, &s.key.uuid, &s.health, &s.held)
		haves = append(haves, s)
		return err
	}); err != nil {
		return err
	}
	for _, s := range haves {
		switch {
		case listed[s.key]:
		case s.key.lane == laneCPU && s.held == nil:
			if _, err := t.exec("DELETE FROM slots WHERE id = ?", s.id); err != nil {
				return err
			}
		case s.health != "gone":
			if _, err := t.exec("UPDATE slots SET health = 'gone' WHERE id = ?", s.id); err != nil {
				return err
			}
			if s.key.lane == laneGPU {
				if err := addEventTx(t, newEvent{
					typ: "GPU_GONE", severity: sevWarning, nodeID: &n.id, actor: actorAgent,
					message: fmt.Sprintf("node %s does not list card %s any more", n.name, s.key.uuid),
					data:    map[string]any{"uuid": s.key.uuid, "held": s.held != nil},
				}); err != nil {
					return err
				}
			}
		}
	}
	if changed {
		t.ring(bellSched)
	}
	return nil
}
