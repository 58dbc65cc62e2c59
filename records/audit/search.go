package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Query selects lines: all fields that are set must fit. Upper and lower case are the same.
type Query struct {
	Text   string // that Subject, Why, Detail or By has in it
	By     string // that By or Who has in it
	Action string // the whole of Action, or what stands before its dot
	Since  time.Time
	Until  time.Time // before it
	Limit  int       // 0 = MaxFound
	Cursor string    // Next of an answer: what is older than its lines
}

// MaxFound bounds how many lines one search returns.
const MaxFound = 1000

// ErrCursor reports a cursor that no answer had.
var ErrCursor = errors.New("no such cursor")

// Found is the result of a search.
type Found struct {
	Lines   []Line // the newest first
	Next    string // where the next search goes on; "" at the end
	Damaged int    // lines that cannot be read
}

// Search looks for lines in a folder, whether or not somebody writes there. A missing folder has none.
func Search(ctx context.Context, folder string, q Query) (found Found, err error) {
	files, err := filesOf(folder)
	if err != nil {
		return found, err
	}
	if q.Limit <= 0 || q.Limit > MaxFound {
		q.Limit = MaxFound
	}
	last, before := 0, int64(-1) // of a cursor
	if q.Cursor != "" {
		number, offset, ok := strings.Cut(q.Cursor, "-")
		var bad, worse error
		last, bad = strconv.Atoi(number)
		before, worse = strconv.ParseInt(offset, 10, 64)
		if !ok || bad != nil || worse != nil || last < 1 || before < 0 {
			return found, fmt.Errorf("%w: %q", ErrCursor, q.Cursor)
		}
	}
	q.Text, q.By, q.Action = strings.ToLower(q.Text), strings.ToLower(q.By), strings.ToLower(q.Action)
	for _, number := range slices.Backward(files) {
		limit := int64(-1)
		if last > 0 && number > last {
			continue
		}
		if number == last {
			limit = before
		}
		done, err := searchFile(ctx, fileName(folder, number), limit, func(text []byte, at int64) bool {
			line, err := parse(text)
			if err != nil {
				if _, is := gapOf(text); !is {
					found.Damaged++
				}
				return true
			}
			if !q.fits(&line) {
				return true
			}
			if len(found.Lines) == q.Limit {
				found.Next = fmt.Sprintf("%d-%d", number, at+int64(len(text))+1)
				return false
			}
			found.Lines = append(found.Lines, line)
			return true
		})
		if errors.Is(err, fs.ErrNotExist) {
			break // it has just been removed, as all before it
		}
		if err != nil || done {
			return found, err
		}
	}
	return found, nil
}

func (q *Query) fits(l *Line) bool {
	has := func(text, part string) bool { return strings.Contains(strings.ToLower(text), part) }
	kind, _, _ := strings.Cut(l.Action, ".")
	return (q.By == "" || has(l.By, q.By) || has(l.Who, q.By)) &&
		(q.Action == "" || q.Action == strings.ToLower(l.Action) || q.Action == kind) &&
		(q.Since.IsZero() || !l.Time.Before(q.Since)) && (q.Until.IsZero() || l.Time.Before(q.Until)) &&
		(q.Text == "" || has(l.Subject, q.Text) || has(l.Why, q.Text) || has(l.Detail, q.Text) || has(l.By, q.Text))
}

// searchFile calls each for the whole lines of a file before an offset, the last one first; a negative one is the file's end.
// at is where a line begins. done is set if each has returned false.
func searchFile(ctx context.Context, path string, before int64, each func(text []byte, at int64) bool) (done bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if before < 0 || before > info.Size() {
		before = info.Size()
	}
	block := make([]byte, 256<<10)
	var rest []byte // of a line whose beginning is in the block before
	whole := false  // rest ends with an end of line
	for before > 0 {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n := min(before, int64(len(block)))
		before -= n
		if _, err := f.ReadAt(block[:n], before); err != nil && err != io.EOF {
			return false, err
		}
		text := append(slices.Clone(block[:n]), rest...)
		for {
			i := bytes.LastIndexByte(text[:len(text)-btoi(whole)], '\n')
			if i < 0 {
				break
			}
			line := text[i+1:]
			text = text[:i+1]
			if whole && !each(bytes.TrimSuffix(line, []byte("\n")), before+int64(i)+1) {
				return true, nil
			}
			whole = true // what is behind the last end of line is unfinished
		}
		if rest = text; len(rest) > 2*maxLine {
			rest, whole = nil, false // no line is so long; Verify says what is wrong
		}
	}
	if whole && len(rest) > 0 {
		return !each(bytes.TrimSuffix(rest, []byte("\n")), 0), nil
	}
	return false, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
