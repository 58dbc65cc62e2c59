package build

import (
	"context"
	"encoding/binary"
	"fmt"
	"unsafe"

	"blockd/index/internal/format"
	"blockd/index/internal/segment"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/mail/digest"
)

// Intake is what was read of all sources. Sources are read one behind the other,
// each by all workers at once.
type Intake struct {
	hash    format.Hasher
	hashes  digest.Set // of addresses, that there are to be keys for
	now     int64      // Unix seconds: what has expired by then is not taken in
	records *scatter
	Workers []worker
	rows    []rowIntake
}

// rowIntake is what an intake has of one row, its records aside.
type rowIntake struct {
	live    bool // its entries count: the source was read to its end
	reasons *segment.Reasons
	rowCounts

	numbers []uint32 // of each of its reasons, in the table of all
	plain   bool     // the file has its records as the intake has them
}

// rowCounts are those of one row, or of what one worker has read of it.
type rowCounts struct {
	segment.Counts
	entries uint64
	bytes   uint64 // of the records in the file, if each key stands in one source only
	expires bool   // some entry does
}

func (c *rowCounts) add(o rowCounts) {
	c.Counts.Add(o.Counts)
	c.entries += o.entries
	c.bytes += o.bytes
	c.expires = c.expires || o.expires
}

// worker takes in what one goroutine reads. The line numbers of a source rise, and
// what one line says comes one behind the other.
type worker struct {
	in   *Intake
	lane *lane
	row  int
	rowCounts
	segment *segment.Lane // where else entries go; nil = nowhere

	reason string        // the last one that was asked for
	number uint32        // 1 + its number; 0: none was
	at     segment.Place // of the entry in hand
	tail   [64]byte
	key    []byte   // reused
	digest []byte   // reused
	owner  []byte   // the marker that was taken in last
	marked int      // and its row
	_      [64]byte // workers are written by different cores
}

func newIntake(h format.Hasher, hashes digest.Set, now int64, rows []rowIntake, records *scatter) *Intake {
	in := &Intake{hash: h, hashes: hashes, now: now, records: records, rows: rows, Workers: make([]worker, len(records.lanes))}
	for i := range in.Workers {
		in.Workers[i].in, in.Workers[i].lane = in, &records.lanes[i]
	}
	return in
}

// Begin makes what the workers add entries of row.
func (in *Intake) Begin(row int) {
	in.rows[row] = rowIntake{reasons: segment.NewReasons()}
	for i := range in.Workers {
		w := &in.Workers[i]
		w.row, w.rowCounts, w.at, w.reason, w.number = row, rowCounts{}, segment.Place{}, "", 0
		w.owner = w.owner[:0]
	}
}

// End tells whether the source of row was read to its good end.
func (in *Intake) End(row int, live bool) {
	r := &in.rows[row]
	r.live = live
	for i := range in.Workers {
		r.rowCounts.add(in.Workers[i].rowCounts)
	}
}

// counted is what all live rows have.
func (in *Intake) counted() (c rowCounts) {
	for i := range in.rows {
		if in.rows[i].live {
			c.add(in.rows[i].rowCounts)
		}
	}
	return c
}

// feed takes the entries of a segment in, as those of the row in hand.
func (in *Intake) feed(ctx context.Context, s *segment.Segment, report func(octets int, entries uint64)) error {
	r := &in.rows[in.Workers[0].row]
	r.reasons, r.Counts = s.Reasons, s.Counts
	return s.Each(ctx, len(in.Workers), func(i int, c *segment.Chunk, entries uint64) error {
		w, octets := &in.Workers[i], len(c.Rest)
		for range entries {
			key, e := c.Entry()
			if c.Bad {
				return nil // which each sees
			}
			if e.Row = w.row; w.in.expired(e) {
				continue
			}
			// The text lives for the call alone.
			if err := w.keep(unsafe.String(unsafe.SliceData(key), len(key)), e); err != nil {
				return err
			}
		}
		report(octets, entries)
		return nil
	})
}

// expired reports whether an entry ended before the build began. Its segment has it all the same: that
// is of the text, not of a time.
func (in *Intake) expired(e format.Entry) bool { return e.Expiry != 0 && e.Expiry <= in.now }

// Take takes in one item that is an entry. expiry is in Unix seconds, 0 is never.
func (w *worker) Take(it *lists.Item, expiry int64) error {
	if it.Personal() {
		return w.addPersonal(expiry, it)
	}
	switch it.Kind {
	case lists.Addr, lists.Domain:
		return w.add(it.Key, expiry, it)
	case lists.IP, lists.CIDR:
		return w.addNetwork(expiry, it)
	case lists.Glob, lists.Regexp:
		return w.addPattern(expiry, it)
	}
	return nil
}

