package lists

import (
	"errors"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

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
