package printout

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"blockd/internal/term"
	"blockd/mail/msgauth"
	"blockd/policy"
	"blockd/policy/verdict"
)

// Mail is a saved message, and what is known of how it came.
type Mail struct {
	File   string     // its name, as people know it
	Sender *string    // of MAIL FROM; nil = what stands in the message's Return-Path
	Client netip.Addr // zero = unknown
	Helo   string
	Text   []byte // with CRLF at the ends of lines, as the signatures have it
}

// mailFacts are what there is to know of a saved message.
type mailFacts struct {
	Mail
	sender  string // as asked, or of the Return-Path
	message *msgauth.Message
	spf     msgauth.SPF
	domain  string // of MAIL FROM
}

// ErrNoSender is wrapped where neither the question nor the message tells a sender.
var ErrNoSender = errors.New("it has no Return-Path: say who the SENDER is, <> for the null sender")

// AskMail appends the explanation of the decision about one saved message. Unlike a front door
// it looks for all proofs, whether or not they could change anything. Answers and errors are as those of Ask, and
// besides there is ErrNoSender.
func (a *Asker) AskMail(ctx context.Context, dst []byte, resolver *msgauth.Resolver, mail Mail) (answer []byte, blocked bool, err error) {
	facts := mailFacts{Mail: mail}
	if mail.Sender != nil {
		facts.sender = *mail.Sender
	} else if facts.sender, err = returnPath(mail.Text); err != nil {
		return dst, false, fmt.Errorf("%s: %w", term.Path(mail.File), err)
	}
	a.batch.Uncounted = true
	v := a.Checker.AskAll(&a.batch, []policy.Question{{Text: facts.sender, Client: mail.Client}})[0]
	facts.domain = v.Sender.Domain()
	m, err := resolver.Message(ctx, mail.Client, bytes.NewReader(mail.Text))
	if err != nil {
		return dst, false, err
	}
	facts.message, facts.spf = &m, resolver.SPF(ctx, mail.Client, mail.Helo, v.Sender.String())
	if err := ctx.Err(); err != nil {
		return dst, false, err
	}
	v = v.Prove(verdict.EvidenceOf(v.Sender, facts.spf, &m))
	if v.Short != 0 { // a front door says 451
		v.Kind, v.Err = verdict.Unknown, fmt.Errorf("%s: %w", v.Short, verdict.ErrShort)
	}
	b := bytes.NewBuffer(dst)
	if a.Form.JSON {
		term.JSON(b, facts.answer(v, explained(facts.sender, v, &a.batch, nil)))
	} else {
		p := a.Form.Paint
		explanation{w: b, paint: p, facts: facts.rows(p)}.print(facts.sender, v, &a.batch)
	}
	if v.Internal() {
		err = v.Err
	}
	return b.Bytes(), v.Kind == verdict.Blocked, err
}

// returnPath is MAIL FROM as the last mail server has noted it on top.
func returnPath(text []byte) (string, error) {
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		if name == "" {
			break
		}
		if strings.EqualFold(name, "Return-Path") {
			return strings.TrimSpace(value), nil
		}
	}
	return "", ErrNoSender
}

// rows are the facts for people.
func (f mailFacts) rows(p term.Paint) (rows [][2]string) {
	row := func(name, format string, args ...any) {
		rows = append(rows, [2]string{name, fmt.Sprintf(format, args...)})
	}
	m := f.message
	row("message", "%s, %s, author at %s", term.Path(f.File), term.Octets(int64(len(f.Text))), cmp.Or(term.Visible(m.Author), "no domain: "+m.Fault))
	if f.Helo != "" {
		row("helo", "%s", term.Visible(f.Helo))
	}
	for i, s := range m.Signatures {
		text := fmt.Sprintf("d=%s s=%s a=%s: %s", term.Visible(s.Domain), term.Visible(s.Selector), term.Visible(s.Algorithm), stateIn(p, s.Proof))
		switch {
		case s.Reason != "":
			text += ", " + term.Visible(s.Reason)
		case !msgauth.Aligned(s.Domain, m.Author):
			text += ", but not of the author's organisation"
		default:
			text += ", of the author's organisation"
		}
		row(fmt.Sprint("signature ", i+1), "%s", text)
	}
	switch {
	case m.TooMany:
		row("signatures", "more than these, which are not looked at")
	case len(m.Signatures) == 0:
		row("signatures", "none")
	}
	text := stateIn(p, f.spf.Proof)
	if f.spf.Result != "" {
		text = fmt.Sprintf("%s for %s: %s", f.spf.Result, term.Visible(f.spf.Domain), text)
	}
	if f.spf.Reason != "" {
		text += ", " + term.Visible(f.spf.Reason)
	}
	row("SPF", "%s", text)
	row("author", "%s", f.authorAndSender(p))
	return rows
}

