package config

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"blockd/doors/httpapi"
	"blockd/internal/certificate"
	"blockd/sources/snapshot"
)

// maxConfig bounds a configuration file: a thousand [[list]] tables are about
// 200 KiB, and whoever points -c at a list by mistake should hear so at once.
const maxConfig = 4 << 20

// Load reads the configuration file at path over the defaults, and the variables of
// the environment over both. What is wrong with their text comes as Faults, all of them at once. Relative paths in it are
// relative to its folder.
func Load(path string) (Config, error) {
	c, _, err := readBy(path, nil)
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

// LoadToServe is Load for who will act on it: what only a look at the machine
// shows is a fault too. A damaged snapshot in force is none: whoever serves fetches it again, and has its lists then.
func LoadToServe(path string) (Config, error) { return loadToServe(path, nil) }

func loadToServe(path string, lists []byte) (Config, error) {
	c, from, err := readBy(path, lists)
	if err == nil || errors.Is(err, snapshot.ErrDamaged) {
		err = c.mayServe(path, from)
	}
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

// mayServe is what only a look at the machine shows; nil: nothing is wrong.
func (c Config) mayServe(path string, from origins) error {
	faults := c.inspect()
	if len(faults) == 0 {
		return nil
	}
	faults.locate(path, from)
	return faults
}

// readBy reads the configuration at path, and http.lists_file unless lists is its text.
func readBy(path string, lists []byte) (Config, origins, error) {
	data, err := readConfig(path)
	if err != nil {
		return Config{}, origins{}, err
	}
	c, from, faults := decode(data, os.Environ())
	if len(data) == 0 && len(from.set) == 0 {
		// Somebody is writing it at this moment, or there was no room for it. By the defaults a command would change other live
		// entries, in another folder, and a reload would drop all lists.
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return Config{}, origins{}, fmt.Errorf("%s: empty, as while it is written or where the disk was full; if all is meant to be by default, put a comment into it", path)
		}
	}
	// Absolute, so that an index says the same of its lists whoever compiled it
	// from whichever folder: what `blockd compile` made, a daemon can take over.
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return Config{}, origins{}, err
	}
	if from.lines != nil { // else there is no tree to judge
		var said Faults
		from.added, said = c.addLists(dir, lists)
		faults = append(faults, said...)
		faults = append(faults, slices.DeleteFunc(c.Validate(), func(f Fault) bool {
			return slices.ContainsFunc(faults, func(said Fault) bool { return said.Key == f.Key })
		})...)
	}
	if len(faults) > 0 {
		faults.locate(path, from)
		slices.SortStableFunc(faults, func(a, b Fault) int {
			switch {
			case a.File == b.File:
				return a.Line - b.Line
			case a.File == path: // before http.lists_file
				return -1
			}
			return 1
		})
		return Config{}, origins{}, faults
	}
	c.relativeTo(dir)
	if err := c.addFleet(); err != nil {
		return c, from, err
	}
	return c, from, nil
}

func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such file; name one with -c, or begin with: blockd config --defaults >%s", path, path)
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s: a folder, and a configuration is a file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxConfig {
		return nil, fmt.Errorf("%s: over %d MiB: this is no configuration file", path, maxConfig>>20)
	}
	return data, nil
}

// decode fills a Config from TOML and the variables of an environment. The library decodes into a tree only, and
// the tree is laid over the struct here, because the library's own decoding
// into a struct ends at the first value of a wrong type.
//
// After an error of TOML's own grammar there is no tree: there are no lines.
func decode(data []byte, environ []string) (Config, origins, Faults) {
	c := Default()
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	var tree map[string]any
	if err := toml.Unmarshal(data, &tree); err != nil {
		return c, origins{}, Faults{notTOML(err)}
	}
	if tree == nil {
		tree = map[string]any{}
	}
	set, faults := overlay(environ, tree)
	d := decoder{faults}
	d.table("", tree, reflect.ValueOf(&c).Elem())
	return c, origins{lines: findPositions(data), set: set}, d.faults
}

// notTOML is the fault of a text that TOML's own grammar does not have.
func notTOML(err error) Fault {
	f := Fault{Text: "not TOML: " + strings.TrimPrefix(err.Error(), "toml: ")}
	if at := (*toml.DecodeError)(nil); errors.As(err, &at) {
		f.Line, _ = at.Position()
	}
	if strings.HasSuffix(f.Text, "at start of value") {
		f.Text += `; text stands in quotes: key = "text"`
	}
	return f
}

// decoder lays a tree of TOML values over a struct and notes what does not fit.
type decoder struct{ faults Faults }

func (d *decoder) table(path string, tree map[string]any, into reflect.Value) {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		at := joinKey(path, key)
		if field, ok := fieldOf(into, key); ok {
			d.value(at, tree[key], field)
		} else {
			d.faults.add(at, "%s", unknown(at, into.Type()))
		}
	}
}

