package lists

import (
	"net/netip"
	"strings"

	"blockd/addr"
)

// adblockComment tells "!", "# text" and the header "[Adblock Plus 2.0]"; but
// "!#if" is a directive, "##.ad" a cosmetic rule, and "[2001:db8::1]" an address.
func adblockComment(text string) bool {
	if text == "" {
		return false
	}
	switch text[0] {
	case '!':
		return !strings.HasPrefix(text, "!#")
	case '#':
		return len(text) == 1 || blankAt(text[1:]) > 0
	case '[':
		_, err := parseIP(text)
		return err != nil
	}
	return false
}

// adblockLine reads one network rule whose whole meaning is a name: ||name^, its
// exception, or a bare name. Rules about parts of a page are of no use here.
func adblockLine(r *reading, text string) {
	if !r.utf8(text) {
		return
	}
	if what := notAName(text); what != "" {
		r.fail(Unsupported, text, what)
		return
	}
	rule, exception := strings.CutPrefix(text, "@@")
	if exception && !r.except() {
		return
	}
	rule, options, _ := strings.Cut(rule, "$")
	if options != "" && !r.adblockOptions(options) {
		return
	}
	// Only "||" ties a pattern to the beginning of a name. Lists of bare names are
	// common, so one that can be nothing but a name is taken as well.
	name, anchored := strings.CutPrefix(rule, "||")
	name, ended := strings.CutSuffix(name, "^")
	switch {
	case strings.Trim(rule, "|*^.") == "":
		r.fail(TooBroad, text, "this covers every name")
	case strings.IndexByte(name, '*') >= 0:
		r.fail(Unsupported, text, `a name with "*"`)
	case looksNet(name):
		r.adblockIP(text, name)
	case !anchored && (ended || options != "" || !bareHost(name)),
		strings.ContainsAny(name, "/^|:?&=,;@\"'~+%()<>{}!# \t"):
		r.fail(Unsupported, text, "a path, a port or a part of an address")
	default:
		r.domain(name, r.bare)
	}
}

// notAName tells the kinds of rules that never mean a name, "" for the others.
func notAName(text string) string {
	switch {
	case strings.HasPrefix(text, "!#"):
		return "a directive"
	case strings.Contains(text, "##"), strings.Contains(text, "#@#"), strings.Contains(text, "#?#"),
		strings.Contains(text, "#$#"), strings.Contains(text, "#%#"):
		return "a cosmetic rule"
	case text[0] == '/', strings.HasPrefix(text, "@@/"):
		return "a path or a regular expression"
	case text[0] == '|' && !strings.HasPrefix(text, "||"), strings.HasPrefix(text, "@@|") && !strings.HasPrefix(text, "@@||"):
		return "the beginning of a URL"
	}
	return ""
}

// adblockOptions drops the options that do not change which names are meant. The
// ones that narrow a rule to some requests leave a warning: here it covers all.
func (r *reading) adblockOptions(options string) bool {
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "important", "all", "document":
		case "popup", "third-party":
			r.warn, r.why = Narrowed, "the rule meant "+option+" requests alone"
		default:
			return r.fail(Unsupported, option, "an option that changes what the rule means")
		}
	}
	return true
}

// adblockIP queues a client address. Networks and ranges are no ad blocker's.
func (r *reading) adblockIP(text, name string) {
	if a, err := parseIP(name); err == nil {
		r.prefix(text, netip.PrefixFrom(a, a.BitLen()))
		return
	}
	r.fail(Unsupported, text, "digits, but no whole address")
}

// bareHost tells a name that stands alone on a line from a substring rule. One
// without a dot is a substring.
func bareHost(name string) bool {
	if name[0] == '.' || name[0] == '-' || strings.IndexByte(name, '.') < 0 {
		return false
	}
	_, err := addr.DomainKey(name)
	e, ok := err.(*addr.Error)
	return err == nil || ok && e.Class != addr.Syntax
}

// adblockMark tells a line that only ad blockers' lists have.
func adblockMark(text string) bool {
	return strings.HasPrefix(text, "||") || strings.HasPrefix(text, "@@||") ||
		hasFold(text, "[adblock") || hasFold(text, "[adguard") || hasFold(text, "[ublock")
}
