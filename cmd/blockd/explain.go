package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"blockd/addr"
	"blockd/index"
	"blockd/lists"
	"blockd/policy"
)

// explanation shows people how the answer about one sender comes about.
type explanation struct {
	w       io.Writer
	paint   paint
	ix      *index.Index
	checker *policy.Checker
}

// print is a printer of check.
func (e explanation) print(input string, v policy.Verdict) error {
	fmt.Fprintf(e.w, "%s  %s\n", e.paint.bold(shownSender(input, v)), e.verdict(v.Kind))
	keys, entries := e.ix.Counts()
	rows := [][2]string{
		{"asked", visible(input)},
		{"index", fmt.Sprintf("generation %s of %s, %s keys, %s entries",
			e.ix.Generation(), e.ix.Built().Format(time.DateTime), grouped(keys), grouped(entries))},
	}
	rows = append(rows, e.keys(v)...)
	for i, m := range v.Matches {
		rows = append(rows, [2]string{"match " + fmt.Sprint(i+1), describe(v, m)})
	}
	rows = append(rows, [2]string{"so", e.because(v)})
	if v.Kind == policy.Blocked {
		// Without a recipient: what any but the exempt ones would bring.
		rows = append(rows, [2]string{"SMTP says", visible(e.checker.Recipient(v, "").Reply)})
	}
	var t table
	for _, r := range rows {
		t.add("  "+e.paint.faint(r[0]), r[1])
	}
	return t.print(e.w)
}

func (e explanation) verdict(k policy.Kind) string {
	switch k {
	case policy.Blocked:
		return e.paint.red(string(k))
	case policy.Allowed:
		return e.paint.green(string(k))
	case policy.Unknown:
		return e.paint.yellow(string(k))
	}
	return string(k)
}

// keys says of each key of the sender what was found under it, and how often
// the filter sent the question on to the store for nothing.
func (e explanation) keys(v policy.Verdict) (rows [][2]string) {
	if v.Kind == policy.Unknown {
		return nil
	}
	keys := v.Explain().Keys
	var t table
	for _, k := range keys {
		found := "not listed"
		for i, n := range k.Matches {
			if i == 0 {
				found = fmt.Sprintf("match %d", n+1)
			} else {
				found += fmt.Sprintf(", %d", n+1)
			}
		}
		t.add(visible(k.Key), found)
	}
	for i, line := range t.lines() {
		rows = append(rows, [2]string{"", line})
		if i == 0 {
			rows[0][0] = "keys"
		}
	}
	before, askedBefore := e.ix.FalsePositives()
	_, err := e.ix.Lookup(nil, v.Sender, time.Now())
	after, asked := e.ix.FalsePositives()
	if err == nil && len(keys) > 0 {
		wrong := "no false positive"
		if n := int(after - before); n > 0 {
			wrong = counted(n, "false positive") + ", cleared by the store"
		}
		rows = append(rows, [2]string{"filter", fmt.Sprintf("asked for %s, %s", counted(int(asked-askedBefore), "key"), wrong)})
	}
	return rows
}

// describe is a match in words: where it stands and how far it reaches.
func describe(v policy.Verdict, m index.Match) string {
	l := v.Lists[m.Row]
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d, list %s: %s %s", shownPath(l.Source.Path), m.Line, l.Source.List, m.Action, visible(m.Key.Text))
	switch {
	case m.Key.Kind == addr.Address:
	case m.Scope == lists.Local:
		b.WriteString(" at any domain")
	case m.Scope == lists.Exact:
		b.WriteString(", this name alone")
	case m.Scope == lists.Sub:
		b.WriteString(", the names below it")
	case m.Scope == lists.Tree:
		b.WriteString(" and all below it")
	}
	if m.Reason != "" {
		fmt.Fprintf(&b, ", %q", m.Reason)
	}
	if l.Source.Mode == index.Shadow {
		b.WriteString(" (shadow: does not count)")
	}
	return b.String()
}

// because says why v is what it is.
func (e explanation) because(v policy.Verdict) string {
	switch {
	case v.Kind == policy.Unknown && !v.Internal():
		return "this is no sender: " + visible(v.Err.Error()) + "; what is no sender is never blocked"
	case v.Kind == policy.Unknown:
		return visible(v.Err.Error())
	case v.Sender.Null():
		return "the null sender is never looked up: bounces must get through (RFC 5321, 4.5.5)"
	case v.Sender.Domain() == "":
		return "a sender without a domain cannot be listed"
	case v.Decider >= 0 && v.Kind == policy.Allowed:
		return fmt.Sprintf("match %d decides: an exception goes before every block", v.Decider+1)
	case v.Decider >= 0 && len(v.Matches) > 1:
		return fmt.Sprintf("match %d decides: no exception, and it is the most specific that counts", v.Decider+1)
	case v.Decider >= 0:
		return fmt.Sprintf("match %d decides", v.Decider+1)
	case v.Shadow >= 0:
		return fmt.Sprintf("nothing that counts matches; match %d would refuse if its list were enforced", v.Shadow+1)
	}
	return "no list has any of these keys"
}
