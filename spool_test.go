package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func openTestSpool(t testing.TB, home, kind string) (*spool, string) {
	t.Helper()
	var most int64
	if kind == kindNode {
		most = nodeBytes
	}
	s, src, err := openSpool(home, kind, most)
	if err != nil {
		t.Fatal(err)
	}
	return s, src
}

func appendAll(t testing.TB, s *spool, payloads ...string) {
	t.Helper()
	for _, p := range payloads {
		if err := s.append([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
}

// ownAll reads everything that a source over s sends, from the cursor on, as the server would take it.
func ownAll(t testing.TB, src, kind string, s *spool, srv *casServer) {
	t.Helper()
	o := newOwnSource(src, kind, s)
	o.align(srv.cur[src])
	for round := 0; ; round++ {
		if _, err := o.fill(time.Now(), batchTargetBytes); err != nil {
			t.Fatal(err)
		}
		if len(o.pend) == 0 {
			if err := o.close(); err != nil {
				t.Fatal(err)
			}
			return
		}
		var body []byte
		for _, l := range o.pend {
			body = append(body, l.raw...)
		}
		if ans := srv.apply(body); !o.acked(len(o.pend), ans.Acks[src]) {
			o.align(ans.Acks[src])
		}
		if round > 1000 {
			t.Fatalf("does not end: %+v", o.cur)
		}
	}
}

func TestSpoolAppendAndReopen(t *testing.T) {
	home := t.TempDir()
	srv := newCasServer()
	var want []string
	for life := range 5 {
		s, src := openTestSpool(t, home, kindFacts)
		for i := range 7 {
			p := fmt.Sprintf(`{"k":"%d.%d"}`, life, i)
			want = append(want, p)
			appendAll(t, s, p)
		}
		if life%2 == 0 {
			ownAll(t, src, kindFacts, s, srv)
		}
		if life == 4 {
			if got := srv.records[src]; !slices.Equal(got, want) {
				t.Fatalf("got %q", got)
			}
			if c := srv.cur[src]; c.N != int64(len(want)) || c.Gen != 0 || srv.refusals != 0 {
				t.Fatalf("cursor %+v, %d refused", c, srv.refusals)
			}
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
	segs, err := filepath.Glob(filepath.Join(home, "spool", "facts-*", "*.seg"))
	if err != nil || len(segs) != 5 {
		t.Fatalf("%d segments, want one a life: %v", len(segs), err)
	}
}

// Cut at every byte and flip bits: the next life goes on, what was whole in front of the damage is kept, and all is accounted for.
func TestSpoolRecovery(t *testing.T) {
	home := t.TempDir()
	s, src := openTestSpool(t, home, kindFacts)
	var want []string
	for i := range 6 {
		want = append(want, fmt.Sprintf(`{"k":%d,"d":"%s"}`, i, strings.Repeat("x", i)))
	}
	appendAll(t, s, want[:3]...)
	if err := s.seal(); err != nil {
		t.Fatal(err)
	}
	appendAll(t, s, want[3:]...)
	dir := s.dir
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 2 {
		t.Fatalf("%v %v", names, err)
	}
	var files [2][]byte
	for i, n := range names {
		if files[i], err = os.ReadFile(filepath.Join(dir, n.Name())); err != nil {
			t.Fatal(err)
		}
	}
	try := func(which int, damaged []byte, from wireCursor) {
		t.Helper()
		h := t.TempDir()
		d := filepath.Join(h, "spool", src)
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
		for i, n := range names {
			b := files[i]
			if i == which {
				b = damaged
			}
			if err := os.WriteFile(filepath.Join(d, n.Name()), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		srv := newCasServer()
		srv.cur[src] = from
		for life := range 2 {
			s, name := openTestSpool(t, h, kindFacts)
			if name != src {
				t.Fatalf("source %s", name)
			}
			ownAll(t, src, kindFacts, s, srv)
			appendAll(t, s, fmt.Sprintf(`{"new":%d}`, life))
			ownAll(t, src, kindFacts, s, srv)
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
		}
		got := srv.records[src]
		if k := len(got); k < 2 || got[k-2] != `{"new":0}` || got[k-1] != `{"new":1}` {
			t.Fatalf("file %d, %d bytes: the stream did not move on: %q", which, len(damaged), got)
		}
		for _, p := range got[:len(got)-2] {
			if !slices.Contains(want, p) {
				t.Fatalf("an altered record %q", p)
			}
		}
		old := len(got) - 2 + int(srv.skipped[src])
		if from.N == 0 && (old > len(want) || which == 0 && old != len(want)) {
			t.Fatalf("file %d, %d bytes: %d records and %d skipped of %d", which, len(damaged), len(got)-2, srv.skipped[src], len(want))
		}
	}
	whole := newCasServer()
	s, _ = openTestSpool(t, home, kindFacts)
	ownAll(t, src, kindFacts, s, whole)
	r := rand.New(rand.NewPCG(5, 5))
	for which, b := range files {
		for cut := range b {
			try(which, b[:cut], wireCursor{})
		}
		for range 60 {
			d := bytes.Clone(b)
			d[r.IntN(len(d))] ^= 1 << r.IntN(8)
			try(which, d, wireCursor{})
			try(which, d, whole.cur[src])
		}
		try(which, nil, whole.cur[src])
		try(which, append(bytes.Clone(b), bytes.Repeat([]byte{0}, 4096)...), wireCursor{})
		try(which, append(bytes.Clone(b), bytes.Repeat([]byte("junk\n"), 30_000)...), whole.cur[src])
	}
}

func FuzzSpoolRecovery(f *testing.F) {
	f.Add([]byte("00000000 {}\n"), int64(0))
	f.Add([]byte("\n\n\n"), int64(5))
	f.Fuzz(func(t *testing.T, b []byte, base int64) {
		h := t.TempDir()
		d := filepath.Join(h, "spool", sourceName(kindFacts, newUID()))
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
		g := segment{base: base & (1<<40 - 1), n: base & 7}
		if err := os.WriteFile(filepath.Join(d, g.name()), b, 0o600); err != nil {
			t.Fatal(err)
		}
		srv := newCasServer()
		for range 2 {
			s, src := openTestSpool(t, h, kindFacts)
			appendAll(t, s, `{"a":1}`)
			ownAll(t, src, kindFacts, s, srv)
			if got := srv.records[src]; len(got) == 0 || got[len(got)-1] != `{"a":1}` {
				t.Fatalf("the stream did not move on: %q", got)
			}
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Damage while it runs, in the newest segment: counted, passed over, and found alike by a later life.
func TestSpoolDamageWhileRunning(t *testing.T) {
	home := t.TempDir()
	s, src := openTestSpool(t, home, kindNode)
	appendAll(t, s, `{"a":1}`, `{"a":2}`, `{"a":3}`)
	path := s.segs[0].path
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, []byte(`"a":2`))] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	srv := newCasServer()
	ownAll(t, src, kindNode, s, srv)
	appendAll(t, s, `{"a":4}`)
	ownAll(t, src, kindNode, s, srv)
	if got := srv.records[src]; !slices.Equal(got, []string{`{"a":1}`, `{"a":4}`}) || srv.skipped[src] != 2 {
		t.Fatalf("%q, %d skipped", got, srv.skipped[src])
	}
	s, _ = openTestSpool(t, home, kindNode)
	appendAll(t, s, `{"a":5}`)
	ownAll(t, src, kindNode, s, srv)
	if c := srv.cur[src]; c.N != 5 || c.Gen != 0 || srv.refusals != 0 {
		t.Fatalf("cursor %+v, %d refused", c, srv.refusals)
	}
}

// The newest segment is damaged in front of whole records while the agent is away: they are counted as lost, not forgotten.
func TestSpoolDamageWhileAway(t *testing.T) {
	home := t.TempDir()
	s, src := openTestSpool(t, home, kindFacts)
	appendAll(t, s, `{"a":1}`, `{"a":2}`, `{"a":3}`)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(s.segs[0].path)
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, []byte(`"a":2`))] ^= 1
	if err := os.WriteFile(s.segs[0].path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	srv := newCasServer()
	for life := range 3 {
		s, _ = openTestSpool(t, home, kindFacts)
		appendAll(t, s, fmt.Sprintf(`{"a":%d}`, 4+life))
		ownAll(t, src, kindFacts, s, srv)
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := srv.records[src]; !slices.Equal(got, []string{`{"a":1}`, `{"a":4}`, `{"a":5}`, `{"a":6}`}) || srv.skipped[src] != 2 || srv.cur[src].N != 6 {
		t.Fatalf("%q, %d skipped, cursor %+v", got, srv.skipped[src], srv.cur[src])
	}
}

func TestSpoolTrimAndDrop(t *testing.T) {
	home := t.TempDir()
	s, src := openTestSpool(t, home, kindFacts)
	for range 4 {
		appendAll(t, s, `{"a":1}`)
		if err := s.seal(); err != nil {
			t.Fatal(err)
		}
	}
	srv := newCasServer()
	ownAll(t, src, kindFacts, s, srv)
	count := func() int { return len(s.segs) }
	now := time.Now()
	if err := s.trim(now, srv.cur[src].Off); err != nil || count() != 5 {
		t.Fatalf("young segments went: %d, %v", count(), err)
	}
	if err := s.trim(now.Add(segmentKeep+time.Hour), s.segs[2].base); err != nil || count() != 3 {
		t.Fatalf("%d segments, want the 3 that are not taken: %v", count(), err)
	}
	if err := s.trim(now.Add(segmentKeep+time.Hour), srv.cur[src].Off); err != nil || count() != 1 {
		t.Fatalf("%d segments, want the newest: %v", count(), err)
	}
	// A server without the source gets what is left, and the number of what is not.
	lost := newCasServer()
	appendAll(t, s, `{"a":5}`)
	ownAll(t, src, kindFacts, s, lost)
	if c := lost.cur[src]; c.N != 5 || lost.skipped[src] != 4 || len(lost.records[src]) != 1 {
		t.Fatalf("cursor %+v, skipped %d", c, lost.skipped[src])
	}
	// A life that was rolled back: the server is ahead, so the stream begins again and loses nothing.
	ahead := newCasServer()
	ahead.cur[src] = wireCursor{Off: 1 << 30, Print: "00000000", N: 900}
	ownAll(t, src, kindFacts, s, ahead)
	if c := ahead.cur[src]; c.Gen != 1 || len(ahead.records[src]) != 1 {
		t.Fatalf("cursor %+v", c)
	}

	n, nsrc := openTestSpool(t, home, kindNode)
	n.max = 3000
	total := 0
	for range 20 {
		for range 20 {
			appendAll(t, n, `{"at_ms":1764540000000}`)
			total++
		}
		if err := n.seal(); err != nil {
			t.Fatal(err)
		}
	}
	if kept := n.end.off - n.segs[0].base; kept > 3000 {
		t.Fatalf("%d bytes kept", kept)
	}
	nsrv := newCasServer()
	ownAll(t, nsrc, kindNode, n, nsrv)
	if got := len(nsrv.records[nsrc]) + int(nsrv.skipped[nsrc]); got != total || nsrv.skipped[nsrc] == 0 {
		t.Fatalf("%d stored, %d skipped of %d", len(nsrv.records[nsrc]), nsrv.skipped[nsrc], total)
	}
}

// A disk that is really full: node samples drop their oldest segments, facts report the error, and both go on when there is room again.
// Needs a mount of its own; run again as a child in a new mount namespace.
func TestSpoolDiskFull(t *testing.T) {
	if os.Getenv("GPUCTL_TEST_FULL") == "" {
		cmd := exec.Command("unshare", "-rm", os.Args[0], "-test.run=^TestSpoolDiskFull$", "-test.v")
		cmd.Env = append(os.Environ(), "GPUCTL_TEST_FULL="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if bytes.Contains(out, []byte("unshare:")) || bytes.Contains(out, []byte("no mount")) || errors.Is(err, exec.ErrNotFound) {
			t.Skipf("no mount namespace here: %s", out)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	home := os.Getenv("GPUCTL_TEST_FULL")
	if err := mountTestDisk(home, 256<<10); err != nil {
		fmt.Println("no mount:", err)
		os.Exit(1)
	}
	node, nsrc := openTestSpool(t, home, kindNode)
	facts, fsrc := openTestSpool(t, home, kindFacts)
	pad := strings.Repeat("p", 3000)
	total, refused, stored := 0, 0, []string(nil)
	for i := range 400 {
		if err := node.append(fmt.Appendf(nil, `{"i":%d,"p":"%s"}`, i, pad)); err != nil {
			t.Fatalf("sample %d: %v", i, err)
		}
		total++
		if i%8 == 7 {
			if err := node.seal(); err != nil && !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
		}
		p := fmt.Sprintf(`{"f":%d,"p":"%s"}`, i, pad)
		if err := facts.append([]byte(p)); errors.Is(err, unix.ENOSPC) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		} else {
			stored = append(stored, p)
		}
	}
	srv := newCasServer()
	ownAll(t, nsrc, kindNode, node, srv)
	ownAll(t, fsrc, kindFacts, facts, srv)
	if got := len(srv.records[nsrc]) + int(srv.skipped[nsrc]); got != total || srv.skipped[nsrc] == 0 || len(srv.records[nsrc]) == 0 {
		t.Fatalf("%d samples stored, %d skipped of %d", len(srv.records[nsrc]), srv.skipped[nsrc], total)
	}
	if refused == 0 || !slices.Equal(srv.records[fsrc], stored) {
		t.Fatalf("%d facts refused, %d stored, %d sent", refused, len(stored), len(srv.records[fsrc]))
	}
}
