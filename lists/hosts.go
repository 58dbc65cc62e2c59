package lists

import (
	"net/netip"
	"strings"
)

// hostsLine reads one line of a hosts file: an address that leads nowhere, then
// names. "#" begins a comment anywhere, as the system's resolver reads it.
func hostsLine(r *reading, text string) {
	text, _, _ = strings.Cut(text, "#")
	if text = trimRight(text); !r.utf8(text) {
		return
	}
	target, names := cutWord(text)
	if names == "" {
		target, names = "", text // a bare name is an entry too
	}
	if allLocal(names) {
		r.localNames(text, target)
		return
	}
	if target == selfAddress {
		r.skip(LocalName, "names of the machine itself, by its address "+selfAddress)
		return
	}
	switch {
	case target == "" || isSink(target):
	case isIP(target):
		r.fail(NotASink, target, "this address is a real host")
		return
	default:
		r.fail(Syntax, text, "more than one word, and the first is no IP address")
		return
	}
	for name, rest := cutWord(names); name != ""; name, rest = cutWord(rest) {
		if isLocal(name) || r.settings.Guard.isMachine(name) {
			r.skip(LocalName, name)
		} else if !r.domain(name, r.bare) {
			return
		}
	}
}

// localNames ends a line that only says how this machine calls itself. A sink
// without any name behind it says nothing at all.
func (r *reading) localNames(text, target string) {
	if target == "" && (isSink(text) || isIP(text)) {
		r.fail(Syntax, text, "an address without a name")
		return
	}
	r.skip(LocalName, "a name of the machine itself")
}

// hostsMark tells a line that only hosts files have.
func hostsMark(text string) bool {
	text, _, _ = strings.Cut(text, "#")
	target, names := cutWord(trimRight(text))
	return names != "" && isSink(target)
}

// cutWord returns the first word of text and the rest without leading blanks.
func cutWord(text string) (word, rest string) {
	i := indexBlank(text)
	if i < 0 {
		return text, ""
	}
	return text[:i], trimLeft(text[i:])
}

// isSink tells the addresses that lead nowhere.
func isSink(text string) bool {
	switch text { // what nearly every line has, without a parse
	case "0.0.0.0", "127.0.0.1", "0", "::", "::1":
		return true
	}
	if !strings.HasPrefix(text, "127.") && strings.IndexByte(text, ':') < 0 {
		return false
	}
	a, err := netip.ParseAddr(text)
	a = a.Unmap()
	return err == nil && a.Zone() == "" && (a.IsUnspecified() || a.IsLoopback())
}

// isIP also takes the addresses with a zone of real hosts files (fe80::1%lo0).
func isIP(text string) bool {
	if strings.IndexByte(text, ':') < 0 && (text == "" || text[0] < '0' || text[0] > '9') {
		return false
	}
	_, err := netip.ParseAddr(text)
	return err == nil
}

// isLocal tells the names by which a machine calls itself, and sinks, which
// stand among the names of some lists.
func isLocal(name string) bool {
	plain := strings.TrimSuffix(name, ".")
	for _, own := range localNames {
		if strings.EqualFold(plain, own) {
			return true
		}
	}
	return hasFold(plain, "ip6-") || hasFold(plain[max(len(plain)-len(".localhost"), 0):], ".localhost") || isSink(name)
}

// selfAddress is what installers of Debian and Ubuntu give the machine's own name in /etc/hosts.
const selfAddress = "127.0.1.1"

// localNames are those that the hosts files of distributions give the machine.
var localNames = [...]string{"localhost", "local", "broadcasthost", "localhost.localdomain",
	"localhost4", "localhost4.localdomain4", "localhost6", "localhost6.localdomain6"}

// allLocal tells whether a line is about the machine alone: then it asks for
// nothing, whatever its address, as 255.255.255.255 broadcasthost shows.
func allLocal(names string) bool {
	for name, rest := cutWord(names); name != ""; name, rest = cutWord(rest) {
		if !isLocal(name) {
			return false
		}
	}
	return true
}
