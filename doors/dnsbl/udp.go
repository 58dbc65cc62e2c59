package dnsbl

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"blockd/internal/listener"
)

// Sizes of a reader of UDP.
const (
	// batchSize is how many messages one system call reads or writes at most.
	batchSize = 64
	// maxQuery is the largest query by UDP. A question has 255 + 16 octets, and options of EDNS
	// a few dozen more.
	maxQuery = 1500
	// socketBuffer is what we ask the system for, so that queries wait there while the machine
	// does something else. It gives as much as net.core.rmem_max allows.
	socketBuffer = 4 << 20
)

// socket is a UDP socket. Reading and writing in batches knows no difference between IPv4 and
// IPv6.
type socket struct {
	*ipv4.PacketConn
	anywhere bool // it has every address of the machine: an answer must come from the one that was asked
}

// newSocket makes the socket of conn.
func newSocket(conn *net.UDPConn) (*socket, error) {
	_ = conn.SetReadBuffer(socketBuffer) // else it has what the system gives
	s := &socket{PacketConn: ipv4.NewPacketConn(conn)}
	local, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok || !local.IP.IsUnspecified() {
		return s, nil
	}
	s.anywhere = true
	if local.IP.To4() != nil {
		return s, s.SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true)
	}
	return s, ipv6.NewPacketConn(conn).SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true)
}

// udpReader is one goroutine that answers by UDP, with its buffers.
type udpReader struct {
	worker
	socket  *socket
	in, out []ipv4.Message
}

func (s *Server) newReader(from *socket) *udpReader {
	r := &udpReader{worker: worker{Server: s}, socket: from, in: make([]ipv4.Message, batchSize), out: make([]ipv4.Message, batchSize)}
	for i := range batchSize {
		r.in[i].Buffers = [][]byte{make([]byte, maxQuery)}
		r.out[i].Buffers = [][]byte{make([]byte, 0, maxUDP)}
		if from.anywhere {
			r.in[i].OOB = make([]byte, maxControl)
		}
	}
	return r
}

// answerAll answers until ctx ends, and then what is there.
func (s *Server) answerAll(ctx context.Context, from *socket) {
	r := s.newReader(from)
	for wait := firstWait; ; {
		n, err := from.ReadBatch(r.in, 0)
		switch {
		case err == nil:
			wait = firstWait
			r.answerBatch(n)
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded): // that of a stop
			r.answerRest()
			return
		default: // a lack of memory passes
			s.metrics.errors.Inc()
			s.calm.Warn("dns read failed", slog.Any("error", err), slog.Duration("retry", wait))
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
			wait = min(2*wait, lastWait)
		}
	}
}

// answerRest answers what the socket holds. This ends also while queries go on coming: a full
// buffer has fewer batches.
func (r *udpReader) answerRest() {
	if r.socket.SetReadDeadline(time.Time{}) != nil {
		return
	}
	for range socketBuffer / 512 / batchSize {
		n, err := r.socket.ReadBatch(r.in, unix.MSG_DONTWAIT)
		if err != nil {
			return
		}
		r.answerBatch(n)
	}
}

// The bounds of the wait after an error, which doubles.
const (
	firstWait = 5 * time.Millisecond
	lastWait  = time.Second
)

// answerBatch answers the first n messages.
func (r *udpReader) answerBatch(n int) {
	now, answers := time.Now().Unix(), 0
	for i := range r.in[:n] {
		in, out := &r.in[i], &r.out[answers]
		peer, ok := in.Addr.(*net.UDPAddr)
		if !ok || peer.Port == 0 {
			continue
		}
		h, drop := r.admit(peer.AddrPort().Addr(), now)
		if drop {
			r.metrics.dropped[overRate].Inc()
			continue
		}
		out.Buffers[0] = r.reply(out.Buffers[0][:0], in.Buffers[0][:in.N], h, maxUDP)
		if len(out.Buffers[0]) == 0 {
			continue
		}
		out.Addr, out.OOB = in.Addr, nil
		if r.socket.anywhere {
			out.OOB = answerFrom(in.OOB[:in.NN])
		}
		answers++
	}
	r.send(r.out[:answers])
}

// admit says how a client is answered, if at all.
func (s *Server) admit(client netip.Addr, now int64) (h how, drop bool) {
	if !listener.Within(s.settings.AllowFrom, client) {
		h = refusing
		s.settings.Strangers.TurnedAwayIP(client)
	}
	if s.rate == nil {
		return h, false
	}
	// Each second question beyond the rate is answered with nothing but "ask by TCP": a client
	// whose address others use can then still ask, and the answer is as small as the question.
	switch beyond := s.rate.beyond(client, now); {
	case beyond == 0:
		return h, false
	case beyond%2 == 0 && h != refusing:
		return slipping, false
	}
	return h, true
}

// send sends answers. One that the system does not take, for a client that cannot be reached,
// is left out, and the others go on.
func (r *udpReader) send(answers []ipv4.Message) {
	for len(answers) > 0 {
		n, err := r.socket.WriteBatch(answers, 0)
		answers = answers[max(n, 0):]
		if err != nil && len(answers) > 0 {
			r.metrics.dropped[unsent].Inc()
			answers = answers[1:]
		}
	}
}
