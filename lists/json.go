package lists

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// maxToken bounds a string, a number or a run of blanks in JSON, which the
	// decoder keeps as a whole. An element over maxLine is refused by itself.
	maxToken = 1 << 20

	maxDepth = 1000 // of arrays and objects in each other
)

// The members of an object that hold entries. The first ones name a refusal, so
// that they cannot stand in a list of exceptions.
var (
	refusingMembers = [...]string{"blacklist", "blocklist", "block", "deny"}
	neutralMembers  = [...]string{"domains", "emails", "disposable"}
	allowingMembers = [...]string{"whitelist", "allowlist", "allow", "welcomelist"}
)

// jsonFile reads a JSON text token by token.
type jsonFile struct {
	r     *reading
	guard *jsonGuard
	dec   *json.Decoder
	line  int // of the token read last
	depth int
}

// readJSON reads an array of entries, or an object some of whose members are.
func readJSON(r *reading) error {
	guard := &jsonGuard{r: r.in, eol: r.lines.eol, line: 1}
	f := &jsonFile{r: r, guard: guard, dec: json.NewDecoder(guard)}
	f.dec.UseNumber() // a number is skipped, so it need not fit into a float64
	err := f.document()
	r.sum.Lines = guard.lines()
	if fe, ok := errors.AsType[*FileError](err); ok && fe.Class == JSON {
		if fe.Line == 0 {
			fe.Line = f.line
		}
		r.sum.Lines = fe.Line // and not how far the decoder had read ahead
	}
	return err
}

func (f *jsonFile) document() error {
	t, err := f.token()
	if err != nil {
		return err
	}
	switch t {
	case json.Delim('['):
		err = f.array(neutral)
	case json.Delim('{'):
		err = f.object()
	default:
		return refusal(JSON, "neither an array nor an object")
	}
	if err != nil {
		return err
	}
	if _, err = f.dec.Token(); err == nil {
		return refusal(JSON, "more text behind the end of the value")
	} else if err != io.EOF {
		return f.fault(err)
	}
	return nil
}

// meaning is what the strings of a member ask for.
type meaning uint8

const (
	neutral  meaning = iota // what the list asks for
	refusing                // block, said by the file itself
	allowing                // allow
)

// memberMeaning tells what a member of the outermost object holds; false: no entries.
func (f *jsonFile) memberMeaning(name string) (meaning, bool) {
	switch arg := f.r.arg; {
	case arg != "" && name == arg:
		return neutral, true
	case slices.Contains(allowingMembers[:], name):
		return allowing, true
	case arg != "":
		return neutral, false
	case slices.Contains(refusingMembers[:], name):
		return refusing, true
	}
	return neutral, slices.Contains(neutralMembers[:], name)
}

// object reads the outermost object.
func (f *jsonFile) object() error {
	found := false
	err := f.members(func(name string) error {
		m, known := f.memberMeaning(name)
		if !known {
			f.take(name)
			f.r.skip(OtherMember, fmt.Sprintf("member %.100q", name))
			f.r.flush()
			return f.skipValue()
		}
		found = true
		t, err := f.token()
		switch {
		case err != nil:
			return err
		case t == json.Delim('['):
			return f.array(m)
		}
		return f.element(t, m)
	})
	switch {
	case err != nil || found:
		return err
	case f.r.arg != "":
		return refusal(JSON, "no member %q", f.r.arg)
	}
	return refusal(JSON, "no member that is known to hold a list; declare json:KEY")
}

// array reads the elements of an array up to its end.
func (f *jsonFile) array(m meaning) error {
	for f.r.err == nil {
		t, err := f.token()
		if err != nil || t == json.Delim(']') {
			return err
		}
		if err := f.element(t, m); err != nil {
			return err
		}
	}
	return nil
}

