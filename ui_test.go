package main

// The page's files: vendored ones are what they claim to be, own ones hold nothing inline and nothing from elsewhere, all of them fit
// together, and they are served under the policy that they live by.

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const uiMostBytes = 300_000 // of all files together, as they are

// uiAll reads every built-in file, by its name below ui/.
func uiAll(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(uiFiles, "ui", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := uiFiles.ReadFile(p)
		all[strings.TrimPrefix(p, "ui/")] = string(b)
		return err
	})
	if err != nil || len(all) < 15 {
		t.Fatalf("%d files: %v", len(all), err)
	}
	return all
}

func vendored(name string) bool { return strings.HasPrefix(name, "vendor/") }

func TestUIVendor(t *testing.T) {
	all := uiAll(t)
	sums := map[string]string{}
	for line := range strings.Lines(all["vendor/SHA256SUMS"]) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			t.Fatalf("SHA256SUMS: %q", line)
		}
		sums[name] = sum
	}
	seen := 0
	for name, text := range all {
		base := path.Base(name)
		if !vendored(name) || slices.Contains([]string{"SHA256SUMS", "LICENSES", "VENDOR.md"}, base) {
			continue
		}
		seen++
		if got := sha256.Sum256([]byte(text)); hex.EncodeToString(got[:]) != sums[base] {
			t.Errorf("%s is not the file of SHA256SUMS", name)
		}
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(base) + "` \\| (\\S+ \\d+\\.\\d+\\.\\d+) \\|").FindStringSubmatch(all["vendor/VENDOR.md"])
		if row == nil {
			t.Errorf("VENDOR.md does not say where %s is from", base)
		} else if !strings.Contains(all["vendor/LICENSES"], "=== "+row[1]+" (") {
			t.Errorf("LICENSES lacks %s", row[1])
		}
	}
	if seen != len(sums) || seen < 5 {
		t.Errorf("%d vendored files, %d sums", seen, len(sums))
	}
}

func TestUISize(t *testing.T) {
	total := 0
	for _, text := range uiAll(t) {
		total += len(text)
	}
	if total > uiMostBytes {
		t.Errorf("%d bytes, at most %d", total, uiMostBytes)
	}
}

// uiForbidden is what own files never hold.
var uiForbidden = map[string]*regexp.Regexp{
	"an address of elsewhere": regexp.MustCompile(`(?i)(https?|wss?):|["'(]//\w`),
	"an inline style":         regexp.MustCompile(`(?i)\sstyle\s*=|cssText`),
	"an inline handler":       regexp.MustCompile(`\son[a-z]+\s*=`), // onClick=${...} of a template is a function
	"text as markup":          regexp.MustCompile(`(?i)innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|srcdoc`),
	"text as script":          regexp.MustCompile(`\beval\(|new Function|javascript:|import\(`),
	"a cookie":                regexp.MustCompile(`document\.cookie`),
}

func TestUINothingInline(t *testing.T) {
	for name, text := range uiAll(t) {
		if vendored(name) {
			continue
		}
		text = strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "")
		for what, re := range uiForbidden {
			if m := re.FindString(text); m != "" {
				t.Errorf("ui/%s holds %s: %q", name, what, m)
			}
		}
	}
	for what, bad := range map[string]string{
		"an address of elsewhere": `import x from "https://cdn.example/x.mjs"`, "an inline style": `<p style="a">`, "an inline handler": `<a onclick="x()">`,
		"text as markup": `e.innerHTML = s`, "text as script": `eval(s)`, "a cookie": `document.cookie`,
	} {
		if !uiForbidden[what].MatchString(bad) {
			t.Errorf("the check for %s does not see %q", what, bad)
		}
	}
	html := uiAll(t)["index.html"]
	for _, m := range regexp.MustCompile(`(?s)<script([^>]*)>(.*?)</script>`).FindAllStringSubmatch(html, -1) {
		if !strings.Contains(m[1], " src=") || strings.TrimSpace(m[2]) != "" {
			t.Errorf("an inline script: %s", m[0])
		}
	}
	if strings.Contains(html, "<style") {
		t.Error("an inline style sheet")
	}
}

