package main

// Events as they are read. Append only; what happens writes them where it happens.

import (
	"encoding/json"
	"slices"
	"strings"
)

// eventSeverities, lowest first.
var eventSeverities = []string{sevInfo, sevNotice, sevWarning, sevCritical}

// eventFilter selects events; empty fields select all.
type eventFilter struct {
	types        []string
	severity     string // at least
	runID, jobID int64  // 0 = all
	page         listPage
}

// listEvents reads one page of events. Following with after, next is past all that was looked at, fitting or not.
func listEvents(c *conn, f eventFilter) (list[eventView], error) {
	var w listWhere
	js := jsonColumns{}
	if len(f.types) > 0 {
		w.and("v.type IN (SELECT value FROM json_each(?))", js.list(f.types))
	}
	if i := slices.Index(eventSeverities, f.severity); i > 0 {
		w.and("v.severity IN (SELECT value FROM json_each(?))", js.list(eventSeverities[i:]))
	}
	if f.runID != 0 {
		w.and("v.run_id = ?", f.runID)
	}
	if f.jobID != 0 {
		w.and("v.job_id = ?", f.jobID)
	}
	var newest int64
	if _, err := c.one("SELECT coalesce(max(id), 0) FROM events", nil, &newest); err != nil {
		return list[eventView]{}, err
	}
	items := []eventView{}
	err := c.each(`SELECT v.id, v.at_ms, v.type, v.severity, v.job_id, v.run_id, r.job_id, r.attempt, n.name, v.actor, v.message, v.data
		FROM events v LEFT JOIN runs r ON r.id = v.run_id AND `+runVisible+` LEFT JOIN nodes n ON n.id = v.node_id `+
		w.paged("v.id", f.page), w.args, func(get func(...any) error) error {
		var e eventView
		var runID, runJobID, attempt *int64
		var data string
		if err := get(&e.ID, &e.AtMS, &e.Type, &e.Severity, &e.JobID, &runID, &runJobID, &attempt, &e.Node, &e.Actor, &e.Message, &data); err != nil {
			return err
		}
		e.Data = json.RawMessage(data)
		if runID != nil && attempt != nil {
			label := runLabel(*runID, runJobID, attempt)
			e.Run = &label
		}
		items = append(items, e)
		return nil
	})
	l := pagedList(items, f.page, func(e eventView) int64 { return e.ID })
	if f.page.after != nil && int64(len(items)) < f.page.limit && newest > *l.Next {
		l.Next = &newest
	}
	return l, err
}

// eventTypes splits a list of types; they are not a closed set.
func eventTypes(text string) []string {
	var types []string
	for t := range strings.SplitSeq(text, ",") {
		if t = strings.TrimSpace(t); t != "" {
			types = append(types, strings.ToUpper(t))
		}
	}
	return types
}
