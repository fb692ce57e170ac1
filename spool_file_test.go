package main

// File sources one by one: scripted orders that random schedules hardly hit, truncation, skips, live lines, time, the end.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// logLife is one life of one log source against a casServer.
type logLife struct {
	t    testing.TB
	srv  *casServer
	src  string
	path string
	s    *fileSource
	now  time.Time
	news []sourceNews
}

func newLogLife(t testing.TB, srv *casServer, path string) *logLife {
	l := &logLife{t: t, srv: srv, src: sourceName(kindLog, fmt.Sprintf("%032x", len(path))), path: path, now: time.Now()}
	l.restart()
	return l
}

// restart: the agent dies and starts again: hello, align.
func (l *logLife) restart() {
	if l.s != nil {
		if err := l.s.close(); err != nil {
			l.t.Fatal(err)
		}
	}
	l.s = newFileSource(l.src, kindLog, l.path, &logDecoder{}, &fileReader{slice: feedSliceBytes, line: fileLineTarget}, func(n sourceNews) { l.news = append(l.news, n) })
	l.s.align(l.srv.cur[l.src])
}

// request is what it would send now.
func (l *logLife) request() []byte {
	l.t.Helper()
	l.now = l.now.Add(100 * time.Millisecond)
	for {
		again, err := l.s.fill(l.now, batchTargetBytes)
		if err != nil {
			l.t.Fatal(err)
		}
		if !again || len(l.s.pend) > 0 {
			break
		}
	}
	var b []byte
	for _, p := range l.s.pend {
		b = append(b, p.raw...)
	}
	return b
}

func (l *logLife) take(a batchAnswer) {
	if c, ok := a.Acks[l.src]; ok && !l.s.acked(len(l.s.pend), c) {
		l.s.align(c)
	}
}

func (l *logLife) settle() {
	l.t.Helper()
	for i := 0; ; i++ {
		if b := l.request(); len(b) > 0 {
			l.take(l.srv.apply(b))
		} else if !l.s.torn && l.now.After(l.s.brake) {
			return
		}
		if i > 100_000 {
			l.t.Fatal("does not settle")
		}
	}
}

