package lists

import (
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Bounds of what a list says of itself.
const (
	MaxAboutText   = 200 // octets of a title, a licence, a date
	MaxAboutLink   = 300 // octets of a link
	aboutLines     = 100 // at the head of a file
	aboutBytes     = 64 << 10
	longestExpires = 10 * 365 * 24 * time.Hour
)

// About is where a list comes from: what its header says, or the configuration. Each text is one line without control
// characters and marks of direction, and each link an address of a page or a mailbox, so that they may be shown anywhere as
// they are, escaped as the place wants it. All may be "".
type About struct {
	Title      string
	Homepage   string // http, https or mailto
	Complaints string // where to complain: the same
	Licence    string
	Modified   string        // the list's own date, in its own words
	Expires    time.Duration // after which it wants to be fetched anew; 0: it does not say
}

// IsZero reports whether nothing is known.
func (a About) IsZero() bool { return a == About{} }

// Or is a, with what b says where a says nothing.
func (a About) Or(b About) About {
	for _, text := range []struct {
		mine *string
		next string
	}{{&a.Title, b.Title}, {&a.Homepage, b.Homepage}, {&a.Complaints, b.Complaints}, {&a.Licence, b.Licence}, {&a.Modified, b.Modified}} {
		if *text.mine == "" {
			*text.mine = text.next
		}
	}
	if a.Expires == 0 {
		a.Expires = b.Expires
	}
	return a
}

// String is a for people, in a line: "Scam Block List, https://…, licence MIT, complaints to https://…".
func (a About) String() string {
	var parts []string
	for _, part := range []struct{ before, text string }{{"", a.Title}, {"", a.Homepage}, {"licence ", a.Licence}, {"complaints to ", a.Complaints}} {
		if part.text != "" {
			parts = append(parts, part.before+part.text)
		}
	}
	return strings.Join(parts, ", ")
}

// forbidding are words of licences that do not let everybody pass a list on.
var forbidding = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\bby-nc(-nd|-sa)?\b|\bcc[ -]by[ -]nc\b`),
	regexp.MustCompile(`(?i)\bnon-?commercial\b`),
	regexp.MustCompile(`(?i)\b(no|without) (re)?distribution\b|\bnot (be )?(re-?)?(distributed?|published?)\b|redistribution (is )?(prohibited|forbidden|not (permitted|allowed))`),
	regexp.MustCompile(`(?i)\b(personal|private|internal) use( only)?\b|\ball rights reserved\b|\bproprietary\b`),
	regexp.MustCompile(`(?i)\bspamhaus\b`), // its terms: no redistribution without consent
}

// Forbids reports whether the licence is known not to let everybody pass the list on. It is no advice in law: a licence that is not known
// is no reason to say so.
func (a About) Forbids() bool {
	for _, words := range forbidding {
		if words.MatchString(a.Licence) {
			return true
		}
	}
	return false
}

// CleanAbout makes a text of a list fit to be shown: one line, cut at a character, nothing that moves the cursor or turns
// the direction of what follows.
func CleanAbout(text string, most int) string {
	text = strings.Map(func(c rune) rune {
		switch {
		case unicode.IsSpace(c), unicode.IsControl(c):
			return ' '
		case unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs):
			return -1
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	return strings.TrimSpace(cutText(strings.Join(strings.Fields(text), " "), most))
}

// AboutLink reads the address of a page or of a mailbox; "" if the text is none: another scheme, a password in it, or an octet
// that a link does not have.
func AboutLink(text string) string {
	if len(text) > MaxAboutLink || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("\"'<>\\^`{|}", c) }) {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "https":
		if u.Host == "" || u.User != nil {
			return ""
		}
	case "mailto":
		local, domain, ok := strings.Cut(u.Opaque, "@")
		if !ok || local == "" || domain == "" || strings.ContainsAny(u.Opaque, "%,") || u.RawQuery != "" {
			return "" // one mailbox, and no header fields of a mail that a reader has not seen
		}
	default:
		return ""
	}
	return text
}

// aboutKeys are the words of headers.
var aboutKeys = map[string]func(a *About, value string){
	"title":         func(a *About, v string) { put(&a.Title, CleanAbout(v, MaxAboutText)) },
	"homepage":      homepage,
	"home":          homepage,
	"home page":     homepage,
	"website":       homepage,
	"complaints":    complaints,
	"contribute":    complaints,
	"issues":        complaints,
	"support":       complaints,
	"license":       licence,
	"licence":       licence,
	"expires":       func(a *About, v string) { a.expires(v) },
	"last modified": modified,
	"last-modified": modified,
	"last update":   modified,
	"last updated":  modified,
	"updated":       modified,
}

func homepage(a *About, v string)   { put(&a.Homepage, AboutLink(v)) }
func complaints(a *About, v string) { put(&a.Complaints, AboutLink(v)) }
func licence(a *About, v string)    { put(&a.Licence, CleanAbout(v, MaxAboutText)) }
func modified(a *About, v string)   { put(&a.Modified, CleanAbout(v, MaxAboutText)) }

// put keeps what was said first.
func put(to *string, text string) {
	if *to == "" {
		*to = strings.Clone(text) // it may lie in the memory of the file
	}
}

var expiresWords = regexp.MustCompile(`(?i)^(\d{1,4})\s*(days?|d|hours?|h|weeks?|w)?\b`)

// expires reads "4 days (update frequency)". A number alone is days. Dates, as in a header of HTTP, are none.
func (a *About) expires(text string) {
	m := expiresWords.FindStringSubmatch(text)
	if m == nil || a.Expires != 0 || m[2] == "" && strings.TrimSpace(text[len(m[0]):]) != "" {
		return
	}
	n, _ := strconv.Atoi(m[1]) // four digits at most
	unit := 24 * time.Hour
	switch strings.ToLower(m[2] + "d")[0] {
	case 'h':
		unit = time.Hour
	case 'w':
		unit = 7 * 24 * time.Hour
	}
	a.Expires = min(time.Duration(n)*unit, longestExpires)
}

var (
	copyrightWords = regexp.MustCompile(`(?i)^copyright\b|\(c\) *(19|20)\d\d|©`)
	phraseWords    = regexp.MustCompile(`(?i)non-?commercial|redistribut|all rights reserved`)
)

// header takes in one line of a header without its mark.
func (a *About) header(text string, copyright *string) {
	if key, value, ok := strings.Cut(text, ":"); ok {
		if set := aboutKeys[strings.ToLower(trim(key))]; set != nil {
			set(a, trim(value))
			return
		}
	}
	if copyrightWords.MatchString(text) || phraseWords.MatchString(text) && !copyrightWords.MatchString(*copyright) {
		put(copyright, CleanAbout(text, MaxAboutText))
	}
}

// readAbout reads what the list at src says of itself: in the comments before its first entry.
func readAbout(src *source, eol byte) (a About, err error) {
	in, err := src.text(nil)
	if err != nil {
		return a, err
	}
	c := newCutter(io.LimitReader(in, aboutBytes), eol, blockSize)
	lines, copyright := c.reader(), ""
	for range aboutLines {
		l, ok := lines.next()
		if !ok {
			break // what is wrong with the file the next pass says
		}
		text := trim(l.text)
		if text != "" && !strings.ContainsRune("#!;/[$", rune(text[0])) {
			break
		}
		if text = trim(strings.TrimLeft(text, "#!;/")); text != "" && text[0] != '[' && text[0] != '$' {
			a.header(text, &copyright)
		}
	}
	put(&a.Licence, copyright)
	return a, nil
}
