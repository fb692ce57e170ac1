package main

// The python of a run and what is installed for it: which interpreter the job's own PATH leads to, asked once for its version and search
// path; the packages then are the names of the folders there. pip is not run and nothing is imported: with 400 packages that takes 10 ms
// where importlib.metadata takes 300.

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// packageFacts says where the program's libraries come from and which ones they are.
type packageFacts struct {
	VirtualEnv string            `json:"virtual_env,omitempty"`
	Conda      string            `json:"conda,omitempty"`
	Count      int               `json:"count"`    // installed ones
	Versions   map[string]string `json:"versions"` // of those in snapshotPackages
	Torch      *torchFacts       `json:"torch,omitempty"`
	Error      string            `json:"error,omitempty"`
}

// torchFacts says what torch was built for; "" = not known or not.
type torchFacts struct {
	CUDA  string `json:"cuda,omitempty"`
	HIP   string `json:"hip,omitempty"`
	CuDNN string `json:"cudnn,omitempty"`
	NCCL  string `json:"nccl,omitempty"`
}

type pythonFacts struct {
	Path       string `json:"path"`                 // as it was found
	Executable string `json:"executable,omitempty"` // as it names itself, where that is another one: behind a pyenv shim
	Version    string `json:"version"`              // "3.12.4"
	Error      string `json:"error,omitempty"`

	search []string // folders it imports from
	prefix string   // of the virtual environment that it belongs to, "" = none
}

// snapshotPackages are the packages whose version tells most about what a training does, in the normal form of their names.
var snapshotPackages = [...]string{
	"accelerate", "apex", "bitsandbytes", "catboost", "datasets", "deepspeed", "diffusers", "einops", "fairscale", "flash-attn", "flax", "fsspec", "gymnasium",
	"huggingface-hub", "jax", "jaxlib", "keras", "lightgbm", "lightning", "megatron-core", "ml-dtypes", "mlflow", "numpy", "onnx", "onnxruntime", "optax",
	"orbax-checkpoint", "pandas", "peft", "protobuf", "pytorch-lightning", "ray", "safetensors", "scikit-learn", "scipy", "sentencepiece", "stable-baselines3",
	"tensorboard", "tensorboardx", "tensorflow", "tensorflow-cpu", "tiktoken", "timm", "tokenizers", "torch", "torchaudio", "torchmetrics", "torchvision", "tqdm",
	"transformer-engine", "transformers", "triton", "trl", "unsloth", "vllm", "wandb", "xformers", "xgboost",
}

// Limits of the look at packages: the largest environments have some thousand names in one folder.
const (
	searchFoldersMost = 32
	searchNamesMost   = 20000
)

// pythonAsk prints version, executable, prefix, prefix without a venv, and the search path, one a line; python 2 can run it too.
const pythonAsk = `import sys; print("\n".join([sys.version.split()[0], sys.executable or "", sys.prefix, getattr(sys, "base_prefix", sys.prefix)] + sys.path))`

// python asks the interpreter of the job: the one that argv names, or that a script's first line names (torchrun, accelerate), else the first
// python3 or python of the job's PATH. nil when there is none.
func (q snapshotAsk) python(ctx context.Context, spec runSpec) *pythonFacts {
	path := spec.Path
	if !isPython(filepath.Base(spec.Argv[0])) {
		path = q.scriptPython(spec.Path)
	}
	for _, name := range []string{"python3", "python"} {
		if found, refuse := findProgram([]string{name}, q.env["PATH"], q.dir); path == "" && refuse == nil {
			path = found
		}
	}
	if path == "" {
		return nil
	}
	f := &pythonFacts{Path: path}
	out, err := q.run(ctx, path, "-B", "-c", pythonAsk) // -B: writes nothing
	if err != nil {
		f.Error = firstLine(out, err)
		return f
	}
	lines := strings.Split(out, "\n")
	f.Version = strings.TrimPrefix(lines[0], "Python ")
	if len(lines) < 4 {
		return f
	}
	if lines[1] != path {
		f.Executable = lines[1]
	}
	if lines[2] != lines[3] {
		f.prefix = lines[2]
	}
	f.search = lines[4:]
	return f
}

func isPython(name string) bool {
	rest, ok := strings.CutPrefix(name, "python")
	return ok && strings.Trim(rest, "0123456789.") == ""
}

// scriptPython is the interpreter that a script's first line names, "" when that is no python.
func (q snapshotAsk) scriptPython(path string) string {
	line, _, ok := strings.Cut(readHead(path, 256), "\n")
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !ok || !strings.HasPrefix(line, "#!") || len(words) == 0 {
		return ""
	}
	if filepath.Base(words[0]) == "env" {
		words = slices.DeleteFunc(words[1:], func(w string) bool { return strings.HasPrefix(w, "-") || strings.Contains(w, "=") })
	}
	if len(words) == 0 || !isPython(filepath.Base(words[0])) {
		return ""
	}
	found, refuse := findProgram(words[:1], q.env["PATH"], q.dir)
	if refuse != nil {
		return ""
	}
	return found
}

