package main_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// floors are the root folders. An import between two of them goes to a lower floor. docs/HACKING.md draws them.
var floors = map[string]int{
	"cmd":        8,
	"smtpfilter": 7, "milter": 7, "doors": 7,
	"policy": 6, "reload": 6,
	"index":   5,
	"sources": 4, "records": 4,
	"lists": 3,
	"bloom": 2, "mail": 2,
	"internal": 1, "docs": 1, "packaging": 1,
}

// arrows are the imports that a folder allows among its own packages ("." is the folder itself). In "a > b > c" the
// package a may import b and c, and whatever b and c may import by other chains.
var arrows = map[string][]string{
	"cmd": {
		"blockd > blockd/internal/doctor > blockd/internal/control > blockd/internal/daemon > blockd/internal/subscription > blockd/internal/config",
		"blockd/internal/subscription > blockd/internal/setup",
		"blockd/internal/daemon > blockd/internal/upgrade", "blockd/internal/daemon > blockd/internal/carried",
		"blockd/internal/daemon > blockd/internal/version", "blockd > blockd/internal/overlap",
		"blockd > blockd/internal/migration/owners > blockd/internal/migration > blockd/internal/migration/internal/original",
		"blockd > blockd/internal/trial > blockd/internal/migration", "blockd/internal/trial > blockd/internal/config",
	},
	"smtpfilter": {"server > session > upstream > wire", "session > parse > wire"},
	"doors": {
		"httpapi > forget > receipt", "keptfilter > export",
		"httpapi > httpapi/fastpath", "httpapi > httpapi/provider", "httpapi > httpapi/session",
	},
	"policy": {"printout > . > hits > verdict > reply", "junk > .", ". > rule > verdict", ". > ask > verdict", "ask/postgres > ask", "ask/redis > ask"},
	"reload": {". > builder"},
	"index": {
		"live/shared/postgres > live/shared > live > .", "live/shared/redis > live/shared", "live/shared/relay > live/shared",
		"kept > .", ". > internal/build > internal/segment > internal/format > internal/memory",
	},
	"sources": {
		"mirror/postgres > mirror/query > mirror", "mirror/mysql > mirror/query", "mirror/sqlite > mirror/query", "mirror/ldap > mirror/query",
		"mirror/redis > mirror", "mirror/s3 > mirror", "mirror/preset > mirror",
	},
	"records":  {"letter > history", "repeat > history", "rollup > history"},
	"lists":    {". > pattern"},
	"bloom":    {"redisfilter > filter"},
	"mail":     {"header > addr", "digest > addr"},
	"internal": {"secret > durable"},
}

// Bounds of today, which may only fall: whoever makes one smaller writes the smaller number here.
var (
	mostFiles = 30 // product files of a package
	manyFiles = map[string]int{
		"cmd/blockd": 54, "cmd/blockd/internal/config": 44, "doors/httpapi": 51, "lists": 56,
	}
	mostMethods = 60 // methods of a type
	manyMethods = map[string]int{
		"cmd/blockd/internal/config.Config": 96, "doors/httpapi.Server": 165, "index.Index": 76,
		"index/live.Set": 62, "lists.reading": 91, "reload.Reloader": 80, "smtpfilter/session.session": 135,
	}
	rootFiles = []string{"CHANGELOG.md", "LICENSE", "Makefile", "NOTICE", "README.md", "config.toml", "go.mod", "go.sum"}
)

// source is a Go file of the module.
type source struct {
	path    string // from the root, with slashes
	folder  string
	file    *ast.File
	fset    *token.FileSet
	test    bool
	support bool // no product: a test file, what tests share, benchmarks, tools of releases
	kit     bool // what tests share
}

