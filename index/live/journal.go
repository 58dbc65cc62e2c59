package live

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"blockd/lists"
)

// The journal is text, with one record a line: eight hexadecimal digits, a blank, a JSON
// object, LF. The digits are the CRC-32C of the object. The first line is journalHead.
//
// A crash may leave an unfinished last line. That change was never acknowledged, so the line
// is cut. A whole line whose digits are wrong is damaged: it is ignored and reported, and all
// other lines count.
//
// A journal whose second line is an opAfter goes on from a snapshot, and begins with secondHead, so
// that a program which knows no snapshots does not take it for all there is.
const (
	journalHead = "blockd live entries 1\n"
	secondHead  = "blockd live entries 2\n"
	maxRecord   = 16 << 10  // octets of a line; the longest reason and entry fit, with all JSON escapes
	maxJournal  = 512 << 20 // the largest journal that is read, in octets; compaction keeps it far below
)

// errNoJournal reports a file that is not a journal.
var errNoJournal = errors.New("this is no journal of live entries")

// The operations of records.
const (
	opAdd    = "add"
	opRemove = "remove"
	opFold   = "fold"  // the list file with this hash holds all entries up to a number
	opBase   = "base"  // no change; keeps the last number in use when its record is gone
	opAfter  = "after" // no change; the snapshot has all up to this number
	opRev    = "rev"   // no change; the entries are those of a Cursor
)

// record is one line.
type record struct {
	N      uint64    `json:"n"` // rises from line to line
	Op     string    `json:"op"`
	Owner  string    `json:"owner,omitempty"` // an older program does not know it, and leaves the line out
	Entry  string    `json:"entry,omitempty"`
	Action string    `json:"action,omitempty"`
	Why    string    `json:"why,omitempty"`
	Author string    `json:"author,omitempty"`
	At     time.Time `json:"at,omitzero"`
	Until  time.Time `json:"until,omitzero"`
	Force  bool      `json:"force,omitempty"`
	Proof  bool      `json:"proof,omitempty"` // as owner: an exception that an older program would believe is left out there
	Hash   string    `json:"hash,omitempty"`  // of opFold; else see setParts
	UpTo   uint64    `json:"up_to,omitempty"`
	Rev    uint64    `json:"rev,omitempty"`  // that the change has in the fleet; an older program does not know it, and leaves the line out
	From   string    `json:"from,omitempty"` // of opRev: see Cursor
}

// append appends the line of r to b.
func (r *record) append(b []byte) []byte {
	var object bytes.Buffer
	e := json.NewEncoder(&object)
	e.SetEscapeHTML(false)
	e.Encode(r) // r has only texts, numbers and valid times, so this cannot fail
	return append(b, withSum(bytes.TrimSuffix(object.Bytes(), []byte("\n")))...)
}

// withSum returns the line of an object.
func withSum(object []byte) []byte {
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(object, crc32.MakeTable(crc32.Castagnoli)), object)
}

// decode reads a line without its LF. It accepts only what append writes.
func (r *record) decode(line []byte) error {
	if len(line) < 9 || line[8] != ' ' {
		return errors.New("no record")
	}
	object := line[9:]
	if !bytes.Equal(line[:8], withSum(object)[:8]) {
		return errors.New("wrong checksum")
	}
	d := json.NewDecoder(bytes.NewReader(object))
	d.DisallowUnknownFields() // a later version may have written the field
	if err := d.Decode(r); err != nil {
		return err
	}
	if d.More() {
		return errors.New("text behind the record")
	}
	return nil
}

// entry returns the entry of an opAdd record.
func (r *record) entry() (*Entry, error) {
	c := Change{Entry: r.Entry, Why: r.Why, Author: r.Author}
	switch r.Action {
	case lists.Block.String():
	case lists.Allow.String():
		c.Action = lists.Allow
	default:
		return nil, fmt.Errorf("action %q", r.Action)
	}
	if err := errors.Join(oneLine("why", r.Why, MaxWhy), oneLine("author", r.Author, MaxAuthor)); err != nil {
		return nil, err
	}
	item, err := lists.ParseEntry(r.Entry, lists.Settings{Action: c.Action})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(setOwner(&item, r.Owner), provable(&item, r.Proof)); err != nil {
		return nil, err
	}
	e := &Entry{Number: r.N, Rev: r.Rev, Why: r.Why, Author: r.Author, Added: r.At.UTC().Truncate(time.Second), Forced: r.Force, NeedsProof: r.Proof}
	if !r.Until.IsZero() {
		e.Expires = r.Until.UTC().Truncate(time.Second)
	}
	return e, e.take(item)
}

// recordOf returns the record that adds e.
func recordOf(e *Entry) record {
	return record{N: e.Number, Op: opAdd, Rev: e.Rev, Owner: e.Item.Owner.Text, Entry: e.Text, Action: e.Item.Action.String(), Why: e.Why, Author: e.Author,
		At: e.Added, Until: e.Expires, Force: e.Forced, Proof: e.NeedsProof}
}