// add takes in one entry for senders.
func (w *worker) add(key addr.Key, expiry int64, it *lists.Item) error {
	if len(key.Text) == 0 || len(key.Text) > format.MaxKey {
		return fmt.Errorf("key of %d octets, want 1 to %d", len(key.Text), format.MaxKey)
	}
	if (format.Scopes(key.Kind, true)|format.Scopes(key.Kind, false))&(1<<it.Scope) == 0 {
		return fmt.Errorf("%q cannot have scope %d", key.Text, it.Scope)
	}
	w.Kinds |= key.KindBit()
	return w.put(key.Text, expiry, it)
}

// put takes in one entry that has key in the store.
func (w *worker) put(key string, expiry int64, it *lists.Item) error {
	if it.Action > lists.AllowIfAuth || it.Line < 0 || expiry < 0 {
		return fmt.Errorf("%q with action %d, line %d, expiry %d", key, it.Action, it.Line, expiry)
	}
	e := format.Entry{Row: w.row, Line: it.Line, Scope: it.Scope, Action: it.Action, Expiry: expiry}
	if it.Line != w.at.Line {
		w.at = segment.Place{Line: it.Line}
	}
	w.at.Seq++
	if it.Reason != "" {
		var err error
		if e.Reason, err = w.reasonNumber(it.Reason); err != nil {
			return err
		}
	}
	if w.segment != nil {
		w.segment.Add(key, e)
	}
	if w.lane == nil || w.in.expired(e) { // only the segment is wanted
		return nil
	}
	return w.keep(key, e)
}

// keep takes in an entry, and of an address the keys for its digests. All that these say
// is that the row has the address.
func (w *worker) keep(key string, e format.Entry) error {
	if err := w.store(key, e); err != nil {
		return err
	}
	if key[0] < ' ' {
		return w.mark(key, e.Row)
	}
	if w.in.hashes == 0 {
		return nil
	}
	return format.DigestKeys(w.digest, key, w.in.hashes, func(key []byte) error {
		w.digest = key
		return w.store(unsafe.String(unsafe.SliceData(key), len(key)), format.Entry{Row: e.Row})
	})
}

// store takes in an entry whose reason has its number within the source: as a
// record of the key with this one entry, as it may stand in the file. The hash is
// made again when the record is merged: that takes 7 ns, where 16 octets more of a
// record would send ten million of them to a file.
func (w *worker) store(key string, e format.Entry) error {
	part := w.in.records.part(w.in.hash.SumText(key).Hi)
	n := len(key)
	if n < 0x80 && e.Row < 0x80 && e.Reason == 0 && e.Expiry == 0 {
		size := n + 4 + uvarintSize(uint64(e.Line))
		b, err := w.lane.add(part, size)
		if err != nil {
			return err
		}
		b[0] = byte(n)
		copy(b[1:], key)
		b[n+1], b[n+2], b[size-1] = 1, byte(e.Row), e.Flags()
		binary.PutUvarint(b[n+3:], uint64(e.Line))
		w.entries++
		w.bytes += format.SlotBytes + uint64(size)
		return nil
	}
	tail := format.AppendEntry(append(w.tail[:0], 1), e)
	size := uvarintSize(uint64(n)) + n + len(tail)
	b, err := w.lane.add(part, size)
	if err != nil {
		return err
	}
	at := binary.PutUvarint(b, uint64(n))
	at += copy(b[at:], key)
	copy(b[at:], tail)
	w.entries++
	w.expires = w.expires || e.Expiry != 0
	if e.Reason != 0 { // its number depends on who came first, so two octets stand for it
		size += 2 - uvarintSize(uint64(e.Reason-1))
	}
	w.bytes += format.SlotBytes + uint64(size)
	return nil
}

// reasonNumber is 1 + the number of reason among those of the source.
func (w *worker) reasonNumber(reason string) (uint32, error) {
	if w.number > 0 && reason == w.reason {
		return w.number, nil // lines rise: the first place is known
	}
	text := reason[:min(len(reason), format.MaxReason)]
	number, ok := w.in.rows[w.row].reasons.Add(text, w.at)
	if !ok {
		return 0, fmt.Errorf("more than %d different reasons", format.MaxReasons)
	}
	w.reason, w.number = string([]byte(reason)), number+1 // a copy: the text is the parser's
	return w.number, nil
}

