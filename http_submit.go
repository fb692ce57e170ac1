package main

// What a submit must satisfy, and what is filled in for it. Pure: no database, no clock. Each refusal has its own detail and hint.

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	nameMostRunes = 128
	tagsMost      = 32
	configDepth   = 100 // SQLite's JSON ends at 1,000
	gpusMost      = 64
	// argsMostBytes bounds argv and environment together, each with its final NUL. Linux takes no single string over 128 KiB (E2BIG).
	argsMostBytes = 128 << 10
	timeMostS     = 10 * 365 * 86400
)

// checkSubmit checks a request and fills its defaults in. Warnings are told to the submitter; the job is queued all the same.
func checkSubmit(q *jobRequest) (warnings []string, err error) {
	if err := checkArgv("argv", q.Argv); err != nil {
		return nil, err
	}
	if q.Argv[0] == "" {
		return nil, newProblem(codeInvalid, "name the program first", "argv[0] is empty")
	}
	if err := checkFolder("working_dir", q.WorkingDir, true); err != nil {
		return nil, err
	}
	q.WorkingDir = path.Clean(q.WorkingDir)
	env, warnings, err := checkEnv(q.Env)
	if err != nil {
		return nil, err
	}
	q.Env = env
	if err := checkCapture(q.Capture); err != nil {
		return nil, err
	}
	if err := checkArgsSize(q.Argv, q.wholeEnv()); err != nil {
		return nil, err
	}
	for _, check := range []func(*jobRequest) error{checkSubmitNames, checkSubmitPlace, checkSubmitTimes, checkSubmitExtras} {
		if err := check(q); err != nil {
			return nil, err
		}
	}
	return warnings, nil
}

func checkArgv(field string, argv []string) error {
	if len(argv) == 0 {
		return newProblem(codeInvalid, `send "`+field+`": ["python", "train.py"]`, "%s is empty: there is nothing to run", field)
	}
	for i, a := range argv {
		if strings.ContainsRune(a, 0) {
			return newProblem(codeInvalid, "no program can get it", "%s[%d] has a NUL byte", field, i)
		}
	}
	return nil
}

// checkFolder checks a path on the node; what lies there only the node can say.
func checkFolder(field, dir string, absolute bool) error {
	switch {
	case dir == "":
		return newProblem(codeInvalid, "send the folder to run in, as /home/me/project", "%s is empty", field)
	case strings.ContainsRune(dir, 0):
		return newProblem(codeInvalid, "correct the path", "%s has a NUL byte", field)
	case absolute && !strings.HasPrefix(dir, "/"):
		return newProblem(codeInvalid, "send an absolute path: it is looked up on the node", "%s %q is not absolute", field, dir)
	case len(dir) > 4096:
		return newProblem(codeInvalid, "send a shorter path", "%s is over 4,096 bytes", field)
	}
	return nil
}

// checkEnv checks an environment and leaves our own variables out: they are ours to set.
func checkEnv(env map[string]string) (kept map[string]string, warnings []string, err error) {
	kept = map[string]string{}
	var ours []string
	for name, value := range env {
		switch {
		case !validEnvName(name):
			return nil, nil, newProblem(codeInvalid, "letters, digits and _, not beginning with a digit", "%q is not the name of an environment variable", name)
		case strings.ContainsRune(value, 0):
			return nil, nil, newProblem(codeInvalid, "no program can get it", "the value of %s has a NUL byte", name)
		case strings.HasPrefix(name, "GPUCTL_"):
			ours = append(ours, name)
		default:
			kept[name] = value
		}
	}
	if len(ours) > 0 {
		slices.Sort(ours)
		warnings = []string{"left out of env, as gpuctl sets GPUCTL_ variables itself: " + strings.Join(ours, ", ")}
	}
	return kept, warnings, nil
}

