package main

// Event files of a run while the disk of the agent's folder is full, for longer than anything else is waited for.

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestTBDiskFull: a file that cannot be noted for want of room is taken when there is some. Run again as a child in a mount namespace.
func TestTBDiskFull(t *testing.T) {
	if os.Getenv("GPUCTL_TEST_TB_FULL") == "" {
		cmd := exec.Command("unshare", "-rm", os.Args[0], "-test.run=^TestTBDiskFull$", "-test.v")
		cmd.Env = append(os.Environ(), "GPUCTL_TEST_TB_FULL="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if bytes.Contains(out, []byte("unshare:")) || bytes.Contains(out, []byte("no mount")) || errors.Is(err, exec.ErrNotFound) {
			t.Skipf("no mount namespace here: %s", out)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	home, dir := os.Getenv("GPUCTL_TEST_TB_FULL"), t.TempDir()
	if err := mountTestDisk(home, 64<<10); err != nil {
		fmt.Println("no mount:", err)
		os.Exit(1)
	}
	path := filepath.Join(dir, "events.out.tfevents.1")
	if err := os.WriteFile(path, eventRecord(1, "loss", 1), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := runDir(filepath.Join(home, "ab"))
	if err := os.Mkdir(string(folder), 0o700); err != nil {
		t.Fatal(err)
	}
	fill := filepath.Join(home, "fill")
	if err := os.WriteFile(fill, make([]byte, 128<<10), 0o600); !diskFull(err) {
		t.Fatalf("not full: %v", err)
	}
	var took []tbHold
	w := newTBWatch(slog.New(slog.DiscardHandler), "here", nil)
	w.take = func(_ string, h tbHold) bool { took = append(took, h); return true }
	w.tell = func(f factItem) error { t.Errorf("told: %s", f.Data); return nil }
	w.owned = map[uint64][]tbOwned{}
	now := time.Now()
	w.live["ab"] = &tbRun{tbSubject: tbSubject{uid: "ab", dir: folder}, files: map[string]tbRecord{}, lost: map[string]tbHold{}, walks: 1, looked: true, adopted: true}
	w.see(path, path, "ab", now)
	for _, later := range []time.Duration{0, 2 * tbTryFor} {
		if err := w.decide(now.Add(later)); !diskFull(err) || len(took) > 0 || !w.pending("ab") || !w.noRoom("ab") {
			t.Fatalf("after %v: %v, %d taken, pending %v, for want of room %v", later, err, len(took), w.pending("ab"), w.noRoom("ab"))
		}
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if err := w.decide(now.Add(3 * tbTryFor)); err != nil || len(took) != 1 || w.pending("ab") || w.noRoom("ab") {
		t.Fatalf("with room: %v, %d taken", err, len(took))
	}
	if err := took[0].file.Close(); err != nil {
		t.Fatal(err)
	}
}
