package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"blockd/policy/rule"
	"blockd/sources/mirror/preset"
)

// Recipients is [recipients]: whose entries of the lists with per_recipient = true count for mail to a recipient
// (docs/recipients.md).
type Recipients struct {
	// Who owns a recipient: its mailbox ("address"), its domain ("domain"), or both, the mailbox first.
	Owner string `toml:"owner"`
	// The characters that begin a tag: mail to anna+shop@ is Anna's. "" = there are no tags.
	Subaddress string `toml:"subaddress"`
	// Addresses that lead to others: { kind = "file", path = "aliases.csv" }, with lines "alias,owner", or a database,
	// { kind = "postgres", dsn = "…", query = "select alias, owner from aliases" }. What is written to an alias is the owner's.
	Aliases *Aliases `toml:"aliases,omitempty"`
	// The lists whose blocks a user's allow entry lifts; without it all lists but those with no_override = true.
	AllowOverrides []string `toml:"allow_overrides,omitempty"`
	// What one owner has more than this in one list is refused by line.
	MaxEntriesPerOwner int `toml:"max_entries_per_owner" want:"1 to 1000000"`
}

// Aliases is [recipients.aliases]: addresses that lead to owners, in a file or in a database.
type Aliases struct {
	// "file", "postgres", "mysql" or "sqlite".
	Kind string `toml:"kind"`
	// The file of kind "file".
	Path string `toml:"path,omitempty"`
	// Where a database is, as in [list.source].
	DSN string `toml:"dsn,omitempty"`
	// As in [list.source].
	DSNFile string `toml:"dsn_file,omitempty"`
	// A SELECT with the columns alias and owner.
	Query string `toml:"query,omitempty"`
	// How often they are read; 1m if it is not set.
	Every *Duration `toml:"every,omitempty" want:"1s to 24h"`
}

// Source is the database as the source of a list, whose entries are the aliases and whose reasons are the owners.
func (a Aliases) Source() List {
	s := defaultSource()
	s.Kind, s.DSN, s.DSNFile, s.Changes = a.Kind, a.DSN, a.DSNFile, changesNone
	s.Query = "select alias as entry, owner as reason from (" + a.Query + "\n) aliases"
	l := defaultList()
	l.Name, l.Source = "aliases", &s
	return l
}

// Pause is the time between two readings.
func (a Aliases) Pause() time.Duration {
	if a.Every == nil {
		return time.Minute
	}
	return time.Duration(*a.Every)
}

// aliasKinds are the databases that aliases may be in.
var aliasKinds = []string{"postgres", "mysql", "sqlite"}

func (a Aliases) validate(f *Faults) {
	const key = "recipients.aliases"
	switch {
	case a.Kind == "file" && a.Path == "":
		f.add(key+".path", "is missing; want a file with lines alias,owner")
	case a.Kind == "file" && a.DSN+a.DSNFile+a.Query != "":
		f.add(key+".kind", `"file" has a path alone`)
	case a.Kind == "file":
	case !slices.Contains(aliasKinds, a.Kind):
		f.add(key+".kind", `want "file", "%s", have %q`, strings.Join(aliasKinds, `", "`), a.Kind)
	case noSQL:
		f.add(key+".kind", "this program is built without databases")
	case a.Path != "":
		f.add(key+".path", `is for kind = "file"`)
	case a.Query == "":
		f.add(key+".query", `is missing; want a SELECT such as "select alias, owner from aliases"`)
	case (a.DSN == "") == (a.DSNFile == ""):
		f.add(key+".dsn", "want dsn or dsn_file, one of the two")
	}
}

func defaultRecipients() Recipients {
	return Recipients{Owner: "address,domain", Subaddress: "+", MaxEntriesPerOwner: 1000}
}