func validEnvName(s string) bool {
	for i, c := range []byte(s) {
		if !(c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != ""
}

// checkCapture checks a captured environment; our own variables in it are left out without a word: nobody gave them.
func checkCapture(k *envCapture) error {
	if k == nil {
		return nil
	}
	if k.Machine == "" || len(k.Machine) > nameMostRunes {
		return newProblem(codeInvalid, "send machine_id of a node, or put the variables into env", "capture.machine is empty or too long")
	}
	env, _, err := checkEnv(k.Env)
	k.Env = env
	return err
}

// wholeEnv is what a node of the submitter's machine gets.
func (q *jobRequest) wholeEnv() map[string]string {
	if q.Capture == nil {
		return q.Env
	}
	all := maps.Clone(q.Capture.Env)
	maps.Copy(all, q.Env)
	return all
}

func checkArgsSize(argv []string, env map[string]string) error {
	size := 0
	for _, a := range argv {
		size += len(a) + 1
	}
	for k, v := range env {
		size += len(k) + len(v) + 2
	}
	if size > argsMostBytes {
		return newProblem(codeInvalid, "put it into a file and pass its path", "argv and env are %d bytes together, more than %d", size, argsMostBytes)
	}
	return nil
}

// checkSubmitNames checks whatever is a name, and makes the ones that were left out.
func checkSubmitNames(q *jobRequest) error {
	if q.Name == "" {
		q.Name = defaultJobName(q.Argv)
	}
	if q.Project == "" {
		q.Project = projectOf(q.WorkingDir)
	}
	if err := checkRefName("name", q.Name); err != nil {
		return err
	}
	for _, f := range []struct{ field, value string }{{"project", q.Project}, {"experiment", q.Experiment}, {"node", q.Node}, {"gpu_model", q.GPUModel}} {
		if f.value == "" {
			continue
		}
		if err := checkName(f.field, f.value); err != nil {
			return err
		}
	}
	if deeper(q.Config, configDepth) {
		return newProblem(codeInvalid, "keep it flat", "config is nested deeper than %d levels", configDepth)
	}
	if len(q.Tags) > tagsMost {
		return newProblem(codeInvalid, "give fewer", "%d tags, at most %d", len(q.Tags), tagsMost)
	}
	for i, tag := range q.Tags {
		if err := checkName(fmt.Sprintf("tags[%d]", i), tag); err != nil {
			return err
		}
		if strings.Contains(tag, ",") {
			return newProblem(codeInvalid, "give two tags", "tags[%d] %q has a comma", i, tag)
		}
	}
	slices.Sort(q.Tags)
	q.Tags = slices.Compact(q.Tags)
	if n := utf8.RuneCountInString(q.Reason); n > 2000 {
		return newProblem(codeInvalid, "say it shorter", "reason has %d characters, at most 2,000", n)
	}
	return nil
}

// checkName checks a name that people read and type.
func checkName(field, s string) error {
	switch {
	case s == "":
		return newProblem(codeInvalid, "give it a name", "%s is empty", field)
	case utf8.RuneCountInString(s) > nameMostRunes:
		return newProblem(codeInvalid, "choose a shorter one", "%s has %d characters, at most %d", field, utf8.RuneCountInString(s), nameMostRunes)
	case strings.TrimSpace(s) != s:
		return newProblem(codeInvalid, "leave the spaces out", "%s %q begins or ends with a space", field, s)
	case strings.IndexFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) >= 0:
		return newProblem(codeInvalid, "use visible characters", "%s %q has a character that is not printable", field, s)
	}
	return nil
}

// checkRefName checks a name that stands where an id may stand: it must not look like one, nor like a flag.
func checkRefName(field, s string) error {
	if err := checkName(field, s); err != nil {
		return err
	}
	switch {
	case parseRef(s).form != refName:
		return newProblem(codeInvalid, "put a letter before it, as in exp-"+s, "%s %q looks like an id", field, s)
	case s[0] == '-' || s == "." || s == "..":
		return newProblem(codeInvalid, "begin it with a letter", "%s %q cannot be typed as a name", field, s)
	}
	return nil
}

func checkSubmitPlace(q *jobRequest) error {
	if q.GPUs == nil {
		one := 1
		q.GPUs = &one
	}
	switch {
	case *q.GPUs < 0 || *q.GPUs > gpusMost:
		return newProblem(codeInvalid, "0 runs it on the cpu lane", "gpus is %d, allowed are 0 to %d", *q.GPUs, gpusMost)
	case q.GPUMemoryBytes < 0:
		return newProblem(codeInvalid, "bytes of one card, as 21474836480", "gpu_memory_bytes is negative")
	case q.Priority < -1000 || q.Priority > 1000:
		return newProblem(codeInvalid, "higher runs first; 0 is usual", "priority is %d, allowed are -1000 to 1000", q.Priority)
	case q.Venv != "" && q.Conda != "":
		return newProblem(codeInvalid, "give one of them", "venv and conda are given together")
	case q.Venv != "":
		return checkFolder("venv", q.Venv, true)
	case q.Conda != "":
		return checkName("conda", q.Conda)
	}
	return nil
}

func checkSubmitTimes(q *jobRequest) error {
	if q.MaxAttempts == 0 {
		q.MaxAttempts = 3
	}
	if q.GraceS == nil {
		grace := defaultGrace.Seconds()
		q.GraceS = &grace
	}
	switch {
	case q.MaxAttempts < 1 || q.MaxAttempts > 100:
		return newProblem(codeInvalid, "3 is usual", "max_attempts is %d, allowed are 1 to 100", q.MaxAttempts)
	case q.MaxTimeS < 0 || q.MaxTimeS > timeMostS:
		return newProblem(codeInvalid, "seconds; 0 or left out = no limit", "max_time_s is %g", q.MaxTimeS)
	case q.SignalBeforeS < 0:
		return newProblem(codeInvalid, "seconds before the time limit", "signal_before_s is %g", q.SignalBeforeS)
	case q.SignalBeforeS > 0 && q.MaxTimeS == 0:
		return newProblem(codeInvalid, "give max_time_s too", "signal_before_s needs a time limit")
	case q.SignalBeforeS > 0 && q.SignalBeforeS >= q.MaxTimeS:
		return newProblem(codeInvalid, "make it less than max_time_s", "signal_before_s %g is not less than max_time_s %g", q.SignalBeforeS, q.MaxTimeS)
	}
	return checkGrace(q.GraceS)
}

func checkGrace(s *float64) error {
	if s != nil && (*s < 0 || *s > 86400) {
		return newProblem(codeInvalid, "seconds between TERM and KILL; 5 is usual", "grace_s is %g, allowed are 0 to 86400", *s)
	}
	return nil
}

func checkSubmitExtras(q *jobRequest) error {
	for _, l := range []struct {
		field   string
		folders []string
	}{{"watch", q.Watch}, {"tb", q.TB}} {
		for i, dir := range l.folders {
			if err := checkFolder(fmt.Sprintf("%s[%d]", l.field, i), dir, false); err != nil {
				return err
			}
		}
	}
	if q.TotalSteps != nil && *q.TotalSteps < 1 {
		return newProblem(codeInvalid, "leave it out when it is not known", "total_steps is %d", *q.TotalSteps)
	}
	if q.EvalArgv != nil {
		if err := checkArgv("eval_argv", q.EvalArgv); err != nil {
			return err
		}
	}
	if p := q.PrimaryMetric; p != nil {
		if err := checkName("primary_metric.name", p.Name); err != nil {
			return err
		}
		if p.Goal != "min" && p.Goal != "max" {
			return newProblem(codeInvalid, `send "goal": "min" or "max"`, "primary_metric.goal is %q", p.Goal)
		}
	}
	return nil
}

// launchers are programs that start the script which gives a job its name.
var launchers = []string{
	"accelerate", "bash", "conda", "deepspeed", "env", "ipython", "mpirun", "nice", "node", "nohup", "perl", "pipenv", "poetry",
	"pypy", "python", "Rscript", "ruby", "sh", "srun", "stdbuf", "time", "torchrun", "uv", "zsh",
}

var scriptEndings = []string{".py", ".sh", ".ipynb", ".R", ".pl", ".rb", ".js", ".jl", ".lua"}

// defaultJobName names a job after its script: "python train.py" -> train, "python -m pkg.mod" -> pkg.mod, "./run.sh" -> run.
func defaultJobName(argv []string) string {
	program := path.Base(argv[0])
	name := scriptStem(program)
	if slices.Contains(launchers, strings.TrimRight(program, "0123456789.")) {
		name = scriptOf(argv[1:], program)
	}
	name = strings.TrimSpace(strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, name))
	if r := []rune(name); len(r) > nameMostRunes-4 {
		name = strings.TrimSpace(string(r[:nameMostRunes-4]))
	}
	if checkRefName("name", name) != nil {
		name = "job-" + name
	}
	return name
}

