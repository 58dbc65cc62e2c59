package lists

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
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
	rec    *jsonRecord    // that keeps what is read; nil = it is said at once
	found  bool           // there was something at its end
	places map[string]int // where else entries were seen, for a hint
	seen   int            // strings that were looked at for that

	entries int // that were put, and refusals
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
		return f.container("", neutral, f.r.settings.PerRecipient)
	}
	return f.object(jsonObject{path: f.path, told: first, rec: jsonRecord{outermost: true}})
}

// container reads an object whose members are lists, which have its meaning unless they say their own. It may be the
// record of an owner, too.
func (f *jsonFile) container(where string, outer meaning, record bool) error {
	var rec jsonRecord
	line, lists := f.line, false
	err := f.members(func(name string, t json.Token) error {
		m, known := memberMeaning(name)
		switch {
		case record && !known && (name == "entry" || isRecordMember(name)):
			return f.text(&rec, strings.ToLower(name), name, t)
		case isAction(name): // it is said of lists beside it, which may be read by now
			return f.said(t, outer)
		case !known:
			f.put(jsonNote{text: name, kind: otherMember})
			return f.skipFrom(t, memberPath(where, name))
		case m == neutral:
			m = outer
		}
		lists, f.found = true, true
		return f.value(t, nil, m, memberPath(where, name), false)
	})
	if err != nil || len(rec.texts)+len(rec.bad) == 0 {
		return err
	}
	f.line = line
	if lists {
		if err := f.judge(rec.texts["action"], line, outer); err != nil {
			return err
		}
	}
	f.found = true
	f.owned(&rec, "entry", neutral)
	return nil
}

// jsonObject is an object in which the first step of a path is a member.
type jsonObject struct {
	path    []jsonStep
	meaning meaning
	where   string
	told    bool // it says what its other members are
	found   bool // it has the member
	rec     jsonRecord
}

// last is the name of the member that holds the entry.
func (o *jsonObject) last() string { return o.path[len(o.path)-1].name }

// match returns the steps behind a member. What a record says of its entry is none of any, but for arrays and objects.
func (o *jsonObject) match(name string, t json.Token, owned bool) (rest []jsonStep, ok bool) {
	if _, nested := t.(json.Delim); o.path[0].name == "*" && !nested && (isAction(name) || owned && isRecordMember(name)) {
		return nil, false
	}
	return o.path[0].match(o.path, name)
}

// object reads an object on the path.
func (f *jsonFile) object(o jsonObject) error {
	owned := f.r.settings.PerRecipient
	line, outer := f.line, f.rec
	if len(o.path) == 1 && !owned {
		o.rec.depth = f.depth
		f.rec = &o.rec
	}
	err := f.members(func(name string, t json.Token) error { return f.member(&o, name, t) })
	f.rec = outer
	if err != nil || f.r.err != nil {
		return err
	}
	f.flush(&o.rec)
	if asked := f.asks(&o.rec, false); o.rec.below != nil && !asked.bad {
		if err := f.sameAction(o.rec.below.action, asked.action, o.rec.below.line); err != nil {
			return err
		}
	}
	switch {
	case owned && len(o.path) == 1 && (!o.rec.outermost || o.rec.texts["owner"] != "" || o.rec.texts[o.last()] != ""):
		f.found, f.line = true, line
		f.owned(&o.rec, o.last(), o.meaning)
	case !o.found && !o.rec.outermost:
		f.line = line
		f.refuse(fmt.Sprintf("an object without %q%s", o.path[0].name, f.hint("; ")))
	}
	return nil
}

// member reads a member of an object on the path, whose value begins with t.
func (f *jsonFile) member(o *jsonObject, name string, t json.Token) error {
	owned, where := f.r.settings.PerRecipient, memberPath(o.where, name)
	rest, ok := o.match(name, t, owned)
	if !ok {
		rest = nil
	}
	meant, _ := memberMeaning(name)
	_, single := t.(string)
	_, nested := t.(json.Delim)
	o.found = o.found || ok
	switch {
	case o.rec.outermost && meant == allowing && (!ok || o.path[0].name == "*"): // only there members for exceptions count
		f.found = true
		return f.value(t, rest, allowing, where, false)
	case ok && len(rest) == 0 && owned && (single || !o.rec.outermost):
		f.found = f.found || o.rec.outermost
		return f.text(&o.rec, o.last(), name, t)
	case ok:
		f.found = true
		return f.value(t, rest, o.meaning, where, !o.rec.outermost)
	case isAction(name) && len(o.path) > 1:
		return f.said(t, o.meaning)
	case isAction(name):
		return f.action(&o.rec, name, t)
	case owned && isRecordMember(name):
		return f.text(&o.rec, name, name, t)
	case o.told && nested:
		f.put(jsonNote{text: name, kind: otherMember})
	}
	return f.skipFrom(t, where)
}

// said reads a member "action" of an object that has its entries further below, some of which may be read by now. m is
// what they mean.
func (f *jsonFile) said(t json.Token, m meaning) error {
	var rec jsonRecord
	line := f.line
	if err := f.text(&rec, "action", "action", t); err != nil {
		return err
	}
	return f.judge(rec.texts["action"], line, m)
}

// judge refuses the file for an action other than the one that what is below it has: the list's, or that of the record
// around, which may say it further on.
func (f *jsonFile) judge(action string, line int, m meaning) error {
	a, ok := EntryAction(strings.ToLower(action))
	switch {
	case !ok:
		return nil
	case m == allowing:
		return f.sameAction(a, Allow, line)
	case f.rec == nil:
		return f.sameAction(a, f.r.settings.Action, line)
	case f.rec.below == nil:
		f.rec.below = &actionBelow{a, line}
		return nil
	}
	return f.sameAction(a, f.rec.below.action, line)
}

// sameAction refuses the file if a line says an action of what has another one.
func (f *jsonFile) sameAction(says, has Action, line int) error {
	if says == has {
		return nil
	}
	f.line = line
	return refusal(JSON, `line %d says action %q of what is below it; declare the path to a member of the same object, or say it of the list by action or on_match`, line, says)
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
			f.put(jsonNote{text: v, meaning: m})
		}
		return nil
	case json.Delim:
		switch {
		case v == '[' && (len(path) > 0 || f.rec != nil || !strings.HasSuffix(where, "]")): // not one in another one
			return f.array(path, m, where)
		case v == '{' && len(path) > 0:
			return f.object(jsonObject{path: path, meaning: m, where: where, rec: jsonRecord{outermost: !inArray}})
		case v == '{' && f.r.settings.PerRecipient:
			return f.object(jsonObject{path: []jsonStep{{name: "entry", rest: "entry"}}, meaning: m, where: where})
		case v == '{' && !inArray:
			put := f.entries
			err := f.container(where, m, false)
			if err == nil && f.entries == put {
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
