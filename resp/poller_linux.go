package resp

import (
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// poller tells which sockets can be read, or written (epoll). Methods other than wait may be called at any time.
type poller struct {
	epoll, event int
	events       [maxReady]unix.EpollEvent
	ready        [maxReady]int
}

func newPoller() (*poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epoll)
		return nil, os.NewSyscallError("eventfd", err)
	}
	p := &poller{epoll: epoll, event: event}
	if err := p.add(event); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *poller) close() {
	unix.Close(p.epoll)
	unix.Close(p.event)
}

// add watches a socket for input.
func (p *poller) add(fd int) error { return p.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN) }

// wantRead and wantWrite say what a socket is watched for from now on.
func (p *poller) wantRead(fd int) error  { return p.control(unix.EPOLL_CTL_MOD, fd, unix.EPOLLIN) }
func (p *poller) wantWrite(fd int) error { return p.control(unix.EPOLL_CTL_MOD, fd, unix.EPOLLOUT) }

// remove ends the watch on a socket.
func (p *poller) remove(fd int) { p.control(unix.EPOLL_CTL_DEL, fd, 0) }

func (p *poller) control(op, fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.epoll, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}))
}

// wake has wait return.
func (p *poller) wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	unix.Write(p.event, one[:])
}

// wait returns the sockets that are ready, none after a timeout or wake. They are good until the next call.
func (p *poller) wait(timeout time.Duration) ([]int, error) {
	n, err := unix.EpollWait(p.epoll, p.events[:], int(timeout.Milliseconds())+1)
	if errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	if err != nil {
		return nil, os.NewSyscallError("epoll_wait", err)
	}
	ready := p.ready[:0]
	for _, e := range p.events[:n] {
		if int(e.Fd) != p.event {
			ready = append(ready, int(e.Fd))
			continue
		}
		var count [8]byte
		unix.Read(p.event, count[:])
	}
	return ready, nil
}
