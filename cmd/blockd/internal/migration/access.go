package migration

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/lists"
	"blockd/lists/pattern"
)

// The lookup keys and actions of access(5).

// action is what the right-hand side of an access table asks for.
type action struct {
	deed     deed
	reason   string // the text; of mark the header field
	lost     string // why it is not carried over; the deed is then its effect on the order
	narrower string // how it does less here
	other    string // what else it does there, which is not blockd's: "HOLD"
	coded    bool   // the reason begins with a code
	permit   bool   // DEFER_IF_PERMIT

	full string // what the client reads there: codes and text; "" = nobody knows, or nothing
	bare string // the same, of an entry without a text
}

// actions are those that have a word.
var actions = map[string]action{
	"":       {deed: pass, lost: "there is no action"},
	"OK":     {deed: pass},
	"RELAY":  {deed: pass},
	"PERMIT": {deed: pass},
	"DUNNO":  {deed: stop},

	"REJECT":          {deed: block},
	"DEFER":           {deed: defers},
	"DEFER_IF_PERMIT": {deed: defers, permit: true},
	"DISCARD":         {deed: discard, narrower: "dropped at a milter door alone; the policy service and the SMTP filter refuse it, and its sender hears of it"},

	"HOLD":    {deed: hold},
	"PREPEND": {deed: mark},
	"WARN":    {deed: watch},
	"INFO":    {deed: watch},

	"DEFER_IF_REJECT": {deed: stop, other: "a deferral of what something behind it refuses"},
	"BCC":             {deed: stop, other: "BCC"},
	"FILTER":          {deed: stop, other: "FILTER"},
	"REDIRECT":        {deed: stop, other: "REDIRECT"},
}

// parseAction reads the right-hand side.
func parseAction(text string) action {
	text = strings.TrimSpace(text)
	word, rest := cutBlank(text)
	upper := strings.ToUpper(word)
	if a, ok := actions[upper]; ok && (upper != "PERMIT" || rest == "") {
		a.reason = rest
		return a
	}
	switch {
	case digits(text):
		return action{deed: pass} // a time stamp, not a reply code
	case len(word) >= 3 && digits(word[:3]) && (word[0] == '4' || word[0] == '5'):
		a := action{deed: block, reason: strings.TrimSpace(text[:3] + " " + strings.TrimSpace(text[3:])), coded: true}
		if word[0] == '4' {
			a.deed = defers
		}
		return a
	}
	return action{deed: pass, lost: "an action that is a restriction or a restriction class is Postfix's own"}
}

func digits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// says is the deed in words.
func (a action) says() string {
	return [...]string{block: "refuse", defers: "defer", discard: "drop mail of", hold: "hold mail of", mark: "put a header field on mail of", watch: "log", pass: "let pass", stop: "nothing more of this table for"}[a.deed]
}

// meaning is what an entry does in the program it was written for.
func meaning(a action, what about, keys []key) string {
	text := a.says() + " " + whom(what, keys)
	if a.reason != "" && a.deed.answers() {
		text += ", saying " + original.Shown(a.reason)
	}
	return text
}

// tableRules are what the look-up of an indexed table depends on.
type tableRules struct {
	parents   bool   // a name matches the names below it, and .name matches nothing
	delimiter string // recipient_delimiter

	reject string // access_map_reject_code
	defers string // access_map_defer_code
	soft   bool   // soft_bounce: every refusal answers 4xx
	early  bool   // smtpd_delay_reject = no: what is refused is refused before RCPT
}

