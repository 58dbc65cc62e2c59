package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"blockd/addr"
)

// Validate reports every fault of c that can be seen without looking at the
// machine: no file is opened and no name resolved.
func (c Config) Validate() Faults {
	var f Faults
	c.Index.validate(&f)
	c.SMTP.validate(&f)
	c.HTTP.validate(&f)
	f.oneOf("log.format", c.Log.Format, "text", "json")
	f.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	names := map[string]bool{}
	for i, l := range c.Lists {
		l.validate(&f, fmt.Sprintf("list[%d]", i), names)
	}
	if c.SMTP.Listen == "" && c.HTTP.Listen == "" {
		f.add("smtp.listen", "no door is open: smtp.listen and http.listen are both empty")
	}
	return f
}

func (x Index) validate(f *Faults) {
	if x.Path == "" {
		f.add("index.path", "want the path of the index file")
	}
	// Below 10 ms an editor's several writes are several builds; above a minute a
	// change that "is never felt" is one that does not happen.
	f.between("index.quiet", x.Quiet, 10*time.Millisecond, time.Minute)
	f.between("index.poll", x.Poll, time.Second, 24*time.Hour)
	x.validateGate(f)
}

func (s SMTP) validate(f *Faults) {
	f.hostPort("smtp.listen", s.Listen)
	if s.Hostname != "" {
		if _, err := addr.DomainKey(s.Hostname); err != nil {
			f.add("smtp.hostname", "want a domain name, have %v", err)
		}
	}
	up, err := parseUpstream(s.Upstream)
	if err != nil {
		f.add("smtp.upstream", "%v", err)
	} else if up.network == "tcp" && sameDoor(s.Listen, up.address) {
		f.add("smtp.upstream", "%s is this filter's own door (smtp.listen): mail would run in a circle", up.address)
	}
	s.validateClientInfo(f, up)
	f.oneOf("smtp.reject_at", s.RejectAt, "rcpt", "mail")
	f.oneOf("smtp.on_error", s.OnError, "accept", "tempfail")
	for i, local := range s.RecipientsExempt {
		if _, err := addr.LocalKey(local); err != nil {
			f.add(fmt.Sprintf("smtp.recipients_exempt[%d]", i), "want what stands before the @, have %v", err)
		}
	}
	const most = 1 << 20 // a million connections are 16 GiB of idle sessions
	if s.MaxConnections < 1 || s.MaxConnections > most {
		f.add("smtp.max_connections", "want 1 to %d, have %d", most, s.MaxConnections)
	}
	if s.MaxConnectionsPerIP < 1 || s.MaxConnectionsPerIP > most {
		f.add("smtp.max_connections_per_ip", "want 1 to %d, have %d", most, s.MaxConnectionsPerIP)
	}
}

// validateClientInfo has no default to fall back on for a mail server behind:
// it would see every client as this filter's address, and if it trusts that
// address it relays for everybody.
func (s SMTP) validateClientInfo(f *Faults, up upstreamURL) {
	switch {
	case s.ClientInfo != "":
		f.oneOf("smtp.client_info", s.ClientInfo, "none", "xclient", "proxy-v2")
		if up.scheme == "maildir" && s.ClientInfo != "none" {
			f.add("smtp.client_info", "the mailbox of maildir: takes none, have %q", s.ClientInfo)
		}
	case up.scheme == "smtp":
		f.add("smtp.client_info", `must be said for an smtp:// upstream: "xclient", "proxy-v2", `+
			`or "none" if that server trusts this machine with nothing`)
	}
}

func (h HTTP) validate(f *Faults) {
	f.hostPort("http.listen", h.Listen)
	if h.Listen != "" && h.TokenFile == "" && !onLoopback(h.Listen) {
		f.add("http.listen", "%s can be reached from other machines: it needs http.token_file", h.Listen)
	}
}

