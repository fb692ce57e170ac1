package main

// Samples of the host: CPU, load, memory, swap, and the disk that holds GPUCTL_HOME. What cannot be read is -1, never 0.

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

const hostEvery = 10 * time.Second

// hostWatch takes a sample every hostEvery and hands it on. step is for a loop; it is not safe for two at once.
type hostWatch struct {
	home        string
	add         func(nodeSample)
	busy, total int64 // CPU ticks at the last look
}

func (h *hostWatch) step(_ context.Context, now time.Time) (time.Duration, error) {
	h.add(h.sample(now))
	return hostEvery, nil
}

// sample looks once. The CPU's share is that since the last look, -1 at the first.
func (h *hostWatch) sample(now time.Time) nodeSample {
	n := nodeSample{AtMS: now.UnixMilli(), CPUPermille: -1, Load1Milli: -1, MemoryUsedBytes: -1, MemoryTotalBytes: -1, SwapUsedBytes: -1, DiskFreeBytes: -1, DiskTotalBytes: -1}
	busy, total := hostRead(&n)
	if h.total > 0 && total > h.total {
		n.CPUPermille = min(max(0, busy-h.busy)*1000/(total-h.total), 1000)
	}
	h.busy, h.total = busy, total
	var fs unix.Statfs_t
	if unix.Statfs(h.home, &fs) == nil {
		n.DiskFreeBytes = int64(fs.Bavail) * int64(fs.Bsize)
		n.DiskTotalBytes = int64(fs.Blocks) * int64(fs.Bsize)
	}
	return n
}
