package lists

import (
	"fmt"
	"strings"

	"github.com/zeebo/xxh3"
)

// spamassassinLine reads one line of a configuration file. Conditions are not
// weighed: both branches are read. The domains of freemail_domains are those of
// mailbox providers, and no list.
func spamassassinLine(r *reading, text string) {
	if list, undo, ok := r.senders(text); ok {
		r.takeBack(list, undo)
	}
}

// senders queues the entries of a line that names senders. ok is false if it names
// none, or is refused.
func (r *reading) senders(text string) (list Action, undo, ok bool) {
	text = cutDirective(text)
	word, patterns := cutWord(text)
	list, undo, ok = senderDirective(word)
	switch {
	case !ok:
		r.otherDirective(word)
		return list, undo, false
	case patterns == "":
		return list, undo, r.fail(Syntax, word, "a directive without an address")
	case !r.utf8(patterns), !undo && list == Block && !r.refuse(Block, word):
		return list, undo, false
	case undo:
		r.action, r.reason = Remove, ""
	case list >= proved:
		r.action = AllowIfAuth
	case list != Block:
		r.action = list
	}
	if list == provedByDKIM {
		if address, signer := cutWord(patterns); signer != "" {
			patterns, r.warn, r.why = address, Narrowed, "a signature by "+signer+" counts only if that proves the author"
		}
	}
	return list, undo, r.globs(patterns)
}

// The lists of senders who must be proved. Their entries are alike, and each has un…
// directives of its own.
const (
	proved Action = 0x80 + iota
	provedBySPF
	provedByDKIM
)

// senderDirective tells the directives that name envelope senders: for which list,
// and whether they take back what stands there. Case does not matter, nor whether
// words are joined by "_" or by "-".
func senderDirective(word string) (list Action, undo, ok bool) {
	name, undo := strings.CutPrefix(directiveName(word), "un")
	switch name {
	case "blocklist_from", "blacklist_from":
		return Block, undo, true
	case "welcomelist_from", "whitelist_from":
		return Allow, undo, true
	case "welcomelist_auth", "whitelist_auth", "def_welcomelist_auth", "def_whitelist_auth":
		return proved, undo, true
	case "welcomelist_from_spf", "whitelist_from_spf", "def_welcomelist_from_spf", "def_whitelist_from_spf":
		return provedBySPF, undo, true
	case "welcomelist_from_dkim", "whitelist_from_dkim", "def_welcomelist_from_dkim", "def_whitelist_from_dkim":
		return provedByDKIM, undo, true
	}
	return 0, false, false
}

func directiveName(word string) string { return strings.ReplaceAll(strings.ToLower(word), "-", "_") }

// otherDirective ends a line that names no sender.
func (r *reading) otherDirective(word string) {
	name := directiveName(word)
	condition, _, _ := strings.Cut(name, "(") // "if(" needs no blank
	switch {
	case !isOption(condition):
		r.fail(Syntax, word, "no directive of SpamAssassin")
	case strings.HasSuffix(name, "list_from_rcvd") && !strings.HasPrefix(name, "un"):
		r.fail(Unsupported, word, "an exception for mail that a named server hands over; without that anybody could use the name")
	default:
		r.skip(Directive, "")
	}
}

// cutDirective takes the comment off a line: "#" begins one anywhere, in quotes and
// within words too, unless a backslash stands before it.
func cutDirective(text string) string {
	for i := 0; i < len(text); i++ {
		if text[i] == '#' && (i == 0 || text[i-1] != '\\') {
			text = text[:i]
		}
	}
	return trimRight(strings.ReplaceAll(text, `\#`, "#"))
}

// globs queues the entry of each pattern. One that is none is refused by itself: an
// exception beside it is not lost.
func (r *reading) globs(patterns string) bool {
	r.apart = true
	for glob, rest := cutWord(patterns); glob != ""; glob, rest = cutWord(rest) {
		r.glob(glob)
	}
	return len(r.queue) > 0
}

