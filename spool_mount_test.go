//go:build linux

package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mountTestDisk puts a file system of so many bytes on dir.
func mountTestDisk(dir string, size int) error {
	return unix.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
}
