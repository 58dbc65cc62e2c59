// Package dialogue runs conversations that are written down as text. A file is
// one conversation, and its name is the rule that it proves:
//
//	# lines like this one are comments
//	only  smtp
//	list  bad: bad.example, promo@bulk.example
//	set   reject_at mail
//	U: RCPT 550-5.1.1 no such user\r\n550 5.1.1 here
//	C: MAIL FROM:<a@good.example>
//	S: 250
//	C: RCPT TO:<bob@here.example>
//	S: 550-5.1.1 no such user
//	S: 550 5.1.1 here
//	U< MAIL FROM:<a@good.example>
//	U< RCPT TO:<bob@here.example>
//
// The lines:
//
//   - list NAME: ENTRIES is a list of plain entries, one more line of it for each
//     entry; "list NAME allow:" and "list NAME shadow:" make it such a list,
//     quarantine, tag and tempfail there say what its entries lead to, and
//     spamassassin and postfix that they are lines of that format.
//   - require NAME: PROOFS is what the allow entries of a list need to count, and match
//     NAME: SOURCES which addresses a list is asked about.
//   - dns TYPE NAME: TEXT is a record of the name server that is asked.
//   - policy RECIPIENTS: LISTS has other lists for some recipients, or none.
//   - set KEY VALUE changes a setting, named as in config.toml or in the runner. Without
//     "set mail" the SMTP filter holds the conversation with "lazy" and with "strict".
//   - only FRONT keeps the conversation to one front door; without it, it means
//     the same at every one that has senders and recipients.
//   - C: is a line of the client's; CRLF is added. Several in a row are sent at once.
//   - C= is a quoted Go string of the client's, sent as it is.
//   - S: is a line of a reply. Three digits alone stand for a whole reply with that
//     code; otherwise a "*" stands for any text.
//   - U: is upstream's next answer at a point: a command, GREETING, BODY, DOT or
//     CONNECT. The answer is text with Go's escapes, or one of package script's.
//   - U< is a line that upstream must have read, all of them in order, without EHLO
//     and QUIT; a single "U<" without text says that upstream has read nothing.
//   - Q< is a line that must be in quarantine, all of them in order; a single "Q<"
//     without text says that nothing is.
//   - wait DURATION lets time pass; restart hangs up every upstream connection;
//     hangup ends the client's connection; closed expects the server to end it;
//     drain asks the server to stop.
//
// A conversation that does not begin with "S:" is preceded by greeting and EHLO.
// One that does not end with closed or hangup is followed by QUIT.
package dialogue

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"blockd/internal/testkit/nameserver"
)

// Dialogue is one conversation.
type Dialogue struct {
	Name      string // of the file, without folder and ending
	Only      string // a front door; "" = all
	Lists     []List
	Settings  map[string]string
	Upstream  []Answer
	Steps     []Step
	Read      []string // what upstream must have read
	CheckRead bool     // there is at least one U< line
	Aside     []string // what must be in quarantine
	CheckHeld bool     // there is at least one Q< line
	Policies  []Policy
	Require   map[string][]string // by list
	Match     map[string][]string // by list
	Zone      nameserver.Zone     // nil = no name server is asked
}

// Policy is which lists count for some recipients.
type Policy struct{ Recipients, Lists []string }

// List is a list of plain entries.
type List struct {
	Name    string
	Kind    string // "", "allow", "shadow"
	Entries []string
}

// Answer is what upstream says at a point.
type Answer struct{ Point, Text string }

// Step is one line of the conversation.
type Step struct {
	Line int // in the file
	Do   Action
	Text string        // of Send (raw octets) and Expect
	Wait time.Duration // of Wait
}

// Action is what a Step does.
type Action string

// The actions.
const (
	Send    Action = "send"
	Expect  Action = "expect"
	Wait    Action = "wait"
	HangUp  Action = "hangup"
	Closed  Action = "closed"
	Drain   Action = "drain"
	Restart Action = "restart"
)

