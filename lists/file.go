package lists

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/zeebo/xxh3"

	"blockd/internal/stamp"
)

// ErrChanged is wrapped by the FileError of a file that moved while it was read:
// keep what serves, and read it again a moment later.
var ErrChanged = errors.New("file changed while it was read")

// FileError is a file that was refused whole. Class is a first word of a
// summary's "why": "missing", "gzip", "changed", ….
type FileError struct {
	Path  string
	Line  int // 0 = the file as a whole
	Class Class
	Err   error
}

// Error gives one line: "path:line: class: text".
func (e *FileError) Error() string {
	path := e.Path
	if strings.ContainsFunc(path, func(r rune) bool { return !strconv.IsPrint(r) }) {
		path = strconv.Quote(path)
	}
	if e.Line > 0 {
		path += ":" + strconv.Itoa(e.Line)
	}
	return fmt.Sprintf("%s: %s: %v", path, e.Class, e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }

// Why is the error as a summary has it, which names the file already:
// "class: text", or "class: line 7: text".
func (e *FileError) Why() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s: line %d: %v", e.Class, e.Line, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Class, e.Err)
}

// refusal is a FileError of a file whose path the caller fills in.
func refusal(c Class, format string, args ...any) *FileError {
	return &FileError{Class: c, Err: fmt.Errorf(format, args...)}
}

// ReadFile reads the list at path and calls emit for every item in line order,
// with several items for a line that holds several keys. It checks that the file
// did not change meanwhile. Memory stays below a few MiB whatever the file holds.
//
// A file that is no list at all (missing, torn, binary, wrong encoding, …) gives
// a *FileError and a Summary whose Verdict is Refused; items emitted until then
// must be dropped by the caller. Refused lines are no error: they are items of
// kind Err. An error of emit or ctx ends the reading and is returned as it is.
func ReadFile(ctx context.Context, path string, s Settings, emit func(*Item) error) (Summary, error) {
	return readFile(ctx, path, s, emit)
}

// ReadBlocks reads the list at path as ReadFile does, and returns the same, with
// several workers: emit is called by goroutines 0 to workers-1, each with its own
// number, at the same time. The items of one line come from one worker one after
// the other, and the line numbers of a worker rise. Beyond that there is no order.
//
// The error is ErrInTurn where one worker has to read the file.
//
// Files of a format in which a line may depend on another one, such as JSON and
// tables with continued lines, are read by worker 0 alone. Memory is some hundred
// KiB a worker whatever the file holds. An error of emit is returned; the other
// workers learn of it when they want another block of lines. None is running when
// ReadBlocks returns. workers below 1 counts as 1.
func ReadBlocks(ctx context.Context, path string, s Settings, workers int, emit func(worker int, it *Item) error) (Summary, error) {
	each := make([]func(*Item) error, max(workers, 1))
	for i := range each {
		each[i] = func(it *Item) error { return emit(i, it) }
	}
	return readFile(ctx, path, s, each...)
}

func readFile(ctx context.Context, path string, s Settings, emit ...func(*Item) error) (Summary, error) {
	var sum Summary
	err := withList(ctx, path, func(src *source) error {
		src.max = s.MaxBytes
		hash := xxh3.New()
		var err error
		if sum, err = read(src, hash, s, emit...); err != nil {
			return err
		}
		sum.Hash = hash.Sum128().Bytes()
		sum.Size = src.size
		return nil
	})
	return finish(sum, path, err)
}

// finish writes the verdict of a reading that ended with err.
func finish(sum Summary, path string, err error) (Summary, error) {
	sum.Verdict = Loaded
	if err == nil {
		return sum, nil
	}
	sum.Verdict, sum.Why = Refused, err.Error()
	if fe, ok := errors.AsType[*FileError](err); ok {
		fe.Path, sum.Why = path, fe.Why()
	}
	return sum, err
}

// Read reads a list of so many stored octets, from its start, as ReadFile does with a file of its own. It may go back to the start
// and read again. The path of a *FileError is name.
func Read(ctx context.Context, in io.ReadSeeker, size int64, name string, s Settings, emit func(*Item) error) (Summary, error) {
	sum, err := read(&source{ctx: ctx, file: in, size: size, max: s.MaxBytes}, nil, s, emit)
	return finish(sum, name, err)
}

// HashFile hashes the stored octets of the list at path as ReadFile does, without
// reading entries, with the same checks of file kind and change.
func HashFile(ctx context.Context, path string) ([16]byte, error) {
	var sum [16]byte
	err := withList(ctx, path, func(src *source) error {
		hash := xxh3.New()
		raw, err := src.raw(hash)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, raw); err != nil {
			return err
		}
		sum = hash.Sum128().Bytes()
		return nil
	})
	_, err = finish(Summary{}, path, err)
	return sum, err
}

// withList opens the regular file at path for use and holds against it what was
// there before: a file that moved meanwhile is refused as changed, whatever use
// made of it, since a torn file may look like anything.
func withList(ctx context.Context, path string, use func(*source) error) error {
	f, before, err := openList(path)
	if err != nil {
		return err
	}
	defer f.Close()
	src := &source{ctx: ctx, file: f, size: before.Size()}
	err = use(src)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ours := errors.AsType[*FileError](err); err != nil && !ours {
		return err // emit's own
	}
	// By path: a list that was replaced by rename left f what it was. The octets
	// read count too, since a writer within one tick of the clock leaves no trace
	// in the times.
	after, statErr := os.Stat(path)
	switch {
	case statErr != nil:
		return &FileError{Class: Changed, Err: fmt.Errorf("%w: %w", ErrChanged, bare(statErr))}
	case !stamp.Same(before, after),
		err == nil && src.stored != before.Size():
		return &FileError{Class: Changed, Err: ErrChanged}
	}
	return err
}

// openList opens path if it is a regular file or leads to one. It never blocks:
// O_NONBLOCK returns at once from a FIFO without a writer, and what was opened is
// looked at again, since the name may have changed hands in between.
func openList(path string) (*os.File, os.FileInfo, error) {
	if err := refuseKind(os.Stat(path)); err != nil {
		return nil, nil, err // devices may act on a mere open
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, refuseKind(nil, err)
	}
	info, err := f.Stat()
	if err := refuseKind(info, err); err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// refuseKind turns what the system says of a path into the reason of section 1.
func refuseKind(info os.FileInfo, err error) error {
	switch {
	case errors.Is(err, syscall.ELOOP):
		return &FileError{Class: Symlink, Err: errors.New("too many symbolic links, or a loop of them")}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &FileError{Class: Missing, Err: bare(err)}
	case errors.Is(err, fs.ErrPermission):
		return &FileError{Class: Permission, Err: bare(err)}
	case err != nil:
		return &FileError{Class: NotAFile, Err: bare(err)}
	case info.IsDir():
		return &FileError{Class: Directory, Err: errors.New("a list is a file")}
	case !info.Mode().IsRegular():
		return refusal(NotAFile, "a list is a regular file, this is %s", kindName(info.Mode()))
	}
	return nil
}

func kindName(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}

// bare takes the path off an error of package os: FileError has its own.
func bare(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
