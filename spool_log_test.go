package main

// Leaving out lines of a log when far too many wait.

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A backlog is left out but for the head and the last lines; numbers are those of a reader who read all.
func TestFileSkip(t *testing.T) {
	l := newLogLife(t, newCasServer(), filepath.Join(t.TempDir(), "log.txt"))
	var b bytes.Buffer
	for i := 0; b.Len() < 9<<20; i++ {
		switch i % 50 {
		case 7:
			b.WriteString(strings.Repeat("long ", 4000) + "\n")
		case 11:
			fmt.Fprintf(&b, "\r10%%\r20%%\r%d\n", i)
		case 13:
			b.WriteString("o\n\rinner\x1b[A\router\n\n")
		default:
			fmt.Fprintf(&b, "line %d of the log, as long as such lines are\n", i)
		}
	}
	l.put(b.String())
	want := foldAll(b.Bytes())
	for i := 0; i < 40; i++ { // restarts at any moment, also within the count
		l.take(l.srv.apply(l.request()))
		if i%3 == 0 {
			l.restart()
			if _, err := l.s.fill(l.now, 1); err != nil {
				t.Fatal(err)
			}
			l.restart()
		}
	}
	l.settle()
	l.s.finish(int64(b.Len()))
	l.settle()
	c := l.srv.cur[l.src]
	if !c.Done || c.Off != int64(b.Len()) || c.N != int64(len(want)) {
		t.Fatalf("cursor %+v, want %d lines, %d bytes", c, len(want), b.Len())
	}
	rows, n, skips := l.srv.lines[l.src], int64(0), 0
	for i, r := range rows {
		if r.skip > 0 {
			skips++
			if n < logHeadLines {
				t.Fatalf("skipped after %d lines", n)
			}
			n += r.skip
			continue
		}
		if n++; want[n-1].Text != r.text || want[n-1].More != r.more {
			t.Fatalf("row %d, line %d: %.80q, want %.80q", i, n, r.text, want[n-1].Text)
		}
	}
	behind := 0
	for i := len(rows) - 1; rows[i].skip == 0; i-- {
		behind++
	}
	if skips != 1 || behind < logRingLines || behind > logRingLines+readChunkBytes/10 {
		t.Fatalf("%d skips, %d lines behind", skips, behind)
	}
}

// More than 4 MiB, but fewer than 2,000 lines: nothing is left out, and it is not counted again and again.
func TestFileNoSkip(t *testing.T) {
	l := newLogLife(t, newCasServer(), filepath.Join(t.TempDir(), "log.txt"))
	text := manyLines("head", 300) + strings.Repeat(strings.Repeat("\r10%|████      | 4/10", 5000)+"\n", 60)
	l.put(text)
	l.settle()
	if l.srv.skipped[l.src] != 0 || l.srv.cur[l.src].N != 360 {
		t.Fatalf("cursor %+v, %d skipped", l.srv.cur[l.src], l.srv.skipped[l.src])
	}
	if l.s.quiet < int64(len(text)) {
		t.Fatal("would count again")
	}
}

// The file is truncated or replaced in the middle of the count: the skip is given up, the new content comes whole or is counted anew.
func TestFileTruncatedInSkip(t *testing.T) {
	first := manyLines("a line of the first generation", 200)
	backlog := manyLines("backlog of many lines, and long ones", 500_000)
	for name, after := range map[string]string{"shorter": "new\n", "as long": manyLines("another file whose lines are as long", 500_000) + strings.Repeat("x\n", 5000)} {
		l := newLogLife(t, newCasServer(), filepath.Join(t.TempDir(), "log.txt"))
		l.put(first)
		l.settle()
		l.add(backlog)
		if again, err := l.s.fill(l.now, batchTargetBytes); err != nil || !again || l.s.scan == nil {
			t.Fatalf("%s: does not count: %v", name, err)
		}
		l.put(after)
		l.settle()
		l.s.finish(int64(len(after)))
		l.settle()
		want := foldAll([]byte(after))
		if c := l.srv.cur[l.src]; !c.Done || c.Gen != 1 || c.N != int64(200+len(want)) {
			t.Fatalf("%s: cursor %+v, want %d lines", name, c, 200+len(want))
		}
		for i, r := range l.srv.lines[l.src] {
			if i < 200 == (r.gen == 1) || r.gen == 1 && r.skip == 0 && want[r.n-201].Text != r.text {
				t.Fatalf("%s: row %d is %+v", name, i, r)
			}
		}
	}
}
