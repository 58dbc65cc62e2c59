package lists

import "blockd/addr"

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
	NotASink          = Class("not-a-sink")
	MissingValue      = Class("missing-value")
	Unsupported       = Class("unsupported")
	UnsupportedAction = Class("unsupported-action")
)

// Warnings: classes of entries that count.
const (
	Dup        = Class("dup")
	Conflict   = Class("conflict")
	WarnAction = Class("warn-action")
	Narrowed   = Class("narrowed")
	HostBits   = Class("host-bits")
)

// Classes of lines that ask for nothing here.
const (
	Comment      = Class("comment")
	Blank        = Class("blank")
	Header       = Class("header")
	Continuation = Class("continuation")
	LocalName    = Class("local-name")
	OtherMember  = Class("other-member")
)

// Classes of whole files, the first words of Summary.Why.
const (
	Missing    = Class("missing")
	Directory  = Class("directory")
	NotAFile   = Class("not-a-file")
	Symlink    = Class("symlink")
	Permission = Class("permission")
	Changed    = Class("changed")
	Gzip       = Class("gzip")
	Truncated  = Class("truncated")
	TooBig     = Class("too-big")
	Encoding   = Class("encoding")
	Binary     = Class("binary")
	HTML       = Class("html")
	JSON       = Class("json")
	NoColumn   = Class("no-column")
	OnlyErrors = Class("only-errors")
	Empty      = Class("empty")
	BadFormat  = Class("format")
	Ambiguous  = Class("ambiguous")
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
	Unsupported:       "Write an address or a name; patterns cannot be looked up exactly.",
	UnsupportedAction: "Use an action that fits the list: REJECT, a 4xx or 5xx code with a text, or OK.",
	Dup:               "Remove one of the two lines.",
	Conflict:          "Remove one of the two lines; until then the exception wins.",
	WarnAction:        "Use REJECT if the sender is to hear of it: DISCARD loses mail without a word.",
	Narrowed:          "Check that the whole name may be listed: the line asked for less.",
	HostBits:          "Write the network's first address before the slash.",
}
