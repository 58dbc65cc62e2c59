package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"blockd/doors/postfix"
	"blockd/internal/access"
	"blockd/internal/machine"
	"blockd/internal/term"
	"blockd/mail/addr"
	"blockd/policy/verdict"
	"blockd/smtpfilter/upstream"
)

// SettingWarnings are what c allows and its administrator may not mean, a line each.
func (c Config) SettingWarnings() []string {
	var w []string
	warn := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }

	if c.SMTP.RejectAt == "mail" && len(c.SMTP.RecipientsExempt) > 0 {
		warn(`smtp.reject_at = "mail" refuses before a recipient is known: smtp.recipients_exempt has no effect`)
	}
	up, err := ParseUpstream(c.SMTP.Upstream)
	if err != nil {
		return append(w, err.Error())
	}
	if up.Scheme == "smtp" && c.SMTP.ClientInfo == "none" {
		warn("smtp.client_info = \"none\": %s sees every client as this machine; it must trust this machine with nothing", up.Address)
	}
	if host, _, err := net.SplitHostPort(up.Address); c.SMTP.UpstreamTLS != upstream.TLSNone && err == nil && c.SMTP.UpstreamTLSName == "" &&
		len(c.SMTP.UpstreamTLSPin) == 0 && net.ParseIP(host) != nil {
		warn("smtp.upstream_tls: the certificate of %s must name this address; else set smtp.upstream_tls_name or smtp.upstream_tls_pin", host)
	}
	if c.SMTP.AllowOpenUpstream {
		warn("smtp.allow_open_upstream: the open-relay test of the upstream is switched off")
	}
	for _, door := range []struct{ key, address string }{{"smtp.listen", c.SMTP.Listen}, {"smtp.tls_listen", c.SMTP.TLSListen}} {
		if up.Scheme == "maildir" && door.address != "" && !OnLoopback(door.address) {
			warn("%s %s with a maildir: upstream: whoever reaches it can fill %s", door.key, door.address, term.Path(up.Address))
		}
	}
	if _, text := c.Index.Memory.Within(machine.Memory()); text != "" {
		warn("%s", text)
	}
	w = append(w, c.clientWarnings()...)
	w = append(w, c.matchWarnings()...)
	w = append(w, c.authWarnings()...)
	w = append(w, c.milterWarnings()...)
	w = append(w, c.socketmapWarnings()...)
	w = append(w, c.HTTP.warnings()...)
	w = append(w, c.dnsWarnings()...)
	w = append(w, c.receiptWarnings()...)
	w = append(w, c.reportWarnings()...)
	w = append(w, c.sourceWarnings()...)
	w = append(w, c.fleetWarnings()...)
	enforced := 0
	for _, l := range c.Lists {
		if l.Mode == "enforce" && l.Action == "block" {
			enforced++
		}
		if l.Discard {
			warn("list %q: discard = true: where a door can, its discard entries drop messages and nobody is told", l.Name)
		}
		w = append(w, l.gateWarnings()...)
	}
	if enforced == 0 && !c.Fleet.On() {
		warn("no [[list]] blocks: nothing will be refused")
	}
	return w
}

// Warnings are SettingWarnings, and what is wrong with the files of lists.
func (c Config) Warnings() []string {
	w := c.SettingWarnings()
	for _, l := range c.Lists {
		if problem := l.lookAt(); problem != "" && !l.Optional {
			w = append(w, fmt.Sprintf("list %q: %s", l.Name, problem))
		}
	}
	return w
}

// lookAt says what is wrong with the files of l on this machine, "" if nothing is.
func (l List) lookAt() string {
	if l.Asked() {
		return "" // it has no files
	}
	files, err := filepath.Glob(l.files())
	if err != nil {
		return err.Error()
	}
	if len(files) == 0 {
		if closed := l.ClosedTo(access.Self()); closed != "" {
			return closed
		}
	}
	if len(files) == 0 && l.Source != nil {
		return "not read from its source yet; until it is, the other lists filter"
	}
	if len(files) == 0 && l.URL != "" {
		return term.Path(l.Path) + ": not fetched yet; until it is, the other lists filter"
	}
	if len(files) == 0 {
		return term.Path(l.Path) + ": no such file; until there is one, the other lists filter"
	}
	for _, path := range files {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold us
		if err != nil {
			return err.Error()
		}
		info, err := f.Stat()
		f.Close()
		if err != nil {
			return err.Error()
		}
		if !info.Mode().IsRegular() {
			return term.Path(path) + ": not a regular file"
		}
	}
	return ""
}

