// Package owners reads the block and allow lists that users have in another program, and says what they are as entries
// of their mailboxes: a list in CSV with the header "owner,entry,action,reason", and a finding for each row.
//
// Nothing that is read is executed. The databases are asked by the drivers of package mirror, which the caller opens.
package owners

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"blockd/cmd/blockd/internal/migration"
	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/lists"
	"blockd/mail/addr"
)

// The bounds of what is read.
const (
	maxFile    = 256 << 20 // octets of one file
	maxEntries = 1_000_000 // a finding takes some 400 octets
	maxFiles   = 100_000   // below one folder
	maxReason  = 400       // octets of an entry's reason
)

// ErrTooBig is wrapped by the error about a source of more than 256 MiB a file, 100,000 files or a million entries.
var ErrTooBig = original.ErrTooBig

// Header is the first line of the list that an import makes, and of what Write writes.
var Header = []string{"owner", "entry", "action", "reason"}

// Options are what an import needs beside its source.
type Options = migration.Options

// An Entry is one of a mailbox, as a row of the list has it.
type Entry struct {
	Owner  string // canonical: a mailbox, or a domain
	Entry  string // as a plain list has it, without "!"
	Action string // "block", "allow" or "allow-if-auth"
	Reason string
}

// reading is one import.
type reading struct {
	*migration.Result
	options  Options
	entries  []Entry
	at       []*migration.Finding // of entries
	seen     map[string]int       // owner and key -> entries
	everyone []string             // lines of a plain list
	files    int
	meanings []meaning
	byText   map[string][]*meaning // by owner and text; of no text, those with a pattern of any form
}

func begin(program, source string, o Options) *reading {
	return &reading{Result: &migration.Result{Program: program, Source: source}, options: o, seen: map[string]int{}}
}

// find adds a finding.
func (r *reading) find(at migration.Place, text, meant string) (*migration.Finding, error) {
	if len(r.Findings) >= maxEntries {
		return nil, fmt.Errorf("%s: %w: more than %d rows; a [[list]] with per_recipient = true reads the table itself", r.Source, ErrTooBig, maxEntries)
	}
	return r.Find(at, text, meant), nil
}

// lose adds a finding that no list has.
func (r *reading) lose(at migration.Place, text, meant, why string, args ...any) error {
	f, err := r.find(at, text, meant)
	if err == nil {
		f.Lose(why, args...)
	}
	return err
}

// The names of the lists that an import makes. Exceptions that want proof of the sender are a list of their own,
// because [[list]] require is said of a list.
const usersList, provedList, everyoneList = "users", "users-proved", "everyone"

// add takes an item of an owner as an entry. The finding has been made; what it says is completed.
func (r *reading) add(f *migration.Finding, owner string, it lists.Item, reason string) {
	text := it.Plain()
	name, err := Canonical(owner, r.options.Domain)
	why := ""
	switch {
	case it.Kind == lists.Err:
		why = fmt.Sprintf("%s: %s", it.Class, it.Message)
	case it.Kind == lists.Glob || it.Kind == lists.Regexp:
		why = "a pattern; an entry of a mailbox is an address, a name or a local-part"
	case it.Kind == lists.Skip:
		why = "it says nothing of senders"
	case it.Kind == lists.IP || it.Kind == lists.CIDR:
		why = "an address of clients; an entry of a mailbox is about senders"
	case err != nil:
		why = err.Error()
	case text == "":
		why = "no entry of a mailbox can say this"
	}
	if why != "" {
		f.Lose("%s", why)
		return
	}
	id := name + "\x00" + text
	if n, ok := r.seen[id]; ok {
		other := r.entries[n]
		switch {
		case other.Action == it.Action.String():
			f.Now, f.List = "the same as another row", usersList
		case it.Action == lists.Block:
			f.Lose("the same owner lets it pass by another row, which goes first")
		default:
			r.at[n].Lose("the same owner lets it pass by another row, which goes first")
			r.entries[n].Action, r.at[n], f.List = it.Action.String(), f, usersList
		}
		return
	}
	if it.Class != "" && it.Message != "" {
		f.Remark(it.Message)
	}
	f.List = usersList
	if it.Action == lists.AllowIfAuth {
		f.List = provedList
	}
	r.seen[id] = len(r.entries)
	r.entries = append(r.entries, Entry{name, text, it.Action.String(), original.Cut(original.Clean(reason), maxReason)})
	r.at = append(r.at, f)
}

