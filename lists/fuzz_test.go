package lists

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"blockd/internal/testkit"
	"blockd/lists/pattern"
	"blockd/mail/addr"
)

// The closed sets of docs/lists.md, section 9.
var (
	errWords  = strings.Fields("syntax bad-utf8 invisible control nul idna too-long label-too-long too-broad public-suffix protected null-sender not-a-sink missing-value unsupported unsupported-action self-test")
	warnWords = strings.Fields("dup conflict host-bits public-suffix protected narrowed warn-action too-long")
	skipWords = strings.Fields("comment blank header directive continuation local-name default-value other-member self-test expired below-score")
	fileWords = strings.Fields("missing directory not-a-file symlink permission changed gzip truncated too-big encoding binary html json no-column entries only-errors bad-ratio protected shrunk grown empty self-test format ambiguous")
)

func sourceOf(data []byte) *source {
	return &source{ctx: context.Background(), file: bytes.NewReader(data), size: int64(len(data))}
}

// checkRead reads data as format and holds the outcome against what a reading
// promises whatever the file holds.
func checkRead(t *testing.T, format string, data []byte) {
	items, sum, err := readAll(sourceOf(data), format)
	if fe, ok := errors.AsType[*FileError](err); err != nil && (!ok || !slices.Contains(fileWords, string(fe.Class)) || fe.Err.Error() == "") {
		t.Fatalf("refused without a word of the closed set: %v", err)
	}
	entries, faults, seen := 0, 0, map[int]bool{}
	last := 1
	for _, it := range items {
		if it.Line < last || err == nil && it.Line > sum.Lines {
			t.Fatalf("line %d comes after line %d, of %d", it.Line, last, sum.Lines)
		}
		last = it.Line
		seen[it.Line] = true
		checkItem(t, &it)
		switch it.Kind {
		case Err:
			faults++
		case Skip:
		default:
			entries++
		}
	}
	if sum.Entries != entries || sum.Errors != faults {
		t.Fatalf("%d entries and %d errors, the summary says %d and %d", entries, faults, sum.Entries, sum.Errors)
	}
	if err == nil && !strings.HasPrefix(sum.Format, "json") && (len(seen) != sum.Lines || sum.Skipped > sum.Lines) {
		t.Fatalf("%d of %d lines gave an item, %d were skipped", len(seen), sum.Lines, sum.Skipped)
	}
	checkBorders(t, format, data, items, sum)
	checkLint(t, format, data, items)
}

// checkLint reads data as Lint does: what takes back and what is taken back is then
// an entry, and for everybody else a line that asks for nothing.
func checkLint(t *testing.T, format string, data []byte, items []Item) {
	var shown []Item
	s := settingsOf(format)
	s.lint = true
	if _, err := read(sourceOf(data), nil, s, func(it *Item) error {
		it.Test, it.pattern = nil, nil // are others each time
		shown = append(shown, *it)
		return nil
	}); err == nil && len(shown) != len(items) {
		t.Fatalf("%d items, for lint %d", len(items), len(shown))
	}
	for i, it := range shown[:min(len(shown), len(items))] {
		switch {
		case items[i].void || items[i].Action > AllowIfAuth:
			t.Fatalf("%+v would reach an index", items[i])
		case it.void != (it.Kind > Err && items[i].Kind == Skip), !it.void && it != items[i]:
			t.Fatalf("%+v, for lint %+v", items[i], it)
		}
	}
}

// checkBorders reads data again in random pieces: how it arrives makes no difference.
func checkBorders(t *testing.T, format string, data []byte, items []Item, sum Summary) {
	src := sourceOf(data)
	src.file = &raggedFile{data: data, rng: rand.New(rand.NewPCG(uint64(len(data)), 7))}
	again, sumAgain, _ := readAll(src, format)
	if !reflect.DeepEqual(sum, sumAgain) || !slices.Equal(items, again) {
		t.Fatalf("read in pieces: %+v and %d items; at once: %+v and %d items", sumAgain, len(again), sum, len(items))
	}
	checkShared(t, settingsOf(format), data, leastBlock(data), 3)
}

type raggedFile struct {
	data []byte
	rng  *rand.Rand
	ragged
}

func (f *raggedFile) Seek(int64, int) (int64, error) {
	f.ragged = ragged{string(f.data), f.rng, io.EOF}
	return 0, nil
}

// settingsOf reads a format, with "patterns " before it for a list that declares
// them.
func settingsOf(format string) Settings {
	format, patterns := strings.CutPrefix(format, "patterns ")
	return Settings{Format: format, Patterns: patterns}
}

