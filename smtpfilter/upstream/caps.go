package upstream

import (
	"strconv"
	"strings"
)

// Caps is what upstream announced in its EHLO reply. It is shared and never
// changed once it is made.
type Caps struct {
	Lines []string // keyword lines, without code and CRLF, one blank between words, the greeting line left out
	Size  int64    // of SIZE; 0 = not announced or no limit
	TLS   bool     // announced under TLS; then every connection to upstream has TLS
	Local bool     // upstream is on this machine: no wire in between

	raw string // the reply that Lines and Size were read from
}

// parseCaps is the function of this name, for a server that has probably said the
// same before.
func (d *Dialer) parseCaps(raw []byte) Caps {
	if known, _ := d.Caps(); known.raw == string(raw) {
		return known
	}
	return parseCaps(raw)
}

// remember keeps the last announcement of upstream.
func (d *Dialer) remember(c Caps) {
	if known, ok := d.Caps(); !ok || known.raw != c.raw || known.TLS != c.TLS || known.Local != c.Local {
		known = c
		d.caps.Store(&known)
	}
}

// Has reports whether keyword (upper case) was announced.
func (c Caps) Has(keyword string) bool {
	_, ok := c.params(keyword)
	return ok
}

// params returns the text after keyword on its line.
func (c Caps) params(keyword string) (params string, ok bool) {
	for _, line := range c.Lines {
		word, params, _ := strings.Cut(line, " ")
		if strings.EqualFold(word, keyword) {
			return params, true
		}
	}
	return "", false
}

// parseCaps reads the lines of a 250 reply from wire.ReadReply, which
// bounds their number and length. A line that does not follow the grammar of
// RFC 5321, section 4.1.1.1, is left out, because its meaning is unknown.
func parseCaps(raw []byte) Caps {
	c := Caps{raw: string(raw)}
	first := true
	for line := range strings.Lines(c.raw) {
		line = strings.TrimSuffix(line, "\r\n")
		if first || len(line) < 5 { // the greeting, or a bare code
			first = false
			continue
		}
		// Some servers pad their lines with blanks, and Postfix skips these (RFC 5321 has one blank before each
		// parameter).
		if words := strings.Fields(line[4:]); len(words) > 0 && line[4] != ' ' && ehloLine(words) {
			c.Lines = append(c.Lines, strings.Join(words, " "))
		}
	}
	if params, ok := c.params("SIZE"); ok {
		// Up to 20 digits are allowed (RFC 1870, section 4): an absurd limit is no limit.
		if n, err := strconv.ParseUint(params, 10, 63); err == nil {
			c.Size = int64(n)
		}
	}
	return c
}

// ehloLine reports whether words are an ehlo-line: a keyword of letters, digits and
// inner hyphens, then parameters of printable ASCII.
func ehloLine(words []string) bool {
	for i, word := range words {
		if i == 0 && word[0] == '-' {
			return false
		}
		for _, c := range []byte(word) {
			if c <= ' ' || c > '~' || i == 0 && !keywordChar(c) {
				return false
			}
		}
	}
	return true
}

func keywordChar(c byte) bool {
	return c == '-' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
