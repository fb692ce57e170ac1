package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What was written into an older event file of a folder comes before what is in a younger one, in whatever order they were found. Other
// folders do not wait.
func TestUploadOldestFileFirst(t *testing.T) {
	for _, found := range [][]string{{"old", "mid", "new", "other"}, {"other", "new", "mid", "old"}, {"mid", "new", "old", "other"}} {
		t.Run(fmt.Sprint(found), func(t *testing.T) {
			w := newScheduleWorld(t, 1)
			w.calm = true
			uid := w.addRun().dir.uid()
			dir := t.TempDir()
			size := map[string]int64{}
			for i, name := range found {
				var data []byte
				for step := range map[string]int64{"old": 60_000, "mid": 20_000, "new": 3, "other": 3}[name] {
					data = append(data, eventRecord(step, "a tag with a long name, that of "+name, 0.1*float32(step))...)
				}
				size[name] = int64(len(data))
				if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
					t.Fatal(err)
				}
				h := tbHold{
					key: fmt.Sprintf("%x", i), path: filepath.Join(dir, name), name: name, folder: "logs",
					madeMS: map[string]int64{"old": 1000, "mid": 2000, "new": 2000}[name], fresh: true,
				}
				if name == "other" {
					h.folder = "other"
				}
				if !w.u.addTB(uid, h) {
					t.Fatal("not added")
				}
			}
			off := func(name string) int64 {
				return w.srv.cur[tbSourceName(uid, fmt.Sprintf("%x", slices.Index(found, name)))].Off
			}
			rounds, waited := 0, 0
			for ; off("new") < size["new"]; rounds++ {
				if rounds > 500 {
					t.Fatalf("after %d rounds: %d, %d, %d", rounds, off("old"), off("mid"), off("new"))
				}
				w.step()
				if off("old") < size["old"] && off("mid") > 0 || off("mid") < size["mid"] && off("new") > 0 {
					t.Fatalf("a younger file is ahead: %d of %d, %d of %d, %d", off("old"), size["old"], off("mid"), size["mid"], off("new"))
				}
				if off("old") > 0 && off("old") < size["old"] {
					waited++
					if waited > 3 && off("other") == 0 {
						t.Fatal("another folder waits")
					}
				}
			}
			if waited == 0 {
				t.Error("the old file came in one batch: nothing was tried")
			}
			w.must(w.u.close())
		})
	}
}
