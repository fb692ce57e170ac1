package main

// One look into watched folders: which files and folders there are checkpoints, and what they consist of. Names, sizes and times only: no
// file is opened here, nothing waits for a fifo or follows a link below the watched folder.

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	ckptEntriesMost = 20000 // names read of one folder
	ckptLookMost    = 60000 // of all folders in one look
	ckptPartsMost   = 4096  // files of one checkpoint; what is beyond is not looked at
	ckptDepth       = 3     // folders below a watched one: lightning_logs/version_0/checkpoints
	ckptPartDepth   = 3     // folders within a checkpoint
)

// ckptPart is one file of a checkpoint; rel is its path below the checkpoint, "" when it is the checkpoint.
type ckptPart struct {
	rel     string
	size    int64
	mtimeNS int64
	inode   uint64
}

// ckptFound is a checkpoint as it lies there now.
type ckptFound struct {
	path  string // as it can be opened
	kind  string
	root  string     // folder that the parts' names are relative to
	dev   uint64     // file system of the folder that it lies in
	parts []ckptPart // by name
	cut   bool       // there are more
}

func (f *ckptFound) size() (n int64) {
	for _, p := range f.parts {
		n += p.size
	}
	return n
}

func (f *ckptFound) mtimeNS() (ns int64) {
	for i, p := range f.parts {
		if i == 0 || p.mtimeNS > ns {
			ns = p.mtimeNS
		}
	}
	return ns
}

// mark changes when anything of the checkpoint does.
func (f *ckptFound) mark() string {
	h := fnv.New64a()
	for _, p := range f.parts {
		fmt.Fprintf(h, "%s\x00%d\x00%d\x00%d\x00", p.rel, p.size, p.mtimeNS, p.inode)
	}
	return fmt.Sprintf("%x-%d", h.Sum64(), len(f.parts))
}

// ckptScan is one look.
type ckptScan struct {
	found  map[string]*ckptFound
	roots  []string        // watched folders that are there
	failed map[string]bool // folders that could not be read
	errs   []error
	left   int // names that may still be read
	known  func(name string) bool
}

func newCkptScan(known func(string) bool) *ckptScan {
	return &ckptScan{found: map[string]*ckptFound{}, failed: map[string]bool{}, left: ckptLookMost, known: known}
}

// watch looks into one watched folder, which may be a link. One that is not there is not an error.
func (s *ckptScan) watch(dir string) {
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		s.fail(dir, err)
		return
	case !st.IsDir():
		s.fail(dir, errors.New("not a folder"))
		return
	}
	if list, dev, ok := s.list(dir, 0); ok {
		s.roots = append(s.roots, dir)
		s.folder(dir, list, dev, 0)
	}
}

func (s *ckptScan) fail(dir string, err error) {
	s.failed[dir] = true
	if len(s.errs) < 10 {
		s.errs = append(s.errs, fmt.Errorf("look for checkpoints in %q: %w", dir, err))
	}
}

// list reads the names of a folder. flags may be O_NOFOLLOW.
func (s *ckptScan) list(dir string, flags int) (list []fs.DirEntry, dev uint64, ok bool) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|flags, 0)
	if err != nil {
		if s.failed[dir] = true; flags == 0 || !ckptQuiet(err) {
			s.fail(dir, err)
		}
		return nil, 0, false
	}
	defer f.Close() // read only
	st, err := f.Stat()
	if err != nil {
		s.fail(dir, err)
		return nil, 0, false
	}
	list, err = f.ReadDir(max(1, min(ckptEntriesMost, s.left)))
	if err != nil && len(list) == 0 && !errors.Is(err, io.EOF) {
		s.fail(dir, err)
		return nil, 0, false
	}
	s.left -= len(list)
	if len(list) == ckptEntriesMost || s.left <= 0 {
		s.fail(dir, fmt.Errorf("more than %d names: not all are looked at", len(list)))
	}
	return list, ckptStat(st).dev, true
}

