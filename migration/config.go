package migration

import (
	"fmt"
	"net/netip"
	"strings"
)

// The doors of an import leave the mail server in charge of port 25: it asks.
const (
	asPolicyService = `# Postfix keeps port 25 and asks blockd. In main.cf, in place of the check_sender_access and
# check_client_access that report.txt names, behind what permits your own users:
#
#   smtpd_sender_restrictions = permit_mynetworks, permit_sasl_authenticated,
#       check_policy_service { inet:127.0.0.1:8893, timeout=10s, default_action=DUNNO }
`
	asMilter = `# Your mail server keeps port 25 and asks blockd as a milter. In Postfix's main.cf:
#
#   smtpd_milters = inet:127.0.0.1:8892
#   milter_default_action = accept
`
)

// Config is the text of a configuration that serves the result: blockd's defaults
// but for what was imported, and for the SMTP filter, which stays shut. folder is where the list files are, relative to it.
func (r *Result) Config(folder string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Imported from %s, %s.\n", r.Program, clean(r.Source))
	if r.Program == "Postfix" {
		b.WriteString(asPolicyService)
	} else {
		b.WriteString(asMilter)
	}
	b.WriteString("#\n# It runs as it is, as the user whose folder this is: its ports are above 1023, on this machine\n" +
		"# alone, and what it writes lies in var/ beside this file. What became of each entry is in\n" +
		"# report.txt. Lists, keys and doors: the reference config.toml.\n")
	r.smtp(&b)
	if r.Program == "Postfix" {
		b.WriteString("\n[milter]\nlisten = \"\"\n\n[postfix]\npolicy_listen = \"127.0.0.1:8893\"\n")
	} else {
		b.WriteString("\n[milter]\nlisten = \"127.0.0.1:8892\"\n\n[postfix]\npolicy_listen = \"\"\n")
	}
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
	b.WriteString("\n[smtp]\nlisten = \"\"\n")
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
	if len(l.Match) > 0 {
		fmt.Fprintf(b, "match = %s\n", array(l.Match))
	}
	if len(l.Require) > 0 {
		fmt.Fprintf(b, "require = %s\n", array(l.Require))
	}
	if l.Excepts {
		b.WriteString("exceptions = \"all\"\n")
	}
	if l.Shadow {
		b.WriteString("mode = \"shadow\"\n")
	}
	switch {
	case l.Tempfail:
		b.WriteString("on_match = \"tempfail\"\n")
	case l.Tag:
		b.WriteString("on_match = \"tag\"\n")
	case l.Hold:
		b.WriteString("on_match = \"quarantine\"\n")
	}
	if l.Says != "" {
		fmt.Fprintf(b, "text = %s\n", quote(strings.ReplaceAll(l.Says, "%", "%%")))
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
