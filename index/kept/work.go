package kept

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"blockd/index/internal/segment"
	"blockd/internal/durable"
)

// Job is heavy work on contents, which another process may do: it touches nothing but the forms of these contents.
type Job struct {
	Folder []byte // it may be no UTF-8
	Unpack []File // are to be whole, and on disk
	Count  []Pair // how many entries came and went
	Pack   []Pack // need not be whole any more
}

// Pair are two contents of a list, both whole.
type Pair struct{ From, To Content }

// Pack is a content with the one that came after it, which is whole; "": none has.
type Pack struct{ Segment, Base string }

// Result is what a Job has found.
type Result struct {
	Counts []Count  // of each pair
	Notes  []string // what went wrong and costs nothing but room, a line each
}

// Count says what differs in two contents.
type Count struct {
	Added, Removed int
	Same           bool // not even a reason or an end of an entry differs
	Failed         string
}

// Runner does a Job.
type Runner func(ctx context.Context, j Job) (Result, error)

// Octets is about how much there is to be read.
func (j *Job) Octets() (n int64) {
	s := &Store{Folder: string(j.Folder)}
	add := func(segment string) {
		path := s.name(segment, whole)
		info, err := os.Stat(path)
		if err != nil {
			path, _, _ = s.fileOf(segment)
			info, err = os.Stat(path)
		}
		if err == nil {
			n += info.Size()
		}
	}
	for _, f := range j.Unpack {
		add(f.Segment)
	}
	for _, p := range j.Count {
		for _, f := range append(append(Content(nil), p.From...), p.To...) {
			add(f.Segment)
		}
	}
	for _, p := range j.Pack {
		add(p.Segment)
	}
	return n
}

// Do does it in this process. An error is that of an unpacking.
func (j Job) Do(ctx context.Context) (r Result, err error) {
	s := &Store{Folder: string(j.Folder)}
	for _, f := range j.Unpack {
		if err := s.unpack(ctx, f.Segment, 0); err != nil {
			return r, err
		}
	}
	for _, p := range j.Count {
		c, err := s.count(ctx, p)
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		if err != nil {
			c.Failed = err.Error()
		}
		r.Counts = append(r.Counts, c)
	}
	for _, p := range j.Pack {
		if err := s.pack(ctx, p); err != nil {
			if ctx.Err() != nil {
				return r, ctx.Err()
			}
			r.Notes = append(r.Notes, err.Error())
		}
	}
	return r, nil
}

func (s *Store) run(ctx context.Context, j Job) (Result, error) {
	j.Folder = []byte(s.Folder)
	if s.Run != nil {
		return s.Run(ctx, j)
	}
	return j.Do(ctx)
}

func (s *Store) count(ctx context.Context, p Pair) (c Count, err error) {
	from, err := s.open(p.From)
	if err != nil {
		return c, err
	}
	defer closeAll(from)
	to, err := s.open(p.To)
	if err != nil {
		return c, err
	}
	defer closeAll(to)
	err = segment.Diff(ctx, from, to, func(came bool, _ segment.Said, _ string) error {
		if came {
			c.Added++
		} else {
			c.Removed++
		}
		return nil
	})
	if err == nil && c.Added+c.Removed == 0 {
		c.Same, err = segment.Same(ctx, from, to)
	}
	return c, err
}

// mostSteps bounds how many differences lead to a content. It is more than are ever kept.
const mostSteps = 10_000

// unpack makes a content whole, checked in every octet, and on disk.
func (s *Store) unpack(ctx context.Context, name string, steps int) error {
	if !isSegment(name) || steps > mostSteps {
		return fmt.Errorf("content %q: %w", name, segment.ErrDamaged)
	}
	path := s.name(name, whole)
	switch err := s.check(ctx, name); {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		if _, _, other := s.fileOf(name); !other {
			return err
		}
	}
	d, err := durable.Create(path, 0o600)
	if err != nil {
		return err
	}
	defer d.Discard()
	if err := s.fill(ctx, d.File, name, steps); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(s.Folder, name), err)
	}
	made, err := segment.OpenFile(d.File.Name())
	if err != nil {
		return err
	}
	defer made.Close()
	if id := made.ID(); hex.EncodeToString(id[:]) != name {
		return fmt.Errorf("%s: %w", path, segment.ErrDamaged)
	}
	if err := made.Check(ctx); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := d.Commit(); err != nil {
		return err
	}
	s.wholeOnly(name)
	return nil
}

// check reads a whole content, and has it on disk.
func (s *Store) check(ctx context.Context, name string) error {
	seg, err := segment.OpenFile(s.name(name, whole))
	if err != nil {
		return err
	}
	defer seg.Close()
	if id := seg.ID(); hex.EncodeToString(id[:]) != name {
		err = segment.ErrDamaged
	} else {
		err = seg.Check(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.name(name, whole), err)
	}
	return seg.Sync()
}

// fill writes a content into f from another of its forms.
// What that is a difference from is made whole first.
func (s *Store) fill(ctx context.Context, f *os.File, name string, steps int) error {
	path, base, ok := s.fileOf(name)
	if !ok {
		return fs.ErrNotExist
	}
	r, err := os.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	if base == "" {
		return segment.Unpack(f, bufio.NewReader(r))
	}
	d, err := segment.ReadDelta(bufio.NewReader(r))
	if err != nil {
		return err
	}
	if err := s.unpack(ctx, base, steps+1); err != nil {
		return err
	}
	from, err := segment.OpenFile(s.name(base, whole))
	if err != nil {
		return err
	}
	defer from.Close()
	return d.Apply(ctx, f, from, min(runtime.GOMAXPROCS(0), 4))
}

// pack puts a content that is whole into less room.
func (s *Store) pack(ctx context.Context, p Pack) error {
	if !isSegment(p.Segment) {
		return fmt.Errorf("content %q: %w", p.Segment, segment.ErrDamaged)
	}
	seg, err := segment.OpenFile(s.name(p.Segment, whole))
	if err != nil {
		return err
	}
	defer seg.Close()
	if isSegment(p.Base) {
		switch err := s.packFrom(ctx, p, seg); {
		case err == nil:
			return os.Remove(s.name(p.Segment, whole))
		case ctx.Err() != nil:
			return err
		}
		// Else it is too different, or what came next is damaged.
	}
	d, err := durable.Create(s.name(p.Segment, packed), 0o600)
	if err != nil {
		return err
	}
	defer d.Discard()
	if err := segment.Pack(d.File, seg); err != nil {
		return err
	}
	if err := d.Commit(); err != nil {
		return err
	}
	return os.Remove(s.name(p.Segment, whole))
}

func (s *Store) packFrom(ctx context.Context, p Pack, seg *segment.Segment) error {
	base, err := segment.OpenFile(s.name(p.Base, whole))
	if err != nil {
		return err
	}
	defer base.Close()
	d, err := durable.Create(s.name(p.Segment, "-"+p.Base+delta), 0o600)
	if err != nil {
		return err
	}
	defer d.Discard()
	w := bufio.NewWriter(d.File)
	if err := segment.WriteDelta(ctx, w, base, seg); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return d.Commit()
}
