package main

// What the name of a file or folder says: whether it is a checkpoint, part of one, or never looked at; and the step. Names only: no I/O.
// Forms are those of torch, Lightning, Hugging Face, DeepSpeed, Megatron, Orbax, Keras, TensorFlow, Stable-Baselines3.

import (
	"path/filepath"
	"strconv"
	"strings"
)

// ckptExt says which extensions make a file a checkpoint: true alone, false only together with a telling word in the name.
func ckptExt(ext string) (alone, known bool) {
	switch ext {
	case ".pt", ".pth", ".ckpt", ".safetensors", ".keras", ".h5", ".hdf5", ".gguf", ".onnx", ".pdparams", ".joblib", ".msgpack", ".npz", ".tflite":
		return true, true
	case ".bin", ".pkl", ".pickle", ".npy", ".json", ".zip", ".pb", ".params":
		return false, true
	}
	return false, false
}

// ckptAside are extensions that no checkpoint consists of: a folder that holds nothing else is none.
func ckptAside(ext string) bool {
	switch ext {
	case ".log", ".txt", ".csv", ".tsv", ".jsonl", ".out", ".err", ".md", ".html", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf", ".mp4", ".wav", ".py", ".sh",
		".yaml", ".yml", ".toml":
		return true
	}
	return false
}

const ckptStepWords = `global[_-]?steps?|steps?|iters?|iterations?|updates?`

var (
	ckptUnfinished = lazyRegexp(`(^|[._-])(tmp|partial|incomplete|inprogress)([._-]|\d|$)|\.(tmp[a-z0-9_]*|temp|part\d*|swp|bak|lock|crdownload)$|^tmp[a-z0-9_]{8}(\.|$)`)

	// Words that make a name the name of a checkpoint, and words of what lies beside one.
	ckptWord    = lazyRegexp(`(^|[^a-z])(ckpts?|chkpt|checkpoints?|epochs?|ep|` + ckptStepWords + `|model|weights?|best|last|latest|final|snapshot|state|params|policy|actor|critic|agent|network|net|generator|discriminator|ema|adapter|lora|clf|classifier)([^a-z]|$)`)
	ckptNotWord = lazyRegexp(`(^|[^a-z])(metrics?|logs?|history|config|configs|args|hparams|results?|eval|evals|evaluation|summary|stats|vocab|tokenizer|index|trainer|training|info|meta|metadata|predictions?|preds|losses|dataset|data)([^a-z]|$)`)
	// What a trainer writes beside the weights: no checkpoint by itself.
	ckptBeside = lazyRegexp(`^(optim|optimizer|scheduler|scaler|rng_state|random_states|sampler|trainer_state|training_args|distrib_optim)`)

	// Folders that are a checkpoint by their name.
	ckptFolder = lazyRegexp(`(^|[^a-z])(ckpt|chkpt|checkpoint|epoch|` + ckptStepWords + `)[=_.-]?\d`)

	ckptShard   = lazyRegexp(`^(.+)-(\d{5})-of-(\d{5})(\.[a-z0-9]+)$`)
	ckptTFShard = lazyRegexp(`^(.+)\.data-(\d{5})-of-(\d{5})$`)
)

// ckptSkipName reports whether an entry is never looked at: hidden, unfinished, a lock, an event file.
func ckptSkipName(name string) bool {
	if name == "" || name[0] == '.' || strings.HasSuffix(name, "~") {
		return true
	}
	low := strings.ToLower(name)
	return strings.Contains(low, "tfevents") || ckptUnfinished().MatchString(low)
}

// ckptFileName reports whether a file is a checkpoint by its name.
func ckptFileName(name string) bool {
	low := strings.ToLower(name)
	ext := filepath.Ext(low)
	alone, known := ckptExt(ext)
	if !known && strings.Trim(strings.TrimPrefix(ext, ".ckpt-"), ".0123456789") != "" || ckptSkipName(name) || ckptBeside().MatchString(low) {
		return false
	}
	if alone {
		return true
	}
	stem := low
	if known {
		stem = strings.TrimSuffix(low, ext)
	}
	if !ckptWord().MatchString(stem) || ckptNotWord().MatchString(stem) {
		return false
	}
	return known || strings.ContainsAny(stem, "0123456789") // without an extension a word alone says too little
}

// ckptFolderName reports whether a folder is a checkpoint by its name; of others their content says.
func ckptFolderName(name string) bool {
	low := strings.ToLower(name)
	switch filepath.Ext(low) {
	case ".ckpt", ".orbax", ".distcp", ".zarr":
		return !ckptSkipName(name)
	}
	return ckptFolder().MatchString(low) && !ckptSkipName(name)
}

