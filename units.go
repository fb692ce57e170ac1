package main

// Sizes and lengths of time as people write and read them. Pure: no I/O, no clock.

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// sizeUnits are accepted behind a number, in any case. Without an i they are powers of ten, as drives and GNU tools name them.
var sizeUnits = [...]struct {
	suffix string
	bytes  float64
}{
	{"kib", 1 << 10},
	{"mib", 1 << 20},
	{"gib", 1 << 30},
	{"tib", 1 << 40},
	{"ki", 1 << 10},
	{"mi", 1 << 20},
	{"gi", 1 << 30},
	{"ti", 1 << 40},
	{"kb", 1e3},
	{"mb", 1e6},
	{"gb", 1e9},
	{"tb", 1e12},
	{"k", 1e3},
	{"m", 1e6},
	{"g", 1e9},
	{"t", 1e12},
	{"b", 1},
}

// parseSize reads 20GiB, 1.5 GB, 500M or a plain number of bytes. The result is 0 or more.
func parseSize(s string) (int64, error) {
	number, scale := strings.ToLower(strings.TrimSpace(s)), 1.0
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, scale = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || strings.ContainsAny(number, "xpni_+") || !(v >= 0) || v*scale >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size like 20GiB, 500M or 1048576", s)
	}
	return int64(math.Round(v * scale)), nil
}

// formatSize writes bytes with a binary unit and three digits: 23.7 GiB, 512 MiB, 900 B.
func formatSize(bytes int64) string {
	const units = "KMGTPE"
	v, unit := float64(bytes), -1
	for math.Abs(v) >= 999.5 && unit < len(units)-1 {
		v /= 1024
		unit++
	}
	switch {
	case unit < 0:
		return strconv.FormatInt(bytes, 10) + " B"
	case math.Abs(v) < 99.95 && v != math.Trunc(v):
		return fmt.Sprintf("%.1f %ciB", v, units[unit])
	default:
		return fmt.Sprintf("%.0f %ciB", v, units[unit])
	}
}

// parseDuration reads 2h03m, 5m, 1.5h, 2d12h or a plain number of seconds. The result is 0 or more.
func parseDuration(s string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a length of time like 2h03m, 5m or 90 (seconds)", s)
	text := strings.TrimSpace(s)
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		if !(v >= 0) || v*float64(time.Second) >= math.MaxInt64 || strings.ContainsAny(text, "xXpPeE_+nN") {
			return 0, bad
		}
		return time.Duration(v * float64(time.Second)), nil
	}
	var days time.Duration
	if d, rest, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseUint(d, 10, 16)
		if err != nil {
			return 0, bad
		}
		days, text = time.Duration(n)*24*time.Hour, rest
		if text == "" {
			return days, nil
		}
	}
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 || strings.HasPrefix(text, "+") || days+v < 0 {
		return 0, bad
	}
	return days + v, nil
}

// formatDuration writes the two largest units: 850ms, 4.2s, 45s, 2m05s, 2h03m, 3d04h.
func formatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + formatDuration(-d)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return strconv.FormatFloat(math.Floor(d.Seconds()*10)/10, 'f', 1, 64) + "s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}
