package main

// gpuctl agent: flags laid over agent.yaml by runAgent.

import (
	"context"
	"os"
	"path/filepath"
	"strings"

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
				return newProblem(codeUsage, "--cpu-lane 2", "--cpu-lane %d: it cannot be below 0", lane)
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

// runAgent runs the agent until ctx ends. Where its server is: see the help of the command.
func runAgent(ctx context.Context, f agentFlags) error {
	home, err := homeDir()
	if err != nil {
		return err
	}
	o, err := agentOptionsHere(home, f)
	if err != nil {
		return err
	}
	o.renew = func() string {
		again, err := agentOptionsHere(home, f)
		if err != nil || again.serverURL != o.serverURL { // half written, or meant for a restart
			return ""
		}
		return again.token
	}
	return runAgentCore(ctx, o)
}

// agentOptionsHere is agentOptionsOf with what the server of this machine says where nothing else does. Server and token are set.
func agentOptionsHere(home string, f agentFlags) (agentOptions, error) {
	o, err := agentOptionsOf(home, f)
	if err != nil {
		return o, err
	}
	if o.serverURL == "" || o.token == "" {
		local, err := loadServerConfig(home)
		if err != nil {
			return o, err
		}
		own, _ := localAddress(local)
		if o.serverURL == "" {
			o.serverURL = own
		}
		if o.token == "" && sameServer(o.serverURL, own) {
			if o.token, err = readTokenFile(filepath.Join(local.DataDir, agentTokenFile)); err != nil {
				return o, newProblem(codeUsage, "start gpuctl server on this machine first, join another one's (gpuctl help agent join), or give --server URL and --token-file FILE",
					"no token for %s: %v", o.serverURL, err)
			}
		}
	}
	if o.token == "" {
		return o, newProblem(codeUsage, "on the server: gpuctl node join; here what it prints", "no token of scope agent for %s", o.serverURL)
	}
	return o, nil
}

// agentOptionsOf lays flags over environment over agent.yaml. Server and token are "" when none of them names one.
func agentOptionsOf(home string, f agentFlags) (agentOptions, error) {
	var file agentConfig
	path := filepath.Join(home, agentYAML)
	if err := loadYAML(path, &file); err != nil {
		return agentOptions{}, err
	}
	if file.Token != "" {
		if err := private(path); err != nil {
			return agentOptions{}, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return agentOptions{}, newProblem(codeUsage, "start gpuctl by its full path", "cannot find my own program: %v", err)
	}
	o := agentOptions{
		home: home, serverURL: firstOf(f.server, os.Getenv("GPUCTL_SERVER_URL"), file.ServerURL), token: agentTokenOf(os.Getenv("GPUCTL_TOKEN")),
		name: firstOf(f.name, file.Name), cpuLane: defaultCPULane, fakeGPUs: f.fakeGPUs, self: self,
		log: newLogger(os.Stderr, "agent", f.verbose), defaultEnv: file.DefaultEnv,
	}
	if o.token == "" && (file.ServerURL == "" || sameServer(file.ServerURL, o.serverURL)) { // a token goes only to the server that it was given for
		o.token = file.Token
	}
	switch file.VisibleDevices {
	case "", "index":
	case "uuid":
		o.visibleByUUID = true
	default:
		return o, newProblem(codeUsage, "visible_devices: index, or uuid", "%s: visible_devices %q", path, file.VisibleDevices)
	}
	if file.CPULane != nil {
		o.cpuLane = *file.CPULane
	}
	if f.cpuLane != nil {
		o.cpuLane = *f.cpuLane
	}
	if o.cpuLane < 0 || o.cpuLane > 1000 {
		return o, newProblem(codeUsage, "cpu_lane: 2", "cpu_lane %d", o.cpuLane)
	}
	if f.tokenFile != "" {
		o.token, err = readTokenFile(f.tokenFile)
	}
	return o, err
}

// agentTokenOf is a token of the environment, unless its text says that it has another scope: it is the command line's then.
func agentTokenOf(token string) string {
	if strings.HasPrefix(token, "gpc_") && !strings.HasPrefix(token, "gpc_"+scopeAgent+"_") {
		return ""
	}
	return token
}

// firstOf is the first that is not empty.
func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
