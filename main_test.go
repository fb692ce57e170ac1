package main

// What all tests share: children that the test binary becomes when it is started with their name as first argument, and the one way of
// waiting.

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// testChildren are the programs that this binary can be, by the first argument; what they get are the others. The result is the exit code.
var testChildren = map[string]func(args []string) int{
	"supervise": func(args []string) int { return superviseMain(args[0], os.Stdin) },
	"show-args": childShowArgs,
	"tb-writer": childTBWriter,
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if child, ok := testChildren[os.Args[1]]; ok {
			os.Exit(child(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// waitFor polls until done, for at most 20 s: for what other processes do.
func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(3 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 20 s for: %s", what)
		}
	}
}

// cpuTime is what this process has used so far, user and system.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