func (d *decoder) value(path string, value any, into reflect.Value) {
	if _, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.text(path, value, into.Addr().Interface().(encoding.TextUnmarshaler))
		return
	}
	want := ""
	switch into.Kind() {
	case reflect.Pointer:
		if _, ok := value.(map[string]any); !ok && into.Type().Elem().Kind() == reflect.Struct {
			want = "one table in single brackets, [" + shownKey(path) + "]"
			break
		}
		into.Set(reflect.New(into.Type().Elem()))
		switch table := into.Interface().(type) {
		case *Source:
			*table = defaultSource()
		case *OIDC:
			*table = defaultOIDC()
		}
		d.value(path, value, into.Elem())
	case reflect.Struct:
		if tree, ok := value.(map[string]any); ok {
			d.table(path, tree, into)
		} else {
			want = "a table"
		}
	case reflect.Map: // of texts by names
		if tree, ok := value.(map[string]any); ok {
			d.texts(path, tree, into)
		} else {
			want = "a table, such as { name = \"text\" }"
		}
	case reflect.Slice:
		if items, ok := value.([]any); ok {
			d.array(path, items, into)
		} else if want = "an array"; into.Type().Elem().Kind() == reflect.Struct {
			want = "[[" + path + "]] in two pairs of brackets"
		}
	case reflect.Int:
		if n, ok := value.(int64); ok {
			into.SetInt(n)
		} else {
			want = "a whole number"
		}
	case reflect.Float64:
		switch n := value.(type) {
		case float64:
			into.SetFloat(n)
		case int64:
			into.SetFloat(float64(n))
		default:
			want = "a number"
		}
	case reflect.String, reflect.Bool:
		if v := reflect.ValueOf(value); v.Kind() == into.Kind() {
			into.Set(v)
		} else if want = "true or false"; into.Kind() == reflect.String {
			want = "a text in quotes"
		}
	default:
		// The struct is ours, and a test decodes each of its fields.
		panic("no decoding for a field of type " + into.Type().String())
	}
	if want != "" { // what was there stays: a default, so that only this is said
		d.faults.add(path, "want %s, have %s", want, shown(value))
	}
}

func (d *decoder) texts(path string, tree map[string]any, into reflect.Value) {
	all := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		if text, ok := tree[name].(string); ok {
			all[name] = text
		} else {
			d.faults.add(joinKey(path, name), "want a text in quotes, have %s", shown(tree[name]))
		}
	}
	into.Set(reflect.ValueOf(all))
}

func (d *decoder) array(path string, items []any, into reflect.Value) {
	into.Set(reflect.MakeSlice(into.Type(), len(items), len(items)))
	for i, item := range items {
		switch row := into.Index(i).Addr().Interface().(type) {
		case *List:
			*row = defaultList()
		case *DNSZone:
			*row = defaultZone()
		case *KeptFilter:
			*row = defaultFilter()
		}
		d.value(fmt.Sprintf("%s[%d]", path, i), item, into.Index(i))
	}
}

func (d *decoder) text(path string, value any, into encoding.TextUnmarshaler) {
	s, ok := value.(string)
	if !ok {
		s = strings.Trim(shown(value), `"`)
	}
	if err := into.UnmarshalText([]byte(s)); err != nil {
		d.faults.add(path, "%v", err)
	} else if !ok && !takesNumbers(into) { // 0 is a duration, but not a text
		d.faults.add(path, "want a text in quotes, have %s", shown(value))
	}
}

// takesNumbers reports whether a bare number is a value of this type.
func takesNumbers(into encoding.TextUnmarshaler) bool {
	switch into.(type) {
	case *Octets, *Memory:
		return true
	}
	return false
}

// shown is a TOML value as a fault shows it.
func shown(value any) string {
	switch v := value.(type) {
	case string:
		return fmt.Sprintf("%q", v)
	case map[string]any:
		return "a table"
	case []any:
		return "an array"
	default:
		return fmt.Sprint(v)
	}
}

func tagOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
	return name
}

func keysOf(table reflect.Type) []string {
	var keys []string
	if table.Kind() == reflect.Struct {
		for f := range table.Fields() {
			if f.IsExported() {
				keys = append(keys, tagOf(f))
			}
		}
	}
	return keys
}

func fieldOf(table reflect.Value, key string) (reflect.Value, bool) {
	i := slices.Index(keysOf(table.Type()), key)
	if i < 0 {
		return reflect.Value{}, false
	}
	return table.Field(i), true
}

func joinKey(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// inspect looks at the machine for what would keep the daemon from starting.
func (c Config) inspect() Faults {
	var f Faults
	if own := c.HTTP.OwnToken(); own != "" {
		if _, err := httpapi.ReadToken(own); err != nil {
			f.add("http.token_file", "%v", err)
		}
	}
	if _, err := c.HTTP.Provider(); err != nil && c.HTTP.URL != "" {
		f.add("http.oidc.client_secret_file", "%v", err)
	}
	for _, pair := range []struct{ table, cert, key string }{{"smtp", c.SMTP.TLSCert, c.SMTP.TLSKey}, {"http", c.HTTP.TLSCert, c.HTTP.TLSKey}} {
		if pair.cert == "" {
			continue
		}
		if _, err := certificate.Open(pair.cert, pair.key, slog.New(slog.DiscardHandler)); err != nil {
			f.add(pair.table+".tls_cert", "%v", err)
		}
	}
	if _, err := c.SMTP.upstreamTrust(); err != nil {
		f.add("smtp.upstream_tls_ca", "%v", err)
	}
	return f
}
