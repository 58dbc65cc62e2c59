package history

import (
	"bytes"
	"context"
	"errors"
	"os"
)

// Forget takes the decisions that about accepts out of the history, also those that wait for the disk, and returns how many they
// were. The files are written anew: nothing of them is left there. An error ends it half way; those that have gone stay away.
func (l *Log) Forget(ctx context.Context, about func(*Record) bool) (gone int, err error) {
	if l == nil {
		return 0, nil
	}
	if err := l.Settle(); err != nil {
		return 0, err
	}
	l.writing.Lock()
	if l.lock == nil {
		l.writing.Unlock()
		return 0, errors.New("another process has the history")
	}
	if l.file != nil {
		l.finish() // it is not written to while its lines go
	}
	all := append([]segment{}, l.older...)
	l.writing.Unlock()
	for _, s := range all {
		text, err := linesOf(ctx, s)
		if err != nil {
			return gone, err
		}
		left, n := without(text, about)
		if n == 0 {
			continue
		}
		if err := l.shorten(s, left); err != nil {
			return gone, err
		}
		gone += n
	}
	l.refused.mu.Lock()
	l.refused.segments = nil
	l.refused.mu.Unlock()
	return gone, nil
}

// without returns the lines that about does not accept. One that is damaged goes too: who knows whom it names.
func without(text []byte, about func(*Record) bool) (left []byte, gone int) {
	for line := range bytes.Lines(text) {
		var r Record
		bare := bytes.TrimSuffix(line, []byte("\n"))
		if summed(bare) && parseLine(string(bare[sumSize:]), &r) == nil && !about(&r) {
			left = append(left, line...)
		} else {
			gone++
		}
	}
	return left, gone
}

// ForgetIn is Forget where no process writes the history in a folder. A folder that is not there has none.
func ForgetIn(ctx context.Context, s Settings, about func(*Record) bool) (int, error) {
	if _, err := os.Stat(s.Folder); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	l, err := Open(s)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Forget(ctx, about)
}
