package index

import (
	"bytes"
	"context"
	"slices"

	"blockd/index/internal/format"
)

// checkDraft checks ix, which is the file that w has written, opened as a reader
// opens it, as Verify does. Its pages were read back and checked against w when they
// were written: so ix must say of them what w did. The filter that the file has is
// asked for all keys that the pages had.
func (w *fileWriter) checkDraft(ctx context.Context, ix *Index) error {
	defer w.stages.begin("verify")()
	size := int64(ix.file.Size)
	w.progress.report(Progress{Stage: "verify", Total: size})
	if !bytes.Equal(ix.file.Encode(), w.head.Encode()) {
		return format.Corrupt(0, "the header is not the one that was written")
	}
	if !slices.Equal(ix.file.Parts, w.draft.Parts) {
		return format.Corrupt(ix.file.Sections[format.SecDirectory].Offset, "the directory is not the one that was written")
	}
	if err := ix.promote(ctx); err != nil { // reads and sums all of the filter
		return err
	}
	if err := w.hashes.ask(ctx, w.Workers, ix.filter.near.Load(), ix.file.Sections[format.SecFilter].Offset, w.total.Keys); err != nil {
		return err
	}
	w.progress.report(Progress{Stage: "verify", Done: size, Total: size})
	return ix.file.Holds(w.total)
}
