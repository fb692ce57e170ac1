package tests

// The agent's memory under logs that nobody should write. Agent and server are two processes; VmHWM is the agent's.

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const agentMemoryLimit = 100 << 20 // bytes

// bigLogSize is 3 GB, or 300 MB where the disk has less than 8 GB free or the tests run small.
func bigLogSize(t *testing.T) (size int64, why string) {
	if !slow {
		return 300e6, "small run"
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(os.TempDir(), &fs); err != nil {
		t.Fatal(err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < 8e9 {
		return 300e6, fmt.Sprintf("only %.1f GB free", float64(free)/1e9)
	}
	return 3e9, ""
}

func TestAgentMemory(t *testing.T) {
	o := promise(t, "VmHWM of the agent stays below 100 MB under 3 GB of log, a 50 MB line, 1 MB of random bytes, 100,000 \\r updates")
	p := newPlane(t)
	_, agent := p.apart()
	size, why := bigLogSize(t)
	biglog, err := filepath.Abs("testdata/biglog.py")
	if err != nil {
		t.Fatal(err)
	}
	hostile := []struct{ name, python string }{
		{"line of 50 MB", "import sys\nfor i in range(50): sys.stdout.write('0123456789abcdef' * 65536)\nprint('|')\nprint('after')\n"},
		{"1 MB of random bytes", "import sys, random\nsys.stdout.buffer.write(random.Random(3).randbytes(1 << 20))\nprint('\\nafter')\n"},
		{"100,000 updates", "import sys\nfor i in range(100000): sys.stdout.write('\\r%6d/100000 [%-40s]' % (i, '#' * (i // 2500)))\nprint('\\nafter')\n"},
	}
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			id := p.submit("-g", "0", "--", "python3", p.script("hostile.py", h.python))
			j := p.waitOver(id, 3*time.Minute)
			wantEnd(t, j, "SUCCEEDED", "", 0)
			r := p.run(j.Runs[0])
			path := filepath.Join(p.home, "runs", r.UID, "log.txt")
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			want := referenceLines(t, path)
			if r.Log.Bytes != st.Size() || r.Log.Lines != int64(len(want)) {
				t.Errorf("server says %+v; the file has %d bytes, %d lines", r.Log, st.Size(), len(want))
			}
			ring := want[max(0, len(want)-2000):]
			compareLines(t, p.lines(j.Runs[0], int64(len(want)-len(ring))), ring)
		})
	}
	t.Run("big log", func(t *testing.T) {
		id := p.submit("-g", "0", "--", "python3", biglog, strconv.FormatInt(size, 10))
		j := p.waitOver(id, 15*time.Minute)
		wantEnd(t, j, "SUCCEEDED", "", 0)
		b, err := os.ReadFile(filepath.Join(p.work, "count"))
		if err != nil {
			t.Fatal(err)
		}
		count, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		r := p.run(j.Runs[0])
		st, err := os.Stat(filepath.Join(p.home, "runs", r.UID, "log.txt"))
		if err != nil {
			t.Fatal(err)
		}
		if r.Log.Bytes != st.Size() || r.Log.Lines != count {
			t.Errorf("server says %+v; the file has %d bytes, %d lines", r.Log, st.Size(), count)
		}
		ring := p.lines(j.Runs[0], count-2000)
		if len(ring) != 2000 {
			t.Fatalf("%d lines in the ring", len(ring))
		}
		for i, l := range ring {
			n := count - 2000 + int64(i)
			if l.N != n+1 || !strings.HasPrefix(l.Text, fmt.Sprintf("%09d the quick", n)) {
				t.Fatalf("line %d of the ring is n %d %.40q, want number %d", i, l.N, l.Text, n)
			}
		}
		if out := p.ok("logs", "-n", "3", j.Runs[0]); strings.Count(out, "\n") != 3 || !strings.Contains(out, fmt.Sprintf("%09d", count-1)) {
			t.Errorf("logs -n 3: %q", out)
		}
	})
	hwm := agent.hwm()
	if hwm >= agentMemoryLimit {
		t.Errorf("the agent used %d MB", hwm>>20)
	}
	o.Figure = fmt.Sprintf("VmHWM %d MB, big log %.1f GB", hwm>>20, float64(size)/1e9)
	if why != "" {
		o.Figure += " (" + why + ")"
	}
}

// TestLogTruncated: `echo x > /dev/stderr` opens the log file anew and cuts it. What was there is kept, what follows is counted on.
func TestLogTruncated(t *testing.T) {
	t.Parallel()
	promise(t, "echo x > /dev/stderr in the script: LOG_TRUNCATED says so, nothing lost or doubled")
	p := newPlane(t)
	p.up()
	id := p.submit("-g", "0", "--", p.script("t.sh", `#!/bin/sh
for i in 1 2 3 4 5 6 7 8 9 10; do echo "before $i"; done
while [ ! -e gate ]; do sleep 0.05; done
echo "cut here" > /dev/stderr
for i in 1 2 3 4 5 6 7 8 9 10; do echo "after $i"; done
`))
	run := fmt.Sprintf("%d.1", id)
	p.waitState(id, 20*time.Second, "RUNNING")
	waitFor(t, 20*time.Second, "the first ten lines are stored", func() bool { return p.run(run).Log.Lines == 10 })
	p.write(filepath.Join(p.work, "gate"), "")
	wantEnd(t, p.waitOver(id, 30*time.Second), "SUCCEEDED", "", 0)
	var want []lineShape
	for i := 1; i <= 10; i++ {
		want = append(want, lineShape{N: int64(len(want) + 1), Text: fmt.Sprintf("before %d", i)})
	}
	want = append(want, lineShape{N: 11, Text: "cut here"})
	for i := 1; i <= 10; i++ {
		want = append(want, lineShape{N: int64(len(want) + 1), Text: fmt.Sprintf("after %d", i)})
	}
	compareLines(t, p.lines(run, 0), want)
	r := p.run(run)
	if r.Log.Truncations != 1 || r.Log.Lines != 21 {
		t.Errorf("log %+v, want 1 truncation and 21 lines", r.Log)
	}
	waitFor(t, 10*time.Second, "event LOG_TRUNCATED", func() bool { return p.countEvents(run, "LOG_TRUNCATED") == 1 })
}

// TestLiveLine: the unfinished last line, a bar, is shown while it moves and is no line yet.
func TestLiveLine(t *testing.T) {
	t.Parallel()
	promise(t, "a moving bar is one live line, shown and not stored; logs -f prints every line once")
	p := newPlane(t)
	p.up()
	id := p.submit("-g", "0", "--", p.script("bar.sh", `#!/bin/sh
echo start
printf '\r 40%%|####      |'
while [ ! -e gate ]; do sleep 0.05; done
printf '\r100%%|##########|\n'
echo end
`))
	run := fmt.Sprintf("%d.1", id)
	waitFor(t, 20*time.Second, "the bar is live", func() bool {
		var page struct {
			Items []lineShape
			Live  *string
		}
		status, err := p.get("/api/v1/runs/"+run+"/log", &page)
		return err == nil && status == 200 && len(page.Items) == 1 && strings.Contains(deref(page.Live), "40%")
	})
	p.write(filepath.Join(p.work, "gate"), "")
	p.waitOver(id, 20*time.Second)
	compareLines(t, p.lines(run, 0), []lineShape{{1, "start", false}, {2, "100%|##########|", false}, {3, "end", false}})
	if out := p.ok("logs", "-f", run); out != "start\n100%|##########|\nend\n" {
		t.Errorf("logs -f of a finished run: %q", out)
	}
}
