package main

// A server of maps, which keeps the compare-and-set of DESIGN section 5 and every line for ever, and a network that loses, delays and
// doubles. The real server has its own tests; here it is only what the agent is checked against.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// casLine is one stored log line. A skip is one row with count > 1 or why set.
type casLine struct {
	n, gen int64
	text   string
	more   bool
	skip   int64
}

type casServer struct {
	mu          sync.Mutex
	incarnation string
	cur         map[string]wireCursor
	lines       map[string][]casLine
	records     map[string][]string // facts and node: payloads
	skipped     map[string]int64
	cuts        map[string]int64 // source/generation: how far it was taken when a newer one replaced it
	live        map[string]string
	lives       map[string]int
	early       []string // event files that the end of their log overtook
	refusals    int
	batches     int
	wired       int // lines that are not live
}

func newCasServer() *casServer {
	return &casServer{incarnation: "1-a", cur: map[string]wireCursor{}, lines: map[string][]casLine{}, records: map[string][]string{}, skipped: map[string]int64{}, cuts: map[string]int64{}, live: map[string]string{}, lives: map[string]int{}}
}

// copyState is a backup.
func (s *casServer) copyState() *casServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := newCasServer()
	c.cur, c.skipped = maps.Clone(s.cur), maps.Clone(s.skipped)
	for k, v := range s.lines {
		c.lines[k] = slices.Clone(v)
	}
	for k, v := range s.records {
		c.records[k] = slices.Clone(v)
	}
	return c
}

func (s *casServer) restore(from *casServer, incarnation string) {
	c := from.copyState()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cur, s.skipped, s.lines, s.records, s.incarnation = c.cur, c.skipped, c.lines, c.records, incarnation
}

func (s *casServer) cursors(asked []helloSource) map[string]wireCursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := map[string]wireCursor{}
	for _, a := range asked {
		m[a.Src] = s.cur[a.Src]
	}
	return m
}

func (s *casServer) apply(body []byte) batchAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches++
	ans := batchAnswer{Gpuctl: 1, Acks: map[string]wireCursor{}, Refused: map[string]string{}, Incarnation: s.incarnation}
	if len(body) == 0 {
		return ans
	}
	for _, raw := range bytes.Split(bytes.TrimSuffix(body, []byte{'\n'}), []byte{'\n'}) {
		if len(raw) > batchLineMaxBytes {
			panic("line too long")
		}
		var l batchLine
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil {
			panic(fmt.Sprintf("%v: %.200s", err, raw))
		}
		if _, _, err := parseSource(l.Src); err != nil {
			panic(err)
		}
		if l.Kind == kindLive {
			var items []logItem
			if err := json.Unmarshal(l.Items, &items); err != nil || len(items) != 1 {
				panic("live line")
			}
			s.live[l.Src] = items[0].Text
			s.lives[l.Src]++
			continue
		}
		s.wired++
		c := s.cur[l.Src]
		ans.Acks[l.Src] = c
		if ans.Refused[l.Src] != "" {
			continue
		}
		ok := !l.Reset && l.Gen == c.Gen && l.From == c.Off && l.Prev == c.Print
		if l.Reset {
			ok = l.From == 0 && l.Gen == c.Gen+1 && l.Old == c.Off && l.Prev == c.Print
		}
		if !ok || l.To < l.From || c.Done {
			ans.Refused[l.Src] = "cursor"
			s.refusals++
			continue
		}
		if l.Reset {
			s.cuts[fmt.Sprint(l.Src, "/", c.Gen)] = c.Off
		}
		switch l.Kind {
		case kindSkip:
			s.lines[l.Src] = append(s.lines[l.Src], casLine{n: c.N + 1, gen: l.Gen, skip: l.N})
			s.skipped[l.Src] += l.N
			c.N += l.N
		case kindLog:
			var items []logItem
			if len(l.Items) > 0 {
				if err := json.Unmarshal(l.Items, &items); err != nil {
					panic(err)
				}
			}
			for _, it := range items {
				c.N++
				s.lines[l.Src] = append(s.lines[l.Src], casLine{n: c.N, gen: l.Gen, text: it.Text, more: it.More})
			}
		default:
			var items []json.RawMessage
			if len(l.Items) > 0 {
				if err := json.Unmarshal(l.Items, &items); err != nil {
					panic(err)
				}
			}
			for _, it := range items {
				c.N++
				s.records[l.Src] = append(s.records[l.Src], string(it))
			}
		}
		c.Gen, c.Off, c.Print, c.Done = l.Gen, l.To, l.Print, l.End
		if l.Kind == kindLog && l.End {
			for src, other := range s.cur {
				if strings.HasPrefix(src, sourceTB) && runOfSource(src) == runOfSource(l.Src) && !other.Done {
					s.early = append(s.early, src)
				}
			}
		}
		s.cur[l.Src] = c
		ans.Acks[l.Src] = c
	}
	return ans
}