// uvarintSize is how many octets a uvarint takes.
func uvarintSize(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// numberReasons makes the table of the reasons of all live rows.
func (in *Intake) numberReasons() (format.ReasonTable, error) {
	all := format.NewReasonTable()
	for i := range in.rows {
		r := &in.rows[i]
		if !r.live {
			continue
		}
		r.numbers = make([]uint32, r.reasons.Len())
		r.plain = !r.expires
		for _, own := range r.reasons.InOrder() {
			number, ok := all.Add(r.reasons.Text(own))
			if !ok {
				return all, fmt.Errorf("more than %d different reasons", format.MaxReasons)
			}
			r.numbers[own] = number
			r.plain = r.plain && number == own
		}
	}
	return all, nil
}

// addNetwork puts one entry of a row for client addresses into its bucket.
func (w *worker) addNetwork(expiry int64, it *lists.Item) error {
	if !format.Storable(it.Net) || it.Scope != lists.Exact && it.Scope != lists.Tree {
		return fmt.Errorf("network %s with scope %d", it.Net, it.Scope)
	}
	w.Networks++
	w.key = format.AppendNetKey(w.key[:0], it.Net)
	return w.put(string(w.key), expiry, it)
}

// addPattern takes in one entry that is a pattern.
func (w *worker) addPattern(expiry int64, it *lists.Item) error {
	key := format.PatternKey(it.Kind, it.Pattern)
	if len(key) < 2 || len(key) > format.MaxStored || it.Scope != lists.Exact {
		return fmt.Errorf("pattern of %d octets with scope %d", len(it.Pattern), it.Scope)
	}
	w.Patterns++
	w.Steps += it.Steps()
	if it.Free() {
		w.Free++
	}
	return w.put(key, expiry, it)
}

// boundPatterns refuses the source of a row that brings more patterns than an index
// holds. What it has read does not count.
func (b *Builder) boundPatterns(number int) error {
	c := b.in.counted()
	var err error
	switch {
	case c.Patterns > format.MaxPatterns:
		err = fmt.Errorf("with it all lists have %d patterns, at most %d can be held", c.Patterns, format.MaxPatterns)
	case c.Free > format.MaxFreePatterns:
		err = fmt.Errorf("with it all lists have %d patterns without a text of three octets that a sender must hold, at most %d can be tried on every sender",
			c.Free, format.MaxFreePatterns)
	case c.Steps > format.MaxSteps:
		err = fmt.Errorf("with it the expressions of all lists have %d steps and ranges of characters, at most %d can be held", c.Steps, format.MaxSteps)
	default:
		return nil
	}
	b.in.rows[number].live = false
	row := &b.Rows[number]
	fe := &lists.FileError{Path: row.Source.Path, Class: lists.TooBig, Err: err}
	row.Summary.Verdict, row.Summary.Why, row.Summary.Hash = lists.Refused, fe.Why(), [16]byte{}
	return fe
}

// addPersonal takes in one entry about recipients.
func (w *worker) addPersonal(expiry int64, it *lists.Item) error {
	key := it.Key
	if key.Text == "" || len(key.Text) > format.MaxKey || len(it.Owner.Text) > format.MaxKey {
		return fmt.Errorf("key of %d octets of an owner of %d", len(key.Text), len(it.Owner.Text))
	}
	w.key = w.key[:0]
	if it.Owner.Text != "" {
		w.key = format.AppendOwned(w.key, it.Owner.Text)
	}
	switch it.Kind {
	case lists.Recipient:
		if key.Kind != addr.Address || it.Scope != lists.Exact {
			return fmt.Errorf("recipient %q with scope %d", key.Text, it.Scope)
		}
		w.key = format.AppendRecipient(w.key, key.Text)
	case lists.Addr, lists.Domain:
		if (format.Scopes(key.Kind, true)|format.Scopes(key.Kind, false))&(1<<it.Scope) == 0 {
			return fmt.Errorf("%q cannot have scope %d", key.Text, it.Scope)
		}
		w.key = append(w.key, key.Text...)
	default:
		return fmt.Errorf("%s cannot have an owner", it.Name())
	}
	// put keeps nothing of the text.
	return w.put(unsafe.String(unsafe.SliceData(w.key), len(w.key)), expiry, it)
}

// mark takes in the marker of the owner of key, if that has one. The entries of an owner nearly always stand together.
func (w *worker) mark(key string, row int) error {
	if w.marked == row && len(w.owner) > 1 && format.IsOwned(key, w.owner[1:]) {
		return nil
	}
	owner := format.OwnerOf(key)
	if owner == "" {
		return nil
	}
	w.owner, w.marked = format.AppendOwner(w.owner[:0], owner), row
	return w.store(unsafe.String(unsafe.SliceData(w.owner), len(w.owner)), format.Entry{Row: row})
}
