package index

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrCorrupt is wrapped by every error about a file that is no index this
	// program can trust: damaged, cut off, or of another format version.
	ErrCorrupt = errors.New("damaged index")

	// ErrRead is wrapped by every error about a store that could not be read
	// after it was opened: the disk failed, the file was cut off under its
	// mapping, or a page is damaged (which wraps ErrCorrupt too).
	ErrRead = errors.New("unreadable index")

	// ErrLocked reports that another build of the same path is under way.
	ErrLocked = errors.New("another build of this index is under way")
)

// SourcesError carries the error of every source that was refused, in order.
type SourcesError struct{ Errs []error }

func (e *SourcesError) Error() string {
	if len(e.Errs) == 1 {
		return e.Errs[0].Error()
	}
	texts := make([]string, len(e.Errs))
	for i, err := range e.Errs {
		texts[i] = err.Error()
	}
	return fmt.Sprintf("%d sources refused: %s", len(texts), strings.Join(texts, "; "))
}

// Unwrap lets errors.Is and errors.As look into each of them.
func (e *SourcesError) Unwrap() []error { return e.Errs }

// corrupt makes the error of a damage at an offset of the file.
func corrupt(offset uint64, format string, args ...any) error {
	return fmt.Errorf("%w: offset %d: %s", ErrCorrupt, offset, fmt.Sprintf(format, args...))
}
