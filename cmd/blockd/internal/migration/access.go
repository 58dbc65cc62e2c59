package migration

import (
	"cmp"
	"strconv"
	"strings"

	"blockd/lists"
)

// The look-up keys and actions of access(5), and the order of restrictions of postconf(5): what Postfix does with a
// mail, by what its tables have for the keys that it asks them for.

// deed is what an entry asks for.
type deed uint8

const (
	refuses deed = iota
	defers       // 4xx
	drops        // taken and dropped
	holds        // taken and set aside
	lets         // the list of restrictions ends here
	stops        // the table has no more to say
	marks        // one of Postfix's own actions behind which the table has no more to say
	classes      // a list of restrictions
)

// String is the deed in words.
func (d deed) String() string {
	return [...]string{"refuse", "defer", "drop", "hold", "let pass", "nothing more of this table", "Postfix's own", "restrictions"}[d]
}

// action is what the right-hand side of an access table asks for.
type action struct {
	deed   deed
	word   string // in capitals
	text   string // behind it; of a refusal its codes and text
	answer string // what the client reads: codes and text
	unsaid bool   // it has a status without a text: Postfix says what it happens to have said last
	hard   bool   // its code is 5xx, whatever soft_bounce says
	silent bool   // a REJECT without a text: it has the codes and words that Postfix gives to such entries
}

var deeds = map[string]deed{
	"OK": lets, "RELAY": lets, "PERMIT": lets, "DUNNO": stops,
	"REJECT": refuses, "DEFER": defers, "DEFER_IF_PERMIT": defers, "DISCARD": drops, "HOLD": holds,
	"PREPEND": marks, "WARN": marks, "INFO": marks, "DEFER_IF_REJECT": marks, "BCC": marks, "FILTER": marks, "REDIRECT": marks,
}

// accessRules are the parameters that the meaning of tables depends on.
type accessRules struct {
	parents   bool   // a name matches the names below it, and .name matches nothing
	delimiter string // recipient_delimiter

	reject string // access_map_reject_code
	defers string // access_map_defer_code
	soft   bool   // soft_bounce: every refusal answers 4xx
	early  bool   // smtpd_delay_reject = no: each list of restrictions is asked as soon as it can
}

// action reads a right-hand side.
func (r *accessRules) action(value string) action {
	value = strings.TrimSpace(value)
	word, rest := cutBlank(value)
	a := action{word: strings.ToUpper(word), text: rest}
	known := false
	a.deed, known = deeds[a.word]
	switch {
	case known && (a.word != "PERMIT" || rest == ""):
	case digits(value):
		a.deed = lets // a time stamp, not a reply code
	case len(word) == 3 && digits(word) && (word[0] == '4' || word[0] == '5'):
		if a.deed = refuses; word[0] == '4' {
			a.deed = defers
		}
	default:
		a.deed, a.text = classes, value
	}
	if a.deed == refuses || a.deed == defers {
		r.words(&a)
	}
	return a
}

func digits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// words settles what the client reads.
func (r *accessRules) words(a *action) {
	code := a.word
	if !digits(code) {
		code = map[bool]string{false: r.defers, true: r.reject}[code == "REJECT"]
	}
	var said lists.Answer
	if a.text != "" {
		said = lists.ParseAnswer("554 " + a.text)
	}
	if a.hard = code[0] == '5'; r.soft {
		code = "4" + code[1:]
	}
	if a.deed = refuses; code[0] == '4' {
		a.deed = defers
	}
	text := cmp.Or(said.Text, map[bool]string{false: "Access denied", true: "Service unavailable"}[a.word == "DEFER_IF_PERMIT"])
	a.unsaid = said.Enhanced != "" && said.Text == ""
	a.answer = code + " " + code[:1] + cmp.Or(said.Enhanced, "5.7.1")[1:] + " " + text
	a.silent = a.deed == refuses && a.word == "REJECT" && a.text == ""
}

// refusal is what becomes of mail that is refused.
func (r *accessRules) refusal() Fate {
	if r.soft {
		return Deferred
	}
	return Refused
}

// plain is the action of the same meaning as an access table of blockd has it. DEFER_IF_PERMIT is what the policy
// service says of an entry that defers without a code.
func (a *action) plain() string {
	switch {
	case a.deed == lets:
		return "OK"
	case a.deed == drops:
		return strings.TrimSpace("DISCARD " + a.text)
	case a.silent:
		return "REJECT"
	case a.deed == refuses && a.word == "REJECT" && lists.ParseAnswer(a.text).Code == 0 && lists.ParseAnswer(a.text).Text != "":
		return "REJECT " + a.text
	case a.word == "DEFER_IF_PERMIT" && lists.ParseAnswer(a.text).Text != "":
		return "DEFER " + a.text
	case a.deed == refuses, a.deed == defers:
		return a.answer
	}
	return "DUNNO"
}

