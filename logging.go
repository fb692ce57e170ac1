package main

// Logging: slog on stderr, text, one line per state change at Info. Keys are these constants.

import (
	"io"
	"log/slog"
)

const (
	keyComponent = "component"
	keyJob       = "job"
	keyRun       = "run"
	keyNode      = "node"
	keyState     = "state"
	keyEvent     = "event"
	keyErr       = "err"
	keyRequest   = "request"
)

// newLogger writes text lines to w; verbose adds Debug.
func newLogger(w io.Writer, component string, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})).With(keyComponent, component)
}
