package lists

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/mail/addr"
)

// said is what must come back of an entry, by format.
func said(it *Item, format string) []string {
	scopes := []Scope{it.Scope}
	if format == "rpz" && it.Scope == Tree {
		scopes = []Scope{Exact, Sub}
	}
	var all []string
	for _, s := range scopes {
		text := fmt.Sprintf("%s %s %s %s", it.Kind, it.Name(), s, it.Action)
		if format == "postfix" && it.Action != Allow {
			text += " " + it.Reason
		}
		all = append(all, text)
	}
	return all
}

// writeAndRead writes items as format and reads the file again. It returns what
// could be said and what came back.
func writeAndRead(t *testing.T, format string, items []Item) (want, have []string, unsaid int) {
	t.Helper()
	var file bytes.Buffer
	w := testkit.Value(NewWriter(&file, format, "made by a test\nof two lines"))(t)
	for i := range items {
		narrowed, err := w.Write(&items[i])
		it := items[i]
		if narrowed {
			it.Scope = Exact
		}
		switch {
		case err == nil:
			want = append(want, said(&it, format)...)
		case errors.Is(err, ErrUnsayable):
			unsaid++
		default:
			t.Fatal(err)
		}
	}
	testkit.Must(t, w.Close())
	// Line by line: what the names of a zone take out of each other is TestMostSpecificNameDecides' matter.
	f, arg, err := findFormat(format)
	testkit.Must(t, err)
	var back []Item
	r := newReading(f, arg, settingsOf("patterns "+format), func(it *Item) error {
		back = append(back, keepItem(it))
		return nil
	})
	r.in = bytes.NewReader(file.Bytes())
	r.lines = newLineReader(r.in, '\n')
	if err := f.read(r); err != nil || r.sum.Errors > 0 {
		t.Fatalf("what was written as %s does not read: %v, %d refused lines\n%s", format, err, r.sum.Errors, head(file.String()))
	}
	for i := range back {
		if it := &back[i]; it.Kind != Skip {
			have = append(have, said(it, format)...)
		}
	}
	if w.target.sorted { // each entry once
		slices.Sort(want)
		want = slices.Compact(want)
		slices.Sort(have)
	}
	return want, have, unsaid
}

func head(text string) string { return text[:min(len(text), 2000)] }

// entriesOf are the entries of a text, each with its own memory.
func entriesOf(t testing.TB, format, text string) []Item {
	items, _, err := readAll(sourceOf([]byte(text)), format)
	if err != nil {
		t.Skip("no list") // the fuzzer's input
	}
	return slices.DeleteFunc(items, func(it Item) bool { return it.Kind == Skip || it.Kind == Err })
}

// every entry that people have trouble with.
const oddEntries = `promo@bulk.test
offers@
#not an entry
"#x"@bulk.test
"!x"@bulk.test
!press@bulk.test
!"!"@bulk.test
a#b@bulk.test
a*b@bulk.test
"*ab"@bulk.test
"ab*"@bulk.test
"~re"@bulk.test
"^re"@bulk.test
"/x/"@bulk.test
promo*@bulk.test
*promo@*.bulk.test
x@mx*.bulk.test
!p?o*@bulk.test
promo*@
bulk*.test
.bulk*.test
=bulk*.test
/^promo[0-9]+@/
!/^press/
~^sales@
/a\/b@/
/[#;"]x@/
/x/y@bulk.test
=x1@bulk.test
x?y@bulk.test
"two words"@bulk.test
"a\"b"@bulk.test
"a\\b"@bulk.test
""@bulk.test
"odd."@
"two words"@
x@[198.51.100.7]
@[198.51.100.7]
@[ipv6:2001:db8::7]
x@[ipv6:2001:db8::7]
jörg@bücher.test
привет@пример.test
bulk.test
=bulk.test
.bulk.test
!=bulk.test
!.bulk.test
_dmarc.bulk.test
ab--x.test
-
rpz-ip
x.rpz-ip.test
x.rpz-ip
localhost
dead
198.51.100.7
198.51.100.0/25
!198.51.100.8
2001:db8::/32
!2001:db8::1
`

