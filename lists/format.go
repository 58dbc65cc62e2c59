package lists

import (
	"fmt"
	"slices"
	"strings"
)

// Format is one way to write a list. The formats stand in docs/lists.md, section 6.
type Format struct {
	Name     string
	Argument string // what may follow the name and a colon, in capitals; "" = nothing
	What     string // for people, a few words
	Scope    Scope  // of a bare name, unless Settings.Subdomains says otherwise
}

// format is a Format with what reads it.
type format struct {
	Format
	read func(*reading) error
	// alone: every line stands for itself, so several workers may read a file at once,
	// each with a reading of its own, and nothing of a line's text is kept when the next
	// one is read. What a line's meaning takes from lines before it belongs into sofar.
	alone bool

	// records: a line stands for itself where the text before it has no quote, so several workers may read up to the
	// first block with one. The first worker says when the others may begin.
	records bool
	// answers: an entry's text is for the client, and may begin with codes.
	answers bool
	// before reads the text before read does, each time after open, where a later line
	// changes what an earlier one means; nil: none does.
	before func(r *reading, open func(*reading) error) error
	// checkArg judges an argument; nil: there is none.
	checkArg func(string) error
	// marks tells whether a line, blanks trimmed, can be of this format alone. It
	// is what section 7 guesses by; nil: the format is never guessed by its lines.
	marks func(string) bool
	// shows is what such lines are, for the ground of a guess.
	shows string
	// guess is the argument that a guess takes by the first lines; nil: none.
	guess func(sample []string) string
}

// formats names every format that this package reads. To add one, write its
// parser in a file of its own and its row here. The rest of the package stays as it
// is.
var formats = [...]format{
	{
		Format: Format{Name: "plain", What: "addresses, domains, IPs and networks, one a line", Scope: Tree},
		read:   readPlain,
		alone:  true,
		shows:  "addresses, names or networks",
	},
	{
		Format: Format{Name: "hosts", What: "hosts file: 0.0.0.0 NAME", Scope: Exact},
		read:   eachLine(hashComment, hostsLine),
		alone:  true,
		marks:  hostsMark, shows: `"0.0.0.0 NAME"`,
	},
	{
		Format: Format{Name: "adblock", What: "ad blocker's filter list: ||NAME^", Scope: Tree},
		read:   eachLine(adblockComment, adblockLine),
		alone:  true,
		before: findRemovals("rules", noteBadFilter),
		marks:  adblockMark, shows: `rules like "||NAME^"`,
	},
	{
		Format: Format{Name: "dnsmasq", What: "dnsmasq.conf: address=/NAME/0.0.0.0", Scope: Tree},
		read:   eachLine(hashComment, dnsmasqLine),
		alone:  true,
		before: carve(false, dnsmasqMayFree, eachLine(hashComment, dnsmasqLine)),
		marks:  dnsmasqMark, shows: `options like "address=/NAME/0.0.0.0"`,
	},
	{
		Format: Format{Name: "unbound", What: "unbound.conf: local-zone: NAME refuse", Scope: Tree},
		read:   eachLine(hashComment, unboundLine),
		alone:  true,
		before: carve(false, unboundMayFree, eachLine(hashComment, unboundLine)),
		marks:  unboundMark, shows: "options of unbound",
	},
	{
		Format:  Format{Name: "postfix", What: "Postfix access(5) table: NAME REJECT", Scope: Tree},
		read:    eachFolded(hashComment, postfixLine),
		answers: true,
		marks:   postfixMark, shows: `"NAME ACTION"`,
	},
	{
		Format:  Format{Name: "sendmail", What: "sendmail access map: From:NAME REJECT", Scope: Tree},
		read:    eachLine(hashComment, sendmailLine),
		alone:   true,
		answers: true,
		marks:   sendmailMark, shows: `"TAG:KEY ACTION"`,
	},
	{
		Format: Format{Name: "spamassassin", What: "SpamAssassin configuration: blocklist_from *@NAME", Scope: Exact},
		read:   eachLine(hashComment, spamassassinLine),
		alone:  true,
		before: findRemovals("entries", noteUndone),
		marks:  spamassassinMark, shows: "directives of SpamAssassin",
	},
	{
		Format: Format{Name: "rspamd", What: "rspamd map: a key a line, perhaps with a value", Scope: Exact},
		read:   eachLine(hashComment, rspamdLine),
		alone:  true,
	},
	{
		Format:   Format{Name: "rbldnsd", Argument: "DATASET", What: "rbldnsd data: dnset, ip4set, ip4trie, ip6trie, generic or combined", Scope: Exact},
		read:     readRbldnsd,
		before:   findTexts,
		checkArg: checkDataset,
		marks:    rbldnsdMark, shows: "entries of rbldnsd",
		guess: guessDataset,
	},
	{
		Format: Format{Name: "rpz", What: "response policy zone: NAME CNAME .", Scope: Exact},
		read:   readRPZ,
		before: carve(true, hasStar, readRPZ),
		marks:  rpzMark, shows: "records of a policy zone",
	},
	{
		Format:   Format{Name: "csv", Argument: "COLUMN[,SCORE>=N]", What: "RFC 4180 with comma, semicolon, tab or bar", Scope: Tree},
		records:  true,
		read:     readCSV,
		checkArg: checkColumn,
	},
	{
		Format:   Format{Name: "json", Argument: "PATH", What: "array of entries, or object with a member that is one", Scope: Tree},
		read:     readJSON,
		checkArg: checkPath,
	},
	{
		Format: Format{Name: "drop", What: "Spamhaus DROP: NETWORK ; SBL123, or JSON lines", Scope: Tree},
		read:   readDrop,
		marks:  dropMark, shows: "networks of a DROP list",
	},
	{
		Format: Format{Name: "entries", What: "blockd's own entries, sorted, behind " + EntriesHead, Scope: Exact},
		read:   readEntries,
		alone:  true,
	},
	{
		Format:  Format{Name: "lsearch", What: "Exim lsearch file: KEY: TEXT", Scope: Exact},
		read:    eachFolded(hashComment, lsearchLine),
		answers: true,
	},
}

