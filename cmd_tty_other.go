//go:build !linux

package main

// The requests by which systems of the BSD family, macOS among them, read and set the modes of a terminal.

import "golang.org/x/sys/unix"

const (
	ttyGet = unix.TIOCGETA
	ttySet = unix.TIOCSETA
)
