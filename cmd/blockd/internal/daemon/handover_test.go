package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"blockd/internal/testkit"
)

// The owner of the folder may exchange a file for another one with a name elsewhere, between
// any two of our looks at it.
func TestHandOverGivesAwayWhatItLookedAt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const daemon = 65534
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	testkit.Must(t, os.Mkdir(state, 0o700))
	testkit.Must(t, os.Chown(state, daemon, daemon))
	secret := testkit.Write(t, filepath.Join(dir, "secret"), "root's own\n")
	ours, second, fresh := filepath.Join(state, "blockd.bdx"), filepath.Join(state, "second"), filepath.Join(state, "fresh")
	testkit.Must(t, os.Link(secret, second))
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if err := turn(fresh, ours, second); err != nil {
				ended <- err
				return
			}
		}
	}()
	defer func() {
		close(stop)
		testkit.Should(t, <-ended)
	}()
	for n := range 3000 {
		testkit.Must(t, HandOver(ours))
		info := testkit.Value(os.Lstat(secret))(t)
		testkit.MustEqual(t, fmt.Sprintf("a file of another folder is given away in round %d", n), info.Sys().(*syscall.Stat_t).Uid, 0)
	}
}

// turn makes a new file of ours, and lets another be there for a moment in its place.
func turn(fresh, ours, other string) error {
	if err := os.WriteFile(fresh, nil, 0o600); err != nil {
		return err
	}
	if err := os.Rename(fresh, ours); err != nil {
		return err
	}
	for range 2 {
		if err := unix.Renameat2(unix.AT_FDCWD, ours, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); err != nil {
			return err
		}
	}
	return nil
}
