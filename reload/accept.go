package reload

import (
	"errors"
	"os"
	"strings"

	"blockd/lists"
)

// Acceptable reports whether err, one of Compare, is of a rule that a person may
// override: the lists as they are may be meant. What a list is by itself is not
// excused by a wish.
func Acceptable(err error) bool {
	fe, ok := errors.AsType[*lists.FileError](err)
	return ok && acceptable(fe.Class)
}

func acceptable(c lists.Class) bool {
	switch c {
	case lists.Empty, lists.Shrunk, lists.Grown, lists.Stale, lists.Recent:
		return true
	}
	return false
}

// Accept notes beside the index at path that a person wants that generation to
// serve, whatever a daemon's gate says against it. It is for who compiles, before
// the index is published: what a daemon alone can judge, the senders that it has
// accepted lately, it then takes as judged. The note is of one generation and may
// stay where it is.
func Accept(path, generation string) error {
	// Whole or not at all: what is torn is no generation's name.
	return os.WriteFile(acceptedPath(path), []byte(generation+"\n"), 0o600)
}

// accepted reports whether the generation of the index at path was so noted.
func accepted(path, generation string) bool {
	text, err := os.ReadFile(acceptedPath(path))
	return err == nil && strings.TrimSuffix(string(text), "\n") == generation
}

func acceptedPath(path string) string { return path + ".accepted" }
