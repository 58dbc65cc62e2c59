package printout

import (
	"fmt"
	"io"
	"strings"
	"time"

	"blockd/index"
	"blockd/internal/term"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/verdict"
)

// explanation shows people how the answer about one sender comes about.
type explanation struct {
	w     io.Writer
	paint term.Paint
	facts [][2]string // about a message, shown before the keys

	hides verdict.Veil // as Asker.Hides
}

// print is a printer of check, of a verdict in b.
func (e explanation) print(input string, v verdict.Verdict, b *policy.Batch) error {
	how := b.Explain(&v)
	v = how.Veil(v, e.hides)
	fmt.Fprintf(e.w, "%s  %s\n", e.paint.Bold(shownSubject(input, &v)), e.verdict(v.Kind))
	rows := [][2]string{{"asked", term.Visible(input)}}
	if ix := b.Index(); ix != nil {
		keys, entries := ix.Counts()
		rows = append(rows, [2]string{"index", fmt.Sprintf("generation %s of %s, %s keys, %s entries",
			ix.Generation(), ix.Built().Format(time.DateTime), term.Grouped(keys), term.Grouped(entries))})
	}
	if v.Client.IsValid() {
		rows = append(rows, [2]string{"client", v.Client.String()})
	}
	if v.Recipient != "" {
		rows = append(rows, [2]string{"recipient", term.Visible(v.Recipient)})
	}
	if read := v.Sender.String() + v.Domain.Text; v.Unread != "" && read != "" {
		rows = append(rows, [2]string{"read as", read})
	}
	if how.Correspondent != "" {
		rows = append(rows, [2]string{"known", "your users wrote to this sender, last on " + how.Correspondent})
	}
	rows = append(rows, e.facts...)
	rows = append(rows, e.keys(how.Keys)...)
	for i := range v.Matches {
		text := describe(v, i)
		if why := v.Objection(i); why != "" {
			text += ": does not count, " + e.paint.Yellow(why)
		}
		rows = append(rows, [2]string{"match " + fmt.Sprint(i+1), text})
	}
	for _, o := range how.Lists {
		rows = append(rows, [2]string{"from", term.Visible(o.List + ": " + o.About().String())})
	}
	rows = append(rows, [2]string{"so", e.because(v)})
	if v.Kind == verdict.Blocked {
		// Without a recipient: what any but the exempt ones would bring.
		rows = append(rows, e.consequence(how.Decision))
		if v.Unread != "" {
			rows = append(rows, [2]string{"", "but the SMTP filter refuses its syntax: 553 5.1.7"})
		}
	}
	var t term.Table
	for _, r := range rows {
		t.Add("  "+e.paint.Faint(r[0]), r[1])
	}
	return t.Print(e.w)
}

func (e explanation) verdict(k verdict.Kind) string {
	switch k {
	case verdict.Blocked:
		return e.paint.Red(string(k))
	case verdict.Allowed:
		return e.paint.Green(string(k))
	case verdict.Unknown:
		return e.paint.Yellow(string(k))
	}
	return string(k)
}

// consequence is what a front door does about a blocked sender.
func (e explanation) consequence(d policy.Decision) [2]string {
	row := [2]string{"SMTP does", ""}
	switch d.Outcome {
	case policy.Quarantine:
		row[1] = "take the message and set it aside"
	case policy.Mark:
		row[1] = "pass the message on, marked " + term.Visible(d.Tag.String())
	case policy.Accept:
		row[1] = "take the message: everybody may write to this recipient"
	default:
		row = [2]string{"SMTP says", term.Visible(d.Reply.String())}
	}
	if d.Tarpit > 0 {
		row[1] += fmt.Sprintf(", after %s", term.Duration(d.Tarpit))
	}
	return row
}

