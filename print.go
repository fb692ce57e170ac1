package main

// What the CLI writes: data on stdout as a table, JSON or names; hints and errors on stderr. It never asks the server and keeps no state.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Output formats.
const (
	outTable  = "table"
	outWide   = "wide"
	outJSON   = "json"
	outNDJSON = "ndjson"
	outName   = "name"
	outCSV    = "csv" // where a command takes it
)

var outFormats = []string{outTable, outWide, outJSON, outNDJSON, outName}

// printer writes data to out and everything else to err, in one format.
type printer struct {
	out, err  io.Writer
	format    string
	columns   []string // what the user chose, empty = the format's own
	noHeaders bool
	quiet     bool
	colour    bool
	width     int // columns of the terminal, 0 = not a terminal
	now       time.Time
}

// column is one column of a table. Wide ones are shown by -o wide or by name.
type column[T any] struct {
	name  string
	cell  func(T) string
	wide  bool
	right bool
	state bool // coloured by what it says
}

// json reports whether the data goes out as JSON.
func (p *printer) json() bool { return p.format == outJSON || p.format == outNDJSON }

// printList writes a list in the chosen format; name gives what -o name prints.
func printList[T any](p *printer, l list[T], cols []column[T], name func(T) string) error {
	switch p.format {
	case outJSON:
		if l.Items == nil {
			l.Items = []T{}
		}
		return p.writeJSON(l)
	case outNDJSON:
		for _, v := range l.Items {
			if err := p.writeJSON(v); err != nil {
				return err
			}
		}
		return nil
	case outName:
		for _, v := range l.Items {
			if _, err := fmt.Fprintln(p.out, name(v)); err != nil {
				return err
			}
		}
		return nil
	}
	chosen, err := chooseColumns(p, cols)
	if err != nil {
		return err
	}
	return p.table(tableOf(l.Items, chosen), !p.noHeaders)
}

// chooseColumns picks the columns of the format, or those that the user named, in his order.
func chooseColumns[T any](p *printer, cols []column[T]) ([]column[T], error) {
	var chosen []column[T]
	if len(p.columns) == 0 {
		for _, c := range cols {
			if !c.wide || p.format == outWide {
				chosen = append(chosen, c)
			}
		}
		return chosen, nil
	}
	for _, want := range p.columns {
		i := slices.IndexFunc(cols, func(c column[T]) bool { return c.name == strings.ToLower(strings.TrimSpace(want)) })
		if i < 0 {
			var names []string
			for _, c := range cols {
				names = append(names, c.name)
			}
			return nil, newProblem(codeUsage, "--columns "+strings.Join(names, ","), "there is no column %q", want)
		}
		chosen = append(chosen, cols[i])
	}
	return chosen, nil
}

// grid is a table of texts, not yet laid out.
type grid struct {
	heads []string
	right []bool
	state []bool
	rows  [][]string
}

func tableOf[T any](items []T, cols []column[T]) grid {
	var g grid
	for _, c := range cols {
		g.heads, g.right, g.state = append(g.heads, strings.ToUpper(c.name)), append(g.right, c.right), append(g.state, c.state)
	}
	for _, v := range items {
		row := make([]string, len(cols))
		for i, c := range cols {
			if row[i] = plainText(c.cell(v)); row[i] == "" {
				row[i] = "-"
			}
		}
		g.rows = append(g.rows, row)
	}
	return g
}

// table lays a grid out in columns two blanks apart; on a terminal a line that is too long ends in an ellipsis.
func (p *printer) table(g grid, heads bool) error {
	widths := make([]int, len(g.heads))
	for i, h := range g.heads {
		if heads {
			widths[i] = textWidth(h)
		}
		for _, row := range g.rows {
			widths[i] = max(widths[i], textWidth(row[i]))
		}
	}
	var b strings.Builder
	line := func(row []string, head bool) {
		left := p.width
		for i, cell := range row {
			if i > 0 {
				if left -= 2; p.width > 0 && left <= 0 {
					break
				}
				b.WriteString("  ")
			}
			if p.width > 0 {
				cell = clipText(cell, left)
			}
			pad := strings.Repeat(" ", max(0, widths[i]-textWidth(cell)))
			if p.width > 0 {
				pad = pad[:min(len(pad), max(0, left-textWidth(cell)))]
			}
			left -= textWidth(cell) + len(pad)
			switch {
			case head:
				cell = p.paint(faint, cell)
			case g.state[i]:
				cell = p.paint(stateColour(cell), cell)
			}
			switch {
			case g.right[i]:
				b.WriteString(pad + cell)
			case i == len(row)-1:
				b.WriteString(cell)
			default:
				b.WriteString(cell + pad)
			}
		}
		b.WriteByte('\n')
	}
	if heads {
		line(g.heads, true)
	}
	for _, row := range g.rows {
		line(row, false)
	}
	_, err := io.WriteString(p.out, b.String())
	return err
}