// words settles what the client is told: the reason is what a list has to say for Postfix
// to answer the same octets behind a policy service. That is a text behind REJECT, to which
// Postfix gives its code, a text behind DEFER for DEFER_IF_PERMIT, and codes with a text
// for all else. What Postfix answers 4xx to becomes an entry that defers.
func (r tableRules) words(a action) action {
	if a.deed != block && a.deed != defers {
		return a
	}
	said := lists.ParseAnswer(a.reason)
	code := r.defers
	switch {
	case a.coded:
		code = strconv.Itoa(said.Code)
	case said.Code != 0: // behind REJECT it is text
		said = lists.Answer{Text: a.reason}
		fallthrough
	default:
		if a.deed == block {
			code = r.reject
		}
	}
	if r.soft {
		code = "4" + code[1:]
	}
	if code[0] == '4' {
		a.deed = defers
	}
	dsn := code[:1] + cmp.Or(said.Enhanced, "5.7.1")[1:]
	text := cmp.Or(said.Text, map[bool]string{false: "Access denied", true: "Service unavailable"}[a.permit])
	a.full = code + " " + dsn + " " + text
	plain := code[0] == '5' && code == r.reject && !a.coded || a.permit
	switch {
	case plain && a.reason == "" && !a.permit:
		a.bare = a.full
	case plain && lists.ParseAnswer(text).Code == 0:
		a.reason = text
		if said.Enhanced != "" {
			a.reason = dsn + " " + text
		}
	default:
		a.reason = a.full
	}
	return a
}

// The ranks of an indexed table: the order in which Postfix asks for what one mail
// has (access(5)).
const (
	rankAddress = 0 // and 1 without its extension
	rankName    = 1000
	rankLocal   = 5000 // and 5001
)

// senderKeys reads a key of an indexed table for envelope senders or recipients. why
// is said of keys that nothing matches.
func (r tableRules) senderKeys(text string) (keys []key, rank int, why string) {
	at := strings.LastIndexByte(text, '@')
	switch {
	case text == "<>":
		return nil, 0, "bounces always pass: the null sender cannot be listed"
	case strings.IndexByte(text, '"') >= 0:
		return nil, 0, "a key in quotes"
	case looksClient(text):
		return nil, 0, "never matched there: an address or network of clients in a table of mail addresses"
	case at == 0:
		return nil, 0, `never matched there: a name is written without "@" in access tables`
	case at < 0 && strings.HasPrefix(text, ".") && r.parents:
		return nil, 0, "never matched there: with smtpd_access_maps in parent_domain_matches_subdomains, the default, no key with a leading dot is asked for"
	case strings.HasSuffix(text, ".") || strings.ContainsAny(text, "*") && (at < 0 || strings.Contains(text[at:], "*") || text[:at] == "*"):
		return nil, 0, "never matched there: Postfix asks for the text as it stands, and no address is like it"
	}
	var k key
	var err error
	switch below, dot := strings.CutPrefix(text, "."); {
	case at == len(text)-1:
		k, err = localKey(text[:at])
		rank = rankLocal
	case at > 0:
		k, err = addressKey(text)
		rank = rankAddress
	case dot:
		k, err = nameKey(below, lists.Sub)
		rank = rankOfName(k)
	default:
		k, err = nameKey(text, map[bool]lists.Scope{false: lists.Exact, true: lists.Tree}[r.parents])
		rank = rankOfName(k)
	}
	if err != nil {
		return nil, 0, "no address or name: " + original.Shown(err.Error())
	}
	return []key{k}, rank, ""
}

// rankOfName is that of a name: longer ones are asked for first, and at one length
// the name before all below it.
func rankOfName(k key) int {
	rank := rankName + 2*(128-strings.Count(k.text, "."))
	if k.scope == lists.Sub {
		rank++
	}
	return rank
}