// element reads what should be one entry and begins with t.
func (f *jsonFile) element(t json.Token, m meaning) error {
	switch v := t.(type) {
	case string:
		f.entry(v, m)
		return nil
	case json.Delim:
		if v == '{' && f.r.settings.PerRecipient {
			return f.ownedRecord(m)
		}
		if v == '{' && f.r.arg != "" {
			return f.record(m)
		}
		line := f.line
		if err := f.skipRest(); err != nil {
			return err
		}
		f.line = line
		what := "an array"
		if v == '{' {
			what = "an object, whose entry json:KEY would name,"
		}
		f.refuse(what + " instead of a string")
		return nil
	}
	f.refuse("a number, true, false or null instead of a string")
	return nil
}

// record reads the member of an object in an array that the format's argument names.
func (f *jsonFile) record(m meaning) error {
	found := false
	err := f.members(func(name string) error {
		if name != f.r.arg {
			return f.skipValue()
		}
		found = true
		t, err := f.token()
		if err != nil {
			return err
		}
		if t != json.Delim('{') && t != json.Delim('[') {
			return f.element(t, m)
		}
		if err = f.skipRest(); err == nil {
			f.refuse("a value that is no string")
		}
		return err
	})
	if err == nil && !found {
		f.refuse(fmt.Sprintf("an object without %q", f.r.arg))
	}
	return err
}

// ownedRecord reads an object with the members owner, action and reason of a list per recipient,
// and the entry under the name that the format's argument gives, else "entry".
func (f *jsonFile) ownedRecord(m meaning) error {
	entry := cmp.Or(f.r.arg, "entry")
	texts := map[string]string{}
	bad := ""
	line := f.line
	err := f.members(func(name string) error {
		if name != entry && name != "owner" && name != "action" && name != "reason" {
			return f.skipValue()
		}
		t, err := f.token()
		if err != nil {
			return err
		}
		switch v := t.(type) {
		case string:
			texts[name] = trim(v)
			return nil
		case nil:
			return nil
		case json.Delim:
			if err := f.skipRest(); err != nil {
				return err
			}
		}
		bad = name
		return nil
	})
	if err != nil || f.r.err != nil {
		return err
	}
	f.line = line
	f.take(texts[entry])
	f.owned(texts, entry, bad, m)
	f.r.flush()
	return nil
}

// owned reads what ownedRecord has found.
func (f *jsonFile) owned(texts map[string]string, entry, bad string, m meaning) {
	r, owner := f.r, texts["owner"]
	if r.settings.Owner.Text != "" {
		owner = r.settings.Owner.Text
	}
	for _, text := range texts {
		switch {
		case len(text) > maxLine:
			r.fail(TooLong, "", "a string of more than 65536 octets")
			return
		case strings.ContainsRune(text, utf8.RuneError):
			r.fail(BadUTF8, "", "octets that are not UTF-8, or half a surrogate pair")
			return
		}
	}
	switch {
	case bad != "":
		r.fail(Syntax, "", fmt.Sprintf("%q is no string", bad))
	case !r.controls():
	case m == refusing && !r.refuse(Block, ""):
	default:
		if m == allowing {
			r.action = Allow
		}
		r.ownedRecord(owner, texts[entry], texts["action"], texts["reason"])
	}
}

// entry reads one string as a line of the plain format.
func (f *jsonFile) entry(text string, m meaning) {
	r := f.r
	f.take(text)
	text = trim(text)
	switch {
	case len(text) > maxLine:
		r.fail(TooLong, "", "a string of more than 65536 octets")
	case text == "":
		r.fail(Syntax, "", "an empty string")
	case !r.controls():
	case strings.ContainsRune(text, utf8.RuneError):
		// The decoder puts U+FFFD for what is not UTF-8; nobody lists the real one.
		r.fail(BadUTF8, string(utf8.RuneError), "octets that are not UTF-8, or half a surrogate pair")
	case plainComment(text):
		r.skip(Comment, "")
	case m == refusing && !r.refuse(Block, ""):
	default:
		if m == allowing {
			r.action = Allow
		}
		plainLine(r, text)
	}
	r.flush()
}

