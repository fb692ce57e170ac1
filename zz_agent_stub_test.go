package main

// The test binary as the program that supervisors are started from. Dropped at the merge with zz_agent_stub.go.

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "supervise" {
		os.Exit(stubSupervise(os.Args[2], os.Stdin))
	}
	os.Exit(m.Run())
}
