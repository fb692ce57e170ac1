package main

// The fencing model against the real tables: random schedules of an agent's and a machine's steps with faults (lost, late and doubled
// messages, kills, reboots, wiped folders, restarts and restores of the server), then the faults stop and everything must end.
// GPUCTL_FENCING=1000 runs that many schedules, GPUCTL_FENCING_SEED=7 the one.

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// fenceFolder is a run folder with its process; fate as in rundir.go, "" undecided.
type fenceFolder struct {
	uid, jobUID, fate string
	jobID             int64
	attempt, grant    int64
	slots             []slotRef
	exit              *exitInfo
	settled           string // incarnation
}

// fenceProc is a training process: found by its marker even when its folder was wiped.
type fenceProc struct {
	fenceFolder
	card string
}

type fenceMachine struct {
	a       *testAgent
	boots   int
	folders map[string]*fenceFolder
	procs   map[string]*fenceProc
	claims  map[string]bool // open ones of this agent instance
	late    []helloRequest
	grants  []func() // answers under way
}

// fence is one schedule.
type fence struct {
	*world
	r         *rand.Rand
	machines  []*fenceMachine
	starts    map[string]int // by run uid
	done      map[string]int // jobs that ended 0 with the folder still there, by uid: machine
	cancelled map[string]bool
	restored  bool
	calm      bool
	log       []string
	counts    map[string]int
}

func (f *fence) chance(n int) bool { return !f.calm && f.r.IntN(n) == 0 }

func (f *fence) note(format string, args ...any) {
	f.log = append(f.log, fmt.Sprintf(format, args...))
	f.counts[format]++
}

func (f *fence) bad(format string, args ...any) {
	f.t.Helper()
	for _, l := range f.log[max(0, len(f.log)-80):] {
		f.t.Log(l)
	}
	f.t.Fatalf(format, args...)
}

func (f *fence) restart() {
	f.stop()
	f.start()
	f.fast()
}

// fast: the database need not survive a power cut here.
func (f *fence) fast() {
	_, err := f.s.store.writer.exec("PRAGMA synchronous = OFF")
	f.must(err)
}

func (m *fenceMachine) name() string { return m.a.h.Name }

// burn decides a folder that has no fate; a uid never heard of gets a folder that says so.
func (f *fence) burn(m *fenceMachine, uid string) {
	d := m.folders[uid]
	if d == nil {
		d = &fenceFolder{uid: uid}
		m.folders[uid] = d
	}
	if d.fate == "" && m.procs[uid] == nil {
		d.fate = fateBurn
		f.note("burned on %s", m.name())
	}
}

// boot starts the agent's process anew: what has no fate is burned.
func (f *fence) boot(m *fenceMachine) {
	m.a.h.Instance, m.a.h.Session, m.a.h.Incarnation = newUID(), 0, ""
	m.claims, m.grants = map[string]bool{}, nil
	for _, uid := range slices.Sorted(maps.Keys(m.folders)) {
		f.burn(m, uid)
	}
}

func (m *fenceMachine) tells(all bool, inc string) []runTell {
	var out []runTell
	uids := map[string]bool{}
	for uid := range m.folders {
		uids[uid] = true
	}
	for uid := range m.procs {
		uids[uid] = true
	}
	for _, uid := range slices.Sorted(maps.Keys(uids)) {
		d, p := m.folders[uid], m.procs[uid]
		if d == nil {
			d = &p.fenceFolder
		}
		t := runTell{UID: uid, JobUID: d.jobUID, JobID: d.jobID, Attempt: d.attempt, Grant: d.grant, Slots: d.slots, Name: "x"}
		switch {
		case p != nil:
			t.Truth = tellAlive
		case d.exit != nil:
			t.Truth, t.Exit = tellEnded, d.exit
		case d.fate == fateBurn:
			t.Truth = tellGone
		case d.fate == fateStart:
			t.Truth, t.Exit = tellEnded, &exitInfo{Code: -1, Reason: reasonSupervisorLost}
		default:
			t.Truth = tellPending
		}
		if all || p != nil || d.settled != inc || t.Truth == tellPending {
			out = append(out, t)
		}
	}
	return out
}

