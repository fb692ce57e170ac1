package main

// Fingerprints of files that somebody else writes, out of what was fed to a decoder, never out of the file as it is now: between the read
// and a second look it may have been rewritten.

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strconv"
)

// fedBytes remembers of what was fed to a decoder as much as fingerprints and the next overlap need.
type fedBytes struct {
	pos  int64
	head []byte // first KiB
	back []byte // what lies before pos
}

const fedBack = printBytes + foldEscape // a clean point may lie in front of an escape sequence that a read has cut

func (f *fedBytes) eat(b []byte) {
	if k := printBytes - len(f.head); k > 0 {
		f.head = append(f.head, b[:min(k, len(b))]...)
	}
	f.back = append(f.back, b...)
	f.pos += int64(len(b))
}

// settle forgets what no fingerprint can need any more.
func (f *fedBytes) settle() {
	if n := len(f.back) - fedBack; n > 0 {
		f.back = f.back[:copy(f.back, f.back[n:])]
	}
}

// overlap is the last KiB before pos.
func (f *fedBytes) overlap() []byte { return f.back[max(0, len(f.back)-printBytes):] }

// covers reports whether what lies before off is remembered well enough for its fingerprint.
func (f *fedBytes) covers(off int64) bool {
	return int64(len(f.back))-(f.pos-off) >= min(off, printBytes)
}

// print is the fingerprint at off, which lies within the last feeding. From memory, never from the file as it is now.
func (f *fedBytes) print(off int64) string {
	k := min(off, printBytes)
	e := int64(len(f.back)) - (f.pos - off)
	return filePrint(f.head[:k], f.back[e-k:e], off)
}

// filePrint is SHA-256, cut to 8 bytes, of off, the first KiB and the last KiB before off; "" at 0.
func filePrint(head, back []byte, off int64) string {
	if off == 0 {
		return ""
	}
	h := sha256.New()
	h.Write(strconv.AppendInt(nil, off, 10))
	h.Write([]byte{':'})
	h.Write(head)
	h.Write(back)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// fedAt reads what lies around off; ok is false when the file is shorter.
func fedAt(f *os.File, off int64) (fed fedBytes, print string, ok bool, err error) {
	k := min(off, printBytes)
	fed = fedBytes{pos: off, head: make([]byte, k), back: make([]byte, k)}
	for _, r := range []struct {
		b  []byte
		at int64
	}{{fed.head, 0}, {fed.back, off - k}} {
		if _, err := f.ReadAt(r.b, r.at); errors.Is(err, io.EOF) {
			return fedBytes{}, "", false, nil
		} else if err != nil {
			return fedBytes{}, "", false, err
		}
	}
	return fed, filePrint(fed.head, fed.back, off), true, nil
}
