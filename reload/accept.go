package reload

import (
	"errors"
	"os"
	"path/filepath"
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
	// Beside it and renamed: the folder may be the daemon's and we root, who must not be
	// led elsewhere by a link that stands under the name.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".accepted-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(generation + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), acceptedPath(path))
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// accepted reports whether the generation of the index at path was so noted.
func accepted(path, generation string) bool {
	text, err := os.ReadFile(acceptedPath(path))
	return err == nil && strings.TrimSuffix(string(text), "\n") == generation
}

func acceptedPath(path string) string { return path + ".accepted" }
