package main

// gpuctl supervise DIR: hidden, started by the agent only, one for each run. Nothing of the CLI may run before it.

import "io"

// supervise runs the supervisor when these are its arguments; ok is false when they are not.
func supervise(args []string, stdin io.Reader) (code int, ok bool) {
	if len(args) != 2 || args[0] != "supervise" {
		return 0, false
	}
	return superviseMain(args[1], stdin), true
}
