// Package letter makes the report that an administrator gets by mail: what was refused and by which list, what may have been
// refused by mistake, how the lists were loaded, and what waits for a person.
//
// Its numbers come from the history and are exact. It is written about a period, and not at all about one in which nothing has
// happened.
package letter

import (
	"time"

	"blockd/records/history"
)

// Letter is what there is to tell of a period. Its field names are part of blockd's interface.
type Letter struct {
	Host     string        `json:"host"`
	Version  string        `json:"version"` // of blockd
	Since    time.Time     `json:"since"`
	Until    time.Time     `json:"until"`
	Mail     Mail          `json:"mail"`
	Lists    []List        `json:"lists"`    // those that had a part in it, the most refusals first; never null
	Suspects Suspects      `json:"suspects"` // of refusals by mistake
	Loads    []Load        `json:"loads"`    // of lists with something to tell, by name; never null
	Requests []OpenRequest `json:"requests"` // that wait for a person, the oldest first, MostRows at most; never null
	Open     int           `json:"open"`     // how many do
	Proposed []Unwanted    `json:"proposed"` // senders whom several users do not want, that wait for a person: what was said last first, MostRows at most; never null
	Waiting  int           `json:"waiting"`  // how many do
	Pending  []Pending     `json:"pending"`  // lists with a content that waits for a person, by name; never null
	Changes  []Change      `json:"changes"`  // what people and tokens have changed, by action; never null
	Problems []string      `json:"problems"` // of now, as /readyz has them; never null
	Notes    []string      `json:"notes"`    // what could not be found out; never null
}

// Mail counts decisions about mail, one for each recipient. A repeated refusal counts as often as it came.
type Mail struct {
	Decisions   uint64 `json:"decisions"`
	Refused     uint64 `json:"refused"`
	Deferred    uint64 `json:"deferred"`
	Quarantined uint64 `json:"quarantined"`
	Tagged      uint64 `json:"tagged"`
	Discarded   uint64 `json:"discarded"`
	Rules       uint64 `json:"rules"`  // of the five before: by a rule about the client's name, or a new domain, and no list
	Shadow      uint64 `json:"shadow"` // accepted, and a list in shadow mode would have refused it
}

// against is how many decisions were not plainly to accept.
func (m Mail) against() uint64 {
	return m.Refused + m.Deferred + m.Quarantined + m.Tagged + m.Discarded
}

// List is what one list did.
type List struct {
	Name          string `json:"name"`
	Refused       uint64 `json:"refused"`
	Deferred      uint64 `json:"deferred"`
	Quarantined   uint64 `json:"quarantined"`
	Tagged        uint64 `json:"tagged"`
	Discarded     uint64 `json:"discarded"`
	Sole          uint64 `json:"sole"`           // of the five before: no other list had an entry for it
	Senders       uint64 `json:"senders"`        // different ones, of the five before
	Shadow        uint64 `json:"shadow"`         // would have been refused
	ShadowSenders uint64 `json:"shadow_senders"` // different ones of Shadow
	Answers       uint64 `json:"answers"`        // to programs that asked by DNS or RESP: listed
}

func (l List) against() uint64 {
	return l.Refused + l.Deferred + l.Quarantined + l.Tagged + l.Discarded
}

// The signs that a sender was refused by mistake, the strongest first.
const (
	Correspondent = "correspondent" // users of this server write to the sender
	Allowed       = "allowed"       // an exception was added since, which lets the sender in
	Asked         = "asked"         // the sender asks to be let in
	Aligned       = "aligned"       // SPF passes the client for the sender's domain, which has a DMARC policy, and one list alone had it
)

// MostRows bounds what is shown of suspects and of requests.
const MostRows = 20

// Suspects are refused senders with a sign. A sender may have several.
type Suspects struct {
	Correspondents uint64    `json:"correspondents"` // senders with this sign, of the 200 with any that were refused most; so are the others
	Allowed        uint64    `json:"allowed"`
	Asked          uint64    `json:"asked"`
	Aligned        uint64    `json:"aligned"` // of Looked
	Looked         uint64    `json:"looked"`  // senders that DNS was asked about: those with the most refusals, MostLooked at most
	Rows           []Suspect `json:"rows"`    // the strongest signs first, MostRows at most; never null
}

// Suspect is a sender that may have been refused by mistake.
type Suspect struct {
	Sender string    `json:"sender"`
	Signs  []string  `json:"signs"`
	Times  uint64    `json:"times"` // refused in the period
	Last   time.Time `json:"last"`
	List   string    `json:"list"` // that refused it last
	Entry  string    `json:"entry"`
	Client string    `json:"client,omitempty"`
	Ref    string    `json:"ref"`
}

// Load is how a list was loaded.
type Load struct {
	List    string `json:"list"`
	Loads   int    `json:"loads"`         // new contents that have begun to serve
	Before  int    `json:"before"`        // entries, before the first of these
	Entries int    `json:"entries"`       // that serve now
	Refused int    `json:"refused"`       // contents that were refused
	Why     string `json:"why,omitempty"` // the last of these
	Stale   bool   `json:"stale"`         // older than its max_age
	Held    int    `json:"held"`          // entries that are held back, because they would refuse senders who wrote lately, or correspondents
	New     bool   `json:"new"`           // it has served for the first time
}

// OpenRequest is one of a refused person.
type OpenRequest struct {
	Ref    string    `json:"ref"`
	Sender string    `json:"sender"`
	List   string    `json:"list"`
	Time   time.Time `json:"time"`
	Note   string    `json:"note,omitempty"` // a stranger's words
}

// Unwanted is a sender whom several users do not want.
type Unwanted struct {
	Entry      string    `json:"entry"`
	Users      int       `json:"users"`
	Domains    int       `json:"domains"`    // of these
	Complaints int       `json:"complaints"` // of the users, those who have complained
	Last       time.Time `json:"last"`
}

// Pending is a list whose newer content waits to be adopted.
type Pending struct {
	List    string    `json:"list"`
	Since   time.Time `json:"since"` // since when something waits
	Changes string    `json:"changes"`
	Against []string  `json:"against"` // what speaks against it; never null
}

// Change is what was changed, and by whom.
type Change struct {
	Action string   `json:"action"`
	Count  int      `json:"count"`
	By     []string `json:"by"` // the first few
}

// Empty reports whether nothing has happened that is worth a letter: mail that passed, and lists that were loaded as they should, are
// not.
func (l *Letter) Empty() bool {
	if l.Mail.against()+l.Mail.Shadow > 0 || l.Open+l.Waiting+len(l.Pending) > 0 || len(l.Changes) > 0 || len(l.Problems) > 0 {
		return false
	}
	for _, one := range l.Loads {
		if one.Refused > 0 || one.Stale || one.Held > 0 {
			return false
		}
	}
	return true
}

// against says what r did to mail; nothing if it was accepted, or an answer to a program.
func against(r *history.Record) bool {
	switch r.Outcome {
	case "refuse", "defer", "quarantine", "tag", "discard":
		return true
	}
	return false
}