// contents is the state after all records of a journal.
type contents struct {
	base    *snapshot           // what the journal goes on from; nil = nothing
	entries map[identity]*Entry // what has changed since; with a base, also what is gone
	folds   []fold
	cursor  Cursor
	last    uint64 // the highest number that was used
	shared  uint64 // the number of the last change of an entry of everybody, or a higher one
	behind  uint64 // numbers up to this one are in the snapshot
	after   uint64 // the number that the snapshot must have; 0 = there need be none
	read    uint64 // the number of the last record
	stale   bool   // the snapshot has to be written anew
	folded  uint64 // the value of last when a fold had all entries
	records int    // number of valid records
	good    int64  // octets up to the end of the last whole line
	torn    int64  // octets after the last whole line
	damage  []Damage
	damaged int // number of damaged lines; damage has the first ones

	headless bool // the first line is no head
}

// Damage is one damaged line of the journal or record of the snapshot, with its number from 1 and the
// reason; 0 = none of them.
type Damage struct {
	Path string // "" = the journal
	Line int
	Why  string
}

// shownDamage bounds the damaged lines that are remembered.
const shownDamage = 8

// readJournal reads a whole journal, which goes on from a state. It returns the error of r, or errNoJournal, or an error
// for a journal above maxJournal.
func readJournal(r io.Reader, c *contents) (*contents, error) {
	in := bufio.NewReaderSize(io.LimitReader(r, maxJournal+1), maxRecord)
	last := tail{to: c}
	for number := 1; ; number++ {
		line, size, ended, err := readLine(in)
		if err != nil {
			return nil, err
		}
		if size == 0 {
			break
		}
		if !ended {
			if number == 1 && !bytes.HasPrefix([]byte(journalHead), line) && !bytes.HasPrefix([]byte(secondHead), line) {
				return nil, errNoJournal
			}
			c.torn = size
			break
		}
		last.next(number, line, c.good)
		c.good += size
	}
	if !last.end(c.torn > 0) {
		c.torn += c.good - last.from
		c.good = last.from
	}
	if c.records == 0 && c.headless {
		return nil, errNoJournal
	}
	if c.good > maxJournal {
		return nil, fmt.Errorf("a journal of more than %d octets", maxJournal)
	}
	return c, nil
}

// readLine reads one line. It returns at most maxRecord octets of it, without LF, and its full
// size. ended is false if the last line lacks its LF.
func readLine(in *bufio.Reader) (line []byte, size int64, ended bool, err error) {
	line, err = in.ReadSlice('\n')
	size = int64(len(line))
	for err == bufio.ErrBufferFull { // only the size of a longer line counts
		var more []byte
		line = []byte("too long for a record")
		more, err = in.ReadSlice('\n')
		size += int64(len(more))
	}
	switch {
	case err == io.EOF:
		return line, size, false, nil
	case err != nil:
		return nil, 0, false, err
	}
	return bytes.TrimSuffix(line, []byte("\n")), size, true, nil
}

// head takes the first line.
func (c *contents) head(line []byte) {
	if head := string(line) + "\n"; head != journalHead && head != secondHead {
		c.headless = true
		c.damages(1, "no head")
	}
}

// line applies one line, or records its damage.
func (c *contents) line(one *read) {
	if one.fault != nil {
		c.damages(one.number, one.fault.Error())
	} else if why := c.take(&one.record); why != "" {
		c.damages(one.number, why)
	}
}

func (c *contents) damages(number int, why string) {
	if c.damaged++; len(c.damage) < shownDamage {
		c.damage = append(c.damage, Damage{Line: number, Why: why})
	}
}

// take applies one record, or returns why it cannot.
func (c *contents) take(r *record) (why string) {
	if r.N <= c.read {
		return fmt.Sprintf("number %d behind number %d", r.N, c.read)
	}
	if r.Op == opAfter {
		c.after = r.N
	}
	if r.N <= c.behind { // a crash came before the journal began anew
		c.read = r.N
		c.records++
		return ""
	}
	switch r.Op {
	case opBase, opAfter:
	case opRev:
		c.cursor = cursorOf(r)
	case opFold:
		f, err := foldOf(r)
		if err != nil {
			return err.Error()
		}
		c.folds = keepFolds(append(c.folds, f))
		if f.upTo >= c.shared {
			c.folded = r.N
		}
	case opAdd, opRemove:
		e, err := r.entryOrKey()
		if err != nil {
			return err.Error()
		}
		if !e.Item.Personal() {
			c.shared = r.N
		}
		c.cursor.advance(r.Rev)
		switch {
		case r.Op == opRemove && c.base == nil:
			delete(c.entries, e.identity())
		case r.Op == opRemove:
			e.Number, e.gone = r.N, true
			fallthrough
		default:
			c.entries[e.identity()] = e
		}
	default:
		return fmt.Sprintf("it asks for %q", r.Op)
	}
	c.last, c.read = r.N, r.N
	c.records++
	return ""
}

// entryOrKey returns the entry of an opAdd record. For opRemove it returns an entry of which
// only key and scope count.
func (r *record) entryOrKey() (*Entry, error) {
	if r.Op == opAdd {
		return r.entry()
	}
	bare := record{Op: opAdd, Owner: r.Owner, Entry: r.Entry, Action: lists.Block.String()}
	return bare.entry()
}