// listName is what a name may be: it stands in replies, logs and metrics.
var listName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func (l List) validate(f *Faults, key string, names map[string]bool) {
	switch {
	case l.Name == "":
		f.add(key+".name", "is missing; senders read it in the refusal")
	case !listName.MatchString(l.Name):
		f.add(key+".name", "want letters, digits and . _ - (at most 64), have %q", l.Name)
	case names[l.Name]:
		f.add(key+".name", "%q is the name of a list above", l.Name)
	}
	names[l.Name] = true
	if l.Path == "" {
		f.add(key+".path", "is missing; want a file or a glob")
	} else if _, err := filepath.Match(l.Path, ""); err != nil {
		f.add(key+".path", "want a file or a glob, have %q: %v", l.Path, err)
	}
	if err := validFormat(l.Format); err != nil {
		f.add(key+".format", "%v", err)
	}
	f.oneOf(key+".action", l.Action, "block", "allow")
	f.oneOf(key+".mode", l.Mode, "enforce", "shadow")
	if len(l.Reason) > 400 || strings.ContainsFunc(l.Reason, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		f.add(key+".reason", "want one line of at most 400 octets")
	}
	l.validateGate(f, key)
}

func (f *Faults) oneOf(key, have string, words ...string) {
	var want strings.Builder
	for i, w := range words {
		if have == w {
			return
		}
		switch {
		case i > 0 && i == len(words)-1:
			want.WriteString(" or ")
		case i > 0:
			want.WriteString(", ")
		}
		want.WriteString(strconv.Quote(w))
	}
	f.add(key, "want %s, have %q", want.String(), have)
}

func (f *Faults) between(key string, have Duration, least, most time.Duration) {
	if d := time.Duration(have); d < least || d > most {
		f.add(key, "want %s to %s, have %s", Duration(least), Duration(most), have)
	}
}

// hostPort checks what a door listens on; an empty text is a door that is shut.
func (f *Faults) hostPort(key, have string) {
	if have == "" {
		return
	}
	_, port, err := net.SplitHostPort(have)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		f.add(key, `want HOST:PORT such as "127.0.0.1:2525", have %q`, have)
	}
}

// onLoopback reports whether only this machine can reach a listener at hostPort.
func onLoopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil || host == "localhost" {
		return true // what is no address at all is another fault
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// sameDoor reports whether dialling to would reach a listener at listen, as far
// as the texts tell.
func sameDoor(listen, to string) bool {
	ours, port, err := net.SplitHostPort(listen)
	theirs, toPort, err2 := net.SplitHostPort(to)
	if err != nil || err2 != nil || port != toPort || port == "0" {
		return false
	}
	everywhere := ours == "" || ours == "0.0.0.0" || ours == "::"
	return ours == theirs || (everywhere || onLoopback(listen)) && onLoopback(to)
}

// upstreamURL is smtp.upstream, taken apart.
type upstreamURL struct {
	scheme  string // "smtp", "lmtp", "lmtp+unix", "maildir"
	network string // "tcp", "unix"; "" for maildir
	address string // HOST:PORT, or a path
}

var errUpstream = errors.New(`want "smtp://HOST:PORT", "lmtp://HOST:PORT", "lmtp+unix:/PATH" or "maildir:DIR"`)

func parseUpstream(text string) (upstreamURL, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	up := upstreamURL{scheme: scheme, address: rest}
	wrong := fmt.Errorf("%w, have %q", errUpstream, text)
	switch scheme {
	case "maildir":
	case "lmtp+unix":
		up.network = "unix"
	case "smtp", "lmtp":
		up.network = "tcp"
		up.address = strings.TrimPrefix(rest, "//")
		host, port, err := net.SplitHostPort(up.address)
		if err != nil || host == "" || up.address == rest {
			return upstreamURL{}, wrong
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return upstreamURL{}, wrong
		}
	default:
		return upstreamURL{}, wrong
	}
	if up.address == "" {
		return upstreamURL{}, wrong
	}
	return up, nil
}
