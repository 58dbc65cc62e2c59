package reload

import (
	"os"
	"testing"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/digest"
)

// An index is made again for anything that could make it another one, and for nothing else.
func TestCurrentIsWhatABuildWouldMakeAgain(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "x@bad.example\n", "b.txt": "y@bad.example\n"}).open()
	current := func(sources []index.Source, hashes digest.Set) bool {
		return Current(t.Context(), d.settings.Path, sources, hashes) != nil
	}
	sources, err := Sources(d.settings.Lists)
	d.must(err)
	if ix := Current(t.Context(), d.settings.Path, sources, 0); ix == nil || ix.Generation() != d.Live().Generation() {
		t.Fatalf("the index that serves is not taken: %v", ix)
	}
	with := func(change func(s []index.Source) []index.Source) []index.Source {
		return change(append([]index.Source{}, sources...))
	}
	guard, err := lists.NewGuard(lists.GuardSettings{Protected: []string{"kept.example"}})
	d.must(err)
	for name, other := range map[string][]index.Source{
		"a list that went":      sources[:1],
		"another order":         {sources[1], sources[0]},
		"a new list":            append(with(func(s []index.Source) []index.Source { return s }), index.Source{List: "c", Path: d.path("c.txt"), Optional: true}),
		"another action":        with(func(s []index.Source) []index.Source { s[0].Settings.Action = lists.Allow; return s }),
		"another guard":         with(func(s []index.Source) []index.Source { s[0].Settings.Guard = guard; return s }),
		"what a list held once": with(func(s []index.Source) []index.Source { s[0].Kept = "content"; return s }),
	} {
		if current(other, 0) {
			t.Errorf("%s: the index is said to be current", name)
		}
	}
	if current(sources, digest.SetOf(digest.SHA1)) {
		t.Error("an index without digests is said to be current")
	}
	d.write("a.txt", "z@bad.example\n")
	if current(sources, 0) {
		t.Error("a file has changed, and the index is said to be current")
	}
	d.write("a.txt", "x@bad.example\n")
	if !current(sources, 0) {
		t.Error("the file is as it was, and the index is said to be another one")
	}
	d.must(os.Remove(d.path("a.txt")))
	if current(sources, 0) {
		t.Error("a file is gone, and the index is said to be current")
	}
	d.write("a.txt", "x@bad.example\n")
	d.must(os.WriteFile(d.settings.Path, []byte("damaged"), 0o600))
	if current(sources, 0) {
		t.Error("a damaged index is said to be current")
	}
}