func TestWriterSaysWhatItCan(t *testing.T) {
	items := entriesOf(t, "patterns plain", oddEntries)
	if len(items) < 52 {
		t.Fatalf("%d entries were read of the text, too few to test with", len(items))
	}
	for _, format := range WritableFormats() {
		t.Run(format, func(t *testing.T) {
			want, have, unsaid := writeAndRead(t, format, items)
			if !slices.Equal(want, have) {
				t.Errorf("want %q\nhave %q", want, have)
			}
			if format == "plain" && unsaid > 0 {
				t.Errorf("plain cannot say %d of its own entries", unsaid)
			}
			if len(have) == 0 {
				t.Error("nothing was said")
			}
		})
	}
}

// TestWriterRefuses holds what a format must not be made to say.
func TestWriterRefuses(t *testing.T) {
	for _, tt := range []struct{ format, from, text, why string }{
		{"hosts", "plain", ".bulk.test", "a hosts file knows no names below"},
		{"hosts", "plain", "promo@bulk.test", "nor addresses"},
		{"hosts", "plain", "!=bulk.test", "nor exceptions"},
		{"hosts", "plain", "=localhost", "a name that a hosts file has for itself"},
		{"hosts", "plain", "@[198.51.100.7]", "an address literal is no name"},
		{"rspamd", "plain", "@[198.51.100.7]", "nor a key that rspamd asks for"},
		{"rbldnsd", "plain", "@[198.51.100.7]", "nor here"},
		{"rpz", "plain", "@[198.51.100.7]", "nor here"},
		{"postfix", "plain", "=bulk.test", "a table's name covers those below"},
		{"postfix", "plain", "!.bulk.test", "such a key may not be looked for"},
		{"postfix", "plain", "!offers@", "a domain that refuses comes first"},
		{"postfix", "plain", "\"two words\"@bulk.test", "a key has no quotes for blanks"},
		{"postfix", "plain", "\"#x\"@bulk.test", "a comment"},
		{"postfix", "plain", "198.51.100.0/25", "an indexed table knows whole groups"},
		{"postfix", "plain", "2001:db8::/48", "as clients are printed, zeros may be left out"},
		{"rpz", "plain", "=" + strings.Repeat("a.", 96) + "test", "no room for the zone's name"},
		{"hosts", "plain", "198.51.100.7", "names only"},
		{"hosts", "patterns plain", "promo*@bulk.test", "no pattern"},
		{"postfix", "patterns plain", "promo*@bulk.test", "no pattern"},
		{"rspamd", "patterns plain", "/^promo/", "a map of names has none"},
		{"rbldnsd:combined", "plain", "2001:db8::1", "IPv4 only"},
		{"rspamd", "plain", ".bulk.test", "rspamd compares whole names"},
		{"rspamd", "plain", "offers@", "and whole addresses"},
		{"rspamd", "plain", "!=bulk.test", "a map has no exceptions"},
		{"rspamd", "plain", "a#b@bulk.test", "the mark of a comment"},
		{"rbldnsd", "plain", "promo@bulk.test", "names only"},
		{"rbldnsd", "plain", "198.51.100.7", "names only"},
		{"rbldnsd:ip4set", "plain", "2001:db8::1", "IPv4 only"},
		{"rpz", "plain", "198.51.100.7", "senders, not answers"},
		{"rpz", "plain", "=x.rpz-ip", "a trigger of another kind"},
		{"plain", "postfix", "bulk.test DISCARD", "a plain entry refuses"},
		{"rpz", "postfix", "bulk.test 450 later", "there is no record for later"},
		{"rbldnsd", "postfix", "bulk.test 450 later", "nor a value"},
	} {
		w := testkit.Value(NewWriter(io.Discard, tt.format, ""))(t)
		items := entriesOf(t, tt.from, tt.text)
		testkit.MustEqual(t, fmt.Sprintf("%s: entries", tt.text), len(items), 1)
		if _, err := w.Write(&items[0]); !errors.Is(err, ErrUnsayable) {
			t.Errorf("%s as %s: %v, although %s", tt.text, tt.format, err, tt.why)
		}
	}
	if _, err := NewWriter(io.Discard, "auto", ""); err == nil || !strings.Contains(err.Error(), "rpz") {
		t.Errorf("an unknown format: %v", err)
	}
}

