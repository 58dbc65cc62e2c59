package history

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// suffix ends the name of a segment, after its number.
const suffix = ".decisions"

// segment is one file. The one with the highest number is the newest.
type segment struct {
	number  uint64
	path    string
	size    int64
	written time.Time // last
}

func segmentPath(folder string, number uint64) string {
	return filepath.Join(folder, fmt.Sprintf("%010d%s", number, suffix))
}

// segments returns the segments of a folder, the oldest first. It ignores other
// files.
func segments(folder string) ([]segment, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var all []segment
	for _, f := range files {
		digits, ours := strings.CutSuffix(f.Name(), suffix)
		number, err := strconv.ParseUint(digits, 10, 64)
		if !ours || err != nil || !f.Type().IsRegular() {
			continue
		}
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just been removed
		} else if err != nil {
			return nil, err
		}
		all = append(all, segment{number, filepath.Join(folder, f.Name()), info.Size(), info.ModTime()})
	}
	slices.SortFunc(all, func(a, b segment) int { return cmp.Compare(a.number, b.number) })
	return all, nil
}

// openSegment opens a segment for more lines, and cuts the end that a crash has left
// unfinished. begun is the time of its first decision. f is nil if the segment cannot
// take more: it is too large, or its beginning is damaged.
func openSegment(s segment) (f *os.File, size int64, begun time.Time, err error) {
	if s.size > maxSegment {
		return nil, 0, begun, nil
	}
	if f, err = os.OpenFile(s.path, os.O_RDWR|syscall.O_NOFOLLOW, 0); err != nil {
		return nil, 0, begun, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSegment+1))
	if err == nil {
		var whole int
		if whole, begun, err = wholeLines(text); err != nil {
			return nil, 0, begun, f.Close()
		}
		if begun.IsZero() {
			begun = s.written
		}
		if size = int64(whole); whole < len(text) { // else its time stays that of its last line
			err = f.Truncate(size)
		}
	}
	if err != nil {
		f.Close()
		return nil, 0, begun, err
	}
	return f, size, begun, nil
}

// readSegment reads at most so many octets of a segment into the memory of room. A segment
// that was removed meanwhile has none.
func readSegment(path string, most int64, room []byte) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return room[:0], nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	b := bytes.NewBuffer(room[:0])
	_, err = b.ReadFrom(io.LimitReader(f, most))
	return b.Bytes(), err
}

// wholeLines returns how many octets of a segment's text are whole lines, and the time of
// its first decision, zero if there is none. An error means that its beginning is damaged.
func wholeLines(text []byte) (size int, begun time.Time, err error) {
	size = bytes.LastIndexByte(text, '\n') + 1
	lines, headed := bytes.CutPrefix(text[:size], []byte(fileHead))
	if !headed {
		return 0, begun, errNoLine
	}
	first, _, some := bytes.Cut(lines, []byte("\n"))
	if !some {
		return size, begun, nil
	}
	var r Record
	if !summed(first) {
		return 0, begun, errNoLine
	}
	err = parseLine(string(first[sumSize:]), &r)
	return size, r.Time, err
}

// createSegment makes a segment with a head.
func createSegment(folder string, number uint64) (*os.File, error) {
	path := segmentPath(folder, number)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt([]byte(fileHead), 0); err != nil {
		f.Close()
		os.Remove(path)
		return nil, err
	}
	return f, nil
}
