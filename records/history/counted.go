package history

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/zeebo/xxh3"
)

const (
	// mostTops is how many counts run at a time: each has a core, and some ten megabytes.
	mostTops = 2

	// tallySteps divides hashes, so that a fraction of the rows is in memory at a time.
	tallySteps = 64

	// mostUnsummed bounds the rows of files without sums that one count has in memory, in octets: many lack them after an upgrade, and on a full disk.
	mostUnsummed = 32 << 20
)

// errUnsummed reports that too many files lack their sums.
var errUnsummed = errors.New("many files have no sums")

// Most is the package's Most for a history that is written here, including decisions that wait for the disk. Where the query selects by
// time, outcome, verdict, door and list alone, finished files are not read again: their sums are. It fails with ErrBusy rather than wait.
func (l *Log) Most(ctx context.Context, q TopQuery) (Top, error) {
	if l == nil {
		return Top{By: q.By, Rows: []TopRow{}}, nil
	}
	select {
	case l.tops <- struct{}{}:
		defer func() { <-l.tops }()
	default:
		return Top{}, ErrBusy
	}
	l.Settle() // what cannot be written is counted, and cannot be found
	if oldest := time.Now().Add(-l.settings.Keep); q.Since.Before(oldest) {
		q.Since = oldest
	}
	q.Memory = cmp.Or(q.Memory, logTopMemory)
	if q.summed() {
		for range 3 { // a file may be damaged, or change meanwhile
			top, err := mostBySums(ctx, l.settings.Folder, q, mostUnsummed)
			if errors.Is(err, errUnsummed) { // all is read, in the memory that a count may have
				break
			}
			if !errors.Is(err, errSums) {
				return top, err
			}
			wake(l.finished)
		}
	}
	read := time.Now()
	q.Progress = func(int64, int64) { // after each file: half of a core is enough
		select {
		case <-time.After(time.Since(read)):
		case <-ctx.Done():
		}
		read = time.Now()
	}
	return Most(ctx, l.settings.Folder, q)
}

// logTopMemory is TopQuery.Memory in a daemon.
const logTopMemory = 16 << 20

// counting counts one group over the sums of segments.
type counting struct {
	q     *TopQuery
	group int
	seed  uint64
	parts []*countedPart
	top   Top
	rows  []hashRow // those that may be among the first
	least uint64    // that a further one must have

	unsummed int // octets of rows that files without sums may still have
}

// countedPart are the rows of one segment.
type countedPart struct {
	segment segment
	file    *os.File // nil: rows has all
	rows    []byte
	at      int64        // of the file: where the rest begins
	left    int64        // octets that are not read yet
	sum     *xxh3.Hasher // of what was read of the file
	want    uint64       // what it is to be at the end
	path    string       // of the file
	wanted  []bool
}

// hashRow is a name by its hash, and where it stands.
type hashRow struct {
	hash, n uint64
	part    int32
	line    uint32
}

// mostBySums is Most by sums. The error wraps errSums if a file has changed meanwhile, and errUnsummed if those without sums have more than
// so many octets of rows.
func mostBySums(ctx context.Context, folder string, q TopQuery, unsummed int) (Top, error) {
	c := &counting{q: &q, unsummed: unsummed, group: slices.Index(Groups(), q.By), top: Top{By: q.By, Rows: []TopRow{}}}
	seed, err := seedOf(folder, false)
	if err != nil {
		return c.top, errSums
	}
	c.seed = seed
	defer c.close()
	if err := c.open(ctx, folder); err != nil {
		return c.top, err
	}
	if err := c.count(ctx); err != nil {
		return c.top, err
	}
	return c.top, c.name()
}

func (c *counting) close() {
	for _, p := range c.parts {
		if p.file != nil {
			p.file.Close()
		}
	}
}

// open finds the rows of all segments. Those without sums, and those of which a part alone is wanted, are read.
func (c *counting) open(ctx context.Context, folder string) error {
	all, err := segments(folder)
	if err != nil {
		return err
	}
	w := walker{since: c.q.Since, until: c.q.Until}
	for _, s := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.written.Before(c.q.Since) {
			continue
		}
		part := &countedPart{segment: s}
		var of *sums
		if o, err := openSums(folder, s); err == nil {
			oldest, newest := time.UnixMilli(o.head.Oldest), time.UnixMilli(o.head.Newest)
			outside := newest.Before(c.q.Since) || !c.q.Until.IsZero() && !oldest.Before(c.q.Until)
			whole := !oldest.Before(c.q.Since) && (c.q.Until.IsZero() || newest.Before(c.q.Until))
			whole = whole && o.head.Crowded == 0
			if outside || !whole {
				o.file.Close()
			}
			if outside {
				continue
			}
			if whole {
				of, part.file, part.at, part.left = &o.sums, o.file, o.groups[c.group].offset, int64(o.head.Rows[c.group])*sumRow
				part.sum, part.want, part.path = xxh3.New(), o.groups[c.group].hash, o.file.Name()
			}
		}
		if of == nil {
			if of, err = sumOf(s, c.seed, c.group, w); err != nil {
				return err
			}
			if part.rows = of.groups[c.group]; c.unsummed < len(part.rows) {
				return errUnsummed
			}
			c.unsummed -= len(part.rows)
		}
		c.top.Damaged += int(of.head.Damaged)
		part.wanted = make([]bool, len(of.facets))
		for i := range of.facets {
			if part.wanted[i] = of.facets[i].selects(&c.q.Query); part.wanted[i] {
				c.top.Decisions += of.facets[i].decisions
			}
		}
		c.parts = append(c.parts, part)
	}
	return nil
}

