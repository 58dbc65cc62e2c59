package e2e

import (
	"blockd/internal/testkit"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// OnTerminal starts cmd on a terminal of its own, as in a window of a person's. What it
// prints goes to out; type what the person types into keys.
func OnTerminal(t *testing.T, cmd *exec.Cmd, out io.Writer) (keys *os.File) {
	t.Helper()
	master := testkit.Value(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))(t)
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	testkit.Must(t, err)
	window := testkit.Value(os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0))(t)
	defer window.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = window, window, window
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	testkit.Must(t, cmd.Start())
	go io.Copy(out, master) // until the last process has closed the window
	t.Cleanup(func() { master.Close() })
	return master
}
