package main

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tensors is a safetensors file: its header's length is n when that is not 0.
func tensors(header string, n uint64, data int) string {
	if n == 0 {
		n = uint64(len(header))
	}
	return string(binary.LittleEndian.AppendUint64(nil, n)) + header + strings.Repeat("d", data)
}

func zipped(t *testing.T) string {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	if w, err := z.Create("data.pkl"); err != nil {
		t.Fatal(err)
	} else if _, err := w.Write([]byte("weights")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCkptIncomplete(t *testing.T) {
	const head = `{"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}`
	whole := tensors(head, 0, 4)
	index := func(shards ...string) string {
		var parts []string
		for i, s := range shards {
			parts = append(parts, fmt.Sprintf(`"layer%d": %q`, i, s))
		}
		return `{"metadata": {"total_size": 8}, "weight_map": {` + strings.Join(parts, ", ") + `}}`
	}
	big := `{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "pad": "` + strings.Repeat("x", 3<<20) + `"}`
	for name, c := range map[string]struct {
		files map[string]string
		why   string // "" = whole
	}{
		"whole":               {map[string]string{"model.safetensors": whole}, ""},
		"header beyond":       {map[string]string{"model.safetensors": tensors(head, 1<<40, 4)}, "its header is longer than the file"},
		"header overflows":    {map[string]string{"model.safetensors": tensors(head, 1<<63+5, 4)}, "its header is longer than the file"},
		"cut in the data":     {map[string]string{"model.safetensors": tensors(head, 0, 3)}, "is cut off: 3 of 4 bytes"},
		"cut in the length":   {map[string]string{"model.safetensors": "\x01"}, "is cut off: 1 bytes"},
		"damaged header":      {map[string]string{"model.safetensors": tensors(`{"a": `, 0, 0)}, "damaged header"},
		"a header of 3 MiB":   {map[string]string{"model.safetensors": tensors(big, 0, 4)}, ""},
		"2 of 3 shards":       {map[string]string{"m-00001-of-00003.safetensors": whole, "m-00002-of-00003.safetensors": whole, "model.safetensors.index.json": index("m-00001-of-00003.safetensors", "m-00002-of-00003.safetensors", "m-00003-of-00003.safetensors")}, `names 1 of 3 shards that are missing: "m-00003-of-00003.safetensors"`},
		"3 of 3 shards":       {map[string]string{"m-00001-of-00002.safetensors": whole, "m-00002-of-00002.safetensors": whole, "model.safetensors.index.json": index("m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors")}, ""},
		"bin shards":          {map[string]string{"pytorch_model-00001-of-00002.bin": "x", "pytorch_model.bin.index.json": index("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")}, "missing"},
		"0-byte shard":        {map[string]string{"pytorch_model-00001-of-00002.bin": "x", "pytorch_model-00002-of-00002.bin": ""}, "has 0 bytes"},
		"index leads out":     {map[string]string{"model.safetensors.index.json": index("../../etc/passwd"), "x.bin": "x"}, "which is not in its folder"},
		"index leads to root": {map[string]string{"model.safetensors.index.json": index("/etc/passwd"), "x.bin": "x"}, "which is not in its folder"},
		"index is cut off":    {map[string]string{"model.safetensors.index.json": `{"weight_map": {"a": "x.b`, "x.bin": "x"}, "cannot be read"},
		"index of a list":     {map[string]string{"model.safetensors.index.json": `[]`, "x.bin": "x"}, "cannot be read"},
		"shards, no index":    {map[string]string{"m-00001-of-00004.bin": "x", "m-00002-of-00004.bin": "x"}, "is one of 2 shards of 4"},
		"torch archive":       {map[string]string{"model.pt": zipped(t)}, ""},
		"torch archive cut":   {map[string]string{"model.pt": zipped(t)[:60]}, "a zip archive without its directory"},
		"old torch":           {map[string]string{"model.pt": "\x80\x02\x8a"}, ""},
		"distributed":         {map[string]string{"__0_0.distcp": "x", ".metadata": "x"}, ""},
		"no metadata":         {map[string]string{"__0_0.distcp": "x"}, "has no .metadata beside it"},
		"state cut off":       {map[string]string{"trainer_state.json": `{"global_step": 5, `, "x.bin": "x"}, "is cut off: no whole JSON"},
		"config of 0 bytes":   {map[string]string{"config.json": "", "x.bin": "x"}, ""},
		"not looked at":       {map[string]string{"x.bin": "x", "half.pt.tmp": "", "events.out.tfevents.1": ""}, ""},
		"nested":              {map[string]string{"global_step5/mp_rank_00_model_states.pt": "", "x.bin": "x"}, "global_step5/mp_rank_00_model_states.pt has 0 bytes"},
		"bad name":            {map[string]string{"a\xff.pt": "", "x.bin": "x"}, `a\xff.pt has 0 bytes`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "checkpoint-5")
			for file, text := range c.files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got := readCheckpoint(foundAt(t, dir))
			if (c.why == "") != (got.incomplete == "") || !strings.Contains(got.incomplete, c.why) || got.changed {
				t.Errorf("incomplete %q, want %q; changed %v", got.incomplete, c.why, got.changed)
			}
		})
	}
}

