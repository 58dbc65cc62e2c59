package access

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// Peer is who is at the other end of a Unix socket, by the kernel: the user and the process that opened it, which may
// have ended since. It fails for other connections.
func Peer(conn net.Conn) (uid, gid, pid int, err error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, 0, 0, errors.ErrUnsupported
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, 0, 0, err
	}
	var peer *unix.Ucred
	if bad := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); bad != nil || err != nil {
		return 0, 0, 0, errors.Join(bad, err)
	}
	return int(peer.Uid), int(peer.Gid), int(peer.Pid), nil
}
