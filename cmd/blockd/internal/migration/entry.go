package migration

import (
	"net/netip"
	"strings"

	"blockd/lists"
	"blockd/lists/pattern"
	"blockd/mail/addr"
)

// deed is what an entry asks for.
type deed uint8

const (
	block   deed = iota
	defers       // 4xx
	discard      // taken and dropped
	hold         // taken and set aside
	mark         // taken, with a header field
	watch        // logged, and nothing else
	pass         // an exception from all that comes behind it in the same restrictions
	stop         // an exception from the rest of its own table
)

// exempts tells exceptions from what refuses.
func (d deed) exempts() bool { return d == pass || d == stop }

// refuses tells what an exception is worth something against.
func (d deed) refuses() bool { return d <= mark }

// answers tells what the client hears a reply of.
func (d deed) answers() bool { return d <= discard }

// about is what an entry looks at.
type about uint8

const (
	senders about = iota
	clients
	recipients
	logins // who has authenticated: blockd asks no list of senders about them
)

// key is one thing that an entry matches.
type key struct {
	kind  lists.Kind // Addr, Domain, IP, CIDR, Glob or Regexp
	text  string     // canonical; of Addr, Domain, Glob and Regexp
	scope lists.Scope
	net   netip.Prefix     // of IP and CIDR
	pat   *pattern.Pattern // of Glob and Regexp
}

// entry is a finding that decides about senders, clients or recipients.
type entry struct {
	*Finding
	action
	keys   []key // any of them matches; none: nobody knows whom it matches
	rank   int   // in its own table: of two that match the lower one is found first
	site   *site
	untold bool // its list has no room for its text
	met    int  // the round of plan.meet that has met it
}

// step is one place where a table is asked: the number of the restrictions, and of
// the word in them.
type step struct{ phase, item int }

// site is one table, wherever it is asked, or one word such as permit_mynetworks.
type site struct {
	name    string
	comes   string // from where, for people
	about   about
	steps   []step
	entries []*entry
	lines   []line   // of the table, in order
	warn    bool     // warn_if_reject
	tag     bool     // what matches is marked, not refused
	match   []string // which addresses its list is asked about; none = those of envelopes
	require []string // what its exceptions need to count
	ordered bool     // its lines are asked in their order, however narrow they are
	home    bool     // its exceptions go before blocks of its own list alone
}

// line is a line of a table: a comment, or an entry.
type line struct {
	comment string
	entry   *entry
}

// add puts an entry into the site.
func (s *site) add(e *entry) *entry {
	e.site = s
	s.entries = append(s.entries, e)
	s.lines = append(s.lines, line{entry: e})
	return e
}

// addressKey makes the key of a whole address.
func addressKey(text string) (key, error) {
	a, err := addr.Parse(text)
	if err != nil {
		return key{}, err
	}
	k, ok := a.Key()
	if !ok {
		return key{}, &addr.Error{Class: addr.TooLong, Input: text, Reason: "no address that can be listed"}
	}
	return key{kind: lists.Addr, text: k.Text}, nil
}

// localKey makes the key of a local-part at any domain.
func localKey(local string) (key, error) {
	k, err := addr.LocalKey(local)
	return key{kind: lists.Addr, text: k.Text, scope: lists.Local}, err
}

// nameKey makes the key of a domain.
func nameKey(name string, s lists.Scope) (key, error) {
	k, err := addr.DomainKey(name)
	if strings.HasPrefix(k.Text, "[") {
		s = lists.Exact
	}
	return key{kind: lists.Domain, text: k.Text, scope: s}, err
}

// netKey makes the key of a client network.
func netKey(p netip.Prefix) key {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	k := key{kind: lists.CIDR, scope: lists.Tree, net: p.Masked()}
	if p.IsSingleIP() {
		k.kind, k.scope = lists.IP, lists.Exact
	}
	return k
}

// patternKey makes the key of a glob or an expression over whole addresses.
func patternKey(k pattern.Kind, text string) (key, error) {
	p, err := pattern.Parse(k, text)
	if err != nil {
		return key{}, err
	}
	kind := lists.Glob
	if k == pattern.Regexp {
		kind = lists.Regexp
	}
	return key{kind: kind, text: p.String(), pat: p}, nil
}

// isPattern tells keys that only a list with patterns can hold.
func (k key) isPattern() bool { return k.pat != nil }

// String is the key as a plain list has it.
func (k key) String() string {
	switch k.kind {
	case lists.IP:
		return k.net.Addr().String()
	case lists.CIDR:
		return k.net.String()
	case lists.Domain:
		switch k.scope {
		case lists.Exact:
			return "@" + k.text
		case lists.Sub:
			return "." + k.text
		}
	}
	return k.text
}

// whom says in words whom the keys match.
func whom(what about, keys []key) string {
	if len(keys) == 0 {
		return "some mail"
	}
	who := "senders"
	if what == recipients {
		who = "recipients"
	}
	k := keys[0]
	switch k.kind {
	case lists.Addr:
		if k.scope == lists.Local {
			return who + " " + k.text + " at any domain"
		}
		return k.text
	case lists.Domain:
		return who + [...]string{lists.Exact: " at " + k.text, lists.Sub: " below " + k.text, lists.Tree: " at " + k.text + " and below"}[k.scope]
	case lists.IP:
		return "client " + k.String()
	case lists.CIDR:
		return "clients in " + k.String()
	}
	return who + " like " + k.text
}
