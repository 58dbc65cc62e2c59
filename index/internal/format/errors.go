package format

import (
	"errors"
	"fmt"
	"io"
)

var (
	// ErrCorrupt is wrapped by every error about a file that is no index this
	// program can trust: damaged, cut off, or of another format version.
	ErrCorrupt = errors.New("damaged index")

	// ErrRead is wrapped by every error about a store that could not be read
	// after it was opened: the disk failed, the file was cut off under its
	// mapping, or a page is damaged (which wraps ErrCorrupt too).
	ErrRead = errors.New("unreadable index")
)

// Corrupt makes the error of a damage at an offset of the file.
func Corrupt(offset uint64, format string, args ...any) error {
	return fmt.Errorf("%w: offset %d: %s", ErrCorrupt, offset, fmt.Sprintf(format, args...))
}

// ReadError is what a read of the open file gave: it ended too early, or worse.
func ReadError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: file ends too early", ErrCorrupt)
	}
	return fmt.Errorf("%w: %w", ErrRead, err)
}
