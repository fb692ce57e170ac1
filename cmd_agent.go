package main

// gpuctl agent: flags laid over agent.yaml by runAgent.

import (
	"context"

	"github.com/spf13/pflag"
)

// agentFlags are what the command line says; what it does not say is left to agent.yaml.
type agentFlags struct {
	server    string // URL, "" = not given
	tokenFile string // "" = not given
	name      string // "" = not given
	fakeGPUs  string // JSON file of cards that do not exist, "" = none
	cpuLane   *int   // nil = not given
	verbose   bool
}

func (f *agentFlags) register(fs *pflag.FlagSet) (taken func() error) {
	lane := 0
	fs.StringVar(&f.name, "name", "", "name of this machine (default: its host name)")
	fs.StringVar(&f.fakeGPUs, "fake-gpus", "", `file with cards to pretend, [{"uuid","model","memory_bytes"}]`)
	fs.IntVar(&lane, "cpu-lane", defaultCPULane, "jobs without a card at a time")
	return func() error {
		if fs.Changed("cpu-lane") {
			if lane < 0 {
				return newProblem(codeUsage, "--cpu-lane 2", "--cpu-lane %d", lane)
			}
			f.cpuLane = &lane
		}
		return nil
	}
}

func agentCommand() command {
	return command{
		words: "agent", short: "Run the agent of this machine",
		long: "Where its server is: --server and --token-file, GPUCTL_SERVER_URL and GPUCTL_TOKEN, agent.yaml, or the server of this machine.",
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			var f agentFlags
			taken := f.register(fs)
			return func(ctx context.Context, args []string) error {
				if err := argCount(args, 0, 0, ""); err != nil {
					return err
				}
				if err := taken(); err != nil {
					return err
				}
				f.server, f.tokenFile, f.verbose = c.global.server, c.global.tokenFile, c.global.verbose
				return untilStopped(ctx, runAgent(ctx, f))
			}
		},
	}
}
