package main

// The requests by which Linux reads and sets the modes of a terminal.

import "golang.org/x/sys/unix"

const (
	ttyGet = unix.TCGETS
	ttySet = unix.TCSETS
)
