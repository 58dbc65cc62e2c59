package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// SocketMode is who may connect to a Unix socket: the daemon's user, and the group of the socket.
const SocketMode fs.FileMode = 0o660

// listenUnix opens a socket of a group, a name or a number; "" is that of the process. One that a process has left
// behind is put out of the way; one that somebody listens on is not.
func listenUnix(ctx context.Context, path, group string) (net.Listener, error) {
	if err := clearSocket(path); err != nil {
		return nil, err
	}
	l, err := bindUnix(ctx, path)
	if err != nil {
		return nil, err
	}
	if group != "" {
		var gid int
		if gid, err = GroupID(group); err == nil {
			err = os.Lchown(path, -1, gid)
		}
	}
	if err == nil {
		err = os.Chmod(path, SocketMode) // behind chown, which may take bits away
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// bindUnix opens a socket that nobody may connect to yet. Its place in the file
// system takes the mode that its descriptor has at bind, less the umask; systems
// other than Linux do not know of that, and say so by an error that does not matter.
func bindUnix(ctx context.Context, path string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0) })
	}}
	return lc.Listen(ctx, "unix", path)
}

// clearSocket removes a socket that nobody listens on.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there, and no socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return fmt.Errorf("%s is in use; is another blockd running?", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// unitOf names the unit that opens a door where the daemon itself may make no socket; "" if that is not what err is
// about.
func unitOf(door string, err error) string {
	forbidden := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
	if !forbidden || door != "milter" && door != "policy" {
		return ""
	}
	return fmt.Sprintf("; systemctl enable --now blockd-%s.socket makes it", door)
}

// GroupID is the number of a group that is given by its name or number.
func GroupID(name string) (int, error) {
	if gid, err := strconv.Atoi(name); err == nil {
		return gid, nil
	}
	group, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(group.Gid)
}