// about is what a table is asked about.
type about uint8

const (
	senders about = iota
	clients
	recipients
	authors // of a header field; no table of Postfix is
)

// asks are the keys that Postfix asks a table for about a mail, in order. Only a table with fixed keys is asked for
// parts.
func (r *accessRules) asks(t *table, m *Mail) (keys []string) {
	fixed := t.kind == indexedTable || t.kind == inlineTable || t.kind == staticTable
	if t.about == clients {
		if m.Name != "" && t.kind != cidrTable {
			keys = r.names(keys, strings.ToLower(m.Name), fixed)
		}
		for text := m.Client.String(); ; {
			keys = append(keys, text)
			i := strings.LastIndexAny(text, ".:")
			if i < 0 || !fixed {
				return keys
			}
			text = text[:i]
		}
	}
	address := strings.ToLower(m.Sender)
	if t.about == recipients {
		address = strings.ToLower(m.Recipient)
	}
	at := strings.LastIndexByte(address, '@')
	switch {
	case t.kind == cidrTable:
		return nil
	case address == "":
		return []string{"<>"}
	case at < 0 || !fixed:
		return []string{address}
	}
	local, domain := address[:at], address[at+1:]
	short := r.unextended(local)
	keys = append(keys, address)
	if short != local {
		keys = append(keys, short+"@"+domain)
	}
	keys = append(r.names(keys, domain, true), local+"@")
	if short != local {
		keys = append(keys, short+"@")
	}
	return keys
}

// names adds a name and those above it.
func (r *accessRules) names(keys []string, name string, parts bool) []string {
	for {
		keys = append(keys, name)
		i := -1
		if name != "" {
			i = strings.IndexByte(name[1:], '.')
		}
		if i < 0 || !parts {
			return keys
		}
		if i++; r.parents {
			i++
		}
		name = name[i:]
	}
}

// unextended is a local-part without its extension.
func (r *accessRules) unextended(local string) string {
	i := strings.IndexAny(local, r.delimiter)
	switch {
	case i <= 0, local == "postmaster", local == "mailer-daemon", local == "double-bounce",
		strings.Contains(r.delimiter, "-") && (strings.HasPrefix(local, "owner-") || strings.HasSuffix(local, "-request")):
		return local
	}
	return local[:i]
}

// restriction is a word of a list of restrictions.
type restriction struct {
	word  string
	table *table        // of check_…_access
	class []restriction // of a restriction class
	warn  bool          // warn_if_reject stands before it
}

// status is how a list of restrictions goes on.
type status uint8

const (
	goesOn status = iota
	ends          // the next list is asked
	final         // the answer is there
)

// evaluation is one mail before the restrictions.
type evaluation struct {
	*postfix
	mail               *Mail
	get                func(t *table, keys []string) (value *string, asked bool)
	answer             Answer
	missing            *table // has not been asked for this mail
	also               []string
	held               bool
	ifPermit, ifReject string // what DEFER_IF_… has to say
}

// run is what Postfix does with the mail. It ends early where a table has not been asked.
func (e *evaluation) run() Answer {
	for i, list := range e.order {
		if e.ifReject = ""; e.list(list, i, 0) == final {
			return e.answer
		}
	}
	return e.taken()
}

// taken is the answer to mail that nothing has refused for good.
func (e *evaluation) taken() Answer {
	words := strings.Join(e.also, ", ")
	switch {
	case e.ifPermit != "":
		return Answer{Deferred, e.ifPermit}
	case e.held:
		return Answer{Held, words}
	}
	return Answer{Passes, words}
}

// phaseOfMail and phaseOfRecipient are where a sender and a recipient are first known without smtpd_delay_reject.
const phaseOfMail, phaseOfRecipient = 2, 3

func (e *evaluation) list(list []restriction, phase, depth int) status {
	for i := range list {
		r, s := &list[i], goesOn
		switch {
		case r.class != nil && depth < maxDepth:
			s = e.list(r.class, phase, depth+1)
		case r.table != nil:
			s = e.look(r, phase, depth)
		default:
			s = e.word(r)
		}
		if s != goesOn {
			return s
		}
	}
	return goesOn
}

