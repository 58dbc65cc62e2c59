// Package forget erases what blockd keeps about one person: an address, as a sender, a recipient or somebody whom users write to.
//
// What it may not take away, since it is a rule of the operator's or the proof of what was changed, it tells.
package forget

import (
	"context"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"blockd/doors/receipt"
	"blockd/index"
	"blockd/index/live"
	"blockd/mail/addr"
	"blockd/policy/hits"
	"blockd/policy/junk"
	"blockd/records/correspondents"
	"blockd/records/history"
	"blockd/records/quarantine"
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
	Hits           *hits.Table
	HitsPath       string
	Report         func(names func(text string) bool) (int, error) // the notes for the next letter
	Sessions       func(names func(text string) bool) (int, error) // those of browsers of people for whom an identity provider has vouched
	Live           *live.Set
	Quarantine     quarantine.Folder // "" = none
	Purged         func()            // is called after messages have gone from there

	Subaddress string                       // what separates a tag from a local-part here, as in addr.Untagged
	Serving    func() (*index.Index, error) // the lists
	Audit      string                       // the folder of the journal; "" = none
}

// Wish says what is erased besides what was kept by itself.
type Wish struct {
	Entries    bool   // live entries of everybody and of other owners that name the address
	Quarantine bool   // messages in quarantine from or to it
	Author     string // who asks, for the journal
}

// Forgotten is what was erased where.
type Forgotten struct {
	Correspondent bool `json:"correspondent"` // users of this server wrote to the address
	Recent        bool `json:"recent"`        // it was a sender accepted lately
	Held          int  `json:"held"`          // entries that were held back and named it as an example
	Decisions     int  `json:"decisions"`     // of the history
	Requests      int  `json:"requests"`      // to be let in
	Proposals     int  `json:"proposals"`     // words about the address as a sender that users do not want, and of its own about others
	Hits          int  `json:"hits"`          // counts of entries that name it
	Report        int  `json:"report"`        // notes for the next letter that named it
	Sessions      int  `json:"sessions"`      // of browsers of the person, which have ended
	Own           int  `json:"own"`           // live entries whose owner it was
	Entries       int  `json:"entries"`       // other live entries for it; 0 unless they were to go
	Quarantined   int  `json:"quarantined"`   // messages; 0 unless they were to go

	Remains []Remainder `json:"remains"` // never null
}

// Remainder is what stays, and why.
type Remainder struct {
	Where string `json:"where"` // "entries", "quarantine", "list NAME" or "audit"
	Count int    `json:"count"`
	Why   string `json:"why"` // and what takes it away
}

// Nothing reports whether there was nothing to erase.
func (f Forgotten) Nothing() bool {
	return !f.Correspondent && !f.Recent && f.Held+f.Decisions+f.Requests+f.Proposals+f.Hits+f.Report+f.Sessions+f.Own+f.Entries+f.Quarantined == 0
}

// Forget erases an address from all places. After an error it has tried the others all the same.
func (p *Places) Forget(ctx context.Context, a addr.Addr, w Wish) (f Forgotten, err error) {
	f.Remains = []Remainder{}
	if a.Domain() == "" {
		return f, errors.New("want an address with a domain")
	}
	who := person{address: a, separators: p.Subaddress}
	var errs []error
	try := func(err error) { errs = append(errs, err) }
	f.Correspondent, err = p.Correspondents.Forget(a)
	try(err)
	f.Recent, err = p.Recent.Forget(a, p.RecentPath)
	try(err)
	f.Held, err = reload.ForgetExample(p.Index, a)
	try(err)
	if p.History != nil {
		f.Decisions, err = p.History(ctx, func(r *history.Record) bool {
			return who.is(r.Sender) || who.gets(r.Recipient) || who.is(r.Entry) || who.gets(r.Owner)
		})
		try(err)
	}
	if p.Requests != nil {
		f.Requests, err = p.Requests.Forget(func(q *receipt.Request) bool {
			return who.is(q.Sender) || who.gets(q.Recipient) || who.is(q.Entry) || who.named(q.Note)
		})
		try(err)
	}
	if p.Proposals != nil {
		f.Proposals, err = p.Proposals.Forget(who.is, who.gets)
		try(err)
	}
	if p.Report != nil {
		f.Report, err = p.Report(who.named)
		try(err)
	}
	if p.Sessions != nil {
		f.Sessions, err = p.Sessions(who.gets)
		try(err)
	}
	try(p.entries(ctx, &f, &who, w))
	if p.Hits != nil {
		f.Hits, err = p.Hits.Forget(who.is, p.HitsPath)
		try(err)
	}
	try(p.quarantine(ctx, &f, &who, w))
	try(p.lists(&f, a))
	try(p.journal(ctx, &f, &who))
	return f, errors.Join(errs...)
}

// person knows an address in all of its spellings.
type person struct {
	address    addr.Addr
	separators string // of a tag
}

// is reports whether a text is the address.
func (p *person) is(text string) bool {
	if len(text) < len(p.address.Domain()) || !strings.Contains(text, "@") {
		return false // most
	}
	other, err := addr.Parse(text)
	if err != nil {
		return strings.EqualFold(text, p.address.String())
	}
	return other == p.address
}

// gets is like is, but for recipients: their local-part may have a tag.
func (p *person) gets(text string) bool {
	if p.is(text) {
		return true
	}
	if !strings.Contains(text, "@") {
		return false
	}
	other, err := addr.Parse(text)
	return err == nil && other.Untagged(p.separators) == p.address
}

// named reports whether people's words have the address in them.
func (p *person) named(text string) bool {
	if !strings.Contains(text, "@") {
		return false
	}
	if spells(strings.ToLower(text), p.address.String()) {
		return true
	}
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`,;:()<>[]'`, r) }) {
		if p.gets(strings.Trim(word, ".!?")) {
			return true
		}
	}
	return false
}

// spells reports whether a text has an address in it that is no part of a longer one: joann@here.example is not ann@here.example, and
// neither is ann@here.example.org.
func spells(text, address string) bool {
	for from := 0; ; from++ {
		at := strings.Index(text[from:], address)
		if at < 0 {
			return false
		}
		from += at
		before, _ := utf8.DecodeLastRuneInString(text[:from])
		after, size := utf8.DecodeRuneInString(text[from+len(address):])
		if after == '.' { // the end of a sentence, or of a label
			after, _ = utf8.DecodeRuneInString(text[from+len(address)+size:])
		}
		if !inAddress(before) && !inAddress(after) {
			return true
		}
	}
}

// inAddress reports whether a rune may stand within an address and does not usually stand beside one, as "=" and "'" do.
func inAddress(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("!#$%&*+-./?^_{|}~@", r)
}
