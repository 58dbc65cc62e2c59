package migration

import (
	"fmt"
	"net/netip"
	"strings"
)

// Config is the text of a configuration that serves the result: blockd's defaults
// but for what was imported. folder is where the list files are, relative to it.
func (r *Result) Config(folder string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Imported from %s, %s.\n", r.Program, clean(r.Source))
	b.WriteString("# It runs as it is: mail comes in on 127.0.0.1:2525 and ends in the Maildir var/mail.\n" +
		"# For your mail server behind it set listen, upstream and client_info; see the\n" +
		"# reference config.toml. What became of each entry is in report.txt.\n")
	r.smtp(&b)
	for _, l := range r.Lists {
		l.table(&b, folder)
	}
	for _, p := range r.Policies {
		b.WriteString("\n[[policy]]\nrecipients = [")
		for i, text := range p.Recipients {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString("\n  " + quote(text))
		}
		fmt.Fprintf(&b, ",\n]\nlists = %s\n", array(p.Lists))
	}
	return []byte(b.String())
}

func (r *Result) smtp(b *strings.Builder) {
	if r.Hostname == "" && len(r.Trusted) == 0 && r.SkipAuthenticated == nil {
		return
	}
	b.WriteString("\n[smtp]\n")
	if r.Hostname != "" {
		fmt.Fprintf(b, "hostname = %s\n", quote(r.Hostname))
	}
	if len(r.Trusted) > 0 {
		b.WriteString("# permit_mynetworks: no list is asked about these clients.\n")
		var nets []string
		for _, n := range r.Trusted {
			nets = append(nets, shortNet(n))
		}
		fmt.Fprintf(b, "trusted = %s\n", array(nets))
	}
	if r.SkipAuthenticated != nil {
		fmt.Fprintf(b, "skip_authenticated = %t\n", *r.SkipAuthenticated)
	}
}

func shortNet(n netip.Prefix) string {
	if n.IsSingleIP() {
		return n.Addr().String()
	}
	return n.String()
}

// table writes a [[list]].
func (l *List) table(b *strings.Builder, folder string) {
	fmt.Fprintf(b, "\n# From %s.\n[[list]]\nname = %s\npath = %s\nformat = %s\n", clean(l.Comes), quote(l.Name), quote(folder+"/"+l.File), quote(l.Format))
	if l.URL != "" {
		fmt.Fprintf(b, "url = %s\noptional = true\n", quote(l.URL))
	}
	if l.Allow {
		b.WriteString("action = \"allow\"\n")
	}
	if l.Format == "postfix" {
		b.WriteString("subdomains = true\n")
	}
	for _, key := range []struct {
		name string
		set  bool
	}{{"patterns", l.Patterns}, {"allow_public_suffix", l.AllowPublicSuffix}, {"discard", l.Discard}} {
		if key.set {
			fmt.Fprintf(b, "%s = true\n", key.name)
		}
	}
	if l.Shadow {
		b.WriteString("mode = \"shadow\"\n")
	}
	switch {
	case l.Tempfail:
		b.WriteString("on_match = \"tempfail\"\n")
	case l.Tag:
		b.WriteString("on_match = \"tag\"\n")
	}
	if l.Reason != "" {
		fmt.Fprintf(b, "reason = %s\n", quote(l.Reason))
	}
	if len(l.Force) > 0 {
		fmt.Fprintf(b, "force = %s\n", array(l.Force))
	}
}

func array(texts []string) string {
	var quotes []string
	for _, t := range texts {
		quotes = append(quotes, quote(t))
	}
	return "[" + strings.Join(quotes, ", ") + "]"
}

// quote writes a TOML basic string.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range strings.ToValidUTF8(text, "?") {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