// glob queues the entry of one pattern over whole addresses: an address, or one
// that means all of a name. "?" is a pattern too, so such an address is refused.
func (r *reading) glob(glob string) bool {
	at, closed := lastAt(glob)
	switch {
	case glob == "<>":
		return r.fail(NullSender, glob, "the null sender cannot be listed")
	case isWild(glob):
		return r.fail(TooBroad, glob, "this covers every sender")
	case at < 0 && strings.HasPrefix(glob, "*.") && !isPattern(glob[2:]):
		return r.name(glob[2:], Sub)
	case strings.HasPrefix(glob, "*@*.") && !isPattern(glob[4:]):
		return r.name(glob[4:], Sub)
	case strings.HasPrefix(glob, "*@") && !isPattern(glob[2:]):
		return r.name(glob[2:], Exact)
	case isPattern(glob):
		return r.wildcard(glob, glob, "a pattern that is neither an address nor all of a name")
	case at <= 0 || at == len(glob)-1 || !closed || glob[0] == '<':
		return r.fail(Syntax, glob, "no address; all senders of a name are *@NAME")
	}
	return r.address(glob)
}

func isPattern(glob string) bool { return strings.ContainsAny(glob, "*?") }

// removals are the un… lines of a file: for each entry of a list, by hash, the
// last line that takes it back. Two of 2^16 entries share a hash of 128 bits with
// a probability below 1e-28.
type removals map[xxh3.Uint128]int

// maxRemovals bounds them, at about 40 octets each. Real files have a handful.
const maxRemovals = 1 << 16

// findRemovals returns the before of a format in which a line may take back what others
// say: it reads a file once, and note adds to r.removed what a line takes back. what are
// the things that it does.
func findRemovals(what string, note func(r *reading, text string)) func(*reading, func(*reading) error) error {
	return func(r *reading, open func(*reading) error) error {
		if err := open(r); err != nil {
			return err
		}
		r.removed = removals{}
		for r.next() {
			note(r, trim(r.at.text))
			if len(r.removed) > maxRemovals {
				return refusal(TooBig, "more than %d %s are taken back", maxRemovals, what)
			}
		}
		return r.end()
	}
}

// noteUndone notes what an un… line takes back. It acts on lines before it, and entries
// go out as soon as they are read.
func noteUndone(r *reading, text string) {
	if !hasFold(text, "un") || r.common(text, hashComment) {
		return
	}
	if list, undo, ok := r.senders(text); ok && undo {
		for i := range r.queue {
			if r.queue[i].Kind != Err {
				r.removed[entryHash(&r.queue[i], list)] = r.at.number
			}
		}
	}
}

// entryHash is of an entry of one of the three lists.
func entryHash(it *Item, list Action) xxh3.Uint128 {
	var buf [300]byte
	return xxh3.Hash128(append(append(buf[:0], byte(it.Kind), byte(it.Scope), byte(list)), it.Name()...))
}

// takeBack settles the line in hand with the un… lines. Neither these nor what
// they take back may reach an index: Lint shows both, everybody else gets lines
// that ask for nothing.
func (r *reading) takeBack(list Action, undo bool) {
	for i := range r.queue {
		it := &r.queue[i]
		if it.Kind == Err {
			continue
		}
		message := "takes back the same entry of earlier lines"
		if !undo {
			last := r.removed[entryHash(it, list)]
			if last < it.Line {
				continue
			}
			message = fmt.Sprintf("taken back by line %d", last)
		}
		it.void, it.Class, it.Message = true, "", message
		if !r.settings.lint {
			*it = Item{Line: it.Line, Kind: Skip, Class: Directive, Message: message, Text: it.Text}
		}
	}
}

// spamassassinMark tells the directives that only SpamAssassin has.
func spamassassinMark(text string) bool {
	word, rest := cutWord(text)
	name := strings.TrimPrefix(strings.TrimPrefix(directiveName(word), "un"), "def_")
	for _, list := range [...]string{"blocklist", "blacklist", "welcomelist", "whitelist"} {
		for _, kind := range [...]string{"_from", "_auth", "_to"} {
			if rest != "" && strings.HasPrefix(name, list+kind) {
				return true
			}
		}
	}
	return rest != "" && (name == "freemail_domains" || name == "ifplugin")
}
