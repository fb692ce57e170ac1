package main

// The page: static files, built in or, for developers, from a folder. It hands out files and the policy that they live under; what they
// show comes through /api/v1 like everything else.

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path"
	"time"
)

//go:embed ui
var uiFiles embed.FS

// uiPolicy is what a page may do: its own scripts, styles and pictures, requests to this server, and no text turned into markup or script.
const uiPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// uiTypes are the content types by ending. Written out: a module with a wrong one does not run, and the system's own table may say anything.
var uiTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".mjs":  "text/javascript; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".md":   "text/plain; charset=utf-8",
	"":      "text/plain; charset=utf-8",
}

// pageRoutes are the page's paths, and its files.
func pageRoutes() []route {
	return []route{
		{"GET /{$}", scopePublic, (*server).getPage, "The page: list of runs."},
		{"GET /runs/{run}", scopePublic, (*server).getPage, "The page: one run."},
		{"GET /login", scopePublic, (*server).getPage, "The page: logging in."},
		{"GET /ui/{file...}", scopePublic, (*server).getPageFile, "Files of the page."},
	}
}

// getPage answers the one document of the page, at whatever path it was asked for; the document looks at its address itself.
func (s *server) getPage(w http.ResponseWriter, r *http.Request) error {
	return s.answerPage(w, r, "index.html")
}

func (s *server) getPageFile(w http.ResponseWriter, r *http.Request) error {
	return s.answerPage(w, r, r.PathValue("file"))
}

func (s *server) answerPage(w http.ResponseWriter, r *http.Request, name string) error {
	missing := newProblem(codeNotFound, "open /", "the page has no file %q", name)
	kind, ok := uiTypes[path.Ext(name)]
	if !ok || !fs.ValidPath(name) {
		return missing
	}
	body, err := s.readPageFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return missing
	}
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Security-Policy", uiPolicy)
	h.Set("Cache-Control", "no-cache") // kept, but asked about each time: a new server has a new page
	h.Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	return nil
}

// readPageFile reads one file. A folder counts as missing.
func (s *server) readPageFile(name string) ([]byte, error) {
	if s.cfg.UIDir == "" {
		return readUIFile(uiFiles, "ui/"+name)
	}
	root, err := os.OpenRoot(s.cfg.UIDir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return readUIFile(root.FS(), name)
}

func readUIFile(files fs.FS, name string) ([]byte, error) {
	st, err := fs.Stat(files, name)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fs.ErrNotExist
	}
	return fs.ReadFile(files, name)
}