// auto is the format that is none: see detect.
const auto = "auto"

// Formats lists the formats that can be declared, in the order of docs/lists.md.
func Formats() []Format {
	var fs []Format
	for _, f := range formats {
		fs = append(fs, f.Format)
	}
	return append(fs, Format{Name: auto, What: "guessed from the first 200 lines, or refused", Scope: Tree})
}

// ParseFormat says what is wrong with the text of a format, as a configuration or
// a flag has it: a name of Formats, for some with an argument behind a colon.
func ParseFormat(text string) error {
	_, _, err := findFormat(text)
	return err
}

// findFormat returns the format and its argument; nil for "auto" and "".
func findFormat(text string) (*format, string, error) {
	name, arg, hasArg := strings.Cut(text, ":")
	if text == "" || text == auto {
		return nil, "", nil
	}
	f := formatNamed(name)
	switch {
	case f == nil:
		return nil, "", fmt.Errorf("unknown format %q, want one of %s", text, formatNames())
	case !hasArg:
	case f.checkArg == nil:
		return nil, "", fmt.Errorf("format %q: %s takes no argument", text, name)
	case arg == "":
		return nil, "", fmt.Errorf("format %q: nothing behind the colon", text)
	default:
		if err := f.checkArg(arg); err != nil {
			return nil, "", fmt.Errorf("format %q: %w", text, err)
		}
	}
	return f, arg, nil
}

// formatNamed returns the format with this name, nil if there is none.
func formatNamed(name string) *format {
	if i := slices.IndexFunc(formats[:], func(f format) bool { return f.Name == name }); i >= 0 {
		return &formats[i]
	}
	return nil
}

func formatNames() string {
	var names []string
	for _, f := range Formats() {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

// eachLine reads a format in which every line stands for itself. comment tells a
// comment by its beginning, parse gets every other line without outer blanks.
func eachLine(comment func(string) bool, parse func(*reading, string)) func(*reading) error {
	return func(r *reading) error {
		for r.next() {
			r.readLine(comment, parse)
		}
		return r.end()
	}
}

// readLine reads the line in hand.
func (r *reading) readLine(comment func(string) bool, parse func(*reading, string)) {
	text := trim(r.at.text)
	if !r.common(text, comment) {
		parse(r, text)
	}
	r.flush()
}

// common settles the lines that mean the same in every format: blank ones,
// comments, and what is too long or holds controls. A control hides in a comment
// too: behind a lone CR there may be an entry that would be lost in silence.
func (r *reading) common(text string, comment func(string) bool) bool {
	switch {
	case r.at.long && comment(text):
		r.longComment(text)
	case r.at.long:
		r.fail(TooLong, "", "a line of more than 65536 octets")
	case text == "":
		r.skip(Blank, "")
	case !r.controls():
	case comment(text):
		r.comment(text)
	default:
		return false
	}
	return true
}

// hashComment is for the formats whose comments begin with "#" alone.
func hashComment(text string) bool { return text != "" && text[0] == '#' }
