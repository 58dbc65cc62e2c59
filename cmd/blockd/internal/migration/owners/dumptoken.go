package owners

import (
	"encoding/hex"
	"strings"
)

// next takes the next token; its kind is 0 at the end.
func (d *dump) next() (token, error) {
	for d.at < len(d.text) {
		rest := d.text[d.at:]
		switch c := rest[0]; {
		case c == '\n':
			d.line++
			d.at++
		case c == ' ' || c == '\t' || c == '\r' || c == '\f':
			d.at++
		case strings.HasPrefix(rest, "--"), c == '#' && d.escapes, c == '\\' && strings.Trim(d.text[:d.at][strings.LastIndexByte(d.text[:d.at], '\n')+1:], " ") == "":
			d.rest() // the last is a command of psql
		case strings.HasPrefix(rest, "/*"):
			comment, _, found := strings.Cut(rest, "*/")
			if !found {
				return token{}, errCut
			}
			d.line += strings.Count(comment, "\n")
			d.at += len(comment) + 2
		case c == '\'':
			return d.quoted('\'', 's', d.escapes)
		case c == '"':
			return d.quoted('"', 'n', d.escapes)
		case c == '`':
			return d.quoted('`', 'n', false)
		case (c == 'E' || c == 'e') && strings.HasPrefix(rest[1:], "'"):
			d.at++
			return d.quoted('\'', 's', true)
		case (c == 'X' || c == 'x') && strings.HasPrefix(rest[1:], "'"):
			d.at++
			t, err := d.quoted('\'', 's', false)
			if octets, bad := hex.DecodeString(t.text); bad == nil {
				t.text = string(octets)
			}
			return t, err
		case c == '$':
			if t, ok := d.dollar(rest); ok {
				return t, nil
			}
			d.at++
			return token{kind: c, text: "$"}, nil
		case wordly(c):
			n := 1
			for n < len(rest) && wordly(rest[n]) {
				n++
			}
			d.at += n
			return token{'w', rest[:n]}, nil
		default:
			d.at++
			return token{c, rest[:1]}, nil
		}
	}
	return token{}, nil
}

// wordly tells the octets of words and numbers; those of other alphabets are some. A dot within a number does not
// matter here.
func wordly(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}

// quoted reads what stands in quotes, of which two are one.
func (d *dump) quoted(quote, kind byte, escapes bool) (token, error) {
	var b strings.Builder
	for i := d.at + 1; i < len(d.text); i++ {
		c := d.text[i]
		if c == '\n' {
			d.line++
		}
		switch {
		case c == '\\' && escapes && i+1 < len(d.text):
			i++
			if d.text[i] == '\n' {
				d.line++
			}
			b.WriteString(unescaped.Replace(d.text[i : i+1]))
		case c != quote:
			b.WriteByte(c)
		case i+1 < len(d.text) && d.text[i+1] == quote:
			i++
			b.WriteByte(quote)
		default:
			d.at = i + 1
			return token{kind, b.String()}, nil
		}
	}
	return token{}, errCut
}

// unescaped is what a character behind a backslash stands for.
var unescaped = strings.NewReplacer("n", "\n", "t", "\t", "r", "\r", "0", "\x00", "Z", "\x1a")

// dollar reads a string between $tag$ and $tag$.
func (d *dump) dollar(rest string) (token, bool) {
	end := strings.IndexByte(rest[1:], '$')
	if end < 0 || end > 64 || strings.ContainsAny(rest[1:1+end], " \n'(),;") {
		return token{}, false
	}
	tag := rest[:end+2]
	body, _, found := strings.Cut(rest[len(tag):], tag)
	if !found {
		return token{}, false
	}
	d.line += strings.Count(body, "\n")
	d.at += len(body) + 2*len(tag)
	return token{'s', body}, true
}
