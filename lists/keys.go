package lists

import (
	"fmt"
	"net/netip"
	"strings"

	"blockd/mail/addr"
)

// maxLocal is RFC 5321's limit of a local-part in octets (section 4.5.3.1.1).
// Mailing lists write longer ones, so it is a warning.
const maxLocal = 64

// address queues the entry of one mailbox. text may be in any spelling that
// package addr reads: in brackets, with a source route, quoted.
func (r *reading) address(text string) bool {
	a, err := addr.Parse(text)
	if err != nil {
		return r.failKey(text, err)
	}
	switch {
	case a.Null():
		return r.fail(NullSender, text, "the null sender cannot be listed")
	case a.Domain() == "":
		return r.fail(Syntax, text, "no domain behind the local-part")
	}
	key, ok := a.Key()
	if !ok {
		return r.fail(TooLong, text, "an address of more than 254 octets, or a domain of more than 253")
	}
	r.addLocal(key, Exact, len(a.Local()))
	return true
}

// local queues the entry of a local-part at any domain.
func (r *reading) local(text string) bool {
	key, err := addr.LocalKey(text)
	if err != nil {
		return r.failKey(text, err)
	}
	r.addLocal(key, Local, len(key.Text)-len("@"))
	return true
}

// addLocal queues a key whose local-part has n octets.
func (r *reading) addLocal(key addr.Key, s Scope, n int) {
	it := r.add(Addr, s)
	it.Key = key
	if n > maxLocal && r.warn == "" {
		it.Class, it.Message = TooLong, fmt.Sprintf("local-part of %d octets, RFC 5321 allows 64", n)
	}
}

// domain queues the entry of a name.
func (r *reading) domain(name string, s Scope) bool {
	key, err := addr.DomainKey(name)
	switch {
	case err != nil:
		return r.failKey(name, err)
	case looksRange(key.Text):
		return r.fail(Syntax, name, noRange)
	}
	r.add(Domain, s).Key = key
	return true
}

// network queues the entry of a client address or network.
func (r *reading) network(n netip.Prefix) *Item {
	kind, scope := CIDR, Tree
	if n.IsSingleIP() {
		kind, scope = IP, Exact
	}
	it := r.add(kind, scope)
	it.Net = n
	return it
}

// failKey refuses the line because text is no key. Where package addr knows only
// that the grammar ends early, what people write by mistake says it better.
func (r *reading) failKey(text string, err error) bool {
	e, ok := err.(*addr.Error)
	if !ok {
		return r.fail(Syntax, text, err.Error())
	}
	if guess := mistaken(text); e.Class == addr.Syntax && guess != "" {
		return r.fail(Syntax, text, guess)
	}
	if e.Class == addr.Invisible {
		return r.failInvisible(text, e.Reason)
	}
	return r.fail(Class(e.Class), text, e.Reason)
}

// failInvisible refuses the line and shows where in text the character is that
// nobody sees, and which.
func (r *reading) failInvisible(text, reason string) bool {
	at := strings.Index(r.text(), text)
	for i, c := range text {
		_, err := addr.LocalKey(string(c))
		if e, ok := err.(*addr.Error); ok && e.Class == addr.Invisible && at >= 0 {
			return r.failAt(Invisible, at+i, fmt.Sprintf("the invisible character %U", c))
		}
	}
	return r.fail(Invisible, text, reason)
}

// mistaken names what stands in lists by mistake, "" if text is none of it.
func mistaken(text string) string {
	switch {
	case strings.IndexByte(text, '"') >= 0:
		return "" // nearly everything may stand in quotes
	case strings.Contains(text, "://"):
		return "a URL, not a name"
	case strings.ContainsAny(text, ",;") || indexBlank(text) >= 0:
		return "more than one word; write one entry a line"
	case strings.Contains(text, ".."), strings.HasPrefix(text, "."), strings.Contains(text, "@."):
		return "nothing between two dots, or before one"
	case strings.IndexByte(text, '@') != strings.LastIndexByte(text, '@'):
		return `more than one "@"`
	case strings.IndexByte(text, '@') >= 0:
		return ""
	case strings.IndexByte(text, '/') >= 0:
		return "a path, not a name"
	case strings.IndexByte(text, ':') >= 0:
		return "a name does not have a port"
	}
	return ""
}