// TestUIFitsTogether: every import and every address in the document exists, no module is left over, and each is fetched ahead.
func TestUIFitsTogether(t *testing.T) {
	all := uiAll(t)
	reached := map[string]bool{}
	var follow func(name string)
	follow = func(name string) {
		if reached[name] {
			return
		}
		reached[name] = true
		for _, m := range regexp.MustCompile(`(?m)^(?:import|export) (?:[^'"=\n]* from )?['"]([^'"\n]+)['"]`).FindAllStringSubmatch(all[name], -1) {
			to := path.Join(path.Dir(name), m[1])
			if !strings.HasPrefix(m[1], ".") || all[to] == "" {
				t.Errorf("ui/%s imports %q, which is not there", name, m[1])
				continue
			}
			follow(to)
		}
	}
	follow("main.mjs")
	html := all["index.html"]
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(html, -1) {
		name, ok := strings.CutPrefix(m[1], "/ui/")
		if !ok || all[name] == "" {
			t.Errorf("index.html names %s, which is not there", m[1])
		}
	}
	for name := range all {
		if path.Ext(name) != ".mjs" {
			continue
		}
		if !reached[name] {
			t.Errorf("nothing imports ui/%s", name)
		}
		if !strings.Contains(html, `"/ui/`+name+`"`) {
			t.Errorf("index.html does not fetch ui/%s ahead", name)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^  (\w+): \(\) =>`).FindAllStringSubmatch(all["icons.mjs"], -1) {
		used := regexp.MustCompile(`['"]` + m[1] + `['"]`)
		if !slices.ContainsFunc([]string{"kit.mjs", "runs.mjs", "run.mjs", "log.mjs", "chart.mjs", "main.mjs"}, func(f string) bool { return used.MatchString(all[f]) }) {
			t.Errorf("no page uses the icon %s", m[1])
		}
	}
}

func TestUIServed(t *testing.T) {
	f := newDoors(t)
	for name, text := range uiAll(t) {
		w := f.do(f.request("", "GET", "/ui/"+name, ""))
		if w.Code != 200 || w.Body.String() != text || uiTypes[path.Ext(name)] == "" || w.Header().Get("Content-Type") != uiTypes[path.Ext(name)] {
			t.Errorf("/ui/%s: %d %s", name, w.Code, w.Header().Get("Content-Type"))
		}
	}
	for _, at := range []string{"/", "/login", "/runs/12.1", "/runs/%3Cimg%3E", "/runs/x?tab=log"} {
		w := f.do(f.request("", "GET", at, ""))
		h := w.Header()
		if w.Code != 200 || !strings.Contains(w.Body.String(), `src="/ui/main.mjs"`) || h.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: %d %s", at, w.Code, w.Body)
		}
		csp := h.Get("Content-Security-Policy")
		for _, must := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "form-action 'none'"} {
			if !strings.Contains(csp, must) {
				t.Errorf("%s: the policy lacks %s: %s", at, must, csp)
			}
		}
		if strings.Contains(csp, "unsafe") || h.Get("Cache-Control") != "no-cache" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: headers %v", at, h)
		}
	}
	w := f.do(f.request("", "GET", "/ui/main.mjs", ""))
	etag := w.Header().Get("ETag")
	if w = f.do(f.request("", "GET", "/ui/main.mjs", "", "If-None-Match: "+etag)); etag == "" || w.Code != 304 || w.Body.Len() != 0 {
		t.Errorf("with its ETag %s: %d", etag, w.Code)
	}
	if w = f.do(f.request("", "HEAD", "/ui/main.mjs", "")); w.Code != 200 || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d, %d bytes", w.Code, w.Body.Len())
	}
	for _, c := range []apiCase{
		{"no such file", "", "GET", "/ui/x.mjs", nil, "", 404, codeNotFound, "x.mjs"},
		{"a folder", "", "GET", "/ui/vendor", nil, "", 404, codeNotFound, ""},
		{"the folder itself", "", "GET", "/ui/", nil, "", 404, codeNotFound, ""},
		{"out of it", "", "GET", "/ui/%2e%2e/schema.sql", nil, "", 404, codeNotFound, ""},
		{"an ending that is not served", "", "GET", "/ui/main.go", nil, "", 404, codeNotFound, ""},
		{"below a run", "", "GET", "/runs/1/log", nil, "", 404, codeNotFound, ""},
		{"only reading", "", "POST", "/runs/1", nil, "", 405, codeMethod, "GET, HEAD"},
		{"the API is no page", "", "GET", "/api/v1/nothing", nil, "", 404, codeNotFound, "no route"},
		{"another host", "", "GET", "/", []string{"Host: evil.example"}, "", 421, codeHost, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if w := f.check(t, c); w.Header().Get("Content-Security-Policy") != "default-src 'none'; frame-ancestors 'none'" {
				t.Errorf("policy %q", w.Header().Get("Content-Security-Policy"))
			}
		})
	}
}

// With ui_dir the files come from there, as they are now, and nothing from outside of it.
func TestUIDir(t *testing.T) {
	f := newDoors(t)
	outside := t.TempDir()
	f.s.cfg.UIDir = t.TempDir()
	put := func(dir, name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	secret := put(outside, "secret.mjs", "secret")
	put(f.s.cfg.UIDir, "index.html", "one")
	if err := os.Symlink(secret, filepath.Join(f.s.cfg.UIDir, "out.mjs")); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		put(f.s.cfg.UIDir, "index.html", text)
		if w := f.do(f.request("", "GET", "/", "")); w.Body.String() != text {
			t.Errorf("got %q, want %q", w.Body, text)
		}
	}
	if w := f.do(f.request("", "GET", "/ui/out.mjs", "")); w.Code == 200 || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("a link out of the folder: %d %s", w.Code, w.Body)
	}
	if w := f.do(f.request("", "GET", "/ui/main.mjs", "")); w.Code != 404 {
		t.Errorf("a file that is only built in: %d", w.Code)
	}
}
