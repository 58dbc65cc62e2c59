package resp

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"unsafe"

	"blockd/index"
	"blockd/mail/addr"
	"blockd/policy"
	"blockd/policy/verdict"
)

// set is what a client may ask: a list, its entries, or all lists.
type set struct {
	list string          // "" = all lists
	only map[string]bool // for policy.Question; nil = all lists
	raw  bool            // the entries alone: nothing else is judged
	// required: until one of these lists was read, there is no answer; empty = nothing is waited for.
	required []string
}

// setsOf are the sets by their names.
func setsOf(lists, required []string) map[string]*set {
	sets := map[string]*set{Verdict: {required: required}}
	for _, list := range lists {
		only := map[string]bool{list: true}
		var waits []string
		if slices.Contains(required, list) {
			waits = []string{list}
		}
		sets[list] = &set{list: list, only: only, required: waits}
		sets[Raw+":"+list] = &set{list: list, raw: true, required: waits}
	}
	return sets
}

// unread are the sets that one generation cannot answer for; nil = none.
type unread struct {
	generation string
	sets       map[*set]bool
}

// notRead are the sets that cannot be answered for yet. It is asked for before the lists are: a
// list that was read stays so.
func (s *Server) notRead() map[*set]bool {
	ix := s.settings.Serving()
	now := s.unread.Load()
	if now != nil && now.generation == ix.Generation() {
		return now.sets
	}
	now = &unread{generation: ix.Generation()}
	for _, in := range s.sets {
		if ix.AnyRead(in.required) {
			continue
		}
		if now.sets == nil {
			now.sets = map[*set]bool{}
		}
		now.sets[in] = true
	}
	s.unread.Store(now)
	return now.sets
}

// loading is the error for a set that cannot be answered for yet.
func (in *set) loading() string {
	what := "the list " + shown(in.list) + " was never read"
	if in.list == "" {
		what = "none of the lists was ever read"
	}
	return "LOADING blockd: " + what + ": see blockd lists"
}

// split returns the set of a key of GET and the text after it: LIST:TEXT or raw:LIST:TEXT.
func (s *Server) split(key []byte) (in *set, text []byte) {
	head := bytes.IndexByte(key, ':')
	if head >= 0 && string(key[:head]) == Raw {
		if next := bytes.IndexByte(key[head+1:], ':'); next >= 0 {
			head += 1 + next
		}
	}
	if head < 0 {
		return nil, nil
	}
	return s.sets[string(key[:head])], key[head+1:]
}

// question is what a client asks about one text.
type question struct {
	network netip.Prefix // of a question about a network; else zero
	// covered: the same command asks about an address of that network, which hears what every
	// entry for the network says, and exceptions within it too. rspamd takes any answer for a
	// yes, and asks for an address and all its networks at once.
	covered bool
	in      *set
}

// ask says what a text is: a sender, a domain, an address or a network.
func ask(in *set, text []byte) (q policy.Question, network netip.Prefix) {
	// The octets stay until the question is answered, and the verdict is not kept.
	q.Text = unsafe.String(unsafe.SliceData(text), len(text))
	if !in.raw {
		q.Lists = in.only
	}
	if len(text) == 0 || bytes.IndexByte(text, '@') >= 0 {
		return q, network
	}
	if last := text[len(text)-1]; '0' <= last && last <= '9' || bytes.IndexByte(text, ':') >= 0 {
		if ip, err := netip.ParseAddr(q.Text); err == nil {
			q.About, q.Client = policy.AboutClient, ip.WithZone("").Unmap()
			return q, network
		}
		if p, err := netip.ParsePrefix(q.Text); err == nil && !p.Addr().Is4In6() {
			q.About, q.Client = policy.AboutClient, p.Masked().Addr()
			if !p.IsSingleIP() {
				network = p.Masked()
			}
			return q, network
		}
	}
	if _, err := addr.DomainKey(q.Text); err == nil {
		q.About = policy.AboutDomain
	}
	return q, network
}

// judge says what a client hears. The match is the one of v that says so, of a listed text; it is
// -1 for others.
func (q *question) judge(v *verdict.Verdict) (_ answer, match int) {
	if q.in.raw && v.Unlifted && !slices.Contains(v.UnaskedLists(), q.in.list) {
		return q.entry(v) // what a file has is certain, whatever lifts it
	}
	if v.Internal() {
		return errored, -1
	}
	if v.Kind == verdict.Unknown {
		return unjudged, -1
	}
	if q.covered {
		return unlisted, -1
	}
	if q.in.raw {
		return q.entry(v)
	}
	if q.network.IsValid() {
		v.Matches = holding(v, q.network)
		if v.Decide(q.in.only); v.Internal() {
			return errored, -1
		}
	}
	if v.Kind != verdict.Blocked {
		return unlisted, -1
	}
	return listed, v.Decider
}

// entry finds what was asked about among the entries of a list.
func (q *question) entry(v *verdict.Verdict) (_ answer, match int) {
	key := v.Sender.String()
	if key == "" {
		key = v.Domain.Text
	}
	network := q.network
	if !network.IsValid() && v.Client.IsValid() {
		network, _ = v.Client.Prefix(v.Client.BitLen())
	}
	for i := range v.Matches {
		m := &v.Matches[i]
		if v.ListName(i) != q.in.list {
			continue
		}
		if v.AboutClient(i) && m.Net == network || !v.AboutClient(i) && m.Pattern == "" && m.Key.Text == key {
			return listed, i
		}
	}
	return unlisted, -1
}

// holding are the matches that hold all of a network.
func holding(v *verdict.Verdict, network netip.Prefix) (kept []index.Match) {
	for i := range v.Matches {
		if v.AboutClient(i) && v.Matches[i].Net.Bits() <= network.Bits() {
			kept = append(kept, v.Matches[i])
		}
	}
	return kept
}

// reason is what a list says of a match: its reason, or the entry if it has none.
func reason(v *verdict.Verdict, match int) string {
	if text := strings.TrimSpace(v.Matches[match].Reason); text != "" {
		return text
	}
	return v.Matches[match].Name()
}
