package main

// Host figures of Linux, from /proc.

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"strconv"
	"strings"
)

// hostRead fills what /proc knows and gives the CPU ticks so far, 0 where they cannot be read. Used memory is total less available.
func hostRead(n *nodeSample) (busy, total int64) {
	if b, err := os.ReadFile("/proc/stat"); err == nil {
		busy, total = hostTicks(b)
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(b), " ")
		if f, err := strconv.ParseFloat(first, 64); err == nil {
			n.Load1Milli = int64(math.Round(f * 1000))
		}
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		hostMemory(b, n)
	}
	return busy, total
}

// hostTicks reads the first line of /proc/stat: user nice system idle iowait irq softirq steal (guest times are in user already).
func hostTicks(b []byte) (busy, total int64) {
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	fields := strings.Fields(string(line))
	if len(fields) < 5 || fields[0] != "cpu" {
		return 0, 0
	}
	for i, f := range fields[1:min(len(fields), 9)] {
		v, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, 0
		}
		total += v
		if i != 3 && i != 4 {
			busy += v
		}
	}
	return busy, total
}

func hostMemory(b []byte, n *nodeSample) {
	kib := map[string]int64{}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		key, rest, _ := strings.Cut(sc.Text(), ":")
		if f := strings.Fields(rest); len(f) > 0 {
			if v, err := strconv.ParseInt(f[0], 10, 64); err == nil {
				kib[key] = v
			}
		}
	}
	if total, ok := kib["MemTotal"]; ok {
		n.MemoryTotalBytes = total << 10
		if free, ok := kib["MemAvailable"]; ok {
			n.MemoryUsedBytes = (total - free) << 10
		}
	}
	if total, ok := kib["SwapTotal"]; ok {
		n.SwapUsedBytes = (total - kib["SwapFree"]) << 10
	}
}
