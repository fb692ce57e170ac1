package main

// The test binary as the program that supervisors are started from. Dropped at the merge with zz_agent_stub.go.

import (
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "supervise" {
		os.Exit(stubSupervise(os.Args[2], os.Stdin))
	}
	os.Exit(m.Run())
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(3 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 20 s for: %s", what)
		}
	}
}
