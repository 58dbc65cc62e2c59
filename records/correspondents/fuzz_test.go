package correspondents

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// FuzzFile reads any file of correspondents: as it is, and as records with the right checksums. Each opens, takes a
// person, and has as many after it was saved and opened again.
func FuzzFile(f *testing.F) {
	record := func(k key, is state) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(k)), uint32(is))
	}
	f.Add([]byte{}, true)
	f.Add(slices.Concat(record(1, 1), record(2, 1<<20), record(1, 0)), true)
	f.Add(slices.Concat(record(1<<40, 7), record(1<<63, 7), record(3, 1<<31), []byte("torn")), true)
	f.Add([]byte(fileHead), false)
	dir := f.TempDir()
	s := Settings{Path: filepath.Join(dir, "a"), Keep: year, Own: []string{"here.example"}}
	f.Fuzz(func(t *testing.T, octets []byte, sums bool) {
		for _, name := range []string{s.Path, s.Path + AsideSuffix} {
			os.Remove(name)
		}
		text := octets
		if sums {
			head := (&Set{}).head() // of the key below
			text = head[:]
			for record := range slices.Chunk(octets, 12) {
				text = append(text, record...)
				if len(record) == 12 {
					text = binary.BigEndian.AppendUint32(text, crc32.Checksum(record, castagnoli))
				}
			}
		}
		for name, text := range map[string][]byte{s.Path: text, s.Path + KeySuffix: []byte("00000000000000000000000000000000\n")} {
			testkit.Must(t, os.WriteFile(name, text, 0o600))
		}
		set, _, err := Open(s)
		testkit.Must(t, err)
		set.Learn(parse(t, "anna@here.example"), parse(t, "bob@there.example"), time.Now())
		known, has := set.Len(), set.Has(parse(t, "bob@there.example"))
		err = set.Save()
		set.Close()
		testkit.Must(t, err)
		again, anew, err := Open(s)
		if err != nil || anew != nil {
			t.Fatalf("again: %v, %v", anew, err)
		}
		defer again.Close()
		if again.Len() != known || again.Has(parse(t, "bob@there.example")) != has {
			t.Fatalf("%d are known, %d after they were saved", known, again.Len())
		}
	})
}