// below moves the rows with hashes up to most into room.
func (p *countedPart) below(most uint64, room []byte) ([]byte, error) {
	const chunk = sumRow * 1024
	for {
		i := 0
		for i < len(p.rows) {
			if hash, _, _, _ := rowOf(p.rows[i:]); hash > most {
				break
			}
			i += sumRow
		}
		room = append(room, p.rows[:i]...)
		if p.rows = p.rows[i:]; len(p.rows) > 0 || p.left == 0 {
			return room, nil
		}
		size := min(chunk, p.left)
		if p.rows = p.rows[:0]; int64(cap(p.rows)) < size {
			p.rows = make([]byte, size)
		}
		p.rows = p.rows[:size]
		if _, err := io.ReadFull(io.NewSectionReader(p.file, p.at, size), p.rows); err != nil {
			return room, errSums
		}
		p.at, p.left = p.at+size, p.left-size
		if p.sum.Write(p.rows); p.left == 0 && p.sum.Sum64() != p.want {
			os.Remove(p.path) // it is made anew
			return room, errSums
		}
	}
}

// count adds the rows up, a range of hashes after the other.
func (c *counting) count(ctx context.Context) error {
	limit, named := min(c.q.Limit, MaxTop), uint64(0)
	var room []byte
	var table hashTable
	for step := range uint64(tallySteps) {
		if err := ctx.Err(); err != nil {
			return err
		}
		table.empty()
		most := (step+1)<<58 - 1 // 2^64 by tallySteps; of the last step it is all
		for i, p := range c.parts {
			var err error
			if room, err = p.below(most, room[:0]); err != nil {
				return err
			}
			for row := room; len(row) > 0; row = row[sumRow:] {
				hash, n, line, facet := rowOf(row)
				if int(facet) >= len(p.wanted) {
					return errSums
				}
				if p.wanted[facet] {
					table.add(hash, uint64(n), int32(i), line)
					named += uint64(n)
				}
			}
		}
		c.top.Distinct += uint64(table.used)
		for _, row := range table.rows {
			if row.n > 0 {
				c.offer(row, limit)
			}
		}
	}
	c.top.Without = c.top.Decisions - named
	return nil
}

// offer takes a row if it can be among the first limit of all. Of those with equal counts all are kept, because names are not known
// yet; but never more than four times as many.
func (c *counting) offer(row hashRow, limit int) {
	if row.n < c.least {
		return
	}
	c.rows = append(c.rows, row)
	if len(c.rows) >= 8*limit {
		c.shrink(limit)
	}
}

// shrink sorts the rows, and keeps the first limit with those that have as many as the last of these.
func (c *counting) shrink(limit int) {
	slices.SortFunc(c.rows, func(a, b hashRow) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.hash, b.hash)) })
	end := min(limit, len(c.rows))
	for end > 0 && end < len(c.rows) && end < 4*limit && c.rows[end].n == c.rows[limit-1].n {
		end++
	}
	if c.rows = c.rows[:end]; end >= limit {
		c.least = c.rows[limit-1].n
	}
}

// name reads the names of the rows with the most.
func (c *counting) name() error {
	limit := min(c.q.Limit, MaxTop)
	c.shrink(limit)
	files := map[int32]*os.File{}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	var r Record
	text := make([]byte, maxLine)
	for _, row := range c.rows {
		f := files[row.part]
		if f == nil {
			var err error
			if f, err = os.Open(c.parts[row.part].segment.path); err != nil {
				return errSums
			}
			files[row.part] = f
		}
		n, err := f.ReadAt(text, int64(row.line))
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		line := text[:n]
		if end := slices.Index(line, '\n'); end >= 0 {
			line = line[:end]
		}
		if !summed(line) || parseLine(string(line[sumSize:]), &r) != nil {
			return errSums
		}
		name := nameOf(&r, c.q.By)
		if xxh3.HashStringSeed(name, c.seed) != row.hash {
			return errSums
		}
		c.top.Rows = append(c.top.Rows, TopRow{Name: name, Decisions: row.n, Share: float64(row.n) / float64(c.top.Decisions)})
	}
	slices.SortFunc(c.top.Rows, func(a, b TopRow) int { return -compareRows(a, b) })
	c.top.Rows = c.top.Rows[:min(limit, len(c.top.Rows))]
	return nil
}

// hashTable counts hashes in one array.
type hashTable struct {
	rows []hashRow // n is 0 where there is none
	used int
}

func (t *hashTable) empty() {
	for i := range t.rows {
		t.rows[i] = hashRow{}
	}
	t.used = 0
}

func (t *hashTable) add(hash, n uint64, part int32, line uint32) {
	if n == 0 {
		return
	}
	if 2*t.used >= len(t.rows) {
		t.grow()
	}
	for i := hash & uint64(len(t.rows)-1); ; i = (i + 1) & uint64(len(t.rows)-1) {
		switch row := &t.rows[i]; {
		case row.n == 0:
			*row = hashRow{hash, n, part, line}
			t.used++
			return
		case row.hash == hash:
			row.n += n
			return
		}
	}
}

func (t *hashTable) grow() {
	was := t.rows
	t.rows, t.used = make([]hashRow, max(1024, 2*len(was))), 0
	for _, row := range was {
		if row.n > 0 {
			t.add(row.hash, row.n, row.part, row.line)
		}
	}
}
