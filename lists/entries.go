package lists

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"

	"blockd/mail/addr"

	"github.com/zeebo/xxh3"
)

// EntriesHead is the first line of a file in the format entries. Any other version is refused.
const EntriesHead = entriesMark + "1"

const entriesMark = "#blockd-entries "

const (
	maxOrigin = 1024 // octets of Item.Origin

	// maxExpires is the end of the year 9999, in Unix seconds: what later times than that are, is a guess.
	maxExpires = 253_402_300_799
)

// The letters of the format entries.
const (
	actionLetters = "batdp" // by Action
	scopeLetters  = "xstl"  // by Scope
)

// entriesFile reads the format entries (docs/lists.md, section 6), which programs write and people search:
//
//	KEY TAB ACTION TAB SCOPE TAB EXPIRES TAB ORIGIN TAB REASON LF
//
// Only blockd writes such a file, so a line that is not as the format has it is damage, and refuses the file. What
// the list's own rules say about an entry refuses its line alone, as in every format.
type entriesFile struct {
	*reading
	block int    // of the line before
	owned int    // lines of the owner in hand, in a list per recipient
	last  string // the line before, up to its scope; "" = there is none
}

func readEntries(r *reading) error {
	f := entriesFile{reading: r}
	r.counted = true
	for r.next() {
		if err := f.line(); err != nil {
			return err
		}
	}
	if r.err == nil && r.lines.cutter.empty() {
		return refusal(Truncated, "an empty file; the format begins with %q", EntriesHead)
	}
	return r.end()
}

// damaged refuses the file for the line in hand.
func (f *entriesFile) damaged(c Class, format string, args ...any) error {
	fe := refusal(c, format, args...)
	fe.Line = f.at.number
	return fe
}

func (f *entriesFile) line() error {
	text := f.at.text
	switch {
	case f.at.long:
		return f.damaged(Entries, "a line of more than 65536 octets")
	case f.lines.torn:
		return f.damaged(Truncated, "the last line has no end")
	case f.at.number == 1:
		if text != EntriesHead {
			return f.damaged(Entries, "the first line is not %q", EntriesHead)
		}
		f.skip(Header, "")
		f.flush()
		return nil
	}
	n := strings.IndexByte(text, '\t')
	if n < 1 || len(text) < n+5 || text[n+2] != '\t' || text[n+4] != '\t' {
		if strings.HasPrefix(text, "-\t") && strings.Count(text, "\t") == 3 {
			return f.damaged(Entries, "a deletion, which only a delta has")
		}
		return f.damaged(Entries, "want six fields with tabs between them, the second and third of one letter")
	}
	if f.block != f.lines.block {
		f.block, f.last, f.owned = f.lines.block, entryID(f.lines.before), f.lines.run
	}
	id := text[:n+4]
	if id <= f.last {
		if id == f.last {
			return f.damaged(Entries, "the same key, action and scope as the line before")
		}
		return f.damaged(Entries, "out of order: the key, action and scope come before those of the line before")
	}
	before := f.last
	f.last = id
	return f.entry(text[:n], before, text[n+1], text[n+3], text[n+5:])
}

// entryID is the part of a line that orders it: key, action and scope with the tabs between them. It is "" for what is no line of an entry.
func entryID(line string) string { return line[:idLength(line, strings.IndexByte(line, '\t'))] }

// EntryLineID is the part of a line of AppendEntryLine that tells entries apart, and that orders the lines of a
// file: key, action and scope with the tabs between them. It is empty for what is no such line.
func EntryLineID(line []byte) []byte { return line[:idLength(line, bytes.IndexByte(line, '\t'))] }

// idLength is the length of the part of a line that orders it. Its first tab is at n.
func idLength[T string | []byte](line T, n int) int {
	if n < 1 || len(line) <= n+4 || line[n+2] != '\t' || line[n+4] != '\t' {
		return 0
	}
	return n + 4
}

// OneOfEach leaves of sorted lines of AppendEntryLine one for each EntryLineID: the one that ends last, and of those
// the first. So the lines can be those of a file. A line holds until the next one.
func OneOfEach(lines iter.Seq2[[]byte, error]) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var kept []byte
		for line, err := range lines {
			switch {
			case err != nil:
				yield(nil, err)
				return
			case len(kept) == 0:
			case !bytes.Equal(EntryLineID(kept), EntryLineID(line)):
				if !yield(kept, nil) {
					return
				}
			case expiresAfter(entryLife(kept), entryLife(line)):
				continue
			}
			kept = append(kept[:0], line...)
		}
		if len(kept) > 0 {
			yield(kept, nil)
		}
	}
}

