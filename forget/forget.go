// Package forget erases what blockd keeps about one person: an address, as a sender, a recipient or somebody whom users write to.
package forget

import (
	"context"
	"errors"
	"strings"

	"blockd/addr"
	"blockd/correspondents"
	"blockd/history"
	"blockd/junk"
	"blockd/receipt"
	"blockd/reload"
)

// Places are where it is looked for. A nil part has nothing.
type Places struct {
	Correspondents *correspondents.Set
	Recent         *reload.Recent
	RecentPath     string
	Index          string // the path of the index, beside which examples of held entries are
	History        func(ctx context.Context, about func(*history.Record) bool) (int, error)
	Requests       *receipt.Store
	Proposals      *junk.Box
}

// Forgotten is what was erased where.
type Forgotten struct {
	Correspondent bool `json:"correspondent"` // users of this server wrote to the address
	Recent        bool `json:"recent"`        // it was a sender accepted lately
	Held          int  `json:"held"`          // entries that were held back and named it as an example
	Decisions     int  `json:"decisions"`     // of the history
	Requests      int  `json:"requests"`      // to be let in
	Proposals     int  `json:"proposals"`     // words about the address as a sender that users do not want, and of its own about others
}

// Nothing reports whether there was nothing to erase.
func (f Forgotten) Nothing() bool { return f == Forgotten{} }

// Forget erases an address from all places. After an error it has tried the others all the same.
func (p *Places) Forget(ctx context.Context, a addr.Addr) (f Forgotten, err error) {
	if a.Domain() == "" {
		return f, errors.New("want an address with a domain")
	}
	is := func(text string) bool {
		other, err := addr.Parse(text)
		if err != nil {
			return strings.EqualFold(text, a.String())
		}
		return other == a
	}
	var errs [6]error
	f.Correspondent, errs[0] = p.Correspondents.Forget(a)
	f.Recent, errs[1] = p.Recent.Forget(a, p.RecentPath)
	f.Held, errs[2] = reload.ForgetExample(p.Index, a)
	if p.History != nil {
		f.Decisions, errs[3] = p.History(ctx, func(r *history.Record) bool { return is(r.Sender) || is(r.Recipient) })
	}
	if p.Requests != nil {
		f.Requests, errs[4] = p.Requests.Forget(is)
	}
	if p.Proposals != nil {
		f.Proposals, errs[5] = p.Proposals.Forget(is)
	}
	return f, errors.Join(errs[:]...)
}
