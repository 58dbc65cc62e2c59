// Package lists turns list text of any known format into entries, each with its
// file and line. Its rules are docs/lists.md: a line is an entry, a comment, or
// refused with a reason, and never lost in silence.
//
// A format is one row of the table in format.go and one small parser in a file
// of its own. Opening, unpacking, decoding, cutting into lines, canonical keys,
// actions and counts are the same for all of them.
package lists

import (
	"net/netip"

	"blockd/lists/pattern"
	"blockd/mail/addr"
)

// Kind tells what one Item is.
type Kind uint8

// The kinds of items. Words as `blockd lint --json` prints them: see String.
const (
	Skip      Kind = iota // "skip": a comment, a header, a line that asks for nothing here
	Err                   // "err": a line that was refused
	Addr                  // "addr": Key is an address or a local-part
	Domain                // "domain": Key is a domain
	IP                    // "ip": Net is one client address
	CIDR                  // "cidr": Net is a network of client addresses
	Glob                  // "glob": Pattern is a shell pattern over whole addresses
	Regexp                // "regexp": Pattern is a regular expression over whole addresses
	Recipient             // "recipient": Key is the address of a recipient, to whom mail is refused
)

// Scope is how far an entry reaches.
type Scope uint8

// The scopes. Label boundaries count: bulk.test never matches notbulk.test.
const (
	Exact Scope = iota // "exact": the mailbox, name or address itself
	Sub                // "sub": names below, at any depth, not the name itself
	Tree               // "tree": the name and all below; the network and all in it
	Local              // "local": this local-part at any domain
)

// Action is what an entry asks for.
type Action uint8

// The actions. Their order is the file format's: see docs/index-format.md.
const (
	Block    Action = iota // "block"
	Allow                  // "allow"
	Tempfail               // "tempfail"
	Discard                // "discard"

	// AllowIfAuth is "allow-if-auth": an exception for mail whose author SPF or DKIM
	// proves, and for no other.
	AllowIfAuth

	// Remove is no action of a file format: "remove" takes back the same entry of
	// earlier lines. Only Lint emits such items.
	Remove
)

// Item is what one line, or one part of a line, means.
//
// The Item and its texts hold until the callback returns: who keeps them copies
// them (strings.Clone). They may lie in a buffer that the next lines overwrite.
type Item struct {
	Line    int // physical line, from 1
	Kind    Kind
	Owner   addr.Key     // whose entry it is: a mailbox or a domain of recipients; zero = everybody's
	Key     addr.Key     // of Addr, Domain and Recipient
	Net     netip.Prefix // of IP and CIDR, masked
	Pattern string       // of Glob and Regexp, canonical: see docs/lists.md, section 2
	Scope   Scope
	Action  Action
	Reason  string // for the client; at most 400 octets, no controls
	Expires int64  // when the entry ends, in Unix seconds; 0 = never
	Origin  string // where the entry comes from if not from this line: "file:line", or a row's id; "" = from this line
	Class   Class  // of Skip and Err: why. Of an entry: a warning, or ""
	Message string // for people, free text
	Test    *Test  // of Skip with class SelfTest; may be kept
	Column  int    // where the fault begins in the line, in octets from 1; 0 = unknown

	pattern *pattern.Pattern // of Glob and Regexp

	// void marks what reaches no index: it takes back, or is taken back.
	void bool

	ours bool // of a network of our own, or of a line that is refused for that

	// Text is the physical line as read, at most 4096 octets of it, for people:
	// it may hold any octets. Of JSON, which knows no lines, it is the element.
	Text string
}

// Name returns the canonical text under which `blockd lint` shows an entry: its
// key, client address, network or pattern, that of a recipient after "recipient:", and
// before it the owner and a blank if it has one. It is "" for Skip and Err.
func (it *Item) Name() string {
	return ownerName(it.Owner, EntryName(it.Kind, it.Key, it.Net, it.Pattern))
}

// Personal reports whether the entry is about recipients: it has an owner, or its subject
// is a recipient. Such an entry is in no answer about a sender, and in no export.
func (it *Item) Personal() bool { return it.Owner.Text != "" || it.Kind == Recipient }

// Free reports whether the entry is a pattern without any text that a sender must
// hold, so that it is tried on every sender. Only few of those can be held.
func (it *Item) Free() bool { return it.pattern != nil && it.pattern.Free() }

// Steps is pattern.Pattern.Steps of a regular expression; 0 for every other entry.
func (it *Item) Steps() int {
	if it.pattern == nil {
		return 0
	}
	return it.pattern.Steps()
}

// EntryName is Item.Name of an entry that is no Item (any more): only what its
// kind says is looked at.
func EntryName(k Kind, key addr.Key, net netip.Prefix, pattern string) string {
	switch k {
	case Addr, Domain:
		return key.Text
	case Recipient:
		return recipientMark + key.Text
	case IP:
		return net.Addr().String()
	case CIDR:
		return net.String()
	case Glob, Regexp:
		return pattern
	}
	return ""
}

// Settings say how a file is to be read. The zero value guesses the format and
// makes entries that block. They come from a [[list]] or from command line flags.
type Settings struct {
	Format     string // a name of Formats with an optional argument: "csv:3"; "" = "auto"
	Action     Action // Block or Allow
	Subdomains *bool  // scope of bare names; nil = the format's own default
	Reason     string // for entries that have none
	MaxBytes   int64  // of unpacked text; 0 = 4 GiB
	Patterns   bool   // globs and regular expressions are entries; false: they are refused
	lint       bool   // emit void items too

	// PerRecipient: each entry has an owner, and counts for mail to him alone. Formats
	// without a column for it read nothing but with Owner, who then owns every entry.
	PerRecipient bool
	Owner        addr.Key // of ParseOwner; zero = each line names its own
	MaxPerOwner  int      // entries of one owner in one file; what is more is refused by line; 0 = any number
	Guard        *Guard   // what no entry may cover; nil = nothing is checked
}

// Verdict of a file.
type Verdict string

// The verdicts of a file.
const (
	Loaded  Verdict = "loaded"
	Refused Verdict = "refused"
)

// Summary is what was made of one file.
type Summary struct {
	Format  string  // the one that was used, with its argument
	Lines   int     // physical lines
	Entries int     // items of kind addr, domain, ip, cidr, glob and regexp, duplicates included
	Errors  int     // lines refused; of JSON, elements
	Dropped Dropped // which these are
	Skipped int     // lines that were neither entry, error, blank nor comment
	Verdict Verdict
	// Why of a refused file is its Class, ": ", and a text. Of a loaded one it is
	// "", or "empty", with what was guessed if that may be why, or the ground of a guess: "auto: hosts, 200 of 200 …".
	Why  string
	Read string   // of a table: which column, "column 2, Sender, of 5; 3 lines above the header"
	Hash [16]byte // of the file's octets as stored (before unpacking): XXH3-128
	Size int64    // the file's size as stored

	About About // what the list says of itself
}
