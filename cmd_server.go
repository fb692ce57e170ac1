package main

// gpuctl server: flags laid over server.yaml by runServer.

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
)

// serverFlags are what the command line says; what it does not say is left to server.yaml.
type serverFlags struct {
	host         string // "" = not given
	port         *int   // nil = not given; 0 = any free one
	dataDir      string // "" = not given
	uiDir        string // "" = not given
	insecureHTTP bool
	forceFS      bool // data_dir may be on a network file system
	verbose      bool
}

func (f *serverFlags) register(fs *pflag.FlagSet) (taken func() error) {
	port := 0
	fs.StringVar(&f.host, "host", "", "address to listen on (default "+defaultHost+")")
	fs.IntVar(&port, "port", defaultPort, "port to listen on; 0 = any free one")
	fs.StringVar(&f.dataDir, "data-dir", "", "folder of the database (default $GPUCTL_HOME/server)")
	fs.StringVar(&f.uiDir, "ui-dir", "", "for developers: serve the page's files from this folder")
	fs.BoolVar(&f.insecureHTTP, "insecure-http", false, "plain HTTP also on a public address")
	fs.BoolVar(&f.forceFS, "force-network-fs", false, "keep the database on a network file system; it can be lost there")
	return func() error {
		if fs.Changed("port") {
			if port < 0 || port > 65535 {
				return newProblem(codeUsage, "--port 8600, or --port 0 for any free one", "--port %d: a port is 0 to 65535", port)
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

// runServer runs the server until ctx ends.
func runServer(ctx context.Context, f serverFlags) error {
	s, err := startServer(ctx, f, newLogger(os.Stderr, "server", f.verbose))
	if err != nil {
		return err
	}
	return s.serve(ctx)
}

// startServer lays the flags over server.yaml and opens the server; it listens and does not serve yet.
func startServer(ctx context.Context, f serverFlags, log *slog.Logger) (*server, error) {
	home, err := homeDir()
	if err != nil {
		return nil, err
	}
	cfg, err := loadServerConfig(home)
	if err != nil {
		return nil, err
	}
	if cfg.AdminToken != "" {
		if err := private(filepath.Join(home, serverYAML)); err != nil {
			return nil, err
		}
	}
	cfg.Host = firstOf(f.host, cfg.Host)
	if f.port != nil {
		cfg.Port = *f.port
	}
	if f.dataDir != "" {
		if cfg.DataDir, err = filepath.Abs(f.dataDir); err != nil {
			return nil, newProblem(codeUsage, "give an absolute path", "--data-dir: %v", err)
		}
	}
	if f.uiDir != "" {
		if cfg.UIDir, err = filepath.Abs(f.uiDir); err != nil {
			return nil, newProblem(codeUsage, "give an absolute path", "--ui-dir: %v", err)
		}
	}
	cfg.InsecureHTTP = cfg.InsecureHTTP || f.insecureHTTP
	return newServer(ctx, serverOptions{home: home, cfg: cfg, log: log, forceFS: f.forceFS})
}
