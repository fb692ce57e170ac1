package main

// Event files of real processes under a real agent: a child that writes as it is told, and a stage whose server keeps cursors.

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// eventRecord is one scalar as TensorBoard's writers frame it: length, its masked CRC, Event{wall_time, step, summary{value{tag, simple_value}}},
// masked CRC.
func eventRecord(step int64, tag string, v float32) []byte {
	field := func(b []byte, n int, wire int, body []byte) []byte {
		b = binary.AppendUvarint(b, uint64(n<<3|wire))
		if wire == 2 {
			b = binary.AppendUvarint(b, uint64(len(body)))
		}
		return append(b, body...)
	}
	value := field(nil, 1, 2, []byte(tag))
	value = field(value, 2, 5, binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
	event := field(nil, 1, 1, binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(time.Now().UnixMilli())/1000)))
	event = field(event, 2, 0, binary.AppendUvarint(nil, uint64(step)))
	event = field(event, 5, 2, field(nil, 1, 2, value))
	masked := func(b []byte) []byte {
		c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return binary.LittleEndian.AppendUint32(nil, (c>>15|c<<17)+0xa282ead8)
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(event)))
	out = append(out, masked(out)...)
	out = append(out, event...)
	return append(out, masked(event)...)
}

// childTBWriter does what its arguments say, one after the other: open:PATH, points:N, close, await:PATH, touch:PATH, sleep:MS. %p in a path
// is its pid, %s the time in seconds.
func childTBWriter(args []string) int {
	var f *os.File
	step := int64(0)
	for _, a := range args {
		what, arg, _ := strings.Cut(a, ":")
		arg = strings.NewReplacer("%p", strconv.Itoa(os.Getpid()), "%s", strconv.FormatInt(time.Now().Unix(), 10)).Replace(arg)
		n, _ := strconv.Atoi(arg)
		var err error
		switch what {
		case "open":
			if err = os.MkdirAll(filepath.Dir(arg), 0o755); err == nil {
				f, err = os.OpenFile(arg, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
			}
		case "points":
			for range n {
				step++
				if _, err = f.Write(eventRecord(step, "loss", float32(step))); err != nil {
					break
				}
			}
		case "close":
			err = f.Close()
		case "touch":
			err = os.WriteFile(arg, nil, 0o644)
		case "sleep":
			<-time.After(time.Duration(n) * time.Millisecond)
		case "await":
			for end := time.Now().Add(2 * time.Minute); ; time.Sleep(2 * time.Millisecond) {
				if _, serr := os.Stat(arg); serr == nil {
					break
				}
				if time.Now().After(end) { // its test is gone
					return 1
				}
			}
		default:
			err = fmt.Errorf("%s?", a)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
	}
	return 0
}

// tbStage is an agent whose runs write event files.
type tbStage struct {
	*agentScene
	cas  *casServer
	work string
	next int64
}

func newTBStage(t *testing.T) *tbStage {
	s := &tbStage{agentScene: newAgentScene(t), cas: newCasServer(), work: t.TempDir()}
	s.cas.incarnation, s.sources = s.inc, s.cas
	if real, err := filepath.EvalSymlinks(s.work); err == nil {
		s.work = real
	}
	return s
}

func (s *tbStage) in(parts ...string) string {
	return filepath.Join(append([]string{s.work}, parts...)...)
}

// job starts a run that writes as told, in a folder, and waits until it lives.
func (s *tbStage) job(dir string, tb []string, args ...string) (uid string) {
	s.t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	uid = newUID()
	s.next++
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	s.order(s.next, cmdStart, uid, startPayload{
		RunUID: uid, JobUID: "job-" + uid[:4], JobID: s.next, Name: "n", Argv: append([]string{self, "tb-writer"}, args...), WorkingDir: dir,
		Slots: []slotRef{{Lane: laneCPU}}, GraceS: 1, TB: tb,
	})
	waitFor(s.t, "the run to start", func() bool { _, ok, err := s.dir(uid).pid(); return ok && err == nil })
	return uid
}

func (s *tbStage) touch(path string) {
	s.t.Helper()
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// file writes an event file with n points from outside of every run.
func (s *tbStage) file(path string, n int) string {
	s.t.Helper()
	var b []byte
	for i := range n {
		b = append(b, eventRecord(int64(i), "loss", 1)...)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// taken gives what a run has taken: records by base name of the file's path, with the cursor that the server has.
func (s *tbStage) taken(uid string) map[string]tbTaken {
	s.t.Helper()
	records, err := s.dir(uid).tbRecords()
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]tbTaken{}
	s.cas.mu.Lock()
	defer s.cas.mu.Unlock()
	for key, r := range records {
		out[filepath.Base(r.Path)] = tbTaken{r, s.cas.cur[tbSourceName(uid, key)]}
	}
	return out
}

type tbTaken struct {
	tbRecord
	cur wireCursor
}

// waitTaken waits until the server has so many bytes of a file of this name of a run.
func (s *tbStage) waitTaken(uid, name string, size int64) tbTaken {
	s.t.Helper()
	waitFor(s.t, fmt.Sprintf("%s taken to %d", name, size), func() bool { return s.taken(uid)[name].cur.Off == size && size > 0 })
	return s.taken(uid)[name]
}

func (s *tbStage) size(path string) int64 {
	s.t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		s.t.Fatal(err)
	}
	return st.Size()
}

// waitDrained waits until the server has the end of a run's log, and checks that it has the end of everything before it.
func (s *tbStage) waitDrained(uid string) {
	s.t.Helper()
	waitFor(s.t, "the end of the log", func() bool {
		s.cas.mu.Lock()
		defer s.cas.mu.Unlock()
		return s.cas.cur[sourceName(kindLog, uid)].Done
	})
	s.cas.mu.Lock()
	defer s.cas.mu.Unlock()
	if len(s.cas.early) > 0 {
		s.t.Errorf("the end of a log overtook %q", s.cas.early)
	}
}

// events lists the types of the events that were told of a run, with their data.
func (s *tbStage) events(uid string) (types []string, data []string) {
	s.cas.mu.Lock()
	defer s.cas.mu.Unlock()
	for src, list := range s.cas.records {
		if !strings.HasPrefix(src, kindFacts) {
			continue
		}
		for _, raw := range list {
			var f factItem
			var e wireEvent
			if json.Unmarshal([]byte(raw), &f) == nil && f.Kind == "event" && f.RunUID == uid && json.Unmarshal(f.Data, &e) == nil {
				types, data = append(types, e.Type), append(data, string(e.Data))
			}
		}
	}
	return types, data
}

func (s *tbStage) names(uid string) []string {
	var out []string
	for n := range s.taken(uid) {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}
