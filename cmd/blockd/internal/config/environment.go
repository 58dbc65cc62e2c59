package config

import (
	"encoding"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"

	"blockd/internal/spelling"
)

// variablePrefix begins the names of all variables of the environment that are blockd's.
const variablePrefix = "BLOCKD_"

// otherVariables are not keys: a token for commands, and what a process tells the one that takes over from it.
var otherVariables = []string{"BLOCKD_TOKEN", "BLOCKD_UPGRADE"}

// testVariables begin the names of what only tests read.
const testVariables = "BLOCKD_TEST_"

// serviceVariables are what Kubernetes sets in every container beside a service whose name begins with "blockd", with
// their values. Nobody means a key by them.
var serviceVariables = regexp.MustCompile(`^BLOCKD_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=|^BLOCKD_([A-Z0-9_]+_)?PORT=(tcp|udp|sctp)://`)

// Variables are the variables of this process's environment that set keys, in alphabetical order. They may hold anything;
// only the names are meant to be shown.
func Variables() []string {
	keys := variableKeys()
	set := map[string]bool{}
	for _, line := range os.Environ() {
		if name, _, _ := strings.Cut(line, "="); keys[name] != "" {
			set[name] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// variableOf is the name of the variable that sets a key: "smtp.hostname" is BLOCKD_SMTP_HOSTNAME.
func variableOf(key string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// variableKeys are the keys that a variable sets, by its name. Keys of tables that stand several times are missing: no name
// says which of them is meant.
func variableKeys() map[string]string {
	keys := map[string]string{}
	for table := range reflect.TypeFor[Config]().Fields() {
		if table.Type.Kind() != reflect.Struct {
			continue
		}
		for field := range table.Type.Fields() {
			if field.Type == reflect.TypeFor[*Aliases]() || field.Type == reflect.TypeFor[*OIDC]() {
				continue // a table, which no variable says
			}
			if kind := field.Type.Kind(); kind != reflect.Slice || field.Type.Elem().Kind() != reflect.Struct {
				key := tagOf(table) + "." + tagOf(field)
				keys[variableOf(key)] = key
			}
		}
	}
	return keys
}

// variables is what an environment sets: the names of variables by their keys.
type variables map[string]string

// of is the variable that has set a key, or the table or array around it; "" if the file has, or nobody.
func (v variables) of(key string) string {
	for key != "" {
		if name, ok := v[key]; ok {
			return name
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return ""
}

// overlay lays the variables of an environment over the tree of a file, over whose keys they win.
func overlay(environ []string, tree map[string]any) (set variables, faults Faults) {
	keys, set := variableKeys(), variables{}
	for _, line := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, variablePrefix) || strings.HasPrefix(name, testVariables) || slices.Contains(otherVariables, name) {
			continue
		}
		key := keys[name]
		switch {
		case key == "" && serviceVariables.MatchString(line):
			continue
		case key == "":
			faults = append(faults, Fault{Variable: name, Text: unknownVariable(name, keys)})
			continue
		case !utf8.ValidString(text):
			faults = append(faults, Fault{Variable: name, Key: key, Text: "want UTF-8"})
			continue
		}
		table, inner, _ := strings.Cut(key, ".")
		if tree[table] == nil {
			tree[table] = map[string]any{}
		}
		if values, ok := tree[table].(map[string]any); ok { // else the file has a fault of its own
			values[inner] = variableValue(text, fieldType(table, inner))
			set[key] = name
		}
	}
	return set, faults
}

// fieldType is the type of a key of Config.
func fieldType(table, key string) reflect.Type {
	c := reflect.ValueOf(new(Config)).Elem()
	outer, _ := fieldOf(c, table)
	inner, _ := fieldOf(outer, key)
	return inner.Type()
}

// variableValue is the text of a variable as TOML would have it: texts without quotes, arrays of texts by commas, tables of
// texts as name=text by commas. What does not fit stays a text, of which the decoder says what is wanted.
func variableValue(text string, as reflect.Type) any {
	if reflect.PointerTo(as).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return text
	}
	plain := strings.TrimSpace(text)
	switch as.Kind() {
	case reflect.Bool:
		if b, err := strconv.ParseBool(plain); err == nil && len(plain) > 1 { // no 0, 1, t or f
			return b
		}
	case reflect.Int, reflect.Float64:
		if n, err := strconv.ParseInt(plain, 10, 64); err == nil {
			return n
		} else if f, err := strconv.ParseFloat(plain, 64); err == nil && as.Kind() == reflect.Float64 {
			return f
		}
	case reflect.Slice:
		if strings.HasPrefix(plain, "[") {
			return asTOML(plain)
		}
		items := []any{}
		for _, item := range strings.Split(plain, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		return items
	case reflect.Map:
		if strings.HasPrefix(plain, "{") {
			return asTOML(plain)
		}
		table := map[string]any{}
		for _, item := range strings.Split(plain, ",") {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			name, value, ok := strings.Cut(item, "=")
			if !ok {
				return text
			}
			table[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
		return table
	}
	return text
}

// asTOML reads an array or a table that is written as in a file; what is none stays a text.
func asTOML(text string) any {
	var tree map[string]any
	if err := toml.Unmarshal([]byte("v = "+text), &tree); err != nil || len(tree) != 1 {
		return text
	}
	return tree["v"]
}

// unknownVariable is what is said of a variable that sets no key.
func unknownVariable(name string, keys map[string]string) string {
	for _, table := range []string{"list", "policy", "filter", "dns.zone"} {
		if head := variableOf(table); name == head || strings.HasPrefix(name, head+"_") {
			return fmt.Sprintf("no variable sets a [[%s]], which may stand several times: write it into the file", table)
		}
	}
	if name == "BLOCKD_CONFIG" || name == "BLOCKD_CONFIG_FILE" {
		return "the file is named on the command line: -c FILE"
	}
	for gone, instead := range goneKeys() {
		if name == variableOf(gone) {
			return "sets what is no longer a key: it is always " + instead + "; take the variable out"
		}
	}
	if key := keys[strings.TrimSuffix(name, "_FILE")]; key != "" {
		return fmt.Sprintf("no variable names a file with the value of %s; set %s, or the key in the file", key, strings.TrimSuffix(name, "_FILE"))
	}
	return "sets no key" + spelling.Hint(name, "", slices.Sorted(maps.Keys(keys)))
}
