package main

// gpuctl up: server and agent of this machine in one process.

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
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
				return untilStopped(ctx, runUp(ctx, f, func(url string) {
					if terminalWidth(c.err) > 0 { // a person looks on, who sees nothing but the log else
						c.p.sayf("gpuctl: up at %s; Ctrl-C ends it, what runs goes on. In another terminal: gpuctl go -- python train.py", url)
					}
				}))
			}
		},
	}
}

// runUp runs both until ctx ends or one of them fails, and tells the address once it has it. They talk HTTP, as on two machines. The agent
// stops first.
func runUp(ctx context.Context, f upFlags, tell func(url string)) error {
	home, err := homeDir()
	if err != nil {
		return err
	}
	if err := joinedElsewhere(home, f.server); err != nil {
		return err
	}
	o, err := agentOptionsOf(home, f.agent)
	if err != nil {
		return err
	}
	s, err := startServer(ctx, f.server, newLogger(os.Stderr, "server", f.server.verbose))
	if err != nil {
		return err
	}
	tell(s.baseURL)
	o.serverURL = s.baseURL
	if o.token, err = readTokenFile(filepath.Join(s.cfg.DataDir, agentTokenFile)); err != nil {
		return errors.Join(err, s.release())
	}
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error { return s.serve(serving) })
	group.Go(func() error {
		defer stopServing()
		return runAgentCore(both, o)
	})
	return group.Wait()
}

// joinedElsewhere refuses a home whose agent was joined to another server: it would tell this one the runs of that one.
func joinedElsewhere(home string, f serverFlags) error {
	var file agentConfig
	path := filepath.Join(home, agentYAML)
	if err := loadYAML(path, &file); err != nil || file.ServerURL == "" || file.Token == "" {
		return err
	}
	cfg, err := loadServerConfig(home)
	if err != nil {
		return err
	}
	cfg.Host = firstOf(f.host, cfg.Host)
	if f.port != nil {
		cfg.Port = *f.port
	}
	if own, _ := localAddress(cfg); sameServer(file.ServerURL, own) {
		return nil
	}
	return newProblem(codeUsage, "gpuctl agent; for a server of its own on this machine: GPUCTL_HOME=/another/folder gpuctl up",
		"the agent of this folder belongs to %s (%s)", file.ServerURL, path)
}
