package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func tbTestWalk(t *testing.T, spec runSpec, watched bool) *tbFolderWalk {
	t.Helper()
	return newTBWalk(spec, func(string) bool { return watched })
}

func tbTestFiles(t *testing.T, root string, names ...string) {
	t.Helper()
	for _, n := range names {
		path := filepath.Join(root, n)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func tbReal(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func tbRelative(root string, files []string) []string {
	var out []string
	for _, f := range files {
		out = append(out, strings.TrimPrefix(f, root+"/"))
	}
	slices.Sort(out)
	return out
}

// What is found and what is passed over, links and loops, and what the folders of each are called.
func TestTBWalkFinds(t *testing.T) {
	root, far := tbReal(t), tbReal(t)
	tbTestFiles(
		t, root, "e.tfevents.1", "a/b/c/d/e/f/e.tfevents.deep", "a/b/c/d/e/f/g/e.tfevents.too-deep", ".git/e.tfevents.x", ".hidden/e.tfevents.x",
		"venv/pyvenv.cfg", "venv/sub/e.tfevents.x", "lib/site-packages/e.tfevents.x", "node_modules/e.tfevents.x", "a/plain.txt", "tb/d/e.tfevents.tb",
	)
	tbTestFiles(t, far, "r/e.tfevents.far", "r/sub/e.tfevents.sub")
	for link, to := range map[string]string{"a/up": root, "a/self": "self", "a/b/loop": filepath.Join(root, "a"), "link": filepath.Join(far, "r"), "nowhere": "/nonexistent", "proc": "/proc"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(far, "r", "back"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, filepath.Join(far, "r", "back", "root")); err != nil {
		t.Fatal(err)
	}
	w := tbTestWalk(t, runSpec{WorkingDir: root, TB: []string{"tb", "later"}}, false)
	got := w.round(true)
	want := []string{far + "/r/e.tfevents.far", far + "/r/sub/e.tfevents.sub", "a/b/c/d/e/f/e.tfevents.deep", "e.tfevents.1", "tb/d/e.tfevents.tb"}
	if list := tbRelative(root, got.files); !slices.Equal(slices.Compact(list), want) {
		t.Errorf("found %q, want %q", list, want)
	}
	for dir, want := range map[string]string{
		root: "", root + "/a/b": "a/b", root + "/tb": "", root + "/tb/d": "d", root + "/later/x": "x", far + "/r": "link", far + "/r/sub": "link/sub", far: far,
		root + "x": root + "x",
	} {
		if name := tbFolderName(got.roots, dir); name != want {
			t.Errorf("%s is called %q, want %q", dir, name, want)
		}
	}
	// Nothing changed: nothing is read again. A new file makes its folder be read, and a new folder be found.
	waitFor(t, "the times of the folders to be old enough", func() bool { w.round(true); return w.round(true).entries == 0 })
	tbTestFiles(t, root, "a/new/x/e.tfevents.2", "later/e.tfevents.3")
	got = w.round(true)
	if list := slices.Compact(tbRelative(root, got.files)); !slices.Contains(list, "a/new/x/e.tfevents.2") || !slices.Contains(list, "later/e.tfevents.3") || slices.Contains(list, "tb/d/e.tfevents.tb") {
		t.Errorf("then found %q", list)
	}
	// Removed, and another one made by the name.
	if err := os.RemoveAll(filepath.Join(root, "a")); err != nil {
		t.Fatal(err)
	}
	tbTestFiles(t, root, "a/b/e.tfevents.4")
	if list := tbRelative(root, w.round(true).files); !slices.Contains(list, "a/b/e.tfevents.4") {
		t.Errorf("at last found %q", list)
	}
}

// A watched folder is not looked at until it is said to have changed.
func TestTBWalkTrustsNotices(t *testing.T) {
	root := tbReal(t)
	tbTestFiles(t, root, "a/b/x")
	w := tbTestWalk(t, runSpec{WorkingDir: root}, true)
	if got := w.round(true); !got.still || got.entries == 0 {
		t.Errorf("first %+v", got)
	}
	tbTestFiles(t, root, "a/c/e.tfevents.1")
	if got := w.round(false); len(got.files) != 0 || got.entries != 0 {
		t.Errorf("without a notice %+v", got)
	}
	w.again(tbNotes{folders: []string{root + "/a"}})
	if got := w.round(false); len(got.files) != 1 || !got.still {
		t.Errorf("with one %+v", got)
	}
	tbTestFiles(t, root, "a/c/d/e.tfevents.2")
	if got := w.round(true); len(got.files) != 2 {
		t.Errorf("all %+v", got)
	}
}

// A home folder with a great many files costs what it is allowed to.
func TestTBWalkBounded(t *testing.T) {
	root := tbReal(t)
	for i := range 120 {
		for k := range 50 {
			if err := os.MkdirAll(fmt.Sprintf("%s/%03d/%03d", root, i, k), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 25_000 {
		f, err := os.Create(fmt.Sprintf("%s/many-%05d", root, i))
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w := tbTestWalk(t, runSpec{WorkingDir: root}, false)
	for range 4 {
		began := time.Now()
		got := w.round(true)
		if len(w.byPath) > tbFoldersMost || got.entries > tbEntriesMost+tbEntriesEach {
			t.Errorf("%d folders, %d entries", len(w.byPath), got.entries)
		}
		t.Logf("%d folders, %d entries, %v", len(w.byPath), got.entries, time.Since(began))
	}
}
