package main

// Nodes and slots as they are shown. Read only.

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// nodeStored is a node with what its state is computed from.
type nodeStored struct {
	id     int64
	heard  string // incarnation
	seenMS int64
	view   nodeView
}

// readNodes reads all nodes with slots and newest sample, by name; with id one.
func readNodes(c *conn, id *int64) ([]nodeStored, error) {
	nodes := []nodeStored{}
	byID := map[int64]int{}
	err := c.each(`SELECT id, uid, name, fingerprint, boot_id, heard_incarnation, version, os, user, cpus, problems, unsent_bytes, skew_ms, cordoned, last_seen_ms,
		created_ms 		FROM nodes WHERE ?1 IS NULL OR id = ?1 ORDER BY name`, []any{id}, func(get func(...any) error) error {
		nodes = append(nodes, nodeStored{})
		n := &nodes[len(nodes)-1]
		v := &n.view
		var fingerprint, problems string
		if err := get(&n.id, &v.UID, &v.Name, &fingerprint, &v.BootID, &n.heard, &v.Version, &v.OS, &v.User, &v.CPUs, &problems, &v.Unsent, &v.SkewMS,
			&v.Cordoned, &n.seenMS, &v.JoinedMS); err != nil {
			return err
		}
		var print wireFingerprint
		if err := json.Unmarshal([]byte(fingerprint), &print); err != nil {
			return fmt.Errorf("read fingerprint of %s: %w", v.Name, err)
		}
		v.MachineID, v.Slots, v.Disks = print.MachineID, []slotView{}, []usedTotal{}
		byID[n.id] = len(nodes) - 1
		return readColumns(jsonColumn{problems, &v.Problems})
	})
	if err != nil {
		return nil, err
	}
	slots, err := readSlots(c, id)
	if err != nil {
		return nil, err
	}
	for _, sl := range slots {
		if i, ok := byID[sl.nodeID]; ok {
			nodes[i].view.Slots = append(nodes[i].view.Slots, sl.view)
		}
	}
	for i := range nodes {
		if err := readNewestSample(c, nodes[i].id, &nodes[i].view); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// readNewestSample fills in what the node measured last.
func readNewestSample(c *conn, nodeID int64, v *nodeView) error {
	var at, cpu, used, total, free, disk int64
	found, err := c.one(`SELECT at_ms, cpu_permille, memory_used_bytes, memory_total_bytes, disk_free_bytes, disk_total_bytes
		FROM node_samples WHERE node_id = ? ORDER BY at_ms DESC LIMIT 1`, []any{nodeID}, &at, &cpu, &used, &total, &free, &disk)
	if err != nil || !found {
		return err
	}
	v.SampleMS = &at
	if cpu >= 0 {
		ratio := float64(cpu) / 1000
		v.CPU = &ratio
	}
	if total > 0 {
		v.Memory = &usedTotal{Used: used, Total: total}
	}
	if disk > 0 {
		v.Disks = append(v.Disks, usedTotal{Name: "GPUCTL_HOME", Used: disk - free, Total: disk})
	}
	return nil
}

// slotStored is a slot as it is shown, with its node.
type slotStored struct {
	nodeID int64
	view   slotView
}

// readSlots reads the slots of all nodes, or of one, cards first.
func readSlots(c *conn, nodeID *int64) ([]slotStored, error) {
	slots := []slotStored{}
	err := c.each(`SELECT s.node_id, n.name, s.lane, s.idx, s.uuid, s.model, s.memory_bytes, s.fake, r.id, r.job_id, r.attempt, s.held_ms, s.cordoned, s.health
		FROM slots s JOIN nodes n ON n.id = s.node_id LEFT JOIN runs r ON r.id = s.run_id
		WHERE ?1 IS NULL OR s.node_id = ?1 ORDER BY n.name, s.lane DESC, s.idx`, []any{nodeID}, func(get func(...any) error) error {
		var sl slotStored
		v := &sl.view
		var runID, attempt *int64
		if err := get(&sl.nodeID, &v.Node, &v.Lane, &v.Idx, &v.UUID, &v.Model, &v.MemoryBytes, &v.Fake, &runID, &v.JobID, &attempt, &v.HeldMS, &v.Cordoned, &v.Health); err != nil {
			return err
		}
		if runID != nil {
			if label := runLabel(*runID, v.JobID, attempt); label != "" {
				v.Run = &label
			}
		}
		slots = append(slots, sl)
		return nil
	})
	return slots, err
}

// resolveNode finds a node by name, uid, or the unique begin of its name.
func resolveNode(c *conn, text string) (int64, error) {
	var id int64
	found, err := c.one("SELECT id FROM nodes WHERE name = ?1 OR uid = ?1", []any{text}, &id)
	if err != nil || found {
		return id, err
	}
	var names []string
	if err := c.each("SELECT id, name FROM nodes WHERE name >= ? AND name < ? ORDER BY name LIMIT 6", []any{text, text + "\U0010FFFF"}, func(get func(...any) error) error {
		var name string
		if err := get(&id, &name); err != nil {
			return err
		}
		names = append(names, name)
		return nil
	}); err != nil {
		return 0, err
	}
	switch {
	case len(names) == 0 || text == "":
		return 0, newProblem(codeNotFound, "gpuctl node list", "there is no node %s", text)
	case len(names) > 1:
		return 0, newProblem(codeAmbiguous, "type more of it", "%q fits more than one: %s", text, strings.Join(names, ", "))
	}
	return id, nil
}

// States of a node as it is shown; computed, not stored.
const (
	nodeReady       = "ready"
	nodeUnreachable = "unreachable" // silent for unreachableAfter
	nodeRecovering  = "recovering"  // heard of, but no complete hello to this incarnation yet
)

// shownState is the state of a node. After a start of the server it is recovering, not unreachable, until it had time to come back.
func (n nodeStored) shownState(incarnation string, seen, serverStarted, now time.Time) string {
	switch {
	case n.heard == incarnation && now.Sub(seen) <= unreachableAfter:
		return nodeReady
	case now.Sub(seen) > unreachableAfter && now.Sub(serverStarted) > unreachableAfter:
		return nodeUnreachable
	}
	return nodeRecovering
}