func readAll(src *source, format string) ([]Item, Summary, error) {
	var items []Item
	sum, err := read(src, nil, settingsOf(format), func(it *Item) error {
		it.Test, it.pattern = nil, nil // are others each time
		kept := *it
		kept.Key.Text, kept.Reason, kept.Text, kept.Origin = strings.Clone(it.Key.Text), strings.Clone(it.Reason), strings.Clone(it.Text), strings.Clone(it.Origin)
		items = append(items, kept)
		return nil
	})
	return items, sum, err
}

func checkItem(t *testing.T, it *Item) {
	words := warnWords
	switch it.Kind {
	case Err:
		words = errWords
		if it.Message == "" || it.Name() != "" {
			t.Fatalf("error without a message, or with a key: %+v", it)
		}
	case Skip:
		words = skipWords
	case Addr, Domain:
		checkKey(t, it)
	case Glob, Regexp:
		checkPattern(t, it)
	case IP, CIDR:
		min := minBits(it.Net.Addr())
		if it.Net != it.Net.Masked() || it.Net.Bits() < min || it.Net.Addr().Is4In6() || it.Net.IsSingleIP() != (it.Kind == IP) {
			t.Fatalf("%v of kind %v", it.Net, it.Kind)
		}
	}
	if !(it.Class == "" && it.Kind > Err) && !slices.Contains(words, string(it.Class)) {
		t.Fatalf("%v with class %q", it.Kind, it.Class)
	}
	if at, _ := controlIn(it.Reason); at >= 0 || len(it.Reason) > maxReason || !utf8.ValidString(it.Reason) {
		t.Fatalf("reason %q", it.Reason)
	}
	if len(it.Text) > maxText || it.Column < 0 || it.Column > maxLine+1 {
		t.Fatalf("column %d of %d octets", it.Column, len(it.Text))
	}
}

// checkKey makes the key again from its own text.
func checkKey(t *testing.T, it *Item) {
	var key addr.Key
	var err error
	switch {
	case it.Kind == Domain:
		key, err = addr.DomainKey(it.Key.Text)
	case it.Scope == Local:
		key, err = addr.LocalKey(strings.TrimSuffix(it.Key.Text, "@"))
	default:
		var a addr.Addr
		a, err = addr.Parse(it.Key.Text)
		key, _ = a.Key()
	}
	if err != nil || key != it.Key {
		t.Fatalf("%+v is not canonical: %+v, %v", it.Key, key, err)
	}
}

// checkPattern reads the pattern again from its own text.
func checkPattern(t *testing.T, it *Item) {
	kind, text := pattern.Glob, it.Pattern
	if it.Kind == Regexp {
		kind, text = pattern.Regexp, text[1:len(text)-1]
	}
	if p, err := pattern.Parse(kind, text); err != nil || p.String() != it.Pattern || p.TooBroad() {
		t.Fatalf("%+v is not canonical: %v, %v", it.Pattern, p, err)
	}
}

func FuzzPlain(f *testing.F)   { fuzzFormat(f, "plain") }
func FuzzHosts(f *testing.F)   { fuzzFormat(f, "hosts") }
func FuzzAdblock(f *testing.F) { fuzzFormat(f, "adblock") }
func FuzzPostfix(f *testing.F) { fuzzFormat(f, "postfix") }
func FuzzCSV(f *testing.F)     { fuzzFormat(f, "csv", "csv:1,2>=3", "csv:sender", "csv:2") }
func FuzzJSON(f *testing.F)    { fuzzFormat(f, "json", "json:data[].ip", "json:*.a", "json:ip") }

func FuzzDnsmasq(f *testing.F)      { fuzzFormat(f, "dnsmasq") }
func FuzzUnbound(f *testing.F)      { fuzzFormat(f, "unbound") }
func FuzzSendmail(f *testing.F)     { fuzzFormat(f, "sendmail") }
func FuzzSpamassassin(f *testing.F) { fuzzFormat(f, "spamassassin") }
func FuzzRspamd(f *testing.F)       { fuzzFormat(f, "rspamd") }
func FuzzRbldnsd(f *testing.F) {
	fuzzFormat(f, "rbldnsd", "rbldnsd:ip4set", "rbldnsd:ip4trie", "rbldnsd:ip6trie", "rbldnsd:generic", "rbldnsd:combined")
}
func FuzzRPZ(f *testing.F)     { fuzzFormat(f, "rpz") }
func FuzzDrop(f *testing.F)    { fuzzFormat(f, "drop") }
func FuzzEntries(f *testing.F) { fuzzFormat(f, "entries") }
func FuzzLsearch(f *testing.F) { fuzzFormat(f, "lsearch") }
func FuzzPatterns(f *testing.F) {
	fuzzFormat(f, "patterns plain", "patterns rspamd", "patterns spamassassin", "patterns lsearch", "patterns csv")
}