// packages reads names in the search path. Of a package that lies there twice the first counts, as for python.
func (q snapshotAsk) packages(f *pythonFacts) *packageFacts {
	p := &packageFacts{VirtualEnv: q.env["VIRTUAL_ENV"], Conda: q.env["CONDA_PREFIX"], Versions: map[string]string{}}
	if f == nil {
		f = &pythonFacts{}
	}
	if f.prefix != "" {
		p.VirtualEnv = f.prefix
	}
	all := map[string]string{}
	torch := ""
	folders := 0
	for _, dir := range f.search {
		if !filepath.IsAbs(dir) || strings.HasSuffix(dir, ".zip") {
			continue
		}
		if folders++; folders > searchFoldersMost {
			p.Error = "more folders in the search path than are looked at"
			break
		}
		names := readNames(dir)
		if len(names) == searchNamesMost {
			p.Error = "more packages than are looked at"
		}
		for _, name := range names {
			if pkg, version := packageOf(name); pkg != "" {
				if _, known := all[pkg]; !known {
					all[pkg] = version
				}
			}
		}
		if torch == "" && slices.Contains(names, "torch") {
			torch = filepath.Join(dir, "torch")
		}
	}
	p.Count = len(all)
	for _, name := range snapshotPackages {
		if version := all[name]; version != "" {
			p.Versions[name] = version
		}
	}
	if torch != "" {
		p.Torch = readTorch(torch, all)
	}
	if p.Count == 0 && p.VirtualEnv == "" && p.Conda == "" {
		return nil
	}
	return p
}

// packageOf reads name and version out of the name of a folder that describes a package: torch-2.9.0+cu128.dist-info, PyYAML-6.0-py3.11.egg-info.
// The name is in its normal form: lower case, "-" between.
func packageOf(entry string) (name, version string) {
	stem, ok := strings.CutSuffix(entry, ".dist-info")
	if !ok {
		if stem, ok = strings.CutSuffix(entry, ".egg-info"); !ok {
			return "", ""
		}
		if i := strings.LastIndex(stem, "-py"); i > 0 {
			stem = stem[:i]
		}
	}
	i := strings.LastIndex(stem, "-")
	if i < 0 {
		name = stem
	} else {
		name, version = stem[:i], stem[i+1:]
	}
	name = strings.Join(strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' || r == '.' }), "-")
	return name, version[:min(len(version), 100)]
}

// readTorch reads what torch was built for in its version.py, and the libraries that were installed for it.
func readTorch(dir string, all map[string]string) *torchFacts {
	var f torchFacts
	for line := range strings.Lines(readHead(filepath.Join(dir, "version.py"), 4<<10)) {
		key, value, _ := strings.Cut(line, "=")
		key, _, _ = strings.Cut(key, ":")
		value = strings.Trim(strings.TrimSpace(value), `'"`)
		if value == "None" || len(value) > 100 {
			continue
		}
		switch strings.TrimSpace(key) {
		case "cuda":
			f.CUDA = value
		case "hip":
			f.HIP = value
		}
	}
	for name, version := range all {
		switch {
		case strings.HasPrefix(name, "nvidia-cudnn-cu"):
			f.CuDNN = max(f.CuDNN, version)
		case strings.HasPrefix(name, "nvidia-nccl-cu"):
			f.NCCL = max(f.NCCL, version)
		}
	}
	return &f
}

// driver is the version of the GPU driver, nil when there is none: as its kernel module says, else as nvidia-smi does.
func (q snapshotAsk) driver(ctx context.Context, proc string) *string {
	if m := driverForm().FindStringSubmatch(readHead(proc, 1<<10)); m != nil {
		return &m[1]
	}
	path, refuse := findProgram([]string{"nvidia-smi"}, q.env["PATH"], q.dir)
	if refuse != nil {
		return nil
	}
	out, err := q.run(ctx, path, "--query-gpu=driver_version", "--format=csv,noheader")
	if m := driverForm().FindStringSubmatch(out); err == nil && m != nil {
		return &m[1]
	}
	return nil
}

// driverForm finds 570.86.15 in "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build ...".
var driverForm = lazyRegexp(`(?:^|\s)(\d{3,}\.\d+(?:\.\d+)?)(?:\s|$)`)

// readHead reads the begin of a file, "" when it is none or cannot be read.
func readHead(path string, most int64) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close() // read only
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return ""
	}
	return string(b)
}

// readNames reads the names in a folder, none when it is none.
func readNames(dir string) []string {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close() // read only
	names, err := f.Readdirnames(searchNamesMost)
	if err != nil {
		return nil
	}
	slices.Sort(names)
	return names
}
