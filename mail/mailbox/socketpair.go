package mailbox

import (
	"net"
	"os"
	"syscall"
)

// socketPair returns the two ends of a connection inside this process.
func socketPair() (a, b net.Conn, err error) {
	// The lock keeps a child that is started at this moment from inheriting the
	// sockets; not every Unix can set close-on-exec in the same call.
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	a, err = connOf(fds[0])
	if err != nil {
		syscall.Close(fds[1])
		return nil, nil, err
	}
	b, err = connOf(fds[1])
	if err != nil {
		a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

// connOf makes a connection of a socket, which it owns from now on.
func connOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "mailbox")
	defer f.Close() // FileConn works on a duplicate
	return net.FileConn(f)
}
