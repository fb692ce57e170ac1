package main

// What a run ran in, for people: python and its packages, code, driver, machine, out of the environment snapshot. What was looked for and not
// found is said; what could not be found out is said too.

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// envShown is the part of an environment snapshot that is shown.
type envShown struct {
	OS     string `json:"os"`
	CPUs   int    `json:"cpus"`
	Python *struct {
		Path    string `json:"path"`
		Version string `json:"version"`
		Error   string `json:"error"`
	} `json:"python"`
	Git *struct {
		Commit string `json:"commit"`
		Branch string `json:"branch"`
		Dirty  *bool  `json:"dirty"`
		Error  string `json:"error"`
	} `json:"git"`
	Packages *struct {
		VirtualEnv string            `json:"virtual_env"`
		Conda      string            `json:"conda"`
		Count      int               `json:"count"`
		Versions   map[string]string `json:"versions"`
		Torch      *struct {
			CUDA string `json:"cuda"`
			HIP  string `json:"hip"`
		} `json:"torch"`
		Error string `json:"error"`
	} `json:"packages"`
	Driver *string `json:"gpu_driver"`
}

// envFirst are the packages that people look for first; the others follow by name.
const envFirst = " torch jax tensorflow transformers lightning numpy "

// envPackages is how many packages are named.
const envPackages = 8

// envFields describes the environment of a run.
func envFields(r runView) []field {
	var v envShown
	switch {
	case len(r.EnvSnapshot) == 0 || string(r.EnvSnapshot) == "null":
		text := "not known"
		if !runOver(r.State) || !r.Drained {
			text += " yet"
		}
		return []field{{"environment", text}}
	case json.Unmarshal(r.EnvSnapshot, &v) != nil:
		return []field{{"environment", "not known: the snapshot cannot be read"}}
	}
	machine := v.OS
	if v.CPUs > 0 {
		machine = strings.TrimPrefix(fmt.Sprintf("%s, %d CPUs", v.OS, v.CPUs), ", ")
	}
	driver := "none found"
	if v.Driver != nil {
		driver = *v.Driver
	}
	return []field{{"python", v.pythonText()}, {"packages", v.packagesText()}, {"git", v.gitText()}, {"gpu driver", driver}, {"machine", machine}}
}

func (v envShown) pythonText() string {
	if v.Python == nil {
		return "none found"
	}
	text := v.Python.Version
	if text == "" {
		text = "version not known"
		if v.Python.Error != "" {
			text += ": " + v.Python.Error
		}
	}
	switch p := v.Packages; {
	case p != nil && p.VirtualEnv != "":
		return text + ", venv " + p.VirtualEnv
	case p != nil && p.Conda != "":
		return text + ", conda " + p.Conda
	case v.Python.Path != "":
		return text + ", " + v.Python.Path
	}
	return text
}

// packagesText names the most telling packages: "torch 2.5.1 (CUDA 12.4), numpy 2.1.0; 214 installed".
func (v envShown) packagesText() string {
	p := v.Packages
	switch {
	case v.Python == nil:
		return ""
	case p == nil || p.Error == "" && p.Count == 0 && len(p.Versions) == 0:
		return "not known"
	case p.Error != "" && len(p.Versions) == 0:
		return "not known: " + p.Error
	}
	names := slices.Sorted(maps.Keys(p.Versions))
	slices.SortStableFunc(names, func(a, b string) int { return envRank(a) - envRank(b) })
	var parts []string
	for _, name := range names[:min(len(names), envPackages)] {
		part := name + " " + p.Versions[name]
		if t := p.Torch; name == "torch" && t != nil {
			switch {
			case t.CUDA != "":
				part += " (CUDA " + t.CUDA + ")"
			case t.HIP != "":
				part += " (HIP " + t.HIP + ")"
			}
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return fmt.Sprintf("%d installed", p.Count)
	}
	text := strings.Join(parts, ", ")
	if p.Count > len(parts) {
		text += fmt.Sprintf("; %d installed", p.Count)
	}
	return text
}

func envRank(name string) int {
	if i := strings.Index(envFirst, " "+name+" "); i >= 0 {
		return i - len(envFirst)
	}
	return 0
}

func (v envShown) gitText() string {
	switch {
	case v.Git == nil:
		return "no work tree"
	case v.Git.Commit == "" && v.Git.Error != "":
		return "not known: " + v.Git.Error
	case v.Git.Commit == "":
		return "no commit yet"
	}
	text := v.Git.Commit[:min(len(v.Git.Commit), 12)]
	if v.Git.Branch != "" {
		text += " on " + v.Git.Branch
	}
	switch {
	case v.Git.Dirty == nil:
		text += ", whether changed is not known"
	case *v.Git.Dirty:
		text += " with uncommitted changes"
	}
	return text
}