// keys says of each key what the filter and the store say, and what was found
// under it. Of a client's networks, of which there may be a hundred, those that
// no list has share a line.
func (e explanation) keys(keys []verdict.ExplainedKey) (rows [][2]string) {
	if len(keys) == 0 {
		return nil
	}
	var t term.Table
	asked, wrong, networks := 0, 0, 0
	for _, k := range keys {
		if k.Filter != "" {
			asked++
		}
		if k.Filter == "perhaps" && k.Exact == "not listed" {
			wrong++
		}
		if k.Exact == "" && (k.Kind == lists.IP.String() || k.Kind == lists.CIDR.String()) {
			networks++
			continue
		}
		name := k.Key
		if k.Owner != "" && k.Owner != k.Key {
			name = k.Owner + " " + k.Key
		}
		t.Add(term.Visible(name), found(k))
	}
	if networks > 0 {
		t.Add(term.Counted(networks, "network")+" of the client", "filter no")
	}
	for i, line := range t.Lines() {
		rows = append(rows, [2]string{"", line})
		if i == 0 {
			rows[0][0] = "keys"
		}
	}
	so := "no false positive"
	switch {
	case asked == 0:
		return append(rows, [2]string{"filter", "not asked: no list in the index has keys of these kinds"})
	case wrong > 0:
		so = term.Counted(wrong, "false positive") + ", cleared by the store"
	}
	return append(rows, [2]string{"filter", fmt.Sprintf("asked for %s, %s", term.Counted(asked, "key"), so)})
}

// found is a key's line behind the key.
func found(k verdict.ExplainedKey) string {
	var b strings.Builder
	switch {
	case k.Exact != "":
		fmt.Fprintf(&b, "filter %s, store %s", k.Filter, k.Exact)
	case k.Filter != "":
		fmt.Fprintf(&b, "filter %s", k.Filter)
	case len(k.Matches) > 0 && (k.Kind == lists.Glob.String() || k.Kind == lists.Regexp.String()):
		b.WriteString("pattern")
	case len(k.Matches) > 0:
		b.WriteString("in memory, before the filter") // a live entry, or one of a list that has just changed
	default:
		b.WriteString("no list has keys of this kind")
	}
	for i, n := range k.Matches {
		if i == 0 {
			fmt.Fprintf(&b, ": match %d", n+1)
		} else {
			fmt.Fprintf(&b, ", %d", n+1)
		}
	}
	return b.String()
}

// describe is a match in words: where it stands and how far it reaches.
func describe(v verdict.Verdict, i int) string {
	m := v.Matches[i]
	l := v.Lists[m.Row]
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d, list %s: %s %s", term.Path(l.Source.Path), m.Line, l.Source.List, m.Action, term.Visible(m.Name()))
	b.WriteString(reach(m))
	if m.Reason != "" {
		fmt.Fprintf(&b, ", %q", m.Reason)
	}
	switch mode := v.Mode(i); mode {
	case "", verdict.PercentMode:
		b.WriteString(share(&v, i))
	default:
		b.WriteString(" (" + mode + ": does not count)")
	}
	return b.String()
}

// share says of a list that counts for a share of senders whether this is one of them.
func share(v *verdict.Verdict, i int) string {
	percent, within := v.Percent(i)
	if percent == 100 || v.Matches[i].Action.Allows() { // exceptions count for all
		return ""
	}
	of, which := "senders", "not for this one"
	if v.AboutClient(i) {
		of = "clients"
	}
	if within {
		which = "and for this one"
	}
	return fmt.Sprintf(" (this list counts for %v %% of %s; %s)", percent, of, which)
}

// reach is how far an entry goes beyond its text.
func reach(m index.Match) string {
	switch {
	case m.Kind == lists.CIDR:
		return ", a network of clients"
	case m.Kind == lists.IP:
		return ", a client"
	case m.Kind == lists.Glob, m.Kind == lists.Regexp:
		return ", a pattern"
	case m.Scope == lists.Local:
		return " at any domain"
	case m.Kind == lists.Addr:
		return ""
	case m.Scope == lists.Exact:
		return ", this name alone"
	case m.Scope == lists.Sub:
		return ", the names below it"
	}
	return " and all below it"
}

