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
	r      *reading
	guard  *jsonGuard
	dec    *json.Decoder
	line   int // of the token read last
	depth  int
	path   []jsonStep     // to the entries, by the format's argument
	found  bool           // there was something at its end
	places map[string]int // where else entries were seen, for a hint
	seen   int            // strings that were looked at for that
}

// readJSON reads an array of entries, an object some of whose members are, or what a path leads to; and lines that are
// an object each.
func readJSON(r *reading) error {
	guard := &jsonGuard{r: r.in, eol: r.lines.eol, line: 1}
	f := &jsonFile{r: r, guard: guard, dec: json.NewDecoder(guard), places: map[string]int{}}
	f.dec.UseNumber() // a number is skipped, so it need not fit into a float64
	f.path, _ = parsePath(r.arg)
	err := f.document()
	if hint := f.hint(""); err == nil && r.err == nil && r.sum.Entries == 0 && r.sum.Errors > 0 && hint != "" {
		err = refusal(JSON, "no entry where they are looked for, and %d refused elements; declare %s", r.sum.Errors, hint)
	}
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
	switch {
	case err != nil:
		return err
	case t == json.Delim('['):
		if err := f.array(f.path, neutral, ""); err != nil {
			return err
		}
		return f.end()
	case t != json.Delim('{'):
		return refusal(JSON, "neither an array nor an object")
	}
	for n, line := 1, f.line; ; n++ {
		found := f.found
		f.found = false
		if err := f.root(n == 1); err != nil {
			return err
		}
		lacks := !f.found
		f.found = found || f.found
		if t, err = f.dec.Token(); err != nil && err != io.EOF {
			return f.fault(err)
		} else if err == nil && t != json.Delim('{') {
			f.line = f.guard.lineAt(f.dec.InputOffset())
			return refusal(JSON, "more text behind the end of the value")
		}
		if lacks && (n > 1 || err == nil) && len(f.path) > 0 {
			last := f.line
			f.line = line
			f.refuse(fmt.Sprintf("an object without %q%s", f.r.arg, f.hint("; ")))
			f.line = last
		}
		if f.r.err != nil || err == io.EOF {
			break
		}
		line = f.guard.lineAt(f.dec.InputOffset())
		f.line = line
		f.depth++
	}
	switch {
	case f.found || f.r.err != nil:
		return nil
	case f.r.arg != "":
		return refusal(JSON, "no member %q%s", f.r.arg, f.hint("; "))
	}
	return refusal(JSON, "no member that is known to hold a list; declare %s", cmp.Or(f.hint(""), "json:PATH"))
}