// entryLife is the field of a line of AppendEntryLine that says when the entry ends.
func entryLife(line []byte) []byte {
	life, _, _ := bytes.Cut(line[len(EntryLineID(line))+1:], []byte("\t"))
	return life
}

// expiresAfter reports whether an entry ends later than another one, or at the same time.
func expiresAfter(a, b []byte) bool {
	switch {
	case len(a) == 0:
		return true // never
	case len(b) == 0:
		return false
	case len(a) != len(b):
		return len(a) > len(b) // numbers without leading zeros
	}
	return bytes.Compare(a, b) >= 0
}

// entry takes one entry: its key, the letters of its action and scope, and the other three fields.
func (f *entriesFile) entry(key, before string, action, scope byte, rest string) error {
	a, s := strings.IndexByte(actionLetters, action), strings.IndexByte(scopeLetters, scope)
	switch {
	case a < 0:
		return f.damaged(Entries, "unknown action %q, want one of %s", string(action), actionLetters)
	case s < 0:
		return f.damaged(Entries, "unknown scope %q, want one of %s", string(scope), scopeLetters)
	}
	var it Item
	owned := false
	if owner, subject := cutOwner(key); owner != "" {
		if err := f.ownerOf(owner, before); err != nil {
			return err
		}
		key, owned = subject, true
	}
	if err := f.keyOf(&it, key, Scope(s)); err != nil {
		return err
	}
	if owned && !f.hasRoom() {
		f.flush()
		return nil
	}
	if rest != "\t\t" { // as most are
		if err := f.details(&it, rest); err != nil {
			return err
		}
	}
	if f.put(&it, Action(a)) {
		f.flush()
	}
	return nil
}

// put puts an entry in hand. It is false for one mailbox that is blocked, which no guard has a say about, so that
// it is emitted at once: nearly every line is such a one.
func (f *entriesFile) put(it *Item, a Action) bool {
	r := f.reading
	ok := true
	if a.Allows() {
		r.action = a
	} else {
		ok = r.refuse(a, string(actionLetters[a]))
	}
	if ok && a == Block && it.Kind == Addr && it.Scope == Exact && r.settings.PerRecipient == (r.owner.Text != "") {
		usual := &r.usual
		usual.Line, usual.Key, usual.Text = r.at.number, it.Key, r.text()
		usual.Kind, usual.Scope, usual.Action, usual.Reason = Addr, Exact, a, r.reason
		usual.Expires, usual.Origin, usual.Owner = it.Expires, it.Origin, r.owner
		usual.Class, usual.Message = "", "" // Lint has written into that of the line before
		r.tally.lines++
		r.sum.Entries++
		r.err = r.emit(usual)
		return false
	}
	if ok {
		q := r.add(it.Kind, it.Scope)
		q.Key, q.Net, q.Expires, q.Origin = it.Key, it.Net, it.Expires, it.Origin
	}
	return true
}

// keyOf gives it the kind and the key that text is.
func (f *entriesFile) keyOf(it *Item, text string, s Scope) error {
	it.Scope = s
	if key, ok := addr.Simple(text); ok && key.Text == text {
		switch {
		case key.Kind == addr.Domain && s <= Tree:
			it.Kind, it.Key = Domain, key
			return nil
		case key.Kind == addr.Address && s == Exact:
			it.Kind, it.Key = Addr, key
			return nil
		}
	}
	if !readKey(it, text) || it.Name() != text && (text[0] != '"' || it.Name() != strings.ReplaceAll(text, `"`, "")) { // as dots were quoted once
		return f.damaged(Entries, "%s is not the canonical key of an entry with the scope %s", strconv.QuoteToGraphic(cutText(text, maxDroppedText)), s)
	}
	return nil
}

