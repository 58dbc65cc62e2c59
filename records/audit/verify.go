package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Chain is what a look through the whole journal finds.
type Chain struct {
	Lines       int64
	First, Last time.Time // of the first and the last line
	Origin      string    // Previous of the first line: not "" where older files have been removed
	Hash        string    // of the last line; "" if there is none
	Has         bool      // a hash that was asked for is that of one of the lines, or Origin
	Unfinished  bool      // the last line has no end: a crash came between, and the change was not made
}

// Broken says where a chain is broken.
type Broken struct {
	File string
	Line int64 // from 1
	Why  string
}

// Error is a line for people.
func (b *Broken) Error() string {
	return fmt.Sprintf("%s:%d: the chain is broken: %s", b.File, b.Line, b.Why)
}

// Verify reads the whole journal in a folder, and fails with a *Broken at the first line that does not go on from the one
// before it. known is a hash that was noted before, or "". A missing folder has no lines.
func Verify(ctx context.Context, folder, known string) (c Chain, err error) {
	files, err := filesOf(folder)
	if err != nil {
		return c, err
	}
	for i, number := range files {
		if i > 0 && number != files[i-1]+1 {
			return c, &Broken{fileName(folder, number), 1, fmt.Sprintf("the file before it, %s, is missing", fileName(folder, number-1))}
		}
		if c.Unfinished {
			return c, &Broken{fileName(folder, files[i-1]), c.Lines, "its last line is unfinished, and another file goes on"}
		}
		if err := c.file(ctx, fileName(folder, number), known); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *Chain) file(ctx context.Context, path, known string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 2*maxLine)
	for n := int64(1); ; n++ {
		text, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			c.Unfinished = len(text) > 0
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			return &Broken{path, n, "the line is longer than any can be"}
		case err != nil:
			return err
		}
		line, err := parse(text[:len(text)-1])
		if err != nil {
			return &Broken{path, n, err.Error()}
		}
		if c.Lines == 0 {
			c.First, c.Origin = line.Time, line.Previous
			c.Has = known != "" && known == line.Previous
		} else if line.Previous != c.Hash {
			return &Broken{path, n, "it does not go on from the line before it; one is left out, put in, or in another place"}
		}
		c.Lines, c.Last, c.Hash = c.Lines+1, line.Time, line.Hash
		c.Has = c.Has || known == line.Hash
		if c.Lines%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