// ckptQuiet are errors of a folder below a watched one that say nothing: not ours to read (lost+found), gone by now, replaced.
func ckptQuiet(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// folder takes the checkpoints out of the names of one folder.
func (s *ckptScan) folder(dir string, list []fs.DirEntry, dev uint64, depth int) {
	groups := map[string][]string{} // files that are one checkpoint together, by what their names share
	for _, e := range list {
		name := e.Name()
		switch {
		case e.Type().IsDir():
			if !ckptSkipName(name) {
				s.sub(filepath.Join(dir, name), dev, depth+1)
			}
		case e.Type()&^fs.ModeIrregular != 0: // a link, a fifo, a socket
		case ckptSkipName(name):
		default:
			if group := ckptGroup(name); group != "" {
				groups[group] = append(groups[group], name)
			} else if s.known(name) {
				s.add(&ckptFound{path: filepath.Join(dir, name), kind: ckptFile, root: filepath.Join(dir, name), dev: dev, parts: s.part(e, "")})
			}
		}
	}
	for _, names := range groups {
		s.group(dir, names, dev)
	}
}

// ckptGroup is what the names of files that belong together share, "" for a file that is by itself: model-00001-of-00003.safetensors with its
// index, ckpt-5.index with ckpt-5.data-00000-of-00001.
func ckptGroup(name string) string {
	if m := ckptShard().FindStringSubmatch(name); m != nil {
		return m[1] + m[4]
	}
	if m := ckptTFShard().FindStringSubmatch(name); m != nil {
		return m[1] + ".index"
	}
	if base, ok := strings.CutSuffix(name, ".index.json"); ok {
		return base
	}
	if strings.HasSuffix(name, ".index") {
		return name
	}
	return ""
}

// group makes one checkpoint of files that belong together. Its path is the TensorFlow index, else the first shard.
func (s *ckptScan) group(dir string, names []string, dev uint64) {
	slices.Sort(names)
	i := slices.IndexFunc(names, func(n string) bool { return strings.HasSuffix(n, ".index") })
	if i < 0 {
		i = slices.IndexFunc(names, func(n string) bool { return ckptShard().MatchString(n) })
	}
	if i < 0 {
		return // an index alone
	}
	f := &ckptFound{path: filepath.Join(dir, names[i]), kind: ckptFile, root: dir, dev: dev}
	for _, n := range names[:min(len(names), ckptPartsMost)] {
		if st, err := os.Lstat(filepath.Join(dir, n)); err == nil && st.Mode().IsRegular() {
			f.parts = append(f.parts, ckptPartOf(n, st))
		}
	}
	s.add(f)
}

// sub looks at a folder below a watched one: a checkpoint, or a folder with some.
func (s *ckptScan) sub(dir string, dev uint64, depth int) {
	name := filepath.Base(dir)
	named := ckptFolderName(name)
	if s.left <= 0 {
		return
	}
	list, own, ok := s.list(dir, unix.O_NOFOLLOW)
	if !ok {
		return
	}
	holds := slices.ContainsFunc(list, func(e fs.DirEntry) bool { return e.Type().IsDir() && ckptFolderName(e.Name()) })
	marked := slices.ContainsFunc(list, func(e fs.DirEntry) bool { return ckptMarker(e.Name()) })
	if named || marked && !holds {
		f := &ckptFound{path: dir, kind: ckptDir, root: dir, dev: dev}
		s.parts(f, list, "", 0)
		if slices.ContainsFunc(f.parts, func(p ckptPart) bool { return !ckptAside(strings.ToLower(filepath.Ext(p.rel))) }) {
			s.add(f)
		}
		return
	}
	if depth == 1 || depth <= ckptDepth && ckptUsualFolder(name) {
		s.folder(dir, list, own, depth)
	}
}

// parts collects the files of a checkpoint folder.
func (s *ckptScan) parts(f *ckptFound, list []fs.DirEntry, rel string, depth int) {
	for _, e := range list {
		name := e.Name()
		if ckptSkipName(name) && name != ".metadata" {
			continue
		}
		switch at := filepath.Join(rel, name); {
		case len(f.parts) >= ckptPartsMost:
			f.cut = true
			return
		case e.Type().IsDir() && depth < ckptPartDepth:
			if sub, _, ok := s.list(filepath.Join(f.root, at), unix.O_NOFOLLOW); ok {
				s.parts(f, sub, at, depth+1)
			} else {
				s.failed[f.path] = true // what it consists of is not known
			}
		case e.Type()&^fs.ModeIrregular == 0:
			f.parts = append(f.parts, s.part(e, at)...)
		}
	}
}

// part is a regular file, nothing when it is none or went away.
func (s *ckptScan) part(e fs.DirEntry, rel string) []ckptPart {
	st, err := e.Info()
	if err != nil || !st.Mode().IsRegular() {
		return nil
	}
	return []ckptPart{ckptPartOf(rel, st)}
}

func (s *ckptScan) add(f *ckptFound) {
	if len(f.parts) == 0 || s.failed[f.path] {
		return
	}
	slices.SortFunc(f.parts, func(a, b ckptPart) int { return cmp.Compare(a.rel, b.rel) })
	s.found[f.path] = f
}

// ckptFileID says which file something is.
type ckptFileID struct{ dev, inode uint64 }

func ckptStat(st fs.FileInfo) ckptFileID {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return ckptFileID{uint64(sys.Dev), sys.Ino}
	}
	return ckptFileID{}
}

func ckptPartOf(rel string, st fs.FileInfo) ckptPart {
	return ckptPart{rel: rel, size: st.Size(), mtimeNS: st.ModTime().UnixNano(), inode: ckptStat(st).inode}
}
