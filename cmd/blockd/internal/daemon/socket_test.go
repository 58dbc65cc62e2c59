package daemon

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"blockd/internal/testkit"
)

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := listenUnix(t.Context(), path, "")
	testkit.Must(t, err)
	testkit.Equal(t, "mode", testkit.Value(os.Lstat(path))(t).Mode(), fs.ModeSocket|0o660)
	testkit.Got(listenUnix(t.Context(), path, ""))(t, "a second one", "…", path+" is in use; is another blockd running?")
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as after a crash
	l.Close()
	if l, err = listenUnix(t.Context(), path, ""); err != nil {
		t.Errorf("behind one that was left: %v", err)
	} else if l.Close(); exists(path) {
		t.Error("the socket is left behind")
	}

	testkit.Write(t, path, "mail")
	if _, err := listenUnix(t.Context(), path, ""); err == nil || err.Error() != path+" is there, and no socket" || !exists(path) {
		t.Errorf("in place of a file: %v", err)
	}
	other := filepath.Join(t.TempDir(), "s")
	if _, err := listenUnix(t.Context(), other, "no-such-group"); err == nil || exists(other) {
		t.Errorf("with a group that is none: %v", err)
	}
}

// Between bind and chmod nobody may connect, whatever the umask of the process:
// who has connected stays, whatever the mode is then.
func TestUnixSocketBeginsShut(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the folder's mode is all there is on " + runtime.GOOS)
	}
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "s")
	l := testkit.Value(bindUnix(t.Context(), path))(t)
	defer l.Close()
	testkit.Equal(t, "mode", testkit.Value(os.Lstat(path))(t).Mode(), fs.ModeSocket)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
