package main

// What submit and go take: their flags, and the job request made of them. The request itself is sent by cmd_job.go and cmd_go.go.

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// submitFlags are the flags of job submit and go, as given.
type submitFlags struct {
	name, dir, node, project, experiment string
	gpus, priority, maxAttempts          int
	gpuModel, gpuMem                     string
	watch, tb, tags, config, env         []string
	envFiles                             []string
	venv, conda                          string
	noCapture                            bool
	maxTime, signalBefore, grace         string
	totalSteps                           int64
	primary, reason, key, shell          string
	wait, follow                         bool
}

// register adds them to a set. -n is a name here and a number of lines at logs.
func (f *submitFlags) register(fs *pflag.FlagSet) {
	fs.StringVarP(&f.name, "name", "n", "", "`NAME` of the job (default: the script's)")
	fs.IntVarP(&f.gpus, "gpus", "g", 1, "cards it needs, all on one machine; 0 = cpu lane")
	fs.StringVarP(&f.dir, "working-dir", "d", "", "`DIR` it runs in, as its machine sees it (default here: the current one)")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "`K=V`, or K to pass on the value it has here; repeatable")
	fs.StringArrayVar(&f.envFiles, "env-file", nil, "`FILE` with lines K=V; repeatable")
	fs.StringVar(&f.venv, "venv", "", "virtual environment `DIR` to run in")
	fs.StringVar(&f.conda, "conda", "", "conda environment `NAME` to run in")
	fs.BoolVar(&f.noCapture, "no-env-capture", false, "do not take PATH, the active venv or conda along")
	fs.StringVar(&f.node, "node", "", "run on this machine only: `NODE`")
	fs.StringVar(&f.gpuModel, "gpu-model", "", "only on cards of this model (part of its name)")
	fs.StringVar(&f.gpuMem, "gpu-mem", "", "only on cards with at least this memory: `SIZE` like 20GiB")
	fs.StringVarP(&f.project, "project", "p", "", "`PROJECT` it belongs to (default: the name of its folder)")
	fs.StringVar(&f.experiment, "experiment", "", "experiment within the project")
	fs.StringArrayVar(&f.tags, "tag", nil, "tag; repeatable")
	fs.StringArrayVar(&f.config, "config", nil, "`K=V` shown and compared with the run; repeatable")
	fs.IntVar(&f.priority, "priority", 0, "higher goes first")
	fs.IntVar(&f.maxAttempts, "max-attempts", 3, "tries in all when a machine fails it")
	fs.StringVar(&f.maxTime, "max-time", "", "end it after this `TIME`, like 12h")
	fs.StringVar(&f.signalBefore, "signal-before", "", "signal it this `TIME` before --max-time")
	fs.StringVar(&f.grace, "grace", "", "`TIME` between TERM and KILL (default 5s)")
	fs.StringArrayVar(&f.watch, "watch", nil, "`DIR` to watch for checkpoints; repeatable")
	fs.StringArrayVar(&f.tb, "tb", nil, "TensorBoard folder `DIR`; repeatable")
	fs.Int64Var(&f.totalSteps, "total-steps", 0, "steps of the whole training, for progress")
	fs.StringVar(&f.primary, "primary", "", "metric that decides: `NAME:min` or NAME:max")
	fs.StringVar(&f.reason, "reason", "", "why, for the record")
	fs.StringVar(&f.shell, "shell", "", "run this text by bash -lc instead of a command")
	fs.StringVar(&f.key, "idempotency-key", "", "a repeat with the same key is the same job")
}

