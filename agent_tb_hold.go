package main

// Holding event files: a hard link in the run's folder, so that a file survives rm, rename and replacement until it is taken, and a record
// beside it, so that its name and folder are known when it is gone. Also the memory of whose each file is, over all runs of this home.
// It decides nothing and never writes or locks the file.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tbRecord is tb/<inode, hex>.json in the folder of a run, written before the link tb/<inode>. It stays when the link goes.
type tbRecord struct {
	Path    string `json:"path"`   // real, when it was found
	Folder  string `json:"folder"` // of its series
	Why     string `json:"why"`    // open | pid | tb | working_dir
	Dev     uint64 `json:"dev"`
	BornMS  int64  `json:"born_ms"` // 0: the file system does not tell
	Linked  bool   `json:"linked"`  // false: another file system, only an open file holds it
	FoundMS int64  `json:"found_ms"`
}

// madeMS is when the file was made, as well as that is known.
func (r tbRecord) madeMS() int64 {
	return tbFile{bornMS: r.BornMS, changedMS: r.FoundMS, name: parseTBName(filepath.Base(r.Path), "")}.madeMS()
}

// is reports whether f, of the same inode, is the file of the record. A number is used again when the file is gone; devices get other
// numbers at a boot.
func (r tbRecord) is(f tbFile) bool {
	if r.BornMS != 0 && f.bornMS != 0 {
		return r.BornMS == f.bornMS
	}
	return r.Dev == f.dev && r.Path == f.path
}

// tbOwned is a file that a run has taken. Its key is the inode in hex, with "-<n>" where the run has files of that inode on several file
// systems, or had one before it was used again.
type tbOwned struct {
	uid, key string
	rec      tbRecord
}

// tbKey makes the key of a file that is taken.
func tbKey(inode uint64, taken func(key string) bool) string {
	key := strconv.FormatUint(inode, 16)
	for n := uint64(1); taken(key); n++ {
		key = strconv.FormatUint(inode, 16) + "-" + strconv.FormatUint(n, 16)
	}
	return key
}

// tbInode is the inode in a key.
func tbInode(key string) (inode uint64, ok bool) {
	first, rest, more := strings.Cut(key, "-")
	inode, err := strconv.ParseUint(first, 16, 64)
	if err != nil || strconv.FormatUint(inode, 16) != first {
		return 0, false
	}
	n, err := strconv.ParseUint(rest, 16, 64)
	return inode, !more || err == nil && strconv.FormatUint(n, 16) == rest
}

// errReplaced: by the time it was to be held, the path led to another file.
var errReplaced = errors.New("the file was replaced meanwhile")

func (d runDir) tbDir() string { return d.file("tb") }

func (d runDir) tbLink(key string) string { return filepath.Join(d.tbDir(), key) }

// tbRecords reads the records of a run, by key. A link without a record that can be read has an empty one.
func (d runDir) tbRecords() (map[string]tbRecord, error) {
	entries, err := os.ReadDir(d.tbDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string]tbRecord{}
	for _, e := range entries {
		key, isRecord := strings.CutSuffix(e.Name(), ".json")
		if _, ok := tbInode(key); !ok {
			continue // a temporary file of a death, or not ours
		}
		if !isRecord {
			if _, ok := out[key]; !ok {
				out[key] = tbRecord{Linked: true}
			}
			continue
		}
		var r tbRecord
		if err := readJSON(filepath.Join(d.tbDir(), e.Name()), &r); ignoreGarbage(err) != nil {
			return nil, err
		}
		out[key] = r
	}
	return out, nil
}

// holdTB takes a file for a run: the record, then the link to what via leads to, or the open file where no link can be made. The link is
// looked at afterwards: what it leads to is what is read.
func (d runDir) holdTB(key string, f tbFile, via string, rec tbRecord) (tbHold, error) {
	h := tbHold{key: key, path: d.tbLink(key), name: rec.Path, folder: rec.Folder, fresh: true}
	if err := os.Mkdir(d.tbDir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return h, err
	}
	rec.Dev, rec.BornMS, rec.Linked = f.dev, f.bornMS, true
	record := h.path + ".json"
	if err := writeAtomicJSON(record, rec); err != nil {
		return h, err
	}
	drop := func(err error) (tbHold, error) {
		rerr := os.Remove(record)
		return h, errors.Join(err, rerr)
	}
	err := linkTB(via, h.path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		g, _, ok := statTB(h.path)
		if ok && g.ino == f.ino {
			return h, nil
		}
		rerr := os.Remove(h.path)
		_, derr := drop(nil)
		return h, errors.Join(errReplaced, rerr, derr)
	}
	// EXDEV: another file system. EPERM: not ours and protected_hardlinks. ENOENT: removed, and somebody has it open. Others: no links here.
	file, oerr := os.OpenFile(via, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if oerr != nil {
		return drop(fmt.Errorf("hold %s: %w", rec.Path, errors.Join(err, oerr)))
	}
	st, serr := file.Stat()
	if serr == nil {
		if _, ino := fileID(st); ino != f.ino || !st.Mode().IsRegular() {
			serr = errReplaced
		}
	}
	if serr == nil {
		rec.Linked = false
		serr = writeAtomicJSON(record, rec)
	}
	if serr != nil {
		_, derr := drop(nil)
		return h, errors.Join(serr, file.Close(), derr)
	}
	h.path, h.file = rec.Path, file
	return h, nil
}

// findTB finds a file again that this run took in a former life of the agent. found is false when it is nowhere: then it has the path of
// the missing link.
func (d runDir) findTB(key string, rec tbRecord) (h tbHold, found bool, err error) {
	h = tbHold{key: key, path: d.tbLink(key), name: rec.Path, folder: rec.Folder}
	inode, _ := tbInode(key)
	if f, _, ok := statTB(h.path); ok && f.ino == inode {
		return h, true, nil
	}
	f, _, ok := statTB(rec.Path)
	if f.path = rec.Path; !ok || f.ino != inode || !rec.is(f) {
		return h, false, nil
	}
	again, err := d.holdTB(key, f, rec.Path, rec)
	if errors.Is(err, errReplaced) || errors.Is(err, fs.ErrNotExist) {
		return h, false, nil
	}
	again.fresh = false
	return again, err == nil, err
}

// linksTBs reports whether links are left. What cannot be read has none.
func (d runDir) linksTBs() bool {
	entries, err := os.ReadDir(d.tbDir())
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { _, ok := tbInode(e.Name()); return ok })
}

// unlinkTBs removes the links of a run: everything is taken. The records stay, so that no other run takes these files.
func (d runDir) unlinkTBs() error {
	entries, err := os.ReadDir(d.tbDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if _, ok := tbInode(e.Name()); ok {
			err = errors.Join(err, os.Remove(filepath.Join(d.tbDir(), e.Name())))
		}
	}
	return err
}