// sources reads all Go files below the root, but those of testdata, of var and dist, and of modules of Node.js.
func sources(t *testing.T, root string) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if base := d.Name(); rel != "." && base[0] == '.' || base == "testdata" || base == "node_modules" || rel == "var" || rel == "dist" {
				return filepath.SkipDir
			}
			return nil
		}
		if path.Ext(rel) != ".go" {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		test := strings.HasSuffix(rel, "_test.go")
		all = append(all, source{rel, path.Dir(rel), file, fset, test, test || isSupport(path.Dir(rel)), within(path.Dir(rel), kits)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// kits are the folders of what tests share, and modules those that only measure and build.
var (
	kits    = []string{"internal/testkit", "cmd/blockd/e2e", "sources/mirror/mirrortest"}
	modules = []string{"internal/bench", "packaging/tools", "packaging/helm/test"}
)

// isSupport tells whether a folder is no part of the product.
func isSupport(folder string) bool { return within(folder, kits) || within(folder, modules) }

// within tells whether a folder is one of some, or below one.
func within(folder string, some []string) bool {
	return slices.ContainsFunc(some, func(s string) bool { return folder == s || strings.HasPrefix(folder, s+"/") })
}

// ours returns the folders of this module that a file imports.
func (s source) ours() (folders []string) {
	for _, i := range s.file.Imports {
		name, _ := strconv.Unquote(i.Path.Value) // the parser has read it
		if folder, ok := strings.CutPrefix(name, "blockd/"); ok {
			folders = append(folders, folder)
		}
	}
	return folders
}

// TestHouse holds the rules of the whole tree: which package may import which, and what no file may contain. A rule
// that nothing checks decays.
func TestHouse(t *testing.T) {
	root := testkit.Root(t)
	all := sources(t, root)
	t.Run("imports point down", func(t *testing.T) { importsPointDown(t, all) })
	t.Run("no package and no type grows", func(t *testing.T) { bounded(t, all) })
	t.Run("the root has its entries", func(t *testing.T) { rootEntries(t, root) })
	t.Run("no init, no sleep", func(t *testing.T) {
		for _, s := range all {
			noInitNoSleep(t, s)
		}
	})
	t.Run("metrics are documented", func(t *testing.T) { metricsAreDocumented(t, root, all) })
	t.Run("documents name files that are there", func(t *testing.T) { namedFilesAreThere(t, root) })
}

func importsPointDown(t *testing.T, all []source) {
	allowed := map[string]map[string]bool{}
	for folder, chains := range arrows {
		allowed[folder] = closure(chains)
	}
	seen := map[string]bool{}
	for _, s := range all {
		if s.support {
			continue
		}
		top, below, _ := strings.Cut(s.folder, "/")
		floor, ok := floors[top]
		if !ok {
			t.Errorf("%s is on no floor", s.folder)
		}
		seen[top] = true
		for _, imp := range s.ours() {
			other, at, _ := strings.Cut(imp, "/")
			switch {
			case isSupport(imp):
				t.Errorf("%s imports %s, which is for tests alone", s.path, imp)
			case other != top && floors[other] >= floor:
				t.Errorf("%s imports %s, which is on no lower floor", s.path, imp)
			case other == top && !allowed[top][name(below)+" > "+name(at)]:
				t.Errorf("%s imports %s: no arrow of %s says so", s.path, imp, top)
			}
		}
	}
	for folder := range floors {
		if !seen[folder] && folder != "docs" {
			t.Errorf("floors has %s, which is no folder with Go files", folder)
		}
	}
}

func name(below string) string {
	if below == "" {
		return "."
	}
	return below
}

// closure is all pairs "a > b" that chains say, directly or by way of others.
func closure(chains []string) map[string]bool {
	next := map[string][]string{}
	for _, chain := range chains {
		names := strings.Split(chain, " > ")
		for i := range names[:len(names)-1] {
			next[names[i]] = append(next[names[i]], names[i+1])
		}
	}
	pairs := map[string]bool{}
	for from := range next {
		for reached := slices.Clone(next[from]); len(reached) > 0; reached = reached[1:] {
			if pair := from + " > " + reached[0]; !pairs[pair] {
				pairs[pair] = true
				reached = append(reached, next[reached[0]]...)
			}
		}
	}
	return pairs
}

// bounded holds the sizes of packages and types.
func bounded(t *testing.T, all []source) {
	files, methods := map[string]int{}, map[string]int{}
	for _, s := range all {
		if s.support {
			continue
		}
		files[s.folder]++
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				methods[s.folder+"."+receiver(f.Recv.List[0].Type)]++
			}
		}
	}
	for _, rule := range []struct {
		what       string
		have, many map[string]int
		most       int
	}{{"product files", files, manyFiles, mostFiles}, {"methods", methods, manyMethods, mostMethods}} {
		for _, name := range slices.Sorted(maps.Keys(rule.have)) {
			n, bound := rule.have[name], max(rule.most, rule.many[name])
			if n > bound {
				t.Errorf("%s has %d %s, and the bound is %d", name, n, rule.what, bound)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(rule.many)) {
			if n := rule.have[name]; n < rule.many[name] {
				t.Errorf("%s has %d %s now: write that in place of %d, or take the row out at %d and less", name, n, rule.what, rule.many[name], rule.most)
			}
		}
	}
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return fmt.Sprintf("%T", e)
}

// rootEntries checks that nothing new stands at the root. Files that git ignores, and those that README.md makes, do
// not count.
func rootEntries(t *testing.T, root string) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	made := []string{"var", "dist", "blockd", "blockd.exe"}
	for _, e := range entries {
		base := e.Name()
		_, floor := floors[base]
		switch {
		case base[0] == '.', slices.Contains(made, base), slices.Contains(rootFiles, base), floor && e.IsDir(), base == "testdata":
		case !e.IsDir() && !slices.Contains([]string{".go", ".md", ".toml", ".sh", ".yaml", ".json", ".mod"}, path.Ext(base)):
		default:
			t.Errorf("%s stands at the root: it has a place in one of the folders (docs/HACKING.md)", base)
		}
	}
	for _, file := range rootFiles {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Error(err)
		}
	}
}

