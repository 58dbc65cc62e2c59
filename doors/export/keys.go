package export

import (
	"context"
	"fmt"
	"strings"
	"time"

	"blockd/lists"
	"blockd/mail/addr"
)

// KeyKinds say which keys of lists are wanted.
type KeyKinds struct{ Addresses, Locals, Domains bool }

// AllKeys are those that a sender may be found by.
var AllKeys = KeyKinds{Addresses: true, Locals: true, Domains: true}

// ParseKeyKinds reads words such as "address,domain"; "local" is the third.
func ParseKeyKinds(text string) (k KeyKinds, err error) {
	for word := range strings.SplitSeq(text, ",") {
		switch strings.TrimSpace(word) {
		case "address":
			k.Addresses = true
		case "local":
			k.Locals = true
		case "domain":
			k.Domains = true
		default:
			return k, fmt.Errorf("want some of address, local, domain, with commas between them, have %q", text)
		}
	}
	return k, nil
}

// Want reports whether a key is among them.
func (k KeyKinds) Want(key addr.Key) bool {
	switch key.Kind {
	case addr.Address:
		return k.Addresses
	case addr.Local:
		return k.Locals
	}
	return k.Domains
}

// Keys calls use for the canonical key of each entry that refuses senders and has one, in no order. A key
// with several scopes comes as often. Exceptions take nothing away, so the keys are
// more than what is refused. patterns is how many entries have no key: globs and regular
// expressions.
func (j Job) Keys(ctx context.Context, want KeyKinds, use func(key string)) (patterns int, err error) {
	rows := j.rows()
	for entry, err := range j.inForce(j.Index.Unordered(ctx), rows, time.Now()) {
		switch it := &entry.Item; {
		case err != nil:
			return patterns, err
		case it.Action.Allows():
		case it.Kind == lists.Glob || it.Kind == lists.Regexp:
			patterns++
		case (it.Kind == lists.Addr || it.Kind == lists.Domain) && want.Want(it.Key):
			use(it.Key.Text)
		}
	}
	return patterns, nil
}
