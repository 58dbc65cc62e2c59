package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/addr"
	"blockd/history"
)

// DefaultDecisions is how many decisions an answer has unless "limit" says otherwise.
const DefaultDecisions = 100

// DecisionList is the answer of /v1/decisions.
type DecisionList struct {
	Decisions []history.Record `json:"decisions"` // the newest first, never null
	More      bool             `json:"more"`      // there are more than the limit
	Damaged   int              `json:"damaged"`   // lines of the files that had to be left out
}

// NewDecisionList returns the answer for the found decisions.
func NewDecisionList(f history.Found) DecisionList {
	l := DecisionList{Decisions: f.Records, More: f.More, Damaged: f.Damaged}
	if l.Decisions == nil {
		l.Decisions = []history.Record{}
	}
	return l
}

// decisionParameters are those of /v1/decisions.
var decisionParameters = [...]string{"sender", "recipient", "client", "list", "ref", "verdict", "outcome", "since", "limit"}

// ParseDecisionQuery reads the parameters of /v1/decisions. Its errors begin with the
// name of one.
func ParseDecisionQuery(v url.Values) (history.Query, error) {
	q := history.Query{Sender: canonicalAddress(v.Get("sender")), Recipient: v.Get("recipient"), List: v.Get("list"), Ref: v.Get("ref"),
		Verdict: v.Get("verdict"), Outcome: v.Get("outcome"), Limit: DefaultDecisions}
	for name, values := range v {
		if !slices.Contains(decisionParameters[:], name) {
			return q, fmt.Errorf("%s: no such parameter", name)
		}
		if len(values) > 1 {
			return q, fmt.Errorf("%s: want it once", name)
		}
	}
	var err error
	if text := v.Get("client"); text != "" {
		if q.Client, err = parseNetwork(text); err != nil {
			return q, fmt.Errorf("client: want an IP address or a network, have %q", text)
		}
	}
	if text := v.Get("since"); text != "" {
		if q.Since, err = time.Parse(time.RFC3339, text); err != nil {
			return q, fmt.Errorf("since: want a time such as 2027-01-31T12:00:00Z, have %q", text)
		}
	}
	if text := v.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > history.MaxFound {
			return q, fmt.Errorf("limit: want 1 to %d, have %q", history.MaxFound, text)
		}
	}
	if verdicts := []string{"", "blocked", "allowed", "clear", "unknown"}; !slices.Contains(verdicts, q.Verdict) {
		return q, fmt.Errorf("verdict: want blocked, allowed, clear or unknown, have %q", q.Verdict)
	}
	if outcomes := []string{"", "accept", "refuse", "defer", "quarantine", "tag", "discard", history.Listed, history.Mail}; !slices.Contains(outcomes, q.Outcome) {
		return q, fmt.Errorf("outcome: want accept, refuse, defer, quarantine, tag, discard, listed or mail, have %q", q.Outcome)
	}
	return q, nil
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
	switch {
	case errors.Is(err, history.ErrBusy):
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusTooManyRequests, "other searches are under way; try again in a second")
	case err != nil:
		s.log.Error("history cannot be searched", "error", err)
		fail(w, http.StatusServiceUnavailable, "the history cannot be read now")
	default:
		send(w, http.StatusOK, typeJSON, NewDecisionList(found))
	}
}

func describeDecisions(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "decisions", Summary: "Past decisions, the newest first",
		Description: "Those of which all holds that is asked for. A recipient may be missing: some doors hear of none.",
		Parameters: []*huma.Param{
			parameter("sender", "an address, or a domain for all at it; `<>` is the null sender", ""),
			parameter("recipient", "as sender", ""),
			parameter("client", "an IP address or a network", ""),
			parameter("list", "the name of the list whose entry decided, or would have", ""),
			parameter("ref", "the reference that stands in a refusal", ""),
			parameter("verdict", "blocked, allowed, clear or unknown", ""),
			parameter("outcome", "accept, refuse, defer, quarantine, tag, discard or listed (what a program was told); mail: all but listed", ""),
			parameter("since", "a time by RFC 3339", ""),
			parameter("limit", fmt.Sprintf("1 to %d; %d if it is not said", history.MaxFound, DefaultDecisions), ""),
		},
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, DecisionList{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusServiceUnavailable)
	return op
}
