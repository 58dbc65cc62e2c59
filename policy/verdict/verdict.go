// Package verdict says what the lists say about one sender, client or domain. A verdict is
// made of the entries that match, of the table of their lists, of what is proved about the
// sender, and of the rules for exceptions. It asks no other program and counts nothing: package policy
// looks the entries up, and decides what becomes of the mail.
//
// The rules are those of docs/lists.md, section 4: an exception that counts and reaches all
// lists beats everything, between blocks the most specific one decides, and a list in shadow
// mode is reported and never counts.
package verdict

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/mail/digest"
)

// Kind is the verdict in one word, as `blockd check` and HTTP print it.
type Kind string

// The verdicts.
const (
	Blocked Kind = "blocked" // an entry that counts blocks, defers or discards
	Allowed Kind = "allowed" // an allow entry decides
	Clear   Kind = "clear"   // nothing that counts matches
	Unknown Kind = "unknown" // no sender, or the store cannot be read
)

// Verdict is the decision about one envelope, client or domain, by one
// generation. It holds copies only and keeps no generation in memory.
type Verdict struct {
	Kind       Kind
	Sender     addr.Addr        // canonical; zero for <>, for what is no sender, and where none was asked about
	Unread     string           // the text that is no sender, or of which the domain alone can be read; else ""
	Client     netip.Addr       // zero if it is not known
	Domain     addr.Key         // of a question about a domain, and of a sender of which only that can be read; else zero
	Source     Source           // where Sender stood
	Matches    []index.Match    // all of them, the most specific first
	Lists      []index.ListInfo // the table that Match.Row points into
	Decider    int              // index into Matches of the entry that decided; -1 none
	Shadow     int              // index into Matches of the entry that would have refused, had its list counted; -1 none. Beside a Decider only where that is an exception which does not reach the list
	Generation string
	Seen       Seen // set by the front door, for the history

	// Recipient is whom an answer is about; "" = all.
	Recipient string
	Outcome   string // what becomes of mail to Recipient, in a word
	owned     int    // of Matches, from the first on: entries of the recipient's owners
	excused   int    // place in Matches, from 1, of the entry that would block if its list counted for the recipient; 0 = none

	// Of allow entries that need proof (docs/auth.md).
	Evidence     Evidence      // what was found so far
	Wants        Proof         // of a blocked sender: those that were not looked for and could change the decision
	Unsure       Proof         // of a blocked sender: those that could change the decision, and are not known
	Short        Proof         // of Unsure: those that are not known because of us, for which nobody may be refused
	Unverified   bool          // allowed on the sender's word against an entry that blocks
	Requirements *Requirements // of allow entries; nil = none

	// Excusable: with SPF or DKIM proof no list refuses the sender, since users of this server write to it. Entries that
	// people have added one by one count in any case. Pardoned: so it is.
	Excusable bool
	Pardoned  bool

	// Paused are the lists whose blocks do not count for a while, and whose exceptions do (package pause); nil =
	// none. It is not to be changed.
	Paused map[string]bool

	// NoOverride are the lists whose blocks stand above what a recipient's owner allows; nil = none do. It is not to be changed.
	NoOverride map[string]bool

	// Shares are of lists that count for a share of senders alone. For the rest a list is as if it were paused. nil = none.
	Shares *Shares
	places places

	// Of lists that are asked in their stores (package ask).
	Unasked  []Unasked // those that could not be asked; nil = none
	Unlifted bool      // Unknown, since an exception of such a list could lift what Matches[Decider] blocks
	PutOff   bool      // nothing blocks, and such a list wants mail to be put off

	// Err says why v is Unknown. *addr.Error: no sender or no domain; digest.ErrText: no
	// digest; else the store. It stands beside another verdict only where the text is no sender and
	// an entry for what can be read of it, or for the client, decided.
	Err error
}

// New returns the verdict as long as nothing is known.
func New(err error) Verdict { return Verdict{Kind: Unknown, Decider: -1, Shadow: -1, Err: err} }

// Seen is what a front door knows of an envelope beyond what it asked about. No outcome goes
// by it.
type Seen struct {
	Helo          string
	Sender        string // as the client wrote it; lists may not have been asked about it
	UTF8          bool   // the client has said SMTPUTF8, and so can read more than ASCII
	Authenticated bool   // lists were asked about the client alone, who has logged in
	Hearsay       bool   // any user of this machine may be the door's peer
}

