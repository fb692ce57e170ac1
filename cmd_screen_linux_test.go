package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// testTerminal is a real terminal of 80 by 24, with this test at its other end.
type testTerminal struct {
	t      *testing.T
	master *os.File
	tty    *os.File
	mu     sync.Mutex
	got    []byte
}

func newTestTerminal(t *testing.T) *testTerminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	tm := &testTerminal{t: t, master: master, tty: tty}
	var reading sync.WaitGroup
	reading.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			tm.mu.Lock()
			tm.got = append(tm.got, buf[:n]...)
			tm.mu.Unlock()
			if err != nil { // the last one closed the other end
				return
			}
		}
	})
	t.Cleanup(func() {
		tty.Close()
		reading.Wait()
		master.Close()
	})
	return tm
}

func (tm *testTerminal) text() string {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	return string(tm.got)
}

func (tm *testTerminal) await(text string) {
	tm.t.Helper()
	waitFor(tm.t, text, func() bool { return strings.Contains(tm.text(), text) })
}

func (tm *testTerminal) keys(keys string) {
	if _, err := tm.master.WriteString(keys); err != nil {
		tm.t.Error(err)
	}
}

func (tm *testTerminal) modes() unix.Termios {
	m, err := unix.IoctlGetTermios(int(tm.tty.Fd()), ttyGet)
	if err != nil {
		tm.t.Fatal(err)
	}
	return *m
}
