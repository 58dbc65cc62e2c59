package milter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
)

// A packet has a length of four octets, big-endian, followed by this many octets: a command of
// one octet and its data. The bounds below apply to this length.
const (
	lengthOctets = 4

	// maxFirst bounds the packet of the negotiation. It has 13 octets, and not many more with
	// a list of macros.
	maxFirst = 4 << 10
	// maxCommand bounds the packet of an SMTP command: a line has at most 2 KiB in
	// Postfix and Sendmail, and the macros of a stage are a few hundred octets.
	maxCommand = 64 << 10
	// maxContent bounds a header field or a piece of a body. Postfix sends fields of
	// up to header_size_limit, 100 KiB, and both send bodies in pieces of 64 KiB.
	maxContent = 1 << 20
	// maxStrings bounds the texts in a packet of macros. The library keeps them in
	// maps: 64 KiB of short names would become 3 MiB at each stage.
	maxStrings = 512
)

// The commands of a mail server.
const (
	cmdNegotiate = 'O'
	cmdMacro     = 'D'
	cmdConnect   = 'C'
	cmdMail      = 'M'
	cmdRcpt      = 'R'
	cmdQuitNext  = 'K' // the session ends, another one may follow on the connection
)

// errPacket reports octets that are not a packet of the milter protocol, or a packet that no
// mail server sends.
var errPacket = errors.New("not a milter packet")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errPacket, fmt.Sprintf(format, args...))
}

// maxLength returns the largest length of a packet with this command; 0 means that the command
// does not exist. Before the negotiation is over, only the negotiation may come.
func maxLength(command byte, negotiated bool) int {
	switch {
	case !negotiated && command != cmdNegotiate:
		return 0
	case !negotiated:
		return maxFirst
	}
	switch command {
	case 'L', 'B', 'E':
		return maxContent
	case cmdMacro, cmdConnect, 'H', cmdMail, cmdRcpt, cmdQuitNext, 'T', 'N', 'A', 'Q', 'U':
		return maxCommand
	}
	return 0
}

// check returns what is wrong with the data of a whole packet. If it returns nil, the library
// reads the packet without an index out of range.
func check(command byte, data []byte) error {
	zero := bytes.IndexByte(data, 0)
	switch {
	case command == cmdNegotiate && len(data) < 12:
		return refuse("negotiation of %d octets", len(data))
	case (command == cmdMail || command == cmdRcpt || command == cmdConnect) && zero < 0:
		return refuse("command %q without the end of its text", command)
	case command == cmdConnect && zero == len(data)-1:
		return refuse("command %q without an address family", command)
	case command == cmdMacro && bytes.Count(data, []byte{0}) > maxStrings:
		return refuse("more than %d texts in a packet of macros", maxStrings)
	}
	return nil
}

// mend marks a client as unknown (family U) if its address cannot be read. A Postfix that does not know the address, such as after XCLIENT, says
// "unknown" in its place, but still calls it IPv4 or IPv6; the library would end the session there. With U it reads no address. data has passed check.
func mend(data []byte) {
	family := bytes.IndexByte(data, 0) + 1
	if data[family] != '4' && data[family] != '6' || len(data) < family+3 {
		return
	}
	address, _, _ := bytes.Cut(data[family+3:], []byte{0}) // behind the port
	text := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(string(address), "IPv6:"), "["), "]")
	if ip, err := netip.ParseAddr(text); err != nil || ip.Zone() != "" || data[family] == '4' && !ip.Unmap().Is4() {
		data[family] = 'U'
	}
}

// bufferSize is the size of a connection's buffer while packets have their usual size: the
// macros and the event of a command together have less than 200 octets. An idle connection
// keeps only this buffer, and the garbage collector needs as much again. An idle connection
// takes less than 16 KiB in all; with a buffer of 4 KiB it took 23 KiB.
const bufferSize = 512

// packets buffers a stream of packets. It returns octets only of packets that are whole and
// checked. The zero value is an empty stream.
type packets struct {
	buf        []byte
	head, tail int  // buf[head:tail] has arrived
	whole      int  // octets from head on that next may return
	negotiated bool // the negotiation has arrived

	spare *sync.Pool // of *[bufferSize]byte, of connections that have ended; nil: none is used again
}

// buffer returns a buffer of the usual size.
func (p *packets) buffer() []byte {
	if p.spare != nil {
		if b, ok := p.spare.Get().(*[bufferSize]byte); ok {
			return b[:]
		}
	}
	return make([]byte, bufferSize)
}

// release gives the buffer to another connection, without what it held.
func (p *packets) release() {
	if p.spare != nil && len(p.buf) == bufferSize {
		clear(p.buf)
		p.spare.Put((*[bufferSize]byte)(p.buf))
	}
	p.buf, p.head, p.tail, p.whole = nil, 0, 0, 0
}

// next copies checked octets to dst and returns their number.
func (p *packets) next(dst []byte) int {
	n := copy(dst, p.buf[p.head:p.head+p.whole])
	p.head += n
	p.whole -= n
	return n
}

// command returns the command of the packet that examine has accepted.
func (p *packets) command() byte { return p.buf[p.head+lengthOctets] }

// begun reports whether a part of a packet has arrived.
func (p *packets) begun() bool { return p.tail > p.head }

// examine checks the packet at head as far as it has arrived. It refuses a wrong length or
// command as soon as it sees one. done reports a whole packet.
func (p *packets) examine() (done bool, err error) {
	have := p.buf[p.head:p.tail]
	if len(have) < lengthOctets {
		return false, nil
	}
	length := binary.BigEndian.Uint32(have)
	switch {
	case length == 0 || length > maxContent:
		return false, refuse("of %d octets", length)
	case len(have) == lengthOctets:
		return false, nil
	}
	command := have[lengthOctets]
	switch limit := maxLength(command, p.negotiated); {
	case limit == 0:
		return false, refuse("command %q", command)
	case int(length) > limit:
		return false, refuse("command %q of %d octets", command, length)
	}
	size := lengthOctets + int(length)
	if len(have) < size {
		return false, nil
	}
	if err := check(command, have[lengthOctets+1:size]); err != nil {
		return false, err
	}
	if command == cmdConnect {
		mend(have[lengthOctets+1 : size])
	}
	p.negotiated = true
	p.whole = size
	return true, nil
}

// room returns the free part of the buffer, at least one octet. The buffer grows with the
// octets that have arrived, never with an announced length. It shrinks after a large packet.
func (p *packets) room() []byte {
	switch rest := p.buf[p.head:p.tail]; {
	case len(rest) < bufferSize && len(p.buf) != bufferSize:
		p.buf = p.buffer()
		p.head, p.tail = 0, copy(p.buf, rest)
	case len(rest) == 0:
		p.head, p.tail = 0, 0
	case p.tail < len(p.buf):
	case p.head > 0:
		p.tail = copy(p.buf, p.buf[p.head:p.tail])
		p.head = 0
	default:
		grown := make([]byte, min(2*len(p.buf), lengthOctets+maxContent))
		copy(grown, p.buf)
		p.buf = grown
	}
	return p.buf[p.tail:]
}