// Decide sets Kind, Decider and Shadow from Matches. Their order is the most
// specific first and the first list between equals. Lists that are not in only have
// no part in it; nil means all.
func (v *Verdict) Decide(only map[string]bool) {
	v.Kind, v.Decider, v.Shadow = Clear, -1, -1
	v.Wants, v.Unsure, v.Short, v.Unverified = 0, 0, 0, false
	v.Unlifted, v.PutOff, v.Pardoned = false, false, false
	v.place()
	odd := v.Err != nil && !errors.Is(v.Err, ErrUnasked)
	if len(v.Matches) == 0 {
		if odd {
			v.Kind = Unknown // no entry for what could be judged
		}
		v.doubt(only)
		return
	}
	found := v.Proved()
	v.Kind, v.Decider = v.Judge(only, found)
	v.pardon(only, found)
	switch v.Kind {
	case Blocked:
		v.open(only, found)
	case Allowed:
		v.Unverified = v.unverified(only, found)
	}
	if !v.Frees() && v.Kind != Blocked {
		v.Shadow = v.shadow(only, found)
	}
	if v.Kind == Clear && odd {
		v.Kind = Unknown
	}
	v.doubt(only)
}

// Judge is the decision where found is proved: an exception that counts and reaches
// all lists goes before every block. Else the first block decides that no exception
// of its own list lifts; where none is left, such an exception does.
//
// What the recipient's owners say goes before all that, the mailbox before the domain: what one of them allows is
// allowed, but for lists that nobody may override, and then what he blocks is blocked.
func (v *Verdict) Judge(only map[string]bool, found Proof) (Kind, int) {
	for i := 0; i < v.owned; {
		owner, end := v.Matches[i].Owner, i
		for end < v.owned && v.Matches[end].Owner == owner {
			end++
		}
		for k := i; k < end; k++ {
			if !v.excepts(k, only, found) {
				continue
			}
			if v.NoOverride != nil {
				if kind, decider := v.judgeAnyones(only, found, v.NoOverride); kind == Blocked {
					return kind, decider
				}
			}
			return Allowed, k
		}
		for k := i; k < end; k++ {
			if v.refuses(k, only) {
				return Blocked, k
			}
		}
		i = end
	}
	return v.judgeAnyones(only, found, nil)
}

// judgeAnyones is Judge by the entries of everybody. Blocks of lists that are not among
// blocking have no part in it; nil = all have.
func (v *Verdict) judgeAnyones(only map[string]bool, found Proof, blocking map[string]bool) (Kind, int) {
	var lifted []string // lists whose own exceptions count
	for i := v.owned; i < len(v.Matches); i++ {
		if !v.excepts(i, only, found) {
			continue
		}
		if v.ReachesAll(i) {
			return Allowed, i
		}
		lifted = v.addList(lifted, i)
	}
	for i := v.owned; i < len(v.Matches); i++ {
		if v.refuses(i, only) && (blocking == nil || blocking[v.ListName(i)]) && !slices.Contains(lifted, v.ListName(i)) && !v.pardons(i, found) {
			return Blocked, i
		}
	}
	if lifted == nil {
		return Clear, -1
	}
	blocks, first := v.blocking(only), -1
	for i := v.owned; i < len(v.Matches); i++ {
		if !v.excepts(i, only, found) {
			continue
		}
		if slices.Contains(blocks, v.ListName(i)) {
			return Allowed, i
		}
		if first < 0 {
			first = i
		}
	}
	return Allowed, first
}

// open says of a blocked sender which proofs could change the decision.
func (v *Verdict) open(only map[string]bool, found Proof) {
	needs := v.missing(only, found)
	wants := needs &^ v.Evidence.Tried
	if v.Source == EnvelopeSource {
		wants &^= ClientProof // it is with Client, or never
	}
	if v.Unread != "" && v.Sender.Null() { // SPF and DKIM would speak of another name
		wants &= AuthProof | ClientProof
	}
	v.Unsure = v.changing(needs&v.Evidence.Unknown, only, found)
	v.Short = v.changing(needs&v.Evidence.Short, only, found)
	v.Wants = v.changing(wants, only, found)
}

// missing are the proofs that exceptions need which could lift a block and do not count.
func (v *Verdict) missing(only map[string]bool, found Proof) (needs Proof) {
	if v.Excusable && found&pardoning == 0 {
		needs = pardoning
	}
	var blocking []string
	for i := range v.Matches {
		if !v.Matches[i].Action.Allows() || !v.inForce(i, only) {
			continue
		}
		all := v.ReachesAll(i)
		if !all && blocking == nil { // of a blocked sender there is one at least
			blocking = v.blocking(only)
		}
		if s := v.standing(i); !s.stands(found) && (all || slices.Contains(blocking, v.ListName(i))) {
			needs |= s.needs
		}
	}
	return needs
}

