package main

import (
	"net/netip"
	"strings"

	"blockd/addr"
	"blockd/internal/term"
	"blockd/policy"
)

// asker turns the texts of check into questions.
type asker struct {
	checker *policy.Checker
	client  netip.Addr // of --client: then each text is a sender; zero without
	to      string     // of --recipient: the same; "" without
}

// add reads a text as people mean it: an IP address is a client, a name with a dot
// and without "@", or with nothing before it, is a domain, and everything else is a
// sender.
func (a asker) add(b *policy.Batch, text string) {
	if a.client.IsValid() || a.to != "" || strings.IndexByte(text, '@') > 0 {
		b.Envelope(a.client, text)
	} else if ip, ok := clientOf(text); ok {
		b.Client(ip)
	} else if name, ok := domainOf(text); ok {
		b.Domain(name)
	} else {
		b.Envelope(netip.Addr{}, text)
	}
}

// clientOf reads an IP address, with or without brackets.
func clientOf(text string) (netip.Addr, bool) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inner, "]")
	}
	ip, err := netip.ParseAddr(text)
	return ip, err == nil
}

// domainOf tells a text that asks for a domain. "root" is a local sender, as mail
// from the machine itself has it; ask for "@root" if that is a domain.
func domainOf(text string) (string, bool) {
	if name, ok := strings.CutPrefix(text, "@"); ok && !strings.Contains(name, "@") {
		return name, true
	}
	return text, !strings.ContainsAny(text, "@<\"!%") && !strings.ContainsFunc(text, addr.WideAt) && strings.Contains(text, ".")
}

// shownSubject is what a verdict is about, in canonical form: the sender, "<>" for
// the null sender, the domain or the client; and the text that was asked where
// that is none of them, or of which only the domain can be read.
func shownSubject(input string, v *policy.Verdict) string {
	switch {
	case v.Unread != "" && (v.Sender.Null() || v.Kind == policy.Unknown):
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
