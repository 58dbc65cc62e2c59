package sqlite

import (
	"os"
	"testing"

	driver "modernc.org/sqlite"
)

// TestMain chooses the kind of locks before a test opens a database, as Open does in a daemon: the first lock of a process decides.
func TestMain(m *testing.M) {
	if _, err := driver.OFDLocking(true); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
