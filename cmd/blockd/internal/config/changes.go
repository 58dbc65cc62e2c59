package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
)

// Changes are what differs between two configurations, by names alone: a value may be a secret.
type Changes struct {
	Keys                    []string // "smtp.recipients_exempt"; "policy" is the whole of them
	Added, Removed, Changed []string // lists, by name

	// Beyond are those of the keys that a process which runs cannot follow: another one has to take over. Each is a
	// fault with its line, for where none can.
	Beyond Faults

	path string
	line func(key string) int
}

// Fault is why another process could not take over by the configuration, in its words. It stands at the key that these
// begin with, or else at the first key that is Beyond.
func (c Changes) Fault(words string) Fault {
	f := Fault{File: c.path, Line: 1, Text: words}
	if len(c.Beyond) > 0 {
		f.Line = c.Beyond[0].Line
	}
	if key, _, ok := strings.Cut(words, ":"); ok {
		if line := c.line(key); line > 0 {
			f.Line = line
		}
	}
	return f
}

// None reports whether the two mean the same.
func (c Changes) None() bool {
	return len(c.Keys)+len(c.Added)+len(c.Removed)+len(c.Changed) == 0
}

// Digest is the SHA-256 of what c means, in hexadecimal digits: that of another configuration is another one. What it is
// made of may hold secrets, so it is for those who may read them.
func (c Config) Digest() string {
	text, err := json.Marshal(c)
	if err != nil {
		return "" // no value of a configuration is such
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// followed are the keys that a running daemon follows; a table stands for all of its keys. With any other key changed
// another process takes over (docs/decisions/0060-another-process-takes-over.md).
var followed = []string{
	"policy", "recipients.owner", "recipients.subaddress", "recipients.allow_overrides", "refusal", "smtp.recipients_exempt", "auth.unverified_allow", "auth.clients", "auth.on_dns_error", "first_seen.on_first", "correspondents.learn", "correspondents.excuse", "log.level",
}

// listFollowed are those of a [[list]]. What its files mean, and which files they are, needs a build.
var listFollowed = []string{"on_match", "match", "tarpit", "discard", "text", "contact", "require", "no_override", "percent", "homepage", "complaints", "licence"}

// Reread is LoadToServe for a daemon that runs by running. An empty file is a fault: whoever writes the configuration has not finished.
func Reread(path string, running Config) (Config, Changes, error) {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return Config{}, Changes{}, Faults{{File: path, Line: 1, Text: "the file is empty"}}
	}
	c, from, err := readBy(path, nil)
	if err == nil {
		err = c.mayServe(path, from)
	}
	if err != nil {
		if faults := (Faults)(nil); !errors.As(err, &faults) {
			// Of the file as a whole; its name may stand in the error too.
			text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "open "), path+": ")
			err = Faults{{File: path, Line: 1, Text: text}}
		}
		return Config{}, Changes{}, err
	}
	changes := compare(running, c)
	changes.path, changes.line = path, from.lines.of
	changes.Beyond.locate(path, from)
	for i := range changes.Beyond {
		changes.Beyond[i].Line = max(changes.Beyond[i].Line, 1)
	}
	return c, changes, nil
}

// compare says what differs.
func compare(old, c Config) (changes Changes) {
	differ := func(key string, follows bool) {
		changes.Keys = append(changes.Keys, shownKey(key))
		if !follows {
			changes.Beyond.add(key, "cannot change while blockd runs; restart it, or take the change back")
		}
	}
	was := reflect.ValueOf(old)
	for field, is := range reflect.ValueOf(c).Fields() {
		table, before := tagOf(field), was.FieldByIndex(field.Index)
		switch {
		case field.Name == "Lists":
			compareLists(old.Lists, c.Lists, differ, &changes)
		case is.Kind() != reflect.Struct:
			if !reflect.DeepEqual(before.Interface(), is.Interface()) {
				differ(table, slices.Contains(followed, table))
			}
		default:
			for key, value := range is.Fields() {
				if name := table + "." + tagOf(key); !reflect.DeepEqual(before.FieldByIndex(key.Index).Interface(), value.Interface()) {
					differ(name, slices.Contains(followed, table) || slices.Contains(followed, name))
				}
			}
		}
	}
	return changes
}

// compareLists compares [[list]] by names; the order of lists that both have does not matter to what they mean.
func compareLists(old, now []List, differ func(string, bool), changes *Changes) {
	for i, l := range now {
		at := slices.IndexFunc(old, func(o List) bool { return o.Name == l.Name })
		if at < 0 {
			changes.Added = append(changes.Added, l.Name)
			differ(fmt.Sprintf("list[%d]", i), false)
			continue
		}
		was, changed := reflect.ValueOf(old[at]), false
		if l.added != old[at].added { // what it may be fetched from differs
			changed = true
			differ(fmt.Sprintf("list[%d].url", i), false)
		}
		for field, value := range reflect.ValueOf(l).Fields() {
			if !field.IsExported() || reflect.DeepEqual(was.FieldByIndex(field.Index).Interface(), value.Interface()) {
				continue
			}
			changed = true
			key := tagOf(field)
			differ(fmt.Sprintf("list[%d].%s", i, key), slices.Contains(listFollowed, key))
		}
		if changed {
			changes.Changed = append(changes.Changed, l.Name)
		}
	}
	for _, o := range old {
		if !slices.ContainsFunc(now, func(l List) bool { return l.Name == o.Name }) {
			changes.Removed = append(changes.Removed, o.Name)
			differ("list", false)
		}
	}
}
