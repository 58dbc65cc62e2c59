package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A server that looks at nothing says what the client and the kernel allow on this machine: no rate above its own
// can be had from any server, and no goal beyond it be met.
const nameBlind = "a server that looks at nothing"

// runBlind is `bench blind-dns ADDRESS` and `bench blind-resp ADDRESS`.
func runBlind(args []string) (err error, ok bool) {
	if len(args) != 2 {
		return nil, false
	}
	switch args[0] {
	case "blind-dns":
		return blindDNS(args[1]), true
	case "blind-resp":
		return blindRESP(args[1]), true
	}
	return nil, false
}

// blindRESP answers each command by 0, in one thread.
func blindRESP(address string) error {
	runtime.LockOSThread()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	listening, err := descriptor(l.(*net.TCPListener))
	if err != nil {
		return err
	}
	epoll, err := syscall.EpollCreate1(0)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	watch := func(fd int) error {
		return os.NewSyscallError("epoll_ctl", syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}))
	}
	if err := watch(listening); err != nil {
		return err
	}
	var events [256]syscall.EpollEvent
	input, zeros := make([]byte, 64<<10), bytes.Repeat([]byte(":0\r\n"), 16<<10)
	for {
		n, err := syscall.EpollWait(epoll, events[:], -1)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("epoll_wait", err)
		}
		for _, e := range events[:max(n, 0)] {
			fd := int(e.Fd)
			if fd == listening {
				if conn, _, err := syscall.Accept4(fd, syscall.SOCK_NONBLOCK); err == nil {
					if err := watch(conn); err != nil {
						return err
					}
				}
				continue
			}
			n, err := syscall.Read(fd, input)
			if n <= 0 || err != nil {
				syscall.Close(fd)
				continue
			}
			if _, err := syscall.Write(fd, zeros[:4*bytes.Count(input[:n], []byte{'*'})]); err != nil {
				return fmt.Errorf("an answer is not taken: %w", err)
			}
		}
	}
}

// descriptor is that of a socket, which stays open.
func descriptor(l syscall.Conn) (fd int, err error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return 0, err
	}
	return fd, raw.Control(func(of uintptr) { fd = int(of) })
}

// blindBatch is how many queries it reads at once.
const blindBatch = 64

// message is struct mmsghdr of Linux.
type message struct {
	header syscall.Msghdr
	octets uint32
	_      uint32
}

// blindDNS sends each query back, in one thread.
func blindDNS(address string) error {
	runtime.LockOSThread()
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	fd, err := descriptor(conn.(*net.UDPConn))
	if err != nil {
		return err
	}
	if err := errors.Join(conn.(*net.UDPConn).SetReadBuffer(4<<20), syscall.SetNonblock(fd, false)); err != nil {
		return err
	}
	if l, err := net.Listen("tcp", address); err == nil { // by which the caller sees that it listens
		defer l.Close()
	}
	var (
		messages [blindBatch]message
		vectors  [blindBatch]syscall.Iovec
		peers    [blindBatch]syscall.RawSockaddrInet4
		buffers  [blindBatch][1500]byte
		answers  = [2]byte{0, 3} // NOERROR, NXDOMAIN: as many of one as of the other, as dnsperf has to see
		answered uint
	)
	for {
		for i := range messages {
			vectors[i] = syscall.Iovec{Base: &buffers[i][0], Len: uint64(len(buffers[i]))}
			messages[i].header = syscall.Msghdr{Name: (*byte)(unsafe.Pointer(&peers[i])), Namelen: uint32(unsafe.Sizeof(peers[i])), Iov: &vectors[i], Iovlen: 1}
		}
		n, _, e := syscall.Syscall6(syscall.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&messages)), blindBatch, syscall.MSG_WAITFORONE, 0, 0)
		if e != 0 && e != syscall.EINTR {
			return os.NewSyscallError("recvmmsg", e)
		}
		for i := range messages[:max(int(n), 0)] {
			buffers[i][2] |= 0x84 // an answer, with authority
			buffers[i][3] = answers[answered%2]
			answered++
			vectors[i].Len = uint64(messages[i].octets)
		}
		for sent := uintptr(0); e == 0 && sent < n; {
			m, _, e := syscall.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&messages[sent])), n-sent, 0, 0, 0)
			if e != 0 || m == 0 {
				break
			}
			sent += m
		}
	}
}