// ckptMarker reports whether a file makes the folder that it lies in a checkpoint.
func ckptMarker(name string) bool {
	switch name {
	case "model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin", "diffusion_pytorch_model.safetensors", "trainer_state.json",
		"_CHECKPOINT_METADATA", "_METADATA", "saved_model.pb", "tf_model.h5", "flax_model.msgpack", ".metadata", "fingerprint.pb":
		return true
	}
	return strings.HasSuffix(name, ".safetensors.index.json") || strings.HasSuffix(name, ".bin.index.json") || ckptShard().MatchString(name) ||
		strings.HasSuffix(name, ".distcp") || strings.HasPrefix(name, "mp_rank_") || strings.HasPrefix(name, "consolidated.")
}

// ckptUsualFolder reports whether trainers put checkpoints into a folder of this name: it is entered below the first level too.
func ckptUsualFolder(name string) bool {
	switch low := strings.ToLower(name); low {
	case "checkpoint", "checkpoints", "ckpt", "ckpts", "models", "weights", "saved_models", "save", "saves", "snapshots", "lightning_logs":
		return true
	default:
		n, ok := strings.CutPrefix(low, "version_")
		return ok && n != "" && strings.Trim(n, "0123456789") == ""
	}
}

var (
	ckptDate = lazyRegexp(`(^|[^0-9])(19|20)\d\d[-_.]?(0[1-9]|1[0-2])[-_.]?(0[1-9]|[12]\d|3[01])([-_.tT ]?\d\d[-_.:hH]?\d\d([-_.:mM]?\d\d)?)?([^0-9]|$)`)
	// step=200, global_step1000, iter_0000100; 10000_steps.
	ckptStep       = lazyRegexp(`(?:^|[^a-z])(?:` + ckptStepWords + `)[=_.-]?(\d+)(?:[^a-z0-9.]|\.[^0-9]|\.?$)`)
	ckptStepBefore = lazyRegexp(`(?:^|[^a-z0-9.])(\d+)[_-]?(?:` + ckptStepWords + `)(?:[^a-z]|$)`)
	// The last number of the name, and the word before it.
	ckptNumber = lazyRegexp(`(?:^|([a-z]*)[^a-z0-9.]*[=_ -])(\d+)$|^(?:.*[^a-z])?(ckpt|chkpt|checkpoint|model|weights|snapshot)(\d+)$`)
	// What a number means when it is no step.
	ckptOther = lazyRegexp(`^(e|ep|epochs?|seed|fold|rank|version|v|of|part|shard|loss|acc|accuracy|score|reward|auc|f|top|k|run|trial|gpu|rev|lr|bs|dim|layers?)$`)
)

// ckptNameStep is the step that a name tells: the last number after a word for steps; else the last number of the name, unless it counts
// epochs or something else, is a date or a time, or has more digits than any count. A name with only an epoch tells no step: an epoch taken
// for a step would put the checkpoint at the wrong place of every curve.
func ckptNameStep(name string) (step int64, ok bool) {
	low := strings.ToLower(name)
	for {
		ext := filepath.Ext(low)
		if _, known := ckptExt(ext); !known && ext != ".index" && ext != ".orbax" && ext != ".distcp" && ext != ".zarr" {
			break
		}
		low = strings.TrimSuffix(low, ext)
	}
	if m := ckptShard().FindStringSubmatch(strings.ToLower(name)); m != nil {
		low = m[1]
	}
	found := ""
	if all := ckptStep().FindAllStringSubmatch(low, -1); len(all) > 0 {
		found = all[len(all)-1][1]
	} else if all := ckptStepBefore().FindAllStringSubmatch(low, -1); len(all) > 0 {
		found = all[len(all)-1][1]
	} else if m := ckptNumber().FindStringSubmatch(ckptDate().ReplaceAllString(low, "$1@$7")); m != nil && !ckptOther().MatchString(m[1]) {
		found = m[2] + m[4]
		if n := len(strings.TrimLeft(found, "0")); n == 10 && (found[0] == '1' || found[0] == '2') || n > 10 {
			return 0, false // seconds or milliseconds since 1970
		}
	}
	if found == "" || len(found) > 15 {
		return 0, false
	}
	step, err := strconv.ParseInt(found, 10, 64)
	return step, err == nil
}

// ckptNatural compares names with the numbers in them as numbers: epoch-2 before epoch-10.
func ckptNatural(a, b string) int {
	for a != "" && b != "" {
		na, nb := ckptDigits(a), ckptDigits(b)
		if na == 0 || nb == 0 {
			if a[0] != b[0] {
				return int(a[0]) - int(b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
		if len(x) != len(y) {
			return len(x) - len(y)
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
		a, b = a[na:], b[nb:]
	}
	return len(a) - len(b)
}

func ckptDigits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
