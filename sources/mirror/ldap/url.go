package ldap

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/go-ldap/ldap/v3"
)

// location is what an LDAP URL says (RFC 4516). The name and password to bind with stand before the host, as in other URLs.
type location struct {
	network, address string // as for net.Dial
	host             string // that the certificate is for
	tls, startTLS    bool
	unverified       bool
	authorities      string // a file of PEM; "" = the system's
	bindDN, password string
	base             string
	attributes       []string
	scope            int
	filter           string
}

var scopes = map[string]int{"base": ldap.ScopeBaseObject, "one": ldap.ScopeSingleLevel, "sub": ldap.ScopeWholeSubtree, "": ldap.ScopeWholeSubtree}

func (w *location) scopeName() string { return [...]string{"base", "one", "sub"}[w.scope] }

// security says how the connection is secured.
func (w *location) security() string {
	text := ""
	switch {
	case w.tls:
		text = " with TLS"
	case w.startTLS:
		text = " with StartTLS"
	case w.network == "unix":
		return ""
	default:
		return " without TLS"
	}
	if w.unverified {
		text += ", certificate not verified"
	}
	return text
}

// parseURL reads a URL. It does so by itself, since errors of net/url show the text, which has a password; and of ldapi the host is a path.
func parseURL(text string) (*location, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return nil, errors.New("want an LDAP URL: ldap://HOST/BASE?ATTRIBUTES?SCOPE?FILTER")
	}
	w := &location{tls: strings.EqualFold(scheme, "ldaps")}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	if err := w.server(strings.ToLower(scheme), rest[:end]); err != nil {
		return nil, err
	}
	rest = strings.TrimPrefix(rest[end:], "/")
	if strings.ContainsFunc(rest, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, errors.New("a control character; write it as %XX")
	}
	parts := strings.SplitN(rest, "?", 5)
	for i := range parts {
		if i == 4 { // extensions are cut at commas first
			continue
		}
		var err error
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			return nil, fmt.Errorf("the %s: a %% that is not before two hexadecimal digits", [...]string{"base", "attributes", "scope", "filter"}[i])
		}
	}
	parts = append(parts, "", "", "", "", "")[:5]
	if err := w.search(parts[0], parts[1], parts[2], parts[3]); err != nil {
		return nil, err
	}
	if err := w.extensions(parts[4]); err != nil {
		return nil, err
	}
	if w.password != "" && w.network == "tcp" && !w.tls && !w.startTLS && !isLoopback(w.host) {
		return nil, errors.New("a password over a connection without TLS: want ldaps://, or the extension starttls: …?FILTER?starttls")
	}
	return w, nil
}

// server reads what stands before the base.
func (w *location) server(scheme, authority string) error {
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		name, password, _ := strings.Cut(authority[:at], ":")
		authority = authority[at+1:]
		var errName, errPassword error
		w.bindDN, errName = url.PathUnescape(name)
		w.password, errPassword = url.PathUnescape(password)
		switch {
		case errName != nil || errPassword != nil:
			return errors.New("the name or password to bind with: a % that is not before two hexadecimal digits; write % as %25")
		case w.bindDN == "":
			return errors.New("a password without the name to bind with")
		case w.password == "":
			return errors.New("a name to bind with and no password: servers take that for no name at all")
		}
	}
	port := ""
	switch scheme {
	case "ldapi":
		path, err := url.PathUnescape(authority)
		if err != nil || !strings.HasPrefix(path, "/") {
			return errors.New("ldapi: want the path of a socket as its host: ldapi://%2Frun%2Fslapd%2Fldapi/BASE")
		}
		w.network, w.address = "unix", path
		return nil
	case "ldap":
		port = "389"
	case "ldaps":
		port = "636"
	default:
		return errors.New("want ldap://, ldaps:// or ldapi://")
	}
	w.network, w.host = "tcp", strings.Trim(authority, "[]")
	if host, p, err := net.SplitHostPort(authority); err == nil {
		w.host, port = host, p
	}
	if w.host == "" || strings.ContainsAny(w.host, "[]%@ ") || port == "" || strings.Trim(port, "0123456789") != "" {
		return errors.New("want HOST or HOST:PORT")
	}
	w.address = net.JoinHostPort(w.host, port)
	return nil
}

// search reads what is looked for.
func (w *location) search(base, attributes, scope, filter string) error {
	if _, err := ldap.ParseDN(base); err != nil || base == "" {
		return errors.New("want the base of the search behind the host, such as /ou=blocked,dc=example,dc=com")
	}
	w.base = base
	for name := range strings.SplitSeq(attributes, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if !isAttribute(name) {
			return fmt.Errorf("want attributes such as mail, have %q", name)
		}
		w.attributes = append(w.attributes, name)
	}
	var known bool
	if w.scope, known = scopes[strings.ToLower(scope)]; !known {
		return fmt.Errorf(`want the scope "base", "one" or "sub", have %q`, scope)
	}
	if w.filter = filter; filter == "" {
		w.filter = "(objectClass=*)"
	} else if filter[0] != '(' {
		w.filter = "(" + filter + ")"
	}
	if _, err := ldap.CompileFilter(w.filter); err != nil {
		return fmt.Errorf("the filter %q cannot be read (RFC 4515)", filter)
	}
	return nil
}

// extensions reads the last part: starttls, tls_ca=FILE and tls=skip-verify, with commas between them.
func (w *location) extensions(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimPrefix(part, "!"), "=")
		value, err := url.PathUnescape(value)
		switch {
		case err != nil:
			return errors.New("an extension: a % that is not before two hexadecimal digits")
		case name == "":
		case w.network == "unix":
			return errors.New("ldapi goes without extensions: nothing leaves the machine")
		case name == "starttls" && value == "":
			if w.tls {
				return errors.New("starttls goes with ldap://; ldaps:// begins with TLS")
			}
			w.startTLS = true
		case name == "tls" && value == "skip-verify":
			w.unverified = true
		case name == "tls_ca" && value != "":
			w.authorities = value
		default:
			return fmt.Errorf("unknown extension %q, want starttls, tls_ca=FILE or tls=skip-verify", name)
		}
	}
	if (w.unverified || w.authorities != "") && !w.tls && !w.startTLS {
		return errors.New("tls and tls_ca are about TLS: want ldaps://, or the extension starttls")
	}
	return nil
}

// isLoopback tells a host that is this machine.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}
