package main

// The door for batches: reads, inflates and checks everything before the writer is asked, then one write per batch (ingest_apply.go).
// What is not whole and right is refused as a whole, with the line's number, and nothing is applied.

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
)

const (
	printMaxBytes = 128     // a fingerprint is opaque, but not endless
	skipMost      = 1 << 40 // lines in one skip: a sum of them must not overflow the cursor
)

// ingestLine is a batch line with its items decoded.
type ingestLine struct {
	batchLine
	srcKind string
	logs    []logItem
	facts   []factItem
	samples []nodeSample
	points  []ingestPoints
}

func (s *server) agentBatch(w http.ResponseWriter, r *http.Request) error {
	raw, err := batchBody(r)
	if err != nil {
		return err
	}
	lines, err := parseBatch(raw)
	if err != nil {
		return err
	}
	node, err := s.agentNode(r)
	if err != nil {
		return err
	}
	var b *batchApply
	// A client that hangs up does not undo what it sent: it would only send it again.
	if err := s.store.write(context.WithoutCancel(r.Context()), func(t *tx) error {
		b = newBatchApply(s, t, node)
		return b.apply(lines)
	}); err != nil {
		return err
	}
	b.showLive(lines)
	return writeJSON(w, http.StatusOK, batchAnswer{Gpuctl: 1, Acks: b.acks(), Refused: b.refused, Incarnation: s.inc.current()})
}

// batchBody reads the body, inflated when it came as gzip. Both sizes are counted: a bomb is refused, never cut.
func batchBody(r *http.Request) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != ndjsonType {
		return nil, newProblem(codeMediaType, "send Content-Type: "+ndjsonType, "the body is %q", r.Header.Get("Content-Type"))
	}
	tooLarge := func(what string, limit int) error {
		return newProblem(codeTooLarge, "send fewer lines at once", "the batch is over %d bytes %s", limit, what)
	}
	if r.ContentLength > batchMaxBytes {
		return nil, tooLarge("as sent", batchMaxBytes)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, batchMaxBytes+1))
	if err != nil {
		return nil, newProblem(codeBadJSON, "send it again", "the body broke off: %v", err)
	}
	if len(body) > batchMaxBytes {
		return nil, tooLarge("as sent", batchMaxBytes)
	}
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "", "identity":
		return body, nil
	case "gzip":
	default:
		return nil, newProblem(codeMediaType, "send gzip or nothing", "Content-Encoding %q is not known", enc)
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, newProblem(codeBadJSON, "", "the body is not gzip: %v", err)
	}
	raw, err := io.ReadAll(io.LimitReader(z, batchMaxInflated+1))
	if len(raw) > batchMaxInflated {
		return nil, tooLarge("inflated", batchMaxInflated)
	}
	if err != nil {
		return nil, newProblem(codeBadJSON, "", "the gzip body is damaged: %v", err)
	}
	return raw, nil
}

// parseBatch reads and checks all lines. No I/O.
func parseBatch(raw []byte) ([]ingestLine, error) {
	var out []ingestLine
	var points pointsReader
	for n := 1; len(raw) > 0; n++ {
		var text []byte
		text, raw, _ = bytes.Cut(raw, []byte{'\n'})
		if len(text) > batchLineMaxBytes {
			return nil, newProblem(codeTooLarge, "one line holds one read of 32 KiB", "line %d has %d bytes, at most %d go", n, len(text), batchLineMaxBytes)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		l, err := parseLine(text, n)
		if err == nil && l.Kind == kindPoints && len(l.Items) > 0 {
			l.points, err = points.read(l.Items, l.srcKind)
			l.Items = nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	if len(out) == 0 {
		return nil, newProblem(codeInvalid, "send at least one line", "the batch is empty")
	}
	return out, nil
}

func parseLine(text []byte, n int) (ingestLine, error) {
	var l ingestLine
	if err := strictJSON(text, &l.batchLine); err != nil {
		return l, newProblem(codeBadJSON, "", "line %d: %v", n, err)
	}
	var err error
	if l.srcKind, _, err = parseSource(l.Src); err != nil {
		return l, newProblem(codeInvalid, "", "line %d: %v", n, err)
	}
	bad := func(why string) error { return newProblem(codeInvalid, "", "line %d: %s", n, why) }
	switch {
	case !slices.Contains([]string{kindLog, kindFacts, kindNode, kindPoints, kindSkip, kindLive}, l.Kind):
		return l, bad("kind " + l.Kind + " is not known")
	case l.Kind == kindLive && l.srcKind != kindLog, l.Kind != kindSkip && l.Kind != kindLive && l.Kind != kindOfSource(l.srcKind):
		return l, bad("kind " + l.Kind + " does not go with source " + l.Src)
	case l.Gen < 0 || l.From < 0 || l.To < l.From:
		return l, bad("gen, from and to are out of order")
	case len(l.Prev) > printMaxBytes || len(l.Print) > printMaxBytes:
		return l, bad("a fingerprint is too long")
	case l.Reset && l.From != 0:
		return l, bad("a new generation begins at 0")
	case l.N < 0 || l.N > skipMost || l.N > 0 && l.Kind != kindSkip:
		return l, bad("n is for skips, 0 or more, and no more than a file can have")
	}
	if len(l.Items) == 0 {
		if l.Kind == kindLive {
			return l, bad("a live line has one item")
		}
		return l, nil
	}
	switch l.Kind {
	case kindLog, kindLive:
		err = strictJSON(l.Items, &l.logs)
	case kindFacts:
		err = strictJSON(l.Items, &l.facts)
	case kindNode:
		err = strictJSON(l.Items, &l.samples)
	case kindSkip:
		return l, bad("a skip has no items")
	}
	if err != nil {
		return l, newProblem(codeBadJSON, "", "line %d: items: %v", n, err)
	}
	if l.Kind == kindLive && len(l.logs) != 1 {
		return l, bad("a live line has one item")
	}
	for i := range l.logs {
		if len(l.logs[i].Text) > readChunkBytes {
			return l, newProblem(codeTooLarge, "cut lines at 8 KiB", "line %d: item %d has %d bytes", n, i+1, len(l.logs[i].Text))
		}
	}
	return l, nil
}

// kindOfSource is the kind of the lines that a source of a kind has.
func kindOfSource(kind string) string {
	if kind == sourceTB || kind == sourceSDK {
		return kindPoints
	}
	return kind
}

// strictJSON decodes exactly one value without unknown fields.
func strictJSON(text []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}
