package main

// A terminal for a page that is drawn again and again: taken over, and given back however the command ends. Its modes are set by
// cmd_tty_*.go.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What is written to a terminal: the second screen, the cursor, and clearing.
const (
	screenOpen  = "\x1b[?1049h\x1b[?25l"
	screenClose = "\x1b[?25h\x1b[?1049l"
	screenHome  = "\x1b[H"
	screenLine  = "\x1b[K" // the rest of the line
	screenRest  = "\x1b[J" // all below
)

// screenLook is how often a wait looks whether its context ended: a signal does not always wake a poll.
const screenLook = 200 * time.Millisecond

// screen is a terminal that was taken over.
type screen struct {
	out  *os.File
	keys *os.File      // nil: keys are not read
	was  *unix.Termios // modes of keys before
}

// openScreen takes the terminal behind out. Keys come from in when that is a terminal too.
func openScreen(in io.Reader, out io.Writer) (*screen, error) {
	f, ok := out.(*os.File)
	if !ok || terminalWidth(f) == 0 {
		return nil, errors.New("standard output is not a terminal")
	}
	s := &screen{out: f}
	if keys, ok := in.(*os.File); ok {
		was, err := unix.IoctlGetTermios(int(keys.Fd()), ttyGet)
		if err == nil {
			now := *was
			now.Lflag &^= unix.ICANON | unix.ECHO // keys at once; Ctrl-C still makes a signal
			now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
			if err := unix.IoctlSetTermios(int(keys.Fd()), ttySet, &now); err != nil {
				return nil, fmt.Errorf("set the terminal: %w", err)
			}
			s.keys, s.was = keys, was
		}
	}
	if _, err := io.WriteString(f, screenOpen); err != nil {
		return nil, errors.Join(fmt.Errorf("write to the terminal: %w", err), s.close())
	}
	return s, nil
}

// close gives the terminal back as it was.
func (s *screen) close() error {
	_, err := io.WriteString(s.out, screenClose)
	if s.was != nil {
		err = errors.Join(err, unix.IoctlSetTermios(int(s.keys.Fd()), ttySet, s.was))
		s.was = nil
	}
	return err
}

// size is how many columns and lines the terminal has now.
func (s *screen) size() (width, height int) {
	ws, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Col == 0 || ws.Row == 0 {
		return 80, 24
	}
	return int(ws.Col), int(ws.Row)
}

// draw puts a page over the one before, without a flicker: nothing is cleared before it is written again.
func (s *screen) draw(page string) error {
	page = strings.TrimSuffix(page, "\n")
	_, err := io.WriteString(s.out, screenHome+strings.ReplaceAll(page, "\n", screenLine+"\r\n")+screenLine+screenRest)
	return err
}

// wait waits for d, for a key, or for the end of the context; left reports that the key was q.
func (s *screen) wait(ctx context.Context, d time.Duration) (left bool, err error) {
	end := time.Now().Add(d)
	for {
		rest := min(time.Until(end), screenLook)
		if rest <= 0 || ctx.Err() != nil {
			return false, nil
		}
		if s.keys == nil {
			sleep(ctx, rest)
			continue
		}
		fds := []unix.PollFd{{Fd: int32(s.keys.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(rest.Milliseconds())+1)
		if n <= 0 || err != nil {
			if err != nil && !errors.Is(err, unix.EINTR) {
				return false, fmt.Errorf("wait for a key: %w", err)
			}
			continue
		}
		var keys [16]byte
		n, err = s.keys.Read(keys[:])
		if err != nil {
			return true, nil // the terminal went away
		}
		if strings.ContainsAny(string(keys[:n]), "qQ\x03\x04") {
			return true, nil
		}
	}
}
