package main

// Looking for event files in the folders of a run: breadth first, bounded, cheap when nothing changes. A folder that did not change is not
// read again; one that the kernel watches for us is not even looked at. It opens no file and decides nothing.

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	tbFoldersMost = 4000            // folders of a run: a look at one that did not change is one stat, 2 us
	tbEntriesMost = 20_000          // names read in one round, 0.3 us each when cached
	tbEntriesEach = 10_000          // names read in one folder
	tbAlienMost   = 200             // folders on another file system than the one it started on
	tbLinksMost   = 64              // symbolic links looked at in one folder: data sets are made of thousands
	tbDepthWork   = 6               // below the working_dir; hydra with lightning needs 5
	tbDepthTB     = 12              // below --tb
	tbRacy        = 2 * time.Second // a folder changed so shortly before it was read may have changed once more within the same tick
	tbNotesMost   = 10_000
)

// tbNotes is what was noticed since the last time.
type tbNotes struct {
	files   []string // new event files
	folders []string // folders with a new folder in them
	gone    []string // folders that are not watched any more
	lost    bool     // more than can be told: look everywhere
}

// tbSkipFolder reports whether a folder of this name holds no event files of a run, but perhaps a great many others.
func tbSkipFolder(name string) bool {
	switch name {
	case "node_modules", "site-packages", "dist-packages", "__pycache__":
		return true
	}
	return strings.HasPrefix(name, ".")
}

// tbRoot is a folder of a run, as given and as it really is.
type tbRoot struct {
	dir  string // as given, absolute
	real string // where it is not there: what it would be
	tb   bool   // --tb, else the working_dir
	name string // how a folder that a link leads to is called; "" = no such folder
}

// tbFolder is one folder as it was last read.
type tbFolder struct {
	path    string // real
	depth   int
	dev     uint64
	ino     uint64
	changed time.Time
	read    time.Time // zero: not yet, or to be read again
	watched bool
	subs    []*tbFolder
}

// tbFolderWalk is the walk over the folders of one run. One goroutine at a time.
type tbFolderWalk struct {
	watch func(dir string) bool // asks for notices; they come from before the folder is read

	given  []tbRoot
	roots  []*tbFolder          // parallel to given, nil while it is not there
	linked map[string]tbRoot    // real path of a folder that a symbolic link leads to -> how it is called
	byPath map[string]*tbFolder // all
}

// tbWalked is what a round found.
type tbWalked struct {
	files   []string // real paths of event files in folders that were read
	roots   []tbRoot // all that are there, linked ones too
	took    time.Duration
	cost    time.Duration // processor time, at least a tenth of took: a slow disk is spared too, a busy machine is no slow disk
	still   bool          // every folder is watched: nothing is to be looked for
	cut     bool          // not all could be read in this round
	entries int
}

func newTBWalk(spec runSpec, watch func(string) bool) *tbFolderWalk {
	w := &tbFolderWalk{watch: watch, linked: map[string]tbRoot{}, byPath: map[string]*tbFolder{}}
	for _, d := range spec.TB {
		if !filepath.IsAbs(d) {
			d = filepath.Join(spec.WorkingDir, d)
		}
		d = filepath.Clean(d)
		w.given = append(w.given, tbRoot{dir: d, real: d, tb: true})
	}
	if filepath.IsAbs(spec.WorkingDir) {
		d := filepath.Clean(spec.WorkingDir)
		w.given = append(w.given, tbRoot{dir: d, real: d})
	}
	w.roots = make([]*tbFolder, len(w.given))
	return w
}

// again makes the next round read these folders again.
func (w *tbFolderWalk) again(n tbNotes) {
	for _, d := range n.folders {
		if f := w.byPath[d]; f != nil {
			f.read = time.Time{}
		}
	}
	for _, d := range n.gone {
		if f := w.byPath[d]; f != nil {
			f.read, f.watched = time.Time{}, false
		}
	}
}

// tbRound is one round under way.
type tbRound struct {
	*tbFolderWalk
	tbWalked
	all   bool // look at watched folders too
	root  tbRoot
	links map[string]tbRoot
	alien map[uint64]int
}

// round looks at all folders.
func (w *tbFolderWalk) round(all bool) tbWalked {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, spent := time.Now(), threadTime()
	r := tbRound{tbFolderWalk: w, all: all, links: map[string]tbRoot{}, alien: map[uint64]int{}}
	r.still = true
	seen := map[[2]uint64]bool{}
	byPath := map[string]*tbFolder{}
	for i := range w.given {
		g := &w.given[i]
		real, err := filepath.EvalSymlinks(g.dir)
		if err != nil {
			g.real, w.roots[i], r.still = tbWillBe(g.dir), nil, false
			r.tbWalked.roots = append(r.tbWalked.roots, *g)
			continue
		}
		if g.real != real || w.roots[i] == nil {
			g.real, w.roots[i] = real, &tbFolder{path: real}
		}
		r.tbWalked.roots = append(r.tbWalked.roots, *g)
		most := tbDepthWork
		if g.tb {
			most = tbDepthTB
		}
		queue := []*tbFolder{w.roots[i]}
		for len(queue) > 0 && len(byPath) < tbFoldersMost {
			f := queue[0]
			queue = queue[1:]
			r.root = *g
			if l, ok := w.linked[f.path]; ok && l.tb == g.tb {
				r.links[f.path] = l
			}
			if !r.visit(f, most) {
				continue
			}
			id := [2]uint64{f.dev, f.ino}
			if seen[id] {
				continue
			}
			seen[id], byPath[f.path] = true, f
			if f.dev != w.roots[i].dev {
				if r.alien[f.dev]++; r.alien[f.dev] > tbAlienMost {
					continue
				}
			}
			queue = append(queue, f.subs...)
		}
	}
	w.byPath, w.linked = byPath, r.links
	for _, l := range r.links {
		r.tbWalked.roots = append(r.tbWalked.roots, l)
	}
	r.took = time.Since(began)
	if r.cost = r.took; tbSeesProcs { // threadTime knows only there
		r.cost = max(threadTime()-spent, r.took/10)
	}
	return r.tbWalked
}

