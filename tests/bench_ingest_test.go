package tests

// A hundred agents that speak the wire: hello, then a batch of ten records a second each. What counts is the slowest percent of answers.

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

func randomHex() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

type wireCursor struct {
	Gen   int64  `json:"gen"`
	Off   int64  `json:"off"`
	Print string `json:"print"`
}

// loadAgent is one pretended agent.
type loadAgent struct {
	p       *plane
	client  *http.Client
	token   string
	hello   map[string]any
	src     string
	cursor  wireCursor
	atMS    int64
	took    []time.Duration
	failure error
}

func (a *loadAgent) call(path, kind string, body []byte, out any) error {
	req, err := http.NewRequest("POST", a.p.url()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Authorization", "Bearer "+a.token)
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != 200 {
		return fmt.Errorf("%s: status %d: %.300s", path, resp.StatusCode, b)
	}
	return json.Unmarshal(b, out)
}

// sayHello says hello until it is accepted: the first answer gives the session and the incarnation.
func (a *loadAgent) sayHello() error {
	for range 3 {
		body, err := json.Marshal(a.hello)
		if err != nil {
			return err
		}
		var ans struct {
			Accepted    bool
			Session     int64
			Incarnation string
		}
		if err := a.call("/api/v1/agent/hello", "application/json", body, &ans); err != nil {
			return err
		}
		if ans.Accepted {
			return nil
		}
		a.hello["session"], a.hello["incarnation"] = ans.Session, ans.Incarnation
	}
	return fmt.Errorf("hello is not accepted")
}

// post sends ten records and wants exactly the new cursor back.
func (a *loadAgent) post() error {
	var items []map[string]int64
	for range 10 {
		a.atMS += 100
		items = append(items, map[string]int64{
			"at_ms": a.atMS, "cpu": 500, "load1": 1000, "mem_used": 8 << 30, "mem_total": 16 << 30,
			"swap_used": 0, "disk_free": 1 << 40, "disk_total": 2 << 40,
		})
	}
	next := wireCursor{a.cursor.Gen, a.cursor.Off + 1000, randomHex()}
	line, err := json.Marshal(map[string]any{
		"src": a.src, "gen": a.cursor.Gen, "from": a.cursor.Off, "to": next.Off, "prev": a.cursor.Print,
		"print": next.Print, "kind": "node", "items": items,
	})
	if err != nil {
		return err
	}
	var ans struct {
		Gpuctl  int
		Acks    map[string]wireCursor
		Refused map[string]string
	}
	began := time.Now()
	err = a.call("/api/v1/agent/batch", "application/x-ndjson", append(line, '\n'), &ans)
	a.took = append(a.took, time.Since(began))
	if err != nil {
		return err
	}
	if ans.Gpuctl != 1 || ans.Acks[a.src] != next {
		return fmt.Errorf("acked %+v, want %+v; refused %v", ans.Acks[a.src], next, ans.Refused)
	}
	a.cursor = next
	return nil
}

func TestBenchIngest(t *testing.T) {
	o := promise(t, "100 agents, one post a second of 10 records each: p99 under 500 ms, no error")
	agents, seconds, rounds := 100, 5, benchRounds
	if !slow {
		agents, seconds, rounds = 20, 2, 1
	}
	p := newPlane(t)
	server := p.start("gpuctl", "server")
	p.waitServer(server)
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 2 * agents}}
	load := make([]*loadAgent, agents)
	for i := range load {
		a := &loadAgent{
			p: p, client: client, token: p.newToken(fmt.Sprintf("load-%d", i), "agent"), src: "node-" + randomHex(),
			atMS: time.Now().UnixMilli(),
		}
		a.hello = map[string]any{
			"uid": randomHex(), "instance": randomHex(), "session": 0, "incarnation": "", "all": true,
			"fingerprint": map[string]any{"machine_id": randomHex(), "dmi": "", "gpus": []string{}}, "name": fmt.Sprintf("load-%d", i),
			"boot_id": randomHex(), "version": "load", "os": "linux", "user": "load", "cpus": 1, "memory_bytes": 1 << 30, "cpu_lane": 0,
			"devices": []any{}, "runs": []any{}, "sources": []any{}, "now_ms": time.Now().UnixMilli(), "unsent": 0, "problems": []string{},
		}
		if err := a.sayHello(); err != nil {
			t.Fatal(err)
		}
		load[i] = a
	}
	var p99s, p50s []time.Duration
	posts := 0
	for range rounds {
		var wg sync.WaitGroup
		for i, a := range load {
			wg.Go(func() {
				phase := time.NewTimer(time.Duration(i) * time.Second / time.Duration(agents))
				<-phase.C
				tick := time.NewTicker(time.Second)
				defer tick.Stop()
				for range seconds {
					if err := a.post(); err != nil {
						a.failure = err
						return
					}
					<-tick.C
				}
			})
		}
		wg.Wait()
		var took []time.Duration
		for _, a := range load {
			if a.failure != nil {
				t.Fatal(a.failure)
			}
			took = append(took, a.took...)
			a.took = nil
		}
		slices.Sort(took)
		posts += len(took)
		p50s, p99s = append(p50s, took[len(took)/2]), append(p99s, took[len(took)*99/100])
	}
	o.Figure = fmt.Sprintf("p99 %.1f ms, p50 %.1f ms, %d posts of %d agents; limit 500 ms", ms(median(p99s)), ms(median(p50s)), posts, agents)
	if median(p99s) > 500*time.Millisecond {
		t.Errorf("too slow: %s", o.Figure)
	}
}
