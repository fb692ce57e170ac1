package main

// Fingerprints of files that somebody else writes, out of what was fed to a decoder, never out of the file as it is now: between the read
// and a second look it may have been rewritten.

import (
	"bytes"
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
	mark []byte // last KiB before at, a clean point that lies further back
	at   int64
}

const fedBack = printBytes + foldEscape // a clean point may lie in front of an escape sequence that a read has cut

func (f *fedBytes) eat(b []byte) {
	if k := printBytes - len(f.head); k > 0 {
		f.head = append(f.head, b[:min(k, len(b))]...)
	}
	f.back = append(f.back, b...)
	f.pos += int64(len(b))
}

// settle forgets what no fingerprint can need any more; the next clean point is clean, or lies further on.
func (f *fedBytes) settle(clean int64) {
	if n := len(f.back) - fedBack; n > 0 {
		if f.pos-clean > fedBack-printBytes {
			f.remember(clean)
		}
		f.back = f.back[:copy(f.back, f.back[n:])]
	}
}

// remember keeps apart what the fingerprint at clean needs.
func (f *fedBytes) remember(clean int64) {
	if clean != f.at && f.covers(clean) {
		e := int64(len(f.back)) - (f.pos - clean)
		f.mark = append(f.mark[:0], f.back[e-min(clean, printBytes):e]...)
		f.at = clean
	}
}

// jump goes to another place of file. ok is false when that is not there, or the head is another one.
func (f *fedBytes) jump(file *os.File, to, clean int64) (ok bool, err error) {
	f.remember(clean)
	k := min(to, printBytes)
	if int64(len(f.head)) < k {
		head := make([]byte, k)
		if ok, err := readWhole(file, head, 0); !ok {
			return false, err
		}
		if !bytes.HasPrefix(head, f.head) {
			return false, nil
		}
		f.head = head
	}
	f.head = f.head[:k]
	f.back = append(f.back[:0], make([]byte, k)...)
	f.pos = to
	return readWhole(file, f.back, to-k)
}

// overlap is the last KiB before pos.
func (f *fedBytes) overlap() []byte { return f.back[max(0, len(f.back)-printBytes):] }

// covers reports whether what lies before off is remembered well enough for its fingerprint.
func (f *fedBytes) covers(off int64) bool {
	return int64(len(f.back))-(f.pos-off) >= min(off, printBytes)
}

// knows reports whether print can tell the fingerprint at off.
func (f *fedBytes) knows(off int64) bool { return off == 0 || off == f.at || f.covers(off) }

// print is the fingerprint at off, which lies within the last feeding or is the clean point. From memory, never from the file as it is now.
func (f *fedBytes) print(off int64) string {
	k := min(off, printBytes)
	if off == 0 || off == f.at {
		return filePrint(f.head[:k], f.mark, off)
	}
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
		if ok, err := readWhole(f, r.b, r.at); !ok {
			return fedBytes{}, "", false, err
		}
	}
	return fed, filePrint(fed.head, fed.back, off), true, nil
}

// readWhole fills b from at; ok is false when the file is shorter.
func readWhole(f *os.File, b []byte, at int64) (ok bool, err error) {
	if _, err = f.ReadAt(b, at); errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil, err
}
