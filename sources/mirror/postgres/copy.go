package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"blockd/sources/mirror"
	"blockd/sources/mirror/query"
)

// chunkSize is how much of a COPY is parsed at once. One allocation for many rows is what makes them cheap.
const chunkSize = 64 << 10

// All reads everything by one COPY, in a snapshot with which the mark begins.
func (s *Source) All(ctx context.Context, yield func(mirror.Row) error) (mirror.Mark, error) {
	if err := s.connect(ctx); err != nil {
		return "", s.classed(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &chunks{full: make(chan string, 4)}
	stopped := make(chan struct{})
	defer close(stopped)
	go out.watch(s.stall, stopped, func() { cancel(errStalled) })

	mark, err := s.all(ctx, out, yield)
	err = s.end(ctx, err)
	if err != nil && context.Cause(ctx) == errStalled {
		err = errStalled
	}
	if err != nil {
		return "", s.classed(err)
	}
	return mark, nil
}

func (s *Source) all(ctx context.Context, out *chunks, yield func(mirror.Row) error) (mirror.Mark, error) {
	if err := s.begin(ctx); err != nil {
		return "", err
	}
	mark, err := s.mark(ctx)
	if err != nil {
		return "", err
	}
	fields, err := s.describe(ctx) // from here on its tables are locked against other columns
	if err != nil {
		return "", err
	}
	if before := s.fields; before != nil && !slices.Equal(fields, before) {
		return "", &mirror.Error{Class: mirror.ClassSchema, Err: errors.New("the columns of the query have changed under way; the next read takes them")}
	}
	columns, err := s.columns(fields)
	if err != nil {
		return "", err
	}
	return mark, s.copy(ctx, out, rowReader{columns: columns, values: make([]string, len(fields)), yield: yield})
}

// copy reads the rows. The connection is read by a goroutine of its own, so that some rows are parsed while the next ones
// come.
func (s *Source) copy(ctx context.Context, out *chunks, rows rowReader) error {
	group, ctx := errgroup.WithContext(ctx)
	var told int64 // rows, as the server counts them
	group.Go(func() error {
		defer close(out.full)
		out.ctx = ctx
		tag, err := s.conn.CopyTo(ctx, out, "copy (select * from "+s.inner()+") to stdout")
		if err != nil {
			return err
		}
		told = tag.RowsAffected()
		return out.flush()
	})
	group.Go(func() error {
		for text := range out.full {
			if err := rows.read(text); err != nil {
				return err
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if told != rows.count {
		return &mirror.Error{Class: mirror.ClassQuery, Err: fmt.Errorf("the server has sent %d rows and says that there were %d", rows.count, told)}
	}
	return nil
}

// chunks takes what COPY sends, and gives whole lines on, many at once.
type chunks struct {
	ctx  context.Context
	text []byte
	full chan string
	came atomic.Int64 // messages
}

// watch calls stalled if nothing comes for a time, until the read has stopped. A server that waits for blockd is not to blame.
func (c *chunks) watch(limit time.Duration, stopped chan struct{}, stalled func()) {
	tick := time.NewTicker(limit)
	defer tick.Stop()
	for before := int64(0); ; {
		select {
		case <-stopped:
			return
		case <-tick.C:
		}
		now := c.came.Load()
		if now == before && len(c.full) == 0 {
			stalled()
			return
		}
		before = now
	}
}

func (c *chunks) Write(p []byte) (int, error) {
	c.came.Add(1)
	if c.text = append(c.text, p...); len(c.text) > maxAnswer {
		return 0, &mirror.Error{Class: mirror.ClassQuery, Err: fmt.Errorf("a row of the COPY has more than %d octets", maxAnswer)}
	}
	if len(c.text) < chunkSize {
		return len(p), nil
	}
	return len(p), c.flush()
}

// flush gives the whole lines on, and keeps the rest.
func (c *chunks) flush() error {
	n := bytes.LastIndexByte(c.text, '\n') + 1
	if n == 0 {
		return nil
	}
	select {
	case c.full <- string(c.text[:n]):
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	c.text = c.text[:copy(c.text, c.text[n:])]
	if cap(c.text) > 16*chunkSize { // of a long row
		c.text = slices.Clone(c.text)
	}
	return nil
}

// rowReader reads rows in the text format of COPY: columns with tabs between them, \N for NULL, and backslashes.
type rowReader struct {
	columns query.Columns
	values  []string
	yield   func(mirror.Row) error
	count   int64
}

// read reads whole lines.
func (r *rowReader) read(text string) error {
	escapes := strings.IndexByte(text, '\\') >= 0
	for line := range strings.Lines(text) {
		rest, more := line[:len(line)-1], true
		for i := range r.values {
			if !more {
				return r.malformed()
			}
			r.values[i], rest, more = strings.Cut(rest, "\t")
			if escapes {
				r.values[i] = unescape(r.values[i])
			}
		}
		if more {
			return r.malformed()
		}
		r.count++
		if r.columns.Gone(r.values) {
			continue
		}
		if err := r.yield(r.columns.Row(r.values)); err != nil {
			return err
		}
	}
	return nil
}

func (r *rowReader) malformed() error {
	return &mirror.Error{Class: mirror.ClassQuery, Err: fmt.Errorf("row %d of the COPY has not the %d columns of the query", r.count+1, len(r.values))}
}

// unescape is the value of a field.
func unescape(field string) string {
	if strings.IndexByte(field, '\\') < 0 {
		return field
	}
	if field == `\N` {
		return ""
	}
	value := make([]byte, 0, len(field))
	for i := 0; i < len(field); i++ {
		b := field[i]
		if b == '\\' && i+1 < len(field) {
			i++
			if b = field[i]; strings.IndexByte("bfnrtv", b) >= 0 {
				b = "\b\f\n\r\t\v"[strings.IndexByte("bfnrtv", b)]
			}
		}
		value = append(value, b)
	}
	return string(value)
}
