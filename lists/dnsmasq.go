package lists

import "strings"

// dnsmasqLine reads one line of dnsmasq.conf: the options that answer for a name
// and all below it, address=/NAME/…/SINK, server=/NAME/…/ and local=/NAME/…/.
func dnsmasqLine(r *reading, text string) {
	text = cutHash(text)
	option, value, _ := strings.Cut(text, "=")
	option, value = strings.ToLower(trimRight(option)), trimLeft(value)
	names, slashed := strings.CutPrefix(value, "/")
	end := strings.LastIndexByte(names, '/')
	switch {
	case !isOption(option):
		r.fail(Syntax, "", "no option of dnsmasq")
	case option != "address" && option != "server" && option != "local":
		r.skip(Directive, "")
	case !slashed && option == "address":
		r.fail(TooBroad, text, "this answers for every name")
	case !slashed:
		r.skip(Directive, "a server for every name")
	case !r.utf8(text):
	case end < 0:
		r.fail(Syntax, value, `names stand between two "/"`)
	case r.dnsmasqSink(option, names[end+1:]):
		r.dnsmasqNames(names[:end])
	}
}

// dnsmasqSink tells whether what stands behind the names leads nowhere. With
// server, "#" means the usual servers, and an address of this machine is that of
// a server on it: both answer.
func (r *reading) dnsmasqSink(option, to string) bool {
	switch {
	case to == "", to == "0.0.0.0", to == "::":
		return true
	case option != "address":
		return r.fail(NotASink, to, "these names are asked of a server")
	case to == "#", isSink(to):
		return true
	case isIP(to):
		return r.fail(NotASink, to, "this address is a real host")
	}
	return r.fail(Syntax, to, "no IP address behind the names")
}

// dnsmasqNames queues the names between the slashes. dnsmasq reads over leading
// dots, and takes "#" for every name and nothing for every one without a dot.
func (r *reading) dnsmasqNames(names string) {
	for name := range strings.SplitSeq(names, "/") {
		below, sub := strings.CutPrefix(name, "*.")
		plain := strings.TrimLeft(name, ".")
		ok := false
		switch {
		case plain == "", plain == "#", isWild(name):
			ok = r.fail(TooBroad, name, "this covers every name")
		case sub:
			ok = r.name(below, Sub)
		case plain != name:
			ok = r.name(plain, Tree)
		default:
			ok = r.name(name, r.bare)
		}
		if !ok {
			return
		}
	}
}

// isOption tells the name of an option or directive, as configuration files have
// them, from what stands on a line by mistake.
func isOption(text string) bool {
	for i := 0; i < len(text); i++ {
		switch c := text[i] | 0x20; {
		case 'a' <= c && c <= 'z':
		case i > 0 && (text[i] == '-' || text[i] == '_' || '0' <= text[i] && text[i] <= '9'):
		default:
			return false
		}
	}
	return text != ""
}

// dnsmasqMark tells an option that only dnsmasq has.
func dnsmasqMark(text string) bool {
	return hasFold(text, "address=/") || hasFold(text, "server=/") || hasFold(text, "local=/")
}
