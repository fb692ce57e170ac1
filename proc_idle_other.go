//go:build !linux

package main

// Lowering what a process takes from others, elsewhere: nice 10.

import "golang.org/x/sys/unix"

// lowerPriority makes a process, and what it starts from then on, stand back. It is a courtesy: what cannot be done is not done.
func lowerPriority(pid int) {
	if err := unix.Setpriority(unix.PRIO_PROCESS, pid, 10); err != nil {
		return // gone by now
	}
}
