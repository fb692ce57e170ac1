package main

// The one place where a test sleeps.

import (
	"testing"
	"time"
)

// waitFor polls until ok or 10 s.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 10 s for: %s", what)
		}
	}
}