// readKey reads any canonical key that goes with the scope of it, and maybe others: addresses have an "@", client
// addresses are digits or have colons, literals are in brackets.
func readKey(it *Item, text string) bool {
	mailbox, isRecipient := strings.CutPrefix(text, recipientMark)
	if isRecipient {
		text = mailbox
	}
	switch {
	case strings.IndexByte(text, '@') >= 0:
		it.Kind = Addr
		if isRecipient {
			it.Kind = Recipient
		}
		if it.Scope == Local && !isRecipient {
			key, err := addr.LocalKey(strings.TrimSuffix(text, "@"))
			it.Key = key
			return err == nil
		}
		a, err := addr.Parse(text)
		key, ok := a.Key()
		it.Key = key
		return err == nil && ok && it.Scope == Exact
	case isRecipient:
		return false
	case text[0] != '[' && looksNet(text) && strings.IndexByte(text, '-') < 0: // a name may be of digits and hyphens
		return readNet(it, text)
	}
	key, err := addr.DomainKey(text)
	it.Kind, it.Key = Domain, key
	return err == nil && it.Scope <= Tree
}

// readNet reads a client address, whose scope is exact, or a network, whose scope is tree.
func readNet(it *Item, text string) bool {
	host, length, isNet := strings.Cut(text, "/")
	a, err := parseIP(host)
	if err != nil || a.Is4In6() {
		return false
	}
	bits, fits := a.BitLen(), true
	it.Kind = IP
	if isNet {
		bits, fits = prefixLen(length)
		it.Kind = CIDR
	}
	if !fits || bits > a.BitLen() || bits < minBits(a) || a.IsUnspecified() && !isNet {
		return false
	}
	it.Net, err = a.Prefix(bits)
	return err == nil && isNet == (it.Scope == Tree) && (isNet || it.Scope == Exact) && isNet != it.Net.IsSingleIP()
}

// details takes what follows the scope: when the entry ends, where it comes from, and why.
func (f *entriesFile) details(it *Item, rest string) error {
	expires, rest, ok := strings.Cut(rest, "\t")
	origin, reason, more := strings.Cut(rest, "\t")
	if !ok || !more {
		return f.damaged(Entries, "want six fields with tabs between them")
	}
	if expires != "" {
		if it.Expires = unixTime(expires); it.Expires == 0 {
			return f.damaged(Entries, "%q is no time in Unix seconds, 1 to %d", cutText(expires, maxDroppedText), int64(maxExpires))
		}
	}
	var err error
	if it.Origin, err = f.unescape(origin); err != nil {
		return err
	}
	if len(it.Origin) > maxOrigin {
		return f.damaged(Entries, "an origin of %d octets, at most %d", len(it.Origin), maxOrigin)
	}
	if reason, err = f.unescape(reason); err != nil {
		return err
	}
	f.because(reason)
	return nil
}

// unixTime reads a number of seconds as the format has it, 0 for what is none.
func unixTime(text string) (n int64) {
	if len(text) > len("253402300799") || text[0] == '0' {
		return 0
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0
		}
		n = 10*n + int64(text[i]-'0')
	}
	if n > maxExpires {
		return 0
	}
	return n
}

