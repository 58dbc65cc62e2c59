package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"blockd/lists"
	"blockd/mail/addr"
	"blockd/policy"
	"blockd/records/history"
)

// DefaultDecisions is how many decisions an answer has unless "limit" says otherwise.
const DefaultDecisions = 100

// DecisionList is the answer of /v1/decisions.
type DecisionList struct {
	Decisions []history.Record `json:"decisions"` // the newest first, never null
	More      bool             `json:"more"`      // there are more than the limit, or there may be
	Next      string           `json:"next,omitempty" doc:"the cursor of what comes after these; absent at the end"`
	Prev      string           `json:"prev,omitempty" doc:"the cursor of what came before these; absent where nothing did"`
	Damaged   int              `json:"damaged"` // lines of the files that had to be left out

	// Lists are where the lists that decided come from, by what serves now; lists of which nothing is known are missing.
	Lists []policy.ListOrigin `json:"lists"`
}

// Origins notes where the lists of the decisions come from.
func (l *DecisionList) Origins(about func(list string) lists.About) {
	seen := map[string]bool{"": true}
	for i := range l.Decisions {
		name := l.Decisions[i].List
		if seen[name] {
			continue
		}
		seen[name] = true
		if o, ok := policy.NewListOrigin(name, about(name)); ok {
			l.Lists = append(l.Lists, o)
		}
	}
}

// NewDecisionList returns the answer for the found decisions.
func NewDecisionList(f history.Found) DecisionList {
	l := DecisionList{Decisions: f.Records, More: f.More, Next: f.Next, Prev: f.Prev, Damaged: f.Damaged, Lists: []policy.ListOrigin{}}
	if l.Decisions == nil {
		l.Decisions = []history.Record{}
	}
	return l
}

// decisionParameters are those of /v1/decisions.
var decisionParameters = [...]string{"q", "sender", "recipient", "client", "list", "ref", "domain", "door", "entry", "verdict", "outcome", "since", "until", "sort", "cursor", "limit"}

// The values of some.
var (
	verdicts = []string{"blocked", "allowed", "clear", "unknown"}
	outcomes = []string{"accept", "refuse", "defer", "quarantine", "tag", "discard", history.Listed, history.Mail}
)

// ParseDecisionQuery reads the parameters of /v1/decisions. Its errors begin with the
// name of one.
func ParseDecisionQuery(v url.Values) (history.Query, error) {
	q := history.Query{Text: v.Get("q"), Sender: canonicalAddress(v.Get("sender")), Recipient: v.Get("recipient"), List: v.Get("list"), Ref: v.Get("ref"),
		Domain: canonicalAddress(v.Get("domain")), Door: v.Get("door"), Entry: v.Get("entry"), Verdict: v.Get("verdict"), Outcome: v.Get("outcome"), Oldest: v.Get("sort") == "oldest", Cursor: v.Get("cursor")}
	for name, values := range v {
		if !slices.Contains(decisionParameters[:], name) {
			return q, fmt.Errorf("%s: no such parameter", name)
		}
		if len(values) > 1 {
			return q, fmt.Errorf("%s: want it once", name)
		}
	}
	if len(q.Text) > maxQueryText {
		return q, fmt.Errorf("q: over %d octets", maxQueryText)
	}
	var err error
	if text := v.Get("client"); text != "" {
		if q.Client, err = parseNetwork(text); err != nil {
			return q, fmt.Errorf("client: want an IP address or a network, have %q", text)
		}
	}
	if q.Since, err = timeOf("since", v.Get("since")); err != nil {
		return q, err
	}
	if q.Until, err = timeOf("until", v.Get("until")); err != nil {
		return q, err
	}
	if q.Limit, err = limitOf(v.Get("limit"), DefaultDecisions, history.MaxFound); err != nil {
		return q, err
	}
	return q, cmp.Or(oneOf("verdict", q.Verdict, append(verdicts, "")...), oneOf("outcome", q.Outcome, append(outcomes, "")...),
		oneOf("sort", v.Get("sort"), "newest", "oldest", ""))
}

// parseNetwork reads an address or a network in the history's form: IPv4 written as IPv6
// is IPv4.
func parseNetwork(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		ip = ip.Unmap().WithZone("")
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if ip := p.Addr(); ip.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(ip.Unmap(), p.Bits()-96)
	}
	return p, err
}

// canonicalAddress is a sender or a domain in the history's form. Other text stays
// unchanged, because the history has a sender that is no address as the client wrote it.
func canonicalAddress(text string) string {
	if a, err := addr.Parse(text); err == nil && a.Domain() != "" {
		return a.String()
	}
	if key, err := addr.DomainKey(text); err == nil {
		return key.Text
	}
	return text
}

// decisions answers with past decisions, the newest first. A search may read all of the
// history, so few run at a time.
func (s *Server) decisions(w http.ResponseWriter, r *http.Request) {
	v, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	q, err := ParseDecisionQuery(v)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	found, err := s.settings.History.Search(r.Context(), q)
	if err != nil {
		s.historyFault(w, r, err)
		return
	}
	answer := NewDecisionList(found)
	answer.Origins(s.checker.About)
	sendTagged(w, r, answer)
}

// The words where the history cannot be searched: in the log, and for who asks.
const (
	historyLost = "history cannot be searched"
	historyGone = "the history cannot be read now"
)

// searchFault is an error of a search of the history as an answer.
func (s *Server) searchFault(err error) error {
	switch {
	case errors.Is(err, history.ErrBusy):
		return fault{http.StatusTooManyRequests, "other searches are under way; try again in a second", 1}
	case errors.Is(err, history.ErrCursor):
		return badf("cursor: %v", err)
	}
	return err
}

func (s *Server) historyFault(w http.ResponseWriter, r *http.Request, err error) {
	operation{status: http.StatusServiceUnavailable, lost: historyLost, because: historyGone}.fail(call{r, w, s}, s.searchFault(err))
}

func describeDecisions(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "decisions", Summary: "Past decisions, the newest first",
		Description: "Those of which all holds that is asked for. A recipient may be missing: some doors hear of none. " +
			"With `next` there is more, or there may be: a search that finds little ends after about a second's work, perhaps with no decision, and `next` goes on.",
		Parameters: append(decisionParams(), limited("cursor", "`next` or `prev` of an answer to the same question", maxQueryText),
			number("limit", "how many decisions at most", 1, history.MaxFound, DefaultDecisions)),
		Responses: d.tagged(DecisionList{})}
	d.problems(op, http.StatusBadRequest, http.StatusServiceUnavailable)
	return op
}

// decisionParams are those by which decisions are chosen.
func decisionParams() []*huma.Param {
	return []*huma.Param{
		limited("q", "a text that sender, recipient, client, HELO, reference, list, entry or reason has in it", maxQueryText),
		parameter("sender", "an address, or a domain for all at it; `<>` is the null sender", ""),
		parameter("recipient", "as sender", ""),
		parameter("domain", "that of the sender, and none below it; `<>` is the null sender", ""),
		parameter("client", "an IP address or a network", ""),
		parameter("list", "the name of the list whose entry decided, or would have", ""),
		parameter("entry", "the entry that decided, or would have, as an answer has it", ""),
		parameter("door", "where it came in, such as smtp or milter", ""),
		parameter("ref", "the reference that stands in a refusal", ""),
		choice("verdict", "what the lists say", verdicts...),
		choice("outcome", "what became of the mail; listed: what a program was told; mail: all but listed", outcomes...),
		moment("since", "made then or later"),
		moment("until", "made before"),
		choice("sort", "newest (first), which it is if it is not said, or oldest", "newest", "oldest"),
	}
}
