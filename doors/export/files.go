package export

import (
	"cmp"
	"context"
	"io"

	"blockd/bloom/filter"
	"blockd/internal/durable"
)

// Written is a file that was put in place.
type Written struct {
	Path  string
	Bytes int64
}

// WriteFiles puts the files of a filter in place when all of them are whole: a bitmap
// beside the sizes of another filter would clear senders that are listed. When ctx ends before
// that, the old files stay as they are.
func WriteFiles(ctx context.Context, f filter.Filter, out string) (all []Written, err error) {
	files, drafts := f.Files(out), []*durable.Draft(nil)
	for _, file := range files {
		d, err := durable.Create(file.Path, 0o644)
		if err != nil {
			return nil, err
		}
		defer d.Discard()
		if err := cmp.Or(file.Write(untilDone{ctx, d}), d.Sync(), ctx.Err()); err != nil {
			return nil, err
		}
		drafts = append(drafts, d)
	}
	for i, d := range drafts {
		if err := d.Commit(); err != nil {
			return all, err
		}
		info, err := d.Stat()
		if err != nil {
			return all, err
		}
		all = append(all, Written{files[i].Path, info.Size()})
	}
	return all, nil
}

// untilDone writes until a context ends.
type untilDone struct {
	ctx context.Context
	w   io.Writer
}

func (u untilDone) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if err := u.ctx.Err(); err != nil {
			return n, err
		}
		m, err := u.w.Write(p[:min(len(p), 1<<20)])
		if n += m; err != nil {
			return n, err
		}
		p = p[m:]
	}
	return n, nil
}
