// The tests of this folder hold the rules of the whole tree: who may import
// whom, and what no file may contain. A rule that nothing checks decays.
package main_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layers says what each package may import of this module, tests aside. An
// arrow that is not here is a change of architecture: docs/HACKING.md draws it.
var layers = map[string][]string{
	"access":            {},
	"audit":             {"internal/durable"},
	"addr":              {},
	"bell":              {"internal/durable"},
	"letter":            {"history", "internal/durable", "internal/term"},
	"bloom":             {},
	"certificate":       {},
	"maillog":           {},
	"forget":            {"addr", "audit", "correspondents", "history", "hits", "index", "junk", "lists", "live", "quarantine", "receipt", "reload"},
	"correspondents":    {"addr", "internal/durable", "lists"},
	"filter":            {},
	"firstseen":         {"filter", "internal/durable"},
	"history":           {"internal/durable"},
	"listener":          {},
	"internal/durable":  {},
	"internal/runs":     {},
	"internal/term":     {},
	"internal/spelling": {},
	"machine":           {},
	"mailbox":           {"internal/durable"},
	"quarantine":        {"internal/durable"},
	"msgauth":           {},
	"pattern":           {"addr"},
	"minisign":          {},
	"remote":            {"internal/durable", "minisign"},
	"repeat":            {"history"},
	"reply":             {},
	"spool":             {},

	"digest":                      {"addr"},
	"header":                      {"addr"},
	"lists":                       {"addr", "internal/runs", "pattern"},
	"junk":                        {"addr", "correspondents", "history", "internal/durable", "lists", "live"},
	"migration/internal/original": {},
	"migration":                   {"addr", "lists", "migration/internal/original", "pattern"},

	"index/internal/memory":  {},
	"index/internal/format":  {"addr", "bloom", "digest", "index/internal/memory", "lists", "pattern"},
	"index/internal/segment": {"addr", "index/internal/format", "index/internal/memory", "internal/durable", "lists"},
	"index/internal/build":   {"addr", "bloom", "digest", "index/internal/format", "index/internal/memory", "index/internal/segment", "lists"},
	"index":                  {"addr", "bloom", "digest", "index/internal/build", "index/internal/format", "index/internal/memory", "index/internal/segment", "internal/durable", "lists", "pattern"},

	"index/kept": {"index/internal/format", "index/internal/segment", "internal/durable", "internal/term", "lists"},

	"builder": {"index", "index/kept", "lists", "machine"},
	"live":    {"addr", "audit", "digest", "index", "internal/durable", "lists"},
	"verdict": {"addr", "digest", "index", "lists", "msgauth"},
	"client":  {},
	"health":  {"listener"},
	"receipt": {"history", "internal/durable", "internal/secret", "listener", "reply"},
	"rollup":  {"history", "internal/durable"},
	"hits":    {"index", "internal/durable", "verdict"},
	"rule":    {"addr", "index", "lists", "msgauth", "verdict"},

	"snapshot":         {"internal/durable", "internal/runs", "lists", "minisign"},
	"mirror":           {"addr", "internal/durable", "internal/runs", "lists"},
	"mirror/preset":    {"lists", "mirror"},
	"mirror/query":     {"mirror"},
	"migration/owners": {"addr", "lists", "migration", "migration/internal/original", "mirror", "mirror/preset"},
	"mirror/mysql":     {"mirror", "mirror/query"},
	"mirror/ldap":      {"mirror", "mirror/query"},
	"mirror/s3":        {"lists", "mirror"},
	"mirror/sqlite":    {"mirror", "mirror/query"},
	"mirror/redis":     {"mirror", "redisclient"},

	"roster":               {},
	"live/shared":          {"audit", "internal/durable", "lists", "live"},
	"live/shared/postgres": {"live", "live/shared", "mirror/postgres"},
	"live/shared/relay":    {"live", "live/shared"},
	"live/shared/redis":    {"live", "live/shared", "redisclient"},

	"ask":             {"addr", "bloom", "filter", "index", "internal/durable", "lists", "mirror", "verdict"},
	"ask/redis":       {"ask", "mirror", "mirror/redis", "redisclient"},
	"ask/postgres":    {"ask", "mirror", "mirror/postgres"},
	"mirror/postgres": {"mirror", "mirror/query"},

	"policy":   {"addr", "ask", "correspondents", "digest", "firstseen", "header", "history", "hits", "index", "lists", "live", "msgauth", "repeat", "reply", "rule", "verdict"},
	"printout": {"addr", "index", "internal/term", "lists", "msgauth", "policy", "verdict"},
	"reload":   {"addr", "correspondents", "digest", "history", "index", "index/kept", "internal/durable", "internal/term", "lists"},

	"redisclient":     {},
	"redisfilter":     {"filter", "redisclient"},
	"internal/export": {"addr", "filter", "index", "internal/durable", "internal/runs", "internal/term", "lists", "live", "rule"},

	"internal/overlap": {"index", "lists"},
	"keptfilter":       {"filter", "index", "internal/durable", "internal/export", "redisclient", "redisfilter", "rule"},

	"milter": {"addr", "header", "listener", "msgauth", "policy", "reply", "rule", "spool"},

	"smtpfilter/wire":     {},
	"smtpfilter/parse":    {"addr"},
	"smtpfilter/upstream": {"smtpfilter/wire"},
	"smtpfilter/session":  {"addr", "header", "index", "lists", "mailbox", "msgauth", "policy", "reply", "smtpfilter/parse", "smtpfilter/upstream", "smtpfilter/wire", "spool", "verdict"},
	"smtpfilter/server":   {"listener", "smtpfilter/session", "smtpfilter/upstream"},

	"dnsbl":   {"digest", "index", "listener", "lists", "policy", "reply", "verdict"},
	"resp":    {"addr", "index", "listener", "live", "policy", "verdict"},
	"postfix": {"addr", "listener", "lists", "policy", "reply", "rule"},

	"httpapi/fastpath": {},
	"httpapi/session":  {"internal/durable"},
	"httpapi/provider": {},
	"httpapi":          {"rollup", "httpapi/provider", "httpapi/session", "correspondents", "forget", "index/kept", "pause", "audit", "addr", "printout", "history", "hits", "httpapi/fastpath", "index", "internal/durable", "internal/term", "junk", "letter", "listener", "lists", "live", "live/shared", "msgauth", "policy", "quarantine", "receipt", "reload", "roster", "verdict"},

	"internal/config": {"httpapi/session", "httpapi/provider", "junk", "minisign", "snapshot", "correspondents", "catalogue", "index/kept", "access", "addr", "ask", "audit", "bell", "certificate", "digest", "dnsbl", "filter", "history", "httpapi", "index", "internal/export", "internal/spelling", "internal/term", "keptfilter", "lists", "live", "machine", "mirror", "mirror/preset", "policy",
		"postfix", "redisfilter", "reload", "remote", "reply", "resp", "rule", "smtpfilter/upstream", "verdict"},
	"internal/carried": {},
	"internal/upgrade": {},
	"internal/version": {},
	"catalogue":        {},
	"internal/daemon": {"rollup", "catalogue", "internal/setup", "internal/subscription", "junk", "minisign", "snapshot", "correspondents", "forget", "internal/secret", "index/kept", "pause", "internal/carried", "internal/term", "internal/upgrade", "internal/version", "ask", "ask/postgres", "ask/redis", "filter", "redisclient", "redisfilter",
		"addr", "audit", "bell", "builder", "certificate", "dnsbl", "firstseen", "health", "history", "httpapi", "httpapi/session", "index", "internal/config", "keptfilter", "letter", "listener", "lists", "live", "live/shared", "live/shared/postgres", "live/shared/redis", "live/shared/relay", "mailbox", "milter", "mirror", "mirror/preset", "mirror/ldap", "mirror/mysql", "mirror/postgres", "mirror/redis", "mirror/s3", "mirror/sqlite", "msgauth", "policy",
		"postfix", "quarantine", "receipt", "reload", "remote", "repeat", "resp", "roster", "rule", "smtpfilter/server", "smtpfilter/session", "smtpfilter/upstream", "spool", "verdict"},
	"internal/control":      {"httpapi/session", "roster", "internal/daemon", "live/shared", "junk", "correspondents", "forget", "hits", "letter", "lists", "rule", "addr", "index/kept", "pause", "audit", "access", "printout", "history", "httpapi", "index", "internal/config", "internal/term", "live", "quarantine", "receipt", "reload"},
	"internal/setup":        {"catalogue", "docs", "internal/durable", "lists"},
	"internal/subscription": {"catalogue", "internal/config", "internal/durable", "internal/setup"},
	"docs":                  {},
	"packaging":             {},
	"pause":                 {"internal/durable"},
	"internal/secret":       {"internal/durable"},
	"internal/doctor":       {"access", "dnsbl", "httpapi", "internal/config", "internal/control", "internal/daemon", "internal/term", "mirror", "smtpfilter/upstream", "verdict"},
}