func (f *jsonFile) refuse(message string) {
	f.take("")
	f.r.fail(Syntax, "", message)
	f.r.flush()
}

func (f *jsonFile) take(text string) { f.r.take(line{number: f.line, text: text}) }

// members calls each with the names of an object's members, up to its end. each reads the value.
func (f *jsonFile) members(each func(name string) error) error {
	for {
		t, err := f.token()
		name, more := t.(string)
		if err != nil || f.r.err != nil || !more {
			return err
		}
		if err := each(name); err != nil {
			return err
		}
	}
}

// skipValue reads over a value of any kind.
func (f *jsonFile) skipValue() error {
	t, err := f.token()
	if err == nil && (t == json.Delim('[') || t == json.Delim('{')) {
		err = f.skipRest()
	}
	return err
}

// skipRest reads over the rest of the array or object that was just opened.
func (f *jsonFile) skipRest() error {
	for outside := f.depth - 1; f.depth > outside; {
		if _, err := f.token(); err != nil {
			return err
		}
	}
	return nil
}

// token reads the next token, and its line. A JSON text that ends here is unclosed.
func (f *jsonFile) token() (json.Token, error) {
	t, err := f.dec.Token()
	if err != nil {
		return nil, f.fault(err)
	}
	f.line = f.guard.lineAt(f.dec.InputOffset())
	switch t {
	case json.Delim('['), json.Delim('{'):
		if f.depth++; f.depth > maxDepth {
			return nil, refusal(JSON, "more than %d arrays and objects in each other", maxDepth)
		}
	case json.Delim(']'), json.Delim('}'):
		f.depth--
	}
	return t, nil
}

// fault names what ended the text.
func (f *jsonFile) fault(err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return refusal(JSON, "the text ends in the middle")
	case errors.As(err, &syntax):
		f.line = f.guard.lineAt(f.dec.InputOffset() + 1) // it stands before what is wrong
		return refusal(JSON, "%w", err)
	}
	return err // of the file below
}

// jsonGuard stands between the file and the decoder, which keeps one token, and
// the blanks before it, in memory whatever their size. It bounds both, and knows
// the line of an octet that the decoder has reached.
type jsonGuard struct {
	r       io.Reader
	eol     byte
	quoted  bool
	escaped bool
	run     int     // octets since the last structural character or quote
	n       int64   // octets read
	ends    []int64 // offsets behind line ends that lineAt has not passed
	line    int     // at the offset that lineAt was asked for last
	last    byte
}

func (g *jsonGuard) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	for i, c := range p[:n] {
		g.run++
		switch {
		case g.escaped:
			g.escaped = false
		case c == '\\':
			g.escaped = g.quoted
		case c == '"':
			g.quoted, g.run = !g.quoted, 0
		case g.quoted:
		case c == '[', c == ']', c == '{', c == '}', c == ',', c == ':':
			g.run = 0
		}
		if c == g.eol {
			g.ends = append(g.ends, g.n+int64(i)+1)
		}
		if g.run > maxToken {
			err := refusal(JSON, "a string, a number or a gap of more than %d octets", maxToken)
			err.Line = g.line + len(g.ends)
			return 0, err
		}
	}
	if n > 0 {
		g.n += int64(n)
		g.last = p[n-1]
	}
	return n, err
}

// lineAt returns the line of the octet before offset. Offsets must not go back.
func (g *jsonGuard) lineAt(offset int64) int {
	passed := 0
	for passed < len(g.ends) && g.ends[passed] < offset {
		passed++
	}
	g.ends = append(g.ends[:0], g.ends[passed:]...)
	g.line += passed
	return g.line
}

// lines returns the physical lines that were read.
func (g *jsonGuard) lines() int {
	n := g.line + len(g.ends)
	if g.n == 0 || g.last == g.eol {
		n--
	}
	return n
}
