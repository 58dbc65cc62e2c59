package addr

import "strings"

// ParseOwner reads who owns entries, as lists and people write it: a mailbox
// ("anna@here.example"), or a domain, whose entries are those of all mailboxes in it
// ("here.example" or "@here.example"). The key has the kind Address or Domain, and the
// spelling is canonical as that of a sender is. A tag ("anna+shop@") stays: only a
// look-up knows what separates tags. The error is an *Error.
func ParseOwner(text string) (Key, error) {
	if k, ok := Simple(text); ok {
		return k, nil
	}
	if name, ok := strings.CutPrefix(text, "@"); ok {
		text = name
	}
	if !strings.Contains(text, "@") {
		return DomainKey(text)
	}
	a, err := Parse(text)
	if err != nil {
		return Key{}, err
	}
	k, ok := a.Key()
	switch {
	case ok:
		return k, nil
	case a.Null() || a.Domain() == "":
		return Key{}, refuse(text, syntax("neither a mailbox nor a domain"))
	}
	return Key{}, refuse(text, fault{TooLong, "an address of more than 254 octets"})
}

// Untagged returns a without the tag of its local-part: all from the first of the
// separators on, which is not its first character. Each octet of separators is one, as in
// Postfix's recipient_delimiter; "" leaves a as it is. It allocates only if there is a tag.
func (a Addr) Untagged(separators string) Addr {
	local := a.Local()
	if separators == "" || local == "" {
		return a
	}
	quotes := 0
	if local[0] == '"' {
		quotes = 1
	}
	at := strings.IndexAny(local[quotes:], separators)
	if quotes == 0 && at == 0 {
		at = strings.IndexAny(local[1:], separators)
		if at >= 0 {
			at++
		}
	}
	if at <= 0 {
		return a
	}
	bare := local[:at]
	if quotes == 1 {
		var f fault
		if bare, f = canonLocal(local[:1+at]+`"`, quoted); !f.none() {
			return a // a backslash stands before the separator
		}
	}
	if a.at < 0 {
		if bare[0] != '"' && oddDots(bare) {
			bare = quote(bare) // as Parse has it
		}
		return Addr{text: bare, at: -1}
	}
	return Addr{text: bare + a.text[a.at:], at: int16(len(bare))}
}