// word is a restriction without a table. Those that ask others, such as DNS, are taken for ones that have nothing to
// say.
func (e *evaluation) word(r *restriction) status {
	switch r.word {
	case "permit", "permit_auth_destination": // mail is for this server's own recipients
		return ends
	case "permit_mynetworks":
		if e.within(e.mail.Client) {
			return ends
		}
	case "reject":
		return e.refuse(Answer{e.rules.refusal(), "by the word reject"}, true, r.warn)
	case "defer":
		return e.refuse(Answer{Deferred, "by the word defer"}, false, r.warn)
	case "defer_if_permit":
		e.ifPermit = "by the word defer_if_permit"
	case "defer_if_reject":
		e.ifReject = "by the word defer_if_reject"
	}
	return goesOn
}

// look asks a table.
func (e *evaluation) look(r *restriction, phase, depth int) status {
	t := r.table
	if e.rules.early && (t.about == senders && phase < phaseOfMail || t.about == recipients && phase < phaseOfRecipient) {
		return goesOn // it is not known yet
	}
	value, asked := e.get(t, e.rules.asks(t, e.mail))
	switch {
	case !asked:
		e.missing = t
		return final
	case value == nil:
		return goesOn
	}
	return e.act(*value, r.warn, phase, depth)
}

// act does what a table or a policy service says.
func (e *evaluation) act(value string, warn bool, phase, depth int) status {
	a := e.rules.action(value)
	if a.unsaid {
		a.answer = a.answer[:len("550 5.7.1")] + " with a text of before"
	}
	switch a.deed {
	case lets:
		return ends
	case refuses:
		return e.refuse(Answer{Refused, a.answer}, true, warn)
	case defers:
		if a.word == "DEFER_IF_PERMIT" {
			if !warn {
				e.ifPermit = cmp.Or(e.ifPermit, a.answer)
			}
			return goesOn
		}
		return e.refuse(Answer{Deferred, a.answer}, a.hard, warn)
	case drops:
		e.answer = Answer{Dropped, ""}
		return final
	case holds:
		e.held = true
	case marks:
		switch a.word {
		case "DEFER_IF_REJECT":
			e.ifReject = "by DEFER_IF_REJECT"
		case "PREPEND", "FILTER", "REDIRECT", "BCC":
			if a.text != "" {
				e.also = append(e.also, a.word+" "+a.text)
			}
		}
	case classes:
		return e.restrictions(a.text, warn, phase, depth)
	}
	return goesOn
}

// restrictions are those that a table has for an action.
func (e *evaluation) restrictions(text string, warn bool, phase, depth int) status {
	list := e.inTables[text]
	if list == nil {
		w := walk{postfix: e.postfix, phase: phases[phase], apart: true}
		var err error
		if list, err = w.list(text, depth+1); err != nil || len(list) == 0 {
			list = []restriction{{word: "?"}}
		}
		e.inTables[text] = list
	}
	if len(list) == 1 && warn {
		list = []restriction{{word: list[0].word, table: list[0].table, class: list[0].class, warn: true}}
	}
	for _, r := range list {
		if r.table == nil && r.class == nil && !answered[r.word] {
			e.answer = Answer{Unknown, r.word + " in a table is a check of Postfix's own"}
			return final
		}
	}
	return e.list(list, phase, depth+1)
}

// answered are the words that word knows.
var answered = map[string]bool{"permit": true, "permit_auth_destination": true, "permit_mynetworks": true, "reject": true, "defer": true,
	"defer_if_permit": true, "defer_if_reject": true, "reject_unauth_destination": true, "permit_sasl_authenticated": true, "warn_if_reject": true}

// refuse ends the mail, unless a refusal is only warned of. hard: it is one for good, but for soft_bounce.
func (e *evaluation) refuse(a Answer, hard, warn bool) status {
	switch {
	case warn:
		return goesOn
	case e.ifReject != "" && hard: // in whose words is not said by any manual
		a = Answer{Deferred, e.ifReject}
	}
	e.answer = a
	return final
}

// byPolicy is what Postfix makes of the answer of a policy service.
func (pf *postfix) byPolicy(said string) Answer {
	e := evaluation{postfix: pf, mail: &Mail{}}
	if e.act(said, false, 0, 0) == final {
		return e.answer
	}
	return e.taken()
}

// code is a reply code of main.cf, as Postfix takes it.
func code(text string) string {
	if n, err := strconv.Atoi(text); err != nil || n < 400 || n > 599 {
		return "450" // Postfix says "450 4.7.1 Service unavailable" then
	}
	return text
}
