package tests

// REST as a stranger would speak it: own shapes, only what the tests look at.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

type jobShape struct {
	ID         int64    `json:"id"`
	Name       string   `json:"name"`
	State      string   `json:"state"`
	Reason     *string  `json:"reason"`
	Detail     *string  `json:"detail"`
	ExitCode   *int64   `json:"exit_code"`
	Signal     *int64   `json:"signal"`
	WaitReason *string  `json:"wait_reason"`
	Runs       []string `json:"runs"`
	Drained    bool     `json:"drained"`
	StartedMS  *int64   `json:"started_ms"`
	EndedMS    *int64   `json:"ended_ms"`
	Node       *string  `json:"node"`
}

type runShape struct {
	ID        string      `json:"id"`
	UID       string      `json:"uid"`
	State     string      `json:"state"`
	Reason    *string     `json:"reason"`
	ExitCode  *int64      `json:"exit_code"`
	Signal    *int64      `json:"signal"`
	Drained   bool        `json:"drained"`
	Slots     []slotShape `json:"slots"`
	LeftAlone []string    `json:"left_alone"`
	StartedMS *int64      `json:"started_ms"`
	EndedMS   *int64      `json:"ended_ms"`
	Log       struct {
		Lines       int64 `json:"lines"`
		Bytes       int64 `json:"bytes"`
		Skipped     int64 `json:"skipped"`
		Truncations int64 `json:"truncations"`
		Done        bool  `json:"done"`
		Incomplete  bool  `json:"incomplete"`
	} `json:"log"`
	EnvSnapshot map[string]any `json:"env_snapshot"`
}

type slotShape struct {
	Lane  string  `json:"lane"`
	Idx   int     `json:"idx"`
	UUID  string  `json:"uuid"`
	Run   *string `json:"run"`
	JobID *int64  `json:"job_id"`
}

type lineShape struct {
	N         int64  `json:"n"`
	Text      string `json:"text"`
	Continued bool   `json:"continued"`
}

type eventShape struct {
	ID       int64   `json:"id"`
	Type     string  `json:"type"`
	Severity string  `json:"severity"`
	Run      *string `json:"run"`
	JobID    *int64  `json:"job_id"`
	Message  string  `json:"message"`
}

type problemShape struct {
	Code   string `json:"code"`
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Hint   string `json:"hint"`
}

func (p *plane) url() string { return fmt.Sprintf("http://127.0.0.1:%d", p.port) }

// token is the admin token, out of the file into which the first start wrote it.
func (p *plane) token() string {
	b, err := os.ReadFile(filepath.Join(p.home, "server.yaml"))
	if err != nil {
		return ""
	}
	m := regexp.MustCompile(`(?m)^admin_token: *"?([\w.-]+)"?$`).FindSubmatch(b)
	if m == nil {
		return ""
	}
	return string(m[1])
}