// world is one machine, one server, and what lies between.
type scheduleWorld struct {
	t    testing.TB
	r    *rand.Rand
	home string
	srv  *casServer
	u    *uploader
	now  time.Time
	calm bool
	late [][]byte

	runs   []*worldRun
	facts  []string
	nodes  int
	faults int
}

type worldRun struct {
	dir   runDir
	w     *os.File
	gens  [][]byte // what was written, by generation; the last is what the file holds
	ended bool
}

func newScheduleWorld(t testing.TB, seed uint64) *scheduleWorld {
	w := &scheduleWorld{t: t, r: rand.New(rand.NewPCG(seed, 11)), home: t.TempDir(), srv: newCasServer(), now: time.Now()}
	w.start()
	return w
}

func (w *scheduleWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// start is a new life of the agent on the same folder. What the old one had under way may still arrive.
func (w *scheduleWorld) start() {
	if w.u != nil {
		w.must(w.u.close()) // what the kernel does
	}
	var self *uploader
	u, err := newUploader(w.home, func(_ context.Context, body []byte) (batchAnswer, error) {
		return w.post(body)
	}, slog.New(slog.NewTextHandler(io.Discard, nil)), func(string) {
		w.hello()
	})
	w.must(err)
	self, w.u = u, u
	for _, r := range w.runs {
		self.addLog(r.dir)
		if r.ended {
			self.finishLog(r.dir.uid(), int64(len(r.gens[len(r.gens)-1])))
		}
	}
	w.hello()
}

func (w *scheduleWorld) hello() {
	if w.r.IntN(3) == 0 && !w.calm { // a late request gets in between the two
		c := w.srv.cursors(w.u.sources())
		w.deliverLate()
		w.u.align(c)
		return
	}
	w.u.align(w.srv.cursors(w.u.sources()))
	if names := w.u.unknown(); len(names) > 0 {
		w.t.Fatalf("still unknown after hello: %v", names)
	}
}

func (w *scheduleWorld) deliverLate() {
	if len(w.late) > 0 {
		i := w.r.IntN(len(w.late))
		w.srv.apply(w.late[i])
		w.late = slices.Delete(w.late, i, i+1)
	}
}

func (w *scheduleWorld) post(body []byte) (batchAnswer, error) {
	k := 99
	if !w.calm {
		k = w.r.IntN(14)
	}
	if k < 7 {
		w.faults++
	}
	switch k {
	case 0:
		return batchAnswer{}, errors.New("lost on the way")
	case 1:
		w.srv.apply(body)
		return batchAnswer{}, errors.New("answer lost")
	case 2:
		return batchAnswer{}, nil // a proxy's page
	case 3, 4:
		w.late = append(w.late, bytes.Clone(body))
		return batchAnswer{}, errors.New("timed out")
	case 5:
		w.late = append(w.late, bytes.Clone(body))
		return w.srv.apply(body), nil
	case 6:
		return batchAnswer{}, newProblem([]string{codeTooLarge, codeUnavailable, codeUnauthorized}[w.r.IntN(3)], "", "no")
	}
	return w.srv.apply(body), nil
}

// step is one round of the uploader; time passes as it wishes.
func (w *scheduleWorld) step() {
	wait, _ := w.u.step(context.Background(), w.now)
	w.now = w.now.Add(wait + time.Millisecond)
}

func (w *scheduleWorld) addRun() *worldRun {
	uid := fmt.Sprintf("%016x%016x", w.r.Uint64(), w.r.Uint64())
	dir := runDir(filepath.Join(w.home, "runs", uid))
	w.must(os.MkdirAll(string(dir), 0o700))
	f, err := os.OpenFile(dir.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	w.must(err)
	w.t.Cleanup(func() { w.must(f.Close()) })
	r := &worldRun{dir: dir, w: f, gens: [][]byte{nil}}
	w.runs = append(w.runs, r)
	r.write(w, []byte("GEN 0\n"))
	w.u.addLog(dir)
	if len(w.u.unknown()) > 0 {
		w.hello()
	}
	return r
}

func (r *worldRun) write(w *scheduleWorld, b []byte) {
	_, err := r.w.Write(b)
	w.must(err)
	r.gens[len(r.gens)-1] = append(r.gens[len(r.gens)-1], b...)
}

func (r *worldRun) truncate(w *scheduleWorld) {
	w.must(r.w.Truncate(0))
	r.gens = append(r.gens, nil)
	r.write(w, fmt.Appendf(nil, "GEN %d\n", len(r.gens)-1))
}

// finishLog is the end of a run that has nothing but a log.
func (u *uploader) finishLog(uid string, size int64) {
	u.sizeLog(uid, size)
	u.endRun(uid, time.Now())
}

func (r *worldRun) src() string { return sourceName(kindLog, r.dir.uid()) }

// scribble writes something awkward.
func (r *worldRun) scribble(w *scheduleWorld) {
	var b []byte
	switch w.r.IntN(9) {
	case 0, 1, 2:
		for range 1 + w.r.IntN(30) {
			b = fmt.Appendf(b, "loss=%x\n", w.r.Uint32())
		}
	case 3:
		for i := range 10 + w.r.IntN(400) {
			b = fmt.Appendf(b, "\r%3d%%|%-20s| %d/400", i, strings.Repeat("█", i/20), i)
		}
		if w.r.IntN(2) == 0 {
			b = append(b, '\n')
		}
	case 4:
		for i := range 5 + w.r.IntN(20) {
			b = fmt.Appendf(b, "\router %d\n\r\x1b[32minner %d\x1b[0m\x1b[A", i, i)
		}
		b = append(b, "\n\n"...)
	case 5:
		b = hostileLog(w.r)
	case 6:
		b = append(b, strings.Repeat("长 line ", 500+w.r.IntN(9000))...)
	case 7:
		b = append(b, "no newline yet..."...)
	case 8:
		b = append(b, strings.Repeat("same\n", w.r.IntN(400))...)
	}
	for len(b) > 0 { // in pieces, with looks in between
		k := min(len(b), 1+w.r.IntN(len(b)))
		r.write(w, b[:k])
		b = b[k:]
		if w.r.IntN(4) == 0 {
			w.step()
		}
	}
}

// settle brings everything to the server over a calm network.
func (w *scheduleWorld) settle() {
	w.t.Helper()
	w.calm = true
	for range 3 {
		w.deliverLate()
	}
	w.hello()
	end := w.u.facts.durable().off
	for i := 0; ; i++ {
		w.step()
		done := w.srv.cur[w.u.own[0].src].Off == w.u.facts.durable().off && w.srv.cur[w.u.own[1].src].Off == w.u.node.durable().off
		for _, r := range w.runs {
			done = done && (!r.ended || w.u.runDone(r.dir.uid()))
		}
		if done {
			return
		}
		if i > 20_000 {
			for _, r := range w.runs {
				f := w.u.runs[r.dir.uid()].log
				w.t.Logf("%s: known %v cur %+v from %d gen %d fresh %v pos %d limit %d torn %v scan %v ended %v pend %d hold %v brake %v now %v misses %d size %d", f.src, f.known, f.cur, f.from, f.gen, f.fresh, f.fed.pos, f.limit, f.torn, f.scan != nil, f.ended, len(f.pend), f.hold.Sub(w.now), f.brake.Sub(w.now), w.now, f.misses, r.dir.logSize())
			}
			w.t.Fatalf("does not settle: facts %d of %d, cursors %v", w.srv.cur[w.u.own[0].src].Off, end, w.srv.cur)
		}
	}
}

// checkLog compares what the server has with the reference folding: every generation of it a true one, in order, a true prefix; the last
// one whole; numbers without a gap, skips counted.
func (w *scheduleWorld) checkLog(r *worldRun) {
	w.t.Helper()
	rows := w.srv.lines[r.src()]
	cur := w.srv.cur[r.src()]
	last := r.gens[len(r.gens)-1]
	if cur.Off != int64(len(last)) || !cur.Done {
		w.t.Fatalf("cursor %+v, file has %d bytes", cur, len(last))
	}
	n, k := int64(0), -1
	for i := 0; i < len(rows); {
		gen := rows[i].gen
		j := i
		for j < len(rows) && rows[j].gen == gen {
			j++
		}
		part := rows[i:j]
		i = j
		if part[0].skip == 0 {
			var g int
			if _, err := fmt.Sscanf(part[0].text, "GEN %d", &g); err != nil || g <= k || g >= len(r.gens) {
				w.t.Fatalf("server generation %d begins with %.80q after generation %d", gen, part[0].text, k)
			}
			k = g
		}
		want := foldAll(r.gens[k])
		var torn []logItem
		if j < len(rows) { // replaced: its unfinished last line may have been sent as far as it was read
			torn = foldAll(r.gens[k][:min(w.srv.cuts[fmt.Sprint(r.src(), "/", gen)], int64(len(r.gens[k])))])
		}
		is := func(list []logItem, at int64, row casLine) bool {
			return at < int64(len(list)) && list[at].Text == row.text && list[at].More == row.more
		}
		at := int64(0)
		for _, row := range part {
			if row.n != n+1 {
				w.t.Fatalf("line number %d after %d", row.n, n)
			}
			if row.skip > 0 {
				at += row.skip
				n += row.skip
				continue
			}
			if !is(want, at, row) && !is(torn, at, row) {
				w.t.Fatalf("generation %d of %d, line %d of %d: %.120q; %.2000q", k, len(r.gens), at, len(want), row.text, r.gens[k])
			}
			at++
			n++
		}
		if j == len(rows) && (k != len(r.gens)-1 || at != int64(len(want))) {
			w.t.Fatalf("last generation taken is %d with %d lines, file is %d with %d", k, at, len(r.gens)-1, len(want))
		}
	}
	if cur.N != n {
		w.t.Fatalf("cursor counts %d, stored %d", cur.N, n)
	}
}

func (w *scheduleWorld) checkOwn() {
	w.t.Helper()
	told := map[string]int{}
	for _, p := range w.srv.records[w.u.own[0].src] {
		var f factItem
		w.must(json.Unmarshal([]byte(p), &f))
		told[f.Key]++
	}
	for _, k := range w.facts {
		if told[k] != 1 {
			w.t.Fatalf("fact %s was stored %d times", k, told[k])
		}
	}
	src := w.u.own[1].src
	if got := len(w.srv.records[src]) + int(w.srv.skipped[src]); got != w.nodes {
		w.t.Fatalf("%d node samples stored and %d skipped, of %d", len(w.srv.records[src]), w.srv.skipped[src], w.nodes)
	}
}

// Random lives, faults, late requests, truncations, restores of the server: nothing lost, doubled or altered.
func TestUploadSchedules(t *testing.T) {
	n := 300
	if testing.Short() {
		n = 30
	}
	var faults, lives, restores, truncations, refusals int
	for seed := range n {
		w := newScheduleWorld(t, uint64(seed))
		for range 1 + w.r.IntN(3) {
			w.addRun()
		}
		truncating := seed%2 == 0
		var backup *casServer
		for range 30 + w.r.IntN(60) {
			for _, r := range w.runs {
				if w.r.IntN(2) == 0 {
					r.scribble(w)
				}
				if truncating && w.r.IntN(25) == 0 {
					r.truncate(w)
					truncations++
				}
			}
			switch w.r.IntN(13) {
			case 0:
				w.start()
				lives++
			case 1:
				w.deliverLate()
			case 2:
				key := fmt.Sprint("fact-", len(w.facts))
				w.must(w.u.addFact(factItem{Key: key, Kind: "env", Data: json.RawMessage(`{"a":1}`)}))
				w.facts = append(w.facts, key)
			case 3:
				w.u.addNodeSample(nodeSample{AtMS: w.now.UnixMilli()})
				w.nodes++
			case 4:
				if backup == nil {
					backup = w.srv.copyState()
				} else if w.r.IntN(3) == 0 {
					restores++
					w.srv.restore(backup, fmt.Sprintf("%d-r", restores+2))
				}
			case 5:
				w.hello()
			case 6:
				w.must(w.u.facts.seal())
				w.must(w.u.node.seal())
				if w.r.IntN(2) == 0 {
					w.u.node.makeRoom()
				}
			default:
				w.step()
			}
		}
		for _, r := range w.runs {
			r.ended = true
			size := int64(len(r.gens[len(r.gens)-1]))
			if w.r.IntN(2) == 0 { // somebody writes behind the end before it is told
				_, err := r.w.Write([]byte(" behind the end\nxx"))
				w.must(err)
				if w.r.IntN(2) == 0 && w.srv.cur[r.src()].Off < size-100 {
					_, _, _ = w.u.collect(w.now)
				}
			}
			w.u.finishLog(r.dir.uid(), size)
		}
		w.settle()
		for _, r := range w.runs {
			w.checkLog(r)
		}
		w.checkOwn()
		faults += w.faults
		refusals += w.srv.refusals
		w.must(w.u.close())
		if t.Failed() {
			return
		}
	}
	t.Logf("%d schedules: %d faults, %d lives, %d restores, %d truncations, %d lines refused", n, faults, lives, restores, truncations, refusals)
	if faults < n || lives < n/3 || truncations < n/3 {
		t.Fatal("the schedules are too tame")
	}
}
