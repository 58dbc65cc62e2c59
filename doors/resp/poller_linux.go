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
	if err := p.add(event, false); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *poller) close() {
	unix.Close(p.epoll)
	unix.Close(p.event)
}

// add watches a socket for input, or for room for output.
func (p *poller) add(fd int, output bool) error { return p.control(unix.EPOLL_CTL_ADD, fd, output) }

// change says what a socket is watched for from now on.
func (p *poller) change(fd int, output bool) error { return p.control(unix.EPOLL_CTL_MOD, fd, output) }

// remove ends the watch on a socket.
func (p *poller) remove(fd int) { p.control(unix.EPOLL_CTL_DEL, fd, false) }

func (p *poller) control(op, fd int, output bool) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if output {
		e.Events = unix.EPOLLOUT
	}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.epoll, op, fd, &e))
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
