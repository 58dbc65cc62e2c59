package verdict

// Answer is a verdict as `blockd check --json` and HTTP print it. Field names
// and their order are part of blockd's interface.
//
// Their doc tags are in the OpenAPI document of HTTP.
type Answer struct {
	Input      string        `json:"input" doc:"as asked"`
	Sender     string        `json:"sender" doc:"canonical; of a text that is no address, the one that can be read in it; \"\" for the null sender, where there is none, and where none was asked about"`
	Client     string        `json:"client,omitempty" doc:"the client's IP address, if it is known"`
	Domain     string        `json:"domain,omitempty" doc:"canonical: of a question about a domain, or of a sender of which only the domain can be read; \"?\" stands for labels that cannot be"`
	Recipient  string        `json:"recipient,omitempty" doc:"the recipient that the answer is about, as asked"`
	Verdict    Kind          `json:"verdict" enum:"blocked,allowed,clear,unknown" doc:"blocked: an entry that counts blocks, defers or discards; allowed: an allow entry decides; clear: nothing that counts matches; unknown: no sender, or a store cannot be read, so that nobody knows whether it is listed or excepted"`
	Outcome    string        `json:"outcome,omitempty" enum:"accept,refuse,defer,quarantine,tag" doc:"with a recipient: what becomes of the mail; accept also where the verdict is blocked and everybody may write to the recipient"`
	Matches    []AnswerMatch `json:"matches" doc:"all entries that cover what was asked about, the most specific first"`
	Generation string        `json:"generation" doc:"of the index that the answer comes from"`
}

// AnswerMatch is one entry that covers what was asked about, the most specific
// first.
type AnswerMatch struct {
	List   string `json:"list"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	Entry  string `json:"entry" doc:"in canonical form"`
	Kind   string `json:"kind" enum:"addr,domain,ip,cidr,glob,regexp,recipient" doc:"addr: a local-part too; recipient: an address that mail is refused to"`
	Scope  string `json:"scope"`
	Action string `json:"action"`
	Reason string `json:"reason" doc:"the list's own, or why an allow entry does not count"`
	Owner  string `json:"owner,omitempty" doc:"the mailbox or domain whose entry it is, and for whose mail alone it counts: only in answers with a recipient"`
	Mode   string `json:"mode,omitempty" enum:"shadow,paused,percent" doc:"the match does not count: its list is in shadow mode, or paused, or counts for a share of senders to which this one does not belong"`

	Percent float64 `json:"percent,omitempty" doc:"the share of senders that the list counts for; left out if it is all"`
}

// Answer puts v into the form for programs. input is the text that was asked.
func (v Verdict) Answer(input string) Answer {
	a := Answer{Input: input, Sender: v.Sender.String(), Verdict: v.Kind,
		Domain: v.Domain.Text, Matches: make([]AnswerMatch, len(v.Matches)), Generation: v.Generation}
	if v.Client.IsValid() {
		a.Client = v.Client.String()
	}
	if v.Recipient != "" {
		a.Recipient, a.Outcome = v.Recipient, v.Outcome
	}
	for i := range v.Matches {
		m, source := &v.Matches[i], &v.Lists[v.Matches[i].Row].Source
		a.Matches[i] = AnswerMatch{List: source.List, File: source.Path, Line: m.Line, Entry: m.Name(),
			Kind: m.Kind.String(), Scope: m.Scope.String(), Action: m.Action.String(), Reason: v.Reason(i), Owner: m.Owner.Text}
		a.Matches[i].Mode = v.Mode(i)
		if percent, _ := v.Percent(i); percent < 100 {
			a.Matches[i].Percent = percent
		}
	}
	return a
}
