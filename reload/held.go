package reload

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
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
	"blockd/mail/addr"
)

// heldSuffix makes of an index file's name that of the file which names the entries that
// are held back.
const heldSuffix = ".held"

// Entries that are held back are in the index file, and every process that opens it by
// OpenIndex leaves them out of its answers. Their names stand in a file beside it, until an
// operator accepts them or they go from their list.

// heldEntries are the entries that are held back, each without its File and Line.
type heldEntries map[index.HeldEntry]HeldEntry

// HeldEntry is an entry that is held back.
type HeldEntry struct {
	index.HeldEntry
	Since         time.Time
	Senders       int    // that it would have refused then; of correspondents about
	Example       string // one of them; "" of correspondents
	Correspondent bool   // it is held for correspondents
	File          string // where it stands, in the index that was asked
	Line          int
}

func (all heldEntries) set() map[index.HeldEntry]bool {
	set := make(map[index.HeldEntry]bool, len(all))
	for e := range all {
		set[e] = true
	}
	return set
}

// sorted returns the entries by the name of their list; of each list those first that
// refuse most.
func (all heldEntries) sorted() []HeldEntry {
	return slices.SortedFunc(maps.Values(all), func(a, b HeldEntry) int {
		return cmp.Or(strings.Compare(a.List, b.List), cmp.Compare(b.Senders, a.Senders), strings.Compare(a.Name, b.Name), cmp.Compare(a.Scope, b.Scope))
	})
}

// of returns those of one list, held for correspondents or for senders accepted lately, in the order of sorted.
func (all heldEntries) of(list string, correspondent bool) []HeldEntry {
	rest := maps.Clone(all)
	maps.DeleteFunc(rest, func(key index.HeldEntry, e HeldEntry) bool {
		return key.List != list || e.Correspondent != correspondent
	})
	return rest.sorted()
}

// Class is why the entry is held: lists.Recent or lists.Correspondents.
func (e *HeldEntry) Class() string {
	if e.Correspondent {
		return string(lists.Correspondents)
	}
	return string(lists.Recent)
}

// shown is the entry with what it would refuse.
func (e *HeldEntry) shown() string {
	switch {
	case !e.Correspondent:
		return fmt.Sprintf("%s for %s", e.Name, e.Example)
	case e.Senders > 1:
		return fmt.Sprintf("%s for about %d correspondents", e.Name, e.Senders)
	}
	return e.Name
}

// counts returns the number of entries by list; nil if there are none.
func (all heldEntries) counts() (n map[string]int) {
	for e := range all {
		if n == nil {
			n = map[string]int{}
		}
		n[e.List]++
	}
	return n
}

// in returns those that ix has. One that cannot be looked for stays.
func (all heldEntries) in(ix *index.Index) heldEntries {
	some := heldEntries{}
	for key, e := range all {
		if _, _, found, err := ix.Find(key); found || err != nil {
			some[key] = e
		}
	}
	return some
}

// minus returns those that are not in other.
func (all heldEntries) minus(other heldEntries) heldEntries {
	rest := maps.Clone(all)
	maps.DeleteFunc(rest, func(key index.HeldEntry, _ HeldEntry) bool { _, has := other[key]; return has })
	return rest
}

// without returns those of lists that accepted does not name.
func (all heldEntries) without(accepted func(list string) bool) heldEntries {
	rest := maps.Clone(all)
	maps.DeleteFunc(rest, func(key index.HeldEntry, _ HeldEntry) bool { return accepted(key.List) })
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

// Held returns the entries that are held back in the index file at path, by the names of
// their lists; of each list those first that refuse most.
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
	Example string    `json:"example,omitempty"`

	Correspondent bool `json:"correspondent,omitempty"`
}

// heldEnd is the last line: the sum of all before it.
type heldEnd struct {
	Sum string `json:"sum"`
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
		if err := enc.Encode(heldLine{e.List, e.Kind.String(), e.Scope.String(), e.Name, e.Since, e.Senders, e.Example, e.Correspondent}); err != nil {
			return err
		}
	}
	if err := enc.Encode(heldEnd{checksum(text.Bytes())}); err != nil {
		return err
	}
	return durable.WriteFile(path, text.Bytes(), 0o600)
}

// readHeld reads what is held back in the index at path. Without a file nothing is.
func readHeld(path string) (heldEntries, error) {
	path += heldSuffix
	text, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
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
	if err := json.Unmarshal(text[at:], &end); err != nil || end.Sum != checksum(text[:at]) {
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
		key := index.HeldEntry{List: l.List, Kind: kind, Scope: scope, Name: l.Entry}
		all[key] = HeldEntry{HeldEntry: key, Since: l.Since, Senders: l.Senders, Example: l.Example, Correspondent: l.Correspondent}
	}
	return all, lines.Err()
}

// openHeld is readHeld for the daemon. A damaged file is logged, and what it held acts.
func (r *Reloader) openHeld() heldEntries {
	all, err := readHeld(r.settings.Path)
	if err != nil {
		r.log.Error("entries that were held back are not known, and act", slog.Any("error", err))
	}
	return all
}

// keepHeld writes what is held, if the file has something else.
func (r *Reloader) keepHeld(all heldEntries) error {
	all = r.remembered(all)
	if maps.Equal(all, r.heldKept) {
		return nil
	}
	if r.following.Load() {
		return nil // the file is the other process's
	}
	if err := writeHeld(r.settings.Path, all); err != nil {
		return err
	}
	r.heldKept = all
	return nil
}

// forgetHeld leaves in the file what is held in the index that serves, and nothing more.
func (r *Reloader) forgetHeld() {
	if err := r.keepHeld(r.held); err != nil {
		r.log.Error("entries that are held back are not noted", slog.Any("error", err))
	}
}

// alsoHeld returns the entries that are held in g or in what serves. The index file is that
// of one of them.
func (r *Reloader) alsoHeld(g *generation) heldEntries {
	all := maps.Clone(r.heldKept)
	if all == nil {
		all = heldEntries{}
	}
	maps.Copy(all, g.withheld)
	return all
}

// Release removes the entries of lists that accepted names from the file beside the index at
// path, so that they act. It is for a process that compiles; see Accept.
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

// remembered returns all without the examples that Recent does not remember any more: Forget has taken them out of the file,
// or they are too old.
func (r *Reloader) remembered(all heldEntries) heldEntries {
	if r.settings.Recent == nil {
		return all
	}
	some := heldEntries{}
	for key, e := range all {
		if e.Example != "" && !r.settings.Recent.has(e.Example) {
			e.Example = ""
		}
		some[key] = e
	}
	return some
}

// ForgetExample takes an address out of the file that names what is held back in the index at path, and returns how often it was
// there. The entries stay held.
func ForgetExample(path string, a addr.Addr) (n int, err error) {
	all, err := readHeld(path)
	if err != nil {
		return 0, err
	}
	for key, e := range all {
		if e.Example == a.String() {
			e.Example = ""
			all[key] = e
			n++
		}
	}
	if n == 0 {
		return 0, nil
	}
	return n, writeHeld(path, all)
}
