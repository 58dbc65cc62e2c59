package policy

import (
	"time"

	"slices"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/policy/verdict"
)

// Explanation says how a verdict came about, for `explain=1` of HTTP.
type Explanation struct {
	Keys          []verdict.ExplainedKey `json:"keys" doc:"all that were looked up"`
	Decider       int                    `json:"decider" minimum:"-1" doc:"index of the match that decided; -1: none"`
	Shadow        int                    `json:"shadow" minimum:"-1" doc:"index of the match that would have refused, had its list counted; -1: none"`
	Reply         string                 `json:"reply,omitempty" doc:"what SMTP says to a recipient that is not exempt; ID stands for the reference"`
	Correspondent string                 `json:"correspondent,omitempty" format:"date" doc:"the day, in UTC, on which users of this server last wrote to the sender; only for callers that may read who wrote to whom"`
	Error         string                 `json:"error,omitempty" doc:"of an unknown verdict: why"`
	Lists         []ListOrigin           `json:"lists" doc:"where the lists of the matches come from, as far as they or the configuration say it"`

	Decision Decision `json:"-"` // about mail to the verdict's recipient
}

// ListOrigin is where a list comes from.
type ListOrigin struct {
	List       string `json:"list"`
	Title      string `json:"title,omitempty"`
	Homepage   string `json:"homepage,omitempty" doc:"http, https or mailto"`
	Complaints string `json:"complaints,omitempty" doc:"where to complain: http, https or mailto"`
	Licence    string `json:"licence,omitempty"`
}

// NewListOrigin is what is shown of a. ok is false if that is nothing.
func NewListOrigin(list string, a lists.About) (o ListOrigin, ok bool) {
	o = ListOrigin{list, a.Title, a.Homepage, a.Complaints, a.Licence}
	return o, o != ListOrigin{List: list}
}

// About is what o shows.
func (o ListOrigin) About() lists.About {
	return lists.About{Title: o.Title, Homepage: o.Homepage, Complaints: o.Complaints, Licence: o.Licence}
}

// origins are those of the lists of matches, each once.
func (c *checks) origins(v *verdict.Verdict) []ListOrigin {
	all := []ListOrigin{}
	var seen []string
	for i := range v.Matches {
		list := v.ListName(i)
		if slices.Contains(seen, list) {
			continue
		}
		seen = append(seen, list)
		if o, ok := NewListOrigin(list, c.rules[list].Origin(list, v.Lists)); ok {
			all = append(all, o)
		}
	}
	return all
}

// Explain explains v, one of the answers of AskAll. After Reset it does not know what the
// filter and the store have answered.
func (b *Batch) Explain(v *verdict.Verdict) Explanation {
	c := b.checker
	e := Explanation{Keys: []verdict.ExplainedKey{}, Decider: v.Decider, Shadow: v.Shadow, Lists: c.origins(v)}
	if v.Err != nil {
		e.Error = v.Err.Error()
	}
	if last := c.partners.Known.Last(v.Sender); b.Private && !last.IsZero() {
		e.Correspondent = last.Format(time.DateOnly)
	}
	e.Decision = c.decideAsked(*v, b.index, v.Recipient)
	if d := e.Decision; d.Outcome == Defer && v.Internal() {
		e.Reply = unchecked(v, "ID").String()
	} else if v.Kind == verdict.Blocked {
		if o := c.consequence(&questions, v).Outcome; o == Refuse || o == Defer {
			e.Reply = c.words(v, o, v.ListName(v.Decider), "ID").String()
		}
	}
	for _, p := range append(b.probeOwned(v), b.probe(v)...) {
		e.Keys = append(e.Keys, verdict.ExplainKey(p))
	}
	for i, m := range v.Matches {
		e.note(i, m)
	}
	return e
}

// Veil returns v, which e explains, as a caller sees it from whom owners' entries are hidden, and takes their keys out of e.
func (e *Explanation) Veil(v verdict.Verdict, hides verdict.Veil) verdict.Verdict {
	if hides == nil {
		return v
	}
	e.Keys = slices.DeleteFunc(e.Keys, func(k verdict.ExplainedKey) bool {
		owner, _ := addr.ParseOwner(k.Owner)
		return k.Owner != "" && hides(owner)
	})
	v, at := v.Veil(hides)
	if e.Decider >= 0 && at[e.Decider] < 0 {
		e.Reply = "" // it may have the reason of what is hidden
	}
	for i := range e.Keys {
		for k, match := range e.Keys[i].Matches {
			e.Keys[i].Matches[k] = at[match]
		}
	}
	e.Lists = slices.DeleteFunc(e.Lists, func(o ListOrigin) bool { // the list of what is hidden may be known by it
		return !slices.ContainsFunc(v.Matches, func(m index.Match) bool { return v.Lists[m.Row].Source.List == o.List })
	})
	e.Decider, e.Shadow = v.Decider, v.Shadow
	return v
}

// probe returns the keys of v and, if they are to be had, both halves' answers.
func (b *Batch) probe(v *verdict.Verdict) []index.Probe {
	keys := v.Sender.Keys(nil)
	if v.Domain.Text != "" {
		keys = v.Domain.AndParents(keys)
	}
	if b.index != nil {
		if probes, err := b.index.Probe(keys, v.Client); err == nil {
			return probes
		}
	}
	probes := make([]index.Probe, len(keys))
	for i := range keys {
		probes[i].Key = keys[i]
	}
	return probes
}

// probeOwned returns the keys of the owners of the recipient that v is for, if such entries count.
func (b *Batch) probeOwned(v *verdict.Verdict) []index.Probe {
	c := b.checker
	if v.Recipient == "" || b.index == nil || !b.index.Personal() || c.isExempt(v.Recipient) {
		return nil
	}
	q, ok := ownersOf(&c.owners, v.Recipient)
	if !ok {
		return nil
	}
	q.Sender, q.Domain = v.Sender, v.Domain
	probes, err := b.index.ProbeOwned(&q)
	if err != nil {
		return nil
	}
	return probes
}

// note puts the i-th match to its key, or adds that: a pattern has none.
func (e *Explanation) note(i int, m index.Match) {
	name, kind := m.Name(), m.Kind.String()
	for k := range e.Keys {
		if e.Keys[k].Key == name && e.Keys[k].Kind == kind && e.Keys[k].Owner == m.Owner.Text {
			e.Keys[k].Matches = append(e.Keys[k].Matches, i)
			return
		}
	}
	e.Keys = append(e.Keys, verdict.ExplainedKey{Key: name, Kind: kind, Owner: m.Owner.Text, Matches: []int{i}})
}
