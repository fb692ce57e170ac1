package main

// Events, nodes, slots, runs and the overview, as they are shown.

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newDoors(t)
		f.node("n1")
		f.submit("a")
		run := f.run(1, 1, runAlive)
		burned := f.run(1, 0, runBurned)
		f.sql("DELETE FROM events")
		job := int64(1)
		for _, e := range []newEvent{
			{typ: "A", severity: sevInfo, jobID: &job, runID: &run, nodeID: &job, actor: "x", message: "one"},
			{typ: "B", severity: sevWarning, actor: "x", message: "two", data: map[string]int{"n": 1}},
			{typ: "A", severity: sevCritical, runID: &burned, actor: "x", message: "three"},
		} {
			f.write(func(x *tx) error { return addEventTx(x, e) })
		}
		base := f.count("SELECT min(id) FROM events")
		for _, c := range []struct{ query, want string }{
			{"", "three two one next null"},
			{"?limit=1", "three next 3"},
			{fmt.Sprintf("?before=%d", base+1), "one next null"},
			{fmt.Sprintf("?after=%d&limit=1", base), "two next 2"},
			{"?type=a", "three one next null"},
			{"?type=a,b&severity=notice", "three two next null"},
			{"?severity=critical", "three next null"},
			{"?run=1.1", "one next null"},
			{"?job=a", "one next null"},
			{fmt.Sprintf("?after=%d&type=B", base), "two next 3"}, // past what does not fit
			{"?after=99", " next 99"},
		} {
			var l list[eventView]
			f.get("/api/v1/events"+c.query, &l)
			var names []string
			for _, e := range l.Items {
				names = append(names, e.Message)
			}
			next := "null"
			if l.Next != nil {
				next = fmt.Sprint(*l.Next)
				if *l.Next < 99 {
					next = fmt.Sprint(*l.Next - base + 1)
				}
			}
			if got := strings.Join(names, " ") + " next " + next; got != c.want {
				t.Errorf("%s: %s, want %s", c.query, got, c.want)
			}
		}
		var l list[eventView]
		f.get("/api/v1/events", &l)
		if l.Items[2].Run == nil || *l.Items[2].Run != "1.1" || *l.Items[2].JobID != 1 || *l.Items[2].Node != "n1" || l.Items[0].Run != nil || string(l.Items[1].Data) != `{"n":1}` {
			t.Errorf("%+v", l.Items)
		}
		answer := f.waiting(f.request(scopeRead, "GET", fmt.Sprintf("/api/v1/events?after=%d&wait=25&severity=critical", base+2), ""))
		time.Sleep(time.Second)
		f.write(func(x *tx) error {
			return addEventTx(x, newEvent{typ: "A", severity: sevInfo, actor: "x", message: "quiet"})
		})
		time.Sleep(time.Second)
		f.write(func(x *tx) error {
			return addEventTx(x, newEvent{typ: "A", severity: sevCritical, actor: "x", message: "loud"})
		})
		if w, took := answer(); took != 2*time.Second || strings.Contains(w.Body.String(), "quiet") || !strings.Contains(w.Body.String(), "loud") {
			t.Errorf("%v %s", took, w.Body)
		}
	})
}

func TestNodesAndSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newDoors(t)
		f.node("n1")
		f.node("n2")
		f.submit("a")
		f.submit("b")
		granted, offered := f.run(1, 1, runAlive), f.run(2, 0, runOffered)
		f.sql(fmt.Sprintf("UPDATE slots SET run_id = %d, held_ms = 5 WHERE node_id = 1 AND uuid = 'GPU-a'", granted),
			fmt.Sprintf("UPDATE slots SET run_id = %d, held_ms = 6 WHERE node_id = 1 AND uuid = 'GPU-b'", offered),
			"UPDATE nodes SET heard_incarnation = 'old' WHERE name = 'n2'",
			"INSERT INTO node_samples VALUES (1, 9, 250, 0, 4, 8, 0, 10, 100), (1, 8, -1, 0, 1, 8, 0, 10, 100)")
		var l list[nodeView]
		f.get("/api/v1/nodes", &l)
		if len(l.Items) != 2 {
			t.Fatalf("%d nodes", len(l.Items))
		}
		n := l.Items[0]
		if n.Name != "n1" || n.State != nodeReady || n.MachineID != "m1" || *n.CPU != 0.25 || n.Memory.Used != 4 || n.Disks[0].Used != 90 || *n.SampleMS != 9 || len(n.Slots) != 4 {
			t.Errorf("%+v", n)
		}
		if l.Items[1].State != nodeRecovering || l.Items[1].CPU != nil {
			t.Errorf("%+v", l.Items[1])
		}
		a, b := n.Slots[0], n.Slots[1]
		if a.Lane != laneGPU || *a.Run != "1.1" || *a.JobID != 1 || *a.HeldMS != 5 || b.Run != nil || *b.JobID != 2 || n.Slots[2].Lane != laneCPU || n.Slots[2].JobID != nil {
			t.Errorf("%+v", n.Slots)
		}
		var one nodeView
		f.get("/api/v1/nodes/n1", &one)
		if one.UID != n.UID || len(one.Slots) != 4 {
			t.Errorf("%+v", one)
		}
		f.check(t, apiCase{"", scopeRead, "GET", "/api/v1/nodes/n", nil, "", 409, codeAmbiguous, "n1, n2"})
		var slots list[slotView]
		f.get("/api/v1/slots?node=n2", &slots)
		if len(slots.Items) != 4 || slots.Items[0].Node != "n2" {
			t.Errorf("%+v", slots.Items)
		}
		f.get("/api/v1/slots", &slots)
		if len(slots.Items) != 8 {
			t.Errorf("%d slots", len(slots.Items))
		}
	})
}