// changing returns more, if those proofs beside the found ones change the decision, and else
// none. More of them lift more, so none of them could if all together would not.
func (v *Verdict) changing(more Proof, only map[string]bool, found Proof) Proof {
	if more == 0 {
		return 0
	}
	if _, decider := v.Judge(only, found|more); decider == v.Decider {
		return 0
	}
	return more
}

// unverified reports whether a block is lifted on the sender's word: of an allowed
// sender.
func (v *Verdict) unverified(only map[string]bool, found Proof) bool {
	if v.ReachesAll(v.Decider) {
		return v.standing(v.Decider).plain && v.blocks(only)
	}
	blocking := v.blocking(only)
	for i := range v.Matches {
		if v.excepts(i, only, found) && v.standing(i).plain && slices.Contains(blocking, v.ListName(i)) {
			return true
		}
	}
	return false
}

// shadow finds the entry that would have refused a sender whom nothing that
// counts refuses, and whom no exception frees from all lists, or -1. Each list in
// shadow mode, or at rest, is judged alone, as its operator will when turning it on: its own allow
// entries excuse its blocks, and those of another shadow list do not.
func (v *Verdict) shadow(only map[string]bool, found Proof) int {
	for i := range v.Matches {
		if v.counts(i, only) && v.Mode(i) != "" && !v.Matches[i].Action.Allows() && !v.allowedBy(v.ListName(i), found) {
			return i
		}
	}
	return -1
}

func (v *Verdict) counts(i int, only map[string]bool) bool {
	return only == nil || only[v.ListName(i)]
}

// inForce reports whether Matches[i] is of a list that acts.
func (v *Verdict) inForce(i int, only map[string]bool) bool {
	return v.mode(i) != index.Shadow && v.counts(i, only)
}

// refuses reports whether Matches[i] would block without exceptions.
func (v *Verdict) refuses(i int, only map[string]bool) bool {
	return !v.Matches[i].Action.Allows() && v.inForce(i, only) && v.rests(v.ListName(i), v.AboutClient(i)) == ""
}

// rests says why the blocks of a list do not count for the sender, or for the client, and its exceptions do: a Mode; "" where
// they count.
func (v *Verdict) rests(list string, client bool) string {
	switch {
	case v.Paused != nil && v.Paused[list]:
		return PausedMode
	case v.outside(list, client):
		return PercentMode
	}
	return ""
}

// excepts reports whether Matches[i] is an exception that counts.
func (v *Verdict) excepts(i int, only map[string]bool, found Proof) bool {
	return v.Matches[i].Action.Allows() && v.inForce(i, only) && v.standing(i).stands(found)
}

// blocking are the lists that have a block which acts. A sender may match thousands of
// entries, of few lists.
func (v *Verdict) blocking(only map[string]bool) (names []string) {
	for i := range v.Matches {
		if v.refuses(i, only) {
			names = v.addList(names, i)
		}
	}
	return names
}

// addList adds the list of Matches[i] to names, once.
func (v *Verdict) addList(names []string, i int) []string {
	if name := v.ListName(i); !slices.Contains(names, name) {
		names = append(names, name)
	}
	return names
}

func (v *Verdict) allowedBy(list string, found Proof) bool {
	for i := range v.Matches {
		if v.ListName(i) == list && v.Matches[i].Action.Allows() && v.standing(i).stands(found) {
			return true
		}
	}
	return false
}

// blocks reports whether an entry that counts would block without exceptions.
func (v *Verdict) blocks(only map[string]bool) bool {
	for i := range v.Matches {
		if v.refuses(i, only) {
			return true
		}
	}
	return false
}

// Overruled reports whether an exception goes before the blocks of a list.
func (v *Verdict) Overruled(list string) bool {
	if v.Frees() {
		return true
	}
	found := v.Proved()
	for i := range v.Matches {
		if v.ListName(i) == list && v.excepts(i, nil, found) {
			return true
		}
	}
	return false
}

// ReachesAll reports whether the exception Matches[i] goes before the blocks of every
// list, and not of its own alone.
func (v *Verdict) ReachesAll(i int) bool {
	return i < v.owned || v.Lists[v.Matches[i].Row].Source.Reach() == index.AllExceptions
}

// Frees reports whether an exception that reaches all lists decides: nothing else
// about the transaction, such as its header, can then have it refused.
//
// What a recipient's owner allows frees the message too, unless there are lists that he may not override.
func (v *Verdict) Frees() bool {
	return v.Kind == Allowed && v.ReachesAll(v.Decider) && (v.Decider >= v.owned || v.NoOverride == nil)
}

// Told is the match that logs and the history name: the one that a list in shadow mode
// would have refused by, else the one that decided, else the one that the recipient's
// policy excuses; -1: none.
func (v *Verdict) Told() int {
	switch {
	case v.Shadow >= 0:
		return v.Shadow
	case v.Decider >= 0:
		return v.Decider
	}
	return v.Excused()
}

