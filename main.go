package main

// Entry: finds the command by the name the binary was called by and its first words, and turns errors into exit codes.

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if code, ok := supervise(os.Args[1:], os.Stdin); ok { // before anything else: one such process lives beside every run
		os.Exit(code)
	}
	c := newCLI(os.Stdin, os.Stdout, os.Stderr, os.Environ())
	c.signals = make(chan os.Signal, 4)
	signal.Notify(c.signals, syscall.SIGINT, syscall.SIGTERM)
	os.Exit(c.run(context.Background(), argsByName(os.Args)))
}