// hello is one exchange; its request or its answer may be lost, and a copy may come late.
func (f *fence) hello(m *fenceMachine) {
	h := m.a.h
	h.All = h.Session == 0 || h.Incarnation == "" || f.r.IntN(3) == 0 || !m.a.h.All
	h.Runs = m.tells(h.All, h.Incarnation)
	if f.chance(6) {
		m.late = append(m.late, h)
	}
	if f.chance(8) {
		return // lost on the way
	}
	var ans helloAnswer
	_, p := f.call("POST", "/api/v1/agent/hello", m.a.token, h, &ans)
	if p != nil {
		if p.Code == codeSession { // somebody else took the place: this one is dead, another process starts
			f.boot(m)
			return
		}
		f.bad("hello of %s: %s %s", m.name(), p.Code, p.Detail)
	}
	if f.chance(8) {
		return // the answer is lost
	}
	if ans.Incarnation != m.a.h.Incarnation && m.a.h.Incarnation != "" || ans.Session != m.a.h.Session {
		for _, uid := range slices.Sorted(maps.Keys(m.folders)) {
			f.burn(m, uid) // a new incarnation: no old grant may start any more
		}
		m.claims, m.grants = map[string]bool{}, nil
		m.a.h.All = false
	}
	m.a.h.Session, m.a.h.Incarnation = ans.Session, ans.Incarnation
	if ans.Accepted {
		m.a.h.All = m.a.h.All || h.All
		for _, uid := range ans.Settled {
			if d := m.folders[uid]; d != nil && (d.exit != nil || d.fate != "") && m.procs[uid] == nil {
				d.settled = ans.Incarnation
			}
		}
	}
}

func (f *fence) poll(m *fenceMachine) {
	var ans pollAnswer
	if _, p := f.call("GET", "/api/v1/agent/poll?wait=0", m.a.token, nil, &ans); p != nil || ans.Incarnation != m.a.h.Incarnation {
		return // hello first
	}
	for _, c := range ans.Commands {
		if f.chance(6) {
			continue
		}
		switch c.Kind {
		case cmdStart:
			var p startPayload
			f.must(strictJSON(c.Payload, &p))
			if m.folders[p.RunUID] == nil && m.procs[p.RunUID] == nil {
				m.folders[p.RunUID] = &fenceFolder{uid: p.RunUID, jobUID: p.JobUID, jobID: p.JobID, slots: p.Slots}
			}
			if d := m.folders[p.RunUID]; d != nil && d.fate == "" {
				m.claims[p.RunUID] = true
			}
		case cmdVerify:
			f.burn(m, c.RunUID)
			if d := m.folders[c.RunUID]; d != nil {
				d.settled = ""
			}
		case cmdStop:
			if m.procs[c.RunUID] != nil {
				var p stopPayload
				f.must(strictJSON(c.Payload, &p))
				f.end(m, c.RunUID, exitInfo{Code: -1, Signal: 15, Reason: p.Reason})
			} else {
				f.burn(m, c.RunUID)
				m.folders[c.RunUID].settled = ""
			}
		}
	}
}

// end ends a process; its exit is written when the folder is still there.
func (f *fence) end(m *fenceMachine, uid string, e exitInfo) {
	p := m.procs[uid]
	delete(m.procs, uid)
	d := m.folders[uid]
	if d == nil {
		return
	}
	d.exit = &e
	if e.Code == 0 && e.Reason == "" && e.Signal == 0 {
		f.done[p.jobUID] = slices.Index(f.machines, m)
	}
}

