package owners

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
)

// command is one command of a Sieve script (RFC 5228), with its block.
type command struct {
	name     string // in small letters
	line     int
	text     string // as it stands there
	args     []argument
	test     *test
	commands []command
}

// test is a test without tests below it; one with some has the name "several tests" or that of both, and no arguments.
type test struct {
	name string
	args []argument
}

// argument is a tag, a number, or a list of strings.
type argument struct {
	tag   string
	texts []string
}

// maxNesting bounds blocks and tests within one another.
const maxNesting = 32

// sieveToken is a blank or a comment, a string, a text of several lines, a tag or name, a number, or one sign.
var sieveToken = regexp.MustCompile(`(?s)^(?:(\s+|#[^\n]*|/\*.*?\*/)|"(?:[^"\\]|\\.)*"|(?i:text:)[ \t]*(?:#[^\n]*)?\r?\n(?:.*?\n)??\.\r?(?:\n|$)|:?[A-Za-z_][A-Za-z0-9_]*|[0-9]+[KMGkmg]*|.)`)

// sieveReader has a token of a script, "" at its end.
type sieveReader struct {
	text  string // from the token on
	token string
	line  int // of the token, from 1
}

// parseSieve reads a script. Its errors name the line.
func parseSieve(text string) ([]command, error) {
	r := &sieveReader{text: text, line: 1}
	r.next()
	all, err := r.commands(0)
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", r.line, err)
	}
	return all, nil
}

// next passes over the token, and over blanks and comments.
func (r *sieveReader) next() {
	for blank := true; blank; {
		r.line += strings.Count(r.token, "\n")
		r.text = r.text[len(r.token):]
		m := sieveToken.FindStringSubmatchIndex(r.text)
		if m == nil {
			r.token = ""
			return
		}
		r.token, blank = r.text[:m[1]], m[2] >= 0
	}
}

// commands reads up to the end of a block, or of the script.
func (r *sieveReader) commands(depth int) (all []command, err error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("blocks more than %d deep", maxNesting)
	}
	for {
		switch {
		case r.token == "" && depth > 0:
			return nil, errors.New("a block without its end")
		case r.token == "" || r.token == "}" && depth > 0:
			return all, nil
		case !named(r.token):
			return nil, r.unwanted()
		}
		from := r.text
		c := command{line: r.line, name: strings.ToLower(r.token)}
		r.next()
		if c.args, c.test, err = r.arguments(depth); err != nil {
			return nil, err
		}
		switch r.token {
		case "{":
			r.next()
			if c.commands, err = r.commands(depth + 1); err != nil {
				return nil, err
			}
		case ";":
		default:
			return nil, r.unwanted()
		}
		c.text = from[:min(len(from)-len(r.text)+1, 2*original.MaxShown)] // with the ";" or "}"
		r.next()
		all = append(all, c)
	}
}

func named(token string) bool {
	return token != "" && (token[0] == '_' || token[0]|0x20 >= 'a' && token[0]|0x20 <= 'z') && !strings.Contains(token, ":")
}

// unwanted says of the token that it cannot stand there.
func (r *sieveReader) unwanted() error {
	switch {
	case r.token == "":
		return errors.New("a command without its end")
	case r.token == `"`:
		return errors.New("a string without its end")
	case strings.HasPrefix(r.text, "/*"):
		return errors.New("a comment without its end")
	}
	return fmt.Errorf("%s is not wanted here", original.Shown(r.token))
}

// arguments reads up to ";", "{", "}", "," or ")", which is the token then.
func (r *sieveReader) arguments(depth int) (args []argument, t *test, err error) {
	if depth > maxNesting {
		return nil, nil, fmt.Errorf("tests more than %d deep", maxNesting)
	}
	for ; ; r.next() {
		switch c := r.token; {
		case c == "" || c == `"`:
			return nil, nil, r.unwanted()
		case strings.Contains(";{,)", c):
			return args, t, nil
		case c[0] == '"' || strings.HasPrefix(strings.ToLower(c), "text:"):
			args = append(args, argument{texts: []string{unquoted(c)}})
		case c == "[":
			texts, err := r.strings()
			if err != nil {
				return nil, nil, err
			}
			args = append(args, argument{texts: texts})
		case c[0] == ':' && len(c) > 1:
			args = append(args, argument{tag: strings.ToLower(c)})
		case c[0] >= '0' && c[0] <= '9':
			args = append(args, argument{tag: "number"})
		case c == "(":
			for r.token != ")" { // "(" or ","
				r.next()
				if _, _, err := r.arguments(depth + 1); err != nil {
					return nil, nil, err
				} else if r.token != ")" && r.token != "," {
					return nil, nil, errors.New("tests without their end")
				}
			}
			t = &test{name: "several tests"}
		case named(c):
			r.next()
			inner, below, err := r.arguments(depth + 1)
			if err != nil {
				return nil, nil, err
			}
			if t = (&test{name: strings.ToLower(c), args: inner}); below != nil {
				t.name += " of " + below.name
			}
			return args, t, nil
		default:
			return nil, nil, r.unwanted()
		}
	}
}

// strings reads a list of strings up to its "]".
func (r *sieveReader) strings() (all []string, err error) {
	for r.next(); r.token != "]"; r.next() {
		switch {
		case len(r.token) > 1 && r.token[0] == '"':
			all = append(all, unquoted(r.token))
		case r.token == "":
			return nil, errors.New("a list without its end")
		case r.token == `"`:
			return nil, r.unwanted()
		case r.token != ",":
			return nil, errors.New("a list with something that is no string")
		}
	}
	return all, nil
}

// unquoted is what a string says.
func unquoted(token string) string {
	if token[0] != '"' { // text:
		_, text, _ := strings.Cut(token, "\n")
		return text
	}
	return escaped.ReplaceAllString(token[1:len(token)-1], "$1")
}

var escaped = regexp.MustCompile(`(?s)\\(.)`)
