package daemon

import (
	"os"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// TestReplaced: SIGHUP upgrades where another program was put in the place of this one, and reloads where its rights or
// its name's folder changed.
func TestReplaced(t *testing.T) {
	path := testkit.File(t, "blockd", []byte("program"))
	u := &upgrading{program: Program{Path: path}, began: testkit.Value(os.Stat(path))(t)}
	testkit.Must(t, os.Chmod(path, 0o700))
	testkit.Must(t, os.Link(path, path+".link"))
	testkit.Equal(t, "other rights, another name", u.replaced(), false)
	testkit.Must(t, os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)))
	testkit.Equal(t, "another time", u.replaced(), true)
	testkit.Must(t, os.Remove(path))
	testkit.Equal(t, "none", u.replaced(), false)
	testkit.Must(t, os.WriteFile(path, []byte("program"), 0o700))
	testkit.Equal(t, "another file", u.replaced(), true)
}