func TestNodeState(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		heard         string
		seen, started time.Duration // ago
		want          string
	}{
		{"now", time.Second, time.Hour, nodeReady},
		{"now", time.Minute, time.Hour, nodeUnreachable},
		{"old", time.Second, time.Hour, nodeRecovering},
		{"old", time.Hour, time.Second, nodeRecovering},
		{"old", time.Hour, time.Hour, nodeUnreachable},
	} {
		if got := (nodeStored{heard: c.heard}).shownState("now", now.Add(-c.seen), now.Add(-c.started), now); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestRunView(t *testing.T) {
	f := newDoors(t)
	f.node("n1")
	f.submit("a")
	f.run(1, 1, runEnded)
	f.sql(`UPDATE runs SET env = '{"SECRET":"s3cret"}', argv = '["python"]', slots = '[{"lane":"gpu","idx":0,"uuid":"GPU-a"}]', exit_code = 3, uid = '0123456789abcdef0123456789abcdef',
			exit_info = '{"code":3,"max_rss_bytes":9}', env_snapshot = '{"git":"abc"}', drained_ms = 4, left_alone = '["tmux"]'`,
		"INSERT INTO cursors (source, kind, owner, run_id, n, off, gen, done, updated_ms) VALUES ('log-0123456789abcdef0123456789abcdef', 'log', 'node:1', 1, 50, 900, 1, 1, 0)",
		"INSERT INTO skips (source, gen, from_off, to_off, n, why, at_ms) VALUES ('log-0123456789abcdef0123456789abcdef', 0, 0, 1, 30, 'x', 0), ('log-0123456789abcdef0123456789abcdef', 0, 0, 1, 4, 'x', 0)",
		"INSERT INTO truncations (source, gen, off, at_ms) VALUES ('log-0123456789abcdef0123456789abcdef', 0, 5, 0)")
	var v runView
	f.get("/api/v1/runs/0123456789abcdef0123456789abcdef", &v)
	want := logStats{Lines: 50, Bytes: 900, Generation: 1, Skipped: 34, Truncations: 1, Done: true}
	if v.ID != "1.1" || *v.JobID != 1 || *v.ExitCode != 3 || v.Signal != nil || !v.Drained || *v.Node != "n1" || v.Slots[0].UUID != "GPU-a" || v.EnvNames[0] != "SECRET" ||
		v.Usage.MaxRSSBytes != 9 || string(v.EnvSnapshot) != `{"git":"abc"}` || v.LeftAlone[0] != "tmux" || v.Log != want {
		t.Errorf("%+v", v)
	}
	for _, url := range []string{"/api/v1/runs", "/api/v1/runs?job=1&state=ENDED&node=n1&project=mnist", "/api/v1/runs/1"} {
		if b := f.do(f.request(scopeRead, "GET", url, "")).Body.String(); strings.Contains(b, "s3cret") || !strings.Contains(b, "SECRET") {
			t.Errorf("%s: %s", url, b)
		}
	}
	var l list[runView]
	f.get("/api/v1/runs?state=ALIVE", &l)
	if len(l.Items) != 0 || l.Items == nil {
		t.Errorf("%+v", l)
	}
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newDoors(t)
		f.node("n1")
		for _, name := range []string{"a", "b", "c", "d"} {
			f.submit(name)
		}
		lost := f.run(1, 1, runLost)
		f.sql(fmt.Sprintf("UPDATE jobs SET state = 'LOST', run_id = %d WHERE id = 1", lost), "UPDATE jobs SET priority = 5 WHERE id = 3",
			"UPDATE jobs SET state = 'FAILED', reason = 'OOM' WHERE id = 4", "UPDATE slots SET health = 'unhealthy' WHERE uuid = 'GPU-b'",
			"UPDATE nodes SET problems = '[\"disk is slow\"]'",
			"INSERT INTO rejects (source, gen, from_off, to_off, why, at_ms) VALUES ('x', 0, 0, 1, 'x', 0)")
		time.Sleep(3 * time.Minute)
		var v statusView
		f.get("/api/v1/status", &v)
		if v.Jobs[jobQueued] != 2 || v.Jobs[jobLost] != 1 || v.Jobs[jobSucceeded] != 0 || len(v.Jobs) != len(jobStates) || v.Recovery != nil || v.Rejects != 1 || v.DBBytes == 0 ||
			v.NowMS-v.StartedMS < 180_000 || len(v.Running) != 1 || len(v.Queued) != 2 || v.Queued[0].ID != 3 || v.Queued[0].WaitReason == nil || len(v.Nodes) != 1 || v.Loops == nil {
			t.Errorf("%+v", v)
		}
		want := []string{"job 1 (a) is LOST", "node n1 has been unreachable for 3m", "gpu 1 of node n1 is unhealthy", "node n1: disk is slow", "job 4 (d) FAILED (OOM): gpuctl job why 4"}
		if len(v.NeedsYou) != len(want) {
			t.Fatalf("%q", v.NeedsYou)
		}
		for i, w := range want {
			if !strings.HasPrefix(v.NeedsYou[i], w) {
				t.Errorf("%q, want %q", v.NeedsYou[i], w)
			}
		}
		f.sql("UPDATE server_state SET recovery_why = 'restored', recovery_since_ms = 1")
		time.Sleep(25 * time.Hour)
		f.get("/api/v1/status", &v)
		if v.Recovery == nil || !strings.HasPrefix(v.NeedsYou[0], "RECOVERY for") || strings.Contains(strings.Join(v.NeedsYou, " "), "FAILED") {
			t.Errorf("%q", v.NeedsYou)
		}
	})
}

