package history

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// place is where a walk has come to: behind a line, which it names by its beginning and its checksum, because lines
// move when share makes room. Without a line it is before all lines of a segment.
type place struct {
	segment uint64 // 0: none
	line    int64
	sum     string
}

// cursorMarks are the first letters of cursors: the newest first, the oldest first.
var cursorMarks = map[bool]string{false: "n", true: "o"}

func (p place) cursor(oldest bool) string {
	if p.sum == "" {
		return fmt.Sprintf("%s%d", cursorMarks[oldest], p.segment)
	}
	return fmt.Sprintf("%s%d-%d-%s", cursorMarks[oldest], p.segment, p.line, p.sum)
}

// back is a cursor for what comes before the line.
func (p place) back(oldest bool) string {
	return strings.ToUpper(cursorMarks[oldest]) + p.cursor(oldest)[1:]
}

// backward is the query that has what comes before q's cursor, in the other direction; false if q goes on.
func backward(q Query) (Query, bool) {
	rest, ok := strings.CutPrefix(q.Cursor, strings.ToUpper(cursorMarks[q.Oldest]))
	if !ok || q.Cursor == "" {
		return q, false
	}
	q.Oldest = !q.Oldest
	q.Cursor = cursorMarks[q.Oldest] + rest
	return q, true
}

func parsePlace(cursor string, oldest bool) (p place, err error) {
	bad := fmt.Errorf("%w: %q", ErrCursor, cursor[:min(len(cursor), 64)])
	text, ours := strings.CutPrefix(cursor, cursorMarks[oldest])
	number, rest, behind := strings.Cut(text, "-")
	if p.segment, err = strconv.ParseUint(number, 10, 64); !ours || err != nil || p.segment == 0 {
		return place{}, bad
	}
	if !behind {
		return p, nil
	}
	line, sum, _ := strings.Cut(rest, "-")
	if p.line, err = strconv.ParseInt(line, 10, 64); err != nil || p.line < 0 || len(sum) != sumSize-1 || strings.Trim(sum, "0123456789abcdef") != "" {
		return place{}, bad
	}
	p.sum = sum
	return p, nil
}

// goesOn narrows the part of a segment's text that is to be read to what is left of it. If the line has gone, some lines
// are read again, and none is left out.
func (p place) goesOn(text []byte, start, end int, oldest bool) (int, int) {
	if p.sum == "" {
		return start, end
	}
	at, mark := int(min(p.line, int64(end))), []byte("\n"+p.sum+" ")
	if at < start || !bytes.HasPrefix(text[at:], mark[1:]) || at > 0 && text[at-1] != '\n' {
		if found := bytes.LastIndex(text[:end], mark); found >= 0 {
			at = found + 1
		} else if oldest {
			return start, end
		} else {
			return start, max(start, bytes.LastIndexByte(text[:at], '\n')+1)
		}
	}
	if oldest {
		return at + bytes.IndexByte(text[at:], '\n') + 1, end
	}
	return start, at
}
