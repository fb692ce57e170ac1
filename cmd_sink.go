package main

// Where the lines of a log go: joined pieces, the unfinished last line redrawn on a terminal, JSON lines. No request, no clock.

import (
	"bytes"
	"io"
	"strings"
)

// lineSink writes log lines to stdout. On a terminal what they hold is made safe, unless raw.
type lineSink struct {
	p     *printer
	out   io.Writer
	safe  *safeWriter // nil when not a terminal, or raw
	tty   bool
	each  func(logLine) // told of every line; may be nil
	open  bool          // a piece was written that goes on
	shown bool          // a live line stands on the terminal
	live  string
}

func newLineSink(p *printer, raw bool) *lineSink {
	s := &lineSink{p: p, out: p.out, tty: p.width > 0 && !p.json()}
	if s.tty && !raw {
		s.safe = &safeWriter{w: p.out}
		s.out = s.safe
	}
	return s
}

// line writes one line or piece. A piece that goes on gets no line feed.
func (s *lineSink) line(l logLine) error {
	if s.each != nil {
		s.each(l)
	}
	if s.p.json() {
		return s.p.writeJSON(l)
	}
	s.dropLive()
	if s.open = l.Continued; l.Continued {
		_, err := io.WriteString(s.out, l.Text)
		return err
	}
	if s.safe == nil {
		_, err := io.WriteString(s.out, l.Text+"\n")
		return err
	}
	if _, err := io.WriteString(s.safe, l.Text); err != nil {
		return err
	}
	if err := s.safe.flush(); err != nil { // a colour ends with its line
		return err
	}
	_, err := io.WriteString(s.p.out, "\n")
	return err
}

// breakLine ends a piece whose rest will not come.
func (s *lineSink) breakLine() error {
	s.dropLive()
	if !s.open {
		return nil
	}
	s.open = false
	if s.safe != nil {
		if err := s.safe.flush(); err != nil {
			return err
		}
	}
	_, err := io.WriteString(s.p.out, "\n")
	return err
}

// showLive draws the unfinished last line in place; only on a terminal, where it can be taken back.
func (s *lineSink) showLive(text *string) {
	now := textOf(text)
	if now == s.live {
		return
	}
	s.live = now
	if !s.tty || s.open || now == "" && !s.shown {
		return
	}
	s.shown = true
	io.WriteString(s.p.out, "\r\x1b[K"+clipText(plainText(withoutSGR(now)), s.p.width-1)) // the next real line tells a write error
}

// dropLive takes the drawn line back.
func (s *lineSink) dropLive() {
	if s.shown {
		s.shown, s.live = false, ""
		io.WriteString(s.p.out, "\r\x1b[K") // as above
	}
}

// withoutSGR takes the colours out of a line.
func withoutSGR(text string) string {
	b := []byte(text)
	var out strings.Builder
	for len(b) > 0 {
		i := bytes.IndexByte(b, 0x1b)
		if i < 0 {
			i = len(b)
		}
		out.Write(b[:i])
		if b = b[i:]; len(b) == 0 {
			break
		}
		n, _ := sgrLen(b)
		if n == 0 {
			out.WriteByte(0x1b)
			n = 1
		}
		b = b[n:]
	}
	return out.String()
}