// noInitNoSleep checks two rules of docs/HACKING.md: constructors do the wiring, and a test waits for a condition,
// never for a while. What tests share is held to that as they are.
func noInitNoSleep(t *testing.T, s source) {
	synctest := slices.ContainsFunc(s.file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && n.Name.Name == "init" {
				t.Errorf("%s:%d: an init function", s.path, s.fset.Position(n.Pos()).Line)
			}
		case *ast.SelectorExpr:
			pkg, ok := n.X.(*ast.Ident)
			if ok && pkg.Name == "time" && n.Sel.Name == "Sleep" && (s.test || s.kit) && !synctest {
				t.Errorf("%s:%d: a test that sleeps outside a synctest bubble", s.path, s.fset.Position(n.Pos()).Line)
			}
		}
		return true
	})
}

// metricsAreDocumented checks that docs/operation.md explains each metric, and no other: an alert at night leads there.
func metricsAreDocumented(t *testing.T, root string, all []source) {
	metric := regexp.MustCompile(`^blockd_[a-z_]+$`)
	inCode := map[string]bool{}
	for _, s := range all {
		if s.support {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && metric.MatchString(text) {
					inCode[text] = true
				}
			}
			return true
		})
	}
	row := regexp.MustCompile("(?m)^\\| `(blockd_[a-z_]+)")
	inDocs := map[string]bool{}
	for _, m := range row.FindAllSubmatch(testkit.Read(t, filepath.Join(root, "docs/operation.md")), -1) {
		inDocs[string(m[1])] = true
	}
	for name := range inCode {
		if !inDocs[name] {
			t.Errorf("metric %s has no row in docs/operation.md", name)
		}
	}
	for name := range inDocs {
		if !inCode[name] {
			t.Errorf("docs/operation.md has a row for %s, which is no metric", name)
		}
	}
}

// namedFilesAreThere holds the paths that documents show, as `folder/file.go` or `folder/folder`, to the tree.
func namedFilesAreThere(t *testing.T, root string) {
	named := regexp.MustCompile("`(?:\\./)?([a-z]+(?:/[A-Za-z0-9_-]+)+(?:\\.(?:go|sh|js|lua|c|md))?)`")
	count := 0
	check := func(name string) {
		for _, m := range named.FindAllSubmatch(testkit.Read(t, name), -1) {
			top, _, _ := strings.Cut(string(m[1]), "/")
			if _, ours := floors[top]; !ours && top != "testdata" {
				continue
			}
			count++
			if _, err := os.Stat(filepath.Join(root, string(m[1]))); err != nil {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
	check(filepath.Join(root, "README.md"))
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(name string, d fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".md" {
			check(name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if count < 50 {
		t.Errorf("documents name %d files: the pattern reads them no more", count)
	}
}
