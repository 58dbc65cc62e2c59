// Package printout reads questions as people type them, and writes the answers for people and scripts. The daemon and
// `blockd check` at an index file have it in common, so that both say the same of the same lists.
package printout

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"

	"blockd/index"
	"blockd/internal/term"
	"blockd/policy"
	"blockd/policy/verdict"
)

// MaxText bounds a text that is asked, in octets. The longest legal sender has 254. Of a longer text who asks keeps no
// more than this, which is too much for a sender still.
const MaxText = 16 << 10

// Form is how answers are written. The zero Form is a line of five columns each, with tabs between them.
type Form struct {
	JSON    bool       // an object a line
	Explain bool       // how the answer comes about; without JSON for people
	Paint   term.Paint // of explanations for people
}

// Asker asks what people type. It is for one goroutine. Questions are not counted: they are nobody's mail.
type Asker struct {
	Checker   *policy.Checker
	Client    netip.Addr // that the mail comes from: then each text is a sender; zero = unknown
	Recipient string     // that the mail goes to: the same; "" = any
	Form      Form
	Private   bool         // the answers are for somebody who may know whom users write to
	Hides     verdict.Veil // entries of recipients' owners, which those for whom the answers are may not see

	questions []policy.Question
	batch     policy.Batch
}

// Ask appends the answers to texts, up to the first that the lists cannot give: err says why then. blocked reports
// whether one of them tells of a blocked sender whose mail the recipient would not get all the same.
func (a *Asker) Ask(dst []byte, texts []string) (answers []byte, blocked bool, err error) {
	a.questions = a.questions[:0]
	for _, text := range texts {
		a.questions = append(a.questions, a.question(text))
	}
	a.batch.Uncounted, a.batch.Private = true, a.Private
	verdicts := a.Checker.AskAll(&a.batch, a.questions)
	for i := range verdicts {
		v := &verdicts[i]
		dst = a.print(dst, texts[i], v)
		blocked = blocked || v.Kind == verdict.Blocked && !exempts(v)
		if v.Internal() {
			return dst, blocked, v.Err
		}
	}
	return dst, blocked, nil
}

// print appends one answer. A Buffer takes everything.
func (a *Asker) print(dst []byte, input string, v *verdict.Verdict) []byte {
	switch {
	case a.Form.JSON && a.Form.Explain:
		b := bytes.NewBuffer(dst)
		term.JSON(b, explained(input, *v, &a.batch, a.Hides))
		return b.Bytes()
	case a.Form.Explain:
		b := bytes.NewBuffer(dst)
		explanation{w: b, paint: a.Form.Paint, hides: a.Hides}.print(input, *v, &a.batch)
		return b.Bytes()
	}
	if a.Hides.Hides(v) {
		veiled, _ := v.Veil(a.Hides)
		v = &veiled
	}
	if a.Form.JSON {
		return append(v.AppendJSON(dst, input), '\n')
	}
	return printPlain(dst, input, v)
}

// deciding returns the match to show for a verdict: the one that decided, or
// else the one that would have, had its list counted; mode then says why it does not.
func deciding(v *verdict.Verdict) (m *index.Match, mode string, ok bool) {
	switch {
	case v.Decider >= 0:
		return &v.Matches[v.Decider], "", true
	case v.Shadow >= 0:
		return &v.Matches[v.Shadow], v.Mode(v.Shadow), true
	}
	return nil, "", false
}

// exempts reports whether v blocks mail that its recipient has all the same.
func exempts(v *verdict.Verdict) bool {
	return v.Recipient != "" && v.Kind == verdict.Blocked && v.Outcome == policy.Accept.String()
}

// printPlain prints the five columns. Nothing in them has a tab or a line end.
func printPlain(dst []byte, input string, v *verdict.Verdict) []byte {
	dst = append(append(dst, shownSubject(input, v)...), '\t')
	dst = append(append(dst, v.Kind...), '\t')
	entry, reason := "", ""
	if m, mode, ok := deciding(v); ok {
		dst = append(append(dst, v.Lists[m.Row].Source.List...), ':')
		dst = strconv.AppendInt(dst, int64(m.Line), 10)
		entry, reason = m.Name(), m.Reason
		if mode != "" {
			reason = strings.TrimSpace(mode + " " + reason)
		}
	}
	switch {
	case v.Kind == verdict.Unknown:
		reason = v.Err.Error()
	case exempts(v):
		reason = "everybody may write to " + v.Recipient
	}
	dst = append(append(dst, '\t'), term.Visible(entry)...)
	dst = append(append(dst, '\t'), term.Visible(reason)...)
	return append(dst, '\n')
}
