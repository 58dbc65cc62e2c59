// Package rule has the words in which the configuration says what lists lead to: what an
// entry that matches does, which lists count for whom, what exceptions have to show. Package
// policy acts by them.
package rule

import (
	"net/netip"
	"time"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/msgauth"
	"blockd/policy/verdict"
)

// MaxTarpit bounds how long an answer is held back: RFC 5321, section 4.5.3.2.3,
// has clients wait five minutes for the answer to RCPT.
const MaxTarpit = 5 * time.Minute

// List is what the entries of one list lead to. The zero rule refuses.
type List struct {
	OnMatch    OnMatch         // of entries whose action is block
	Tarpit     time.Duration   // of the same entries: how long the answer is held back; 0 to MaxTarpit
	Discard    bool            // discard entries drop the message, at a door that can; else they count as block
	Require    verdict.Proof   // of allow entries: any one of them; 0 = believed on the sender's word, see Auth
	Text       string          // to the client, instead of the standard words; may begin with codes, see lists.ParseAnswer
	Contact    string          // where a refused client's people can ask; "" = that of all refusals
	NoOverride bool            // what a recipient's owner allows does not lift what the list blocks
	Percent    float64         // of senders that its blocks count for; 0 = all, as 100
	About      lists.About     // where the list comes from, as the configuration has it; goes before what its file says
	Catalogue  lists.About     // and what is known of its address; goes after that
	Match      verdict.Sources // which addresses the list is asked about; 0 = that of the envelope
}

// Origin is where the list of this name comes from, whose files are among the rows: by the configuration, the files and the
// catalogue, in this order.
func (l List) Origin(name string, rows []index.ListInfo) lists.About {
	a := l.About
	for i := range rows {
		if rows[i].Source.List == name && rows[i].Summary.Verdict != lists.Refused {
			a = a.Or(rows[i].Summary.About)
		}
	}
	return a.Or(l.Catalogue)
}

// OnMatch says what a blocking entry leads to; "" = "refuse".
type OnMatch string

// The choices.
const (
	Refuse     OnMatch = "refuse"     // 550
	Tempfail   OnMatch = "tempfail"   // 451
	Quarantine OnMatch = "quarantine" // taken, and set aside
	Tag        OnMatch = "tag"        // passed on, marked in its header
)

// OnError says what becomes of mail when the store cannot be read.
type OnError string

// The two choices.
const (
	AcceptOnError   OnError = "accept"
	TempfailOnError OnError = "tempfail"
)

// Auth is what an allow entry has to show (docs/auth.md). The zero Auth believes
// one on the sender's word, unless its list requires proof.
type Auth struct {
	Ignore   bool           // an allow entry without proof overrides nothing
	Clients  []netip.Prefix // whose mail has ClientProof
	Tempfail bool           // what could not be told now is 451, and not the block

	// Resolver finds SPF and DKIM; nil = neither is ever found.
	Resolver *msgauth.Resolver
}
