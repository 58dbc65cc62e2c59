package index

import (
	"context"
	"fmt"
	"runtime"
	"unsafe"

	"blockd/index/internal/format"
	"blockd/lists"
)

// NoLineError reports an entry that the format entries cannot say: a pattern.
type NoLineError struct {
	Row  int // of Lists()
	Name string
}

func (e *NoLineError) Error() string { return fmt.Sprintf("%q cannot be a line", e.Name) }

// Lines walks over the entries of one of so many parts, as lines of the format entries (lists.AppendEntryLine): those about recipients
// too, and without those that are held. All parts together have each entry once for each place where it stands, in no order, but those of one
// key one after the other. Each part may have a goroutine of its own.
//
// want says by row and key whether use is to have the line; nil wants all. Both keep nothing of what they get. The error is a *NoLineError,
// wraps ErrRead, or is that of ctx or of use.
func (ix *Index) Lines(ctx context.Context, part, parts int, want func(row int, key []byte) bool, use func(row int, line []byte) error) error {
	w := lineWalk{ix: ix, want: want, use: use}
	if len(ix.held) > 0 {
		w.held = map[string]bool{}
		for h := range ix.held {
			w.held[h.Name] = true
		}
	}
	for number := uint64(part); number < ix.file.Pages; number += uint64(parts) {
		if number%64 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		w.failed = nil
		err := ix.mapping.guarded(func() error { return w.page(number) })
		if w.failed != nil {
			return w.failed
		}
		if err != nil {
			return ix.unreadable(err)
		}
	}
	if ix.overlay != nil && part == 0 {
		for _, slot := range ix.overlay.slots {
			if slot.at == 0 {
				continue
			}
			r := ix.overlay.record(slot)
			if key := r.Key(); !format.IsDerived(key) && r.Rest[0] != 0 {
				if err := w.record(&r, key); err != nil {
					return err
				}
			}
		}
	}
	runtime.KeepAlive(ix)
	return nil
}

// lineWalk is one walk of Lines.
type lineWalk struct {
	ix     *Index
	want   func(row int, key []byte) bool
	use    func(row int, line []byte) error
	held   map[string]bool // names of held entries
	line   []byte          // of the entry in hand; its key comes first
	failed error           // not of the file
}

func (w *lineWalk) page(number uint64) error {
	page, err := w.ix.page(number)
	if err != nil {
		return err
	}
	if !page.Fits() {
		return w.ix.file.PageDamaged(number)
	}
	n := page.Records()
	for i := range n {
		r := record{Cursor: page.At(i, n)}
		key := r.Key()
		if !r.Bad && (format.IsDerived(key) || w.ix.overlay != nil && w.ix.overlay.speaksFor(key)) {
			continue
		}
		if !r.Bad {
			w.failed = w.record(&r, key)
		}
		if r.Bad {
			return w.ix.file.PageDamaged(number)
		}
		if w.failed != nil {
			return w.failed
		}
	}
	return nil
}

// record takes the entries of a record, which is read up to its key. If it is damaged, it is Bad in the end.
func (w *lineWalk) record(r *record, key []byte) error {
	named := key[0] >= ' ' // the key of a sender is its own name
	if named {
		w.line = append(w.line[:0], key...)
	} else {
		var it lists.Item
		format.Describe(&it, string(key))
		w.line = append(w.line[:0], it.Name()...)
	}
	size := len(w.line)
	n, _ := r.Sources()
	for range n {
		e := r.Entry()
		if e.Row >= len(w.ix.file.Lists) {
			r.Fail()
		}
		if r.Bad {
			return nil
		}
		name := w.line[:size]
		if w.want != nil && !w.want(e.Row, name) {
			continue
		}
		if len(w.held) > 0 && !e.Action.Allows() && w.held[string(name)] {
			var it lists.Item
			format.Describe(&it, string(key))
			if w.ix.held[HeldEntry{w.ix.file.Lists[e.Row].Source.List, it.Kind, e.Scope, it.Name()}] {
				continue
			}
		}
		reason := ""
		if e.Reason != 0 {
			octets, ok := format.ReasonAt(w.ix.present(r, &e), e.Reason-1)
			if !ok {
				r.Fail()
				return nil
			}
			reason = string(octets)
		}
		line, ok := w.line, false
		if named {
			line, ok = lists.AppendSimpleLine(name, unsafe.String(unsafe.SliceData(name), size), e.Scope, e.Action, e.Expiry, reason) // which keeps nothing of it
		}
		if !ok {
			it := lists.Item{Scope: e.Scope, Action: e.Action, Expires: e.Expiry, Reason: reason}
			format.Describe(&it, string(key))
			if line, ok = lists.AppendEntryLine(name[:0], &it); !ok {
				return &NoLineError{e.Row, it.Name()}
			}
		}
		w.line = line
		if err := w.use(e.Row, line); err != nil {
			return err
		}
	}
	return nil
}
