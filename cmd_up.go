package main

// gpuctl up: server and agent of this machine in one process.

import (
	"context"

	"github.com/spf13/pflag"
)

// upFlags are those of both.
type upFlags struct {
	server serverFlags
	agent  agentFlags
}

func upCommand() command {
	return command{
		words: "up", short: "Run server and agent of this machine",
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			var f upFlags
			serverTaken, agentTaken := f.server.register(fs), f.agent.register(fs)
			return func(ctx context.Context, args []string) error {
				if err := argCount(args, 0, 0, ""); err != nil {
					return err
				}
				if c.global.server != "" {
					return newProblem(codeUsage, "gpuctl agent --server "+c.global.server, "up runs its own server: --server does not go with it")
				}
				if err := serverTaken(); err != nil {
					return err
				}
				if err := agentTaken(); err != nil {
					return err
				}
				f.server.verbose, f.agent.verbose = c.global.verbose, c.global.verbose
				return untilStopped(ctx, runUp(ctx, f))
			}
		},
	}
}