// extended adds what recipient_delimiter makes an address match: promo@bulk.test is
// found for promo+x@bulk.test too. plain is false if that cannot be said.
func (r tableRules) extended(k key) (more []key, plain bool) {
	if r.delimiter == "" || k.kind != lists.Addr {
		return nil, true
	}
	at := strings.LastIndexByte(k.text, '@')
	local, domain := k.text[:at], k.text[at:]
	switch {
	case strings.ContainsAny(local, r.delimiter), local == "postmaster", local == "mailer-daemon", local == "double-bounce":
		return nil, true // Postfix takes no extension off these
	case strings.ContainsAny(local, `"*?\`), strings.ContainsAny(r.delimiter, `"*?\@ `):
		return nil, false
	}
	if domain == "@" {
		domain = "@*"
	}
	for _, d := range r.delimiter {
		k, err := patternKey(pattern.Glob, local+string(d)+"*"+domain)
		if err != nil {
			return nil, false
		}
		more = append(more, k)
	}
	return more, true
}

// looksClient tells what can only be an address or network of clients.
func looksClient(text string) bool {
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	if _, err := netip.ParsePrefix(text); err == nil {
		return true
	}
	return strings.Trim(text, "0123456789.") == "" || strings.IndexByte(text, ':') >= 0 && strings.Trim(text, "0123456789abcdefABCDEF:.") == ""
}

// clientKeys reads a key of an indexed table for clients.
func clientKeys(text string) (keys []key, rank int, why string) {
	lower := strings.ToLower(text)
	switch {
	case strings.IndexByte(text, '@') >= 0:
		return nil, 0, "never matched there: a mail address in a table of clients"
	case strings.IndexByte(text, '/') >= 0:
		return nil, 0, "never matched there: a network with a slash is for cidr: tables; here 198.51.100 is the /24"
	case !looksClient(text):
		return nil, -1, "the client's name: blockd looks no names up"
	}
	if a, err := netip.ParseAddr(lower); err == nil {
		if a.Zone() != "" || a.String() != lower {
			return nil, 0, "never matched there: Postfix asks for the text " + a.WithZone("").String()
		}
		k := netKey(netip.PrefixFrom(a, a.BitLen()))
		return []key{k}, 0, ""
	}
	const never = "never matched there: no address begins like this in the text that Postfix asks for"
	if groups := strings.Split(lower, "."); len(groups) < 4 && strings.IndexByte(lower, ':') < 0 {
		if a, err := netip.ParseAddr(lower + strings.Repeat(".0", 4-len(groups))); err == nil {
			return []key{netKey(netip.PrefixFrom(a, 8*len(groups)))}, 128 - 8*len(groups), ""
		} else if len(groups) > 1 {
			return nil, 0, never
		} // else 2001 begins addresses of IPv6
	}
	groups := strings.Split(lower, ":")
	a, err := netip.ParseAddr(lower + "::")
	if err != nil || len(groups) > 7 || !strings.HasPrefix(a.String(), lower+":") {
		return nil, 0, never
	}
	for _, g := range groups {
		if strings.Trim(g, "0") == "" { // "2001:db8:0": which addresses print so depends on what follows
			return nil, 0, "Postfix matches it by the text of an address, where groups of zeros are left out or not; write the network into a plain list"
		}
	}
	return []key{netKey(netip.PrefixFrom(a, 16*len(groups)))}, 128 - 16*len(groups), ""
}

// maxText is the longest text that Postfix's policy client always has room for, however
// long the names in front of it are.
const maxText = 140

// reworded says how the reply to an entry's mail differs from Postfix's own.
func (r tableRules) reworded(e *entry, reason string) {
	if e.site.about == clients {
		e.differ(Reworded, "Postfix writes the sender in front of it, not the client")
	}
	if r.early {
		e.differ(Reworded, "at RCPT, where the policy service is asked, and about the recipient")
	}
	if strings.IndexFunc(reason, func(c rune) bool { return c > '~' }) >= 0 {
		e.differ(Reworded, "in ASCII: others than its own letters are transcribed")
	}
	if a := lists.ParseAnswer(reason); a.Enhanced != "" && a.Text == "" {
		e.differ(Reworded, "in words of its own: Postfix has what it happens to have said last there, for there is no text")
	}
	if len(reason) > maxText {
		e.differ(Reworded, "cut, where sender or recipient are long")
	}
}