func TestImportsPointDown(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}}: {{join .Imports \" \"}}", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		name, imports, _ := strings.Cut(strings.TrimSpace(line), ":")
		name = strings.TrimPrefix(name, "blockd/")
		allowed, ok := layers[name]
		if name == "blockd" || name == "e2e" || strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "internal/") && !ok {
			continue // main knows everybody; the rest of internal/ and e2e/ are test support
		}
		if !ok {
			t.Errorf("package %s has no row in layers: say what it may import", name)
			continue
		}
		seen[name] = true
		for imp := range strings.FieldsSeq(imports) {
			if imp, ours := strings.CutPrefix(imp, "blockd/"); ours && !slices.Contains(allowed, imp) {
				t.Errorf("%s imports %s, which is not below it", name, imp)
			}
		}
	}
	for name := range layers {
		if !seen[name] {
			t.Errorf("layers has a row for %s, which is no package", name)
		}
	}
}

// TestNoInitNoSleep holds two rules of docs/HACKING.md: wiring is done by
// constructors, and a test waits for a condition, never for a while.
func TestNoInitNoSleep(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "var" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		synctest := slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					t.Errorf("%s: an init function", fset.Position(n.Pos()))
				}
			case *ast.SelectorExpr:
				pkg, ok := n.X.(*ast.Ident)
				if ok && pkg.Name == "time" && n.Sel.Name == "Sleep" && strings.HasSuffix(path, "_test.go") && !synctest {
					t.Errorf("%s: a test that sleeps outside a synctest bubble", fset.Position(n.Pos()))
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestMetricsAreDocumented keeps docs/operation.md and the code at one: who wakes
// somebody at night by a metric finds its meaning there.
func TestMetricsAreDocumented(t *testing.T) {
	name := regexp.MustCompile(`"(blockd_[a-z_]+)"`)
	inCode := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == "bench" {
			return cmp.Or(err, fs.SkipDir)
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range name.FindAllSubmatch(text, -1) {
			inCode[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("docs/operation.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `(blockd_[a-z_]+)")
	inDocs := map[string]bool{}
	for _, m := range row.FindAllSubmatch(document, -1) {
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
