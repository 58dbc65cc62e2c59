package reload

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"blockd/index"
	"blockd/internal/durable"
	"blockd/lists"
)

// heldSuffix makes of an index file's name that of the file which names the entries that
// are held back.
const heldSuffix = ".held"

// Entries that are held back are in the index file, and every process that opens it
// through OpenIndex leaves them out of its answers. Their names stand in a file beside it.
// They stay there until somebody accepts them or they go from their list.

// heldEntries are the entries that are held back.
type heldEntries map[index.HeldEntry]heldSince

// heldSince is what is known of an entry that is held back.
type heldSince struct {
	Since   time.Time
	Senders int    // that it would have refused then
	Example string // one of them
}

// HeldEntry is an entry that is held back, as people see it.
type HeldEntry struct {
	index.HeldEntry
	Since   time.Time
	Senders int    // that it would have refused then
	Example string // one of them
	File    string // where it stands, in the index that it was asked of
	Line    int
}

func (all heldEntries) set() map[index.HeldEntry]bool {
	set := make(map[index.HeldEntry]bool, len(all))
	for e := range all {
		set[e] = true
	}
	return set
}

// sorted are the entries by the name of their list, and of each list those that refuse
// most first.
func (all heldEntries) sorted() []HeldEntry {
	some := make([]HeldEntry, 0, len(all))
	for e, since := range all {
		some = append(some, HeldEntry{HeldEntry: e, Since: since.Since, Senders: since.Senders, Example: since.Example})
	}
	slices.SortFunc(some, func(a, b HeldEntry) int {
		return cmp.Or(strings.Compare(a.List, b.List), cmp.Compare(b.Senders, a.Senders), strings.Compare(a.Name, b.Name), cmp.Compare(a.Scope, b.Scope))
	})
	return some
}

// counts are the numbers of entries by list; nil if there are none.
func (all heldEntries) counts() (n map[string]int) {
	for e := range all {
		if n == nil {
			n = map[string]int{}
		}
		n[e.List]++
	}
	return n
}

// in are those that ix has. One that cannot be looked for stays.
func (all heldEntries) in(ix *index.Index) heldEntries {
	some := heldEntries{}
	for e, since := range all {
		if _, _, found, err := ix.Find(e); found || err != nil {
			some[e] = since
		}
	}
	return some
}

// without are those that are not of some lists.
func (all heldEntries) without(accepted func(list string) bool) heldEntries {
	rest := maps.Clone(all)
	maps.DeleteFunc(rest, func(e index.HeldEntry, _ heldSince) bool { return accepted(e.List) })
	return rest
}

// OpenIndex opens the index file at path without the entries that are held back.
func OpenIndex(path string) (*index.Index, error) {
	ix, err := index.Open(path)
	if err != nil {
		return nil, err
	}
	held, err := readHeld(path)
	if err != nil {
		return nil, err
	}
	ix.Withhold(held.set())
	return ix, nil
}

// Held are the entries that are held back in the index file at path, sorted by the names of
// their lists, and of each list those that refuse most first.
func Held(path string) (all []HeldEntry, err error) {
	held, err := readHeld(path)
	if err != nil || len(held) == 0 {
		return nil, err
	}
	ix, err := index.Open(path)
	if err != nil {
		return nil, err
	}
	for _, e := range held.sorted() {
		row, line, found, err := ix.Find(e.HeldEntry)
		if err != nil {
			return nil, err
		}
		if found {
			e.File, e.Line = ix.Lists()[row].Source.Path, line
			all = append(all, e)
		}
	}
	return all, nil
}

// heldLine is a line of the file.
type heldLine struct {
	List    string    `json:"list"`
	Kind    string    `json:"kind"`
	Scope   string    `json:"scope"`
	Entry   string    `json:"entry"`
	Since   time.Time `json:"since"`
	Senders int       `json:"senders"`
	Example string    `json:"example"`
}

// heldEnd is the last line: the sum of all before it.
type heldEnd struct {
	Sum string `json:"sum"`
}

func heldSum(text []byte) string {
	return fmt.Sprintf("%016x", crc64.Checksum(text, recentSum))
}

func writeHeld(path string, all heldEntries) error {
	path += heldSuffix
	if len(all) == 0 {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	for _, e := range all.sorted() {
		if err := enc.Encode(heldLine{e.List, e.Kind.String(), e.Scope.String(), e.Name, e.Since, e.Senders, e.Example}); err != nil {
			return err
		}
	}
	if err := enc.Encode(heldEnd{heldSum(text.Bytes())}); err != nil {
		return err
	}
	return durable.WriteFile(path, text.Bytes(), 0o600)
}

// maxHeldFile bounds what is read: a million entries.
const maxHeldFile = 1 << 30

// readHeld reads what is held back in the index at path. No file: nothing is.
func readHeld(path string) (heldEntries, error) {
	path += heldSuffix
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxHeldFile))
	if err != nil {
		return nil, err
	}
	all, err := parseHeld(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

var errHeldTorn = errors.New("the file is torn or of another kind")

func parseHeld(text []byte) (heldEntries, error) {
	at := bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n') + 1
	var end heldEnd
	if err := json.Unmarshal(text[at:], &end); err != nil || end.Sum != heldSum(text[:at]) {
		return nil, errHeldTorn
	}
	all := heldEntries{}
	lines := bufio.NewScanner(bytes.NewReader(text[:at]))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var l heldLine
		err := json.Unmarshal(lines.Bytes(), &l)
		kind, known := lists.ParseKind(l.Kind)
		scope, also := lists.ParseScope(l.Scope)
		if err != nil || !known || !also {
			return nil, fmt.Errorf("line %d: %w", n, errHeldTorn)
		}
		all[index.HeldEntry{List: l.List, Kind: kind, Scope: scope, Name: l.Entry}] = heldSince{l.Since, l.Senders, l.Example}
	}
	return all, lines.Err()
}

// openHeld is readHeld for the daemon: what was held in a file that is damaged is not
// known any more.
func (r *Reloader) openHeld() heldEntries {
	all, err := readHeld(r.settings.Path)
	if err != nil {
		r.log.Error("entries that were held back are not known, and act", slog.Any("error", err))
	}
	return all
}

// keepHeld writes down what is held, if that is other than what the file has.
func (r *Reloader) keepHeld(all heldEntries) error {
	if maps.Equal(all, r.heldKept) {
		return nil
	}
	if err := writeHeld(r.settings.Path, all); err != nil {
		return err
	}
	r.heldKept = all
	return nil
}

// forgetHeld writes down what is held in the index file that serves, and nothing more.
func (r *Reloader) forgetHeld() {
	if err := r.keepHeld(r.held); err != nil {
		r.log.Error("entries that are held back are not noted", slog.Any("error", err))
	}
}

// alsoHeld are the entries that are held in g or in what serves: the index file is that of
// one of them.
func (r *Reloader) alsoHeld(g *generation) heldEntries {
	all := maps.Clone(r.heldKept)
	if all == nil {
		all = heldEntries{}
	}
	maps.Copy(all, g.withheld)
	return all
}

// Release lets the entries that are held back act, of lists that accepted names: no file
// names them any more. It is for a process that compiles; see Accept.
func Release(path string, accepted func(list string) bool) (released int, err error) {
	all, err := readHeld(path)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	rest := all.without(accepted)
	if len(rest) == len(all) {
		return 0, nil
	}
	return len(all) - len(rest), writeHeld(path, rest)
}