// Load reads all dialogues of a folder, in order of their names.
func Load(folder string) ([]*Dialogue, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no dialogues in %s", folder)
	}
	var all []*Dialogue
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		d, err := Parse(strings.TrimSuffix(filepath.Base(path), ".txt"), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// Parse reads one dialogue.
func Parse(name, text string) (*Dialogue, error) {
	d := &Dialogue{Name: name, Settings: map[string]string{}, Require: map[string][]string{}, Match: map[string][]string{}}
	for i, line := range strings.Split(text, "\n") {
		if err := d.line(i+1, line); err != nil {
			return nil, fmt.Errorf("%s.txt:%d: %w", name, i+1, err)
		}
	}
	if len(d.Read) == 1 && d.Read[0] == "" {
		d.Read = nil
	}
	if len(d.Aside) == 1 && d.Aside[0] == "" {
		d.Aside = nil
	}
	return d, nil
}

func (d *Dialogue) line(number int, line string) error {
	word, rest, _ := strings.Cut(line, " ")
	step := Step{Line: number, Text: rest}
	switch word {
	case "", "#":
		if strings.TrimSpace(rest) != "" && word == "" {
			return fmt.Errorf("what is %q", line)
		}
		return nil
	case "only":
		d.Only = strings.TrimSpace(rest)
		return nil
	case "list":
		return d.list(rest)
	case "policy":
		head, lists, ok := strings.Cut(rest, ":")
		if !ok {
			return fmt.Errorf("policy wants RECIPIENTS: LISTS")
		}
		d.Policies = append(d.Policies, Policy{strings.Fields(head), strings.Fields(lists)})
		return nil
	case "require", "match", "dns":
		return d.proof(word, rest)
	case "Q<":
		d.CheckHeld = true
		d.Aside = append(d.Aside, rest)
		return nil
	case "set":
		key, value, ok := strings.Cut(strings.TrimSpace(rest), " ")
		if !ok {
			return fmt.Errorf("set wants KEY VALUE")
		}
		d.Settings[key] = strings.TrimSpace(value)
		return nil
	case "U:":
		point, text, _ := strings.Cut(rest, " ")
		text, err := strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`)
		if err != nil {
			return err
		}
		d.Upstream = append(d.Upstream, Answer{point, text})
		return nil
	case "U<":
		d.CheckRead = true
		d.Read = append(d.Read, rest)
		return nil
	case "C:":
		step.Do, step.Text = Send, rest+"\r\n"
	case "C=":
		text, err := strconv.Unquote(rest)
		if err != nil {
			return err
		}
		step.Do, step.Text = Send, text
	case "S:":
		step.Do = Expect
	case "wait":
		wait, err := time.ParseDuration(strings.TrimSpace(rest))
		if err != nil {
			return err
		}
		step.Do, step.Wait = Wait, wait
	case "hangup", "closed", "drain", "restart":
		step.Do = Action(word)
	default:
		return fmt.Errorf("what is %q", word)
	}
	d.Steps = append(d.Steps, step)
	return nil
}

// proof reads a line about what a list needs or is asked about, or what DNS says.
func (d *Dialogue) proof(word, text string) error {
	name, words, ok := strings.Cut(text, ": ")
	switch {
	case !ok:
		return fmt.Errorf("%s wants NAME: and what it is", word)
	case word == "require":
		d.Require[name] = strings.Split(words, ", ")
	case word == "match":
		d.Match[name] = strings.Split(words, ", ")
	default:
		if d.Zone == nil {
			d.Zone = nameserver.Zone{}
		}
		d.Zone[name] = append(d.Zone[name], words)
	}
	return nil
}

func (d *Dialogue) list(text string) error {
	head, entries, ok := strings.Cut(text, ":")
	words := strings.Fields(head)
	if !ok || len(words) < 1 || len(words) > 2 {
		return fmt.Errorf("list wants NAME: ENTRIES")
	}
	list := List{Name: words[0]}
	if len(words) == 2 {
		list.Kind = words[1]
	}
	for entry := range strings.SplitSeq(entries, ",") {
		list.Entries = append(list.Entries, strings.TrimSpace(entry))
	}
	for i := range d.Lists {
		if d.Lists[i].Name == list.Name {
			d.Lists[i].Entries = append(d.Lists[i].Entries, list.Entries...)
			return nil
		}
	}
	d.Lists = append(d.Lists, list)
	return nil
}
