package migration

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
)

// The doors of an import leave the mail server in charge of port 25: it asks.
const (
	asPolicyService = `# Postfix keeps port 25 and asks blockd. In main.cf, in place of the check_sender_access and
# check_client_access that report.txt names, behind what permits your own users:
#
#   smtpd_sender_restrictions = permit_mynetworks, permit_sasl_authenticated,
#       check_policy_service { inet:127.0.0.1:8893, timeout=10s, default_action=DUNNO }
#
# As the service of a package: policy_listen = "unix:/var/spool/postfix/blockd/policy", and unix:blockd/policy there.
`
	asMilter = `# Your mail server keeps port 25 and asks blockd as a milter. In Postfix's main.cf:
#
#   smtpd_milters = inet:127.0.0.1:8892
#   milter_default_action = accept
#
# As the service of a package: listen = "unix:/var/spool/postfix/blockd/milter", and unix:/blockd/milter there.
`
	asItIs = `#
# It runs as it is, as the user whose folder this is: its ports are above 1023, on this machine
# alone, and what it writes lies in var/ beside this file. What became of each entry is in
# report.txt. Lists, keys and doors: the reference config.toml.
`
)

// Config is the text of a configuration that serves the result: blockd's defaults but for what was imported, and for
// the SMTP filter, which stays shut. folder is where the list files are, relative to it.
func (r *Result) Config(folder string) []byte {
	door, milter, policy := asMilter, "127.0.0.1:8892", ""
	if r.Program == "Postfix" {
		door, milter, policy = asPolicyService, "", "127.0.0.1:8893"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Imported from %s, %s.\n%s%s", r.Program, original.Clean(r.Source), door, asItIs)
	r.smtp(&b)
	fmt.Fprintf(&b, "\n[milter]\nlisten = %q\n\n[postfix]\npolicy_listen = %q\n", milter, policy)
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
	fmt.Fprintf(b, "\n# From %s.\n[[list]]\n", original.Clean(l.Comes))
	set := func(is bool, key, value string) {
		if is {
			fmt.Fprintf(b, "%s = %s\n", key, value)
		}
	}
	set(true, "name", quote(l.Name))
	set(true, "path", quote(folder+"/"+l.File))
	set(true, "format", quote(l.Format))
	set(l.PerRecipient, "per_recipient", "true")
	set(l.URL != "", "url", quote(l.URL))
	set(l.URL != "", "optional", "true")
	set(l.Allow, "action", `"allow"`)
	set(l.Format == "postfix", "subdomains", "true")
	set(l.Patterns, "patterns", "true")
	set(l.AllowPublicSuffix, "allow_public_suffix", "true")
	set(l.Discard, "discard", "true")
	set(len(l.Match) > 0, "match", array(l.Match))
	set(len(l.Require) > 0, "require", array(l.Require))
	set(l.Excepts, "exceptions", `"all"`)
	set(l.Shadow, "mode", `"shadow"`)
	set(l.Tempfail, "on_match", `"tempfail"`)
	set(l.Tag && !l.Tempfail, "on_match", `"tag"`)
	set(l.Hold && !l.Tempfail && !l.Tag, "on_match", `"quarantine"`)
	set(l.Says != "", "text", quote(strings.ReplaceAll(l.Says, "%", "%%")))
	set(len(l.Force) > 0, "force", array(l.Force))
}

func array(texts []string) string {
	var quotes []string
	for _, t := range texts {
		quotes = append(quotes, quote(t))
	}
	return "[" + strings.Join(quotes, ", ") + "]"
}

// quote writes a TOML basic string, which is a string of JSON but for DEL.
func quote(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // of a string into memory
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007F`)
}
