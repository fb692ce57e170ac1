package main

// Since when a node is in the state that is shown.

import (
	"testing"
	"time"
)

func TestNodeSince(t *testing.T) {
	f := newDoors(t)
	f.node("n1")
	f.sql("UPDATE nodes SET created_ms = 5")
	begin := time.Now()
	look := func(after time.Duration) nodeView {
		t.Helper()
		var views []nodeView
		f.write(func(x *tx) (err error) {
			views, err = f.s.nodeViews(x.conn, nil, begin, begin.Add(after))
			return err
		})
		return views[0]
	}
	since := func(v nodeView) int64 {
		if v.StateMS == nil {
			return -1
		}
		return *v.StateMS
	}
	if v := look(0); v.State != nodeReady || v.StateMS != nil || v.JoinedMS != 5 {
		t.Errorf("never heard by this server: %s since %d, joined %d", v.State, since(v), v.JoinedMS)
	}
	for _, s := range []time.Duration{1, 30, 70} { // no gap of unreachableAfter
		f.s.contacts.touch(1, begin.Add(s*time.Second))
	}
	if v := look(80 * time.Second); v.State != nodeReady || since(v) != begin.Add(time.Second).UnixMilli() {
		t.Errorf("%s since %d", v.State, since(v))
	}
	if v := look(150 * time.Second); v.State != nodeUnreachable || since(v) != begin.Add(70*time.Second+unreachableAfter).UnixMilli() {
		t.Errorf("%s since %d", v.State, since(v))
	}
	f.s.contacts.touch(1, begin.Add(200*time.Second))
	if v := look(210 * time.Second); v.State != nodeReady || since(v) != begin.Add(200*time.Second).UnixMilli() {
		t.Errorf("back: %s since %d", v.State, since(v))
	}
	f.sql("UPDATE nodes SET heard_incarnation = 'another'")
	if v := look(210 * time.Second); v.State != nodeRecovering || since(v) != begin.UnixMilli() {
		t.Errorf("%s since %d", v.State, since(v))
	}
}