// unescape reads a text in which \t, \n and \\ stand for a tab, a line end and a backslash.
func (f *entriesFile) unescape(text string) (string, error) {
	plain := true
	for i := 0; i < len(text) && plain; i++ {
		plain = text[i]-' ' <= '~'-' ' && text[i] != '\\'
	}
	if plain { // as nearly every text is
		return text, nil
	}
	if at, c := controlIn(text); at >= 0 || strings.IndexByte(text, '\t') >= 0 {
		return "", f.damaged(Entries, "an origin or reason with a control character: %s", cmp.Or(c, Control))
	}
	if !utf8.ValidString(text) {
		return "", f.damaged(Entries, "an origin or reason that is not UTF-8")
	}
	if strings.IndexByte(text, '\\') < 0 {
		return text, nil
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			b.WriteByte(text[i])
			continue
		}
		i++
		at := -1
		if i < len(text) {
			at = strings.IndexByte(`tn\`, text[i])
		}
		if at < 0 {
			return "", f.damaged(Entries, `a backslash without t, n or \ after it`)
		}
		b.WriteByte("\t\n\\"[at])
	}
	return b.String(), nil
}

// AppendEntryLine appends an entry as a line of the format entries, which reads as the same key, scope, action,
// expiry, origin and reason. Controls of the texts become blanks, tabs stay. ok is false for what the format
// cannot say: patterns, and what no list can hold.
func AppendEntryLine(dst []byte, it *Item) (line []byte, ok bool) {
	switch it.Kind {
	case Addr, Domain, IP, CIDR, Recipient:
	default:
		return dst, false
	}
	if int(it.Action) >= len(actionLetters) || !canonical(it) || it.Expires < 0 || it.Expires > maxExpires {
		return dst, false
	}
	return appendDetails(append(dst, it.Name()...), it.Scope, it.Action, it.Expires, it.Origin, it.Reason), true
}

// AppendSimpleLine appends to dst, which ends with a key, what follows the key in the line of an entry without an origin. The key is one
// that addr.Simple knows, as nearly all are; ok is false for any other, and for what the format cannot say: ask AppendEntryLine then.
// It keeps nothing of key.
func AppendSimpleLine(dst []byte, key string, s Scope, a Action, expires int64, reason string) (line []byte, ok bool) {
	k, ok := addr.Simple(key)
	if !ok || k.Text != key || int(a) >= len(actionLetters) || expires < 0 || expires > maxExpires {
		return dst, false
	}
	if k.Kind == addr.Address && s != Exact || k.Kind == addr.Domain && s > Tree {
		return dst, false
	}
	return appendDetails(dst, s, a, expires, "", reason), true
}

// appendDetails appends what follows the key in a line.
func appendDetails(dst []byte, s Scope, a Action, expires int64, origin, reason string) []byte {
	dst = append(dst, '\t', actionLetters[a], '\t', scopeLetters[s], '\t')
	if expires > 0 {
		dst = strconv.AppendInt(dst, expires, 10)
	}
	dst = append(dst, '\t')
	dst = appendEscaped(dst, cutText(cleanText(origin), maxOrigin))
	dst = append(dst, '\t')
	dst = appendEscaped(dst, cleanReason(reason))
	return append(dst, '\n')
}

// appendEscaped appends a text that has no controls but tabs.
func appendEscaped(dst []byte, text string) []byte {
	for i := range len(text) {
		switch text[i] {
		case '\\':
			dst = append(dst, `\\`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, text[i])
		}
	}
	return dst
}

// sayEntries writes every entry but patterns.
func sayEntries(_ *Writer, dst []byte, it *Item) ([]byte, bool) { return AppendEntryLine(dst, it) }

// ownerOf gives the line in hand its owner. before is the key of the line before it: of the same owner, nearly always.
func (f *entriesFile) ownerOf(text, before string) error {
	if !f.settings.PerRecipient {
		return f.damaged(Entries, "an entry of one recipient alone, in a list without per_recipient = true")
	}
	if text != f.lastOwner {
		key, err := addr.ParseOwner(text)
		if err != nil || key.Text != text {
			return f.damaged(Entries, "%s is not the canonical name of an owner", strconv.QuoteToGraphic(cutText(text, maxDroppedText)))
		}
		key.Text = strings.Clone(text)
		f.lastOwner, f.lastKey = key.Text, key
	}
	f.owner = f.lastKey
	if len(before) <= len(text) || before[len(text)] != ' ' || before[:len(text)] != text {
		f.owned = 0
	}
	f.owned++
	return nil
}

// hasRoom refuses the line in hand if its owner has had enough.
func (f *entriesFile) hasRoom() bool {
	most := f.settings.MaxPerOwner
	if most == 0 || f.owned <= most {
		return true
	}
	return f.fail(OwnerFull, "", fmt.Sprintf("%s has more than %d entries, max_entries_per_owner", f.owner.Text, most))
}

// EntryShards is how many files a list of the format entries is cut into where it is kept in several. A change in ten
// million entries then touches a file of 156,000 lines, which blockd reads in 36 ms, where one file of all takes 2.3
// s.
const EntryShards = 64

// EntryShard is the number of the file of a key: the top six bits of its XXH3-64 with the seed 0. The entries of an
// owner are in the file of the owner's key, one after the other: so they can be counted, and a build meets each owner
// once.
func EntryShard(key []byte) int {
	shard, _ := EntryPlace(key)
	return shard
}

// EntryPlace is EntryShard, and the XXH3-64 of the whole key with the seed 0.
func EntryPlace(key []byte) (shard int, sum uint64) {
	sum = xxh3.Hash(key)
	if bytes.IndexByte(key, ' ') >= 0 {
		if owner := OwnerOfLine(key); len(owner) > 0 {
			return int(xxh3.Hash(owner) >> 58), sum
		}
	}
	return int(sum >> 58), sum
}
