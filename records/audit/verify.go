package audit

import (
	"bufio"
	"cmp"
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

	Gone map[string]int64 // lines that gave room to others' (Settings.Max), by who was authenticated; nil: none
	seen map[string]bool  // who has a line so far
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
	for range 3 { // somebody may make room meanwhile, file by file
		if c, err = walk(ctx, folder, known); !errors.As(err, new(*Broken)) {
			break
		}
	}
	return c, err
}

func walk(ctx context.Context, folder, known string) (c Chain, err error) {
	c.seen = map[string]bool{}
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
		g, isGap := gapOf(text[:len(text)-1])
		var line Line
		if !isGap {
			if line, err = parse(text[:len(text)-1]); err != nil {
				return &Broken{path, n, err.Error()}
			}
			g.Previous, g.Hash = line.Previous, line.Hash
		}
		if c.Hash == "" {
			c.First, c.Origin = line.Time, g.Previous
			c.Has = known != "" && known == g.Previous
		} else if g.Previous != c.Hash {
			return &Broken{path, n, "it does not go on from the line before it; one is left out, put in, or in another place"}
		}
		c.Hash, c.Has = g.Hash, c.Has || known != "" && known == g.Hash
		if isGap {
			if err := c.gone(g); err != "" {
				return &Broken{path, n, err}
			}
			continue
		}
		if c.Lines == 0 {
			c.First = line.Time
		}
		c.Lines, c.Last = c.Lines+1, line.Time
		c.seen[cmp.Or(line.Who, WhoOf(line.By))] = true
		if c.Lines%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// gone takes up a gap. Room is made of somebody's oldest lines alone: one that leaves older ones is not of this
// program.
func (c *Chain) gone(g gap) (fault string) {
	for who, n := range g.Gone {
		if c.seen[who] {
			return fmt.Sprintf("%d lines of %q have gone, and older ones of the same are there", n, who)
		}
		if c.Gone == nil {
			c.Gone = map[string]int64{}
		}
		c.Gone[who] += n
	}
	if len(g.Gone) == 0 {
		return "lines have gone, and nothing says whose"
	}
	return ""
}
