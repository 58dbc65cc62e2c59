package control

import (
	"golang.org/x/sys/unix"

	"blockd/internal/access"
)

// peerOf is the process at the other end of a Unix socket.
func peerOf(fd int) (access.User, int, error) {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return access.User{}, 0, err
	}
	u, err := access.Process(int(peer.Pid))
	if err != nil { // of another name space: the number stands
		return access.ByID(int(peer.Uid), int(peer.Gid)), 0, nil
	}
	return u, int(peer.Pid), nil
}
