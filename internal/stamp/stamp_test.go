package stamp

import (
	"os"
	"runtime"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// TestSame: what cp -p does to a file in place shows in the time of its change alone.
func TestSame(t *testing.T) {
	path := testkit.File(t, "list.txt", []byte("old.example\n"))
	long := time.Now().Add(-time.Hour)
	look := func() os.FileInfo {
		t.Helper()
		testkit.Must(t, os.Chtimes(path, long, long))
		return testkit.Value(os.Stat(path))(t)
	}
	was := look()
	if !Same(was, testkit.Value(os.Stat(path))(t)) || !Same(nil, nil) || Same(was, nil) || Same(nil, was) {
		t.Error("an untouched file, or none")
	}
	if runtime.GOOS != "linux" {
		return
	}
	now := was
	for Changed(now).Equal(Changed(was)) { // the file system's clock has steps
		testkit.Must(t, os.WriteFile(path, []byte("new.example\n"), 0o600))
		now = look()
	}
	if Same(was, now) || !now.ModTime().Equal(was.ModTime()) || now.Size() != was.Size() {
		t.Error("a file with its old size and time is taken for what it was")
	}
}
