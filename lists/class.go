package lists

import "blockd/mail/addr"

// Class is the word that `blockd lint` prints beside an item, or that begins the
// "why" of a file: one of the closed set of docs/lists.md, section 9. The empty
// class is a plain entry.
type Class string

// Classes of refused lines.
const (
	Syntax            = Class(addr.Syntax)
	BadUTF8           = Class(addr.BadUTF8)
	Invisible         = Class(addr.Invisible)
	Control           = Class(addr.Control)
	NUL               = Class(addr.NUL)
	IDNA              = Class(addr.IDNA)
	TooLong           = Class(addr.TooLong) // of an entry: a local-part over 64 octets
	LabelTooLong      = Class(addr.LabelTooLong)
	TooBroad          = Class("too-broad")
	NullSender        = Class("null-sender")
	NotASink          = Class("not-a-sink")    // a hosts line that points to a real host
	MissingValue      = Class("missing-value") // an access key without an action
	Unsupported       = Class("unsupported")   // a form that means something else, or a pattern nobody declared
	UnsupportedAction = Class("unsupported-action")
	PublicSuffix      = Class("public-suffix") // of an entry: of the private section, or let pass
	Protected         = Class("protected")     // of an entry: by force; of a file: too many
	Wide              = Class("wide")          // a network that an exception which reaches all lists may not cover
	Owner             = Class("owner")         // an entry of a list per recipient without an owner, or with none that can be
	OwnerFull         = Class("owner-full")    // the owner has max_entries_per_owner already
	SelfTest          = Class("self-test")     // of a skipped line: a test; of a file: one failed
)

// Warnings: classes of entries that count.
const (
	Dup        = Class("dup")         // only Lint compares entries
	Conflict   = Class("conflict")    // an exception from an equal key
	WarnAction = Class("warn-action") // DISCARD
	Narrowed   = Class("narrowed")    // the line asked for less than the whole name
	HostBits   = Class("host-bits")   // were set, and are masked
)

// Classes of lines that ask for nothing here.
const (
	Comment      = Class("comment")
	Blank        = Class("blank")
	Header       = Class("header")        // of a CSV file
	Continuation = Class("continuation")  // belongs to the line before
	LocalName    = Class("local-name")    // how the machine calls itself
	OtherMember  = Class("other-member")  // of a JSON object: no list
	Directive    = Class("directive")     // of a configuration or a zone; what was taken back
	DefaultValue = Class("default-value") // for the lines below it
	Expired      = Class("expired")       // the data is past its date, and loaded
	BelowScore   = Class("below-score")   // of a CSV record: less than was asked for
)

// Classes of whole files, the first words of Summary.Why.
const (
	Missing        = Class("missing") // no such file, or a link to none
	Directory      = Class("directory")
	NotAFile       = Class("not-a-file") // a FIFO, socket, device
	Symlink        = Class("symlink")    // a loop of links
	Permission     = Class("permission")
	Changed        = Class("changed")   // moved while it was read: wraps ErrChanged
	Gzip           = Class("gzip")      // damaged, or followed by garbage
	Truncated      = Class("truncated") // ends in the middle, or the disk failed
	TooBig         = Class("too-big")   // also what unpacks to too much
	Encoding       = Class("encoding")  // UTF-32, torn UTF-16, UTF-16 without a mark
	Binary         = Class("binary")
	HTML           = Class("html")      // an error page in place of the list
	JSON           = Class("json")      // invalid, unclosed, or without a list
	NoColumn       = Class("no-column") // a CSV file without the declared column
	BadRatio       = Class("bad-ratio") // too many of the lines are refused
	Shrunk         = Class("shrunk")    // against the generation in force, as Grown is
	Grown          = Class("grown")
	Stale          = Class("stale")          // older than it may be, in place of what serves
	Kept           = Class("kept")           // what a list held before, to which it was taken back, cannot be read
	Frees          = Class("frees")          // would let pass too much of what was refused lately
	Correspondents = Class("correspondents") // would refuse too many that users of this server write to
	Recent         = Class("recent")         // would refuse senders whose mail was just taken
	OnlyErrors     = Class("only-errors")    // nothing but refused lines
	Empty          = Class("empty")          // of a loaded file: no entry
	BadFormat      = Class("format")         // unknown
	Ambiguous      = Class("ambiguous")      // no guess without a reason
	Entries        = Class("entries")        // damaged, of a file in the format entries
)

// Hint returns one short sentence on how to cure a refused line or to settle a
// warning, "" where the class says it all.
func Hint(c Class) string { return hints[c] }

var hints = map[Class]string{
	Syntax:            `Write one address, domain, IP or network on the line; a comment follows a blank and "#".`,
	BadUTF8:           "Save the file as UTF-8.",
	Invisible:         "Delete the invisible character; typing the entry anew does it.",
	Control:           "Delete the control character; a lone CR often stands for a lost line end.",
	NUL:               "Delete the NUL octets; the file may have been torn while it was written.",
	IDNA:              "Check the name: mail systems refuse it as an internationalised domain.",
	TooLong:           "Shorten it: an address has at most 254 octets, a domain 253, a line 65536.",
	LabelTooLong:      "Shorten the part between two dots to 63 octets.",
	TooBroad:          "Narrow the entry: it would cover nearly every sender.",
	NullSender:        "Remove it: bounces come from the null sender and always pass.",
	NotASink:          "Point the name at 0.0.0.0, or take the line out: a real address blocks nothing.",
	MissingValue:      "Write an action after the key, such as REJECT.",
	Unsupported:       "Write an address or a name; globs and Go's regular expressions are for lists with patterns = true (--patterns).",
	UnsupportedAction: "Use an action that fits the list: REJECT, a 4xx or 5xx code with a text, or OK.",
	PublicSuffix:      "Write the registered name below it; a list that must cover it sets allow_public_suffix = true.",
	Protected:         `List single addresses there; a list that must cover it names the domain or network in its force = ["..."].`,
	Wide:              "Narrow the network, or keep the exceptions of the list at home: exceptions = \"own\".",
	Owner:             "Name the mailbox or the domain whose entry it is, such as anna@here.example or here.example.",
	OwnerFull:         "Remove entries of this owner, or raise max_entries_per_owner.",
	SelfTest:          "Split the file, or test fewer senders.",
	Dup:               "Remove one of the two lines.",
	Conflict:          "Remove one of the two lines; until then the exception wins.",
	WarnAction:        "Use REJECT if the sender is to hear of it: DISCARD loses mail without a word.",
	Narrowed:          "Check that the whole name may be listed: the line asked for less.",
	HostBits:          "Write the network's first address before the slash.",
}