func (f *fence) claim(m *fenceMachine) {
	open := slices.Sorted(maps.Keys(m.claims))
	if len(open) == 0 || f.chance(8) {
		return
	}
	uid := open[f.r.IntN(len(open))]
	instance, inc := m.a.h.Instance, m.a.h.Incarnation
	g := m.a.claim(uid)
	use := func() {
		d := m.folders[uid]
		if d == nil || d.fate != "" || m.a.h.Instance != instance || m.a.h.Incarnation != inc || g.Incarnation != inc || !m.claims[uid] {
			return
		}
		switch g.Verdict {
		case verdictDeny:
			delete(m.claims, uid)
			f.burn(m, uid)
		case verdictGrant:
			delete(m.claims, uid)
			d.fate, d.attempt, d.grant = fateStart, g.Attempt, g.Grant
			f.begin(m, d)
		}
	}
	switch {
	case f.chance(8):
	case f.chance(3):
		m.grants = append(m.grants, use)
	default:
		use()
	}
}

// begin starts the process and looks at what must never be.
func (f *fence) begin(m *fenceMachine, d *fenceFolder) {
	f.note("started on %s", m.name())
	p := &fenceProc{fenceFolder: *d, card: d.slots[0].UUID}
	for _, o := range f.machines {
		for _, q := range o.procs {
			if q.jobUID == p.jobUID {
				f.bad("job %s runs twice: on %s and %s", p.jobUID, o.name(), m.name())
			}
			if q.card == p.card {
				f.bad("card %s has two runs", p.card)
			}
		}
	}
	if f.starts[d.uid]++; f.starts[d.uid] > 1 {
		f.bad("run %s starts twice", d.uid)
	}
	if at, ok := f.done[d.jobUID]; ok && at >= 0 {
		f.bad("job %s ended 0 and runs again", d.jobUID)
	}
	if f.cancelled[d.jobUID] && !f.restored {
		f.bad("job %s was cancelled and starts", d.jobUID)
	}
	m.procs[d.uid] = p
}

func (f *fence) step() {
	m := f.machines[f.r.IntN(len(f.machines))]
	switch k := f.r.IntN(200); {
	case k < 40:
		f.hello(m)
	case k < 80:
		f.poll(m)
	case k < 120:
		f.claim(m)
	case k < 145:
		f.pass()
	case k < 153:
		for _, g := range m.grants {
			g()
		}
		m.grants = nil
	case k < 161 || f.calm && k >= 176:
		for _, uid := range slices.Sorted(maps.Keys(m.procs)) {
			f.end(m, uid, []exitInfo{{Code: 0}, {Code: 1}, {Code: -1, Signal: 9}}[f.r.IntN(3)])
			break
		}
	case k < 176:
		f.due()
	default:
		if !f.calm {
			f.fault(m, f.r.IntN(18))
		}
	}
}

// due lets timers fire on whatever they could fire on.
func (f *fence) due() {
	f.write(func(t *tx) error {
		if _, _, on, err := f.s.inRecovery(t.conn); err != nil || on {
			return err
		}
		if _, err := t.exec("UPDATE jobs SET not_before_ms = 0 WHERE not_before_ms > 0"); err != nil {
			return err
		}
		if f.calm {
			return nil
		}
		offers, err := loadRuns(t.conn, "state = 'OFFERED' LIMIT 1")
		if err != nil {
			return err
		}
		silent, err := loadRuns(t.conn, "state IN ('STARTING', 'ALIVE') ORDER BY id DESC LIMIT 1")
		if err != nil {
			return err
		}
		f.note("timers fired")
		if len(silent) > 0 {
			f.note("a run is lost")
		}
		return f.s.dueTx(t, offers, silent, nil)
	})
}

func (f *fence) fault(m *fenceMachine, k int) {
	switch {
	case k < 3 && len(m.late) > 0:
		h := m.late[0]
		m.late = m.late[1:]
		f.note("a late hello of %s", m.name())
		f.call("POST", "/api/v1/agent/hello", m.a.token, h, nil)
	case k < 6:
		f.note("agent of %s killed", m.name())
		f.boot(m)
	case k < 8:
		f.note("%s reboots", m.name())
		m.boots++
		m.a.h.BootID = fmt.Sprint("boot-", m.boots)
		clear(m.procs)
		f.boot(m)
	case k < 9:
		f.note("state folder of %s wiped", m.name())
		clear(m.folders)
		for job, at := range f.done {
			if f.machines[at] == m {
				delete(f.done, job)
			}
		}
		f.boot(m)
	case k < 12:
		id := f.submit(testJob{})
		f.note("job %d submitted", id)
	case k < 14:
		f.verb(m)
	case k < 15:
		f.note("server restarted")
		f.restart()
	case k < 16:
		f.note("backup")
		f.backup()
		f.fast()
	case f.exists("backup.db"):
		f.note("restore")
		f.restored = true // cancels and retries after the backup are gone
		f.restore()
		f.fast()
	}
}

