package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"blockd/internal/config"
	"blockd/internal/daemon"
	"blockd/internal/term"
	"blockd/msgauth"
	"blockd/policy"
	"blockd/verdict"
)

// mailQuestion is what check --message asks about.
type mailQuestion struct {
	file   string
	client netip.Addr // zero = unknown
	helo   string
}

// mailFacts are what there is to know of a saved message.
type mailFacts struct {
	mailQuestion
	size    int
	sender  string // as asked, or of the Return-Path
	message *msgauth.Message
	spf     msgauth.SPF
	domain  string // of MAIL FROM
}

// checkMessage explains the decision about one saved message. Unlike a front door
// it looks for all proofs, whether or not they could change anything.
func checkMessage(cmd *cobra.Command, path, file string, q mailQuestion, args []string, asJSON bool) error {
	ix, checker, auth, err := openToCheck(cmd, path, file)
	if err != nil {
		return err
	}
	resolver, err := daemon.NewResolver(auth, nil)
	if err != nil {
		return err
	}
	text, err := readMessage(q.file, int64(auth.MaxMessage))
	if err != nil {
		return err
	}
	facts := mailFacts{mailQuestion: q, size: len(text)}
	if len(args) == 1 {
		facts.sender = args[0]
	} else if facts.sender, err = returnPath(text); err != nil {
		return fmt.Errorf("%s: %w", term.Path(q.file), err)
	}
	var answers policy.Batch
	v := checker.AskAll(&answers, []policy.Question{{Text: facts.sender, Client: q.client}})[0]
	facts.domain = v.Sender.Domain()
	m, err := resolver.Message(cmd.Context(), q.client, bytes.NewReader(text))
	if err != nil {
		return err
	}
	facts.message, facts.spf = &m, resolver.SPF(cmd.Context(), q.client, q.helo, v.Sender.String())
	if err := cmd.Context().Err(); err != nil {
		return err
	}
	v = v.Prove(verdict.EvidenceOf(v.Sender, facts.spf, &m))
	if asJSON {
		err = term.JSON(cmd.OutOrStdout(), facts.answer(v, explained(facts.sender, v, &answers)))
	} else {
		p := term.NewPaint(cmd.OutOrStdout())
		err = explanation{w: cmd.OutOrStdout(), paint: p, ix: ix, facts: facts.rows(p)}.print(facts.sender, v, &answers)
	}
	switch {
	case err != nil:
		return err
	case v.Internal():
		return v.Err
	case v.Kind == verdict.Blocked:
		return nil
	}
	return noneBlocked
}

// readMessage reads a saved message with the line ends that it had under way: files
// on Unix have LF alone.
func readMessage(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s: over auth.max_message, %s: its signatures would prove nothing", term.Path(path), config.Octets(most))
	}
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")), nil
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
	return "", fmt.Errorf("it has no Return-Path: say who the SENDER is, <> for the null sender")
}

// rows are the facts for people.
func (f mailFacts) rows(p term.Paint) (rows [][2]string) {
	row := func(name, format string, args ...any) {
		rows = append(rows, [2]string{name, fmt.Sprintf(format, args...)})
	}
	m := f.message
	row("message", "%s, %s, author at %s", term.Path(f.file), term.Octets(int64(f.size)), cmp.Or(term.Visible(m.Author), "no domain: "+m.Fault))
	if f.helo != "" {
		row("helo", "%s", term.Visible(f.helo))
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
	case msgauth.Unknown:
		return p.Yellow("unknown")
	}
	return p.Yellow("not proved")
}

// mailAnswer is a jsonAnswer with the facts.
type mailAnswer struct {
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
	TooMany    bool            `json:"too_many"`   // more than these five
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
func (f mailFacts) answer(v verdict.Verdict, a jsonAnswer) mailAnswer {
	m := f.message
	j := mailJSON{
		File: f.file, Octets: f.size, Helo: f.helo, Author: m.Author, Fault: m.Fault, TooMany: m.TooMany,
		SPF:        spfJSON{f.spf.Proof.String(), f.spf.Result, f.spf.Domain, f.spf.Reason},
		Signatures: []signatureJSON{}, Proofs: wordsOf(v.Evidence.Found), Unknown: wordsOf(v.Evidence.Unknown),
	}
	for _, s := range m.Signatures {
		j.Signatures = append(j.Signatures, signatureJSON{s.Proof.String(), s.Domain, s.Selector, s.Algorithm, msgauth.Aligned(s.Domain, m.Author), s.Reason})
	}
	return mailAnswer{a, j}
}

func wordsOf(p verdict.Proof) []string {
	if p == 0 {
		return []string{}
	}
	return strings.Split(p.String(), ", ")
}
