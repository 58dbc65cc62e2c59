package index

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"blockd/index/internal/build"
	"blockd/index/internal/segment"
	"blockd/lists"
)

// A build may be done by another process than the one that publishes: BuildApart is that
// one's part, and BuildAt the builder's. The lock, the draft and its end stay where Build
// has them; the builder writes one file, which its reader opens as it would any index, and
// segments into the cache.

// Made is what a builder says of the file that it has written. It survives JSON.
type Made struct {
	Report   Report // but Lists, which the file itself has
	Rows     []MadeRow
	Segments segment.Handover
}

// MadeRow is what the file's list table does not tell of a source that was left out or has its last good
// content.
type MadeRow struct {
	Row      int
	LastGood bool
	Refused  *Fault
}

// BuildAt writes the index of sources into a new file at temp, of which errors say that it is to be at path.
// Another process, which waits for this one, holds the lock.
func BuildAt(ctx context.Context, path, temp string, sources []Source, o Options) (*Made, error) {
	started := time.Now()
	b, err := build.New(path, sources, o, build.Hooks{})
	if err != nil {
		return nil, err
	}
	d := &Draft{path: path, temp: temp}
	if err := d.build(ctx, b); err != nil {
		return nil, err
	}
	made := &Made{Report: d.Report, Segments: d.cache.HandOver()}
	made.Report.Elapsed, made.Report.Lists = time.Since(started), nil
	for i, row := range d.Report.Lists {
		if row.Refused != nil || row.LastGood {
			made.Rows = append(made.Rows, MadeRow{i, row.LastGood, FaultOf(row.Refused)})
		}
	}
	return made, nil
}

// BuildApart is Build by another process, which build starts and waits for: it has to call
// BuildAt, and may hold the lock for as long as it lives. What build returns is
// not trusted, and neither is the file.
func BuildApart(ctx context.Context, path string, sources []Source, o Options, build func(ctx context.Context, temp string, lock *os.File) (*Made, error)) (*Draft, error) {
	started := time.Now()
	d, err := begin(path)
	if err != nil {
		return nil, err
	}
	d.cache = segment.Open(o.Cache)
	made, err := build(ctx, d.temp, d.lock.File)
	if err == nil {
		if err = d.adopt(sources, made); err != nil {
			err = fmt.Errorf("index %s: built by another process: %w", path, err)
		}
	}
	if err != nil {
		d.Discard()
		return nil, err
	}
	d.Report.Elapsed = time.Since(started)
	return d, nil
}

// SweepCache removes from the cache in folder what the process pid was writing when it died.
func SweepCache(folder string, pid int) { segment.Open(folder).Sweep(pid) }

// adopt opens what another process has built of sources.
func (d *Draft) adopt(sources []Source, made *Made) (err error) {
	if d.index, err = openFile(d.temp, d.path); err != nil {
		return err
	}
	table := slices.Clone(d.index.Lists())
	if len(table) != len(sources) {
		return fmt.Errorf("%d sources, want %d", len(table), len(sources))
	}
	for i, s := range sources {
		if row := table[i]; !s.Equal(row.Source) || s.Settings.Guard.ID() != row.Guard {
			return fmt.Errorf("list %s: %s was read another way", s.List, s.Path)
		}
		table[i].Source = s
	}
	for _, r := range made.Rows {
		if r.Row < 0 || r.Row >= len(table) {
			return fmt.Errorf("source %d of %d", r.Row, len(table))
		}
		table[r.Row].LastGood = r.LastGood
		if r.Refused != nil {
			table[r.Row].Refused = r.Refused.Err()
		}
	}
	d.Report = made.Report
	d.Report.Lists = table
	return d.cache.Take(made.Segments)
}

// Fault is an error of a build that survives JSON: its words, and what callers ask of it.
type Fault struct {
	Text    string
	Sources []*Fault   `json:",omitempty"` // of a *SourcesError
	List    string     `json:",omitempty"` // of a *SourceError
	File    *FileFault `json:",omitempty"`
	Errno   int        `json:",omitempty"` // of the system; 0: none
	Changed bool       `json:",omitempty"` // wraps lists.ErrChanged
}

// FileFault is the *lists.FileError that a Fault wraps.
type FileFault struct {
	Path  []byte // it may be no UTF-8
	Line  int
	Class lists.Class
	Text  string
}

// FaultOf returns the fault of an error of Build or of one of its sources; nil for nil.
func FaultOf(err error) *Fault {
	if err == nil {
		return nil
	}
	f := &Fault{Text: err.Error(), Changed: errors.Is(err, lists.ErrChanged)}
	if all, ok := errors.AsType[*SourcesError](err); ok {
		for _, err := range all.Errs {
			f.Sources = append(f.Sources, FaultOf(err))
		}
		return f
	}
	if se, ok := errors.AsType[*SourceError](err); ok {
		f.List = se.List
	}
	if fe, ok := errors.AsType[*lists.FileError](err); ok {
		f.File = &FileFault{[]byte(fe.Path), fe.Line, fe.Class, fe.Err.Error()}
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		f.Errno = int(errno)
	}
	return f
}

// Err returns the error that f was made of, as far as callers can tell.
func (f *Fault) Err() error {
	if len(f.Sources) > 0 {
		all := &SourcesError{}
		for _, s := range f.Sources {
			all.Errs = append(all.Errs, s.Err())
		}
		return all
	}
	if f.File == nil {
		return &distant{f.Text, f.cause()}
	}
	var err error = &lists.FileError{Path: string(f.File.Path), Line: f.File.Line, Class: f.File.Class, Err: &distant{f.File.Text, f.cause()}}
	if f.List != "" {
		err = &SourceError{List: f.List, Err: err}
	}
	return err
}

func (f *Fault) cause() error {
	switch {
	case f.Changed:
		return lists.ErrChanged
	case f.Errno != 0:
		return syscall.Errno(f.Errno)
	}
	return nil
}

// distant is an error of another process: its words, and the sentinel behind them.
type distant struct {
	text string
	is   error // nil: none
}

func (e *distant) Error() string { return e.text }
func (e *distant) Unwrap() error { return e.is }
