package config

import (
	"encoding"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"blockd/mail/addr"
)

// wants checks every key of a table that has a tag `want`: words of which it is one, as in
// want:"rcpt|mail", or the bounds of a number, as in want:"1m to 31d"; want:"0s or 1m to 3650d"
// takes a value besides. Keys that are not given are not checked.
func (f *Faults) wants(table string, values reflect.Value) {
	for field, value := range values.Fields() {
		want := field.Tag.Get("want")
		if value.Kind() == reflect.Pointer {
			value = value.Elem()
		}
		if want == "" || !value.IsValid() {
			continue
		}
		key := joinKey(table, tagOf(field))
		if value.Kind() == reflect.String {
			f.oneOf(key, value.String(), strings.Split(want, "|")...)
		} else if !within(value, want) {
			f.add(key, "want %s, have %v", want, value.Interface())
		}
	}
}

// within reports whether a number is within the bounds of a tag.
func within(value reflect.Value, bounds string) bool {
	other, between, or := strings.Cut(bounds, " or ")
	if !or {
		between = bounds
	} else if number(value) == number(parsed(value.Type(), other)) {
		return true
	}
	least, most, _ := strings.Cut(between, " to ")
	n := number(value) // TOML has a NaN, which is not within
	return n >= number(parsed(value.Type(), least)) && n <= number(parsed(value.Type(), most))
}

// parsed reads a bound as a value of the key's own type. The tags are ours: a slip in one is
// found by the first test that loads a configuration.
func parsed(as reflect.Type, text string) reflect.Value {
	value := reflect.New(as)
	var err error
	if u, ok := value.Interface().(encoding.TextUnmarshaler); ok {
		err = u.UnmarshalText([]byte(text))
	} else if f, bad := strconv.ParseFloat(text, 64); bad == nil {
		return reflect.ValueOf(f)
	} else {
		err = bad
	}
	if err != nil {
		panic(fmt.Sprintf("want:%q: %v", text, err))
	}
	return value.Elem()
}

func number(value reflect.Value) float64 {
	if value.CanInt() {
		return float64(value.Int())
	}
	return value.Float()
}

// networks checks a list of networks; everybody says why none may be the whole world.
func (f *Faults) networks(key string, texts []string, everybody string) {
	for i, text := range texts {
		f.network(fmt.Sprintf("%s[%d]", key, i), text, everybody)
	}
}

func (f *Faults) network(key, text, everybody string) {
	switch p, err := parseNetwork(text); {
	case err != nil:
		f.add(key, `want a network such as "10.0.0.0/8", have %q`, text)
	case p.Bits() == 0:
		f.add(key, "%s is everybody: %s", text, everybody)
	case p.Addr().Is4In6():
		f.add(key, "want the IPv4 network itself, have %q", text)
	}
}

// Networks reads the texts of a key that Validate has found to be networks.
func Networks(texts []string) (nets []netip.Prefix) {
	for _, text := range texts {
		if p, err := parseNetwork(text); err == nil {
			nets = append(nets, p.Masked())
		}
	}
	return nets
}

// parseNetwork takes a bare address for a network of one.
func parseNetwork(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(text)
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

// OnLoopback reports whether only this machine can reach a listener at hostPort.
func OnLoopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil || host == "localhost" {
		return true // what is no address at all is another fault
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// name checks a domain name that may be left out.
func (f *Faults) name(key, have string) {
	if _, err := addr.DomainKey(have); have != "" && err != nil {
		f.add(key, "want a domain name, have %v", err)
	}
}

// pair checks that a table names both a certificate and its key, or neither.
func (f *Faults) pair(table, cert, key string) {
	switch {
	case cert != "" && key == "":
		f.add(table+".tls_key", "is missing; %s.tls_cert needs it", table)
	case cert == "" && key != "":
		f.add(table+".tls_cert", "is missing; %s.tls_key needs it", table)
	}
}

func (f *Faults) domains(key string, texts []string) {
	for i, text := range texts {
		if _, err := addr.DomainKey(text); err != nil {
			f.add(fmt.Sprintf("%s[%d]", key, i), "want a domain, have %v", err)
		}
	}
}

// UnixPrefix begins the place of a door that is a Unix socket: "unix:/PATH".
const UnixPrefix = "unix:"

// byTCP reports whether a door is open to a network, where allow_from says to whom. Who
// may use a Unix socket is said by its mode and owner.
func byTCP(listen string) bool { return listen != "" && !strings.HasPrefix(listen, UnixPrefix) }

// MaxSocketPath is below the 108 octets of sockaddr_un: a folder may come in front.
const MaxSocketPath = 100

// door checks the place of a door that may be a Unix socket.
func (f *Faults) door(key, have string) {
	path, isUnix := strings.CutPrefix(have, UnixPrefix)
	switch {
	case !isUnix:
		f.hostPort(key, have)
	case !filepath.IsAbs(path) || strings.HasSuffix(path, string(filepath.Separator)):
		f.add(key, `want "unix:/PATH" or HOST:PORT, have %q`, have)
	case len(path) > MaxSocketPath:
		f.add(key, "a socket's path has at most %d octets, this one has %d", MaxSocketPath, len(path))
	}
}
