package main

// Texts for people: times and states in words, widths of characters, colours, and what of a foreign text may reach a terminal.

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// SGR codes. Colour only ever repeats what a word says already.
const (
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (p *printer) paint(code, text string) string {
	if !p.colour || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// stateColour is the colour of a word that is a state, a severity or the health of something.
func stateColour(word string) string {
	switch strings.ToUpper(word) {
	case jobSucceeded, "READY", "OK", "COMPLETE":
		return green
	case jobFailed, "CRITICAL", "UNREACHABLE":
		return red
	case jobLost, jobCancelling, jobCancelled, "WARNING", "RECOVERING", "INCOMPLETE":
		return yellow
	case jobRunning, runAlive, runStarting, runExiting:
		return cyan
	}
	return ""
}

// ago is a time as "5m ago"; -o wide shows RFC 3339 with zone instead. Nil or 0 is unknown.
func (p *printer) ago(ms *int64) string {
	if ms == nil || *ms == 0 {
		return ""
	}
	t := time.UnixMilli(*ms)
	if p.format == outWide {
		return t.Format(time.RFC3339)
	}
	d := p.now.Sub(t)
	switch {
	case d < 0 && d > -2*time.Second, d >= 0 && d < time.Second: // clocks of two machines are never quite equal
		return "now"
	case d < 0:
		return "in " + formatDuration(-d)
	}
	return formatDuration(d) + " ago"
}

// lasted is how long something took, or takes until now.
func (p *printer) lasted(fromMS, toMS *int64) string {
	if fromMS == nil {
		return ""
	}
	to := p.now
	if toMS != nil {
		to = time.UnixMilli(*toMS)
	}
	return formatDuration(max(0, to.Sub(time.UnixMilli(*fromMS))))
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func numberOf(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// endText is how something ended: "exit 3", "signal 9", "" when that is not known.
func endText(code, signal *int64) string {
	switch {
	case signal != nil && *signal > 0:
		return "signal " + numberOf(signal)
	case code != nil && *code >= 0:
		return "exit " + numberOf(code)
	}
	return ""
}

// plainText makes a foreign text one harmless line: control and direction characters are shown, not obeyed.
func plainText(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !harmless(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		writeShown(&b, r)
	}
	return b.String()
}

// harmless reports whether a terminal only draws this character.
func harmless(r rune) bool {
	switch {
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // they reorder what stands beside them
		return false
	}
	return !unicode.IsControl(r)
}

// writeShown writes a character, or its name when a terminal would obey it.
func writeShown(b *strings.Builder, r rune) {
	switch {
	case harmless(r):
		b.WriteRune(r)
	case r < 0x100:
		fmt.Fprintf(b, `\x%02x`, r)
	default:
		fmt.Fprintf(b, `\u%04x`, r)
	}
}

// safeWriter passes text on to a terminal: lines, tabs, bare returns and colours (SGR) as they are, every other control shown instead of
// obeyed. What a write cuts in two (a character, a sequence) waits for the next one; flush ends the text.
type safeWriter struct {
	w      io.Writer
	held   []byte
	dirty  bool // a colour was passed on
	locked bool // within flush: nothing more comes
}

// sgrMost is the longest colour sequence that is looked for; the longest of use has three true colours and some styles.
const sgrMost = 64

func (s *safeWriter) Write(data []byte) (int, error) {
	text := append(s.held, data...)
	s.held = nil
	var b strings.Builder
	for len(text) > 0 {
		if text[0] == 0x1b {
			n, whole := sgrLen(text)
			switch {
			case n > 0:
				b.Write(text[:n])
				s.dirty = true
				text = text[n:]
				continue
			case !whole && !s.locked:
				s.held = text
			default:
				writeShown(&b, 0x1b)
				text = text[1:]
				continue
			}
			break
		}
		if !utf8.FullRune(text) && !s.locked {
			s.held = text
			break
		}
		r, n := utf8.DecodeRune(text)
		if r == '\n' || r == '\t' || r == '\r' {
			b.WriteRune(r)
		} else {
			writeShown(&b, r)
		}
		text = text[n:]
	}
	s.held = append([]byte(nil), s.held...)
	if _, err := io.WriteString(s.w, b.String()); err != nil {
		return 0, err
	}
	return len(data), nil
}

// flush writes what was held back and ends a colour that the text left on.
func (s *safeWriter) flush() error {
	s.locked = true
	_, err := s.Write(nil)
	s.locked = false
	if err == nil && s.dirty {
		s.dirty = false
		_, err = io.WriteString(s.w, "\x1b[0m")
	}
	return err
}

// sgrLen is the length of the colour sequence that text begins with, 0 when it is none; whole is false when more text may make it one.
func sgrLen(text []byte) (n int, whole bool) {
	for i, c := range text {
		switch {
		case i == 0:
		case i == 1 && c == '[':
		case i > 1 && c == 'm':
			return i + 1, true
		case i > 1 && i < sgrMost && (c >= '0' && c <= '9' || c == ';' || c == ':'):
		default:
			return 0, true
		}
	}
	return 0, false
}

// textWidth is how many columns a text takes: East Asian wide characters two, combining ones none.
func textWidth(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf && r != 0x303f, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

// clipText cuts a text to a number of columns; a cut one ends in an ellipsis.
func clipText(s string, most int) string {
	if textWidth(s) <= most {
		return s
	}
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > most-1 {
			return s[:i] + "…"
		}
	}
	return s
}
