// Package live holds entries that act at once: an administrator adds or removes them by one
// command, without a list file and without a build.
//
// Their folder has a snapshot of the entries, which is mapped; a journal that goes on from it, to
// which each change is appended and synced before it is acknowledged; and a plain list of all
// entries, which the next build of the index reads like any other list. A look-up asks the index,
// and, if the index lacks some, the snapshot and a small table of what has changed since. What the index says of the list is checked against the entries as they are
// now, so that a removal and an expiry act at once too.
package live

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"blockd/lists"
	"blockd/records/audit"
)

// ListName is the name of the list of live entries, in verdicts and in the index.
const ListName = "live"

// The bounds of entries. The file of a million has some 100 MB; the memory of the process is some
// 600 octets for each that has changed since the snapshot, of which there is at most a sixteenth.
const (
	MaxEntries = 1_000_000
	MaxWhy     = 400 // octets, as a list's reasons
	MaxAuthor  = audit.MaxAuthor
	mostLife   = 100 * 365 * 24 * time.Hour
)

// The errors of a change and of Open.
var (
	// ErrInvalid is wrapped by the error of a Change that can never be made.
	ErrInvalid = errors.New("no live entry")
	// ErrGuarded is wrapped by the error of an entry that reaches too far, unless
	// Change.Force is set.
	ErrGuarded = errors.New("refused by the gate")
	// ErrFull is the error of a change that would make more than MaxEntries.
	ErrFull = fmt.Errorf("there are %d live entries, and no more can be held; put some into a list file", MaxEntries)
	// ErrUnwritable is wrapped by the error of a change that could not be written. It
	// has not been made, but may be there after a restart if the system kept it.
	ErrUnwritable = errors.New("live entries cannot be written")
	// ErrLocked is wrapped by Open's error when another process has the folder.
	ErrLocked = errors.New("another process holds the live entries")
)

// Entry is one live entry. It never changes.
type Entry struct {
	Rev     uint64     // the revision that the fleet's engine gave; 0 = the entry is of this machine alone
	Number  uint64     // the number of the change that made the entry; numbers rise and are never used again
	Item    lists.Item // kind, key or network, scope; its action is Block or Allow
	Text    string     // the entry as a plain list has it, without "!"
	Why     string
	Author  string
	Added   time.Time // UTC, to the second
	Expires time.Time // UTC, to the second; zero: never
	Forced  bool      // the entry reaches further than the gate allows without Force
	// NeedsProof: the exception counts only for mail that SPF or DKIM proves to be of the sender's domain.
	NeedsProof bool

	gone bool // no entry: the change with this number has removed what had the identity

	key    string
	expiry int64 // Unix seconds; 0: never
	reason string
}

// expired reports whether the entry's time is over.
func (e *Entry) expired(now int64) bool { return e.expiry != 0 && e.expiry <= now }

// Reason is what a verdict says of the entry: why, by which author, and until when.
func (e *Entry) Reason() string { return e.reason }

// LogValue gives the fields of a log line about the entry.
func (e *Entry) LogValue() slog.Value {
	return slog.GroupValue(slog.String("owner", e.Item.Owner.Text), slog.String("text", e.Text), slog.String("scope", e.Item.Scope.String()), slog.String("action", e.Item.Action.String()),
		slog.String("reason", e.reason), slog.Uint64("number", e.Number))
}

// identity is key and scope; there is one entry for each.
type identity struct {
	key   string
	scope lists.Scope
}

func (e *Entry) identity() identity { return identity{e.key, e.Item.Scope} }

// Change asks for an entry, or for its removal.
type Change struct {
	Owner   string       // whose entry it is, as addr.ParseOwner reads it; "" = everybody's
	Entry   string       // in any spelling of a plain list
	Remove  bool         // remove the entry; only Entry, Why and Author count then
	Action  lists.Action // Block or Allow
	Why     string       // one line
	Author  string       // one line
	Expires time.Time    // zero: never
	Force   bool         // add the entry even if the gate would refuse it
	Journal string       // what the journal of changes has in place of an entry that is removed, its owner and its reason; "" = these

	NeedsProof bool    // as Entry.NeedsProof; only of an Allow about a domain or an address there
	IfRev      *uint64 // the Revision that the entry must have now, 0 = there must be none; nil = any
}

// Outcome is the result of a change.
type Outcome struct {
	Entry *Entry // the entry now in force; nil after a removal
	Was   *Entry // the entry in force before, with the same key and scope; nil = none

	Rev      uint64 // of the change in the fleet; 0 = nothing has changed, or it is of this machine alone
	Replicas int    // of the fleet's store that have the change too; -1 = that is not known
}