// because says why v is what it is.
func (e explanation) because(v verdict.Verdict) string {
	switch {
	case v.Kind == verdict.Unknown && !v.Internal() && v.Sender.String()+v.Domain.Text != "":
		return "this is no sender: " + term.Visible(v.Err.Error()) + "; what can be read of it is in no list that counts"
	case v.Kind == verdict.Unknown && !v.Internal():
		return "this is no sender and no domain: " + term.Visible(v.Err.Error()) + "; nobody is blocked for that"
	case v.Kind == verdict.Unknown:
		return term.Visible(v.Err.Error())
	case v.Decider >= 0 && v.Kind == verdict.Allowed:
		return fmt.Sprintf("match %d decides: an exception%s goes before %s", v.Decider+1, proved(v), passed(v))
	case v.Decider >= 0 && objected(v):
		return fmt.Sprintf("match %d decides: no exception that counts, and it is the most specific that does", v.Decider+1)
	case v.Decider >= 0 && len(v.Matches) > 1:
		return fmt.Sprintf("match %d decides: no exception, and it is the most specific that counts", v.Decider+1)
	case v.Decider >= 0:
		return fmt.Sprintf("match %d decides", v.Decider+1)
	case v.Kind == verdict.Blocked || v.Kind == verdict.Allowed:
		return "an entry of the recipient's owner decides; to see it wants a token (blockd token new)"
	case v.Shadow >= 0:
		return fmt.Sprintf("nothing that counts matches; match %d would refuse if its list %s", v.Shadow+1, ifOnly(&v))
	case v.Excused() >= 0:
		return fmt.Sprintf("nothing that counts matches; match %d would decide, but its list is not one of this recipient's [[policy]]", v.Excused()+1)
	case v.Domain.Text != "":
		return "no list has this domain; single addresses there may be listed"
	case v.Sender.Null() && v.Client.IsValid():
		return "no list has this client"
	case v.Sender.Null():
		return "the null sender is never looked up: bounces must get through (RFC 5321, 4.5.5)"
	case v.Sender.Domain() == "":
		return "a sender without a domain cannot be listed"
	}
	return "no list has any of these keys"
}

// ifOnly is what would have let the list of the Shadow refuse.
func ifOnly(v *verdict.Verdict) string {
	switch v.Mode(v.Shadow) {
	case verdict.PausedMode:
		return "were not paused"
	case verdict.PercentMode:
		return "counted for this sender"
	}
	return "were enforced"
}

// passed is what the exception that decided goes before.
func passed(v verdict.Verdict) string {
	switch {
	case v.Frees():
		return "every block"
	case v.Shadow >= 0:
		return fmt.Sprintf("the blocks of its own list; match %d would refuse if its list %s", v.Shadow+1, ifOnly(&v))
	}
	return "the blocks of its own list, and no other list blocks"
}

// proved says what has made an exception count, if anything was asked of it.
func proved(v verdict.Verdict) string {
	switch {
	case v.Unverified:
		return " believed on the sender's word"
	case v.Evidence.Found != 0:
		return " with proof"
	}
	return ""
}

// objected reports whether an exception does not count.
func objected(v verdict.Verdict) bool {
	for i := range v.Matches {
		if v.Objection(i) != "" {
			return true
		}
	}
	return false
}

// jsonAnswer is an answer in the form that HTTP has too, and how it comes about.
type jsonAnswer struct {
	verdict.Answer
	Explain policy.Explanation `json:"explain"`
}

func explained(input string, v verdict.Verdict, b *policy.Batch, hides verdict.Veil) jsonAnswer {
	how := b.Explain(&v)
	v = how.Veil(v, hides)
	return jsonAnswer{v.Answer(input), how}
}
