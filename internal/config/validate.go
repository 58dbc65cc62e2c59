package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"blockd/internal/spelling"
	"blockd/lists"
)

// Validate reports every fault of c that can be seen without looking at the
// machine: no file is opened and no name resolved.
func (c Config) Validate() Faults {
	var f Faults
	for field, value := range reflect.ValueOf(c).Fields() {
		if value.Kind() == reflect.Struct {
			f.wants(tagOf(field), value)
			continue
		}
		for i := range value.Len() {
			f.wants(fmt.Sprintf("%s[%d]", tagOf(field), i), value.Index(i))
		}
	}
	c.Index.validate(&f)
	c.SMTP.validate(&f)
	c.validateForeign(&f)
	c.HTTP.validate(&f)
	c.Milter.validate(&f)
	c.Postfix.validate(&f)
	c.Auth.validate(&f)
	names, copies := map[string]bool{}, map[string]string{}
	for i, l := range c.Lists {
		l.validate(&f, fmt.Sprintf("list[%d]", i), names)
		l.validateRemote(&f, fmt.Sprintf("list[%d]", i), copies)
	}
	c.validateLive(&f)
	c.History.validate(&f)
	c.validatePolicies(&f)
	c.validateRefusal(&f)
	c.validateClientProof(&f)
	c.validateQuarantine(&f)
	if !c.SMTP.Open() && !c.Milter.Open() && !c.Postfix.Open() && c.HTTP.Listen == "" {
		f.add("smtp.listen", "no door is open: every listen is empty")
	}
	return f
}

func (x Index) validate(f *Faults) {
	if x.Path == "" {
		f.add("index.path", "want the path of the index file")
	}
	f.domains("index.protected", x.Protected)
}

// listName is what a name may be: it stands in replies, logs and metrics.
var listName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ListNameOf names a list after its file: "lists/disposable.txt.gz" is "disposable".
func ListNameOf(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), ".gz")
	name = strings.TrimSuffix(name, filepath.Ext(name))
	name = strings.Map(func(r rune) rune {
		if listName.MatchString("a" + string(r)) {
			return r
		}
		return '-'
	}, name)
	name = strings.TrimLeft(name, "._-")
	return cmp.Or(name[:min(len(name), 64)], "list")
}

func (l List) validate(f *Faults, key string, names map[string]bool) {
	switch {
	case l.Name == "":
		f.add(key+".name", "is missing; senders read it in the refusal")
	case !listName.MatchString(l.Name):
		f.add(key+".name", "want letters, digits and . _ - (at most 64), have %q", l.Name)
	case names[l.Name]:
		f.add(key+".name", "%q is the name of a list above", l.Name)
	}
	names[l.Name] = true
	if l.Path == "" && l.URL != "" {
		f.add(key+".path", "is missing; want the file that is to hold the copy")
	} else if l.Path == "" {
		f.add(key+".path", "is missing; want a file or a glob")
	} else if _, err := filepath.Match(l.Path, ""); err != nil {
		f.add(key+".path", "want a file or a glob, have %q: %v", l.Path, err)
	}
	if err := CheckFormat(l.Format); err != nil {
		f.add(key+".format", "%v", err)
	}
	if len(l.Reason) > 400 || strings.ContainsFunc(l.Reason, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		f.add(key+".reason", "want one line of at most 400 octets")
	}
	l.validateRule(f, key)
	l.validateGate(f, key)
}

func (f *Faults) oneOf(key, have string, words ...string) {
	var want strings.Builder
	for i, w := range words {
		if have == w {
			return
		}
		switch {
		case i > 0 && i == len(words)-1:
			want.WriteString(" or ")
		case i > 0:
			want.WriteString(", ")
		}
		want.WriteString(strconv.Quote(w))
	}
	f.add(key, "want %s, have %q", want.String(), have)
}

// hostPort checks what a door listens on; an empty text is a door that is shut.
func (f *Faults) hostPort(key, have string) {
	if have == "" {
		return
	}
	_, port, err := net.SplitHostPort(have)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		f.add(key, `want HOST:PORT such as "127.0.0.1:2525", have %q`, have)
	}
}

// OnLoopback reports whether only this machine can reach a listener at hostPort.
func OnLoopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil || host == "localhost" {
		return true // what is no address at all is another fault
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// CheckFormat says what is wrong with a format as users write it.
func CheckFormat(text string) error {
	err := lists.ParseFormat(text)
	if err == nil {
		return nil
	}
	var names []string
	for _, f := range lists.Formats() {
		names = append(names, f.Name)
	}
	name, _, _ := strings.Cut(text, ":")
	if slices.Contains(names, name) {
		return err
	}
	return fmt.Errorf("%w%s", err, spelling.Hint(name, "", names))
}