// field is one line of a description: a word and what stands for it. An empty text is left out.
type field struct{ key, text string }

// fields writes a description, keys aligned.
func (p *printer) fields(fs []field) error {
	width := 0
	for _, f := range fs {
		if f.text != "" {
			width = max(width, textWidth(f.key))
		}
	}
	var b strings.Builder
	for _, f := range fs {
		if f.text == "" {
			continue
		}
		text := plainText(f.text)
		if f.key == "state" {
			text = p.paint(stateColour(text), text)
		}
		b.WriteString(p.paint(faint, f.key) + strings.Repeat(" ", width-textWidth(f.key)+2) + text + "\n")
	}
	_, err := io.WriteString(p.out, b.String())
	return err
}

// printOne writes one thing: as JSON, by name, or described.
func printOne[T any](p *printer, v T, name func(T) string, fs []field) error {
	switch {
	case p.json():
		return p.writeJSON(v)
	case p.format == outName:
		return p.data(name(v))
	}
	return p.fields(fs)
}

// data writes one line to stdout.
func (p *printer) data(line string) error {
	_, err := fmt.Fprintln(p.out, plainText(line))
	return err
}

// writeJSON writes one value: indented for -o json, one line for -o ndjson.
func (p *printer) writeJSON(v any) error {
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	if p.format == outJSON {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

// sayf writes a line for people to stderr, unless quiet.
func (p *printer) sayf(format string, args ...any) {
	if !p.quiet {
		p.note(fmt.Sprintf(format, args...))
	}
}

// hint writes what to do next to stderr, unless quiet or writing JSON.
func (p *printer) hint(commands ...string) {
	if !p.json() {
		p.sayf("hint: %s", strings.Join(commands, " | "))
	}
}

// note writes a line to stderr. Stderr is the last resort: when it cannot be written there is nowhere to say so.
func (p *printer) note(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintln(p.err, plainText(line))
	}
}

// exitStatus is an error that says nothing: the command has written all there is to say, and ends with this code.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// exitAs is an error that is told as it is and ends with another code than its own.
type exitAs struct {
	code int
	err  error
}

func (e exitAs) Error() string { return e.err.Error() }
func (e exitAs) Unwrap() error { return e.err }

// fail writes an error to stderr and gives the exit code that belongs to it.
func (p *printer) fail(err error) int {
	if status, ok := errors.AsType[exitStatus](err); ok {
		return int(status)
	}
	if err == nil {
		return 0
	}
	code := exitCode(err)
	if as, ok := errors.AsType[exitAs](err); ok {
		code = as.code
	}
	pr, ok := asProblem(err)
	if !ok {
		pr = newProblem(codeInternal, "", "%v", err)
	}
	text := err.Error() // with what was wrapped around the problem
	if p.json() {
		type told struct {
			Code      string `json:"code"`
			Message   string `json:"message"`
			Hint      string `json:"hint,omitempty"`
			RequestID string `json:"request_id,omitempty"`
		}
		enc := json.NewEncoder(p.err)
		enc.SetEscapeHTML(false)
		if eerr := enc.Encode(map[string]told{"error": {pr.Code, text, pr.Hint, pr.RequestID}}); eerr != nil {
			p.note("gpuctl: " + text)
		}
		return code
	}
	if pr.Code == codeInternal && pr.RequestID != "" {
		text += " (request " + pr.RequestID + ")"
	}
	p.note("gpuctl: " + text)
	if pr.Hint != "" {
		p.note("hint: " + pr.Hint)
	}
	return code
}
