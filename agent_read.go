package main

// Reading a piece of a run's log for somebody at the server. Confined to log.txt inside the run's folder, whatever a job put there.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// readsInFlight bounds memory: 256 KiB each, and its base64.
const readsInFlight = 4

// read answers a read command. A reader that waits behind others longer than the server's 30 s answers nobody, which is harmless.
func (a *agent) read(ctx context.Context, c wireCommand) error {
	select {
	case a.reading <- struct{}{}:
		defer func() { <-a.reading }()
	case <-ctx.Done():
		return nil
	}
	p, err := decodePayload[readPayload](c)
	var ans commandAnswer
	if err == nil {
		ans, err = readLogPiece(a.runFolder(c.RunUID), p.Off, p.Len)
	}
	if err != nil {
		ans = commandAnswer{Error: err.Error()}
	}
	return a.door.answer(ctx, c.ID, ans)
}

// readLogPiece reads bytes [off, off+n) of a run's log; off < 0 counts from the end. Beyond the end there is nothing, which is no error.
func readLogPiece(dir runDir, off, n int64) (ans commandAnswer, err error) {
	root, err := os.OpenRoot(string(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return ans, fmt.Errorf("this node has no folder of that run")
	}
	if err != nil {
		return ans, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	f, err := root.OpenFile("log.txt", os.O_RDONLY|unix.O_NONBLOCK, 0) // a fifo in its place must not hang us
	if errors.Is(err, fs.ErrNotExist) {
		return ans, fmt.Errorf("the run has no log yet")
	}
	if err != nil {
		return ans, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return ans, err
	}
	if !st.Mode().IsRegular() {
		return ans, fmt.Errorf("log.txt is not a file")
	}
	if off < 0 {
		off = max(0, st.Size()+off)
	}
	n = max(0, min(n, logPieceMaxBytes, st.Size()-off))
	buf := make([]byte, n)
	got, err := f.ReadAt(buf, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return ans, err
	}
	return commandAnswer{OK: true, Off: off, Size: st.Size(), Data: buf[:got]}, nil
}
