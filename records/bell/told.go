package bell

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"blockd/internal/durable"
)

// told is the last event that was delivered, or given up, as the file has it.
type told struct {
	Event string    `json:"event"` // "": none yet
	Since time.Time `json:"since"`
	Time  time.Time `json:"time"`
	Keys  []string  `json:"problems"` // those of the event that have not ended since
}

func (t told) equal(o told) bool {
	return t.Event == o.Event && t.Since.Equal(o.Since) && t.Time.Equal(o.Time) && slices.Equal(t.Keys, o.Keys)
}

// maxTold bounds the file, in octets.
const maxTold = 1 << 20

// readTold reads a file that need not be there. After an error nothing was told.
func readTold(path string) (told, error) {
	var t told
	if err := durable.LoadIfThere(path, maxTold, &t); err != nil {
		return told{}, err
	}
	return t, nil
}

func join(keys []string) string { return strings.Join(keys, "\n") }

// oneLine keeps an odd file name from making lines of its own, or from acting on what shows it.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// cut cuts text to max octets, at a character, and marks the cut.
func cut(text string, max int) string {
	if len(text) <= max {
		return text
	}
	max -= len("…")
	for !utf8.RuneStart(text[max]) {
		max--
	}
	return text[:max] + "…"
}