// TestWriterNarrows: a name with all below it becomes the name, never the other
// way round.
func TestWriterNarrows(t *testing.T) {
	for _, format := range WritableFormats() {
		var b bytes.Buffer
		w := testkit.Value(NewWriter(&b, format, ""))(t)
		items := entriesOf(t, "plain", "bulk.test")
		narrowed, err := w.Write(&items[0])
		w.Close()
		switch format {
		case "hosts", "rspamd":
			if back := entriesOf(t, format, b.String()); err != nil || !narrowed || len(back) != 1 || back[0].Scope != Exact {
				t.Errorf("%s: narrowed %t, %v, %+v", format, narrowed, err, back)
			}
		case "rbldnsd:ip4set":
			testkit.IsError(t, format, err, ErrUnsayable)
		default:
			if narrowed || err != nil {
				t.Errorf("%s: narrowed %t, %v", format, narrowed, err)
			}
		}
	}
}

// TestWriterKeepsReasons: Postfix and rbldnsd send a text to the client.
func TestWriterKeepsReasons(t *testing.T) {
	for _, tt := range []struct{ format, from, text, want string }{
		{"postfix", "postfix", "bulk.test REJECT go away", "bulk.test REJECT go away\n"},
		{"postfix", "postfix", "bulk.test 551 5.7.1 Not here", "bulk.test 551 5.7.1 Not here\n"},
		{"postfix", "postfix", "bulk.test 450 4.7.1 later", "bulk.test 450 4.7.1 later\n"},
		{"postfix", "postfix", "bulk.test DEFER", "bulk.test DEFER\n"},
		{"postfix", "postfix", "bulk.test DISCARD quietly", "bulk.test DISCARD quietly\n"},
		{"postfix", "postfix", "bulk.test OK", "bulk.test OK\n"},
		{"rbldnsd", "postfix", "bulk.test REJECT see $ and =", ".bulk.test :127.0.0.2:see $$ and =\n"},
		{"rbldnsd", "postfix", "bulk.test REJECT =x", ".bulk.test :127.0.0.2:==x\n"},
		{"plain", "postfix", ".bulk.test REJECT go away", ".bulk.test\n"},
		{"postfix", "plain", "198.51.100.0/24", "198.51.100 REJECT\n"},
		{"postfix", "plain", "198.51.100.7", "198.51.100.7 REJECT\n"},
		{"postfix", "plain", "2001:db8::/32", "2001:db8 REJECT\n"},
		{"postfix", "plain", "2001:db8:17:a0::/64", "2001:db8:17:a0 REJECT\n"},
	} {
		var b bytes.Buffer
		w := testkit.Value(NewWriter(&b, tt.format, ""))(t)
		items := entriesOf(t, tt.from, tt.text)
		testkit.Value(w.Write(&items[0]))(t)
		w.Close()
		testkit.Equal(t, fmt.Sprintf("%s as %s", tt.text, tt.format), b.String(), tt.want)
		back := entriesOf(t, tt.format, b.String())
		if tt.format != "plain" && (len(back) != 1 || back[0].Reason != items[0].Reason) {
			t.Errorf("%s as %s came back as %+v", tt.text, tt.format, back)
		}
	}
}

func FuzzWriter(f *testing.F) {
	f.Add(oddEntries, false)
	f.Add("promo*@bulk.test\n!/^a#b;c/\n~x y\n*.bulk*.test\n/a #b/\n~/x\n*a@[198.51.*]\n", false)
	f.Add("bulk.test REJECT = $ # ; text\n.x.test 450 4.7.1 later\nx@ DISCARD\n", true)
	f.Fuzz(func(t *testing.T, text string, postfix bool) {
		from := "patterns plain"
		if postfix {
			from = "postfix"
		}
		items := entriesOf(t, from, text)
		for _, format := range WritableFormats() {
			if want, have, _ := writeAndRead(t, format, items); !slices.Equal(want, have) {
				t.Fatalf("as %s: want %q, have %q", format, want, have)
			}
		}
	})
}