// addForAll takes an item that is for every recipient.
func (r *reading) addForAll(f *migration.Finding, it lists.Item) {
	text := it.Plain()
	switch {
	case it.Kind == lists.Err:
		f.Lose("%s: %s", it.Class, it.Message)
	case text == "" || it.Action != lists.Block && it.Action != lists.Allow:
		f.Lose("the list for everyone has no words for this; see docs/sources.md for its preset")
	default:
		if it.Action == lists.Allow {
			text = "!" + text
		}
		f.List = everyoneList
		r.everyone = append(r.everyone, text)
	}
}

// end makes the lists of what was read.
func (r *reading) end() (*migration.Result, error) {
	for _, name := range []string{usersList, provedList} {
		var text strings.Builder
		l := &migration.List{Name: name, File: name + ".csv", Format: "csv:entry", Comes: r.Program + ", " + r.Source, PerRecipient: true}
		if name == provedList {
			l.Require = []string{"spf", "dkim"}
		}
		err := Write(&text, func(yield func(Entry) bool) {
			for i, e := range r.entries {
				if r.at[i].Outcome == migration.Lost || r.at[i].List != name {
					continue
				}
				if name == provedList {
					e.Action = lists.Allow.String() // the list says what proves it
				}
				if l.Entries++; !yield(e) {
					return
				}
			}
		})
		if err != nil {
			return nil, err
		}
		if l.Text = []byte(text.String()); l.Entries > 0 {
			r.Lists = append(r.Lists, l)
		}
	}
	if len(r.everyone) > 0 {
		slices.Sort(r.everyone)
		r.everyone = slices.Compact(r.everyone)
		excepts := slices.ContainsFunc(r.everyone, func(line string) bool { return line[0] == '!' })
		r.Lists = append(r.Lists, &migration.List{Name: everyoneList, File: everyoneList + ".txt", Format: "plain", Comes: r.Program + ", " + r.Source + ": for every recipient",
			Excepts: excepts, Entries: len(r.everyone), Text: []byte(strings.Join(r.everyone, "\n") + "\n")})
	}
	r.Mails, r.There = r.mails, r.there
	r.Note("%s was asked by what its rows mean there, of envelope senders; blockd refuses at RCPT, before the message is sent", r.Program)
	return r.Result, nil
}

// Canonical gives the canonical form of an owner: a mailbox, or a domain. domain completes a bare user name; "" = the
// name of a user without a domain is refused, and a text with a dot is a domain.
func Canonical(owner, domain string) (string, error) {
	text := strings.TrimSpace(owner)
	bare, _ := strings.CutPrefix(text, "@")
	switch {
	case text == "":
		return "", errors.New("it has no owner")
	case strings.Contains(bare, "@"):
	case strings.HasPrefix(text, "@") || strings.Contains(bare, "."):
		k, err := addr.DomainKey(bare)
		if err != nil || strings.HasPrefix(k.Text, "[") {
			return "", fmt.Errorf("%q is no owner", original.Shown(owner))
		}
		return k.Text, nil
	case domain == "":
		return "", fmt.Errorf("the user %q has no domain; --domain completes such names", original.Shown(owner))
	default:
		text += "@" + domain
	}
	if a, err := addr.Parse(text); err == nil {
		if k, ok := a.Key(); ok {
			return k.Text, nil
		}
	}
	return "", fmt.Errorf("%q is no owner", original.Shown(owner))
}

// Write writes entries as the list that per_recipient = true with format = "csv:entry" reads.
func Write(w io.Writer, entries func(yield func(Entry) bool)) error {
	out := csv.NewWriter(w)
	if err := out.Write(Header); err != nil {
		return err
	}
	for e := range entries {
		if err := out.Write([]string{e.Owner, e.Entry, e.Action, e.Reason}); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// load reads a regular file. A FIFO or a device is refused without waiting for it.
func (r *reading) load(path string) ([]byte, error) {
	if r.files++; r.files > maxFiles {
		return nil, fmt.Errorf("%s: %w: more than %d files", r.Source, ErrTooBig, maxFiles)
	}
	return original.Load(path, maxFile)
}