// end reads on to the end of the text.
func (f *jsonFile) end() error {
	if _, err := f.dec.Token(); err == nil {
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

// memberMeaning tells what a member of an object holds that is no record; false: no entries.
func memberMeaning(name string) (meaning, bool) {
	switch {
	case slices.Contains(allowingMembers[:], name):
		return allowing, true
	case slices.Contains(refusingMembers[:], name):
		return refusing, true
	}
	return neutral, slices.Contains(neutralMembers[:], name)
}

// root reads an outermost object. Of several, one a line, the first says what its other members are.
func (f *jsonFile) root(first bool) error {
	if len(f.path) == 0 {
		return f.container("", f.r.settings.PerRecipient)
	}
	return f.object(f.path, neutral, "", first, true)
}

// container reads an object whose members are lists. It may be the record of an owner, too.
func (f *jsonFile) container(where string, record bool) error {
	rec := jsonRecord{}
	line := f.line
	err := f.members(func(name string) error {
		m, known := memberMeaning(name)
		if record && !known && (name == "entry" || slices.Contains(recordMembers[:], name)) {
			return f.text(&rec, name, name)
		}
		if strings.EqualFold(name, "action") { // it is said of lists beside it, which may be read by now
			return f.said()
		}
		if !known {
			f.take(name)
			f.r.skip(OtherMember, fmt.Sprintf("member %.100q", name))
			f.r.flush()
			return f.skipValue(memberPath(where, name))
		}
		f.found = true
		t, err := f.token()
		if err != nil {
			return err
		}
		return f.value(t, nil, m, memberPath(where, name), false)
	})
	if err == nil && len(rec.texts)+len(rec.bad) > 0 {
		f.found = true
		f.line = line
		f.owned(&rec, "entry", neutral)
	}
	return err
}

// recordMembers are what a record says of its entry.
var recordMembers = [...]string{"owner", "action", "reason"}

// jsonRecord is one object with an entry, or several, and what it says of them.
type jsonRecord struct {
	texts   map[string]string
	bad     string // a member that is no string
	entries []jsonEntry
	flushed bool // there were too many entries to be kept to the end of the object
}

type jsonEntry struct {
	text string
	line int
}

// maxKeptEntries bounds the entries of one record that wait for what it says behind them.
const maxKeptEntries = 1000

// set notes what a record says under a name.
func (rec *jsonRecord) set(name, text string) {
	if rec.texts == nil {
		rec.texts = map[string]string{}
	}
	rec.texts[name] = trim(text)
}

// text reads a member of a record that is a string, and is to be known by a name.
func (f *jsonFile) text(rec *jsonRecord, name, member string) error {
	t, err := f.token()
	if err != nil {
		return err
	}
	switch v := t.(type) {
	case string:
		rec.set(name, v)
		return nil
	case nil:
		return nil
	case json.Delim:
		if err := f.skipRest(); err != nil {
			return err
		}
	}
	rec.bad = member
	return nil
}

// object reads an object in which the first step of a path is a member. outermost: it has no array around it, and its
// members for exceptions count; told: it says what its other members are.
func (f *jsonFile) object(path []jsonStep, m meaning, where string, told, outermost bool) error {
	rec := jsonRecord{}
	owned, last := f.r.settings.PerRecipient, path[len(path)-1].name
	line, found := f.line, false
	err := f.members(func(name string) error {
		rest, ok := path[0].match(path, name)
		where := memberPath(where, name)
		meant, _ := memberMeaning(name)
		switch {
		case ok && outermost && meant == allowing && path[0].name == "*":
			found, f.found = true, true
			t, err := f.token()
			if err != nil {
				return err
			}
			return f.value(t, rest, allowing, where, false)
		case ok && len(rest) == 0 && owned && !outermost:
			found = true
			return f.text(&rec, last, name)
		case ok:
			found, f.found = true, true
			t, err := f.token()
			if err != nil {
				return err
			}
			text, single := t.(string)
			switch {
			case len(rest) > 0 || owned && !single:
				return f.value(t, rest, m, where, !outermost)
			case owned:
				rec.set(last, text)
				return nil
			}
			return f.keep(t, &rec, m, where, !outermost)
		case outermost && meant == allowing:
			f.found = true
			if err := f.flush(&rec, m); err != nil { // which stands before
				return err
			}
			t, err := f.token()
			if err != nil {
				return err
			}
			return f.value(t, nil, allowing, where, false)
		case strings.EqualFold(name, "action") && len(path) > 1 && !owned:
			return f.said()
		case strings.EqualFold(name, "action"), owned && slices.Contains(recordMembers[:], name):
			if rec.flushed {
				return refusal(JSON, `%q stands behind more than %d entries that it is about; put it first`, name, maxKeptEntries)
			}
			if err := f.text(&rec, strings.ToLower(name), name); err != nil || !outermost || owned {
				return err
			}
			if _, known := EntryAction(strings.ToLower(rec.texts["action"])); !known { // of the answer of an API, and not of its entries
				delete(rec.texts, "action")
				rec.bad = ""
			}
			return nil
		}
		t, err := f.token()
		if err != nil {
			return err
		}
		if _, nested := t.(json.Delim); told && nested {
			f.take(name)
			f.r.skip(OtherMember, fmt.Sprintf("member %.100q", name))
			f.r.flush()
		}
		return f.skipFrom(t, where)
	})
	switch {
	case err != nil || f.r.err != nil:
		return err
	case owned && len(path) == 1 && (!outermost || rec.texts["owner"] != "" || rec.texts[last] != ""):
		f.found, f.line = true, line
		f.owned(&rec, last, m)
	case !found && !outermost:
		f.line = line
		f.refuse(fmt.Sprintf("an object without %q%s", path[0].name, f.hint("; ")))
	}
	return f.flush(&rec, m)
}

// said reads a member "action" of an object that has its entries further below, some of which may be read by now. One
// that lets pass is a question, since they would be blocks; any other says nothing new.
func (f *jsonFile) said() error {
	var rec jsonRecord
	line := f.line
	if err := f.text(&rec, "action", "action"); err != nil {
		return err
	}
	if a, ok := EntryAction(strings.ToLower(rec.texts["action"])); ok && a.Allows() {
		return refusal(JSON, `line %d says action %q of what is below it; declare the path to a member of the same object, or the list's action = "allow"`, line, rec.texts["action"])
	}
	return nil
}

// keep keeps the entries of a record until it has said what is to become of them.
func (f *jsonFile) keep(t json.Token, rec *jsonRecord, m meaning, where string, inArray bool) error {
	switch v := t.(type) {
	case string:
		if len(rec.entries) == maxKeptEntries {
			rec.flushed = true
			if err := f.flush(rec, m); err != nil {
				return err
			}
		}
		rec.entries = append(rec.entries, jsonEntry{v, f.line})
		return nil
	case json.Delim:
		for v == '[' && f.r.err == nil {
			t, err := f.token()
			if err != nil || t == json.Delim(']') {
				return err
			}
			if err := f.keep(t, rec, m, where+"[]", true); err != nil {
				return err
			}
		}
	}
	return f.value(t, nil, m, where, inArray)
}

// flush reads the entries of a record that were kept.
func (f *jsonFile) flush(rec *jsonRecord, m meaning) error {
	line := f.line
	for _, e := range rec.entries {
		f.line = e.line
		f.entry(e.text, m, rec)
	}
	rec.entries, f.line = rec.entries[:0], line
	return nil
}

// array reads the elements of an array up to its end.
func (f *jsonFile) array(path []jsonStep, m meaning, where string) error {
	for f.r.err == nil {
		t, err := f.token()
		if err != nil || t == json.Delim(']') {
			return err
		}
		if err := f.value(t, path, m, where+"[]", true); err != nil {
			return err
		}
	}
	return nil
}

// value reads what begins with t: an entry, an array of what follows, or an object on the path.
func (f *jsonFile) value(t json.Token, path []jsonStep, m meaning, where string, inArray bool) error {
	switch v := t.(type) {
	case string:
		if len(path) > 1 {
			f.refuse(fmt.Sprintf("a string instead of an object with %q", path[0].name))
		} else {
			f.entry(v, m, nil)
		}
		return nil
	case json.Delim:
		switch {
		case v == '[' && (len(path) > 0 || !strings.HasSuffix(where, "]")): // not one in another one
			return f.array(path, m, where)
		case v == '{' && len(path) > 0:
			return f.object(path, m, where, false, !inArray)
		case v == '{' && f.r.settings.PerRecipient:
			return f.object([]jsonStep{{name: "entry", rest: "entry"}}, m, where, false, false)
		case v == '{' && !inArray:
			found := f.r.sum.Entries + f.r.sum.Errors
			err := f.container(where, false)
			if err == nil && f.r.sum.Entries+f.r.sum.Errors == found {
				f.refuse("an object without a member that is known to hold a list" + f.hint("; "))
			}
			return err
		}
		line := f.line
		if err := f.skipFrom(t, where); err != nil {
			return err
		}
		f.line = line
		what := "an array"
		if v == '{' {
			what = "an object, whose entry " + cmp.Or(f.hint(""), "json:PATH") + " would name,"
		}
		f.refuse(what + " instead of a string")
		return nil
	}
	f.refuse("a number, true, false or null instead of a string")
	return nil
}

// owned reads the record of an owner.
func (f *jsonFile) owned(rec *jsonRecord, entry string, m meaning) {
	f.take(rec.texts[entry])
	f.readOwned(rec.texts, entry, rec.bad, m)
	f.r.flush()
}

func (f *jsonFile) readOwned(texts map[string]string, entry, bad string, m meaning) {
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

// entry reads one string as a line of the plain format. rec is the record that it stands in, nil without one.
func (f *jsonFile) entry(text string, m meaning, rec *jsonRecord) {
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
	case r.guessed && text[0] == '.':
		r.err = refusal(Ambiguous, leadingDots)
		return
	case m == refusing && !r.refuse(Block, ""):
	case rec != nil && rec.bad != "":
		r.fail(Syntax, "", fmt.Sprintf("%q is no string", rec.bad))
	default:
		if m == allowing {
			r.action = Allow
		}
		if rec == nil || setAction(r, rec.texts["action"]) {
			plainLine(r, text)
		}
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
func (f *jsonFile) skipValue(where string) error {
	t, err := f.token()
	if err != nil {
		return err
	}
	return f.skipFrom(t, where)
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
