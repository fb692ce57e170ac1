package main

// The environment of a job, in layers: a minimum of the agent's own, default_env of agent.yaml, what was captured or given at submit, the
// named venv or conda environment, and last what only we may say. GPUCTL_* of any other origin is dropped; the supervisor adds what the grant
// says. Looks at folders for conda, else pure.

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// jobEnvInput is everything that an environment is made of.
type jobEnvInput struct {
	agent    []string // environment of the agent, K=V
	host     agentHost
	defaults map[string]string // default_env
	payload  startPayload
	devices  []wireDevice
	byUUID   bool
	sdkFile  string
}

// sdkFile is where the SDK inside of a job writes, in the run's folder.
const sdkFile = "sdk.jsonl"

// jobEnvKept are the agent's own variables that a job inherits when nobody says otherwise; LC_* too.
var jobEnvKept = [...]string{"HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "PATH"}

const jobPathDefault = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// buildJobEnv makes the environment, or says why this node cannot.
func buildJobEnv(in jobEnvInput) (map[string]string, *claimRefuse) {
	own := map[string]string{}
	for _, kv := range in.agent {
		if k, v, ok := strings.Cut(kv, "="); ok {
			own[k] = v
		}
	}
	env := map[string]string{"PATH": jobPathDefault}
	for k, v := range map[string]string{"HOME": in.host.home, "USER": in.host.user, "LOGNAME": in.host.user} { // started by systemd they are unset
		if v != "" {
			env[k] = v
		}
	}
	for k, v := range own {
		if slices.Contains(jobEnvKept[:], k) && v != "" || strings.HasPrefix(k, "LC_") {
			env[k] = v
		}
	}
	maps.Copy(env, in.defaults)
	maps.Copy(env, in.payload.Env)
	for k, v := range env {
		switch {
		case strings.HasPrefix(k, "GPUCTL_"):
			delete(env, k)
		case k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00"):
			return nil, &claimRefuse{Why: refusePolicy, Detail: fmt.Sprintf("%.80q cannot be a variable of an environment", k)}
		}
	}
	p := in.payload
	switch {
	case p.Venv != "" && p.Conda != "":
		return nil, &claimRefuse{Why: refusePolicy, Detail: "a venv and a conda environment cannot both be used"}
	case p.Venv != "":
		if r := useVenv(env, p.Venv, p.WorkingDir); r != nil {
			return nil, r
		}
	case p.Conda != "":
		if r := useConda(env, own, p.Conda); r != nil {
			return nil, r
		}
	}
	visible, r := visibleDevices(p.Slots, in.devices, in.byUUID)
	if r != nil {
		return nil, r
	}
	env["CUDA_VISIBLE_DEVICES"] = visible
	env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
	if _, set := env["PYTHONUNBUFFERED"]; !set {
		env["PYTHONUNBUFFERED"] = "1"
	}
	env["GPUCTL_RUN_UID"] = p.RunUID
	env["GPUCTL_JOB_ID"] = strconv.FormatInt(p.JobID, 10)
	env["GPUCTL_SDK_FILE"] = in.sdkFile
	return env, nil
}

// envList is an environment as exec takes it, sorted.
func envList(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

// visibleDevices is CUDA_VISIBLE_DEVICES for the slots: indexes of this boot by the cards' UUIDs, or the UUIDs themselves. Empty for the
// cpu lane: the job sees no card. A made-up card has no UUID that CUDA would know, so it always goes by index.
func visibleDevices(slots []slotRef, devices []wireDevice, byUUID bool) (string, *claimRefuse) {
	var out []string
	for _, s := range slots {
		if s.Lane != laneGPU {
			continue
		}
		i := slices.IndexFunc(devices, func(d wireDevice) bool { return d.UUID == s.UUID })
		switch {
		case i < 0:
			return "", &claimRefuse{Why: refusePolicy, Detail: fmt.Sprintf("card %.80q is not in this machine any more", s.UUID)}
		case byUUID && !devices[i].Fake:
			out = append(out, s.UUID)
		default:
			out = append(out, strconv.Itoa(devices[i].Idx))
		}
	}
	return strings.Join(out, ","), nil
}

// useVenv puts a virtual environment first, as its activate script does.
func useVenv(env map[string]string, dir, workingDir string) *claimRefuse {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(workingDir, dir)
	}
	bin := filepath.Join(dir, "bin")
	if !isFolder(bin) {
		return &claimRefuse{Why: refuseNoExec, Detail: fmt.Sprintf("%s is no virtual environment: it has no bin folder", dir)}
	}
	env["VIRTUAL_ENV"] = dir
	env["PATH"] = bin + ":" + env["PATH"]
	delete(env, "PYTHONHOME")
	return nil
}

// useConda puts a conda environment first. Its activate.d scripts are not run: that would need a shell.
func useConda(env, own map[string]string, name string) *claimRefuse {
	prefix, tried := findConda(env, own, name)
	if prefix == "" {
		return &claimRefuse{Why: refuseNoExec, Detail: fmt.Sprintf("no conda environment %q: looked for %s", name, strings.Join(tried, ", "))}
	}
	env["CONDA_PREFIX"] = prefix
	env["CONDA_DEFAULT_ENV"] = name
	env["PATH"] = filepath.Join(prefix, "bin") + ":" + env["PATH"]
	delete(env, "PYTHONHOME")
	delete(env, "VIRTUAL_ENV")
	return nil
}

// condaRoots are where installers put conda, below the home folder and below /opt.
var condaRoots = [...]string{"miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", "miniconda", "anaconda", "conda"}

// findConda looks for the prefix of an environment by name, or takes a path. tried is what was looked at, for the refusal.
func findConda(env, own map[string]string, name string) (prefix string, tried []string) {
	if strings.Contains(name, "/") {
		tried = []string{name}
		if filepath.IsAbs(name) && isFolder(filepath.Join(name, "bin")) {
			prefix = name
		}
		return prefix, tried
	}
	var roots []string
	for _, m := range []map[string]string{env, own} {
		if exe := m["CONDA_EXE"]; exe != "" {
			roots = append(roots, filepath.Dir(filepath.Dir(exe)))
		}
		if r := m["MAMBA_ROOT_PREFIX"]; r != "" {
			roots = append(roots, r)
		}
	}
	home := env["HOME"]
	for _, r := range condaRoots {
		if home != "" {
			roots = append(roots, filepath.Join(home, r))
		}
		roots = append(roots, filepath.Join("/opt", r))
	}
	if home != "" && name != "base" {
		roots = append(roots, filepath.Join(home, ".conda")) // environments made without write access to the root
	}
	for _, root := range roots {
		p := filepath.Join(root, "envs", name)
		if name == "base" {
			p = root
		}
		if slices.Contains(tried, p) {
			continue
		}
		tried = append(tried, p)
		if isFolder(filepath.Join(p, "bin")) {
			return p, tried
		}
	}
	return "", tried
}

func isFolder(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