// Changed reports whether the change has changed anything.
func (o Outcome) Changed() bool { return o.Entry != o.Was }

// newEntry makes an entry of a valid change. guard may be nil.
func newEntry(c Change, guard *lists.Guard, now time.Time) (*Entry, error) {
	if c.Action != lists.Block && c.Action != lists.Allow {
		return nil, fmt.Errorf("%w: action %s; want block or allow", ErrInvalid, c.Action)
	}
	if err := errors.Join(oneLine("why", c.Why, MaxWhy), oneLine("author", c.Author, MaxAuthor)); err != nil {
		return nil, err
	}
	e := &Entry{Why: c.Why, Author: audit.Shown(c.Author), NeedsProof: c.NeedsProof, Added: now.UTC().Truncate(time.Second), Expires: c.Expires.UTC().Truncate(time.Second)}
	if c.Expires.IsZero() {
		e.Expires = time.Time{}
	} else if life := e.Expires.Sub(now); life <= 0 || life > mostLife {
		return nil, fmt.Errorf("%w: it would end at %s; want a time to come, within a hundred years", ErrInvalid, e.Expires.Format(time.RFC3339))
	}
	if c.Owner != "" {
		guard = nil // a user may block whom he likes, and his exceptions reach himself alone
	}
	item, err := lists.ParseEntry(c.Entry, lists.Settings{Action: c.Action, Guard: guard})
	if lists.Guarded(err) {
		guarded := err
		item, err = lists.ParseEntry(c.Entry, lists.Settings{Action: c.Action})
		if err == nil && !c.Force { // if the entry is invalid, Force cannot help
			return nil, fmt.Errorf("%w: %w", ErrGuarded, guarded)
		}
		e.Forced = true
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := setOwner(&item, c.Owner); err != nil {
		return nil, err
	}
	if err := provable(&item, c.NeedsProof); err != nil {
		return nil, err
	}
	return e, e.take(item)
}

// take gives an entry its key and what is derived from its fields.
func (e *Entry) take(item lists.Item) error {
	item.Reason, item.Class, item.Message = "", "", ""
	e.Item, e.Text, e.key = item, item.Plain(), ownedKey(item.Owner.Text, keyOf(&item))
	if e.Text == "" || e.key == "" {
		return fmt.Errorf("%w: %q is of a kind that cannot be live", ErrInvalid, item.Name())
	}
	if !e.Expires.IsZero() {
		e.expiry = e.Expires.Unix()
	}
	e.reason = reasonOf(e)
	return nil
}

func reasonOf(e *Entry) string {
	var b strings.Builder
	b.WriteString(e.Why)
	if e.Why != "" {
		b.WriteByte(' ')
	}
	fmt.Fprintf(&b, "(added %s", e.Added.Format(time.DateOnly))
	if e.Author != "" {
		b.WriteString(" by " + e.Author)
	}
	if e.expiry != 0 {
		b.WriteString(", until " + e.Expires.Format(time.RFC3339))
	}
	b.WriteByte(')')
	return b.String()
}

// oneLine refuses a text that is too long, or not one line.
func oneLine(what, text string, most int) error {
	switch {
	case len(text) > most:
		return fmt.Errorf("%w: %s has %d octets, at most %d are kept", ErrInvalid, what, len(text), most)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%w: %s is not one line of UTF-8", ErrInvalid, what)
	}
	return nil
}

// same reports whether e already is what o asks for.
func (e *Entry) same(o *Entry) bool {
	return e.Item.Action == o.Item.Action && e.NeedsProof == o.NeedsProof && e.Why == o.Why && e.Author == o.Author && e.Expires.Equal(o.Expires) && e.Forced == o.Forced
}

// ParseLife reads how long an entry is in force: a duration of time.ParseDuration, with days
// before it if wanted, such as "30d", "1d12h" or "90m". A day has 24 hours. The result is
// above 0 and at most a hundred years. The error wraps ErrInvalid.
func ParseLife(text string) (time.Duration, error) {
	bad := fmt.Errorf(`%w: want how long, such as "30d" or "12h", have %q`, ErrInvalid, text[:min(len(text), 32)])
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 16)
	life := time.Duration(n) * 24 * time.Hour
	if err != nil || life > mostLife {
		return 0, bad
	}
	if rest != "" {
		more, err := time.ParseDuration(rest)
		if err != nil || rest[0] == '-' || rest[0] == '+' || more > mostLife {
			return 0, bad
		}
		life += more
	}
	if life <= 0 || life > mostLife {
		return 0, bad
	}
	return life, nil
}
