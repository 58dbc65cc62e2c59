package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"blockd/internal/testkit"
)

// reference is what is said of a key, for docs/configuration.md and blockd.toml(5).
type reference struct {
	table, key string // "smtp", "list"; "listen"
	about      string // the comment above its field
	kind       string
	initial    string // its default, as TOML; "" if it has none
	bounds     string
}

// references reads every key of Config from the types of this package.
func references(t *testing.T) (keys []reference, tables map[string]string) {
	t.Helper()
	c := Default()
	c.Publish.Stages = []PublishStage{{}}
	c.Lists, c.Policies, c.DNS.Zones, c.Filters = []List{defaultList()}, []Policy{{}}, []DNSZone{defaultZone()}, []KeptFilter{defaultFilter()}
	source := defaultSource()
	oidc := defaultOIDC()
	c.Lists[0].Source, c.Recipients.Aliases, c.HTTP.OIDC = &source, &Aliases{Kind: "file"}, &oidc
	text := testkit.Value(toml.Marshal(c))(t)
	defaults, table := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
			defaults[table+"."+key] = strings.ReplaceAll(value, "'", `"`)
		} else if name := strings.Trim(line, "[]\n"); name != "" {
			table = name
		}
	}
	types, tables := structs(t), map[string]string{}
	var read func(table string, row reflect.Value)
	read = func(table string, row reflect.Value) {
		if row.Kind() == reflect.Slice {
			row = row.Index(0)
		} else if row.Kind() == reflect.Pointer {
			row = row.Elem()
		}
		typ := types[row.Type().Name()]
		_, tables[table], _ = strings.Cut(typ.about, "], ")
		if _, after, ok := strings.Cut(typ.about, "]: "); ok {
			tables[table] = after
		}
		var inner []func()
		for field, value := range row.Fields() {
			if !field.IsExported() {
				continue
			}
			if isTable(field.Type) {
				inner = append(inner, func() { read(table+"."+tagOf(field), value) })
				continue
			}
			r := reference{table: table, key: tagOf(field), about: typ.fields[field.Name], kind: kindOf(field.Type), bounds: field.Tag.Get("want")}
			if row.Type() != reflect.TypeFor[Policy]() {
				r.initial = defaults[table+"."+r.key]
			}
			if field.Type.Kind() == reflect.Bool && r.initial == "" {
				r.initial = "false" // left out where it is not set
			}
			if field.Type.Kind() == reflect.String && r.bounds != "" {
				r.bounds = `"` + strings.ReplaceAll(r.bounds, "|", `", "`) + `"`
			}
			if r.about == "" || !strings.HasSuffix(r.about, ".") {
				t.Errorf("%s.%s: want a comment of whole sentences above its field, have %q", table, r.key, r.about)
			}
			keys = append(keys, r)
		}
		for _, read := range inner {
			read()
		}
	}
	for field, value := range reflect.ValueOf(c).Fields() {
		read(tagOf(field), value)
	}
	return keys, tables
}

// isTable reports whether a field is a table that may stand several times, or not at all.
func isTable(t reflect.Type) bool {
	return (t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer) && t.Elem().Kind() == reflect.Struct
}

func kindOf(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Duration](), reflect.TypeFor[*Duration]():
		return "duration"
	case reflect.TypeFor[Octets](), reflect.TypeFor[Memory]():
		return "size"
	case reflect.TypeFor[[]string]():
		return "texts"
	case reflect.TypeFor[map[string]string]():
		return "table of texts"
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return map[reflect.Kind]string{reflect.String: "text", reflect.Bool: "true or false", reflect.Int: "number", reflect.Float64: "number"}[t.Kind()]
}

type structType struct {
	about  string
	fields map[string]string
}

// structs are the types of this package with their comments.
func structs(t *testing.T) map[string]structType {
	t.Helper()
	files := testkit.Value(filepath.Glob("*.go"))(t)
	line := func(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
	found := map[string]structType{}
	for _, name := range files {
		file := testkit.Value(parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments))(t)
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				continue
			}
			spec := decl.Specs[0].(*ast.TypeSpec)
			if s, ok := spec.Type.(*ast.StructType); ok {
				typ := structType{line(decl.Doc), map[string]string{}}
				for _, f := range s.Fields.List {
					for _, n := range f.Names {
						typ.fields[n.Name] = line(f.Doc)
					}
				}
				found[spec.Name.Name] = typ
			}
		}
	}
	return found
}

// TestReference holds the table of docs/configuration.md and the keys of blockd.toml(5) to the
// code; -update writes them.
func TestReference(t *testing.T) {
	keys, tables := references(t)
	var table, page strings.Builder
	table.WriteString("| key | type | default | bounds | meaning |\n| --- | --- | --- | --- | --- |\n")
	last := ""
	for _, r := range keys {
		if instead, gone := goneKeys()[r.table+"."+r.key]; gone {
			t.Errorf("%s.%s is a key, and said to be gone: %s", r.table, r.key, instead)
		}
		code := func(text string) string {
			if text == "" {
				return ""
			}
			return "`" + text + "`"
		}
		fmt.Fprintf(&table, "| `%s.%s` | %s | %s | %s | %s |\n", r.table, r.key, r.kind, code(r.initial), code(r.bounds), r.about)

		if r.table != last {
			if last != "" {
				page.WriteString(".El\n")
			}
			head := "[" + r.table + "]"
			if r.table == "list" || r.table == "policy" || r.table == "dns.zone" || r.table == "filter" {
				head = "[" + head + "]"
			}
			page.WriteString(".Ss " + head + "\n" + mdoc(tables[r.table]) + ".Bl -tag -width Ds\n")
			last = r.table
		}
		page.WriteString(".It Cm " + r.key)
		if r.initial != "" {
			page.WriteString(" No = " + escaped(r.initial))
		}
		about := r.about
		switch {
		case strings.HasPrefix(r.bounds, `"`):
			about += " One of " + r.bounds + "."
		case r.bounds != "":
			about += " Bounds: " + r.bounds + "."
		}
		page.WriteString("\n" + mdoc(about))
	}
	page.WriteString(".El\n")
	holds(t, testkit.Root(t)+"/docs/configuration.md", "| key |", "\n## ", table.String()+"\n")
	holds(t, testkit.Root(t)+"/docs/man/blockd.toml.5", ".Ss [index]", ".Sh EXAMPLES", page.String())
}

// mdoc is a text as a man page has it: a line a sentence.
func mdoc(text string) string {
	if text == "" {
		return ""
	}
	text = escaped(text)
	text = strings.ToUpper(text[:1]) + text[1:]
	return strings.ReplaceAll(text, ". ", ".\n") + "\n"
}

func escaped(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`, "'", `\(aq`, "…", "...").Replace(text)
}

// holds checks that a file has want from the line that begins with from up to the line that begins
// with to; it puts it there with -update.
func holds(t *testing.T, path, from, to, want string) {
	t.Helper()
	text := string(testkit.Read(t, path))
	start := strings.Index(text, "\n"+from) + 1
	end := strings.Index(text[start:], to) + start
	if start == 0 || end < start {
		t.Fatalf("%s has no part from %q to %q", path, from, to)
	}
	if text[start:end] == want {
		return
	}
	if !*update {
		t.Errorf("%s is not what the code says; see the difference by: go test ./internal/config -run Reference -update", path)
		return
	}
	testkit.Must(t, os.WriteFile(path, []byte(text[:start]+want+text[end:]), 0o644))
}
