package main

// Stands in for server and agent until they are merged: the lead replaces this file.

import (
	"context"
	"io"
)

func notYet(what string) error {
	return newProblem(codeUnavailable, "", "this build has no %s", what)
}

func runServer(ctx context.Context, f serverFlags) error { return notYet("server") }

func runAgent(ctx context.Context, f agentFlags) error { return notYet("agent") }

func runUp(ctx context.Context, f upFlags) error { return notYet("server") }

func superviseMain(dir string, stdin io.Reader) int { return 125 }
