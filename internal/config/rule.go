package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"blockd/addr"
	"blockd/index"
	"blockd/internal/spelling"
	"blockd/lists"
	"blockd/live"
	"blockd/policy"
)

// Policy is [[policy]], one table for some recipients: the lists that count for them (docs/lists.md).
// The most specific recipient decides, and a recipient of no policy is served by all lists. What the
// other lists find is logged and counted.
type Policy struct {
	// As in a plain list: "vip@example.org", "sales@" (at any domain), "example.org" (and below),
	// "=example.org" (that name alone), ".example.org" (below it); 10,000 in all policies.
	Recipients []string `toml:"recipients"`
	// The names of the lists that block and allow; [] is none of them.
	Lists []string `toml:"lists"`
}

// Policy is what package policy goes by.
func (c Config) Policy() policy.Settings {
	s := policy.Settings{
		RecipientsExempt: c.SMTP.RecipientsExempt, OnError: policy.OnError(c.SMTP.OnError),
		Lists: map[string]policy.ListRule{},
		Auth:  c.Auth.policy(), Contact: c.Refusal.Contact,
	}
	for _, l := range c.Lists {
		s.Lists[l.Name] = policy.ListRule{
			OnMatch: policy.OnMatch(l.OnMatch), Tarpit: time.Duration(l.Tarpit), Discard: l.Discard, Match: l.sources(), Require: l.Proofs(),
			Text: l.Text, Contact: l.Contact,
		}
	}
	for _, p := range c.Policies {
		s.Policies = append(s.Policies, policy.RecipientPolicy(p))
	}
	return s
}

// validateRule checks what the matches of a list lead to.
func (l List) validateRule(f *Faults, key string) {
	if err := policy.CheckText(l.Text); err != nil {
		f.add(key+".text", "%v", err)
	}
	switch code := lists.ParseAnswer(l.Text).Code; {
	case code/100 == 4 && l.OnMatch == "refuse" && l.Action != "allow":
		f.add(key+".text", `a code of %d does not refuse for good; want one of 5xx, or on_match = "tempfail"`, code)
	case code/100 == 5 && l.OnMatch == "tempfail":
		f.add(key+".text", `a code of %d does not defer; want one of 4xx, or on_match = "refuse"`, code)
	}
	if err := policy.CheckContact(l.Contact, l.Name); err != nil {
		f.add(key+".contact", "%v", err)
	}
	l.validateMatch(f, key)
	l.validateRequire(f, key)
	if l.Action != "allow" {
		return
	}
	if l.Exceptions == "none" {
		f.add(key+".exceptions", `"none" leaves nothing of a list with action = "allow": take the list out, or set mode = "shadow"`)
	}
	const never = `has no effect with action = "allow": nothing of this list is refused`
	if l.OnMatch != "refuse" {
		f.add(key+".on_match", never)
	}
	if l.Tarpit != 0 {
		f.add(key+".tarpit", never)
	}
	if l.Discard {
		f.add(key+".discard", never)
	}
	if l.Text != "" {
		f.add(key+".text", never)
	}
	if l.Contact != "" {
		f.add(key+".contact", never)
	}
}

// validateRefusal checks the contact that lists without one of their own have.
func (c Config) validateRefusal(f *Faults) {
	names := []string{live.ListName}
	for _, l := range c.Lists {
		names = append(names, l.Name)
	}
	if err := policy.CheckContact(c.Refusal.Contact, names...); err != nil {
		f.add("refusal.contact", "%v", err)
	}
}

// SampleReplies shows what refused clients read, where the configuration has a part in
// the words: of each list with a text or contact of its own, and of the first without.
func (c Config) SampleReplies() (lines []string) {
	sender, err := addr.Parse("someone@sender.example")
	if err != nil {
		return nil
	}
	settings, usual := c.Policy(), false
	for _, l := range c.Lists {
		own := l.Text != "" || l.Contact != ""
		if !own && (usual || c.Refusal.Contact == "") || l.Action == "allow" || l.Mode == "shadow" {
			continue
		}
		if reply := settings.Sample(l.Name, sender); reply != "" {
			lines = append(lines, fmt.Sprintf("list %q says: %s", l.Name, reply))
			usual = usual || !own
		}
	}
	return lines
}

// Reach is how far those of the list reach; a list without faults only.
func (l List) Reach() index.Exceptions {
	e, _ := index.ParseExceptions(l.Exceptions)
	return e
}

// validatePolicies checks every [[policy]] against the lists that there are.
func (c Config) validatePolicies(f *Faults) {
	var names []string
	for _, l := range c.Lists {
		names = append(names, l.Name)
	}
	if c.Live.Folder != None {
		names = append(names, live.ListName)
	}
	keys, seen := 0, map[string]bool{}
	for i, p := range c.Policies {
		at := fmt.Sprintf("policy[%d]", i)
		if c.SMTP.Open() && c.SMTP.RejectAt == "mail" {
			f.add(at, `cannot act with smtp.reject_at = "mail", which refuses before a recipient is known`)
		}
		if keys += len(p.Recipients); keys > policy.MaxRecipientKeys {
			f.add(at+".recipients", "more than %d recipients in all policies", policy.MaxRecipientKeys)
			break // before a text of each of them
		}
		p.validateRecipients(f, at, seen)
		p.validateLists(f, at, names)
	}
}

func (p Policy) validateRecipients(f *Faults, at string, seen map[string]bool) {
	if len(p.Recipients) == 0 {
		f.add(at+".recipients", `is missing; want addresses or domains such as "vip@example.org", "example.org", ".example.org"`)
	}
	for i, text := range p.Recipients {
		at := fmt.Sprintf("%s.recipients[%d]", at, i)
		key, scope, err := policy.RecipientKey(text)
		if err != nil {
			f.add(at, "want an address or a domain, have %v", err)
			continue
		}
		id := scope.String() + " " + key.Text
		if seen[id] {
			f.add(at, "%q has a policy above", text)
		}
		seen[id] = true
	}
}

func (p Policy) validateLists(f *Faults, at string, names []string) {
	if p.Lists == nil {
		f.add(at+".lists", "is missing; want names of lists, [] for none of them")
	}
	for i, name := range p.Lists {
		if !slices.Contains(names, name) {
			f.add(fmt.Sprintf("%s.lists[%d]", at, i), "no [[list]] is named %q%s", name, spelling.Hint(name, "", names))
		}
	}
}

// clientWarnings are about lists of client addresses that will never meet one.
func (c Config) clientWarnings() (w []string) {
	for _, l := range c.Lists {
		format, _, _ := strings.Cut(l.Format, ":")
		if format != "drop" && l.Format != "rbldnsd:ip4set" {
			continue
		}
		if c.SMTP.Listen != "" && OnLoopback(c.SMTP.Listen) && len(c.SMTP.ProxyFrom) == 0 {
			w = append(w, fmt.Sprintf("list %q judges clients, and smtp.listen %s is reached by this machine alone: "+
				"without smtp.proxy_from nobody else is seen there", l.Name, c.SMTP.Listen))
		}
	}
	return w
}
