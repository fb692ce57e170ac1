package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestBuildJobEnv(t *testing.T) {
	tmp := t.TempDir()
	venv, conda := filepath.Join(tmp, "venv"), filepath.Join(tmp, "miniconda3", "envs", "train")
	for _, d := range []string{venv, conda, filepath.Join(tmp, "miniconda3")} {
		if err := os.MkdirAll(filepath.Join(d, "bin"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	agentEnv := []string{
		"HOME=" + tmp, "USER=u", "LANG=C.UTF-8", "LC_TIME=de_DE", "TZ=UTC", "PATH=/agent/bin", "SECRET=1", "PYTHONPATH=/agent", "GPUCTL_HOME=/x",
		"GPUCTL_TOKEN=t", "CUDA_VISIBLE_DEVICES=3", "VIRTUAL_ENV=/agent/venv",
	}
	cards := []wireDevice{{Idx: 0, UUID: "GPU-a"}, {Idx: 1, UUID: "GPU-b"}, {Idx: 2, UUID: "GPU-f", Fake: true}}
	gpu := func(uuids ...string) (out []slotRef) {
		for _, u := range uuids {
			out = append(out, slotRef{Lane: laneGPU, Idx: 9, UUID: u})
		}
		return out
	}
	cases := []struct {
		name     string
		payload  startPayload
		defaults map[string]string
		byUUID   bool
		want     map[string]string // "-" = not set
		why      string
	}{
		{"minimum", startPayload{}, nil, false, map[string]string{
			"HOME": tmp, "USER": "u", "LOGNAME": "hostuser", "LANG": "C.UTF-8", "LC_TIME": "de_DE", "TZ": "UTC", "PATH": "/agent/bin", "SECRET": "-", "PYTHONPATH": "-",
			"GPUCTL_HOME": "-", "GPUCTL_TOKEN": "-", "CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONUNBUFFERED": "1", "VIRTUAL_ENV": "-",
			"GPUCTL_RUN_UID": "u1", "GPUCTL_JOB_ID": "12", "GPUCTL_SDK_FILE": "/sdk", "GPUCTL_RUN": "-",
		}, ""},
		{
			"layers",
			startPayload{Env: map[string]string{"PATH": "/mine", "A": "captured", "PYTHONUNBUFFERED": "0", "GPUCTL_EVIL": "x"}},
			map[string]string{"A": "default", "B": "default", "GPUCTL_X": "y"},
			false,
			map[string]string{"PATH": "/mine", "A": "captured", "B": "default", "PYTHONUNBUFFERED": "0", "GPUCTL_EVIL": "-", "GPUCTL_X": "-"},
			"",
		},
		{"ours win", startPayload{Env: map[string]string{"CUDA_VISIBLE_DEVICES": "0,1,2,3", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, Slots: gpu("GPU-b")}, nil, false, map[string]string{
			"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
		}, ""},
		{"cpu lane hides the cards", startPayload{Slots: []slotRef{{Lane: laneCPU, Idx: 1}}}, nil, false, map[string]string{"CUDA_VISIBLE_DEVICES": ""}, ""},
		{"two cards", startPayload{Slots: gpu("GPU-b", "GPU-a")}, nil, false, map[string]string{"CUDA_VISIBLE_DEVICES": "1,0"}, ""},
		{"by uuid", startPayload{Slots: gpu("GPU-b", "GPU-a")}, nil, true, map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"}, ""},
		{"a made-up card goes by index", startPayload{Slots: gpu("GPU-f")}, nil, true, map[string]string{"CUDA_VISIBLE_DEVICES": "2"}, ""},
		{"a card that is gone", startPayload{Slots: gpu("GPU-z")}, nil, false, nil, refusePolicy},
		{"venv", startPayload{Venv: venv, Env: map[string]string{"PYTHONHOME": "/p"}}, nil, false, map[string]string{
			"PATH": venv + "/bin:/agent/bin", "VIRTUAL_ENV": venv, "PYTHONHOME": "-",
		}, ""},
		{"relative venv", startPayload{Venv: "venv", WorkingDir: tmp}, nil, false, map[string]string{"VIRTUAL_ENV": venv}, ""},
		{"no venv", startPayload{Venv: tmp}, nil, false, nil, refuseNoExec},
		{"conda", startPayload{Conda: "train", Env: map[string]string{"PATH": "/mine"}}, nil, false, map[string]string{
			"PATH": conda + "/bin:/mine", "CONDA_PREFIX": conda, "CONDA_DEFAULT_ENV": "train",
		}, ""},
		{"conda base", startPayload{Conda: "base"}, nil, false, map[string]string{"CONDA_PREFIX": tmp + "/miniconda3"}, ""},
		{"conda by path", startPayload{Conda: conda}, nil, false, map[string]string{"CONDA_PREFIX": conda}, ""},
		{"no conda", startPayload{Conda: "none"}, nil, false, nil, refuseNoExec},
		{"both", startPayload{Conda: "train", Venv: venv}, nil, false, nil, refusePolicy},
		{"a name that is none", startPayload{Env: map[string]string{"A=B": "x"}}, nil, false, nil, refusePolicy},
		{"a value with NUL", startPayload{Env: map[string]string{"A": "x\x00y"}}, nil, false, nil, refusePolicy},
	}
	for _, c := range cases {
		c.payload.RunUID, c.payload.JobID = "u1", 12
		got, refuse := buildJobEnv(jobEnvInput{
			agent: agentEnv, host: agentHost{user: "hostuser", home: "/hosthome"}, defaults: c.defaults, payload: c.payload, devices: cards, byUUID: c.byUUID, sdkFile: "/sdk",
		})
		if c.why != "" {
			if refuse == nil || refuse.Why != c.why || refuse.Detail == "" {
				t.Errorf("%s: refused %+v, want %s", c.name, refuse, c.why)
			}
			continue
		}
		if refuse != nil {
			t.Errorf("%s: refused %+v", c.name, refuse)
			continue
		}
		for k, want := range c.want {
			if v, set := got[k]; want == "-" && set || want != "-" && (!set || v != want) {
				t.Errorf("%s: %s is %q (set %v), want %q", c.name, k, v, set, want)
			}
		}
	}
	// Started by systemd the agent has next to nothing.
	got, refuse := buildJobEnv(jobEnvInput{host: agentHost{user: "u", home: "/h"}})
	if refuse != nil || got["PATH"] != jobPathDefault || got["HOME"] != "/h" || got["LOGNAME"] != "u" {
		t.Errorf("from nothing: %v, %v", got, refuse)
	}
	if list := envList(got); !slices.IsSorted(list) || len(list) != len(got) {
		t.Errorf("list %q of %v", list, slices.Sorted(maps.Keys(got)))
	}
}

func TestFindProgram(t *testing.T) {
	tmp := t.TempDir()
	put := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(tmp, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	good := put("bin/good", "#!/bin/sh\n", 0o700)
	put("bin/plain", "x", 0o600)
	later := put("later/plain", "x", 0o700)
	here := put("here", "x", 0o700)
	put("bin/moved", "#!/old/venv/bin/python3 -s\n", 0o700)
	path := filepath.Join(tmp, "bin") + ":" + filepath.Join(tmp, "later") + "::/nowhere"
	cases := []struct{ argv0, want, says string }{
		{"good", good, ""},
		{"plain", later, ""},              // the first one is not executable: execvp goes on
		{"here", here, ""},                // an empty entry is the working directory
		{"./bin/good", good, ""},          // a path is taken from the working directory
		{"bin/good", good, ""},            //
		{good, good, ""},                  //
		{"none", "", "command not found"}, //
		{"./bin/plain", "", "not executable"},
		{"./bin", "", "is a folder"},
		{"./bin/good/x", "", "does not exist"},
		{"moved", "", "interpreter that is missing: /old/venv/bin/python3"},
		{"/dev/null", "", "is not a file"},
		{"", "", "empty"},
		{"a\x00b", "", "NUL"},
	}
	for _, c := range cases {
		got, refuse := findProgram([]string{c.argv0, "arg"}, path, tmp)
		if got != c.want || (refuse == nil) != (c.says == "") || refuse != nil && (refuse.Why != refuseNoExec || !strings.Contains(refuse.Detail, c.says)) {
			t.Errorf("%q: %q, %+v; want %q, %q", c.argv0, got, refuse, c.want, c.says)
		}
	}
	if _, refuse := findProgram(nil, path, tmp); refuse == nil {
		t.Error("no argv was taken")
	}
}

func TestCheckWorkingDir(t *testing.T) {
	tmp := t.TempDir()
	file := filepath.Join(tmp, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, says := range map[string]string{
		tmp: "", "": "not an absolute", "x": "not an absolute", tmp + "/none": "does not exist", file: "not a folder", file + "/x": "not a directory",
	} {
		r := checkWorkingDir(dir)
		if (r == nil) != (says == "") || r != nil && (r.Why != refuseNoDir || !strings.Contains(r.Detail, says)) {
			t.Errorf("%q: %+v, want %q", dir, r, says)
		}
	}
}

func TestLoadFakeGPUs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpus.json")
	for text, want := range map[string]int{
		`[{"uuid":"GPU-a","model":"M","memory_bytes":5},{"uuid":"GPU-b"}]`: 2, `[]`: 0,
		`[{"uuid":""}]`: -1, `[{"uuid":"a"},{"uuid":"a"}]`: -1, `[{"uuid":"a","memory":5}]`: -1, `{}`: -1, ``: -1, `[{"uuid":"a","memory_bytes":-1}]`: -1,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := loadFakeGPUs(path)
		if (err == nil) != (want >= 0) || err == nil && len(got) != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if want == 2 && (got[1].Idx != 1 || got[0].MemoryBytes != 5 || !got[0].Fake || !got[0].Healthy) {
			t.Errorf("cards %+v", got)
		}
	}
}

func TestMaskArgv(t *testing.T) {
	for in, want := range map[string]string{
		"python train.py --lr 0.1":           "python train.py --lr 0.1",
		"x --api-key abc --lr 1":             "x --api-key *** --lr 1",
		"x --api-key=abc":                    "x --api-key=***",
		"x WANDB_API_KEY=abc y":              "x WANDB_API_KEY=*** y",
		"x --hub hf_abcdefghijklmnopqrst z":  "x --hub *** z",
		"x --password --lr 1":                "x --password --lr 1",
		"x --tokenizer gpt2":                 "x --tokenizer gpt2",
		"x --max-tokens 512":                 "x --max-tokens 512",
		"x https://u:sk-abcdefghijklmnop@h/": "x https://u:***@h/",
	} {
		if got := strings.Join(maskArgv(strings.Split(in, " ")), " "); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
