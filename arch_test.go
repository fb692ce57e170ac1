package main

// The shape of the source, checked: sides, file sizes, opening comments, names, package-level state, and the map in ARCHITECTURE.md
// (UPDATE=1 go test -run TestArchitectureMap . writes it). The table is in arch_table_test.go. Standard library only, under a second.

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
)

const archMaxLines = 600

// archSource is every Go file of the root package, parsed; tests are parsed too but not type-checked.
type archSource struct {
	fset  *token.FileSet
	files map[string]*ast.File // without tests
	tests map[string]*ast.File
	pkg   *types.Package
	info  *types.Info
}

// hollowImports answers every import with an empty package: what matters here are only the names that this package defines.
type hollowImports struct{}

func (hollowImports) Import(p string) (*types.Package, error) {
	pkg := types.NewPackage(p, path.Base(p))
	pkg.MarkComplete()
	return pkg, nil
}

func loadArch(t *testing.T) *archSource {
	t.Helper()
	s := &archSource{fset: token.NewFileSet(), files: map[string]*ast.File{}, tests: map[string]*ast.File{}}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var list []*ast.File
	for _, n := range names {
		f, err := parser.ParseFile(s.fset, n, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(n, "_test.go") {
			s.tests[n] = f
			continue
		}
		s.files[n] = f
		list = append(list, f)
	}
	s.pkg, s.info = archCheck(s.fset, list)
	if len(s.info.Uses) < 100 {
		t.Fatalf("only %d uses resolved: the type check does not work", len(s.info.Uses))
	}
	return s
}

// archCheck type-checks as far as hollow imports allow. Errors are expected: build variants of one file declare the same names.
func archCheck(fset *token.FileSet, list []*ast.File) (*types.Package, *types.Info) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: hollowImports{}, Error: func(error) {}}
	pkg, err := conf.Check("main", fset, list, info)
	_ = err // the first of the expected errors
	return pkg, info
}

// sideFaults lists every use of a name that is defined on a side which the using file may not know.
func sideFaults(fset *token.FileSet, pkg *types.Package, info *types.Info, sideOf func(string) string) []string {
	may := map[string][]string{}
	for _, s := range archSides {
		may[s.side] = append(s.may, s.side)
	}
	var faults []string
	for id, obj := range info.Uses {
		if obj.Pkg() != pkg || !obj.Pos().IsValid() {
			continue
		}
		here, there := fset.Position(id.Pos()), fset.Position(obj.Pos()).Filename
		from, to := sideOf(here.Filename), sideOf(there)
		ok := slices.Contains(may[from], to)
		if ok && from == sideLeaf && to == sideShared {
			ok = leafMayName[there]
		}
		if !ok {
			faults = append(faults, fmt.Sprintf("%s:%d (%s) names %s of %s (%s)", here.Filename, here.Line, from, obj.Name(), there, to))
		}
	}
	sort.Strings(faults)
	return faults
}

func TestSides(t *testing.T) {
	s := loadArch(t)
	for n := range s.files {
		if archSide(n) == "" {
			t.Errorf("%s: no side; give it the name of a family, or a line in arch_table_test.go", n)
		}
	}
	for n := range archFiles {
		if s.files[n] == nil {
			t.Errorf("arch_table_test.go places %s, which does not exist", n)
		}
	}
	for _, f := range sideFaults(s.fset, s.pkg, s.info, archSide) {
		t.Error(f)
	}
	for n, f := range s.files {
		if archSide(n) != sideLeaf {
			continue
		}
		for _, im := range f.Imports {
			if p := strings.Trim(im.Path.Value, `"`); !leafImports[p] {
				t.Errorf("%s is a leaf and imports %s", n, p)
			}
		}
	}
}

