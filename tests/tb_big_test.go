package tests

// Event files that are large: pictures between the numbers, many old folders beside them, a million points.

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cpuTime is what all threads of a process have used: to the ns where the kernel says it, else in ticks of 10 ms.
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has ended
		}
		ns, err := strconv.ParseInt(strings.Fields(string(b) + " 0")[0], 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		sum += ns
	}
	if sum > 0 {
		return time.Duration(sum)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+2:]))
	for _, s := range f[11:13] {
		ticks, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += ticks * int64(10*time.Millisecond)
	}
	return time.Duration(sum)
}

func (d *daemon) cpu() time.Duration {
	d.p.t.Helper()
	return cpuTime(d.p.t, d.cmd.Process.Pid)
}

// TestB08Pictures: nearly all of the file is pictures. They are holes of the file here, with right checksums, so that the disk need not
// have the room; for a reader they are bytes like any other.
func TestB08Pictures(t *testing.T) {
	o := promise(t, "M1 B08 3 GB of event file, 99.9 % pictures, records of up to 300 MB, 500 old folders: every scalar, memory flat, old folders cost nothing")
	pictures, largest := 2400, 300 // of 1 MB, and two of so many MB
	if !slow {
		t.Parallel()
		pictures, largest = 250, 100
	}
	p := newPlane(t)
	dir := p.folder("big")
	old := time.Now().Add(-time.Hour)
	for i := range 500 {
		d := p.folder(filepath.Join("big", "old", fmt.Sprintf("run%d", i)))
		f := p.write(filepath.Join(d, fmt.Sprintf("events.out.tfevents.%d.host", 1600000000+i)), "not looked at")
		if err := os.Chtimes(f, old, old); err != nil {
			t.Fatal(err)
		}
	}
	_, agent := p.apart()
	before, idle := agent.hwm(), agent.cpu()
	pause(t, 5*time.Second)
	idle = agent.cpu() - idle
	id := p.train(dir, p.writer("b08.py", `
def zeros(crc, n):
    # the register after n zero bytes: each is the same linear map, raised by squaring
    apply = lambda m, v: __import__("functools").reduce(lambda a, i: a ^ (m[i] if v >> i & 1 else 0), range(32), 0)
    one = [TABLE[(1 << i) & 255] ^ (1 << i) >> 8 for i in range(32)]
    while n:
        if n & 1: crc = apply(one, crc)
        one = [apply(one, c) for c in one]
        n >>= 1
    return crc
import tbwrite
TABLE = tbwrite._TABLE

def picture(size):
    # head and tail of a record with a picture of so many zero bytes between them
    inner = field(1, b"picture") + metadata("images")
    length = varint(size)
    image_head = number(1, 8) + number(2, 8) + number(3, 3) + varint(4 << 3 | 2) + length
    value = inner + varint(4 << 3 | 2) + varint(len(image_head) + size) + image_head
    summary_head = varint(1 << 3 | 2) + varint(len(value) + size) + value
    data = b"\x09" + struct.pack("<d", 1.5) + number(2, 3) + varint(5 << 3 | 2) + varint(len(summary_head) + size) + summary_head
    head = struct.pack("<Q", len(data) + size)
    crc = zeros(crc32c(data) ^ 0xFFFFFFFF, size) ^ 0xFFFFFFFF
    tail = struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    return head + masked(head) + data, tail

w = Writer(name())
def put(p, size):
    w.raw(p[0])
    w.file.seek(size, 1)
    w.raw(p[1])
pictures, largest = int(sys.argv[1]), int(sys.argv[2]) << 20
common, large = picture(1 << 20), picture(largest)
for i in range(pictures):
    put(common, 1 << 20)
    if i in (3, pictures - 3): put(large, largest)
    w.scalar("loss", i, i)
print(w.file.tell())
gate("done")
`), strconv.Itoa(pictures), strconv.Itoa(largest))
	run := firstRun(id)
	p.waitRunning(id)
	used, began := agent.cpu(), time.Now()
	p.waitCount(run, 3*time.Minute, int64(pictures))
	took := time.Since(began)
	used = agent.cpu() - used
	quiet := agent.cpu()
	pause(t, 5*time.Second)
	quiet = agent.cpu() - quiet
	p.open(dir, "done")
	wantEnd(t, p.waitOver(id, 60*time.Second), "SUCCEEDED", "", 0)
	wantCurves(t, "b08", p.metrics(run, "").Items, byPlace, curves{" : loss": steps(upTo(0, int64(pictures)-1)...)})
	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(files[0], &st); err != nil {
		t.Fatal(err)
	}
	grown := agent.hwm() - before
	o.Figure = fmt.Sprintf("%.1f GB in %.1f s, %.2f s CPU; VmHWM %d MB, %d MB more than before; 5 s idle %.0f ms CPU, with the file and 500 old ones %.0f ms",
		float64(st.Size)/1e9, took.Seconds(), used.Seconds(), agent.hwm()>>20, grown>>20, ms(idle), ms(quiet))
	if agent.hwm() >= agentMemoryLimit || grown > 24<<20 {
		t.Errorf("memory is not flat: %s", o.Figure)
	}
	if limit := time.Duration(st.Size) * 4 / 10; used > limit+time.Second { // 0.4 ns a byte
		t.Errorf("%.2f s CPU, limit %.2f: pictures are not passed over", used.Seconds(), limit.Seconds())
	}
	if quiet > idle+150*time.Millisecond {
		t.Errorf("a quiet run costs %.0f ms CPU in 5 s, idle is %.0f ms", ms(quiet), ms(idle))
	}
}