// TestWriterTrustsNoItem: an index from anywhere may hold keys that no list has. Of
// none of them a line is made.
func TestWriterTrustsNoItem(t *testing.T) {
	name := func(text string) Item {
		return Item{Kind: Domain, Key: addr.Key{Kind: addr.Domain, Text: text}}
	}
	address := func(text string) Item {
		return Item{Kind: Addr, Key: addr.Key{Kind: addr.Address, Text: text}}
	}
	local := func(text string) Item {
		return Item{Kind: Addr, Scope: Local, Key: addr.Key{Kind: addr.Local, Text: text}}
	}
	for _, it := range []Item{
		{}, {Kind: Domain}, {Kind: Addr}, {Kind: Glob}, {Kind: Regexp}, {Kind: IP}, {Kind: CIDR},
		name("bulk.test\n$INCLUDE /etc/passwd"), name("$INCLUDE x"), name("$DATASET dnset @"), name("bulk.test CNAME . ; x"), name("Bulk.test"), name("bulk.test."),
		name("bulk test"), name("#bulk.test"), name(";bulk.test"), name(":127.0.0.2:x"), name("bulk.test\x00"), name("*.bulk.test"), name("@"), name("bücher.test"),
		{Kind: Domain, Scope: Local, Key: addr.Key{Text: "bulk.test"}}, {Kind: Domain, Scope: 9, Key: addr.Key{Text: "bulk.test"}},
		address("x@bulk.test\nbulk.test OK"), address("x @bulk.test"), address("#x"), address("X@bulk.test"), address("@"), address(""), address("x@bulk.test OK"),
		local("offers"), local("a b@"), local("offers@\nbulk.test REJECT"), local("@"), local(""),
		{Kind: IP, Net: netip.MustParsePrefix("198.51.100.0/24")}, {Kind: CIDR, Net: netip.MustParsePrefix("198.51.100.1/24")},
		{Kind: CIDR, Net: netip.MustParsePrefix("0.0.0.0/0")}, {Kind: IP, Net: netip.MustParsePrefix("::ffff:198.51.100.1/128")},
		{Kind: Glob, Pattern: "a*@bulk.test\nbulk.test"}, {Kind: Glob, Pattern: "a*@bulk.test\u2028"}, {Kind: Glob, Pattern: "#*@bulk.test"}, {Kind: Glob, Pattern: "ab"},
		{Kind: Regexp, Pattern: "/a\n/"}, {Kind: Regexp, Pattern: "//"}, {Kind: Regexp, Pattern: "//x/"}, {Kind: Regexp, Pattern: "/a #b/"}, {Kind: Regexp, Pattern: "a"}, {Kind: Regexp, Pattern: "/(/"},
	} {
		for _, format := range WritableFormats() {
			for _, action := range []Action{Block, Allow} {
				var b bytes.Buffer
				w, err := NewWriter(&b, format, "")
				testkit.Must(t, err)
				w.out.Reset(&b) // without the head
				it := it
				it.Action = action
				_, err = w.Write(&it)
				w.Close()
				if !errors.Is(err, ErrUnsayable) || b.Len() > 0 {
					t.Errorf("%s, %s %q %q: %v, %q", format, it.Kind, it.Key.Text, it.Pattern, err, b.String())
				}
			}
		}
	}
}

// TestWriterCleansTexts: neither a reason nor the comment at the top ends its line.
func TestWriterCleansTexts(t *testing.T) {
	for _, format := range WritableFormats() {
		var b bytes.Buffer
		w := testkit.Value(NewWriter(&b, format, "made\rfor\v\u0085x\n$INCLUDE x"))(t)
		items := entriesOf(t, "plain", "bulk.test\n198.51.100.7\n")
		for _, it := range items {
			it.Reason = "go\nother.test REJECT\r\n\u0085x\x00" + strings.Repeat("y", 500)
			if _, err := w.Write(&it); err != nil && !errors.Is(err, ErrUnsayable) {
				t.Fatal(err)
			}
		}
		w.Close()
		text := b.String()
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "other") || strings.HasPrefix(line, "$INCLUDE") || strings.ContainsAny(line, "\r\x00\v\u0085") {
				t.Errorf("%s: %q", format, line)
			}
		}
	}
}
