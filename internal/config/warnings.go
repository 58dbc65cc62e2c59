package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"blockd/access"
	"blockd/internal/term"
	"blockd/machine"
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
	if enforced == 0 {
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
	files, err := filepath.Glob(l.Path)
	if err != nil {
		return err.Error()
	}
	if len(files) == 0 {
		if closed := l.ClosedTo(access.Self()); closed != "" {
			return closed
		}
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
