package reload

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/lists"
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