// requestOf makes the part of the request that needs no server: everything but folder and captured environment.
func (f *submitFlags) requestOf(fs *pflag.FlagSet, args, environ []string) (req jobRequest, left []string, err error) {
	req = jobRequest{
		Argv: args, Name: f.name, Project: f.project, Experiment: f.experiment, Venv: f.venv, Conda: f.conda, Node: f.node,
		GPUModel: f.gpuModel, Priority: f.priority, Watch: f.watch, TB: f.tb, Tags: f.tags, Reason: f.reason,
	}
	switch {
	case fs.Changed("shell") && len(args) > 0:
		return req, nil, newProblem(codeUsage, "put all of it into the text", "--shell takes the place of the command; %q is left over", args[0])
	case fs.Changed("shell"):
		req.Argv = shellArgv(f.shell)
	case len(args) == 0:
		return req, nil, newProblem(codeUsage, "gpuctl go -- python train.py", "the command to run is missing")
	}
	if f.venv != "" && f.conda != "" {
		return req, nil, newProblem(codeUsage, "give one of them", "--venv and --conda contradict each other")
	}
	if fs.Changed("gpus") {
		if f.gpus < 0 {
			return req, nil, newProblem(codeUsage, "-g 0 is the cpu lane", "-g %d: it cannot be below 0", f.gpus)
		}
		req.GPUs = &f.gpus
	}
	if fs.Changed("max-attempts") {
		if f.maxAttempts < 1 {
			return req, nil, newProblem(codeUsage, "--max-attempts 1 tries once", "--max-attempts %d: it must be at least 1", f.maxAttempts)
		}
		req.MaxAttempts = f.maxAttempts
	}
	if fs.Changed("total-steps") {
		req.TotalSteps = &f.totalSteps
	}
	if f.gpuMem != "" {
		if req.GPUMemoryBytes, err = parseSize(f.gpuMem); err != nil {
			return req, nil, newProblem(codeUsage, "--gpu-mem 20GiB", "--gpu-mem: %v", err)
		}
	}
	if req.MaxTimeS, err = flagSeconds("--max-time", f.maxTime); err != nil {
		return req, nil, err
	}
	if req.SignalBeforeS, err = flagSeconds("--signal-before", f.signalBefore); err != nil {
		return req, nil, err
	}
	if f.grace != "" {
		s, err := flagSeconds("--grace", f.grace)
		if err != nil {
			return req, nil, err
		}
		req.GraceS = &s
	}
	if req.PrimaryMetric, err = parsePrimary(f.primary); err != nil {
		return req, nil, err
	}
	if req.Config, err = parseConfig(f.config); err != nil {
		return req, nil, err
	}
	req.Env = map[string]string{}
	for _, path := range f.envFiles {
		lines, err := readEnvFile(path)
		if err != nil {
			return req, nil, err
		}
		skipped, err := addEnv(req.Env, lines, environ)
		if err != nil {
			return req, nil, err
		}
		left = append(left, skipped...)
	}
	skipped, err := addEnv(req.Env, f.env, environ)
	return req, append(left, skipped...), err
}

// shellArgv runs a text by bash, or by sh where there is no bash here.
func shellArgv(text string) []string {
	shell := "bash"
	if _, err := exec.LookPath(shell); err != nil {
		shell = "sh"
	}
	return []string{shell, "-lc", text}
}

func flagSeconds(flag, text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	d, err := parseDuration(text)
	if err != nil {
		return 0, newProblem(codeUsage, flag+" 30m", "%s: %v", flag, err)
	}
	return d.Seconds(), nil
}

// parsePrimary reads NAME:min or NAME:max; the name may hold colons.
func parsePrimary(text string) (*primaryMetric, error) {
	if text == "" {
		return nil, nil
	}
	i := strings.LastIndexByte(text, ':')
	if i <= 0 || text[i+1:] != "min" && text[i+1:] != "max" {
		return nil, newProblem(codeUsage, "--primary val_loss:min", "--primary: %q is not NAME:min or NAME:max", text)
	}
	return &primaryMetric{Name: text[:i], Goal: text[i+1:]}, nil
}

// parseConfig reads K=V pairs; a value that is a JSON number, true, false or null is that, every other a text.
func parseConfig(pairs []string) (map[string]any, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	config := map[string]any{}
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, newProblem(codeUsage, "--config lr=0.001", "--config: %q is not K=V", p)
		}
		config[k] = v
		if json.Valid([]byte(v)) && !strings.ContainsAny(v[:1], `"{[ `) {
			config[k] = json.RawMessage(v) // digits stay as they were written
		}
	}
	return config, nil
}

