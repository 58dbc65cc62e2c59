package config

import (
	"cmp"
	"fmt"
	"strings"

	"blockd/mail/addr"
	"blockd/smtpfilter/upstream"
)

// Report is [report]: a letter about what was refused, what may have been refused by mistake, and what waits for a person (docs/report.md).
type Report struct {
	// Who gets it: an address, or several with commas between; "" is nobody.
	To string `toml:"to"`
	// How often. Of a time in which nothing has happened there is no letter.
	Every Duration `toml:"every" want:"1h to 31d"`
	// The address that it is from; "" is blockd@ and the machine's name. The envelope sender is the null sender, so that nothing comes back.
	From string `toml:"from"`
	// The mail server that takes it: "smtp://HOST:PORT", "lmtp://HOST:PORT", "lmtp+unix:/PATH" or "maildir:DIR". "" is
	// smtp.upstream if smtp.listen or smtp.tls_listen is set, and else "smtp://127.0.0.1:25".
	Via string `toml:"via"`
	// TLS with the server of via, whose certificate the system's authorities must have signed. Of smtp.upstream the keys of [smtp] hold.
	ViaTLS string `toml:"via_tls" want:"none|starttls|implicit"`
}

func defaultReport() Report { return Report{Every: Duration(7 * day), ViaTLS: upstream.TLSNone} }

// ReportPath is where it is kept what was reported.
func (c Config) ReportPath() string { return c.Index.Path + ".report" }

// Recipients are the addresses of to.
func (r Report) Recipients() (all []string) {
	for text := range strings.SplitSeq(r.To, ",") {
		if text = strings.TrimSpace(text); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// Sender is the address that a letter is from. hostname is that of this machine.
func (r Report) Sender(hostname string) string { return cmp.Or(r.From, "blockd@"+hostname) }

// mostRecipients of a letter: who has more has a list of them.
const mostRecipients = 20

func (c Config) validateReport(f *Faults) {
	r := c.Report
	for _, text := range r.Recipients() {
		if !wireable(text) {
			f.add("report.to", "want an address such as postmaster@example.org, in ASCII, have %q", text)
		}
	}
	if n := len(r.Recipients()); n > mostRecipients {
		f.add("report.to", "want %d addresses at most, have %d", mostRecipients, n)
	}
	if r.From != "" && !wireable(r.From) {
		f.add("report.from", "want an address such as blockd@example.org, in ASCII, have %q", r.From)
	}
	if r.Via == "" {
		if r.ViaTLS != upstream.TLSNone {
			f.add("report.via_tls", "has no effect without report.via")
		}
		return
	}
	up, err := ParseUpstream(r.Via)
	switch {
	case err != nil:
		f.add("report.via", "%v", err)
	case up.Network == "tcp" && (sameDoor(c.SMTP.Listen, up.Address) || sameDoor(c.SMTP.TLSListen, up.Address)):
		f.add("report.via", "%s is this filter's own door: want the server that takes mail from it", up.Address)
	case r.ViaTLS != upstream.TLSNone && up.Network != "tcp":
		f.add("report.via_tls", "%s is on this machine and speaks no TLS: want \"none\"", r.Via)
	}
}

// wireable reports whether an address can go into RCPT, and into a header, as it is.
func wireable(text string) bool {
	a, err := addr.Parse(text)
	return err == nil && a.Domain() != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("<>,;\"\\", r) })
}

// reportWarnings are about a letter that has nothing to tell.
func (c Config) reportWarnings() []string {
	if c.Report.To == "" || c.History.Folder != None {
		return nil
	}
	return []string{`report.to: the letter tells nothing about mail while history.folder is "none"`}
}

// ReportServer is the way to the server that takes letters. hostname is that of this machine.
func (c Config) ReportServer(hostname string) (up Upstream, set upstream.Settings, err error) {
	if c.Report.Via == "" && c.SMTP.Open() {
		if up, err = ParseUpstream(c.SMTP.Upstream); err == nil {
			set, err = c.SMTP.UpstreamSettings(up, hostname)
			if set.ClientInfo == upstream.ClientInfoXCLIENT {
				set.ClientInfo = upstream.ClientInfoNone // it has no client: the server sees the connection as it is, and so does blockd's milter
			}
		}
		return up, set, err
	}
	if up, err = ParseUpstream(cmp.Or(c.Report.Via, "smtp://127.0.0.1:25")); err != nil {
		return up, set, fmt.Errorf("report.via: %w", err)
	}
	return up, upstream.Settings{Protocol: up.Protocol(), Network: up.Network, Address: up.Address, Hostname: hostname, TLS: c.Report.ViaTLS}, nil
}
