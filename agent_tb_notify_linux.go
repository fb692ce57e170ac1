package main

// Notices of new event files and new folders, by inotify: an event file that is made is looked at within milliseconds, while its writer has
// it open. Never needed: what it cannot watch is looked at now and then. It asks for new names only; who writes into a file costs nothing.

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tbWatchesMost bounds the watched folders of the agent; the kernel's own bound for an account is 8,192 or more.
const tbWatchesMost = 4096

const tbWatchMask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF

// tbNotify is safe for use by several goroutines. Before run and after it it watches nothing.
type tbNotify struct {
	bell *agentBell

	mu    sync.Mutex
	fd    *os.File
	paths map[int32]string
	ids   map[string]int32
	users map[string]map[string]bool // by folder: runs that want it watched
	notes tbNotes
}

// run reads notices until ctx ends. Where there is no inotify it returns at once.
func (n *tbNotify) run(ctx context.Context) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil // an extra: the walks do without
	}
	f := os.NewFile(uintptr(fd), "inotify")
	n.mu.Lock()
	n.fd, n.paths, n.ids, n.users = f, map[int32]string{}, map[string]int32{}, map[string]map[string]bool{}
	n.mu.Unlock()
	n.bell.ring()
	stop := context.AfterFunc(ctx, func() { n.closed(f.Close()) })
	defer stop()
	buf := make([]byte, 64<<10)
	for {
		k, err := f.Read(buf)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return n.closed(errors.Join(err, f.Close()))
		}
		if n.hear(buf[:k]) {
			n.bell.ring()
		}
	}
}

func (n *tbNotify) closed(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fd = nil
	return err
}

// hear takes notices as inotify(7) gives them; news: one of them is worth a look.
func (n *tbNotify) hear(b []byte) (news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(b) >= unix.SizeofInotifyEvent {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
		size := unix.SizeofInotifyEvent + int(e.Len)
		if size > len(b) {
			break
		}
		name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:size]), "\x00")
		b = b[size:]
		dir, known := n.paths[e.Wd]
		switch {
		case e.Mask&unix.IN_Q_OVERFLOW != 0:
			n.notes.lost, news = true, true
		case !known:
		case e.Mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0:
			if e.Mask&unix.IN_MOVE_SELF != 0 && n.fd != nil { // its path is another one now, and below it too
				n.unwatch(e.Wd)
			}
			delete(n.paths, e.Wd)
			delete(n.ids, dir)
			delete(n.users, dir)
			n.notes.gone = append(n.notes.gone, dir)
			news = true
		case e.Mask&unix.IN_ISDIR != 0:
			if !tbSkipFolder(name) {
				n.notes.folders = append(n.notes.folders, dir)
				news = true
			}
		case strings.Contains(name, tbMark):
			n.notes.files = append(n.notes.files, filepath.Join(dir, name))
			news = true
		}
		if len(n.notes.files)+len(n.notes.folders)+len(n.notes.gone) > tbNotesMost {
			n.notes = tbNotes{lost: true}
		}
	}
	return news
}

// unwatch takes a watch away; the descriptor is open. An error means that it is gone.
func (n *tbNotify) unwatch(wd int32) {
	if c, err := n.fd.SyscallConn(); err == nil {
		var gone error
		if err := c.Control(func(fd uintptr) { _, gone = unix.InotifyRmWatch(int(fd), uint32(wd)) }); err != nil || gone != nil {
			delete(n.paths, wd)
		}
	}
}

// watch asks for notices about a folder, for a run. It reports whether they will come.
func (n *tbNotify) watch(run, dir string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fd == nil {
		return false
	}
	if users := n.users[dir]; users != nil {
		users[run] = true
		return true
	}
	if len(n.users) >= tbWatchesMost {
		return false
	}
	c, err := n.fd.SyscallConn()
	if err != nil {
		return false
	}
	wd, werr := 0, error(nil)
	if err := c.Control(func(fd uintptr) { wd, werr = unix.InotifyAddWatch(int(fd), dir, tbWatchMask) }); err != nil || werr != nil {
		return false
	}
	id := int32(wd)
	if old, ok := n.paths[id]; ok { // the same folder under a former name
		n.users[dir] = n.users[old]
		delete(n.users, old)
		delete(n.ids, old)
	}
	if n.users[dir] == nil {
		n.users[dir] = map[string]bool{}
	}
	n.paths[id], n.ids[dir] = dir, id
	n.users[dir][run] = true
	return true
}

// leave ends the watches that only this run wants.
func (n *tbNotify) leave(run string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for dir, users := range n.users {
		if delete(users, run); len(users) > 0 {
			continue
		}
		if id, ok := n.ids[dir]; ok && n.fd != nil {
			n.unwatch(id)
			delete(n.paths, id)
		}
		delete(n.ids, dir)
		delete(n.users, dir)
	}
}

// taken gives what was noticed since the last call.
func (n *tbNotify) taken() tbNotes {
	n.mu.Lock()
	defer n.mu.Unlock()
	notes := n.notes
	n.notes = tbNotes{}
	return notes
}