// ClosedTo says what of the files of l the user u may not read, "" if nothing is closed. What
// is not there is not closed.
func (l List) ClosedTo(u access.User) string {
	folder, err := listFolder(l.Path)
	if err != nil {
		return ""
	}
	folderWants, fileWants := access.Search, access.Read
	if strings.ContainsAny(l.Path, `*?[`) {
		folderWants |= access.Read // names are looked for
	}
	if l.URL != "" {
		folderWants |= access.Write // the copy is replaced there
	}
	var denied *access.Denied
	if err := u.Check(folder, folderWants); errors.As(err, &denied) {
		return denied.Error()
	}
	files, err := filepath.Glob(l.Path)
	if err != nil {
		return ""
	}
	for _, path := range files {
		if err := u.Check(path, fileWants); errors.As(err, &denied) {
			return denied.Error()
		}
	}
	return ""
}

// listFolder is the deepest folder of a path, which may be a glob, that is named in full.
func listFolder(path string) (string, error) {
	for strings.ContainsAny(filepath.Dir(path), `*?[`) {
		path = filepath.Dir(path)
	}
	return filepath.Abs(filepath.Dir(path))
}

// warnings are what h allows and its administrator may not mean.
func (h HTTP) warnings() (w []string) {
	if h.Listen != "" && !OnLoopback(h.Listen) && h.TLSCert == "" {
		w = append(w, fmt.Sprintf("http.listen %s without http.tls_cert: tokens cross the network as they are", h.Listen))
	}
	return w
}

// SampleReplies shows what refused clients read, where the configuration has a part in
// the words: of each list with a text or contact of its own, and of the first without.
func (c Config) SampleReplies() (lines []string) {
	sender, err := addr.Parse("someone@sender.example")
	if err != nil {
		return nil
	}
	settings, usual := c.Policy(), false
	for _, l := range c.Lists {
		own := l.Text != "" || l.Contact != ""
		if !own && (usual || c.Refusal.Contact+c.Refusal.Text == "") || l.Action == "allow" || l.Mode == "shadow" {
			continue
		}
		if reply := settings.Sample(l.Name, sender); reply != "" {
			lines = append(lines, fmt.Sprintf("list %q says: %s", l.Name, reply))
			usual = usual || !own
		}
	}
	return lines
}

// clientWarnings are about lists of client addresses that will never meet one.
func (c Config) clientWarnings() (w []string) {
	for _, l := range c.Lists {
		format, _, _ := strings.Cut(l.Format, ":")
		if format != "drop" && l.Format != "rbldnsd:ip4set" {
			continue
		}
		if c.SMTP.Listen != "" && OnLoopback(c.SMTP.Listen) && len(c.SMTP.ProxyFrom) == 0 {
			w = append(w, fmt.Sprintf("list %q judges clients, and smtp.listen %s is reached by this machine alone: "+
				"without smtp.proxy_from nobody else is seen there", l.Name, c.SMTP.Listen))
		}
	}
	return w
}

// matchWarnings are about lists for headers, which the SMTP door and the milter see.
func (c Config) matchWarnings() (w []string) {
	for _, l := range c.Lists {
		switch s := l.sources(); {
		case !s.Header():
		case c.SMTP.Open() || c.Milter.Open():
			if c.Postfix.Open() {
				w = append(w, fmt.Sprintf("list %q: header fields are not matched by [postfix], which hears of envelopes alone", l.Name))
			}
		case !s.Envelope():
			w = append(w, fmt.Sprintf("list %q matches header fields alone, and no door that is open sees a message: it will never match", l.Name))
		default:
			w = append(w, fmt.Sprintf("list %q matches header fields, and no door that is open sees a message", l.Name))
		}
	}
	return w
}

