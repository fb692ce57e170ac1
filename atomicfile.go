package main

// Files that are whole or not there: temp, fsync, rename (or link), fsync of the folder. Locks by flock.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// writeAtomic replaces path by data, mode 0600, durable on return.
func writeAtomic(path string, data []byte) error {
	tmp, err := writeTemp(path, data)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return syncDir(filepath.Dir(path))
}

// writeOnce creates path with data, mode 0600, whole and durable on return; fs.ErrExist when it is there already. Of two callers
// exactly one wins (link(2) is exclusive).
func writeOnce(path string, data []byte) error {
	tmp, err := writeTemp(path, data)
	if err != nil {
		return err
	}
	err = os.Link(tmp, path)
	if rerr := os.Remove(tmp); err == nil && rerr != nil {
		err = rerr
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func writeTemp(path string, data []byte) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp*") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// writeAtomicJSON is writeAtomic of v as JSON with a final newline.
func writeAtomicJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeAtomic(path, append(b, '\n'))
}

// jsonFileMaxBytes is far above what is ever written: arguments and environment of a process are at most 6 MiB on Linux.
const jsonFileMaxBytes = 64 << 20

// readJSON reads a JSON file into v; fs.ErrNotExist passes through. A job may have put anything in the place of a file of its run: opening
// never waits for a fifo's other end, what is no regular file is garbage (never an fs.PathError, which may pass), and so is what is too large.
func readJSON(path string, v any) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) { // a link to itself, a socket
		return fmt.Errorf("read %s: not a regular file", path)
	}
	if err != nil {
		return err
	}
	b, err := readRegular(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func readRegular(f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", f.Name())
	}
	b, err := io.ReadAll(io.LimitReader(f, jsonFileMaxBytes+1))
	if len(b) > jsonFileMaxBytes {
		return nil, fmt.Errorf("read %s: over %d bytes", f.Name(), jsonFileMaxBytes)
	}
	return b, err
}

// syncDir makes names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

var errLocked = errors.New("locked by another process")

// lockFile takes an exclusive flock on path, created if missing; errLocked when somebody has it. Held until the file is closed or the
// process dies.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		cerr := f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, errors.Join(err, cerr)
	}
	return f, nil
}

// isLocked reports whether some process holds the flock of path. A missing file is not locked, nor is what can be no lock file.
func isLocked(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	cerr := f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, errors.Join(err, cerr)
}
