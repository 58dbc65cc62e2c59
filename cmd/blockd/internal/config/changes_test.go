package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// Every key of every table is seen when it changes, and is followed or needs another process: a new key cannot be forgotten.
func TestEachChangedKeyIsFollowedOrBeyond(t *testing.T) {
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

func TestEachChangedKeyOfAListIsFollowedOrBeyond(t *testing.T) {
	list := func() Config { c := Default(); c.Lists = []List{{Name: "spam"}}; return c }
	for key := range reflect.ValueOf(List{}).Fields() {
		if !key.IsExported() {
			continue
		}
		changed := list()
		alter(reflect.ValueOf(&changed.Lists[0]).Elem().FieldByIndex(key.Index))
		if tagOf(key) != "name" {
			checkChange(t, list(), changed, "list."+tagOf(key), slices.Contains(listFollowed, tagOf(key)))
		}
	}
	changes := compare(list(), Default())
	if !slices.Equal(changes.Removed, []string{"spam"}) || len(changes.Beyond) != 1 {
		t.Error(changes)
	}
	if changes = compare(Default(), list()); !slices.Equal(changes.Added, []string{"spam"}) || len(changes.Beyond) != 1 {
		t.Error(changes)
	}
}

func checkChange(t *testing.T, old, changed Config, name string, follows bool) {
	t.Helper()
	changes := compare(old, changed)
	testkit.EqualSlices(t, fmt.Sprintf("%s has changed, and seen", name), changes.Keys, []string{name})
	if follows == (len(changes.Beyond) > 0) {
		t.Errorf("%s: followed %v, and beyond are %v", name, follows, changes.Beyond)
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

// A file that is missing, empty or torn is a fault with its line. What another process says of a change that cannot be followed
// has the line of the key that it is about.
func TestReread(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	write := func(text string) {
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("[smtp]\nreject_at = \"rcpt\"\n")
	running := testkit.Value(LoadToServe(path))(t)
	for text, want := range map[string]string{
		"":                                ":1: the file is empty",
		"[smtp]\nreject_at = \"rc":        ":2: not TOML",
		"[smtp]\nreject_at = \"never\"\n": ":2: smtp.reject_at: ",
		"[smtp]\n\ntls_cert=\"none.pem\"\ntls_key=\"none.pem\"\n": ":3: smtp.tls_cert: ",
	} {
		write(text)
		testkit.Got(Reread(path, running))(t, fmt.Sprintf("%q", text), "…", "…", path+want+"…")
	}
	write("[smtp]\n\nmax_connections = 7\n[milter]\nlisten = \"127.0.0.1:7\"\n")
	_, changes, err := Reread(path, running)
	if err != nil || len(changes.Beyond) != 2 || changes.Beyond[0].Error() != path+":3: smtp.max_connections: cannot change while blockd runs; restart it, or take the change back" {
		t.Error(changes, err)
	}
	for words, want := range map[string]string{
		"milter.listen: 127.0.0.1:7 is in use": ":5: milter.listen: 127.0.0.1:7 is in use",
		"it has ended":                         ":3: it has ended",
	} {
		testkit.Equal(t, words, changes.Fault(words).Error(), path+want)
	}
	write("[smtp]\nrecipients_exempt = [\"desk\"]\n")
	if c, changes, err := Reread(path, running); err != nil || changes.None() || c.SMTP.RecipientsExempt[0] != "desk" {
		t.Error(changes, err)
	}
	write("# only a remark\n")
	if _, changes, err := Reread(path, running); err != nil || !changes.None() {
		t.Error(changes, err)
	}
	testkit.Must(t, os.Remove(path))
	testkit.Got(Reread(path, running))(t, "given", "…", "…", path+":1: no such file…")
}

// Equal configurations have the same digest, and any other value another one.
func TestDigest(t *testing.T) {
	c, same := Default(), Default()
	if c.Digest() == "" || c.Digest() != same.Digest() {
		t.Errorf("%q and %q of the same configuration", c.Digest(), same.Digest())
	}
	same.Lists = append(same.Lists, List{Name: "own"})
	if c.Digest() == same.Digest() || same.Digest() == "" {
		t.Errorf("%q with a list and without one", same.Digest())
	}
}
