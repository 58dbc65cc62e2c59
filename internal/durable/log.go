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

	changing sync.Mutex // one change at a time of this process; taken before mu

	mu    sync.Mutex
	file  *os.File    // that was read; it stays open, so that no other file gets its inode. nil = none, or it is to be read anew
	seen  fs.FileInfo // of file
	tail  []byte      // the last bytes of what was read
	began bool        // there may be records
	read  Extent
}

// Extent is how much a file of a Log has.
type Extent struct {
	Bytes   int64 // to the end of the last line
	Lines   int
	Damaged int   // of them; 1 of a file that has text and no line
	Torn    int64 // bytes behind that, of a line that has no end
	Old     bool  // it is of the form before, and is written anew before the next change
}

// tailSize is how much is compared to know that a file has only become longer.
const tailSize = 64

// LogSettings of a Log. Its functions are called under its lock.
type LogSettings[R any] struct {
	Path    string
	MaxLine int   // bytes; a longer line is damaged
	Max     int64 // bytes of the file; what comes behind is not read
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
// the disk. tidy is called after that: if it returns records, these take the place of all, as it must of a file of the form before.
// After an error nothing is added, or a change is there that could not be tidied. Nobody who looks waits for another process.
func (l *Log[R]) Change(make func() ([]R, error), tidy func(Extent) iter.Seq[R]) error {
	l.changing.Lock()
	defer l.changing.Unlock()
	lock, err := WaitLock(l.s.Path+".lock", l.s.Wait, l.s.Busy)
	if err != nil {
		return err
	}
	defer lock.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
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
		err := l.add(records)
		if errors.Is(err, errFull) {
			full := l.read
			full.Damaged++ // so that it is written anew
			if all := tidy(full); all != nil {
				err = l.rewrite(all)
			}
			if err == nil {
				err = l.add(records)
			}
		}
		if err != nil {
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

// add appends records, and cuts the rest of a line that a crash has cut. What cannot be written whole is taken back.
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
	end, err := f.Seek(0, io.SeekEnd)
	size := l.read.Bytes
	switch {
	case err != nil:
		return err
	case end == 0: // it may be new, and the umask has had its say
		err = errors.Join(f.Chmod(l.s.Mode), keepOwner(f, l.s.Path, filepath.Dir(l.s.Path)))
	case len(l.tail) > 0 && l.tail[len(l.tail)-1] != '\n': // an editor has left the last line so
		text = append([]byte{'\n'}, text...)
	case size+int64(len(text)) > l.s.Max, end > l.s.Max:
		return &fs.PathError{Op: "add to", Path: l.s.Path, Err: errFull}
	}
	if err == nil && end > size { // the rest of a line that a crash has cut: nobody else adds now
		err = f.Truncate(size)
	}
	if err != nil {
		return err
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

// rewrite replaces the file by one of those records alone; without any it goes, since an empty one is what a full disk leaves of
// an editor's work. Drafts are those of processes that were killed: nobody else writes now.
func (l *Log[R]) rewrite(all iter.Seq[R]) error {
	folder, name := filepath.Split(l.s.Path)
	drafts, _ := filepath.Glob(filepath.Join(folder, "."+name+".*.new")) // none of a name with a bracket
	for _, draft := range drafts {
		os.Remove(draft)
	}
	var err error
	none := true
	for range all {
		none = false
		break
	}
	if none {
		if err = os.Remove(l.s.Path); err == nil {
			err = SyncFolder(filepath.Clean(folder))
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else {
		err = Replace(l.s.Path, l.s.Mode, func(w io.Writer) error {
			e := json.NewEncoder(w)
			for r := range all {
				if err := e.Encode(r); err != nil {
					return err
				}
			}
			return nil
		})
	}
	l.leave() // what tidy has changed in memory is read again
	return errors.Join(err, l.follow())
}

// follow takes up what the file has more than before, or all of it where it is another one.
func (l *Log[R]) follow() error {
	f, err := os.OpenFile(l.s.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its other end
	if errors.Is(err, fs.ErrNotExist) {
		l.leave()
		if l.began {
			l.began, l.read, l.tail = false, Extent{}, nil
			l.s.Begin()
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
	from, same := int64(0), l.goesOn(f, info)
	if same {
		from = l.read.Bytes
	}
	text, err := io.ReadAll(io.NewSectionReader(f, from, l.s.Max-from))
	if err != nil {
		f.Close()
		return err
	}
	if same {
		f.Close()
		if l.seen = info; int64(len(text)) == l.read.Torn {
			return nil
		}
	} else {
		l.leave()
		l.file, l.seen, l.began, l.read, l.tail = f, info, true, Extent{}, nil
		l.s.Begin()
	}
	l.takeAll(text, !same)
	l.done()
	return nil
}

// takeAll takes up text that stands behind what was read; whole: it is all that the file has.
func (l *Log[R]) takeAll(text []byte, whole bool) {
	l.read.Torn = 0
	if whole && l.s.Old != nil && len(text) > 0 {
		if old, err := l.s.Old(text); err == nil {
			l.read = Extent{Bytes: int64(len(text)), Lines: 1, Old: true}
			for _, r := range old {
				if !l.s.Take(r) {
					l.read.Damaged = 1
				}
			}
			l.note(text)
			return
		}
	}
	for len(text) > 0 {
		line, rest, ended := bytes.Cut(text, []byte("\n"))
		if !ended && !json.Valid(line) {
			l.read.Torn = int64(len(line)) // it is being written, or a crash has cut it
			break
		}
		if len(line) > 0 { // the end of a last line that came without one stands alone
			if l.read.Lines++; l.read.Lines == 1 {
				l.read.Damaged = 0
			}
			if !l.take(line) {
				l.read.Damaged++
			}
		}
		l.read.Bytes += int64(len(text) - len(rest))
		l.note(text[:len(text)-len(rest)])
		text = rest
	}
	if l.read.Lines == 0 {
		l.read.Damaged = 1 // it is there for something
	}
}

// note keeps the last bytes of what was read.
func (l *Log[R]) note(text []byte) {
	l.tail = append(l.tail, text[max(0, len(text)-tailSize):]...)
	l.tail = append([]byte(nil), l.tail[max(0, len(l.tail)-tailSize):]...)
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

// goesOn reports whether a file is the one that was read, with what was read as it was.
func (l *Log[R]) goesOn(f *os.File, info fs.FileInfo) bool {
	if l.file == nil || info.Size() < l.read.Bytes || !os.SameFile(l.seen, info) || info.Size() == l.seen.Size() && !info.ModTime().Equal(l.seen.ModTime()) {
		return false
	}
	there := make([]byte, len(l.tail))
	_, err := f.ReadAt(there, l.read.Bytes-int64(len(there)))
	return err == nil && bytes.Equal(there, l.tail)
}

// leave has the file be read anew.
func (l *Log[R]) leave() {
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}