// authorAndSender says whether those belong together whom people see and lists are
// asked about.
func (f mailFacts) authorAndSender(p term.Paint) string {
	switch {
	case f.message.Author == "":
		return p.Yellow("unknown") + ": no signature and no alignment counts"
	case msgauth.Aligned(f.message.Author, f.domain):
		return p.Green("aligned") + " with the sender's domain: " + msgauth.Organisation(f.domain)
	case f.domain == "":
		return p.Yellow("not aligned") + ": the sender has no domain"
	}
	return p.Yellow("not aligned") + " with the sender's domain: no signature counts for " + term.Visible(f.domain)
}

func stateIn(p term.Paint, s msgauth.State) string {
	switch s {
	case msgauth.Pass:
		return p.Green("proved")
	case msgauth.Unknown, msgauth.Short:
		return p.Yellow("unknown")
	}
	return p.Yellow("not proved")
}

// MailAnswer is an answer with what there is to know of the message, as AskMail writes it in JSON.
type MailAnswer struct {
	jsonAnswer
	Message mailJSON `json:"message"`
}

type mailJSON struct {
	File       string          `json:"file"`
	Octets     int             `json:"octets"`
	Helo       string          `json:"helo"`
	Author     string          `json:"author"` // the domain of the one From; "" = there is none to go by
	Fault      string          `json:"fault,omitempty"`
	SPF        spfJSON         `json:"spf"`
	Signatures []signatureJSON `json:"signatures"` // never null
	TooMany    bool            `json:"too_many"`   // more than these, at most 20
	Proofs     []string        `json:"proofs"`     // the kinds that were found, never null
	Unknown    []string        `json:"unknown"`    // those that DNS did not tell, never null
}

type spfJSON struct {
	Proof  string `json:"proof"` // "pass", "no" or "unknown", as of signatures
	Result string `json:"result"`
	Domain string `json:"domain"`
	Reason string `json:"reason"`
}

type signatureJSON struct {
	Proof     string `json:"proof"`
	Domain    string `json:"domain"`
	Selector  string `json:"selector"`
	Algorithm string `json:"algorithm"`
	Aligned   bool   `json:"aligned"` // with the author
	Reason    string `json:"reason"`
}

// answer puts the facts beside the answer about the sender.
func (f mailFacts) answer(v verdict.Verdict, a jsonAnswer) MailAnswer {
	m := f.message
	j := mailJSON{
		File: f.File, Octets: len(f.Text), Helo: f.Helo, Author: m.Author, Fault: m.Fault, TooMany: m.TooMany,
		SPF:        spfJSON{f.spf.Proof.String(), f.spf.Result, f.spf.Domain, f.spf.Reason},
		Signatures: []signatureJSON{}, Proofs: wordsOf(v.Evidence.Found), Unknown: wordsOf(v.Evidence.Unknown),
	}
	for _, s := range m.Signatures {
		j.Signatures = append(j.Signatures, signatureJSON{s.Proof.String(), s.Domain, s.Selector, s.Algorithm, msgauth.Aligned(s.Domain, m.Author), s.Reason})
	}
	return MailAnswer{a, j}
}

func wordsOf(p verdict.Proof) []string {
	if p == 0 {
		return []string{}
	}
	return strings.Split(p.String(), ", ")
}
