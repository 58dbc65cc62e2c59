package printout

import (
	"net/netip"
	"strings"

	"blockd/internal/term"
	"blockd/mail/addr"
	"blockd/policy"
	"blockd/policy/verdict"
)

// question reads a text as people mean it: an IP address is a client, a name with a dot
// and without "@", or with nothing before it, is a domain, and everything else is a
// sender.
func (a *Asker) question(text string) policy.Question {
	if !a.Client.IsValid() && a.Recipient == "" && strings.IndexByte(text, '@') <= 0 {
		if ip, ok := ClientOf(text); ok {
			return policy.Question{About: policy.AboutClient, Client: ip}
		}
		if name, ok := DomainOf(text); ok {
			return policy.Question{About: policy.AboutDomain, Text: name}
		}
	}
	return policy.Question{Text: text, Client: a.Client, Recipient: a.Recipient}
}

// ClientOf reads an IP address, with or without brackets.
func ClientOf(text string) (netip.Addr, bool) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inner, "]")
	}
	ip, err := netip.ParseAddr(text)
	return ip, err == nil
}

// DomainOf tells a text that asks for a domain. "root" is a local sender, as mail
// from the machine itself has it; ask for "@root" if that is a domain.
func DomainOf(text string) (string, bool) {
	if name, ok := strings.CutPrefix(text, "@"); ok && !strings.Contains(name, "@") {
		return name, true
	}
	return text, !strings.ContainsAny(text, "@<\"!%") && !strings.ContainsFunc(text, addr.WideAt) && strings.Contains(text, ".")
}

// shownSubject is what a verdict is about, in canonical form: the sender, "<>" for
// the null sender, the domain or the client; and the text that was asked where
// that is none of them, or of which only the domain can be read.
func shownSubject(input string, v *verdict.Verdict) string {
	switch {
	case v.Unread != "" && (v.Sender.Null() || v.Kind == verdict.Unknown):
		return shownInput(input)
	case !v.Sender.Null():
		return term.Visible(v.Sender.String())
	case v.Domain.Text != "":
		return term.Visible(v.Domain.Text)
	case input == "", input == "<>":
		return "<>"
	case v.Client.IsValid() && v.Err == nil:
		return v.Client.String()
	}
	return shownInput(input)
}

// shownInput is a text that was asked, as much of it as a line may have.
func shownInput(input string) string { return term.Visible(input[:min(len(input), 320)]) }