// milterWarnings are about what is set in [smtp] or [[list]] and the milter does
// not do.
func (c Config) milterWarnings() (w []string) {
	if !c.Milter.Open() || c.SMTP.Open() {
		return nil // else it acts at the SMTP door
	}
	if c.SMTP.Helo != "off" {
		w = append(w, "smtp.helo acts at the SMTP door alone, which is shut: behind the milter it is the mail server's part")
	}
	if c.SMTP.PTR != "off" {
		w = append(w, "smtp.ptr acts at the SMTP door alone, which is shut: behind the milter it is the mail server's part")
	}
	for _, l := range c.Lists {
		if l.Tarpit > 0 {
			w = append(w, fmt.Sprintf("list %q: tarpit acts at the SMTP door alone, which is shut: a milter that waits holds a process of the mail server", l.Name))
		}
	}
	return w
}

// authWarnings are about allow entries that anybody can use, and those that nobody
// can.
func (c Config) authWarnings() (w []string) {
	warn := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }
	for _, l := range c.Lists {
		switch {
		case l.Action == "allow" && l.Require == nil && c.Auth.UnverifiedAllow == "ignore":
			warn(`list %q overrides nothing but by entries for clients: it has no require, and auth.unverified_allow is "ignore"`, l.Name)
		case l.Action == "allow" && l.Require == nil:
			warn("list %q allows on the sender's word alone: anybody can write these addresses in MAIL FROM; see require", l.Name)
		}
		seesMessages := c.SMTP.Open() || c.Milter.Open()
		switch asked := l.Proofs() &^ verdict.ClientProof; {
		case asked != 0 && !seesMessages && c.Postfix.PolicyListen == "":
			warn("list %q requires %s, and no door that is open looks for that", l.Name, asked)
		case asked&verdict.DKIMProof != 0 && !seesMessages:
			warn(`list %q requires "dkim", and no door that is open sees a message`, l.Name)
		}
	}
	return w
}

// socketmapWarnings are about a list that cannot be asked alone, because the name of
// its map means all lists.
func (c Config) socketmapWarnings() []string {
	named := func(l List) bool { return l.Name == postfix.WholeDecision }
	if c.Postfix.SocketmapListen == "" || len(c.Lists) < 2 || !slices.ContainsFunc(c.Lists, named) {
		return nil
	}
	return []string{fmt.Sprintf("list %[1]q: the socketmap %[1]q is all lists together, and no map is this list alone: give it another name to have one", postfix.WholeDecision)}
}

// gateWarnings are the overrides of l that stay in force, each by its name.
func (l List) gateWarnings() (w []string) {
	may := "block"
	switch {
	case l.Action == "allow":
		may = "free"
	case l.Exceptions == "all":
		may = "block or free"
	}
	if len(l.Force) > 0 {
		w = append(w, fmt.Sprintf("list %q may %s all of %s: force", l.Name, may, strings.Join(l.Force, ", ")))
	}
	if l.AllowPublicSuffix != nil && *l.AllowPublicSuffix {
		w = append(w, fmt.Sprintf("list %q may %s whole top-level domains: allow_public_suffix", l.Name, may))
	}
	if l.Action == "allow" {
		return w
	}
	for _, b := range []struct {
		key   string
		value *float64
		off   float64
	}{{"max_bad_ratio", l.MaxBadRatio, 1}, {"max_shrink", l.MaxShrink, 0}, {"max_grow", l.MaxGrow, mostGrow},
		{"max_recent_blocked", l.MaxRecentBlocked, 1}, {"max_freed", l.MaxFreed, 1}} {
		if b.value != nil && *b.value == b.off {
			w = append(w, fmt.Sprintf("list %q is not judged by %s: it is %s", l.Name, b.key, shownFloat(b.off)))
		}
	}
	return w
}

func shownFloat(f float64) string {
	if f == math.Trunc(f) {
		return term.Grouped(uint64(f))
	}
	return fmt.Sprint(f)
}
