package main

// What was told of a run's checkpoints, kept in its folder, so that an agent that comes later does not read everything again and knows what
// is gone. Losing the file costs reading and telling again, which changes nothing at the server. No looking here.

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"
)

// ckptToldFile lies in the run's folder.
const ckptToldFile = "checkpoints.json"

const ckptToldVersion = 1

// ckptBook is checkpoints.json.
type ckptBook struct {
	Version int                  `json:"version"`
	AtMS    int64                `json:"at_ms"` // of the newest fact
	Told    map[string]*ckptTold `json:"told"`  // by path as told
}

// ckptTold is a checkpoint that the server was told of and that is not gone.
type ckptTold struct {
	Fingerprint string `json:"fingerprint"`
	Mark        string `json:"mark"` // of the files when they were read
	Kind        string `json:"kind"`
	Dev         uint64 `json:"dev"`           // file system that its folder was on
	Raw         []byte `json:"raw,omitempty"` // the path, where it is not what is told
	Incomplete  bool   `json:"incomplete,omitempty"`

	parts []ckptPart // of a folder, known only to the agent that told it
}

// at is the path to look at.
func (t *ckptTold) at(path string) string {
	if t.Raw != nil {
		return string(t.Raw)
	}
	return path
}

// loadCkptBook reads what was told; a file that is no book is as good as none.
func loadCkptBook(dir runDir) (ckptBook, error) {
	var b ckptBook
	_, err := dir.load(ckptToldFile, &b)
	if err = ignoreGarbage(err); err != nil {
		return ckptBook{}, fmt.Errorf("read what was told of checkpoints: %w", err)
	}
	if b.Version != ckptToldVersion || b.Told == nil {
		b = ckptBook{Version: ckptToldVersion, Told: map[string]*ckptTold{}, AtMS: b.AtMS}
	}
	for path, t := range b.Told {
		if t == nil {
			delete(b.Told, path)
		}
	}
	return b, nil
}

func (b *ckptBook) save(dir runDir) error {
	if err := writeAtomicJSON(dir.file(ckptToldFile), b); err != nil {
		return fmt.Errorf("keep what was told of checkpoints: %w", err)
	}
	return nil
}

// next gives the time of the next fact: it only grows, also when the clock goes back.
func (b *ckptBook) next(nowMS int64) int64 {
	b.AtMS = max(nowMS, b.AtMS+1)
	return b.AtMS
}

// ckptPathText is a path as it is told: bytes that are no UTF-8 become \xNN.
func ckptPathText(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	var b strings.Builder
	for path != "" {
		r, n := utf8.DecodeRuneInString(path)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, path[0])
		} else {
			b.WriteString(path[:n])
		}
		path = path[n:]
	}
	return b.String()
}

// ckptKey is the natural key of a fact about a checkpoint.
func ckptKey(kind, uid, path, fingerprint string) string {
	sum := sha1.Sum([]byte(path))
	return kind + "-" + uid + "-" + hex.EncodeToString(sum[:8]) + "-" + fingerprint
}

// ckptNotThere reports whether nothing lies at a path any more. What cannot be seen is not gone.
func ckptNotThere(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotFolder)
}