// eventWriter makes event files quickly: one scalar a record, as tensorboardX does. Independent of what reads it.
type eventWriter struct {
	w     *bufio.Writer
	table *crc32.Table
	buf   []byte
}

func (e *eventWriter) record(data []byte) error {
	var head [12]byte
	binary.LittleEndian.PutUint64(head[:], uint64(len(data)))
	binary.LittleEndian.PutUint32(head[8:], e.masked(head[:8]))
	if _, err := e.w.Write(head[:]); err != nil {
		return err
	}
	if _, err := e.w.Write(data); err != nil {
		return err
	}
	var foot [4]byte
	binary.LittleEndian.PutUint32(foot[:], e.masked(data))
	_, err := e.w.Write(foot[:])
	return err
}

func (e *eventWriter) masked(b []byte) uint32 {
	c := crc32.Checksum(b, e.table)
	return (c>>15 | c<<17) + 0xa282ead8
}

func (e *eventWriter) scalar(tag string, step int64, wall float64, v float32) error {
	value := append([]byte{0x0a, byte(len(tag))}, tag...)
	value = binary.LittleEndian.AppendUint32(append(value, 0x15), math.Float32bits(v))
	b := binary.LittleEndian.AppendUint64(append(e.buf[:0], 0x09), math.Float64bits(wall))
	b = binary.AppendUvarint(append(b, 0x10), uint64(step))
	b = append(b, 0x2a, byte(len(value)+2), 0x0a, byte(len(value)))
	e.buf = append(b, value...)
	return e.record(e.buf)
}

// manyPoints writes an event file with n points in ten series that look like a training: noisy float32, a step every 50 ms or so.
func manyPoints(t *testing.T, path string, n int) curves {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	e := &eventWriter{w: bufio.NewWriterSize(f, 1<<20), table: crc32.MakeTable(crc32.Castagnoli)}
	if err := e.record(append([]byte{0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x1a, 13}, "brain.Event:2"...)); err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	want, wall := curves{}, 1.75e9
	for step := range int64(n / 10) {
		wall += 0.05 + 0.01*rnd.Float64()
		for s := range 10 {
			name := fmt.Sprintf("train/noisy_%d", s)
			v := float32(float64(s+1)*math.Exp(-float64(step)/20000) + 0.1*rnd.NormFloat64())
			at := wall + 1e-4*float64(s)
			if err := e.scalar(name, step, at, v); err != nil {
				t.Fatal(err)
			}
			want[name] = append(want[name], point{step, at, float64(v)})
		}
	}
	if err := e.w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return want
}

// database looks into the server's database: rows of a table, and bytes of the pages of each table and index.
func (p *plane) database() (rows map[string]int64, pages map[string]int64) {
	p.t.Helper()
	out, err := exec.Command("python3", "testdata/dbpages.py", filepath.Join(p.home, "server", "gpuctl.db")).Output()
	if err != nil {
		p.t.Fatalf("dbpages.py: %v %s", err, out)
	}
	var all struct{ Rows, Pages map[string]int64 }
	if err := json.Unmarshal(out, &all); err != nil {
		p.t.Fatal(err)
	}
	return all.Rows, all.Pages
}