// Excused is the place in Matches of the entry that would block if its list counted for
// the recipient, where nothing else is to be said; -1: none.
func (v *Verdict) Excused() int {
	if v.Decider >= 0 || v.Shadow >= 0 {
		return -1
	}
	return v.excused - 1
}

// Prove returns v as it is with evidence: decided anew by the same entries. Evidence is of
// the sender, so it holds for every recipient.
func (v Verdict) Prove(e Evidence) Verdict {
	v.Evidence = e
	v.Decide(nil)
	return v
}

// For returns v as it is for a recipient for whom the lists only count.
func (v Verdict) For(only map[string]bool) Verdict {
	if v.Kind == Blocked || v.Unlifted {
		v.excused = v.Decider + 1
	}
	v.Decide(only)
	return v
}

// Alone returns v as it would be if there were one list alone. A list that has no
// match makes it Clear, and so does one in shadow mode.
func (v Verdict) Alone(list string) Verdict {
	if len(v.Matches)+len(v.Unasked) > 0 {
		v.Decide(map[string]bool{list: true})
	}
	return v
}

// Sole reports whether one list alone has an entry for what was asked, or none has.
func (v *Verdict) Sole() bool {
	return !slices.ContainsFunc(v.Matches, func(m index.Match) bool {
		return v.Lists[m.Row].Source.List != v.ListName(0)
	})
}

// ListName is the name of the list that Matches[i] stands in.
func (v Verdict) ListName(i int) string { return v.Lists[v.Matches[i].Row].Source.List }

func (v *Verdict) mode(i int) index.Mode { return v.Lists[v.Matches[i].Row].Source.Mode }

// Mode says why Matches[i] does not count: "shadow", by its list's mode, "paused", or "percent"; "" where that is not so.
func (v *Verdict) Mode(i int) string {
	switch {
	case v.mode(i) == index.Shadow:
		return index.Shadow.String()
	case !v.Matches[i].Action.Allows():
		return v.rests(v.ListName(i), v.AboutClient(i))
	}
	return ""
}

// PausedMode is the Mode of a block whose list is paused.
const PausedMode = "paused"

// AboutClient reports whether Matches[i] is an entry for client addresses.
func (v *Verdict) AboutClient(i int) bool {
	return v.Matches[i].Kind == lists.IP || v.Matches[i].Kind == lists.CIDR
}

// Internal reports whether v is Unknown for a fault of ours: an unreadable
// store or a defect, and not a text that is no sender.
func (v Verdict) Internal() bool {
	return v.Unlifted || v.PutOff || v.Kind == Unknown && !errors.As(v.Err, new(*addr.Error)) && !errors.Is(v.Err, digest.ErrText)
}

// AppendLog adds the fields that a decision's log line has of its verdict: the entry that
// decided with its list, file and line, or what went wrong.
func (v *Verdict) AppendLog(fields []slog.Attr) []slog.Attr {
	fields = append(fields, slog.String("verdict", string(v.Kind)))
	if i := v.Told(); i >= 0 {
		m, source := &v.Matches[i], &v.Lists[v.Matches[i].Row].Source
		fields = append(fields,
			slog.String("list", source.List), slog.String("file", source.Path), slog.Int("line", m.Line),
			slog.String("entry", m.Name()), slog.String("scope", m.Scope.String()),
			slog.String("action", m.Action.String()))
		if owner := v.Owner(); owner != "" {
			fields = append(fields, slog.String("owner", owner))
		}
		if m.Reason != "" {
			fields = append(fields, slog.String("reason", m.Reason))
		}
		if v.Shadow >= 0 {
			fields = append(fields, slog.String("mode", v.Mode(i)))
		}
	}
	if v.Pardoned {
		fields = append(fields, slog.Bool("correspondent", true), slog.String("proof", v.Evidence.Found.String()))
	} else if v.Unverified {
		fields = append(fields, slog.String("proof", "none: believed on the sender's word"))
	} else if v.Kind == Allowed && v.Evidence.Found != 0 {
		fields = append(fields, slog.String("proof", v.Evidence.Found.String()))
	}
	if v.Unsure != 0 {
		fields = append(fields, slog.String("not_told", v.Unsure.String()))
	}
	if v.Short != 0 {
		fields = append(fields, slog.String("shortage", v.Short.String()))
	}
	if names := v.UnaskedLists(); names != nil {
		fields = append(fields, slog.String("unasked", strings.Join(names, " ")))
	}
	if v.Err != nil {
		fields = append(fields, slog.String("error", v.Err.Error()))
	}
	return append(fields, slog.String("generation", v.Generation))
}
