// Package transaction reads transactions with their expected outcomes, each a
// small text file. Every front door is shown the same files, and all of them must
// say the same. A file's name is the rule that it proves:
//
//	# lines like this one are comments
//	list      bad: bulk.example, promo@shop.example
//	list      good allow: news.bulk.example
//	require   good: spf, dkim
//	policy    sales@here.example: bad
//	set       on_error tempfail
//	auth      on_dns_error tempfail
//	owners    allow_overrides ["bad"]
//	alias     sales@here.example anna@here.example
//	dns       TXT bulk.example: !SERVFAIL
//	client    192.0.2.7
//	from      a@bulk.example
//	message   a@bulk.example signed bulk.example
//	to        bob@here.example          refuse bad
//	to        postmaster@here.example   accept
//	alone     refuse bad
//	verdict   blocked bad
//
// The lines:
//
//   - list NAME: ENTRIES is a list of plain entries; a word behind NAME makes it
//     one that allows, one whose exceptions reach all lists, or a shadow, paused, tenth (percent = 10), tempfail, tag, quarantine or discard list, or one
//     of SpamAssassin's directives. No owner overrides a fixed one. The entries of an owned one are OWNER ENTRY, with
//     "!" before an entry that allows; its refusals name no list, and so "owner" in an outcome, or "recipient" where
//     it is about that.
//   - require NAME: PROOFS is what the entries of an allow list need to count.
//   - policy RECIPIENTS: LISTS has other lists for some recipients, or none.
//   - set KEY VALUE is a key of [smtp]; VALUE is TOML, or a word.
//   - owners KEY VALUE is a key of [recipients] in the same way, and alias ALIAS OWNER one of its aliases.
//   - auth KEY VALUE is a key of [auth] in the same way, and dns TYPE NAME: TEXT a record
//     of the name server, beside those of internal/testkit/sealed.
//   - broken has the index damaged once blockd serves.
//   - client ADDRESS, helo NAME and login USER are of the session. Without them it is
//     192.0.2.7, client.there.example and nobody.
//   - from is the reverse-path between its brackets, <> for the null one.
//   - message FROM, or FROM signed DOMAIN, is what the message's From field says, and
//     whose signature it has. Without it, it has neither.
//   - to RECIPIENT OUTCOME, in order. An outcome is accept, refuse, defer, tag,
//     quarantine or discard with a list, syntax for a sender whose syntax alone is
//     refused, whoever is listed, unproved with a list for what is refused at the
//     end of the message, defer without one where nothing could be
//     looked up, or again: by itself, later. A door that must answer in another way
//     says so behind it, "[milter discard gone]".
//   - alone OUTCOME is what is said of the sender where nothing else is known: by the
//     tables of Postfix.
//   - verdict WORD LIST is what `blockd check` and HTTP say of sender and client.
package transaction

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"blockd/internal/testkit/nameserver"
)

// Case is one transaction.
type Case struct {
	Name       string // of the file, without folder and ending
	Lists      []List
	Policies   []Policy
	Settings   []Setting // of [smtp]
	Auth       []Setting // of [auth]
	Owners     []Setting // of [recipients]
	Aliases    []string  // lines "ALIAS,OWNER"
	Zone       nameserver.Zone
	Broken     bool
	Client     netip.Addr
	Helo       string
	Login      string // "" = nobody has logged in
	Sender     string // as between the angle brackets of MAIL FROM
	From       string // of the message; "" = it has no such field
	Signer     string // "" = nobody has signed it
	Recipients []Recipient
	Alone      Outcome
	Verdict    string // "blocked bad"
}

// List is a list of plain entries.
type List struct {
	Name    string
	Kind    string // "", "allow", "all", "shadow", "paused", "tenth", "tempfail", "tag", "quarantine", "discard", "spamassassin", "fixed", "owned"
	Require []string
	Entries []string
}

// Policy is which lists count for some recipients.
type Policy struct{ Recipients, Lists []string }

