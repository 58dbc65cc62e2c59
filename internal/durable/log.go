package durable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Log is a file of records, each a line of JSON, that several processes read and add to: a daemon, the one that takes over from
// it, and commands. What one of them has added, the others take up with their next call. The lock file beside it is held for
// the time of a change alone. A line that a crash has cut is left out, and so is one that is damaged. The methods may be called
// from any goroutine.
type Log[R any] struct {
	s LogSettings[R]

	mu   sync.Mutex
	file *os.File // that was read; it stays open, so that no other file gets its inode
	read Extent
}

// Extent is how much a file of a Log has.
type Extent struct {
	Bytes   int64 // to the end of the last line
	Lines   int
	Damaged int  // of them; 1 of a file that has text and no line
	Old     bool // it is of the form before, and is written anew before the next change
}

// LogSettings of a Log. Its functions are called under its lock.
type LogSettings[R any] struct {
	Path    string
	MaxLine int   // bytes; a longer line is damaged
	Max     int64 // bytes of the file; what comes behind is not read, and nothing can be added
	Mode    fs.FileMode
	Wait    time.Duration // for another process that changes the file
	Busy    error         // what a change returns after that

	Begin func()                         // forgets everything: the file is read from its beginning, or is not there
	Take  func(R) bool                   // takes up a record; false: it is none
	Done  func()                         // is told when all that was there is taken up; nil = nobody is
	Old   func(text []byte) ([]R, error) // reads a whole file of the form before; nil = there was none
}

// errFull is the error of a Log that has reached Max.
var errFull = errors.New("the file is full")

// NewLog returns a log, which reads its file with the first call.
func NewLog[R any](s LogSettings[R]) *Log[R] { return &Log[R]{s: s} }

// View takes up what was added, and calls look, which may read what Take has made. After an error, which is that of the file, it is
// what was known before.
func (l *Log[R]) View(look func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.follow()
	look()
	return err
}

// Damaged is how many lines of the file, as far as it was read, are none.
func (l *Log[R]) Damaged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.read.Damaged
}

// Change adds the records that make returns, while no other process changes the file, and takes them up. When it returns they are on
// the disk. tidy is called after that: if it returns records, these take the place of all,
// as it must of a file of the form before. After an error nothing is added, or a change is there that could not be tidied.
func (l *Log[R]) Change(make func() ([]R, error), tidy func(Extent) iter.Seq[R]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	lock, err := WaitLock(l.s.Path+".lock", l.s.Wait, l.s.Busy)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := l.follow(); err != nil {
		return err
	}
	if l.read.Old {
		if err := l.rewrite(tidy(l.read)); err != nil {
			return err
		}
	}
	records, err := make()
	if err != nil {
		return err
	}
	if len(records) > 0 {
		if err := l.add(records); err != nil {
			return err
		}
		if err := l.follow(); err != nil {
			return err
		}
	}
	if all := tidy(l.read); all != nil {
		return l.rewrite(all)
	}
	return nil
}

// add appends records, and ends a last line that a crash has left without an end. What cannot be written whole is taken back.
func (l *Log[R]) add(records []R) error {
	var text []byte
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if len(line) > l.s.MaxLine {
			return fmt.Errorf("%s: a record of %d bytes, want %d at most", l.s.Path, len(line), l.s.MaxLine)
		}
		text = append(append(text, line...), '\n')
	}
	f, err := os.OpenFile(l.s.Path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, l.s.Mode)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := keepOwner(f, l.s.Path, filepath.Dir(l.s.Path)); err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size+int64(len(text)) > l.s.Max {
		return &fs.PathError{Op: "add to", Path: l.s.Path, Err: errFull}
	}
	if size > l.read.Bytes { // the rest of a line that a crash has cut: nobody else adds now
		size = l.read.Bytes
		if err := f.Truncate(size); err != nil {
			return err
		}
	}
	_, err = f.WriteAt(text, size)
	if err == nil {
		err = f.Sync()
	}
	if err == nil && size == 0 {
		err = SyncFolder(filepath.Dir(l.s.Path))
	}
	if err != nil {
		return errors.Join(err, f.Truncate(size))
	}
	return nil
}

// rewrite replaces the file by one of those records alone.
func (l *Log[R]) rewrite(all iter.Seq[R]) error {
	err := Replace(l.s.Path, l.s.Mode, func(w io.Writer) error {
		e := json.NewEncoder(w)
		for r := range all {
			if err := e.Encode(r); err != nil {
				return err
			}
		}
		return nil
	})
	l.become(nil) // which is read again
	return errors.Join(err, l.follow())
}

// follow takes up what the file has more than before, or all of it where it is another one.
func (l *Log[R]) follow() error {
	f, err := os.Open(l.s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if l.file != nil {
			l.become(nil)
			l.done()
		}
		return nil
	} else if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		f.Close()
		return errors.Join(err, notRegular(l.s.Path, info))
	}
	from, same := int64(0), l.same(info)
	if same {
		from = l.read.Bytes
	}
	text, err := io.ReadAll(io.NewSectionReader(f, from, l.s.Max-from))
	switch {
	case err != nil || same:
		f.Close()
	default:
		l.become(f)
	}
	if err != nil || same && len(text) == 0 {
		return err
	}
	if !same && l.s.Old != nil && len(text) > 0 {
		if old, err := l.s.Old(text); err == nil {
			l.read = Extent{Bytes: int64(len(text)), Lines: 1, Old: true}
			for _, r := range old {
				if !l.s.Take(r) {
					l.read.Damaged = 1
				}
			}
			text = nil
		}
	}
	for {
		line, rest, ended := bytes.Cut(text, []byte("\n"))
		if !ended {
			break // it is being written, or a crash has cut it
		}
		if l.read.Lines++; l.read.Lines == 1 {
			l.read.Damaged = 0
		}
		if !l.take(line) {
			l.read.Damaged++
		}
		l.read.Bytes += int64(len(text) - len(rest))
		text = rest
	}
	if l.read.Lines == 0 {
		l.read.Damaged = min(1, len(text))
	}
	l.done()
	return nil
}

func (l *Log[R]) done() {
	if l.s.Done != nil {
		l.s.Done()
	}
}

// take takes up a line, and reports whether it is one.
func (l *Log[R]) take(line []byte) bool {
	var r R
	return len(line) <= l.s.MaxLine && json.Unmarshal(line, &r) == nil && l.s.Take(r)
}

// same reports whether a file is the one that was read, and goes on from there.
func (l *Log[R]) same(info os.FileInfo) bool {
	if l.file == nil || info.Size() < l.read.Bytes {
		return false
	}
	was, err := l.file.Stat()
	return err == nil && os.SameFile(was, info)
}

// become begins anew with a file of which nothing was read; nil = there is none.
func (l *Log[R]) become(f *os.File) {
	if l.file != nil {
		l.file.Close()
	}
	l.file, l.read = f, Extent{}
	l.s.Begin()
}
