package main

// Nodes and slots over HTTP. Read only: what an operator does to a node comes with the nodes' own verbs.

import (
	"net/http"
	"time"
)

// nodeViews reads nodes with their state as of now; id nil = all.
func (s *server) nodeViews(c *conn, id *int64, started, now time.Time) ([]nodeView, error) {
	nodes, err := readNodes(c, id)
	views := make([]nodeView, len(nodes))
	for i, n := range nodes {
		seen := s.lastSeen(n.id, n.seenMS)
		views[i] = n.view
		views[i].LastSeenMS = seen.UnixMilli()
		views[i].State = n.shownState(s.inc.current(), seen, started, now)
		views[i].StateMS = s.stateSince(n, views[i].State, seen, started)
	}
	return views, err
}

// stateSince is since when a node is in the state that is shown; nil when that is not known.
func (s *server) stateSince(n nodeStored, state string, seen, started time.Time) *int64 {
	at := started
	switch heard, found := s.contacts.heardSince(n.id); {
	case state == nodeUnreachable:
		at = seen.Add(unreachableAfter)
	case state == nodeReady && !found:
		return nil
	case state == nodeReady:
		at = heard
	}
	ms := at.UnixMilli()
	return &ms
}

func (s *server) getNodes(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	var nodes []nodeView
	if err := s.store.read(r.Context(), func(c *conn) (err error) {
		nodes, err = s.nodeViews(c, nil, s.started, time.Now())
		return err
	}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, list[nodeView]{Items: nodes})
}

func (s *server) getNode(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	var nodes []nodeView
	if err := s.store.read(r.Context(), func(c *conn) error {
		id, err := resolveNode(c, r.PathValue("node"))
		if err == nil {
			nodes, err = s.nodeViews(c, &id, s.started, time.Now())
		}
		return err
	}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, nodes[0])
}

func (s *server) getSlots(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r, "node")
	if q.err != nil {
		return q.err
	}
	views := []slotView{}
	if err := s.store.read(r.Context(), func(c *conn) error {
		var nodeID *int64
		if name := q.text("node"); name != "" {
			id, err := resolveNode(c, name)
			if err != nil {
				return err
			}
			nodeID = &id
		}
		slots, err := readSlots(c, nodeID)
		for _, sl := range slots {
			views = append(views, sl.view)
		}
		return err
	}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, list[slotView]{Items: views})
}
