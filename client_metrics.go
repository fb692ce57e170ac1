package main

// Metrics over REST: answers that may be hundreds of megabytes, so they are read piece by piece, never held whole. A value is handed on as the
// server wrote it or as the float64 that it reads as; nothing is rounded here.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// metricsAll copies the answer for a run as it is.
func (c *client) metricsAll(ctx context.Context, run string, query url.Values, w io.Writer) error {
	return c.metricsAnswer(ctx, run, query, 0, func(body io.Reader) error {
		var end lastByte
		if _, err := io.Copy(io.MultiWriter(w, &end), body); err != nil {
			return err
		}
		if end.b != '}' {
			return io.ErrUnexpectedEOF // a proxy in between may hide the cut
		}
		return nil
	})
}

// lastByte remembers the last byte that is not white space.
type lastByte struct{ b byte }

func (l *lastByte) Write(p []byte) (int, error) {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] > ' ' {
			l.b = p[i]
			break
		}
	}
	return len(p), nil
}

// metricsEach gives the series of a run one after the other, and then the page without them. With wait the answer may come that late.
func (c *client) metricsEach(ctx context.Context, run string, query url.Values, wait time.Duration, each func(metricSeries) error) (metricsPage, error) {
	var page metricsPage
	var stop error // of each: it is no fault of the answer
	err := c.metricsAnswer(ctx, run, query, wait, func(body io.Reader) error {
		dec := json.NewDecoder(bufio.NewReaderSize(body, 64<<10))
		if err := wantDelim(dec, '{'); err != nil {
			return err
		}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return err
			}
			switch key {
			case "items":
				err = wantDelim(dec, '[')
				for err == nil && dec.More() {
					var s metricSeries
					if err = dec.Decode(&s); err == nil {
						if stop = each(s); stop != nil {
							return nil
						}
					}
				}
				if err == nil {
					err = wantDelim(dec, ']')
				}
			case "next":
				err = dec.Decode(&page.Next)
			case "state":
				err = dec.Decode(&page.State)
			case "done":
				err = dec.Decode(&page.Done)
			default:
				err = dec.Decode(&json.RawMessage{})
			}
			if err != nil {
				return err
			}
		}
		return wantDelim(dec, '}')
	})
	if stop != nil {
		return page, stop
	}
	return page, err
}

func wantDelim(dec *json.Decoder, want json.Delim) error {
	tok, err := dec.Token()
	if err == nil && tok != want {
		err = fmt.Errorf("found %v, want %v", tok, want)
	}
	return err
}

// metricsAnswer makes the request and hands a good answer to read. It gives up when nothing came for a while, however long the whole takes.
func (c *client) metricsAnswer(ctx context.Context, run string, query url.Values, wait time.Duration, read func(body io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(wait+clientReadSlack, func() {
		cancel(newProblem(codeUnreachable, "gpuctl status", "%s did not answer in time", c.base.Load()))
	})
	defer idle.Stop()
	resp, err := c.send(ctx, apiCall{method: http.MethodGet, path: "/runs/" + seg(run) + "/metrics", query: query})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(resp.Body, clientMaxAnswer))
		if err != nil {
			return c.lost(ctx, fmt.Errorf("read the answer: %w", err))
		}
		return c.refusal(resp, body)
	}
	if !isJSON(resp.Header) {
		return c.foreign(resp)
	}
	in := &idleReader{r: resp.Body, heard: func() { idle.Reset(clientReadSlack) }}
	err = read(in)
	switch _, wrong := errors.AsType[*json.UnmarshalTypeError](err); {
	case err == nil:
		return nil
	case in.err != nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return c.lost(ctx, fmt.Errorf("the answer broke off: %w", err))
	case wrong || isSyntax(err):
		return newProblem(codeNotOurServer, "", "the answer of %s is not understood: %v", c.base.Load(), err)
	}
	return err
}

func isSyntax(err error) bool {
	_, ok := errors.AsType[*json.SyntaxError](err)
	return ok
}

// idleReader calls heard for whatever arrives and keeps the error that ended it.
type idleReader struct {
	r     io.Reader
	heard func()
	err   error
}

func (i *idleReader) Read(p []byte) (int, error) {
	n, err := i.r.Read(p)
	if n > 0 {
		i.heard()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		i.err = err
	}
	return n, err
}