func TestVersion(t *testing.T) {
	f := newDoors(t)
	var v versionView
	f.get("/api/v1/version", &v)
	if v.Version == "" || v.Incarnation != "1-abc" || !strings.HasPrefix(v.SQLite, "3.") || v.Schema < 1 {
		t.Errorf("%+v", v)
	}
}

// Over a real socket: no more connections than there is room for, and each that closes makes room.
func TestLimitedListener(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limitListener(inner).(*limitedListener)
	l.room = make(chan struct{}, 1)
	f := newDoors(t)
	srv := newHTTPServer(t.Context(), f.s)
	ended := make(chan error)
	go func() { ended <- srv.Serve(l) }()
	for range 3 { // one after the other, each on a connection of its own
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
		res, err := c.Get("http://" + inner.Addr().String() + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		var body map[string]string
		if err := json.NewDecoder(res.Body).Decode(&body); err != nil || body["status"] != "ok" {
			t.Errorf("%v %v", body, err)
		}
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	held, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	second, err := net.Dial("tcp", inner.Addr().String()) // in the kernel's queue
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if _, err := fmt.Fprint(second, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := second.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Read(make([]byte, 1)); err == nil {
		t.Error("a second connection was answered while the first holds the only place")
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := second.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 15)
	if _, err := second.Read(answer); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		t.Errorf("%q %v", answer, err)
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != http.ErrServerClosed {
		t.Error(err)
	}
}

// Whoever keeps a connection open and says nothing more does not shut others out.
func TestIdleConnectionMakesRoom(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limitListener(inner).(*limitedListener)
	l.room = make(chan struct{}, 2)
	srv := newHTTPServer(t.Context(), newDoors(t).s)
	ended := make(chan error)
	go func() { ended <- srv.Serve(l) }()
	var conns []net.Conn
	for i := range 6 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 200 {
			t.Fatalf("connection %d: %v", i, err)
		}
		if i == 0 { // the server notes it after the answer is out
			waitFor(t, "the first to be idle", func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return len(l.idle) == 1
			})
		}
	}
	if n, err := conns[0].Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the longest idle one was not closed: %d %v", n, err)
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != http.ErrServerClosed {
		t.Error(err)
	}
}
