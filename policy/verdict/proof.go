package verdict

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/mail/msgauth"
)

// Proof is what can show that mail comes from who its sender says, as a set: each
// bit is one kind.
type Proof uint8

// The kinds of proof (docs/auth.md).
const (
	ClientProof    Proof = 1 << iota // the client is in a network of Requirements.Clients
	AuthProof                        // the client has logged in
	SPFProof                         // SPF passes the client for the sender's domain
	DKIMProof                        // a signature of the author's domain, which is the sender's
	AlignmentProof                   // what allow-if-auth asks for: SPF or DKIM for the one author's domain

	// domainProofs vouch for a domain, and so for what an entry says of that domain
	// alone.
	domainProofs = SPFProof | DKIMProof | AlignmentProof
	// LateProofs need the whole message.
	LateProofs = DKIMProof | AlignmentProof
)

// proofWords are the words of each bit in configuration and output.
var proofWords = [...]string{"client", "auth", "spf", "dkim", "alignment"}

// proofsOfLists are how many of proofWords a list can require.
const proofsOfLists = 4

// ParseProofs reads the words of require.
func ParseProofs(words []string) (p Proof, err error) {
	for _, w := range words {
		bit := Proof(0)
		for i, known := range proofWords[:proofsOfLists] {
			if w == known {
				bit = 1 << i
			}
		}
		if bit == 0 {
			return 0, fmt.Errorf(`want "client", "auth", "spf" or "dkim", have %q`, w)
		}
		p |= bit
	}
	return p, nil
}

// String joins the words with commas.
func (p Proof) String() string {
	var words []string
	for i, w := range proofWords {
		if p&(1<<i) != 0 {
			words = append(words, w)
		}
	}
	return strings.Join(words, ", ")
}

// Evidence is what is known of where a transaction's mail comes from.
type Evidence struct {
	Tried   Proof // the kinds that were looked for
	Found   Proof // of them
	Unknown Proof // of them: DNS did not say, or we could not ask
	Short   Proof // of Unknown: we could not ask, or a bound of ours ended it

	SPF     msgauth.SPF      // if SPFProof was tried by SPF
	Message *msgauth.Message // if LateProofs were tried; else nil
}

// ErrShort is wrapped by Verdict.Err where who has collected all facts cannot tell, since proofs
// are not known because of us.
var ErrShort = errors.New("not known for want of room or beyond a bound of blockd (docs/auth.md): mail is put off with 451")

// EvidenceOf is what facts prove of a sender, for who has collected them all to show
// them. m is nil where there is no message that can be looked at.
func EvidenceOf(sender addr.Addr, f msgauth.SPF, m *msgauth.Message) Evidence {
	e := Evidence{SPF: f, Message: m}
	e.Note(SPFProof, f.Proof)
	if m == nil {
		m = &msgauth.Message{}
	}
	e.Note(DKIMProof, m.DKIM(sender.Domain()))
	e.Note(AlignmentProof, m.Aligned(sender.Domain(), f))
	return e
}

// Note takes in what came of looking for p.
func (e *Evidence) Note(p Proof, s msgauth.State) {
	e.Tried |= p
	e.Found &^= p
	e.Unknown &^= p
	e.Short &^= p
	switch s {
	case msgauth.Pass:
		e.Found |= p
	case msgauth.Unknown:
		e.Unknown |= p
	case msgauth.Short:
		e.Unknown |= p
		e.Short |= p
	}
}

// Requirements are what exceptions have to show before they count. They never
// change; nil = nothing.
type Requirements struct {
	Require map[string]Proof // any one of them, of an exception of the list of this name; 0 = the sender's word
	Ignore  bool             // without proof, an exception of no list in Require lifts nothing
	Clients []netip.Prefix   // whose mail has ClientProof
}

// Knows reports whether a client is in a network that is proof. One that is not valid
// is in none.
func (r *Requirements) Knows(client netip.Addr) bool {
	return slices.ContainsFunc(r.Clients, func(p netip.Prefix) bool { return p.Contains(client) })
}

// standing says how an allow entry stands.
type standing struct {
	needs Proof // any one of them; 0 = none would help, or none is needed
	never bool  // it cannot count, whatever is proved
	plain bool  // it counts on the sender's word
}

// stands reports whether the entry counts where found is proved.
func (s standing) stands(found Proof) bool {
	return !s.never && (s.needs == 0 || s.needs&found != 0)
}

// standing judges the allow entry Matches[i].
//
// An entry for a client's address needs no proof: the connection has come from
// there. One that reaches beyond a domain, a local-part or a pattern, is not proved
// by what vouches for a domain: anybody has a domain.
func (v *Verdict) standing(i int) standing {
	m := &v.Matches[i]
	source := &v.Lists[m.Row].Source
	r := v.Requirements
	needs := Proof(0)
	switch {
	case source.Reach() == index.NoExceptions:
		return standing{never: true}
	case v.AboutClient(i):
		return standing{}
	case m.Action == lists.AllowIfAuth:
		needs = AlignmentProof
	case m.NeedsProof:
		needs = SPFProof | DKIMProof
	case r != nil && r.Require[source.List] != 0:
		needs = r.Require[source.List]
	case r != nil && r.Ignore:
		return standing{never: true}
	default:
		return standing{plain: true}
	}
	if v.beyondDomain(i) {
		needs &^= domainProofs
	}
	return standing{needs: needs, never: needs == 0}
}

// beyondDomain reports whether the entry Matches[i] covers senders of any domain.
func (v *Verdict) beyondDomain(i int) bool {
	m := &v.Matches[i]
	return m.Kind != lists.Domain && (m.Kind != lists.Addr || m.Scope == lists.Local)
}

// objection says in words why the allow entry Matches[i] does not count, "" if it does.
func (v *Verdict) objection(i int) string {
	m := &v.Matches[i]
	list := v.ListName(i)
	s, reach := v.standing(i), v.Lists[m.Row].Source.Reach()
	byList := m.Action != lists.AllowIfAuth && !m.NeedsProof
	switch {
	case reach == index.NoExceptions:
		return `the list has exceptions = "none"`
	case !s.stands(v.Proved()) && byList && (v.Requirements == nil || v.Requirements.Require[list] == 0):
		return `allow without proof does not count: unverified_allow = "ignore"`
	case s.never:
		needs := AlignmentProof
		if byList {
			needs = v.Requirements.Require[list]
		}
		return "allow needs proof: " + needs.String() + ", which is about a domain, and this entry is not"
	case !s.stands(v.Proved()):
		return "allow needs proof: " + s.needs.String()
	case reach == index.OwnExceptions && (v.Kind == Blocked || v.Unlifted):
		return `exceptions = "own": it lifts what list ` + list + " blocks, and nothing else"
	}
	return ""
}

// Proved is the evidence, with what the client's address alone is.
func (v *Verdict) Proved() Proof {
	if v.Requirements != nil && v.Requirements.Knows(v.Client) {
		return v.Evidence.Found | ClientProof
	}
	return v.Evidence.Found
}

// Objection says why the allow entry Matches[i] does not count, or not against the
// entry that decided; "" if it does, and for entries that are none.
func (v Verdict) Objection(i int) string {
	if !v.Matches[i].Action.Allows() {
		return ""
	}
	return v.objection(i)
}

// Reason is that of Matches[i] as answers have it.
func (v *Verdict) Reason(i int) string {
	if why := v.Objection(i); why != "" {
		return why
	}
	return v.Matches[i].Reason
}
