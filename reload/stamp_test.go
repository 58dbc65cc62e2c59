package reload

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/digest"
)

// A start takes a large file that has not changed since the last run as it was, and reads one that has
// changed in any way that the system tells of: also where size and time of writing are as before.
func TestStartReadsWhatHasChangedAlone(t *testing.T) {
	dir := t.TempDir()
	index, path := filepath.Join(dir, "lists.bdx"), filepath.Join(dir, "big.txt")
	text := []byte(strings.Repeat("promo@bulk.test\n", stampedFrom/16+1))
	old := time.Now().Add(-time.Hour)
	write := func(text []byte) [16]byte {
		t.Helper()
		testkit.Must(t, os.WriteFile(path, text, 0o600))
		testkit.Must(t, os.Chtimes(path, old, old))
		hash := testkit.Value(lists.HashFile(t.Context(), path))(t)
		return hash
	}
	s := List{Name: "big", Path: path, Settings: lists.Settings{Format: "plain"}}
	sources, _ := expand([]List{s})
	later := time.Duration(0)
	start := func(forced bool) (hash [16]byte, c *fileCache) {
		t.Helper()
		c = &fileCache{fresh: true}
		var err error
		if c.kept, err = readStamps(index); err != nil {
			t.Fatal(err)
		}
		if forced {
			c.forget()
		}
		now, faults := c.read(t.Context(), sources)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		testkit.Must(t, c.keep(index, time.Now().Add(later)))
		return now[0].hash, c
	}
	first := write(text)
	if got, c := start(false); got != first || len(c.kept) > 0 {
		t.Fatalf("the first start, of a file that has just been written, keeps %v", c.kept)
	}
	later = time.Hour
	start(false)
	// A lie in the file of stamps shows who believes it.
	lie := [16]byte{1, 2, 3}
	kept, err := readStamps(index)
	if err != nil || len(kept) != 1 {
		t.Skipf("no stamps on this system: %v, %v", kept, err)
	}
	k := kept[path]
	k.hash = lie
	testkit.Must(t, writeStamps(index, map[string]stamped{path: k}))
	if got, _ := start(false); got != lie {
		t.Error("a file that has not changed was read")
	}
	if got, _ := start(true); got != first {
		t.Error("who asks for all files anew got what was kept")
	}
	k.hash = lie
	for name, change := range map[string]func(){
		"other octets, the same size and time": func() { write(bytes.Replace(text, []byte("promo"), []byte("spams"), 1)) },
		"renamed over": func() {
			text := testkit.Read(t, path)
			testkit.Write(t, path+".new", text)
			os.Chtimes(path+".new", old, old)
			os.Rename(path+".new", path)
		},
		"another mode": func() { os.Chmod(path, 0o640) },
	} {
		write(text)
		if _, c := start(false); len(c.kept) != 1 {
			t.Fatalf("%s: nothing is kept", name)
		}
		kept, _ := readStamps(index)
		k := kept[path]
		k.hash = lie
		writeStamps(index, map[string]stamped{path: k})
		change()
		want := testkit.Value(lists.HashFile(t.Context(), path))(t)
		if got, _ := start(false); got != want {
			t.Errorf("%s: not read", name)
		}
	}
}

// A file of stamps that is torn, or of which a bit has flipped, is none.
func TestTornStamps(t *testing.T) {
	index := filepath.Join(t.TempDir(), "lists.bdx")
	all := map[string]stamped{"/a": {stamp{1, 2, 3, 4, 5, 6}, [16]byte{7}}, "/b\n\"": {hash: [16]byte{8}}}
	testkit.Must(t, writeStamps(index, all))
	if got, err := readStamps(index); err != nil || !maps.Equal(got, all) {
		t.Fatalf("%v, %v", got, err)
	}
	text := testkit.Read(t, index+stampsSuffix)
	for n := range len(text) - 1 {
		if _, err := parseStamps(text[:n]); err == nil {
			t.Errorf("%d octets of %d are taken", n, len(text))
		}
		bent := bytes.Clone(text)
		bent[n] ^= 1
		if got, err := parseStamps(bent); err == nil && !maps.Equal(got, all) {
			t.Errorf("octet %d: %v", n, got)
		}
	}
}

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

// Root accepts in a folder that may be another user's: what stands under the note's name
// is replaced, and where a link there leads is left alone.
func TestAcceptFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	elsewhere, path := filepath.Join(dir, "elsewhere"), filepath.Join(dir, "blockd.bdx")
	testkit.Write(t, elsewhere, "root's own\n")
	testkit.Must(t, os.Symlink(elsewhere, acceptedPath(path)))
	if err := Accept(path, "g1"); err != nil || !readAcceptance(path).covers("g1", "a") || readAcceptance(path).covers("g2", "a") {
		t.Fatalf("accepted %v, %v", readAcceptance(path), err)
	}
	if err := Accept(path, "g1", "a", "b"); err != nil || !readAcceptance(path).covers("g1", "b") || readAcceptance(path).covers("g1", "c") {
		t.Fatalf("accepted %v, %v", readAcceptance(path), err)
	}
	if text, err := os.ReadFile(elsewhere); err != nil || string(text) != "root's own\n" {
		t.Errorf("the link's target: %q, %v", text, err)
	}
	files := testkit.Value(os.ReadDir(dir))(t)
	testkit.Equal(t, fmt.Sprintf("left behind: %v", files), len(files), 2)
	if err := Accept(filepath.Join(dir, "none", "blockd.bdx"), "g1"); err == nil {
		t.Error("no error of a folder that is not there")
	}
}