// Setting is a key of a table and its value in TOML.
type Setting struct{ Key, Value string }

// Recipient is one RCPT.
type Recipient struct {
	Address string
	Want    Outcome
	At      map[string]Outcome // by door: where that answers otherwise
}

// Outcome is what becomes of a recipient: a word and a list.
type Outcome struct{ Word, List string }

func (o Outcome) String() string { return strings.TrimSuffix(o.Word+" "+o.List, " ") }

// Expect is what a door must say to r.
func (r Recipient) Expect(door string) Outcome {
	if o, ok := r.At[door]; ok {
		return o
	}
	if asks, ok := servers[door]; ok {
		return r.Expect(asks)
	}
	return r.Want
}

// Doors are those that may have answers of their own.
var doors = []string{"smtp", "policy", "milter", "sendmail", "postfix-milter"}

// servers are those in front of a door that may say something of their own, or make
// something else of a sender before they ask.
var servers = map[string]string{"sendmail": "milter", "postfix-milter": "milter"}

// Load reads all cases of a folder, in order of their names.
func Load(folder string) ([]*Case, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []*Case
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		c, err := Parse(strings.TrimSuffix(filepath.Base(path), ".txt"), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// Parse reads one case.
func Parse(name, text string) (*Case, error) {
	c := &Case{Name: name, Client: netip.MustParseAddr("192.0.2.7"), Helo: "client.there.example"}
	seen := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		if seen[word] = true; word == "" || word[0] == '#' {
			if word == "" && strings.TrimSpace(rest) != "" {
				return nil, fmt.Errorf("%s.txt:%d: what is %q", name, i+1, line)
			}
			continue
		}
		if err := c.line(word, strings.TrimSpace(rest)); err != nil {
			return nil, fmt.Errorf("%s.txt:%d: %w", name, i+1, err)
		}
	}
	for _, word := range []string{"from", "to", "alone", "verdict"} {
		if !seen[word] {
			return nil, fmt.Errorf("%s.txt: no line %q", name, word)
		}
	}
	return c, nil
}

func (c *Case) line(word, rest string) (err error) {
	switch word {
	case "list":
		return c.list(rest)
	case "policy":
		head, lists, ok := strings.Cut(rest, ":")
		if !ok {
			return fmt.Errorf("policy wants RECIPIENTS: LISTS")
		}
		c.Policies = append(c.Policies, Policy{strings.Fields(head), strings.Fields(lists)})
	case "set":
		c.Settings, err = setting(c.Settings, word, rest)
	case "auth":
		c.Auth, err = setting(c.Auth, word, rest)
	case "owners":
		c.Owners, err = setting(c.Owners, word, rest)
	case "alias":
		alias, owner, ok := strings.Cut(rest, " ")
		if !ok {
			return fmt.Errorf("alias wants ALIAS OWNER")
		}
		c.Aliases = append(c.Aliases, alias+","+owner)
	case "require":
		return c.require(rest)
	case "dns":
		name, text, ok := strings.Cut(rest, ": ")
		if !ok {
			return fmt.Errorf("dns wants TYPE NAME: TEXT")
		}
		if c.Zone == nil {
			c.Zone = nameserver.Zone{}
		}
		c.Zone[name] = append(c.Zone[name], text)
	case "message":
		c.From, c.Signer, _ = strings.Cut(rest, " signed ")
	case "broken":
		c.Broken = true
	case "client":
		c.Client, err = netip.ParseAddr(rest)
	case "helo":
		c.Helo = rest
	case "login":
		c.Login = rest
	case "from":
		c.Sender = rest
		if rest == "<>" {
			c.Sender = ""
		}
	case "to":
		return c.recipient(rest)
	case "alone":
		c.Alone, err = c.outcome(rest)
	case "verdict":
		c.Verdict = rest
	default:
		return fmt.Errorf("what is %q", word)
	}
	return err
}

// setting reads "KEY VALUE".
func setting(all []Setting, word, text string) ([]Setting, error) {
	key, value, ok := strings.Cut(text, " ")
	if !ok {
		return nil, fmt.Errorf("%s wants KEY VALUE", word)
	}
	if value = strings.TrimSpace(value); !strings.ContainsAny(value[:1], `["`) && value != "true" && value != "false" {
		value = strconv.Quote(value)
	}
	return append(all, Setting{key, value}), nil
}

// require reads "NAME: PROOFS".
func (c *Case) require(text string) error {
	name, proofs, _ := strings.Cut(text, ": ")
	i := slices.IndexFunc(c.Lists, func(l List) bool { return l.Name == name })
	if i < 0 || proofs == "" {
		return fmt.Errorf("require wants the NAME of a list: PROOFS")
	}
	c.Lists[i].Require = strings.Split(proofs, ", ")
	return nil
}

func (c *Case) list(text string) error {
	head, entries, ok := strings.Cut(text, ":")
	words := strings.Fields(head)
	kinds := []string{"", "allow", "all", "shadow", "paused", "tenth", "tempfail", "tag", "quarantine", "discard", "spamassassin", "fixed", "forced", "owned"}
	if len(words) == 1 {
		words = append(words, "")
	}
	if !ok || len(words) != 2 || !slices.Contains(kinds, words[1]) {
		return fmt.Errorf("list wants NAME: ENTRIES, or one of%s behind NAME", strings.Join(kinds, " "))
	}
	l := List{Name: words[0], Kind: words[1]}
	for entry := range strings.SplitSeq(entries, ",") {
		l.Entries = append(l.Entries, strings.TrimSpace(entry))
	}
	c.Lists = append(c.Lists, l)
	return nil
}

// recipient reads "ADDRESS OUTCOME [DOOR OUTCOME] ...". An address in quotes may
// have blanks.
func (c *Case) recipient(text string) error {
	end := strings.IndexByte(text, ' ')
	if strings.HasPrefix(text, `"`) {
		quoted := strings.LastIndexByte(text, '"')
		end = quoted + max(0, strings.IndexByte(text[quoted:], ' '))
	}
	if end <= 0 {
		return fmt.Errorf("to wants RECIPIENT OUTCOME")
	}
	r := Recipient{Address: text[:end], At: map[string]Outcome{}}
	parts := strings.Split(strings.TrimSpace(text[end:]), "[")
	for i, part := range parts {
		door := ""
		if i > 0 {
			ok := false
			if part, ok = strings.CutSuffix(strings.TrimSpace(part), "]"); !ok {
				return fmt.Errorf("bracket without its pair")
			}
			if door, part, _ = strings.Cut(part, " "); !slices.Contains(doors, door) {
				return fmt.Errorf("want a door, have %q", door)
			}
		}
		o, err := c.outcome(part)
		if err != nil {
			return err
		}
		if i == 0 {
			r.Want = o
		} else {
			r.At[door] = o
		}
	}
	c.Recipients = append(c.Recipients, r)
	return nil
}

// outcome reads a word, and a list where that must have one.
func (c *Case) outcome(text string) (Outcome, error) {
	words := append(strings.Fields(text), "", "")
	o := Outcome{words[0], words[1]}
	listed := slices.ContainsFunc(c.Lists, func(l List) bool { return l.Name == o.List })
	ok := words[2] == ""
	switch o.Word {
	case "accept", "again", "syntax":
		ok = ok && o.List == ""
	case "refuse":
		ok = ok && (listed || o.List == "owner" || o.List == "recipient")
	case "unproved", "tag", "quarantine", "discard":
		ok = ok && listed
	case "defer":
		ok = ok && (listed || o.List == "")
	default:
		ok = false
	}
	if !ok {
		return o, fmt.Errorf("want an outcome, have %q", strings.TrimSpace(text))
	}
	return o, nil
}