// place fills in folder and environment, by whether the job will run on this machine: the server knows its nodes by their machine hash.
func (c *cli) place(ctx context.Context, cl *client, f *submitFlags, req *jobRequest) error {
	machine, err := machineID()
	if err != nil {
		return err
	}
	here, unknown, err := runsHere(ctx, cl, machine, f.node)
	if err != nil {
		return err
	}
	if !here {
		switch {
		case f.dir == "" && unknown:
			return newProblem(codeUsage, "gpuctl node list; -d /path/on/that/machine for one that is yet to come",
				"no machine is called %s, and where its folders are is not known", f.node)
		case f.dir == "":
			return newProblem(codeUsage, "-d /path/on/that/machine",
				"the job runs on another machine: say in which folder of it")
		case !filepath.IsAbs(f.dir):
			return newProblem(codeUsage, "-d /path/on/that/machine", "-d %s: on another machine the folder needs its whole path", f.dir)
		}
		req.WorkingDir = f.dir
		return nil
	}
	if req.WorkingDir, err = absolute(f.dir); err != nil {
		return err
	}
	if f.venv != "" {
		if req.Venv, err = absolute(f.venv); err != nil {
			return err
		}
	}
	if f.noCapture {
		return nil
	}
	env := captureEnv(c.environ)
	if f.venv != "" || f.conda != "" {
		otherPython(env)
	}
	if len(env) == 0 {
		return nil
	}
	req.Capture = &envCapture{Machine: machine, Env: env} // another machine may get the job all the same
	return nil
}

// absolute is the whole path of a folder; "" is the current one. The path is not looked at: the agent says what is wrong with it.
func absolute(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", newProblem(codeUsage, "cd to a folder that exists, or give -d", "the current folder is not known: %v", err)
	}
	if dir == "" { // as the shell shows it, not with its links resolved
		if pwd := os.Getenv("PWD"); filepath.IsAbs(pwd) {
			a, erra := os.Stat(pwd)
			b, errb := os.Stat(abs)
			if erra == nil && errb == nil && os.SameFile(a, b) {
				return pwd, nil
			}
		}
	}
	return abs, nil
}

// runsHere reports whether a job for this node (any when "") may run on the machine of this CLI, and whether the server does not know the
// node at all.
func runsHere(ctx context.Context, cl *client, machine, node string) (here, unknown bool, err error) {
	l, err := cl.nodes(ctx)
	if err != nil {
		return false, false, err
	}
	unknown = node != ""
	for _, n := range l.Items {
		named := node == n.Name || node == n.UID
		unknown = unknown && !named
		if n.MachineID == machine && (node == "" || named) {
			return true, false, nil
		}
	}
	// A server on this machine whose agent has not said hello yet, as a moment after `gpuctl up`.
	return len(l.Items) == 0 && node == "" && isLoopbackHost(cl.base.Load().Hostname()), unknown, nil
}

// submit makes and sends the request and says what the platform has to say about it. Sent twice because an answer was lost, it is still
// one job.
func (c *cli) submit(ctx context.Context, cl *client, f *submitFlags, args []string) (jobView, error) {
	req, left, err := f.requestOf(c.flags, args, c.environ)
	if err != nil {
		return jobView{}, err
	}
	if err := c.place(ctx, cl, f, &req); err != nil {
		return jobView{}, err
	}
	for _, name := range left {
		c.p.note("gpuctl: " + name + " is not passed on: names with " + ownPrefix + " belong to the platform")
	}
	key := f.key
	if key == "" {
		key = newUID()
	}
	wait := backoff{first: 100 * time.Millisecond, most: 2 * time.Second}
	for try := 1; ; try++ {
		job, err := cl.submitJob(ctx, req, key)
		if err == nil {
			for _, w := range job.Warnings {
				c.p.note("gpuctl: " + w)
			}
			return job, nil
		}
		// the nodes were answered a moment ago: a lost connection now is the server restarting
		if p, ok := asProblem(err); !ok || p.Code != codeUnreachable || try > 10 || !sleep(ctx, wait.next()) {
			return jobView{}, err
		}
		cl.moved()
	}
}
