package main

// What is read of a checkpoint: the fingerprint, whether it is whole, and the step that lies in it. Files are opened for reading only, never
// waiting and never through a link, and closed at once. What cannot be read (rights) counts by size and time alone.

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	ckptHashBytes = 1 << 20  // of the begin and of the end of each file
	ckptHashFiles = 64       // files of which content is read: a folder costs at most 128 MiB of reading
	ckptJSONBytes = 16 << 20 // an index, a trainer_state.json, the header of a safetensors file
)

// ckptRead is what reading a checkpoint gave.
type ckptRead struct {
	fingerprint string
	incomplete  string
	step, total *int64
	stepFrom    string
	changed     bool // it changed while it was read
}

// ckptReader reads one checkpoint.
type ckptReader struct {
	f   *ckptFound
	why []string
	out ckptRead
}

// readCheckpoint computes the fingerprint: SHA-1 over name, size, mtime and SHA-1 of the first and last MiB of each file, by name. Of a
// folder with more than 64 files the content of the first 64 counts, of the others size and mtime; files beyond 4,096 do not count.
func readCheckpoint(f *ckptFound) ckptRead {
	r := &ckptReader{f: f}
	sum := sha1.New()
	for i, p := range f.parts {
		content := "-"
		if i < ckptHashFiles {
			b, ok := r.ends(p)
			if ok {
				h := sha1.Sum(b)
				content = hex.EncodeToString(h[:])
			}
			r.lookAt(p, b, ok)
		} else {
			r.lookAt(p, nil, false)
		}
		fmt.Fprintf(sum, "%q %d %d %s\n", p.rel, p.size, p.mtimeNS, content)
	}
	r.shards()
	r.steps()
	r.out.fingerprint = hex.EncodeToString(sum.Sum(nil))
	if len(r.why) > 0 {
		r.out.incomplete = ckptPathText(r.why[0])
		if len(r.why) > 1 {
			r.out.incomplete += fmt.Sprintf(" (and %d more)", len(r.why)-1)
		}
	}
	return r.out
}

func (r *ckptReader) file(p ckptPart) string { return filepath.Join(r.f.root, p.rel) }

func (r *ckptReader) incomplete(p ckptPart, format string, args ...any) {
	name := p.rel
	if name == "" {
		name = filepath.Base(r.f.path)
	}
	r.why = append(r.why, name+" "+fmt.Sprintf(format, args...))
}

// open opens a part; not ok when it cannot be read. When it is another file by now the whole reading is void.
func (r *ckptReader) open(p ckptPart) (*os.File, bool) {
	file, err := os.OpenFile(r.file(p), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		r.out.changed = r.out.changed || !errors.Is(err, os.ErrPermission)
		return nil, false
	}
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() || ckptPartOf(p.rel, st) != p {
		r.out.changed = true
		file.Close() // read only
		return nil, false
	}
	return file, true
}

// ends reads the first and the last MiB, or all of a file of at most two.
func (r *ckptReader) ends(p ckptPart) ([]byte, bool) {
	file, ok := r.open(p)
	if !ok {
		return nil, false
	}
	defer file.Close() // read only
	b := make([]byte, min(p.size, 2*ckptHashBytes))
	_, err := file.ReadAt(b[:min(p.size, ckptHashBytes)], 0)
	if err == nil && p.size > ckptHashBytes {
		tail := b[ckptHashBytes:]
		_, err = file.ReadAt(tail, p.size-int64(len(tail)))
	}
	if err == nil {
		if st, serr := file.Stat(); serr != nil || ckptPartOf(p.rel, st) != p {
			err = errors.Join(serr, io.ErrUnexpectedEOF)
		}
	}
	r.out.changed = r.out.changed || err != nil
	return b, err == nil
}