func fuzzFormat(f *testing.F, formats ...string) {
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, format := range formats {
			checkRead(t, format, data)
		}
	})
}

// FuzzRead also guesses formats, and takes their arguments.
func FuzzRead(f *testing.F) {
	f.Fuzz(func(t *testing.T, format string, data []byte) { checkRead(t, format, data) })
}

// FuzzParseEntry holds that what is taken is one entry that a plain list has too, in
// a form that reads as the same one, and that what is refused is told in one line.
func FuzzParseEntry(f *testing.F) {
	for _, text := range []string{"spam@x.example", "X.Example", "=x.example", "@x.example", ".x.example", "*.x.example", "offers@", "192.0.2.77/24",
		"2001:db8::/32", "[192.0.2.1]", "@[192.0.2.1]", `"a#b"@x.example`, "Win <a@b.example>", "bücher.example", "!x@y.example", "# x", "x # y",
		"192.0.2.1 - 192.0.2.9", "*spam*@x.example", "/x/", "<>", " ", "a\nb", "\x00", "=", "@", "x@192.0.2.1"} {
		f.Add(text)
	}
	guard := testkit.Value(NewGuard(DefaultGuard()))(f)
	f.Fuzz(func(t *testing.T, text string) {
		it, err := ParseEntry(text, Settings{})
		if err != nil {
			if e, ok := errors.AsType[*EntryError](err); !ok || e.Class == "" || e.Message == "" || Guarded(err) {
				t.Fatalf("ParseEntry(%q) = %v", text, err)
			}
			return
		}
		plain := it.Plain()
		again, err := ParseEntry(plain, Settings{})
		if err != nil || again.Kind != it.Kind || again.Key != it.Key || again.Net != it.Net || again.Scope != it.Scope {
			t.Fatalf("ParseEntry(%q) = %+v, whose Plain %q is %+v, %v", text, it, plain, again, err)
		}
		var listed []Item
		src := &source{ctx: t.Context(), file: strings.NewReader(plain + "\n"), size: int64(len(plain) + 1)}
		sum, err := read(src, nil, Settings{Format: "plain"}, func(it *Item) error { listed = append(listed, *it); return nil })
		if err != nil || sum.Entries != 1 || listed[0].Key != it.Key || listed[0].Net != it.Net || listed[0].Scope != it.Scope {
			t.Fatalf("a list of %q has %+v, %v; want %+v", plain, listed, err, it)
		}
		if _, err := ParseEntry(text, Settings{Guard: guard}); err != nil && !Guarded(err) {
			t.Fatalf("ParseEntry(%q) with a guard: %v", text, err)
		}
	})
}

// FuzzSelfTest: what is taken for a test names senders that can be looked up, and
// says the same when it is written down from what was understood.
func FuzzSelfTest(f *testing.F) {
	for _, text := range []string{"block new@bulk.test", "pass <> a@x.test", `block "a b"@x.test <@r.test:c@x.test>`, "pass ü@bücher.example",
		"block x@[198.51.100.7]", "pass", "block root", "deny x@y.test", `block "`, "block a@x.test,b@x.test"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		test, err := parseTest(trim(text))
		if err != nil {
			if test != nil || strings.ContainsAny(err.Error(), "\r\n") && !strings.ContainsAny(text, "\r\n") {
				t.Fatalf("parseTest(%q) = %v, %v", text, test, err)
			}
			return
		}
		word := "pass"
		if test.Block {
			word = "block"
		}
		again := word
		for _, a := range test.Senders {
			if !a.Null() && (a.Domain() == "" || len(a.Keys(nil)) == 0 && len(a.Domain()) <= 253) {
				t.Fatalf("%q: nothing can be looked up of %q", text, a)
			}
			again += " <" + a.String() + ">"
		}
		second, err := parseTest(again)
		if err != nil || second.Block != test.Block || !slices.Equal(second.Senders, test.Senders) {
			t.Fatalf("%q is %q, which is %v, %v", text, again, second, err)
		}
	})
}
