package history

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Query selects decisions: all fields that are set must fit.
// Upper and lower case are the same.
type Query struct {
	Text      string // that a text of the decision has in it: see fits
	Sender    string // an address, or a domain for all of its senders; "<>" is the null sender
	Recipient string // as Sender
	Domain    string // of the sender, and none below it; "<>" is the null sender
	Client    netip.Prefix
	List      string
	Entry     string // the entry that decided, or would have
	Door      string
	Ref       string
	Verdict   string
	Outcome   string // or Mail
	Since     time.Time
	Until     time.Time // before it; zero: now
	Oldest    bool      // the oldest first
	Cursor    string    // Next or Prev of an answer with the same Oldest
	Limit     int       // 0 = MaxFound
}

// MaxFound bounds how many decisions one search returns: less than a megabyte.
const MaxFound = 1000

// The octets of the files after which a search of a Log ends, and Next says where to go on: about a second's work.
// A line that lacks what is searched for is passed over ten times as fast as one that is read.
// One whose sums tell that it has nothing costs as much as a part of it.
const (
	mostScanned = 256 << 20
	mostPassed  = 1 << 30
	passedCost  = 32
)

// ErrCursor is wrapped by the error of a cursor that no answer had, or that belongs to the other order.
var ErrCursor = errors.New("no such cursor")

// Found is the result of a search.
type Found struct {
	Records []Record // the newest first, unless Query.Oldest is set
	More    bool     // there are more than Limit, or there may be
	Next    string   // where the next search goes on; "" at the end. There may be no more, and less than Limit before it
	Prev    string   // where a search has what came before these; "" at the beginning
	Damaged int      // lines that were left out of what was read
}

// Search looks for decisions, including those that wait for the disk. It fails with
// ErrBusy rather than wait for other searches. It may end before it has Limit decisions, after some time: see Found.Next.
func (l *Log) Search(ctx context.Context, q Query) (Found, error) {
	if l == nil {
		return Found{}, nil
	}
	select {
	case l.searches <- struct{}{}:
		defer func() { <-l.searches }()
	default:
		return Found{}, ErrBusy
	}
	l.Settle() // decisions that cannot be written are counted, and cannot be found
	if oldest := time.Now().Add(-l.settings.Keep); q.Since.Before(oldest) {
		q.Since = oldest
	}
	most := int64(mostScanned)
	if len(q.parts()) > 0 {
		most = mostPassed
	}
	return search(ctx, l.settings.Folder, q, most)
}

// Search looks for decisions in a folder, whether or not a daemon writes there, however long it takes. For a
// missing folder the error wraps fs.ErrNotExist.
func Search(ctx context.Context, folder string, q Query) (Found, error) {
	return search(ctx, folder, q, math.MaxInt64)
}

func search(ctx context.Context, folder string, q Query, most int64) (Found, error) {
	if back, ok := backward(q); ok {
		return searchBack(ctx, folder, q, back, most)
	}
	found, _, err := searchOn(ctx, folder, q, most)
	return found, err
}

// ends are where the rows of an answer begin and end; last may be beyond them.
type ends struct{ first, last place }

func searchOn(ctx context.Context, folder string, q Query, most int64) (found Found, at ends, err error) {
	limit := q.Limit
	if limit <= 0 || limit > MaxFound {
		limit = MaxFound
	}
	w := walker{since: q.Since, until: q.Until, oldest: q.Oldest, parts: q.parts(), passing: passingBy(folder, &q), most: most}
	if q.Cursor != "" {
		if w.from, err = parsePlace(q.Cursor, q.Oldest); err != nil {
			return found, at, err
		}
	}
	w.each = func(r *Record) bool {
		if !q.matches(r) {
			return true
		}
		q.narrow(r)
		if len(found.Records) == limit {
			found.Next = at.last.cursor(q.Oldest)
			return false
		}
		found.Records = append(found.Records, r.clone())
		if at.last = w.here; len(found.Records) == 1 {
			at.first = at.last
		}
		return true
	}
	err = w.walk(ctx, folder)
	if found.Next == "" && w.rest.segment > 0 {
		found.Next, at.last = w.rest.cursor(q.Oldest), w.rest
	}
	if q.Cursor != "" && at.first.segment > 0 {
		found.Prev = at.first.back(q.Oldest)
	}
	found.More = found.Next != ""
	found.Damaged = w.damaged
	return found, at, err
}

