package main

// The environment snapshot of a run: what code, what python, what machine. A fact, looked at once, after the start and beside it: it never
// delays a run and its failure is part of it. Values of variables are not in it, and what looks like a secret in argv is masked.

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// envSnapshot is the data of a fact of kind "env".
type envSnapshot struct {
	Argv       []string      `json:"argv"` // secrets masked
	WorkingDir string        `json:"working_dir"`
	Hostname   string        `json:"hostname"`
	OS         string        `json:"os"`
	User       string        `json:"user"`
	CPUs       int           `json:"cpus"`
	Slots      []slotRef     `json:"slots"`
	EnvNames   []string      `json:"env_names"` // names only
	Python     *pythonFacts  `json:"python"`    // null when there is none
	Git        *gitFacts     `json:"git"`       // null when the folder is in no work tree
	Packages   *packageFacts `json:"packages,omitempty"`
	Driver     *string       `json:"gpu_driver"` // "570.86.15"; null when there is none
}

type gitFacts struct {
	Commit string `json:"commit"`
	Branch string `json:"branch"` // "" on a detached head
	Dirty  *bool  `json:"dirty"`  // null when it could not be found out in time
	Error  string `json:"error,omitempty"`
}

// snapshotLimit is for one program: git status takes minutes on a cold network file system.
const snapshotLimit = 5 * time.Second

// snapshotFile marks that the snapshot of a run is durable in the spool.
const snapshotFile = "snapshot.json"

// snapshotDelay keeps git and python off the cores while the run itself loads; what they look at does not change that fast.
const snapshotDelay = 500 * time.Millisecond

// snapshotOnce looks at the environment of a run when it is first seen alive, or over and started by this instance (it may have been that
// short). Once over all agents that come by.
func (a *agent) snapshotOnce(ctx context.Context, dir runDir, t runTell) {
	a.mu.Lock()
	r := a.record(t.UID)
	look := !r.snapped && (t.Truth == tellAlive || t.Truth == tellExiting || t.Truth == tellEnded && r.used)
	r.snapped = r.snapped || look
	a.mu.Unlock()
	if !look {
		return
	}
	if _, err := os.Stat(dir.file(snapshotFile)); err == nil {
		return
	}
	a.work.Go(func() {
		if !sleep(ctx, snapshotDelay) {
			return
		}
		a.looking.Lock()
		defer a.looking.Unlock()
		if err := a.takeSnapshot(ctx, dir); err != nil && ctx.Err() == nil {
			a.complain("environment of "+t.UID, err)
		}
	})
}

func (a *agent) takeSnapshot(ctx context.Context, dir runDir) error {
	spec, ok, err := dir.spec()
	if err != nil || !ok {
		return err
	}
	s := lookAtEnv(ctx, spec, a.host)
	if ctx.Err() != nil {
		return nil
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := a.up.addFact(factItem{Key: "env:" + spec.UID, Kind: "env", RunUID: spec.UID, AtMS: time.Now().UnixMilli(), Data: data}); err != nil {
		return err
	}
	return writeAtomic(dir.file(snapshotFile), append(data, '\n'))
}

// lookAtEnv runs git and the job's python, each at most snapshotLimit, in the job's folder with its PATH, without the marker of the run.
func lookAtEnv(ctx context.Context, spec runSpec, host agentHost) envSnapshot {
	s := envSnapshot{
		Argv: maskArgv(spec.Argv), WorkingDir: spec.WorkingDir, Hostname: host.name, OS: host.os, User: host.user, CPUs: runtime.NumCPU(), Slots: spec.Slots,
	}
	env := map[string]string{}
	for _, kv := range spec.Env {
		k, v, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(k, "GPUCTL_") {
			env[k] = v
			s.EnvNames = append(s.EnvNames, k)
		}
	}
	slices.Sort(s.EnvNames)
	q := snapshotAsk{env: env, dir: spec.WorkingDir, limit: snapshotLimit}
	s.Git = q.git(ctx)
	s.Python = q.python(ctx, spec)
	s.Packages = q.packages(s.Python)
	s.Driver = q.driver(ctx, "/proc/driver/nvidia/version")
	return s
}

// snapshotAsk runs small programs as the job would, with less priority than anything else here.
type snapshotAsk struct {
	env   map[string]string
	dir   string
	limit time.Duration // of one program
}

// run gives the trimmed output (stdout, else stderr) of a program.
func (q snapshotAsk) run(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, q.limit)
	defer cancel()
	c := exec.CommandContext(ctx, path, args...)
	c.Dir, c.Env, c.WaitDelay = q.dir, append(envList(q.env), "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0"), time.Second
	var out, errs strings.Builder
	c.Stdout, c.Stderr = &out, &errs
	err := c.Start()
	if err == nil {
		lowerPriority(c.Process.Pid)
		err = c.Wait()
	}
	if ctx.Err() == context.DeadlineExceeded {
		err = ctx.Err()
	}
	text := strings.TrimSpace(out.String())
	if text == "" {
		text = strings.TrimSpace(errs.String())
	}
	return text, err
}

// git looks at the work tree that holds the job's folder. The folder may belong to somebody else and its configuration is not run.
func (q snapshotAsk) git(ctx context.Context) *gitFacts {
	if !inWorkTree(q.dir) {
		return nil
	}
	path, refuse := findProgram([]string{"git"}, q.env["PATH"], q.dir)
	if refuse != nil {
		return &gitFacts{Error: "git is not installed"}
	}
	git := func(args ...string) (string, error) {
		return q.run(ctx, path, append([]string{"-c", "safe.directory=*", "-c", "core.fsmonitor=false"}, args...)...)
	}
	var f gitFacts
	commit, err := git("rev-parse", "--verify", "-q", "HEAD")
	if err != nil {
		f.Error = firstLine(commit, err)
		return &f
	}
	f.Commit = commit
	if branch, err := git("symbolic-ref", "--short", "-q", "HEAD"); err == nil {
		f.Branch = branch
	}
	status, err := git("status", "--porcelain", "--ignore-submodules=dirty") // not a git in each submodule: a moved one still counts
	if err != nil {
		f.Error = "status: " + firstLine(status, err)
		return &f
	}
	dirty := status != ""
	f.Dirty = &dirty
	return &f
}

// inWorkTree reports whether a folder or one above it has a .git.
func inWorkTree(dir string) bool {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		up := filepath.Dir(dir)
		if up == dir {
			return false
		}
		dir = up
	}
}

func firstLine(text string, err error) string {
	line, _, _ := strings.Cut(text, "\n")
	if line == "" {
		line = err.Error()
	}
	return line
}

var (
	secretName  = lazyRegexp(`(?i)(token|secret|passw(or)?d|passphrase|api[-_]?key|access[-_]?key|private[-_]?key|credentials?|authorization)$`)
	secretValue = lazyRegexp(`\b(hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|gpc_[a-z]+_\d+_[\w-]{20,})`)
)

// maskArgv hides what looks like a secret: the value of an option with a telling name, and known forms of tokens anywhere.
func maskArgv(argv []string) []string {
	const mask = "***"
	out := make([]string, len(argv))
	next := false
	for i, arg := range argv {
		masked := secretValue().ReplaceAllString(arg, mask)
		name, _, eq := strings.Cut(arg, "=")
		switch {
		case next && !strings.HasPrefix(arg, "-"):
			masked = mask
			next = false
		case eq && secretName().MatchString(name):
			masked = name + "=" + mask
			next = false
		default:
			next = strings.HasPrefix(arg, "-") && !eq && secretName().MatchString(name)
		}
		out[i] = masked
	}
	return out
}
