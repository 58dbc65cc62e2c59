// Package original reads the files of other programs, of which nothing is known but their names, and shows what they
// say. All of it may be called by several at once.
package original

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"unicode"
)

// ErrTooBig is wrapped by the errors about what is more than an import takes.
var ErrTooBig = errors.New("too big for an import")

// MaxShown bounds what a report repeats of a text, in octets.
const MaxShown = 200

// Load reads a regular file of at most max octets; the error is ErrTooBig of a longer one. A FIFO or a device is
// refused without waiting for it.
func Load(path string, max int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > max {
		return nil, fmt.Errorf("%s: %w: over %d MiB", path, ErrTooBig, max>>20)
	}
	return data, nil
}

// Clean makes a text one line of printable characters.
func Clean(text string) string {
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		switch {
		case unicode.IsPrint(c):
			return c
		case c == '\t' || c == '\n':
			return ' '
		}
		return '?'
	}, strings.ToValidUTF8(text, "?")))
}

// Shown is Clean, cut at MaxShown octets.
func Shown(text string) string {
	if text = Clean(text); len(text) <= MaxShown {
		return text
	}
	return Cut(text, MaxShown-len("…")) + "…"
}

// Cut is the first octets of a text, at most so many, and no part of a character. A text of nothing but parts of
// characters is returned empty.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