// searchBack is search with Prev of an answer: back is the same query in the other direction, from there on.
func searchBack(ctx context.Context, folder string, q, back Query, most int64) (Found, error) {
	found, at, err := searchOn(ctx, folder, back, most)
	if err != nil {
		return found, err
	}
	if len(found.Records) == 0 && found.Next == "" { // what was there has gone
		q.Cursor = ""
		return search(ctx, folder, q, most)
	}
	slices.Reverse(found.Records)
	found.Prev, found.Next = "", ""
	if found.More {
		found.Prev = at.last.back(q.Oldest)
	}
	if found.More = at.first.segment > 0; found.More {
		found.Next = at.first.cursor(q.Oldest)
	}
	return found, nil
}

// Walk calls each for the decisions since a time, the newest first, until each returns
// false. r is valid only during the call. damaged counts lines that were left out. A
// daemon may write there meanwhile. The error is that of ctx or of the disk; for a
// missing folder it wraps fs.ErrNotExist.
func Walk(ctx context.Context, folder string, since time.Time, each func(r *Record) bool) (damaged int, err error) {
	w := walker{since: since, each: each}
	err = w.walk(ctx, folder)
	return w.damaged, err
}

// walker walks over those decisions of a time whose lines contain all parts.
type walker struct {
	since, until time.Time               // zero: any
	oldest       bool                    // the oldest first
	parts        [][]byte                // in lower case
	passing      *passing                // which segments need not be read; nil: all are
	from         place                   // the zero place: the beginning
	most         int64                   // octets of files that are read, to the next end of one; 0 = any
	progress     func(done, total int64) // octets; may be nil
	each         func(*Record) bool

	here    place  // of the line that each is called for
	rest    place  // where the walk would go on that most has ended
	text    []byte // of a segment, reused
	room    []byte // of a line
	record  Record // the current one, reused
	damaged int
	done    bool
}

func (w *walker) walk(ctx context.Context, folder string) error {
	all, err := segments(folder)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s segment) bool {
		return s.written.Before(w.since) || // clocks are set back at times: any may be newer than the next one
			w.from.segment > 0 && (s.number > w.from.segment && !w.oldest || s.number < w.from.segment && w.oldest)
	})
	if !w.oldest {
		slices.Reverse(all)
	}
	var done, total, read int64
	for _, s := range all {
		total += s.size
	}
	for i, s := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if w.passing.passes(s) {
			read += s.size / passedCost
		} else if err := w.segment(s); err != nil {
			return err
		} else {
			read += s.size
		}
		if done += s.size; w.progress != nil {
			w.progress(done, total)
		}
		if w.done {
			return nil
		}
		if w.most > 0 && read >= w.most && i+1 < len(all) {
			w.rest = place{segment: all[i+1].number}
			return nil
		}
	}
	return nil
}

// segment reads one file.
func (w *walker) segment(s segment) error {
	text, err := readSegment(s.path, maxSegment+maxLine, w.text)
	if err == nil {
		w.text = text
		w.here.segment = s.number
		w.lines(text)
	}
	return err
}

// lines reads the text of a segment from its end, or from its beginning.
func (w *walker) lines(text []byte) {
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the rest is being written, or a crash has cut it
	start, end := len(fileHead), len(text)
	if !bytes.HasPrefix(text, []byte(fileHead)) {
		if start = 0; len(text) > 0 {
			w.damaged++ // the checksums still tell good lines from bad ones
		}
	}
	if w.from.segment == w.here.segment {
		start, end = w.from.goesOn(text, start, end, w.oldest)
	}
	whole := "" // text, once a line of it is read: one allocation for all
	sure := 0   // octets that come next, in which all parts are somewhere
	for start < end && !w.done {
		if sure <= 0 && len(w.parts) > 0 {
			block := w.block(text, start, end)
			if sure = len(block); !w.may(block) {
				if sure = 0; w.oldest {
					start += len(block)
				} else {
					end -= len(block)
				}
				continue
			}
		}
		from, to := start, end-1
		if w.oldest {
			to = start + bytes.IndexByte(text[start:], '\n')
			start = to + 1
		} else {
			from = start + lastEnd(text[start:to]) + 1
			end = from
		}
		line := text[from:to]
		sure -= len(line) + 1
		switch {
		case !w.may(line):
		case !summed(line):
			w.damaged++
		default:
			if whole == "" {
				whole = string(text)
			}
			w.here.line, w.here.sum = int64(from), whole[from:from+sumSize-1]
			w.line(whole[from+sumSize : to])
		}
	}
}

// block is the lines that come next between start and end, in one piece: with many at a time it is soon known that they lack a part.
func (w *walker) block(text []byte, start, end int) []byte {
	const octets = 16 << 10
	switch {
	case end-start <= octets:
		return text[start:end]
	case w.oldest:
		return text[start : start+octets+bytes.IndexByte(text[start+octets:], '\n')+1]
	default:
		return text[start+1+lastEnd(text[start:end-octets]) : end]
	}
}

