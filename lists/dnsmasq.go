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
	case option == "host-record" || option == "cname":
		r.dnsmasqRecord(value)
	case option != "address" && option != "server" && option != "local":
		r.skip(Directive, "")
	case !slashed && option == "address":
		r.fail(TooBroad, text, "this answers for every name")
	case !slashed:
		r.skip(Directive, "a server for every name")
	case !r.utf8(text):
	case end < 0:
		r.fail(Syntax, value, `names stand between two "/"`)
	case r.dnsmasqFrees(option, names[:end], names[end+1:]):
	case r.dnsmasqSink(option, names[end+1:]):
		said := blocksTree
		if names[end+1:] != "" && option == "address" {
			said |= firmly // a server for the same name changes nothing
		}
		r.dnsmasqNames(names[:end], said)
	}
}

// dnsmasqFrees tells an option that has a name answered: asked of a server, or with an
// address of its own. Below a name that is blocked this is an exception, since the
// longest name decides.
func (r *reading) dnsmasqFrees(option, names, to string) (some bool) {
	server := option != "address" && to != "" && to != "0.0.0.0" && to != "::"
	if !server && (option != "address" || isSink(to) || !isIP(to)) {
		return false
	}
	for name := range strings.SplitSeq(names, "/") {
		below, sub := strings.CutPrefix(name, "*.")
		plain := strings.TrimLeft(name, ".")
		switch {
		case plain == "", plain == "#", isWild(name):
		case sub:
			some = r.freed(below, Sub, false) || some
		default:
			some = r.freed(plain, Tree, false) || some
		}
	}
	return some
}

// dnsmasqRecord reads names with data of their own, NAME,…,DATA: they alone are answered,
// though a name above them is blocked.
func (r *reading) dnsmasqRecord(value string) {
	words := strings.Split(value, ",")
	some := false
	for _, name := range words[:len(words)-1] {
		if name = trim(name); !isIP(name) && strings.IndexByte(name, '.') > 0 {
			some = r.freed(name, Exact, false) || some
		}
	}
	if !some {
		r.skip(Directive, "")
	}
}

// dnsmasqMayFree tells a line that may be an exception: any but a comment and the usual
// ways to block.
func dnsmasqMayFree(text string) bool {
	text = trimLeft(text)
	if text == "" || text[0] == '#' {
		return false
	}
	if !hasFold(text, "address=/") && !hasFold(text, "local=/") && !hasFold(text, "server=/") {
		return true
	}
	text = trimRight(text)
	for _, sink := range [...]string{"/", "/0.0.0.0", "/127.0.0.1", "/::", "/::1", "/#"} {
		if strings.HasSuffix(text, sink) && (sink == "/" || hasFold(text, "address")) {
			return false
		}
	}
	return true
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
func (r *reading) dnsmasqNames(names string, said says) {
	for name := range strings.SplitSeq(names, "/") {
		below, sub := strings.CutPrefix(name, "*.")
		plain := strings.TrimLeft(name, ".")
		scope, says := Tree, said
		switch {
		case plain == "", plain == "#", isWild(name):
			r.fail(TooBroad, name, "this covers every name")
			return
		case sub:
			plain, scope, says = below, Sub, blocksSub
		case plain == name && r.bare == Exact:
			scope, says = Exact, blocksName
		}
		if !r.noted(plain, says) && !r.blocked(plain, scope) {
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
