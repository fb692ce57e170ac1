package main

// Lowering what a process takes from others, by Linux: nice 10 and the idle class of the disk's queue.

import "golang.org/x/sys/unix"

// lowerPriority makes a process, and what it starts from then on, stand back. It is a courtesy: what cannot be done is not done.
func lowerPriority(pid int) {
	const (
		ioprioWhoProcess = 1
		ioprioIdle       = 3 << 13
	)
	if err := unix.Setpriority(unix.PRIO_PROCESS, pid, 10); err != nil {
		return // gone by now
	}
	unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, uintptr(pid), ioprioIdle)
}
