//go:build darwin || freebsd

package resp

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// poller tells which sockets can be read, or written (kqueue). Methods other than wait may be called at any time.
type poller struct {
	queue  int
	events [maxReady]unix.Kevent_t
	ready  [maxReady]int
}

// wakeID is the user event by which wait is woken.
const wakeID = 0

func newPoller() (*poller, error) {
	queue, err := unix.Kqueue()
	if err != nil {
		return nil, os.NewSyscallError("kqueue", err)
	}
	unix.CloseOnExec(queue)
	p := &poller{queue: queue}
	if err := p.submit(wakeID, unix.EVFILT_USER, unix.EV_ADD|unix.EV_CLEAR, 0); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *poller) close() { unix.Close(p.queue) }

// add watches a socket for input, or for room for output.
func (p *poller) add(fd int, output bool) error {
	if output {
		return p.submit(fd, unix.EVFILT_WRITE, unix.EV_ADD, 0)
	}
	return p.submit(fd, unix.EVFILT_READ, unix.EV_ADD, 0)
}

// change says what a socket is watched for from now on.
func (p *poller) change(fd int, output bool) error {
	p.remove(fd)
	return p.add(fd, output)
}

// remove ends the watch on a socket.
func (p *poller) remove(fd int) {
	p.submit(fd, unix.EVFILT_READ, unix.EV_DELETE, 0)
	p.submit(fd, unix.EVFILT_WRITE, unix.EV_DELETE, 0)
}

func (p *poller) submit(id, filter, flags int, note uint32) error {
	var k unix.Kevent_t
	unix.SetKevent(&k, id, filter, flags)
	k.Fflags = note
	_, err := unix.Kevent(p.queue, []unix.Kevent_t{k}, nil, nil)
	return os.NewSyscallError("kevent", err)
}

// wake has wait return.
func (p *poller) wake() { p.submit(wakeID, unix.EVFILT_USER, 0, unix.NOTE_TRIGGER) }

// wait returns the sockets that are ready, none after a timeout or wake. They are good until the next call.
func (p *poller) wait(timeout time.Duration) ([]int, error) {
	limit := unix.NsecToTimespec(max(timeout, 0).Nanoseconds())
	n, err := unix.Kevent(p.queue, nil, p.events[:], &limit)
	if errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	if err != nil {
		return nil, os.NewSyscallError("kevent", err)
	}
	ready := p.ready[:0]
	for i := range p.events[:n] {
		if e := &p.events[i]; e.Filter != unix.EVFILT_USER {
			ready = append(ready, int(e.Ident))
		}
	}
	return ready, nil
}
