package lists

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"blockd/mail/addr"
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
// exception, |name^, which is the name alone, or a bare name. Rules about parts of a page
// are of no use here.
func adblockLine(r *reading, text string) {
	if !r.utf8(text) {
		return
	}
	if len(r.removed) > 0 {
		off, hash := badFilter(text)
		if line := r.removed[hash]; off {
			r.skip(Directive, "takes the same rule back")
			return
		} else if line > 0 {
			r.skip(Directive, fmt.Sprintf("taken back by line %d", line))
			return
		}
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
	if options != "" && !r.adblockOptions(options, exception) {
		return
	}
	if exception {
		options = ""
		var narrowed bool
		if rule, narrowed = hostRule(rule); narrowed {
			r.warn, r.why = Narrowed, "the rule meant some addresses there alone"
		}
	}
	// "||" ties a pattern to the beginning of a name or a label, "|" to that of the whole
	// name. Lists of bare names are common, so one that can be nothing but a name is taken
	// as well.
	name, anchored := strings.CutPrefix(rule, "||")
	scope := r.bare
	whole := false
	if !anchored {
		if name, whole = strings.CutPrefix(rule, "|"); whole {
			anchored, scope = true, Exact
		}
	}
	name, last := strings.CutSuffix(name, "|")
	name, ended := strings.CutSuffix(name, "^")
	ended = ended || last
	below, sub := strings.CutPrefix(name, "*.")
	switch {
	case strings.Trim(rule, "|*^.") == "":
		r.fail(TooBroad, text, "this covers every name")
	case whole && (!ended || strings.ContainsAny(name, ":/")):
		r.fail(Unsupported, text, "the beginning of a URL")
	case sub && anchored && !whole && below != "" && strings.IndexByte(below, '*') < 0 && !looksNet(below):
		r.adblockName(text, below, Sub)
	case strings.IndexByte(name, '*') >= 0 && exception && anchored:
		_ = addGlob(r, text, "*@"+name) && !whole && name[0] != '*' && addGlob(r, text, "*@*."+name)
	case strings.IndexByte(name, '*') >= 0:
		r.fail(Unsupported, text, `a name with "*"`)
	case looksNet(name):
		r.adblockIP(text, name)
	case !anchored && (ended || options != "" || !bareHost(name)):
		r.fail(Unsupported, text, "a path, a port or a part of an address")
	default:
		r.adblockName(text, name, scope)
	}
}

// hostRule rewrites an exception that is written as a part of a URL as one for the host in it: "://name^|",
// "https://name/", "name^", "*.name^", "||name:443/". narrowed: it frees some addresses there alone, which are no
// matter of senders; a block that it was cut out of must not stay for that. Any other rule is returned as it is.
func hostRule(rule string) (host string, narrowed bool) {
	bare, _, _ := strings.Cut(strings.Trim(strings.TrimLeft(rule, "|"), "[]^|/"), "/")
	if a, err := netip.ParseAddr(strings.TrimSuffix(bare, "]")); err == nil && a.Is6() {
		return rule, false // its colons begin no port
	}
	name, labels := strings.CutPrefix(rule, "||")
	anchor := "||"
	if !labels {
		whole := false
		name, whole = strings.CutPrefix(rule, "|")
		scheme, rest, ok := strings.Cut(name, "://")
		switch scheme = strings.ToLower(scheme); {
		case ok && strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz*") == "":
			name = rest
		case ok:
			return rule, false // chrome-extension://, and others that lead to no host
		}
		switch {
		case whole || ok:
			anchor = "|"
		case strings.HasPrefix(name, "."):
			name = "*" + name
		}
	}
	tail := ""
	if i := strings.IndexAny(name, "/^|:?&="); i >= 0 {
		name, tail = name[:i], name[i:]
	}
	if port, ok := strings.CutPrefix(tail, ":"); ok {
		if tail = strings.TrimLeft(port, "0123456789*"); tail == port {
			return rule, false // "blob:" and "data:" are no hosts
		}
	}
	below := strings.TrimPrefix(name, "*.")
	switch glob := strings.IndexByte(below, '*') >= 0; {
	case strings.Trim(name, "*.") == "", anchor == "||" && !labels && (glob && strings.IndexByte(below, '.') < 0 || !glob && !bareHost(below)):
		return rule, false
	case tail == "" && anchor == "|":
		name += "*" // it begins so
	case tail == "" && labels && !glob:
		return rule, false // the name and all below, as in a block
	}
	return anchor + name + "^", strings.Trim(tail, "^|/*") != ""
}

// adblockName queues the entry of a name that a rule's marks were taken off.
func (r *reading) adblockName(text, name string, scope Scope) {
	if strings.ContainsAny(name, "/^|:?&=,;@\"'~+%()<>{}!# \t") {
		r.fail(Unsupported, text, "a path, a port or a part of an address")
		return
	}
	r.domain(name, scope)
}

// badFilter tells a rule with the option badfilter, which takes back the rule that is the
// same without it. hash is of that rule, or of the rule itself.
func badFilter(text string) (off bool, hash xxh3.Uint128) {
	rule := strings.ToLower(text)
	end := strings.LastIndexByte(rule, '$')
	if end < 0 {
		return false, xxh3.HashString128(rule)
	}
	all := strings.Split(rule[end+1:], ",")
	for i := range all {
		all[i] = cmp.Or(optionWords[all[i]], all[i])
	}
	slices.Sort(all)
	if i := slices.Index(all, "badfilter"); i >= 0 {
		off, all = true, slices.Delete(all, i, i+1)
	}
	if rule = rule[:end]; len(all) > 0 {
		rule += "$" + strings.Join(all, ",")
	}
	return off, xxh3.HashString128(rule)
}

// noteBadFilter notes the rule that a line takes back: where in the file it stands makes
// no difference.
func noteBadFilter(r *reading, text string) {
	if !strings.Contains(text, "badfilter") || r.at.long || adblockComment(text) {
		return
	}
	if off, hash := badFilter(text); off {
		r.removed[hash] = r.at.number
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
	}
	return ""
}

// adblockOptions drops the options that do not change which names are meant. The
// ones that narrow a rule to some requests leave a warning: here it covers all. Of an
// exception there may be more of them, since a block that it was cut out of must not
// stay because mail has no kinds of requests.
func (r *reading) adblockOptions(options string, exception bool) bool {
	for option := range strings.SplitSeq(options, ",") {
		option = cmp.Or(optionWords[strings.ToLower(option)], option)
		kind, _, _ := strings.Cut(strings.TrimPrefix(option, "~"), "=")
		switch {
		case option == "important", option == "all", option == "document":
		case option == "popup", option == "third-party", exception && slices.Contains(requestOptions[:], kind):
			r.warn, r.why = Narrowed, "the rule meant "+option+" requests alone"
		default:
			return r.fail(Unsupported, option, "an option that changes what the rule means")
		}
	}
	return true
}

// optionWords are other words for options.
var optionWords = map[string]string{
	"doc": "document", "3p": "third-party", "~1p": "third-party", "~first-party": "third-party", "strict3p": "third-party", "~strict1p": "third-party",
	"1p": "first-party", "~3p": "first-party", "~third-party": "first-party", "~strict3p": "first-party",
}

// requestOptions say for which requests a rule counts: of which kind, from which page, by
// which program or client. Others switch off something else than a block.
var requestOptions = [...]string{"app", "client", "css", "ctag", "denyallow", "dnstype", "document", "domain", "first-party", "font", "frame",
	"from", "image", "inline-font", "inline-script", "match-case", "media", "method", "object", "other", "ping", "popunder", "popup", "script",
	"strict1p", "stylesheet", "subdocument", "third-party", "to", "webrtc", "websocket", "xhr", "xmlhttprequest"}

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
