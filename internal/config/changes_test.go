package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Every key of every table is seen when it changes, and is followed or refused by name: a new key cannot be forgotten.
func TestEachChangedKeyIsFollowedOrRefused(t *testing.T) {
	old := Default()
	tables := reflect.ValueOf(old)
	for field, table := range tables.Fields() {
		if table.Kind() != reflect.Struct {
			continue
		}
		for key := range table.Fields() {
			changed := Default()
			alter(reflect.ValueOf(&changed).Elem().FieldByIndex(field.Index).FieldByIndex(key.Index))
			name := tagOf(field) + "." + tagOf(key)
			checkChange(t, old, changed, name, slices.Contains(followed, name) || slices.Contains(followed, tagOf(field)))
		}
	}
	for _, f := range followed { // no row is of a key that is gone
		table, key, whole := strings.Cut(f, ".")
		at := slices.Index(keysOf(tables.Type()), table)
		if at < 0 || whole && !slices.Contains(keysOf(tables.Type().Field(at).Type), key) {
			t.Errorf("%s is followed, and no key", f)
		}
	}
}

func TestEachChangedKeyOfAListIsFollowedOrRefused(t *testing.T) {
	list := func() Config { c := Default(); c.Lists = []List{{Name: "spam"}}; return c }
	for key := range reflect.ValueOf(List{}).Fields() {
		changed := list()
		alter(reflect.ValueOf(&changed.Lists[0]).Elem().FieldByIndex(key.Index))
		if tagOf(key) != "name" {
			checkChange(t, list(), changed, "list."+tagOf(key), slices.Contains(listFollowed, tagOf(key)))
		}
	}
	changes, unfollowed := compare(list(), Default())
	if !slices.Equal(changes.Removed, []string{"spam"}) || len(unfollowed) != 1 {
		t.Error(changes, unfollowed)
	}
	if changes, unfollowed = compare(Default(), list()); !slices.Equal(changes.Added, []string{"spam"}) || len(unfollowed) != 1 {
		t.Error(changes, unfollowed)
	}
}

func checkChange(t *testing.T, old, changed Config, name string, follows bool) {
	t.Helper()
	changes, unfollowed := compare(old, changed)
	if !slices.Equal(changes.Keys, []string{name}) {
		t.Errorf("%s has changed, and seen is %q", name, changes.Keys)
	}
	if follows == (len(unfollowed) > 0) {
		t.Errorf("%s: followed %v, and the faults are %v", name, follows, unfollowed)
	}
}

// alter gives a field another value.
func alter(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 0.1)
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("x"), reflect.ValueOf("y"))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Struct:
		alter(v.Field(0))
	default:
		panic("no other value of " + v.Type().String())
	}
}

// A file that is missing, empty or torn, and a change that cannot be followed, are faults with their lines.
func TestReread(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[smtp]\nreject_at = \"rcpt\"\n")
	running, err := LoadToServe(path)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                                ":1: the file is empty",
		"[smtp]\nreject_at = \"rc":        ":2: not TOML",
		"[smtp]\n\nmax_connections = 7\n": ":3: smtp.max_connections: cannot change while blockd runs",
		"[smtp]\nreject_at = \"never\"\n": ":2: smtp.reject_at: ",
		"[smtp]\n\ntls_cert=\"none.pem\"\ntls_key=\"none.pem\"\n": ":3: smtp.tls_cert: ",
	} {
		write(text)
		if _, _, err := Reread(path, running); err == nil || !strings.HasPrefix(err.Error(), path+want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	write("[smtp]\nrecipients_exempt = [\"desk\"]\n")
	if c, changes, err := Reread(path, running); err != nil || changes.None() || c.SMTP.RecipientsExempt[0] != "desk" {
		t.Error(changes, err)
	}
	write("# only a remark\n")
	if _, changes, err := Reread(path, running); err != nil || !changes.None() {
		t.Error(changes, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Reread(path, running); err == nil || !strings.HasPrefix(err.Error(), path+":1: no such file") {
		t.Error(err)
	}
}