// lookAt checks one file by its kind; b are its ends when they were read.
func (r *ckptReader) lookAt(p ckptPart, b []byte, read bool) {
	name := strings.ToLower(filepath.Base(r.file(p)))
	ext := filepath.Ext(name)
	alone, known := ckptExt(ext)
	switch {
	case p.size == 0:
		if known && ext != ".json" || ckptShard().MatchString(name) || p.rel == "" {
			r.incomplete(p, "has 0 bytes")
		}
	case !read:
	case strings.HasSuffix(name, ".index.json"):
		r.index(p)
	case ext == ".safetensors":
		r.safetensors(p, b)
	case ext == ".json":
		if t := bytes.TrimSpace(b); len(t) == 0 || (t[0] == '{') != (t[len(t)-1] == '}') || (t[0] == '[') != (t[len(t)-1] == ']') {
			r.incomplete(p, "is cut off: no whole JSON")
		}
	case (alone || known) && bytes.HasPrefix(b, []byte("PK\x03\x04")) && !bytes.Contains(b[max(0, len(b)-66000):], []byte("PK\x05\x06")):
		r.incomplete(p, "is cut off: a zip archive without its directory") // torch, npz, keras
	}
}

// safetensors checks the lengths: 8 bytes little endian, so many bytes of JSON, then the tensors up to the largest offset.
func (r *ckptReader) safetensors(p ckptPart, b []byte) {
	if len(b) < 8 {
		r.incomplete(p, "is cut off: %d bytes", p.size)
		return
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(p.size)-8 {
		r.incomplete(p, "is cut off: its header is longer than the file")
		return
	}
	if n > ckptJSONBytes {
		return
	}
	head := b[8:min(int64(len(b)), ckptHashBytes, p.size)]
	if uint64(len(head)) < n {
		var ok bool
		if head, ok = r.bytes(p, 8, int64(n)); !ok {
			return
		}
	}
	var tensors map[string]struct {
		Offsets []int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(head[:n], &tensors); err != nil {
		if _, syntax := errors.AsType[*json.SyntaxError](err); syntax {
			r.incomplete(p, "has a damaged header")
		}
		return
	}
	var end int64
	for _, t := range tensors {
		if len(t.Offsets) == 2 {
			end = max(end, t.Offsets[1])
		}
	}
	if have := p.size - 8 - int64(n); end > have {
		r.incomplete(p, "is cut off: %d of %d bytes", have, end)
	}
}

// bytes reads a piece of a part.
func (r *ckptReader) bytes(p ckptPart, off, n int64) ([]byte, bool) {
	file, ok := r.open(p)
	if !ok {
		return nil, false
	}
	defer file.Close() // read only
	b := make([]byte, n)
	if _, err := file.ReadAt(b, off); err != nil {
		r.out.changed = true
		return nil, false
	}
	return b, true
}

// json decodes a small file; ok is false when there was nothing to decode.
func (r *ckptReader) json(p ckptPart, v any) (ok bool, err error) {
	if p.size > ckptJSONBytes {
		return false, nil
	}
	b, ok := r.bytes(p, 0, p.size)
	if !ok {
		return false, nil
	}
	return true, json.Unmarshal(b, v)
}

// index checks that every shard that an index names lies beside it. A name that leads out of the folder is not looked at.
func (r *ckptReader) index(p ckptPart) {
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	ok, err := r.json(p, &index)
	if err != nil {
		r.incomplete(p, "cannot be read: %v", err)
	}
	if !ok || err != nil {
		return
	}
	have := map[string]bool{}
	for _, q := range r.f.parts {
		have[q.rel] = true
	}
	shards := slices.Compact(slices.Sorted(maps.Values(index.WeightMap)))
	missing, first := 0, ""
	for _, shard := range shards {
		if !filepath.IsLocal(shard) {
			r.incomplete(p, "names %.80q, which is not in its folder", shard)
			continue
		}
		at := filepath.Join(filepath.Dir(p.rel), shard)
		if have[at] || ckptLinked(filepath.Join(r.f.root, at)) || r.f.cut {
			continue
		}
		if missing++; missing == 1 {
			first = shard
		}
	}
	if missing > 0 {
		r.incomplete(p, "names %d of %d shards that are missing: %.80q", missing, len(shards), first)
	}
}

// ckptLinked reports whether something is a link to a file that is not empty: where models are kept in a cache, shards are links.
func ckptLinked(path string) bool {
	if st, err := os.Lstat(path); err != nil || st.Mode().Type() != os.ModeSymlink {
		return false
	}
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Size() > 0
}

// shards checks that all of name-00001-of-00003 are there, and that a distributed checkpoint has its metadata.
func (r *ckptReader) shards() {
	type set struct {
		n    int
		of   string
		part ckptPart
	}
	sets := map[string]*set{}
	have := map[string]bool{}
	for _, p := range r.f.parts {
		name := filepath.Base(p.rel)
		have[p.rel] = true
		key, of := "", ""
		if m := ckptShard().FindStringSubmatch(name); m != nil {
			key, of = m[1]+m[4], m[3]
		} else if m := ckptTFShard().FindStringSubmatch(name); m != nil {
			key, of = m[1], m[3]
		}
		if key == "" {
			continue
		}
		key = filepath.Join(filepath.Dir(p.rel), key+" "+of)
		if sets[key] == nil {
			sets[key] = &set{of: of, part: p}
		}
		sets[key].n++
	}
	for _, key := range slices.Sorted(maps.Keys(sets)) {
		s := sets[key]
		if n := s.n; fmt.Sprintf("%05d", n) != s.of && !r.f.cut && len(r.why) == 0 {
			r.incomplete(s.part, "is one of %d shards of %s", n, strings.TrimLeft(s.of, "0"))
		}
	}
	for _, p := range r.f.parts {
		if meta := filepath.Join(filepath.Dir(p.rel), ".metadata"); strings.HasSuffix(p.rel, ".distcp") && !have[meta] && !r.f.cut {
			r.incomplete(p, "has no .metadata beside it")
			return
		}
	}
	if strings.HasSuffix(r.f.path, ".index") && len(r.f.parts) == 1 {
		r.incomplete(r.f.parts[0], "has no data beside it")
	}
}

// ckptState is trainer_state.json of Hugging Face, as far as it is needed.
type ckptState struct {
	GlobalStep *int64 `json:"global_step"`
	MaxSteps   *int64 `json:"max_steps"`
}

// steps finds the step: trainer_state.json, else the name, else what a JSON checkpoint says of itself.
func (r *ckptReader) steps() {
	for _, p := range r.f.parts {
		if p.rel != "trainer_state.json" || r.f.kind != ckptDir {
			continue
		}
		var s ckptState
		if ok, err := r.json(p, &s); err != nil {
			r.incomplete(p, "cannot be read: %v", err)
		} else if ok && s.GlobalStep != nil && *s.GlobalStep >= 0 {
			r.out.step, r.out.stepFrom = s.GlobalStep, "trainer_state"
			if s.MaxSteps != nil && *s.MaxSteps > 0 {
				r.out.total = s.MaxSteps
			}
			return
		}
	}
	if n, ok := ckptNameStep(filepath.Base(r.f.path)); ok {
		r.out.step, r.out.stepFrom = &n, "name"
		return
	}
	if len(r.f.parts) == 1 && r.f.kind == ckptFile && strings.HasSuffix(strings.ToLower(r.f.path), ".json") {
		if b, ok := r.bytes(r.f.parts[0], 0, min(r.f.parts[0].size, 4<<10)); ok {
			if n, ok := ckptJSONStep(b); ok {
				r.out.step, r.out.stepFrom = &n, "content"
			}
		}
	}
}

// ckptJSONStep reads "step" or "global_step" of the outermost object out of the begin of a JSON file.
func ckptJSONStep(b []byte) (step int64, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	depth, key := 0, true
	name := ""
	for {
		token, err := dec.Token()
		if err != nil {
			return 0, false
		}
		switch t := token.(type) {
		case json.Delim:
			if t == '{' || t == '[' {
				depth++
			} else {
				depth--
			}
			key = true
			continue
		case string:
			if depth == 1 && key {
				name, key = t, false
				continue
			}
		case json.Number:
			if n, err := t.Int64(); depth == 1 && err == nil && n >= 0 && (name == "step" || name == "global_step") {
				return n, true
			}
		}
		if depth == 1 {
			key = true
		}
	}
}
