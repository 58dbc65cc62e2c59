package mirror

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"blockd/internal/runs"
)

// Read reads the source as a whole, and what changes meanwhile. The copy is replaced if the source has said that this
// was all. After an error it is as it was. A file whose entries are the same stays the file that it was.
func (m *Mirror) Read(ctx context.Context, origin Origin) (*Report, error) {
	return m.read(ctx, origin, nil)
}

// Reconcile is Read of a source whose changes have been followed so far. It counts the entries of which these did not
// tell, as Report.Missed.
func (m *Mirror) Reconcile(ctx context.Context, origin Origin) (*Report, error) {
	since, differ := m.mark, map[string]bool{}
	told, err := m.read(ctx, origin, differ)
	if err != nil || len(differ) == 0 {
		return told, err
	}
	_, err = origin.Changes(ctx, since, func(c Change) error { // that came after the last poll were not missed
		if line, ok := m.line(nil, &Row{Entry: c.Entry, Owner: c.Owner}, &Report{}); ok {
			delete(differ, keyScope(line))
		}
		return nil
	})
	if err == nil {
		told.Missed = int64(len(differ))
	}
	return told, nil
}

// read is Read. What differs from the copy is put into differ, by key and scope, unless that is nil.
func (m *Mirror) read(ctx context.Context, origin Origin, differ map[string]bool) (*Report, error) {
	fingerprint, err := origin.Fingerprint(ctx)
	if err != nil {
		return nil, ofOrigin(err)
	}
	lines := runs.NewParts(m.folder, files, partSize)
	defer lines.Close()
	told := &Report{}
	var line []byte
	mark, err := origin.All(ctx, func(row Row) error {
		if told.Rows == m.maxRows {
			return &Error{ClassRows, fmt.Errorf("more than %d rows", m.maxRows)}
		}
		var ok bool
		if line, ok = m.line(line[:0], &row, told); !ok {
			return ctx.Err()
		}
		if err := lines.Add(fileOf(keyOf(line)), line); err != nil {
			return ofDisk(err)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, ofOrigin(err)
	}
	if err := told.judge(); err != nil {
		return nil, err
	}
	late, mark, err := m.catchUp(ctx, origin, mark)
	if err != nil {
		return nil, ofOrigin(err)
	}
	g := m.begin(State{Fingerprint: fingerprint, Reading: reading(m.settings), Mark: mark, Read: time.Now().UTC().Truncate(time.Second)})
	defer g.discard()
	if err := g.writeAll(ctx, lines, &late); err != nil {
		return nil, ofDisk(err)
	}
	same := m.state.readFrom(fingerprint, m.settings)
	if !same { // what differs was not missed
		differ = nil
	}
	if err := g.keepEqual(ctx, differ); err != nil {
		return nil, ofDisk(err)
	}
	if g.changed || m.damaged || len(m.pending.lines) > 0 || !same {
		err = g.publish()
	} else { // to every reader of the files the same generation stays
		err = m.renew(g.state.Read, mark)
	}
	if err != nil {
		return nil, ofDisk(err)
	}
	told.Entries, told.Changed = m.state.Entries(), g.changed
	return told, nil
}

// renew notes in the generation in force up to where it has the changes of the source. None waits for the files.
func (m *Mirror) renew(read time.Time, mark Mark) error {
	state := m.state
	state.Read, state.Mark = read, mark
	if err := m.step("write the state anew"); err != nil {
		return err
	}
	if err := state.write(filepath.Join(m.folder, name(m.number))); err != nil {
		return err
	}
	m.state, m.mark = state, mark
	if err := m.step("empty the journal"); err != nil {
		return err
	}
	if err := m.journal.f.Truncate(0); err != nil { // an older mark in it does no harm
		return err
	}
	m.journal.size = 0
	return nil
}

// catchUp asks for what has changed since a full read began. A source without snapshots has given some of it and some
// not; with these changes the copy is what the source was at one moment. One that tells no changes has none.
func (m *Mirror) catchUp(ctx context.Context, origin Origin, since Mark) (late pending, mark Mark, err error) {
	mark, err = origin.Changes(ctx, since, func(c Change) error { return m.collect(&late, &c, &Report{}) })
	if errors.Is(err, ErrTooOld) {
		return pending{}, since, nil
	}
	return late, mark, err
}
