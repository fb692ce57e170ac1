package main

import (
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"20GiB": 20 << 30, "20GB": 20e9, "500M": 500e6, "1.5 GiB": 3 << 29, "0": 0, "1048576": 1 << 20, "24gi": 24 << 30, "7k": 7000, "12b": 12, "1TiB": 1 << 40,
	} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "GiB", "-1", "-1G", "1e400", "nan", "inf", "0x10", "1_000", "12 apples", "9e18G", "10EiB", "+5"} {
		if got, err := parseSize(in); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", in, got)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for in, want := range map[int64]string{
		0: "0 B", 900: "900 B", 1024: "1 KiB", 1000: "1.0 KiB", 1 << 29: "512 MiB", 25447170048: "23.7 GiB", 24 << 30: "24 GiB", 200 << 30: "200 GiB", 1 << 40: "1 TiB", -2048: "-2 KiB",
	} {
		if got := formatSize(in); got != want {
			t.Errorf("formatSize(%d) = %q, want %q", in, got, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"2h03m": 123 * time.Minute, "5m": 5 * time.Minute, "90": 90 * time.Second, "0": 0, "1.5": 1500 * time.Millisecond, "1.5h": 90 * time.Minute,
		"2d": 48 * time.Hour, "2d12h": 60 * time.Hour, "250ms": 250 * time.Millisecond,
	} {
		if got, err := parseDuration(in); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "m", "-5", "-5m", "nan", "inf", "0x10", "1e3", "5 minutes", "d", "-1d", "99999999999d", "1d-5h", "+5m", "1_0"} {
		if got, err := parseDuration(in); err == nil {
			t.Errorf("parseDuration(%q) = %v, want an error", in, got)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for in, want := range map[time.Duration]string{
		0: "0ms", 850 * time.Millisecond: "850ms", 4249 * time.Millisecond: "4.2s", 9999 * time.Millisecond: "9.9s", 45 * time.Second: "45s",
		125 * time.Second: "2m05s", 123 * time.Minute: "2h03m", 76 * time.Hour: "3d04h", -5 * time.Minute: "-5m00s",
	} {
		if got := formatDuration(in); got != want {
			t.Errorf("formatDuration(%v) = %q, want %q", in, got, want)
		}
	}
}

func TestHashMachine(t *testing.T) {
	// sha256("gpuctl machine-id v1\nabc"), made with sha256sum: the agent's side must give the same for the same machine-id.
	const want = "a0560669f323289f1464fc06c084600206564d9eb409dd7b60cc5e38e1edb80a"
	if got := hashMachine("abc\n"); got != want {
		t.Errorf("hashMachine = %s, want %s", got, want)
	}
}
