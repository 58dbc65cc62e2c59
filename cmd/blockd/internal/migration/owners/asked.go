package owners

import (
	"context"
	"strings"

	"blockd/cmd/blockd/internal/migration"
	"blockd/lists"
)

// The meaning that rows have in the programs that they are from, apart from what a list makes of them: whether an
// address is the sender that a row names, and which of several rows decides.

// meaning is a row as its program has it.
type meaning struct {
	*migration.Finding
	owner     string // a mailbox or a domain in its canonical form; "" = everyone
	below     bool   // mailboxes at names below the domain too
	text      string // the sender as it is written there, in lower case
	is        func(text, address string) bool
	author    bool // it looks at From: alone
	fate      migration.Fate
	takesBack bool // of SpamAssassin: the same text of a row for everyone does not count for the owner
	weight    int  // the highest decides; of one weight a row that lets pass does
}

// asGlob is SpamAssassin's, over the whole address.
func asGlob(text string) func(_, address string) bool {
	matches := migration.SpamAssassinGlob(text)
	return func(_, address string) bool { return matches(address) }
}

// asAmavis is amavisd-new's: an address, user@, @name, or @.name with all below; @. is everybody.
func asAmavis(text, address string) bool {
	local, domain, _ := strings.Cut(address, "@")
	switch name, below := strings.CutPrefix(text, "@."); {
	case below:
		return name == "" || domain == name || strings.HasSuffix(domain, "."+name)
	case strings.HasSuffix(text, "@"):
		return text == local+"@"
	case strings.HasPrefix(text, "@"):
		return text == "@"+domain
	}
	return text == address
}

// asEntry is what a portal exports, in the forms of a plain list.
func asEntry(text, address string) bool {
	local, domain, _ := strings.Cut(address, "@")
	name := strings.TrimLeft(text, "=@*")
	switch {
	case strings.HasSuffix(text, "@"):
		return text == local+"@"
	case strings.HasPrefix(strings.TrimPrefix(text, "*@"), "*."), text[0] == '.':
		return strings.HasSuffix(domain, "."+strings.TrimLeft(text, "*@."))
	case name != text:
		return domain == name
	case strings.Contains(text, "@"):
		return text == address
	}
	return domain == text || strings.HasSuffix(domain, "."+text)
}

// asSetting is rspamd's, and that of Sieve's tests: an address, @name, or a local-part.
func asSetting(text, address string) bool {
	local, domain, _ := strings.Cut(address, "@")
	return text == address || text == "@"+domain || text == local
}

// means notes what a row means for its owner. Rows that neither refuse nor let pass are not noted.
func (r *reading) means(m meaning, owner string, everyone bool) {
	if m.text = strings.ToLower(strings.TrimSpace(m.text)); m.text == "" {
		return
	}
	if !everyone {
		name, err := Canonical(owner, r.options.Domain)
		if err != nil {
			return
		}
		m.owner = name
	}
	r.meanings = append(r.meanings, m)
}

// mails are those to ask about: by the senders that a row names and their neighbours, to its owner and to somebody
// else.
func (r *reading) mails(yield func(migration.Mail) bool) {
	for i := range r.meanings {
		m := &r.meanings[i]
		to := m.owner
		if !strings.Contains(to, "@") && to != "" {
			to = "someone@" + to
		}
		senders := migration.Addresses(m.text, "")
		if strings.ContainsAny(m.text, "*?") {
			senders = append(senders, migration.GlobAddresses(m.text)...)
		} else if !strings.Contains(m.text, "@") { // a local-part, perhaps
			senders = append(senders, m.text+"@blockd-import.example")
		}
		for n, sender := range senders {
			mail := migration.Mail{Sender: sender, Author: sender, Recipient: to, About: m.Finding}
			if !yield(mail) {
				return
			}
			if mail.Recipient = ""; n == 0 && to != "" && !yield(mail) {
				return
			}
			if mail.Recipient, mail.Sender = to, ""; n == 0 && m.author && !yield(mail) {
				return
			}
		}
	}
}

// there answers by the meaning of the rows.
func (r *reading) there(ctx context.Context, mails []migration.Mail) ([]migration.Answer, error) {
	if r.byText == nil {
		r.byText = map[string][]*meaning{}
		for i := range r.meanings {
			m := &r.meanings[i]
			r.byText[m.owner+"\x00"+m.text] = append(r.byText[m.owner+"\x00"+m.text], m)
			if strings.ContainsAny(strings.TrimPrefix(strings.TrimPrefix(m.text, "*@"), "*."), "*?") {
				r.byText[m.owner+"\x00"] = append(r.byText[m.owner+"\x00"], m)
			}
		}
	}
	answers := make([]migration.Answer, len(mails))
	for i, m := range mails {
		answers[i].Fate = r.fate(&m)
	}
	return answers, ctx.Err()
}

// forms are the texts by which a row may name an address, but for patterns of any form.
func forms(address string) []string {
	local, domain, _ := strings.Cut(address, "@")
	all := []string{"", address, local + "@", local, "@" + domain, "*@" + domain, "=" + domain, "@."}
	for name, ok := domain, true; ok; _, name, ok = strings.Cut(name, ".") {
		all = append(all, name, "@."+name, "."+name, "*."+name, "*@*."+name)
	}
	return all
}

func (r *reading) fate(m *migration.Mail) migration.Fate {
	to := strings.ToLower(m.Recipient)
	_, domain, _ := strings.Cut(to, "@")
	owners := []string{to, domain, ""}
	for _, above, ok := strings.Cut(domain, "."); ok; _, above, ok = strings.Cut(above, ".") {
		owners = append(owners, above)
	}
	decides, takenBack := (*meaning)(nil), map[string]bool{}
	for i, owner := range owners {
		for _, address := range []string{strings.ToLower(m.Sender), strings.ToLower(m.Author)} {
			for _, form := range forms(address) {
				for _, w := range r.byText[owner+"\x00"+form] {
					switch {
					case w.author != (address == strings.ToLower(m.Author)) && m.Author != m.Sender, i > 2 && !w.below:
					case w.takesBack:
						takenBack[w.text] = true
					case owner == "" && takenBack[w.text] || !w.is(w.text, address):
					case decides == nil || w.weight > decides.weight || w.weight == decides.weight && w.fate == migration.Passes:
						decides = w
					}
				}
			}
		}
	}
	if decides == nil {
		return migration.Passes
	}
	return decides.fate
}

// fateOf is what becomes of the mail that an entry is about.
func fateOf(a lists.Action) migration.Fate {
	if a == lists.Block {
		return migration.Refused
	}
	return migration.Passes
}

// weightOf is how amavisd-new orders what it looks up: recipients before senders, and of each the more specific first.
func weightOf(owner, sender string) int {
	specific := func(text string) int {
		switch at := strings.IndexByte(text, '@'); {
		case at > 0 && at < len(text)-1:
			return 500
		case at > 0:
			return 400
		case strings.HasPrefix(text, "@."):
			return strings.Count(text, ".")
		}
		return 100 + strings.Count(text, ".")
	}
	return 1000*specific(owner) + specific(sender)
}
