package main

// Logs over HTTP: lines that the server keeps, and the whole file, read piece by piece from the node that has it.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	logLinesDefault = 200
	logLinesMost    = logRingLines
)

func (s *server) getRunLog(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r, "after", "before", "limit", "wait")
	wait := q.wait()
	ask := logAsk{after: q.id("after"), before: q.id("before"), limit: q.limit(logLinesDefault, logLinesMost)}
	switch {
	case ask.after != nil && ask.before != nil:
		q.refuse("give one of them", "after and before are given together")
	case wait > 0 && ask.after == nil:
		q.refuse("give after too: the next of the answer before", "wait needs after")
	}
	if q.err != nil {
		return q.err
	}
	var id int64
	if err := s.store.read(r.Context(), func(c *conn) (err error) {
		id, err = resolveRun(c, r.PathValue("run"))
		return err
	}); err != nil {
		return err
	}
	var answer logPage
	var firstLive string
	looks := 0
	err := s.longPoll(r, wait, func() []string { return []string{bellRun(id)} }, func() (bool, error) {
		page, err := s.lookAtLog(r.Context(), id, ask)
		if err != nil {
			return false, err
		}
		answer = page
		live := ""
		if page.Live != nil {
			live = *page.Live
		}
		if looks++; looks == 1 {
			firstLive = live
		}
		return len(page.Items) > 0 || page.Done || live != firstLive, nil
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, answer)
}

// lookAtLog reads one page as it is now.
func (s *server) lookAtLog(ctx context.Context, runID int64, ask logAsk) (logPage, error) {
	var p logPage
	err := s.store.read(ctx, func(c *conn) error {
		owner, err := readLogOwner(c, runID)
		if err != nil {
			return err
		}
		p.State, p.Done = owner.state, owner.over()
		p.Items, err = readLogLines(c, runID, ask)
		return err
	})
	if err != nil {
		return p, err
	}
	switch n := len(p.Items); {
	case n > 0:
		p.Next = p.Items[n-1].N
		p.Done = p.Done && (ask.after == nil || int64(n) < ask.limit)
	case ask.after != nil:
		p.Next = *ask.after
	}
	if ask.before == nil && !runOver(p.State) {
		if live, ok := s.liveLine(runID); ok {
			p.Live = &live.Text
		}
	}
	return p, nil
}

// byteRange is one range of a file: from..to, both included, -1 = to the end; last > 0: the last so many bytes.
type byteRange struct{ from, to, last int64 }

// parseRange reads a Range header of one range. ok is false for anything else: the header is then as good as absent (RFC 9110, 14.2).
func parseRange(h string) (b byteRange, ok bool) {
	spec, ok := strings.CutPrefix(strings.TrimSpace(h), "bytes=")
	first, last, dash := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || !dash {
		return b, false
	}
	from, okFrom := refDigits(first)
	to, okTo := refDigits(last)
	switch {
	case first == "" && okTo && to == 0:
		return byteRange{from: 1 << 62, to: -1}, true // nothing: lies outside of any file
	case first == "" && okTo && to > 0:
		return byteRange{last: to, to: -1}, true
	case okFrom && from >= 0 && last == "":
		return byteRange{from: from, to: -1}, true
	case okFrom && okTo && from >= 0 && to >= from:
		return byteRange{from: from, to: to}, true
	}
	return b, false
}

// within fits the range to a file of size bytes: what lies from..end; ok is false when nothing of it is there.
func (b byteRange) within(size int64) (from, end int64, ok bool) {
	if b.last > 0 {
		return max(0, size-b.last), size, size > 0
	}
	end = size
	if b.to >= 0 && b.to < size {
		end = b.to + 1
	}
	return b.from, end, b.from < size
}

func (s *server) getRunLogRaw(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	var owner logOwner
	if err := s.store.read(r.Context(), func(c *conn) error {
		id, err := resolveRun(c, r.PathValue("run"))
		if err == nil {
			owner, err = readLogOwner(c, id)
		}
		return err
	}); err != nil {
		return err
	}
	if owner.nodeID == nil {
		return newProblem(codeNotFound, "gpuctl run show "+owner.label, "run %s has no node that keeps its log", owner.label)
	}
	return answerRaw(w, r, owner.label, func(off, n int64) ([]byte, int64, int64, error) {
		return s.readLog(r.Context(), *owner.nodeID, owner.uid, off, n)
	})
}

// readPiece reads at most n bytes of a file from off on; off < 0 counts from its end. It says where the piece begins and how big the file is.
type readPiece func(off, n int64) (data []byte, start, size int64, err error)

// answerRaw answers a file, or one range of it. Its size is what it was at the first piece, however it grows meanwhile.
func answerRaw(w http.ResponseWriter, r *http.Request, label string, read readPiece) error {
	span, ranged := parseRange(r.Header.Get("Range"))
	ranged = ranged && r.Method == http.MethodGet
	if !ranged {
		span = byteRange{to: -1}
	}
	piece, start, size, err := read(span.begin())
	if err != nil {
		return err
	}
	from, end, ok := span.within(size)
	h := w.Header()
	h.Set("Accept-Ranges", "bytes")
	if ranged && !ok {
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		return newProblem(codeRange, fmt.Sprintf("the file has %d bytes", size), "the range %s lies outside of the file", r.Header.Get("Range"))
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="run-`+label+`.log"`)
	h.Set("Content-Length", strconv.FormatInt(end-from, 10))
	status := http.StatusOK
	if ranged {
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, end-1, size))
	}
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	if start != from {
		piece = nil
	}
	return streamRaw(w, from, end, piece, read)
}

// begin is the first piece to read of a range.
func (b byteRange) begin() (off, n int64) {
	switch {
	case b.last > 0:
		return -b.last, min(logPieceMaxBytes, b.last)
	case b.to >= 0:
		return b.from, min(logPieceMaxBytes, b.to-b.from+1)
	}
	return b.from, logPieceMaxBytes
}

// streamRaw writes the bytes from..end, of which piece, when not empty, is the begin. A file that became shorter meanwhile is an error:
// the answer is cut, and the client sees that it is.
func streamRaw(w http.ResponseWriter, from, end int64, piece []byte, read readPiece) error {
	rc := http.NewResponseController(w)
	for from < end {
		if len(piece) == 0 {
			data, start, _, err := read(from, min(logPieceMaxBytes, end-from))
			if err != nil {
				return fmt.Errorf("read log at %d: %w", from, err)
			}
			if len(data) == 0 || start != from {
				return fmt.Errorf("read log at %d: the file became shorter: %w", from, io.ErrUnexpectedEOF)
			}
			piece = data
		}
		piece = piece[:min(int64(len(piece)), end-from)]
		if _, err := w.Write(piece); err != nil {
			return fmt.Errorf("send log: %w", err)
		}
		from, piece = from+int64(len(piece)), nil
		if err := rc.SetWriteDeadline(time.Now().Add(answerWithin)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("send log: %w", err)
		}
	}
	return nil
}
