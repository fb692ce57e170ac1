package main

// Event files by macOS: nobody can be asked who has a file open, and nothing tells of new ones. What is left is where a file lies and when
// it was made; doctor says so.

import (
	"context"
	"os"
	"syscall"
	"time"
)

const tbSeesProcs = false

const ticksPerSecond = 1e6

func statTB(path string) (f tbFile, size int64, ok bool) {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return f, 0, false
	}
	f.changedMS = st.ModTime().UnixMilli()
	if s, is := st.Sys().(*syscall.Stat_t); is {
		f.dev, f.ino = uint64(s.Dev), s.Ino
		f.bornMS = s.Birthtimespec.Sec*1000 + s.Birthtimespec.Nsec/1e6
	}
	return f, st.Size(), f.ino != 0
}

func linkTB(via, link string) error { return os.Link(via, link) }

// sharedTB: which file systems are shared is not looked at; another host name in a file's name counts.
func sharedTB(string) bool { return true }

func uptimeTicks() int64 { return 0 }

func threadTime() time.Duration { return 0 }

func openTBs(int, []byte, func(path, via string)) {}

func ownAccount(int) bool { return false }

// tbNotify tells nothing: a folder is only looked at now and then.
type tbNotify struct{ bell *agentBell }

func (n *tbNotify) run(context.Context) error { return nil }

func (n *tbNotify) watch(run, dir string) bool { return false }

func (n *tbNotify) leave(string) {}

func (n *tbNotify) taken() tbNotes { return tbNotes{} }

// fileID is what names a file on this machine while it is there.
func fileID(st os.FileInfo) (dev, ino uint64) {
	if s, is := st.Sys().(*syscall.Stat_t); is {
		return uint64(s.Dev), s.Ino
	}
	return 0, 0
}
