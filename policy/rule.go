package policy

import (
	"time"

	"blockd/verdict"
)

// MaxTarpit bounds how long an answer is held back: RFC 5321, section 4.5.3.2.3,
// has clients wait five minutes for the answer to RCPT.
const MaxTarpit = 5 * time.Minute

// ListRule is what the entries of one list lead to. The zero rule refuses.
type ListRule struct {
	OnMatch OnMatch         // of entries whose action is block
	Tarpit  time.Duration   // of the same entries: how long the answer is held back; 0 to MaxTarpit
	Discard bool            // discard entries drop the message, at a door that can; else they count as block
	Require verdict.Proof   // of allow entries: any one of them; 0 = believed on the sender's word, see Auth
	Text    string          // to the client, instead of the standard words; may begin with codes, see lists.ParseAnswer
	Contact string          // where a refused client's people can ask; "" = Settings.Contact
	Match   verdict.Sources // which addresses the list is asked about; 0 = that of the envelope
}

// OnMatch says what a blocking entry leads to; "" = "refuse".
type OnMatch string

// The choices.
const (
	RefuseOnMatch     OnMatch = "refuse"     // 550
	TempfailOnMatch   OnMatch = "tempfail"   // 451
	QuarantineOnMatch OnMatch = "quarantine" // taken, and set aside
	TagOnMatch        OnMatch = "tag"        // passed on, marked in its header
)

func (o OnMatch) outcome() Outcome {
	switch o {
	case TempfailOnMatch:
		return Defer
	case QuarantineOnMatch:
		return Quarantine
	case TagOnMatch:
		return Mark
	}
	return Refuse
}