// answer is a whole HTTP answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send makes one request; err is set only when there was no answer.
func (p *plane) send(method, path, token string, header http.Header, body []byte) (answer, error) {
	req, err := http.NewRequest(method, p.url()+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return roundTrip(req)
}

func roundTrip(req *http.Request) (answer, error) {
	client := http.Client{Timeout: 40 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, b}, err
}

// do wants an answer, whatever it is.
func (p *plane) do(req *http.Request) answer {
	p.t.Helper()
	a, err := roundTrip(req)
	if err != nil {
		p.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	return a
}

// get reads path into v; status 0 means that nobody answered.
func (p *plane) get(path string, v any) (int, error) {
	a, err := p.send("GET", path, p.token(), nil, nil)
	if err != nil {
		return 0, err
	}
	if v != nil && a.status == 200 {
		if err := json.Unmarshal(a.body, v); err != nil {
			return a.status, fmt.Errorf("%s: %w in %.300s", path, err, a.body)
		}
	}
	return a.status, nil
}

// mustGet wants a 200.
func (p *plane) mustGet(path string, v any) {
	p.t.Helper()
	status, err := p.get(path, v)
	if err != nil || status != 200 {
		p.t.Fatalf("GET %s: status %d, %v", path, status, err)
	}
}

// post sends v as JSON and wants one of the statuses 200..299; the answer is decoded into out.
func (p *plane) post(path string, v, out any) {
	p.t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		p.t.Fatal(err)
	}
	a, err := p.send("POST", path, p.token(), http.Header{"Content-Type": {"application/json"}}, body)
	if err != nil || a.status/100 != 2 {
		p.t.Fatalf("POST %s: status %d, %v: %s", path, a.status, err, a.body)
	}
	if out != nil {
		if err := json.Unmarshal(a.body, out); err != nil {
			p.t.Fatalf("POST %s: %v in %s", path, err, a.body)
		}
	}
}

func (p *plane) job(id int64) jobShape {
	p.t.Helper()
	var j jobShape
	p.mustGet(fmt.Sprintf("/api/v1/jobs/%d", id), &j)
	return j
}

func (p *plane) run(id string) runShape {
	p.t.Helper()
	var r runShape
	p.mustGet("/api/v1/runs/"+id, &r)
	return r
}

func (p *plane) slots() []slotShape {
	p.t.Helper()
	var l struct{ Items []slotShape }
	p.mustGet("/api/v1/slots", &l)
	return l.Items
}

// heldSlots counts slots that somebody has, or that are offered to a job.
func (p *plane) heldSlots() int {
	p.t.Helper()
	n := 0
	for _, s := range p.slots() {
		if s.Run != nil || s.JobID != nil {
			n++
		}
	}
	return n
}

func (p *plane) nodeState() string {
	var l struct{ Items []struct{ State string } }
	if status, err := p.get("/api/v1/nodes", &l); err != nil || status != 200 || len(l.Items) != 1 {
		return ""
	}
	return l.Items[0].State
}

// events reads all events, oldest first, of one run when it is named.
func (p *plane) events(run string) []eventShape {
	p.t.Helper()
	var all []eventShape
	for after := int64(0); ; {
		var page struct {
			Items []eventShape
			Next  *int64
		}
		p.mustGet(fmt.Sprintf("/api/v1/events?after=%d&limit=200", after), &page)
		for _, e := range page.Items {
			if run == "" || e.Run != nil && *e.Run == run {
				all = append(all, e)
			}
			after = max(after, e.ID)
		}
		if len(page.Items) == 0 {
			return all
		}
	}
}

// countEvents counts the events of a type of a run.
func (p *plane) countEvents(run, kind string) int {
	p.t.Helper()
	n := 0
	for _, e := range p.events(run) {
		if e.Type == kind {
			n++
		}
	}
	return n
}

// lines reads what the server keeps of a log from line after+1 on.
func (p *plane) lines(run string, after int64) []lineShape {
	p.t.Helper()
	var all []lineShape
	for {
		var page struct {
			Items []lineShape
			Next  int64
		}
		p.mustGet(fmt.Sprintf("/api/v1/runs/%s/log?after=%d&limit=1000", run, after), &page)
		if len(page.Items) == 0 {
			return all
		}
		all = append(all, page.Items...)
		after = page.Items[len(page.Items)-1].N
	}
}

// waitState waits until a job is in one of the states.
func (p *plane) waitState(id int64, within time.Duration, states ...string) jobShape {
	p.t.Helper()
	var j jobShape
	waitFor(p.t, within, fmt.Sprintf("job %d in %v", id, states), func() bool {
		j = p.job(id)
		return slices.Contains(states, j.State)
	})
	return j
}

// waitOver waits until a job is in a terminal state and its newest run is drained.
func (p *plane) waitOver(id int64, within time.Duration) jobShape {
	p.t.Helper()
	var j jobShape
	waitFor(p.t, within, fmt.Sprintf("job %d over and drained", id), func() bool {
		j = p.job(id)
		over := j.State == "SUCCEEDED" || j.State == "FAILED" || j.State == "CANCELLED"
		return over && (j.Drained || len(j.Runs) == 0)
	})
	return j
}

// wantEnd fails unless a job ended as said; code -1 means that none is expected, reason "" that it does not matter.
func wantEnd(t *testing.T, j jobShape, state, reason string, code int64) {
	t.Helper()
	gotCode := int64(-1)
	if j.ExitCode != nil {
		gotCode = *j.ExitCode
	}
	if j.State != state || reason != "" && deref(j.Reason) != reason || gotCode != code {
		t.Errorf("job %d: %s/%s code %d (%s), want %s/%s code %d", j.ID, j.State, deref(j.Reason), gotCode, deref(j.Detail), state, reason, code)
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func splitLines(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == '\n' })
}
