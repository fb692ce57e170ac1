package main

// gpuctl server: flags laid over server.yaml by runServer.

import (
	"context"

	"github.com/spf13/pflag"
)

// serverFlags are what the command line says; what it does not say is left to server.yaml.
type serverFlags struct {
	host         string // "" = not given
	port         *int   // nil = not given; 0 = any free one
	dataDir      string // "" = not given
	insecureHTTP bool
	verbose      bool
}

func (f *serverFlags) register(fs *pflag.FlagSet) (taken func() error) {
	port := 0
	fs.StringVar(&f.host, "host", "", "address to listen on (default "+defaultHost+")")
	fs.IntVar(&port, "port", defaultPort, "port to listen on; 0 = any free one")
	fs.StringVar(&f.dataDir, "data-dir", "", "folder of the database (default $GPUCTL_HOME/server)")
	fs.BoolVar(&f.insecureHTTP, "insecure-http", false, "plain HTTP also on a public address")
	return func() error {
		if fs.Changed("port") {
			if port < 0 || port > 65535 {
				return newProblem(codeUsage, "--port 8600", "--port %d", port)
			}
			f.port = &port
		}
		return nil
	}
}

func serverCommand() command {
	return command{
		words: "server", short: "Run the server",
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			var f serverFlags
			taken := f.register(fs)
			return func(ctx context.Context, args []string) error {
				if err := argCount(args, 0, 0, ""); err != nil {
					return err
				}
				if err := taken(); err != nil {
					return err
				}
				f.verbose = c.global.verbose
				return untilStopped(ctx, runServer(ctx, f))
			}
		},
	}
}

// untilStopped is how a service ends: a signal is its ordinary end.
func untilStopped(ctx context.Context, err error) error {
	if p, ok := asProblem(err); ok && p.Code == codeInterrupted && ctx.Err() != nil {
		return nil
	}
	return err
}