// may reports whether a line has all parts, or could have them in another way: letters beyond ASCII have lower
// cases of their own.
func (w *walker) may(line []byte) bool {
	if len(w.parts) == 0 {
		return true
	}
	var ascii bool
	if w.room, ascii = lowered(w.room[:0], line); !ascii {
		return true
	}
	for _, part := range w.parts {
		if !bytes.Contains(w.room, part) {
			return false
		}
	}
	return true
}

func (w *walker) line(line string) {
	if err := parseLine(line, &w.record); err != nil {
		w.damaged++
	} else if !w.record.Time.Before(w.since) && (w.until.IsZero() || w.record.Time.Before(w.until)) {
		w.done = !w.each(&w.record)
	}
}

// parts are texts in lower case that each fitting line contains, so that the others need not be parsed.
func (q *Query) parts() (parts [][]byte) {
	texts := []string{q.Ref, q.List, q.Text, q.Entry}
	if q.Client.IsSingleIP() {
		texts = append(texts, q.Client.Addr().String())
	}
	for _, address := range []string{q.Sender, q.Recipient, q.Domain} {
		if address != "<>" {
			texts = append(texts, strings.TrimPrefix(address, "@"))
		}
	}
	escaped := func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '\\' }
	for _, text := range texts {
		longest := ""
		for _, run := range strings.FieldsFunc(strings.ToLower(text), escaped) {
			if len(run) > len(longest) {
				longest = run
			}
		}
		if longest != "" {
			parts = append(parts, []byte(longest))
		}
	}
	return parts
}

func (q *Query) matches(r *Record) bool {
	return (q.Ref == "" || same(q.Ref, r.Ref)) &&
		(q.List == "" || q.List == r.List) &&
		(q.Verdict == "" || q.Verdict == r.Verdict) &&
		(q.Outcome == "" || q.Outcome == r.Outcome || q.Outcome == Mail && r.Outcome != Listed) &&
		(!q.Client.IsValid() || r.Client.IsValid() && q.Client.Contains(r.Client.Unmap())) &&
		(q.Entry == "" || same(q.Entry, r.Entry)) && (q.Door == "" || q.Door == r.Door) && q.domainFits(r) &&
		covers(q.Sender, r.Sender) && covers(q.Recipient, r.Recipient) && q.fits(r)
}

// narrow leaves of a refusal that stands for those of several recipients the one that is known to be the mailbox's that
// is asked about: the others are other people's.
func (q *Query) narrow(r *Record) {
	if r.Several && strings.LastIndexByte(q.Recipient, '@') > 0 {
		r.Repeated, r.Several = 0, false
	}
}

func (q *Query) domainFits(r *Record) bool {
	return q.Domain == "" || same(q.Domain, nameOf(r, "domain"))
}

// fits reports whether a text of a decision has the searched text in it.
func (q *Query) fits(r *Record) bool {
	if q.Text == "" {
		return true
	}
	text := strings.ToLower(q.Text)
	for _, have := range r.texts() {
		if strings.Contains(strings.ToLower(have), text) {
			return true
		}
	}
	return false
}

// texts are what a Query.Text is looked for in.
func (r *Record) texts() [8]string {
	texts := [8]string{r.Sender, r.Recipient, r.Helo, r.Ref, r.List, r.Entry, r.Reason}
	if r.Client.IsValid() {
		texts[7] = r.Client.String()
	}
	return texts
}

// same reports whether two names are one: their lower cases are, as in counts.
func same(a, b string) bool { return a == b || Lower(a) == Lower(b) }

// covers reports whether want, an address or a domain, is or holds have.
func covers(want, have string) bool {
	switch at := strings.LastIndexByte(want, '@'); {
	case want == "", same(want, have):
		return true
	case want == "<>":
		return have == ""
	case at > 0:
		return false
	default:
		return same(strings.TrimPrefix(want, "@"), have[strings.LastIndexByte(have, '@')+1:])
	}
}

// clone copies the texts of r out of the segment that they are parts of.
func (r *Record) clone() Record {
	c := *r
	for _, s := range []*string{&c.Door, &c.Outcome, &c.Verdict, &c.Helo, &c.Sender, &c.Recipient, &c.Generation, &c.Ref,
		&c.Source, &c.List, &c.File, &c.Entry, &c.Scope, &c.Action, &c.Reason} {
		*s = strings.Clone(*s)
	}
	return c
}
