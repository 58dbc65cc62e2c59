package history

import (
	"bytes"
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Query selects decisions: all fields that are set must fit.
// Upper and lower case are the same.
type Query struct {
	Sender    string // an address, or a domain for all of its senders; "<>" is the null sender
	Recipient string // as Sender
	Client    netip.Prefix
	List      string
	Ref       string
	Verdict   string
	Outcome   string // or Mail
	Since     time.Time
	Limit     int // 0 = MaxFound
}

// MaxFound bounds how many decisions one search returns: less than a megabyte.
const MaxFound = 1000

// Found is the result of a search.
type Found struct {
	Records []Record // the newest first
	More    bool     // there are more than Limit
	Damaged int      // lines that were left out of what was read
}

// Search looks for decisions, including those that wait for the disk. It fails with
// ErrBusy rather than wait for other searches.
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
	l.Flush() // decisions that cannot be written are counted, and cannot be found
	if oldest := time.Now().Add(-l.settings.Keep); q.Since.Before(oldest) {
		q.Since = oldest
	}
	return Search(ctx, l.settings.Folder, q)
}

// Search looks for decisions in a folder, whether or not a daemon writes there. For a
// missing folder the error wraps fs.ErrNotExist.
func Search(ctx context.Context, folder string, q Query) (found Found, err error) {
	limit := q.Limit
	if limit <= 0 || limit > MaxFound {
		limit = MaxFound
	}
	w := walker{since: q.Since, hint: q.hint(), each: func(r *Record) bool {
		if !q.matches(r) {
			return true
		}
		if len(found.Records) == limit {
			found.More = true
			return false
		}
		found.Records = append(found.Records, r.clone())
		return true
	}}
	err = w.walk(ctx, folder)
	found.Damaged = w.damaged
	return found, err
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

// walker walks over those decisions since a time whose lines contain hint.
type walker struct {
	since    time.Time
	hint     []byte
	progress func(done, total int64) // octets; may be nil
	each     func(*Record) bool
	text     []byte // of a segment, reused
	record   Record // the current one, reused
	damaged  int
	done     bool
}

func (w *walker) walk(ctx context.Context, folder string) error {
	all, err := segments(folder)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s segment) bool {
		return s.written.Before(w.since) // clocks are set back at times: any may be newer than the next one
	})
	var done, total int64
	for _, s := range all {
		total += s.size
	}
	for i := len(all) - 1; i >= 0 && !w.done; i-- {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.segment(all[i].path); err != nil {
			return err
		}
		if done += all[i].size; w.progress != nil {
			w.progress(done, total)
		}
	}
	return nil
}

// segment reads one file.
func (w *walker) segment(path string) error {
	text, err := readSegment(path, maxSegment+maxLine, w.text)
	if err == nil {
		w.text = text
		w.lines(text)
	}
	return err
}

// lines reads the text of a segment from its end.
func (w *walker) lines(text []byte) {
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the rest is being written, or a crash has cut it
	headed := bytes.HasPrefix(text, []byte(fileHead))
	if headed {
		text = text[len(fileHead):]
	} else if len(text) > 0 {
		w.damaged++ // the checksums still tell good lines from bad ones
	}
	whole := "" // text, once a line of it is read: one allocation for all
	for end := len(text) - 1; end >= 0 && !w.done; {
		start := bytes.LastIndexByte(text[:end], '\n') + 1
		line := text[start:end]
		switch {
		case w.hint != nil && !bytes.Contains(line, w.hint):
		case !summed(line):
			w.damaged++
		default:
			if whole == "" {
				whole = string(text)
			}
			w.line(whole[start+sumSize : end])
		}
		end = start - 1
	}
}

func (w *walker) line(line string) {
	if err := parseLine(line, &w.record); err != nil {
		w.damaged++
	} else if !w.record.Time.Before(w.since) {
		w.done = !w.each(&w.record)
	}
}

// hint is a text that each fitting line contains, so that the others need not be parsed. The
// names of lists and references are never escaped.
func (q *Query) hint() []byte {
	switch {
	case q.Ref != "" && plain(q.Ref):
		return []byte(strings.ToLower(q.Ref))
	case q.List != "" && plain(q.List):
		return []byte(q.List)
	}
	return nil
}

func plain(s string) bool { return string(appendText(nil, s)) == s }

func (q *Query) matches(r *Record) bool {
	return (q.Ref == "" || strings.EqualFold(q.Ref, r.Ref)) &&
		(q.List == "" || q.List == r.List) &&
		(q.Verdict == "" || q.Verdict == r.Verdict) &&
		(q.Outcome == "" || q.Outcome == r.Outcome || q.Outcome == Mail && r.Outcome != Listed) &&
		(!q.Client.IsValid() || r.Client.IsValid() && q.Client.Contains(r.Client.Unmap())) &&
		covers(q.Sender, r.Sender) && covers(q.Recipient, r.Recipient)
}

// covers reports whether want, an address or a domain, is or holds have.
func covers(want, have string) bool {
	switch at := strings.LastIndexByte(want, '@'); {
	case want == "", strings.EqualFold(want, have):
		return true
	case want == "<>":
		return have == ""
	case at > 0:
		return false
	default:
		return strings.EqualFold(strings.TrimPrefix(want, "@"), have[strings.LastIndexByte(have, '@')+1:])
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
