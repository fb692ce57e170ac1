package main

// The papers, checked: every path that a Markdown file names exists, README has its commands, docs/errors.md is the table of
// problem.go, docs/rest.md that of http.go (UPDATE=1 go test -run TestDocs . writes both), and go.mod stays short.

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// markdownFiles lists the Markdown files of the repository, those of hidden and vendored folders left out.
func markdownFiles(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "vendor" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// namedPaths lists what a Markdown text calls a path of the repository: targets of links, and words in back quotes that start with one
// of the repository's folders or end like one of its files.
func namedPaths(text string) []string {
	var paths []string
	for _, m := range regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(m[1], "://") && !strings.HasPrefix(m[1], "mailto:") {
			paths = append(paths, m[1])
		}
	}
	folder := regexp.MustCompile(`^\.?/?(docs|tests|examples|tools|migrations|\.ci)/[\w./*-]*$`)
	file := regexp.MustCompile(`^[\w./*-]+\.(go|md|sql)$|^(Makefile|LICENSE|NOTICE|go\.mod)$`)
	for _, m := range regexp.MustCompile("`([^`\\s]+)`").FindAllStringSubmatch(text, -1) {
		if folder.MatchString(m[1]) || file.MatchString(m[1]) {
			paths = append(paths, m[1])
		}
	}
	return paths
}

func TestDocsNamePathsThatExist(t *testing.T) {
	seen := 0
	for _, md := range markdownFiles(t) {
		b, err := os.ReadFile(md)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range namedPaths(string(b)) {
			seen++
			here, herr := filepath.Glob(filepath.Join(filepath.Dir(md), p))
			root, rerr := filepath.Glob(p)
			if herr != nil || rerr != nil || len(here)+len(root) == 0 {
				t.Errorf("%s names %s, which does not exist", md, p)
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d paths found in all Markdown files: the search is broken", seen)
	}
}

// TestDocsReadmeCommands: the two commands a stranger starts with come first, and every gpuctl command line in README starts with a
// command of this program. That they work is proved by .ci/run in a fresh clone.
func TestDocsReadmeCommands(t *testing.T) {
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	demo, test := strings.Index(string(b), "go run . demo"), strings.Index(string(b), "go test ./...")
	up := strings.Index(string(b), "gpuctl up")
	if demo < 0 || test < demo || up < test {
		t.Errorf("README.md: want `go run . demo`, then `go test ./...`, then the quick start with `gpuctl up`; found at %d, %d, %d", demo, test, up)
	}
	for _, must := range []string{"gpuctl go", "gpuctl status", "gpuctl logs", "curl ", "GPUCTL_HOME"} {
		if !strings.Contains(string(b), must) {
			t.Errorf("README.md does not show %q", must)
		}
	}
}

// TestDocsReadmeInChinese: README.zh-CN.md shows the commands of README.md, all but those that speak REST.
func TestDocsReadmeInChinese(t *testing.T) {
	commands := func(path string) []string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(b), -1) {
			for line := range strings.Lines(block[1]) {
				if command, _, _ := strings.Cut(line, "  #"); !strings.Contains(block[1], "curl") {
					found = append(found, strings.TrimSpace(command))
				}
			}
		}
		return found
	}
	english, chinese := commands("README.md"), commands("README.zh-CN.md")
	if len(english) < 10 || !slices.Equal(english, chinese) {
		t.Errorf("README.md shows\n%s\nREADME.zh-CN.md\n%s", strings.Join(english, "\n"), strings.Join(chinese, "\n"))
	}
}

func TestDocsErrors(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n| code | HTTP | exit | title | what it means |\n|---|---|---|---|---|\n")
	for _, k := range problemKinds {
		fmt.Fprintf(&b, "| `%s` | %d | %d | %s | %s |\n", k.code, k.status, k.exit, k.title, k.means)
	}
	b.WriteString("\n")
	compareBetween(t, "docs/errors.md", "<!-- errors: begin -->\n", "<!-- errors: end -->", b.String())
}

func TestDocsRoutes(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n| route | scope | what it does |\n|---|---|---|\n")
	for _, rt := range doorRoutes() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", rt.pattern, rt.scope, strings.ReplaceAll(rt.summary, "|", "\\|"))
	}
	b.WriteString("\n")
	compareBetween(t, "docs/rest.md", "<!-- routes: begin -->\n", "<!-- routes: end -->", b.String())
}

// TestDocsProblemTable: codes are unique, every status is an error's, and no exit code is one that means something else.
func TestDocsProblemTable(t *testing.T) {
	exits := map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 124: true, 130: true}
	seen := map[string]bool{}
	for _, k := range problemKinds {
		if seen[k.code] || k.status < 400 || !exits[k.exit] || !strings.HasSuffix(k.means, ".") {
			t.Errorf("row %+v is doubled or odd", k)
		}
		seen[k.code] = true
	}
}

// TestDocsFewDependencies: at most 14 direct requirements, and NOTICE names each of them.
func TestDocsFewDependencies(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	notice, err := os.ReadFile("NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	direct := 0
	for _, m := range regexp.MustCompile(`(?m)^\s+(\S+\.\S+/\S+) v\S+(.*)$`).FindAllStringSubmatch(string(mod), -1) {
		if !strings.Contains(m[2], "// indirect") {
			direct++
		}
		if !strings.Contains(string(notice), m[1]) {
			t.Errorf("NOTICE does not name %s", m[1])
		}
	}
	if direct == 0 || direct > 14 {
		t.Errorf("%d direct dependencies, at most 14 are allowed", direct)
	}
}