func (f *fence) exists(name string) bool {
	_, err := os.Stat(f.dataFile(name))
	return err == nil
}

// verb cancels or retries some job.
func (f *fence) verb(*fenceMachine) {
	var id int64
	var uid, state string
	f.must(f.s.store.read(f.t.Context(), func(c *conn) error {
		_, err := c.one("SELECT id, uid, state FROM jobs ORDER BY id * ? % 1009 LIMIT 1", []any{f.r.Int64N(1000) + 1}, &id, &uid, &state)
		return err
	}))
	if id == 0 {
		return
	}
	f.write(func(t *tx) error {
		if !jobOver(state) {
			f.note("job %d cancelled", id)
			f.cancelled[uid] = true
			return f.s.cancelJobTx(t, id, "p", nil, "")
		}
		f.note("job %d retried", id)
		delete(f.cancelled, uid)
		delete(f.done, uid)
		return f.s.retryJobTx(t, id, "p", retryRequest{})
	})
	if f.cancelled[uid] && f.get("SELECT state FROM jobs WHERE id = ?", id) == jobCancelling {
		delete(f.cancelled, uid) // a grant under way may still start; it is ended
	}
}

// settle lets everything go right until nothing is left to do.
func (f *fence) settle() {
	f.calm = true
	for _, m := range f.machines {
		m.late = nil
	}
	for range 60 {
		for range 40 {
			f.step()
		}
		for _, m := range f.machines {
			f.hello(m)
			f.poll(m)
		}
		open := f.get("SELECT count(*) FROM jobs WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED')")
		if open == "0" && f.get("SELECT count(*) FROM slots WHERE run_id IS NOT NULL") == "0" {
			break
		}
	}
	f.recovery(false)
	f.want("", "SELECT COALESCE(group_concat(id || state || ifnull(run_id, '-'), ' '), '') FROM jobs WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED')")
	f.held(0)
	f.want("0", "SELECT count(*) FROM commands WHERE state = 'open'")
}

func TestFencing(t *testing.T) {
	n, first := 12, uint64(1)
	if v, err := strconv.Atoi(os.Getenv("GPUCTL_FENCING")); err == nil {
		n = v
	}
	if v, err := strconv.ParseUint(os.Getenv("GPUCTL_FENCING_SEED"), 10, 64); err == nil {
		n, first = 1, v
	}
	counts := map[string]int{}
	for seed := first; seed < first+uint64(n); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			f := &fence{
				world: newWorld(t), r: rand.New(rand.NewPCG(seed, 2)), starts: map[string]int{}, done: map[string]int{}, cancelled: map[string]bool{},
				counts: counts,
			}
			f.fast()
			for i := range 3 {
				m := &fenceMachine{a: f.agent(fmt.Sprint("n", i), 1), folders: map[string]*fenceFolder{}, procs: map[string]*fenceProc{}, claims: map[string]bool{}}
				m.a.h.BootID = "boot-0"
				f.machines = append(f.machines, m)
			}
			for range 15 {
				f.submit(testJob{})
			}
			for range 400 {
				f.now = time.Now()
				f.step()
			}
			f.settle()
		})
	}
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%6d %s", counts[k], k)
	}
	if n > 5 && (counts["started on %s"] < 10*n || counts["restore"] == 0 || counts["%s reboots"] == 0) {
		t.Fatal("too little happened for this to prove anything")
	}
}
