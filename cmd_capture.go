package main

// The environment that a submit takes along: what makes `python` the same python as in the submitter's shell. Pure but for env files.

import (
	"bufio"
	"os"
	"slices"
	"strings"
)

// capturedNames go along when the job will run on the submitter's own machine; capturedPrefixes likewise.
var (
	capturedNames    = []string{"PATH", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH"}
	capturedPrefixes = []string{"CONDA_", "PYENV_"}
)

// ownPrefix marks variables that belong to the platform: tokens and addresses of the CLI, names that a job gets from the agent. None of
// them is passed on.
const ownPrefix = "GPUCTL_"

// captureEnv picks what goes along from an environment. Of a name that stands in it twice the last counts, as in a shell.
func captureEnv(environ []string) map[string]string {
	env := map[string]string{}
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if ok && captured(name) {
			env[name] = value
		}
	}
	return env
}

func captured(name string) bool {
	return slices.Contains(capturedNames, name) || slices.ContainsFunc(capturedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// otherPython drops what would contradict a venv or conda environment that the user named: the traces of the one that is active here.
func otherPython(env map[string]string) {
	for name := range env {
		if name == "VIRTUAL_ENV" || strings.HasPrefix(name, "CONDA_") {
			delete(env, name)
		}
	}
}

// addEnv takes the -e arguments: NAME=value, or NAME for the value that it has here. It gives the names that it left out because they
// belong to the platform.
func addEnv(env map[string]string, args, environ []string) (left []string, err error) {
	for _, a := range args {
		name, value, given := strings.Cut(a, "=")
		if !envName(name) {
			return nil, newProblem(codeUsage, "-e NAME=value, or -e NAME to pass on the value it has here", "%q does not name a variable", a)
		}
		if strings.HasPrefix(name, ownPrefix) {
			left = append(left, name)
			continue
		}
		if !given {
			i := slices.IndexFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
			if i < 0 {
				return nil, newProblem(codeUsage, name+"=value", "%s is not set here", name)
			}
			value = environ[i][len(name)+1:]
		}
		env[name] = value
	}
	return left, nil
}

// envName reports whether a name can stand in an environment.
func envName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '=' || r == 0x7f })
}

// readEnvFile reads lines NAME=value or NAME, as -e takes them. Empty lines and lines that begin with # are passed over; quotes are part
// of the value, as docker reads such files.
func readEnvFile(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, newProblem(codeUsage, "check --env-file", "%v", err)
	}
	defer f.Close()
	var lines []string
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSuffix(strings.TrimLeft(in.Text(), " \t"), "\r")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if name, _, _ := strings.Cut(line, "="); !envName(name) { // the line itself may be a secret
			return nil, newProblem(codeUsage, "a line is NAME=value, without export", "%s line %d: %q does not name a variable", path, n, clipText(name, 40))
		}
		lines = append(lines, line)
	}
	if err := in.Err(); err != nil {
		return nil, newProblem(codeUsage, "check --env-file", "read %s: %v", path, err)
	}
	return lines, nil
}
