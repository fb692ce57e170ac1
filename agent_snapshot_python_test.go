package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPackageOf(t *testing.T) {
	for entry, want := range map[string]string{
		"torch-2.9.0+cu128.dist-info": "torch 2.9.0+cu128", "PyYAML-6.0-py3.11.egg-info": "pyyaml 6.0", "pytorch_lightning-2.6.6.dist-info": "pytorch-lightning 2.6.6",
		"ruamel.yaml-0.18.dist-info": "ruamel-yaml 0.18", "my-old-name-1.0.dist-info": "my-old-name 1.0", "develop.egg-info": "develop ",
		"torch": " ", "x.dist-info.bak": " ", ".dist-info": " ",
	} {
		name, version := packageOf(entry)
		if got := name + " " + version; got != want {
			t.Errorf("%s: %q, want %q", entry, got, want)
		}
	}
}

func TestDriverVersion(t *testing.T) {
	dir := t.TempDir()
	q := snapshotAsk{env: map[string]string{"PATH": dir}, dir: dir, limit: 5 * time.Second}
	file := filepath.Join(dir, "version")
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\nGCC version:  gcc 12.3.0\n": "550.54.14",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder@U16)\n":              "570.86.15",
		"": "", "NVRM version: no number\n": "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := q.driver(t.Context(), file)
		if (got == nil) != (want == "") || got != nil && *got != want {
			t.Errorf("%q: %v, want %q", text, got, want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\necho 535.129.03; echo 535.129.03\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := q.driver(t.Context(), dir+"/none"); got == nil || *got != "535.129.03" {
		t.Errorf("by nvidia-smi: %v", got)
	}
}

// A real virtual environment with made-up packages: what the job's PATH leads to is what is looked at.
func TestSnapshotOfAVirtualEnvironment(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	tmp := t.TempDir()
	venv := filepath.Join(tmp, "venv")
	if out, err := exec.Command(python, "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	site, err := filepath.Glob(filepath.Join(venv, "lib", "python3*", "site-packages"))
	if err != nil || len(site) != 1 {
		t.Fatalf("%q, %v", site, err)
	}
	for _, name := range []string{
		"torch-2.9.0+cu128.dist-info", "torch", "nvidia_cudnn_cu12-9.10.2.21.dist-info", "nvidia_nccl_cu12-2.27.3.dist-info", "tensorboardX-2.6.dist-info", "other-1.dist-info",
	} {
		if err := os.Mkdir(filepath.Join(site[0], name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	version := "from typing import Optional\n__version__ = '2.9.0+cu128'\ndebug = False\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
	if err := os.WriteFile(filepath.Join(site[0], "torch", "version.py"), []byte(version), 0o600); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(tmp, "torchrun")
	if err := os.WriteFile(script, []byte("#!"+venv+"/bin/python\nraise SystemExit\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]runSpec{
		"by PATH":      {Argv: []string{"bash", "train.sh"}, Path: "/bin/bash", Env: []string{"PATH=" + venv + "/bin:/usr/bin:/bin"}},
		"named":        {Argv: []string{venv + "/bin/python3", "x.py"}, Path: venv + "/bin/python3", Env: []string{"PATH=/usr/bin:/bin"}},
		"by a script":  {Argv: []string{"torchrun", "x.py"}, Path: script, Env: []string{"PATH=/usr/bin:/bin"}},
		"and env vars": {Argv: []string{"python", "x.py"}, Path: venv + "/bin/python", Env: []string{"PATH=/usr/bin:/bin", "VIRTUAL_ENV=" + venv}},
	} {
		spec.WorkingDir = tmp
		s := lookAtEnv(t.Context(), spec, agentHost{})
		p := s.Packages
		if s.Python == nil || s.Python.Error != "" || !strings.HasPrefix(s.Python.Version, "3.") || !strings.HasPrefix(s.Python.Path, venv) {
			t.Errorf("%s: python %+v", name, s.Python)
		}
		if p == nil || p.VirtualEnv != venv || p.Count != 5 || !maps.Equal(p.Versions, map[string]string{"torch": "2.9.0+cu128", "tensorboardx": "2.6"}) {
			t.Fatalf("%s: packages %+v", name, p)
		}
		if *p.Torch != (torchFacts{CUDA: "12.8", CuDNN: "9.10.2.21", NCCL: "2.27.3"}) {
			t.Errorf("%s: torch %+v", name, p.Torch)
		}
		if b, err := json.Marshal(s); err != nil || !strings.Contains(string(b), `"gpu_driver":`) || strings.Contains(string(b), "search") {
			t.Errorf("%s: %s, %v", name, b, err)
		}
	}
	entries, err := filepath.Glob(filepath.Join(tmp, "*"))
	if err != nil || len(entries) != 2 {
		t.Errorf("the look left something: %q, %v", entries, err)
	}
}

// What is asked stands back behind everything else.
func TestSnapshotHasLowPriority(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc")
	}
	tmp := t.TempDir()
	sh := filepath.Join(tmp, "ask")
	const nice = `"$(cut -d ' ' -f 19 /proc/$$/stat)"` // it is lowered when the program has already begun
	if err := os.WriteFile(sh, []byte("#!/bin/sh\nn=0\nuntil [ "+nice+" = 10 ] || [ $n = 300 ]; do n=$((n+1)); done\necho "+nice+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	q := snapshotAsk{env: map[string]string{"PATH": os.Getenv("PATH")}, dir: tmp, limit: 20 * time.Second}
	if out, err := q.run(t.Context(), sh); err != nil || out != "10" {
		t.Errorf("nice %q, %v", out, err)
	}
}