// foundAt scans the folder that a checkpoint lies in.
func foundAt(t *testing.T, path string) *ckptFound {
	t.Helper()
	s := newCkptScan(ckptFileName)
	s.watch(filepath.Dir(path))
	if f := s.found[path]; f != nil {
		return f
	}
	t.Fatalf("%s is not found: %v", path, s.errs)
	return nil
}

func TestCkptFingerprint(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.pt")
	when := time.Now().Add(-time.Hour)
	data := bytes.Repeat([]byte("0123456789abcdef"), 5<<20/16)
	print := func(change func()) string {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		change()
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
		got := readCheckpoint(foundAt(t, path))
		if len(got.fingerprint) != 40 || got.changed {
			t.Fatalf("%+v", got)
		}
		return got.fingerprint
	}
	same := print(func() {})
	for name, c := range map[string]struct {
		change  func()
		differs bool
	}{
		"nothing":          {func() {}, false},
		"the first byte":   {func() { data[0]++ }, true},
		"in the first MiB": {func() { data[1<<20-1]++ }, true},
		"the middle":       {func() { data[2<<20]++ }, false}, // what a fast fingerprint does not see
		"in the last MiB":  {func() { data[4<<20]++ }, true},
		"the last byte":    {func() { data[len(data)-1]++ }, true},
		"the size":         {func() { data = data[:len(data)-1] }, true},
	} {
		before := bytes.Clone(data)
		c.change()
		if got := print(func() {}); (got != same) != c.differs {
			t.Errorf("%s: differs %v", name, got != same)
		}
		data = before
	}
	when = when.Add(time.Millisecond)
	if print(func() {}) == same {
		t.Error("another time, the same fingerprint")
	}

	// What is no file by the time it is opened is never waited for.
	f := foundAt(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readCheckpoint(f); !got.changed {
		t.Error("a fifo was read as the file that it replaced")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readCheckpoint(f); !got.changed {
		t.Error("another file was read as the one that it replaced")
	}
}

// Beyond 64 files only sizes and times count, beyond 4,096 nothing does.
func TestCkptFolderOfManyFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "step_5")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put := func(i int, text string) {
		t.Helper()
		p := filepath.Join(dir, fmt.Sprintf("part%05d.pt", i))
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(-time.Hour).Truncate(time.Hour)
		if err := os.Chtimes(p, when, when); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		put(i, "x")
	}
	first := readCheckpoint(foundAt(t, dir))
	put(70, "y")
	if got := readCheckpoint(foundAt(t, dir)); got.fingerprint != first.fingerprint {
		t.Error("the content of the 71st file counts")
	}
	put(70, "longer")
	second := readCheckpoint(foundAt(t, dir))
	put(5, "y")
	third := readCheckpoint(foundAt(t, dir))
	if second.fingerprint == first.fingerprint || third.fingerprint == second.fingerprint {
		t.Error("a size or the content of the 6th file does not count")
	}
	for i := range ckptPartsMost + 10 {
		put(i, "x")
	}
	if f := foundAt(t, dir); !f.cut || len(f.parts) != ckptPartsMost {
		t.Errorf("%d parts", len(f.parts))
	}
}

func TestCkptJSONStep(t *testing.T) {
	const none = -1
	for text, want := range map[string]int64{
		`{"step": 7}`: 7, `{"global_step": 8, "step": 9}`: 8, `{"a": {"step": 1}, "b": ["step", 2], "step": 3, "weights": [1, 2`: 3, `{"name": "step", "x": 4}`: none,
		`{"step": "7"}`: none, `{"step": -1}`: none, `{"step": 1.5}`: none, `[{"step": 1}]`: none, `{`: none, ``: none, `"step"`: none, `{"step": null, "global_step": 2}`: 2,
		`{"x": true, "step": 5}`: 5, `{"x": [], "y": {}, "step": 6}`: 6,
	} {
		got, ok := ckptJSONStep([]byte(text))
		if !ok {
			got = none
		}
		if got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}