// visit brings what is known of a folder up to date; false: it is not there.
func (r *tbRound) visit(f *tbFolder, most int) bool {
	if f.watched && !f.read.IsZero() && !r.all {
		return true
	}
	if !f.watched {
		f.watched = r.watch(f.path)
		r.still = r.still && f.watched
	}
	st, err := os.Stat(f.path)
	if err != nil || !st.IsDir() {
		f.read, f.watched, f.subs, r.still = time.Time{}, false, nil, false
		return false
	}
	dev, ino := fileID(st)
	if (dev != f.dev || ino != f.ino) && !f.read.IsZero() {
		f.read, f.subs, f.watched = time.Time{}, nil, r.watch(f.path) // another folder by this name
	}
	f.dev, f.ino = dev, ino
	if !f.read.IsZero() && st.ModTime().Equal(f.changed) && f.read.Sub(f.changed) > tbRacy {
		return true
	}
	if r.entries >= tbEntriesMost {
		r.still, r.cut = false, true // the rest in the next round
		return true
	}
	f.changed, f.read = st.ModTime(), time.Now()
	r.list(f, most)
	return true
}

// list reads the names in a folder.
func (r *tbRound) list(f *tbFolder, most int) {
	d, err := os.Open(f.path)
	if err != nil {
		f.subs = nil // not ours to look into
		return
	}
	defer d.Close()
	old := map[string]*tbFolder{}
	for _, s := range f.subs {
		old[s.path] = s
	}
	var subs []*tbFolder
	var files []string
	add := func(path string) {
		s := old[path]
		if s == nil {
			s = &tbFolder{path: path, depth: f.depth + 1}
		}
		subs = append(subs, s)
	}
	links := 0
	for n := 0; n < tbEntriesEach; {
		entries, err := d.ReadDir(1024)
		n += len(entries)
		r.entries += len(entries)
		for _, e := range entries {
			name, path := e.Name(), filepath.Join(f.path, e.Name())
			switch {
			case name == "pyvenv.cfg" || name == "conda-meta":
				f.subs = nil // a python environment
				return
			case e.IsDir():
				if f.depth < most && !tbSkipFolder(name) && !tbKernelFolder(path) {
					add(path)
				}
			case e.Type()&fs.ModeSymlink != 0:
				if links++; links <= tbLinksMost && f.depth < most && !tbSkipFolder(name) {
					if real, ok := r.follow(f, path); ok {
						add(real)
					}
				}
			case e.Type().IsRegular() && strings.Contains(name, tbMark):
				files = append(files, path)
			}
		}
		if err != nil {
			break
		}
	}
	f.subs = subs
	r.files = append(r.files, files...)
}

// follow finds the folder that a symbolic link leads to, and remembers what it is called in this run when it lies elsewhere.
func (r *tbRound) follow(f *tbFolder, path string) (real string, ok bool) {
	st, err := os.Stat(path)
	if err != nil || !st.IsDir() {
		return "", false
	}
	if real, err = filepath.EvalSymlinks(path); err != nil || tbKernelFolder(real) {
		return "", false
	}
	if _, inside := tbBelow(r.root.real, real); !inside {
		roots := []tbRoot{r.root}
		for _, l := range r.tbFolderWalk.linked {
			roots = append(roots, l)
		}
		l := tbRoot{dir: path, real: real, tb: r.root.tb, name: tbJoin(tbFolderName(roots, f.path), filepath.Base(path))}
		r.links[real], r.tbFolderWalk.linked[real] = l, l
	}
	return real, true
}

// tbKernelFolder reports whether a path is a view into the kernel, endless and no place for files.
func tbKernelFolder(path string) bool { return path == "/proc" || path == "/sys" || path == "/dev" }

// tbWillBe is the real path of a folder that is not there, by the links above it.
func tbWillBe(dir string) string {
	for up := filepath.Dir(dir); ; up = filepath.Dir(up) {
		if real, err := filepath.EvalSymlinks(up); err == nil {
			return filepath.Join(real, strings.TrimPrefix(dir, up))
		} else if up == filepath.Dir(up) {
			return dir
		}
	}
}

// tbBelow gives the way from dir to path, "" when they are the same.
func tbBelow(dir, path string) (rest string, ok bool) {
	if dir == "" {
		return "", false
	}
	if dir == path {
		return "", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func tbJoin(a, b string) string { return strings.TrimPrefix(a+"/"+b, "/") }

// tbNearest gives the deepest of the roots of a kind that a folder lies below. What a link leads to is the least near.
func tbNearest(roots []tbRoot, dir string, tb bool) (near tbRoot, rest string, depth int) {
	for _, r := range roots {
		way, ok := tbBelow(r.real, dir)
		if !ok || r.tb != tb {
			continue
		}
		k := len(r.real) + 1
		if r.name != "" {
			k = 1
		}
		if k > depth {
			near, rest, depth = r, way, k
		}
	}
	return near, rest, depth
}

// tbFolderName is what the series of a folder go by: its path below the --tb folder that it lies in, else below the working_dir, "" for
// these themselves, and the whole path elsewhere.
func tbFolderName(roots []tbRoot, dir string) string {
	for _, tb := range []bool{true, false} {
		if r, rest, depth := tbNearest(roots, dir, tb); depth > 0 {
			return strings.TrimSuffix(tbJoin(r.name, rest), "/")
		}
	}
	return dir
}