func (l *logLife) put(text string) {
	l.t.Helper()
	if err := os.WriteFile(l.path, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func (l *logLife) add(text string) {
	l.t.Helper()
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *logLife) expect(want ...string) {
	l.t.Helper()
	var got strings.Builder
	for _, r := range l.srv.lines[l.src] {
		if r.skip > 0 {
			fmt.Fprintf(&got, "<%d skipped>\n", r.skip)
		} else {
			got.WriteString(r.text + "\n")
		}
	}
	if w := strings.Join(want, ""); got.String() != w {
		l.t.Fatalf("%d lines, want %d:\n%.500q\n%.500q", strings.Count(got.String(), "\n"), strings.Count(w, "\n"), got.String(), w)
	}
}

func manyLines(tag string, k int) string {
	var b strings.Builder
	for i := range k {
		fmt.Fprintf(&b, "%s %d\n", tag, i)
	}
	return b.String()
}

// hookDecoder lets the world go on once, between a read and its fingerprint.
type hookDecoder struct {
	logDecoder
	hook func()
}

func (d *hookDecoder) feed(b []byte, atMS int64) (int, error) {
	n, err := d.logDecoder.feed(b, atMS)
	if d.hook != nil {
		d.hook()
		d.hook = nil
	}
	return n, err
}

func TestFileScripts(t *testing.T) {
	zero, one, two := manyLines("zero", 10), manyLines("one", 60), manyLines("two", 40)
	life := func(t *testing.T) *logLife {
		return newLogLife(t, newCasServer(), filepath.Join(t.TempDir(), "log.txt"))
	}

	t.Run("A a newer generation of an earlier life arrives late", func(t *testing.T) {
		l := life(t)
		l.put(zero)
		l.settle()
		l.put(one)
		l.request()
		l.request() // lost altogether
		l.put(two)
		l.restart()
		late := l.request()
		l.restart()
		l.settle()
		l.srv.apply(late)
		l.add("end\n")
		l.settle()
		l.expect(zero, two, "end\n")
	})
	t.Run("B same number, other content, delivered between hello and batch", func(t *testing.T) {
		l := life(t)
		l.put(zero)
		l.settle()
		l.put(one)
		l.request()
		late := l.request()
		l.put(two)
		l.restart()
		b := l.request()
		l.srv.apply(late)
		l.take(l.srv.apply(b))
		l.settle()
		l.expect(zero, one, two)
	})
	t.Run("C rewritten after the read, then the agent dies", func(t *testing.T) {
		l := life(t)
		l.put(manyLines("zero", 20))
		b := l.request()
		l.put(two)
		l.srv.apply(b)
		l.restart()
		l.settle()
		l.expect(manyLines("zero", 20), two)
	})
	t.Run("C2 rewritten between read and fingerprint, then the agent dies", func(t *testing.T) {
		l := life(t)
		l.put(manyLines("zero", 20))
		hook := &hookDecoder{hook: func() { l.put(two) }}
		l.s.dec = hook
		b := l.request()
		l.srv.apply(b)
		l.restart()
		l.settle()
		l.expect(manyLines("zero", 20), two)
	})
	t.Run("D twice and cut anew", func(t *testing.T) {
		l := life(t)
		l.put(zero)
		b := l.request()
		l.srv.apply(b)
		l.srv.apply(b)
		l.add(one)
		l.s.align(wireCursor{}) // cuts differently now
		l.take(l.srv.apply(l.request()))
		l.settle()
		l.srv.apply(b)
		l.expect(zero, one)
	})
	t.Run("E regrown with the same head while away", func(t *testing.T) {
		l := life(t)
		head := manyLines("banner", 200)
		l.put(head + zero)
		l.settle()
		l.put(head + two)
		l.restart()
		l.settle()
		l.expect(head, zero, head, two)
	})
	t.Run("E2 regrown with the same last KiB", func(t *testing.T) {
		l := life(t)
		tail := strings.Repeat("same\n", 400)
		l.put("zero\n" + tail)
		l.settle()
		l.put("ones\n" + tail + "more\n")
		l.settle()
		l.expect("zero\n", tail, "ones\n", tail, "more\n")
	})
	t.Run("F the server lost the source", func(t *testing.T) {
		l := life(t)
		l.put(zero)
		l.settle()
		l.put(one)
		l.settle()
		l.srv.cur, l.srv.lines = map[string]wireCursor{}, map[string][]casLine{}
		l.add("end\n")
		l.settle()
		l.expect(one, "end\n")
	})
	t.Run("G 500 sources, the server restored to before all of them", func(t *testing.T) {
		srv, dir := newCasServer(), t.TempDir()
		var all []*logLife
		for i := range 500 {
			l := newLogLife(t, srv, filepath.Join(dir, fmt.Sprint(i)))
			l.src = sourceName(kindLog, fmt.Sprintf("%032x", i))
			l.restart()
			l.put(zero)
			l.settle()
			l.add("end\n")
			all = append(all, l)
		}
		srv.restore(newCasServer(), "2-b")
		srv.refusals = 0
		for round := range 2 {
			var body []byte
			for _, l := range all {
				body = append(body, l.request()...)
			}
			ans := srv.apply(body)
			for _, l := range all {
				l.take(ans)
			}
			if round == 0 && srv.refusals != 500 {
				t.Fatalf("%d refused", srv.refusals)
			}
		}
		if srv.refusals != 500 {
			t.Fatalf("%d refused: more than one round to find the place", srv.refusals)
		}
		for _, l := range all {
			l.expect(zero, "end\n")
			if err := l.s.close(); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("H an end line that is refused is sent again", func(t *testing.T) {
		l := life(t)
		l.put(zero)
		l.s.finish(int64(len(zero)))
		b := l.request()
		first, _, _ := bytes.Cut(b, []byte("\n"))
		l.srv.apply(append(first, '\n')) // the lines are there, their end is not
		l.take(l.srv.apply(b))
		l.settle()
		l.expect(zero)
		if c := l.srv.cur[l.src]; !c.Done || c.Off != int64(len(zero)) || c.N != 10 {
			t.Fatalf("cursor %+v", c)
		}
	})
	t.Run("I renamed and removed while it is written", func(t *testing.T) {
		l := life(t)
		f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		say := func(s string) {
			if _, err := f.WriteString(s); err != nil {
				t.Fatal(err)
			}
		}
		say("a\n")
		l.settle()
		if err := os.Rename(l.path, l.path+".1"); err != nil {
			t.Fatal(err)
		}
		say("b\n")
		l.settle()
		if err := os.Remove(l.path + ".1"); err != nil {
			t.Fatal(err)
		}
		say("c\n")
		l.settle()
		l.restart() // now nobody can read it any more: it still ends
		l.s.finish(6)
		l.settle()
		l.expect("a\n", "b\n", "c\n")
		if !l.srv.cur[l.src].Done {
			t.Fatal("does not end")
		}
	})
}

// The end: the unfinished last line is cut at the final size, also when more was read already; a shorter file ends where it ends.
func TestFileEnd(t *testing.T) {
	for _, c := range []struct {
		name, text string
		size       int64
		early      bool // read before the size is known
		want       string
	}{
		{"whole lines", "a\nb\n", 4, false, "a\nb\n"},
		{"unfinished", "a\nbc", 4, false, "a\nbc\n"},
		{"behind the end", "a\nbc and more\nx\n", 4, false, "a\nbc\n"},
		{"read behind the end", "a\nbc and more", 4, true, "a\nbc\n"},
		{"empty", "", 0, false, ""},
		{"shorter than told", "a\nb", 100, true, "a\nb\n"},
		{"a bar", "\r1%\r2%", 6, true, "2%\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLogLife(t, newCasServer(), filepath.Join(t.TempDir(), "log.txt"))
			l.put(c.text)
			if c.early {
				l.request()
			}
			l.s.finish(c.size)
			l.settle()
			l.expect(c.want)
			cur := l.srv.cur[l.src]
			if !cur.Done || cur.Off != min(c.size, int64(len(c.text))) {
				t.Fatalf("cursor %+v", cur)
			}
		})
	}
	t.Run("no file", func(t *testing.T) {
		l := newLogLife(t, newCasServer(), filepath.Join(t.TempDir(), "log.txt"))
		l.settle()
		l.s.finish(0)
		l.settle()
		if !l.srv.cur[l.src].Done {
			t.Fatal("does not end")
		}
	})
}

func TestFileTruncated(t *testing.T) {
	l := newLogLife(t, newCasServer(), filepath.Join(t.TempDir(), "log.txt"))
	l.put("one\ntwo\n")
	l.settle()
	l.add("three\n")
	l.request() // made, not sent
	l.put("x\n")
	l.settle()
	l.add("y\n")
	l.s.finish(4)
	l.settle()
	l.expect("one\ntwo\nthree\n", "x\ny\n")
	c := l.srv.cur[l.src]
	if c.Gen != 1 || c.Off != 4 || c.N != 5 || !c.Done {
		t.Fatalf("cursor %+v", c)
	}
	if len(l.news) != 0 { // the server's row of the truncation is the event
		t.Fatalf("news %+v", l.news)
	}
}

// From the fourth new generation in an hour on each one waits, 1 s doubling, and that is told once.
func TestFileBrake(t *testing.T) {
	l := newLogLife(t, newCasServer(), filepath.Join(t.TempDir(), "log.txt"))
	var want []string
	wait := time.Duration(0)
	for i := range 9 {
		text := fmt.Sprintf("generation %d\n", i)
		want = append(want, text)
		l.put(text)
		before := l.now
		l.settle()
		if i > 3 {
			took := l.now.Sub(before)
			if wait = max(2*wait, time.Second); took < wait || took > wait+time.Second {
				t.Fatalf("generation %d waited %v, want %v", i, took, wait)
			}
		}
	}
	l.expect(want...)
	flaps := 0
	for _, n := range l.news {
		if n.event == "SOURCE_FLAPPING" {
			flaps++
		}
	}
	if flaps != 1 || len(l.news) != 1 {
		t.Fatalf("%d flapping of %d news", flaps, len(l.news))
	}
	l.now = l.now.Add(2 * time.Hour)
	l.put("later\n")
	before := l.now
	l.settle()
	if l.now.Sub(before) > time.Second {
		t.Fatal("still waits two hours later")
	}
	l.s.brake = time.Time{}
	for range 40 {
		l.s.opened = append(l.s.opened, l.now)
	}
	l.s.newGeneration(l.now)
	if got := l.s.brake.Sub(l.now); got != brakeMost {
		t.Fatalf("longest wait is %v", got)
	}
}

// A live line travels when the end of the file was seen, at most once a second, and is cleared when its line is finished.
func TestFileLive(t *testing.T) {
	l := newLogLife(t, newCasServer(), filepath.Join(t.TempDir(), "log.txt"))
	look := func() (string, bool) {
		l.take(l.srv.apply(l.request()))
		raw, text, ok := l.s.show(l.now)
		if ok {
			l.srv.apply(raw)
			l.s.shown(text, l.now)
		}
		return text, ok
	}
	l.put("a\n\r10%")
	if text, ok := look(); !ok || text != "10%" {
		t.Fatalf("%q %v", text, ok)
	}
	shown := 0
	for i := range 40 { // four seconds of refreshes, ten a second
		l.add(fmt.Sprintf("\r%d%%", 11+i))
		if _, ok := look(); ok {
			shown++
		}
	}
	if shown < 3 || shown > 5 {
		t.Fatalf("shown %d times in 4 s", shown)
	}
	l.now = l.now.Add(time.Second)
	l.add("\r99%")
	if _, ok := look(); !ok {
		t.Fatal("not shown after a second")
	}
	l.now = l.now.Add(2 * time.Second)
	if _, ok := look(); ok {
		t.Fatal("shown again without a change")
	}
	l.add("\r100%")
	look()
	l.add("\rdone\n")
	if text, ok := look(); !ok || text != "" || l.srv.live[l.src] != "" {
		t.Fatalf("not cleared: %q %v", text, ok)
	}
	l.expect("a\n", "done\n")
}

// Refreshes of a bar do not make a wire line each.
func TestFileEmptyLinesWait(t *testing.T) {
	l := newLogLife(t, newCasServer(), filepath.Join(t.TempDir(), "log.txt"))
	l.put("")
	size := 0
	for range 300 {
		text := strings.Repeat("\r10%|████      | 4/10", 50)
		size += len(text)
		l.add(text)
		l.take(l.srv.apply(l.request()))
	}
	if most := size/emptyLineBytes + 1; l.srv.wired > most || l.srv.wired == 0 || len(l.srv.lines[l.src]) != 0 {
		t.Fatalf("%d wire lines and %d lines for %d bytes of refreshes", l.srv.wired, len(l.srv.lines[l.src]), size)
	}
	// Reads that end within an escape sequence: the clean point lies in front of what was read.
	l = newLogLife(t, newCasServer(), filepath.Join(t.TempDir(), "log.txt"))
	l.add("\r\x1b[3")
	for range 100 {
		l.take(l.srv.apply(l.request()))
		l.add("2m" + strings.Repeat("x", printBytes) + "\r\x1b[3")
	}
	l.restart()
	l.s.finish(1 << 30)
	l.settle()
	l.expect("\x1b[32m" + strings.Repeat("x", printBytes) + "\n")
	if l.srv.refusals > 0 || len(l.news) > 0 || l.srv.wired != 2 {
		t.Fatalf("%d refused, %d news, %d wire lines", l.srv.refusals, len(l.news), l.srv.wired)
	}
}

// Lines get a time only when the reader was there when they came.
func TestFileTimes(t *testing.T) {
	l := newLogLife(t, newCasServer(), filepath.Join(t.TempDir(), "log.txt"))
	l.put("old\n")
	if b := l.request(); bytes.Contains(b, []byte(`"at":`)) {
		t.Fatalf("a time for a line of unknown age: %s", b)
	}
	l.settle()
	l.add("new\n")
	if b := l.request(); !bytes.Contains(b, fmt.Appendf(nil, `"at":%d`, l.now.UnixMilli())) {
		t.Fatalf("no time: %s", b)
	}
	l.settle()
	l.now = l.now.Add(time.Hour)
	l.add("after an hour without a look\n")
	if b := l.request(); bytes.Contains(b, []byte(`"at":`)) {
		t.Fatalf("a time for a line of unknown age: %s", b)
	}
}

// What appendBatchLine writes is what encoding/json reads as the same line, and no line is over the limit.
func TestBatchLineEncoding(t *testing.T) {
	for _, l := range []batchLine{
		{},
		{Src: "log-ab", Gen: 3, From: 1 << 40, To: 1<<40 + 5, Prev: "a\"b\\", Print: "c\nd\te\x00\x1f\x7f<>&\u2028é", Kind: kindLog, Items: json.RawMessage(`[{"t":"x"}]`), End: true},
		{Kind: kindSkip, N: -1, Why: "backlog", Reset: true, Old: 9},
	} {
		raw := appendBatchLine(nil, l)
		var got batchLine
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		a, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := json.Marshal(got); err != nil || !bytes.Equal(a, b) {
			t.Fatalf("%s became %s (%v)", a, b, err)
		}
		if bytes.Count(raw, []byte{'\n'}) != 1 {
			t.Fatalf("not one line: %q", raw)
		}
	}
	for name, b := range map[string]string{"newlines": "\n", "control": "\x01", "quotes": `"`, "bad": "\xff", "bars": "\r\x1b[A"} {
		l := newLogLife(t, newCasServer(), filepath.Join(t.TempDir(), "log.txt"))
		l.put(strings.Repeat(b, 256<<10/len(b)))
		l.settle() // casServer refuses lines over batchLineMaxBytes by a panic
		if c := l.srv.cur[l.src]; name == "newlines" && c.N < 2000 {
			t.Fatalf("%s: %+v", name, c)
		}
	}
}

// TestFileThatIsAFifo: a job that puts a fifo in the place of its log neither blocks the uploader nor keeps the source open for ever.
func TestFileThatIsAFifo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.txt")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	l := newLogLife(t, newCasServer(), path)
	l.settle()
	l.s.finish(0)
	l.settle()
	if c := l.srv.cur[l.src]; !c.Done || c.N != 0 {
		t.Fatalf("cursor %+v", c)
	}
}

// TestFileTornLine: what was read of an unfinished line before a truncation is still sent, as a line.
func TestFileTornLine(t *testing.T) {
	l := newLogLife(t, newCasServer(), filepath.Join(t.TempDir(), "log.txt"))
	l.put("one\nstep 1\rstep 2\rstep 3")
	l.settle()
	l.put("x\n")
	l.settle()
	l.expect("one\nstep 3\nx\n")
}