// TestBenchMillion: a run with a million points, from the file to the database and to the reader.
func TestBenchMillion(t *testing.T) {
	o := promise(t, "M7 1,000,000 points in 10 series: all exact; at most 4 bytes a point at the end; 1,000 buckets in 120 ms CPU at first, 5 ms again")
	n, rounds, firstLimit, againLimit := 1_000_000, benchRounds, 120*time.Millisecond, 5*time.Millisecond
	if !slow { // beside others, where CPU time is no measure
		t.Parallel()
		n, rounds, againLimit = 200_000, 2, 20*time.Millisecond
	}
	p := newPlane(t)
	dir := p.folder("million")
	source := filepath.Join(p.work, "source")
	want := manyPoints(t, source, n)
	server, agent := p.apart()
	id := p.train(dir, p.writer("million.py", `
src, dst = open(sys.argv[1], "rb"), open(name(), "wb", buffering=0)
rnd = random.Random(1)
while piece := src.read(rnd.randrange(1, 1 << 21)):
    dst.write(piece)
    time.sleep(0.02)
`), source)
	run := firstRun(id)
	p.waitRunning(id)
	began, serverCPU, agentCPU := time.Now(), server.cpu(), agent.cpu()
	wantEnd(t, p.waitOver(id, 5*time.Minute), "SUCCEEDED", "", 0)
	took := time.Since(began)
	serverCPU, agentCPU = server.cpu()-serverCPU, agent.cpu()-agentCPU
	wantCurves(t, "million", p.runMetrics(run).Items, byShown, want)

	waitFor(t, 60*time.Second, "all points lie in chunks", func() bool { rows, _ := p.database(); return rows["points"] == 0 && rows["series"] == 10 })
	agent.stop()
	server.stop()
	_, pages := p.database()
	stored := int64(0)
	for name, bytes := range pages {
		if strings.Contains(name, "points") || strings.Contains(name, "chunks") || strings.Contains(name, "series") {
			stored += bytes
		}
	}
	perPoint := float64(stored) / float64(n)

	// The server alone, started anew each time: nothing is cached.
	path := "/api/v1/runs/" + run + "/metrics?max_points=1000"
	var first, again []time.Duration
	for range rounds {
		server = p.start("gpuctl", "server")
		p.waitServer(server)
		pause(t, 300*time.Millisecond) // what follows a start
		var m metricsShape
		used := server.cpu()
		p.mustGet(path, &m)
		first = append(first, server.cpu()-used)
		for _, s := range m.Items {
			if s.Count != int64(n/10) || len(s.Points) != 0 || len(s.Buckets) > 1000 || len(s.Buckets) < 400 {
				t.Fatalf("%s: count %d, %d points, %d buckets", s.Name, s.Count, len(s.Points), len(s.Buckets))
			}
		}
		const times = 20
		used = server.cpu()
		for range times {
			p.mustGet(path, nil)
		}
		again = append(again, (server.cpu()-used)/times)
		server.kill()
	}
	o.Figure = fmt.Sprintf("%d points in %.1f s (CPU: agent %.1f s, server %.1f s); %.2f bytes a point, limit 4; 1,000 buckets of all series: first %.0f ms CPU, limit %.0f, again %.1f ms, limit %.0f",
		n, took.Seconds(), agentCPU.Seconds(), serverCPU.Seconds(), perPoint, ms(median(first)), ms(firstLimit),
		ms(median(again)), ms(againLimit))
	if perPoint > 4 || perPoint < 0.5 {
		t.Errorf("size: %s; %v", o.Figure, pages)
	}
	if median(first) > firstLimit || median(again) > againLimit {
		t.Errorf("too slow: %s", o.Figure)
	}
	checkBuckets(t, p, run, want)
}

// checkBuckets compares buckets with the points that they stand for.
func checkBuckets(t *testing.T, p *plane, run string, want curves) {
	t.Helper()
	p.waitServer(p.start("gpuctl", "server"))
	for _, s := range p.metrics(run, "max_points=1000").Items {
		left := want[s.Name]
		for i, b := range s.Buckets {
			num := func(k int) float64 { v, _ := b[k].(float64); return v }
			count := int(num(5))
			if count < 1 || count > len(left) {
				t.Fatalf("%s: bucket %d counts %d of %d", s.Name, i, count, len(left))
			}
			least, most, sum := math.Inf(1), math.Inf(-1), 0.0
			for _, q := range left[:count] {
				least, most, sum = min(least, q.value), max(most, q.value), sum+q.value
			}
			if int64(num(0)) != left[0].step || num(2) != least || num(3) != most || math.Abs(num(4)-sum/float64(count)) > 1e-9*(1+math.Abs(sum)) {
				t.Fatalf("%s: bucket %d is %v, want step %d, %v, %v, %v", s.Name, i, b, left[0].step, least, most, sum/float64(count))
			}
			left = left[count:]
		}
		if len(left) != 0 {
			t.Errorf("%s: %d points are in no bucket", s.Name, len(left))
		}
	}
}