// validateRecipients checks [recipients] against the lists that there are.
func (c Config) validateRecipients(f *Faults) {
	r := c.Recipients
	if _, err := rule.ParseOwners(r.Owner); err != nil {
		f.add("recipients.owner", "%v", err)
	}
	if len(r.Subaddress) > 8 || strings.ContainsFunc(r.Subaddress, func(c rune) bool { return !strings.ContainsRune("!#$%&'*+-/=?^_`{|}~", c) }) {
		f.add("recipients.subaddress", `want the characters that begin a tag, such as "+" or "+-", have %q`, r.Subaddress)
	}
	if r.Aliases != nil {
		r.Aliases.validate(f)
	}
	names := map[string]bool{}
	for _, l := range c.Lists {
		names[l.Name] = !l.PerRecipient
	}
	for i, name := range r.AllowOverrides {
		at := fmt.Sprintf("recipients.allow_overrides[%d]", i)
		switch everybodys, known := names[name]; {
		case !known:
			f.add(at, "there is no list %q", name)
		case !everybodys:
			f.add(at, "%q is a list per recipient, whose entries go by their owners", name)
		case slices.Contains(r.AllowOverrides[:i], name):
			f.add(at, "%q stands there twice", name)
		}
	}
	for i, l := range c.Lists {
		l.validatePerRecipient(f, fmt.Sprintf("list[%d]", i), r.AllowOverrides)
	}
}

// ownerChanges are the kinds of sources that tell which entries of which owners have changed.
var ownerChanges = []string{"mysql", "postgres", "sqlite"}

// validatePerRecipient checks what a list per recipient cannot have.
func (l List) validatePerRecipient(f *Faults, key string, overrides []string) {
	if l.NoOverride && slices.Contains(overrides, l.Name) {
		f.add(key+".no_override", "%q is one of recipients.allow_overrides", l.Name)
	}
	if !l.PerRecipient {
		return
	}
	switch {
	case l.Patterns:
		f.add(key+".patterns", "a pattern has no owner")
	case l.NoOverride:
		f.add(key+".no_override", "is for lists of everybody; entries with owners go before those")
	case l.Asked():
		f.add(key+".source.mode", `a list per recipient is not asked in its store; want "copy"`)
	case l.Action == "allow":
		f.add(key+".action", `want "block": each entry says whether it blocks or allows`)
	case !slices.Equal(l.Match, []string{"envelope"}):
		f.add(key+".match", "entries with owners are about the sender of the envelope")
	case l.Source != nil && preset.IsName(l.Source.Query):
		if _, err := preset.FindForOwners(l.Source.Query, l.Source.Kind); err != nil {
			f.add(key+".source.query", "%v", err)
		}
	case l.Source != nil && l.Source.FoundBy() != changesNone && !slices.Contains(ownerChanges, l.Source.Kind):
		f.add(key+".source.changes", `want "none": of a source of this kind rows with owners are read as a whole; %s tell their changes`, strings.Join(ownerChanges, ", "))
	}
}

// ownFiles reports whether each file of the list is one owner's, and named after him: its format has no column for owners.
func (l List) ownFiles() bool {
	name, _, _ := strings.Cut(l.Format, ":")
	return l.PerRecipient && l.Source == nil && name != "csv" && name != "json" && name != "entries"
}

// files is the pattern of the files of a list: those of the folder if each is one owner's.
func (l List) files() string {
	if l.ownFiles() && !strings.ContainsAny(l.Path, `*?[`) {
		return filepath.Join(l.Path, "*")
	}
	return l.Path
}

// noOverride reports whether what an owner allows does not lift what the list blocks.
func (c Config) noOverride(l List) bool {
	return l.NoOverride || c.Recipients.AllowOverrides != nil && !slices.Contains(c.Recipients.AllowOverrides, l.Name)
}

// owners is whose entries count, but for the aliases, which are in a file; of a configuration without faults only.
func (c Config) owners() rule.Owners {
	o, _ := rule.ParseOwners(c.Recipients.Owner)
	o.Subaddress = c.Recipients.Subaddress
	return o
}
