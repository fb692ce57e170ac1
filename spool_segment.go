package main

// One segment of own records: its name, the chain of CRCs, and reading whole valid records. It never writes.

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
)

const segmentHeader = 9 // crc in hex and a space

// spoolChain is the CRC-32C of everything up to and with payload.
func spoolChain(before uint32, payload []byte) uint32 {
	return crc32.Update(before, crc32.MakeTable(crc32.Castagnoli), payload) // made once by hash/crc32
}

// segment is one file. Its records end at the base of the next one; what lies behind the last whole record is a torn tail.
type segment struct {
	base  int64
	n     int64 // records before it
	chain uint32
	path  string
}

func (g segment) name() string { return fmt.Sprintf("%016x-%012x-%08x.seg", g.base, g.n, g.chain) }

// spoolPoint is a place between two records.
type spoolPoint struct {
	off   int64
	n     int64
	chain uint32
}

// segmentReader reads the whole, valid records of one segment, one after the other.
type segmentReader struct {
	f    *os.File
	seg  segment
	from spoolPoint // where the present line of records began
	at   spoolPoint // after the last record that was read
	buf  []byte     // bytes of the file from `at` on
}

func openSegment(g segment) (*segmentReader, error) {
	f, err := os.Open(g.path)
	if err != nil {
		return nil, err
	}
	return &segmentReader{f: f, seg: g, at: spoolPoint{g.base, g.n, g.chain}}, nil
}

func (r *segmentReader) close() error { return r.f.Close() }

// next gives the next record; the payload is good until the next call. ok is false where no whole valid record ends at or before limit.
func (r *segmentReader) next(limit int64) (payload []byte, ok bool, err error) {
	for {
		if i := bytes.IndexByte(r.buf, '\n'); i >= 0 {
			line := r.buf[:i]
			if i < segmentHeader || line[8] != ' ' || r.at.off+int64(i)+1 > limit {
				return nil, false, nil
			}
			want, err := strconv.ParseUint(string(line[:8]), 16, 32)
			got := spoolChain(r.at.chain, line[segmentHeader:])
			if err != nil || uint32(want) != got {
				return nil, false, nil
			}
			r.at = spoolPoint{r.at.off + int64(i) + 1, r.at.n + 1, got}
			r.buf = r.buf[i+1:]
			return line[segmentHeader:], true, nil
		}
		if len(r.buf) > 2*factMaxBytes { // no record is so long
			return nil, false, nil
		}
		b := make([]byte, len(r.buf)+factMaxBytes)
		n := copy(b, r.buf)
		got, err := r.f.ReadAt(b[n:], r.at.off-r.seg.base+int64(n))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, false, err
		}
		if got == 0 {
			return nil, false, nil
		}
		r.buf = b[:n+got]
	}
}

// behind counts the line ends behind the last valid record: 0 after a torn write, more when records before others are damaged.
func (r *segmentReader) behind() (lines, size int64, err error) {
	b := make([]byte, factMaxBytes)
	size = r.at.off - r.seg.base
	for {
		n, err := r.f.ReadAt(b, size)
		lines += int64(bytes.Count(b[:n], []byte{'\n'}))
		size += int64(n)
		if errors.Is(err, io.EOF) {
			return lines, size, nil
		}
		if err != nil {
			return 0, 0, err
		}
	}
}
