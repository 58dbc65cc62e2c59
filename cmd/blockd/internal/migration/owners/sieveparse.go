package owners

import (
	"fmt"
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
	header   string // of drops
}

// test is a test without tests below it; one with some has the name "anyof" and so on, and no arguments.
type test struct {
	name string
	args []argument
	part string // of drops: ":domain", ":localpart" or ""
}

// argument is a tag, a number, or a list of strings.
type argument struct {
	tag   string
	texts []string
}

// maxNesting bounds blocks and tests within one another.
const maxNesting = 32

type sieveReader struct {
	text string
	at   int
	line int
}

// parseSieve reads a script. Its errors name the line.
func parseSieve(text string) ([]command, error) {
	r := &sieveReader{text: text, line: 1}
	all, err := r.commands(0, false)
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", r.line, err)
	}
	return all, nil
}

func (r *sieveReader) commands(depth int, inBlock bool) (all []command, err error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("blocks more than %d deep", maxNesting)
	}
	for {
		if err := r.blanks(); err != nil {
			return nil, err
		}
		switch {
		case r.at == len(r.text) && inBlock:
			return nil, fmt.Errorf("a block without its end")
		case r.at == len(r.text):
			return all, nil
		case inBlock && r.text[r.at] == '}':
			r.at++
			return all, nil
		}
		c := command{line: r.line}
		from := r.at
		if c.name = r.word(); c.name == "" {
			return nil, fmt.Errorf("no command where one is wanted")
		}
		if c.args, c.test, err = r.arguments(depth); err != nil {
			return nil, err
		}
		switch r.text[r.at] {
		case ';':
			r.at++
		case '{':
			r.at++
			if c.commands, err = r.commands(depth+1, true); err != nil {
				return nil, err
			}
		}
		c.text = r.text[from:min(r.at, from+2*original.MaxShown)]
		all = append(all, c)
	}
}

// arguments reads up to ";", "{", "," or ")"; one of these is at r.at then.
func (r *sieveReader) arguments(depth int) (args []argument, t *test, err error) {
	if depth > maxNesting {
		return nil, nil, fmt.Errorf("tests more than %d deep", maxNesting)
	}
	for {
		if err := r.blanks(); err != nil {
			return nil, nil, err
		}
		if r.at == len(r.text) {
			return nil, nil, fmt.Errorf("a command without its end")
		}
		switch c := r.text[r.at]; {
		case strings.IndexByte(";{,)", c) >= 0:
			return args, t, nil
		case c == '"', c == '[':
			texts, err := r.strings()
			if err != nil {
				return nil, nil, err
			}
			args = append(args, argument{texts: texts})
		case c == ':':
			r.at++
			args = append(args, argument{tag: ":" + r.word()})
		case c >= '0' && c <= '9':
			for r.at < len(r.text) && strings.IndexByte("0123456789KMGkmg", r.text[r.at]) >= 0 {
				r.at++
			}
			args = append(args, argument{tag: "number"})
		case c == '(':
			if err := r.tests(depth + 1); err != nil {
				return nil, nil, err
			}
			t = &test{name: "several tests"}
		default:
			name := r.word()
			if name == "text" && r.at < len(r.text) && r.text[r.at] == ':' {
				text, err := r.multiline()
				if err != nil {
					return nil, nil, err
				}
				args = append(args, argument{texts: []string{text}})
				continue
			}
			if name == "" {
				return nil, nil, fmt.Errorf("%q is not wanted here", c)
			}
			inner, below, err := r.arguments(depth + 1)
			if err != nil {
				return nil, nil, err
			}
			if t = (&test{name: name, args: inner}); below != nil {
				t.name += " of " + below.name
			}
		}
	}
}

// tests reads the tests in parentheses.
func (r *sieveReader) tests(depth int) error {
	for {
		r.at++ // "(" or ","
		if _, _, err := r.arguments(depth); err != nil {
			return err
		}
		switch r.text[r.at] {
		case ')':
			r.at++
			return nil
		case ',':
		default:
			return fmt.Errorf("tests without their end")
		}
	}
}

// strings reads a string or a list of them.
func (r *sieveReader) strings() (all []string, err error) {
	if r.text[r.at] == '"' {
		s, err := r.quoted()
		return []string{s}, err
	}
	r.at++
	for {
		if err := r.blanks(); err != nil {
			return nil, err
		}
		switch {
		case r.at == len(r.text):
			return nil, fmt.Errorf("a list without its end")
		case r.text[r.at] == ']':
			r.at++
			return all, nil
		case r.text[r.at] == ',':
			r.at++
		case r.text[r.at] == '"':
			s, err := r.quoted()
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		default:
			return nil, fmt.Errorf("a list with something that is no string")
		}
	}
}

func (r *sieveReader) quoted() (string, error) {
	var b strings.Builder
	for r.at++; r.at < len(r.text); r.at++ {
		c := r.text[r.at]
		switch {
		case c == '"':
			r.at++
			return b.String(), nil
		case c == '\\' && r.at+1 < len(r.text):
			r.at++
			c = r.text[r.at]
		}
		if c == '\n' {
			r.line++
		}
		b.WriteByte(c)
	}
	return "", fmt.Errorf("a string without its end")
}

// multiline reads what follows "text": up to a line that is a dot.
func (r *sieveReader) multiline() (string, error) {
	_, rest, found := strings.Cut(r.text[r.at:], "\n")
	from := len(r.text) - len(rest)
	for n := from; found && n < len(r.text); {
		line, _, _ := strings.Cut(r.text[n:], "\n")
		if strings.TrimSuffix(line, "\r") == "." {
			r.line += strings.Count(r.text[r.at:n], "\n")
			r.at = n + len(line)
			return r.text[from:n], nil
		}
		n += len(line) + 1
	}
	return "", fmt.Errorf("a text without the line that ends it")
}

// word reads a name, in small letters.
func (r *sieveReader) word() string {
	from := r.at
	for r.at < len(r.text) {
		c := r.text[r.at] | 0x20
		if c >= 'a' && c <= 'z' || r.text[r.at] == '_' || r.at > from && r.text[r.at] >= '0' && r.text[r.at] <= '9' {
			r.at++
			continue
		}
		break
	}
	return strings.ToLower(r.text[from:r.at])
}

// blanks passes over blanks and comments.
func (r *sieveReader) blanks() error {
	for r.at < len(r.text) {
		switch rest := r.text[r.at:]; {
		case rest[0] == '\n':
			r.line++
			r.at++
		case rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r':
			r.at++
		case rest[0] == '#':
			line, _, _ := strings.Cut(rest, "\n")
			r.at += len(line)
		case strings.HasPrefix(rest, "/*"):
			comment, _, found := strings.Cut(rest, "*/")
			if !found {
				return fmt.Errorf("a comment without its end")
			}
			r.line += strings.Count(comment, "\n")
			r.at += len(comment) + 2
		default:
			return nil
		}
	}
	return nil
}
