package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"
)

// ErrForeign is wrapped by the error of a file that is there and is none of ours: no regular one, longer than any of ours, or
// of another form.
var ErrForeign = errors.New("no file of blockd's, or a damaged one")

// Read returns the content of a regular file of at most max bytes. The error wraps fs.ErrNotExist or ErrForeign, or is that of
// the disk.
func Read(path string, max int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := notRegular(path, info); err != nil { // to open a pipe would wait for its other end
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(text)) > max {
		err = fmt.Errorf("%s: %w: it has more than %d bytes", path, ErrForeign, max)
	}
	return text, err
}

func notRegular(path string, info fs.FileInfo) error {
	if info != nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w: it is no regular file", path, ErrForeign)
	}
	return nil
}

// Load is Read of JSON into a value, which Save has written. After an error the value may be changed in part.
func Load(path string, max int64, into any) error {
	text, err := Read(path, max)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrForeign, err)
	}
	return nil
}

// LoadIfThere is Load of a file that need not be there: then into stays as it is.
func LoadIfThere(path string, max int64, into any) error {
	err := Load(path, max, into)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Save replaces the file at path by a value as JSON, in one line.
func Save(path string, value any, mode fs.FileMode) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return WriteFile(path, append(text, '\n'), mode)
}

// Keep calls save every so often until ctx ends, and then once more. It returns nil. Of failures in a row the first is logged,
// with the text.
func Keep(ctx context.Context, every time.Duration, save func() error, log *slog.Logger, text string) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		err := save()
		if err != nil && !failing {
			log.Error(text, slog.Any("error", err))
		}
		if failing = err != nil; ctx.Err() != nil {
			return nil
		}
	}
}