// scriptOf finds the script or module in the arguments of a launcher; without one it is the launcher itself.
func scriptOf(args []string, launcher string) string {
	for i, a := range args {
		switch {
		case a == "-c" || a == "-lc":
			return launcher
		case a == "-m" && i+1 < len(args):
			return args[i+1]
		case !strings.HasPrefix(a, "-") && scriptStem(a) != a:
			return scriptStem(path.Base(a))
		}
	}
	return launcher
}

// scriptStem takes the ending of a script off.
func scriptStem(s string) string {
	for _, end := range scriptEndings {
		if stem, ok := strings.CutSuffix(s, end); ok && path.Base(stem) != "" && stem != "" {
			return stem
		}
	}
	return s
}

// projectOf names the project after the folder.
func projectOf(dir string) string {
	name := path.Base(dir)
	if checkName("project", name) != nil || name == "/" {
		return defaultProject
	}
	return name
}

// deeper reports whether decoded JSON has more than so many levels of objects and lists.
func deeper(v any, levels int) bool {
	below := func(v any) bool { return deeper(v, levels-1) }
	switch v := v.(type) {
	case map[string]any:
		return levels == 0 || slices.ContainsFunc(slices.Collect(maps.Values(v)), below)
	case []any:
		return levels == 0 || slices.ContainsFunc(v, below)
	}
	return false
}