// TestSidesCatches proves that the check sees a forbidden name, also behind a field, a method and an unresolved import.
func TestSidesCatches(t *testing.T) {
	fset := token.NewFileSet()
	var list []*ast.File
	for name, text := range map[string]string{
		"store.go": "package main\ntype store struct{ n int }\nfunc (s *store) look() int { return s.n }\n",
		"agent.go": "package main\nimport \"example.com/x\"\nfunc good() {}\nfunc bad() { x.Go(func() { new(store).look() }) }\n",
		"wire.go":  "package main\nfunc worse() { good() }\n",
	} {
		f, err := parser.ParseFile(fset, name, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
	}
	pkg, info := archCheck(fset, list)
	got := sideFaults(fset, pkg, info, archSide)
	want := []string{
		"agent.go:4 (agent) names look of store.go (server)",
		"agent.go:4 (agent) names store of store.go (server)",
		"wire.go:2 (shared) names good of agent.go (agent)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFileShape(t *testing.T) {
	s := loadArch(t)
	banned := regexp.MustCompile(`(^|_)(util|utils|helper|helpers|manager|common|base|misc)(_|\.)`)
	variant := regexp.MustCompile(`_(windows|js|wasm|arm|arm64|amd64|386|unix)(_test)?\.go$`)
	all := map[string]*ast.File{}
	for n, f := range s.files {
		all[n] = f
	}
	for n, f := range s.tests {
		all[n] = f
	}
	for n, f := range all {
		if lines := s.fset.File(f.Pos()).LineCount(); lines > archMaxLines {
			t.Errorf("%s has %d lines, more than %d: split it by subject", n, lines, archMaxLines)
		}
		if s.files[n] != nil && len(archDuty(f)) < 20 {
			t.Errorf("%s: no opening comment that says its duty", n)
		}
		if banned.MatchString(n) {
			t.Errorf("%s: the name says nothing", n)
		}
		if variant.MatchString(n) {
			t.Errorf("%s: the ending is a build constraint", n)
		}
	}
}

// TestNoLooseState: nothing exported at package level, no init, and no package-level variable is ever written to.
func TestNoLooseState(t *testing.T) {
	s := loadArch(t)
	for n, f := range s.files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					t.Errorf("%s: init()", n)
				}
				if d.Recv == nil && d.Name.IsExported() {
					t.Errorf("%s exports %s: staticcheck cannot see whether it is used", n, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					for _, id := range specNames(spec) {
						if id.IsExported() {
							t.Errorf("%s exports %s", n, id.Name)
						}
					}
				}
			}
		}
		ast.Inspect(f, func(node ast.Node) bool {
			for _, target := range written(node) {
				id := rootIdent(target)
				if id == nil {
					continue
				}
				if v, ok := s.info.Uses[id].(*types.Var); ok && v.Parent() == s.pkg.Scope() {
					t.Errorf("%s: package-level variable %s is written to", s.fset.Position(id.Pos()), id.Name)
				}
			}
			if a, ok := node.(*ast.AssignStmt); ok && a.Tok == token.ASSIGN && len(a.Lhs) == 1 && len(a.Rhs) == 1 {
				id, blank := a.Lhs[0].(*ast.Ident)
				_, call := a.Rhs[0].(*ast.CallExpr)
				if blank && id.Name == "_" && call {
					t.Errorf("%s: the error is swallowed by _ =", s.fset.Position(a.Pos()))
				}
			}
			return true
		})
	}
}

// written lists what a statement assigns to.
func written(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		return n.Lhs
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			return []ast.Expr{n.Key, n.Value}
		}
	}
	return nil
}

// rootIdent is x in x, x.f, x[i], *x; nil when the expression starts otherwise.
func rootIdent(e ast.Expr) *ast.Ident {
	switch e := e.(type) {
	case *ast.Ident:
		return e
	case *ast.SelectorExpr:
		return rootIdent(e.X)
	case *ast.IndexExpr:
		return rootIdent(e.X)
	case *ast.StarExpr:
		return rootIdent(e.X)
	case *ast.ParenExpr:
		return rootIdent(e.X)
	}
	return nil
}

func specNames(spec ast.Spec) []*ast.Ident {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		return []*ast.Ident{s.Name}
	case *ast.ValueSpec:
		return s.Names
	}
	return nil
}

// archDuty is the first sentence of a file's opening comment.
func archDuty(f *ast.File) string {
	limit := token.Pos(1 << 40)
	for _, d := range f.Decls {
		limit = min(limit, d.Pos())
	}
	for _, g := range f.Comments {
		text := strings.Join(strings.Fields(g.Text()), " ") // Text drops //go: directives
		if g.Pos() > limit {
			break
		}
		if text == "" {
			continue
		}
		for i := range text {
			if text[i] == '.' && (i+1 == len(text) || text[i+1] == ' ') {
				return text[:i+1]
			}
		}
		return text
	}
	return ""
}

// archMap renders the map: one table a side, every Go file with its duty.
func archMap(s *archSource) string {
	var b strings.Builder
	names := make([]string, 0, len(s.files))
	for n := range s.files {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, side := range archSides {
		fmt.Fprintf(&b, "\n### %s: %s\n\n", side.side, side.about)
		may := "itself"
		if len(side.may) > 0 {
			may += ", " + strings.Join(side.may, ", ")
		}
		fmt.Fprintf(&b, "May name: %s.\n\n| file | duty |\n|---|---|\n", may)
		for _, n := range names {
			if archSide(n) == side.side {
				fmt.Fprintf(&b, "| `%s` | %s |\n", n, strings.ReplaceAll(archDuty(s.files[n]), "|", "\\|"))
			}
		}
	}
	return b.String() + "\n"
}

func TestArchitectureMap(t *testing.T) {
	compareBetween(t, "ARCHITECTURE.md", "<!-- map: begin -->\n", "<!-- map: end -->", archMap(loadArch(t)))
}

// compareBetween fails when what lies between two marks of a file is not text; with UPDATE=1 it puts it there.
func compareBetween(t *testing.T, file, begin, end, text string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(b), begin)
	have, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s: the marks %q and %q are gone", file, begin, end)
	}
	if have == text {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Fatalf("%s is out of date; write it with UPDATE=1 go test -run '%s' .", file, t.Name())
	}
	if err := os.WriteFile(file, []byte(head+begin+text+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
