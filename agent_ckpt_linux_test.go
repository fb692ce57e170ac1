package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// asNobody lets the rest of the test see files with the rights of another account: root may read everything.
func asNobody(t *testing.T, home string) {
	const nobody = 65534
	if os.Geteuid() != 0 {
		return
	}
	err := filepath.WalkDir(filepath.Dir(home), func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(path, nobody, nobody)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // the account is that of the thread
	if err := unix.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setfsuid(0); err != nil {
			t.Error(err) // the thread stays locked and ends with its goroutine
			return
		}
		runtime.UnlockOSThread()
	})
}

func TestCkptUnreadable(t *testing.T) {
	s := newCkptScene(t)
	s.put("checkpoint-1/model.pt", "x")
	s.put("model_2.pt", "x")
	s.put("lost+found/model_9.pt", "x")
	s.must(os.Chmod(s.file("model_2.pt"), 0))
	s.must(os.Chmod(s.file("lost+found"), 0))
	asNobody(t, s.home)
	if _, err := os.ReadFile(s.file("model_2.pt")); err == nil {
		t.Fatal("the file can be read")
	}
	s.want(s.still(), "checkpoint-1 folder 1; model_2.pt file 2") // by size and time alone
	s.must(os.Chmod(s.file("checkpoint-1"), 0))
	s.want(s.still(), "") // what cannot be seen is not gone
	if s.log.Len() > 0 {
		t.Errorf("complaints of a folder below: %s", &s.log)
	}
	s.must(os.Chmod(s.watch, 0))
	s.want(s.last(), "")
	if !strings.Contains(s.log.String(), "permission denied") {
		t.Errorf("a watched folder that cannot be read: %s", &s.log)
	}
	for _, name := range []string{"", "checkpoint-1", "lost+found"} {
		s.must(os.Chmod(s.file(name), 0o700))
	}
	s.want(s.last(), "lost+found/model_9.pt file 9")
}
