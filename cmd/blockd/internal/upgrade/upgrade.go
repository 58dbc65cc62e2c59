// Package upgrade starts the program anew beside the process that runs, hands its open sockets over, and lets the two
// agree who has what belongs to one process alone. Package daemon decides what that is.
//
// The two are joined by a pair of Unix sockets, which the new process finds by an environment variable. In time:
//
//	predecessor                                successor
//	starts it, with all sockets                reads its configuration
//	                                           Want(Lists): "I build the lists from here on"
//	builds and reads no more, and follows      builds, and opens everything
//	                                           Want(Writes): "and I write what is ours"
//	writes no more, and follows                opens that for writing
//	                                           Ready: "I answer from now on"
//	Counters: what it has counted
//	takes no new client, ends its sessions
//	Conn: connections that may go on there     Follow takes them up
//	Lines, Counters: what it still decides
//	ends
//
// If the successor ends before Ready, or takes too long, the predecessor takes everything back and goes on. If the
// predecessor ends early, the successor goes on alone.
//
// A successor may be a later version. It must understand Version, so new words need a new one.
package upgrade

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Version is that of the words between the two.
const Version = 1

// variable tells a process of its predecessor: Version, the descriptor of the connection and the number of sockets behind it.
const variable = "BLOCKD_UPGRADE"

// maxFrame bounds a word with what belongs to it, in octets. Counters are the longest: some 100 kB.
const maxFrame = 64 << 20

// word begins a frame: one octet, four of length, and that many more.
type word byte

const (
	wordSockets  word = 'S' // the names of the sockets, as JSON
	wordWant     word = 'W'
	wordGiven    word = 'G'
	wordReady    word = 'R'
	wordFailed   word = 'F' // why, for the log of the predecessor
	wordLines    word = 'L'
	wordCounters word = 'C'
	wordConn     word = 'K' // a connection, which comes with it, and the door that it is at
)

// errForeign is the error of a process on the other end that speaks otherwise.
var errForeign = errors.New("the other process does not speak as expected")

// Stage is what a successor wants to have to itself.
type Stage byte

const (
	Lists  Stage = '1' // the sources of lists, and the building of the index
	Writes Stage = '2' // live entries, history, and what else is kept: whoever waits for such a change waits until Ready
)

// Socket is one that passes over.
type Socket struct {
	Name string // whatever its owner wants to know of it again
	File *os.File
}

// conn is the connection between the two. One goroutine may read, and several may write.
type conn struct {
	*net.UnixConn
	writing sync.Mutex
}

func newConn(f *os.File) (*conn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errForeign
	}
	return &conn{UnixConn: u}, nil
}

// patience is how long a write may take before the other process is taken to hang.
const patience = 5 * time.Second

// say writes one frame, and files with it. After an error nothing more can be said.
func (c *conn) say(w word, text []byte, files ...int) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.SetWriteDeadline(time.Now().Add(patience))
	frame := append(binary.BigEndian.AppendUint32([]byte{byte(w)}, uint32(len(text))), text...)
	var n int
	var err error
	if len(files) > 0 {
		n, _, err = c.WriteMsgUnix(frame, unix.UnixRights(files...), nil)
	}
	if err == nil {
		_, err = c.Write(frame[n:])
	}
	if err != nil {
		c.CloseWrite() // half a frame may be out
	}
	return err
}

// hear reads one frame, and the file that came with it; nil: none did. The error is io.EOF if the other process has closed
// its end, or has ended.
func (c *conn) hear() (w word, text []byte, file *os.File, err error) {
	defer func() {
		if err != nil && file != nil {
			file.Close()
			file = nil
		}
	}()
	var head [5]byte
	rights := make([]byte, unix.CmsgSpace(4))
	for n := 0; n < len(head); {
		more, oob, _, _, err := c.ReadMsgUnix(head[n:], rights)
		if oob > 0 && file == nil {
			file = received(rights[:oob])
		}
		switch {
		case errors.Is(err, unix.ECONNRESET), err == nil && more == 0, errors.Is(err, io.EOF):
			return 0, nil, file, io.EOF
		case err != nil:
			return 0, nil, file, err
		}
		n += more
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > maxFrame {
		return 0, nil, file, errForeign
	}
	text = make([]byte, size)
	_, err = io.ReadFull(c, text)
	return word(head[0]), text, file, err
}

// received is the file of a control message; nil without one.
func received(oob []byte) *os.File {
	all, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(all) == 0 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&all[0])
	if err != nil || len(fds) == 0 {
		return nil
	}
	unix.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "connection")
}

// pair returns two files that are joined.
func pair() (here, there *os.File, err error) {
	syscall.ForkLock.RLock() // not every system makes a socket and its flag in one step
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	unix.SetNonblock(fds[0], true)
	return os.NewFile(uintptr(fds[0]), "successor"), os.NewFile(uintptr(fds[1]), "predecessor"), nil
}

// Predecessor is the process that this one takes over from.
type Predecessor struct {
	conn  *conn
	early [][]byte // Lines that came before Follow
}

// Inherit returns the predecessor of this process and the sockets that it has handed over; nil if it was started in any
// other way. Call it once, before anything else opens files. The caller closes the files.
func Inherit() (*Predecessor, []Socket, error) {
	text := os.Getenv(variable)
	if text == "" {
		return nil, nil, nil
	}
	os.Unsetenv(variable) // programs that this one starts are no successors
	var version, first, count int
	if n, err := fmt.Sscanf(text, "%d:%d:%d", &version, &first, &count); n != 3 || err != nil || version != Version || first < 3 || count < 0 || count > 1<<16 {
		return nil, nil, fmt.Errorf("%s=%s: %w", variable, strconv.Quote(text[:min(len(text), 64)]), errForeign)
	}
	files := make([]*os.File, 1+count)
	for i := range files {
		unix.CloseOnExec(first + i)
		files[i] = os.NewFile(uintptr(first+i), "socket")
	}
	p, names, err := inherit(files[0])
	if err == nil && len(names) != count {
		err = errForeign
	}
	if err != nil {
		for _, f := range files[1:] {
			f.Close()
		}
		return nil, nil, fmt.Errorf("the process to take over from: %w", err)
	}
	sockets := make([]Socket, count)
	for i, name := range names {
		sockets[i] = Socket{name, files[1+i]}
	}
	return p, sockets, nil
}

func inherit(f *os.File) (*Predecessor, []string, error) {
	unix.SetNonblock(int(f.Fd()), true)
	c, err := newConn(f)
	if err != nil {
		return nil, nil, err
	}
	w, text, _, err := c.hear()
	var names []string
	if err == nil && w != wordSockets {
		err = errForeign
	}
	if err == nil {
		err = json.Unmarshal(text, &names)
	}
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return &Predecessor{conn: c}, names, nil
}

// Want asks the predecessor for what one process alone can have, and waits until it has yielded it, or has ended. A
// successor wants Lists, and then Writes.
func (p *Predecessor) Want(what Stage) error {
	if err := p.conn.say(wordWant, []byte{byte(what)}); err != nil {
		return gone(err)
	}
	_, err := p.answer(wordGiven)
	return gone(err)
}

// answer waits for a frame of a kind. What the predecessor decides meanwhile, after it has yielded Writes, is kept for Follow.
func (p *Predecessor) answer(want word) (text []byte, err error) {
	for {
		w, text, file, err := p.conn.hear()
		if file != nil {
			file.Close()
		}
		switch {
		case err != nil:
			return nil, err
		case w == want:
			return text, nil
		case w != wordLines:
			return nil, errForeign
		}
		p.early = append(p.early, text)
	}
}

// gone is err, unless that says that the predecessor has ended, which leaves everything to us.
func gone(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}

// Ready tells the predecessor that this process answers from now on, and what there is to say of its lists. It returns what that
// one has counted so far, nothing if it has ended.
func (p *Predecessor) Ready(says string) (counters []byte, err error) {
	if err := p.conn.say(wordReady, []byte(says)); err != nil {
		return nil, gone(err)
	}
	p.conn.SetReadDeadline(time.Now().Add(patience))
	defer p.conn.SetReadDeadline(time.Time{})
	counters, err = p.answer(wordCounters)
	return counters, gone(err)
}

// Fail tells the predecessor why this process cannot take over. It is for one that is about to end.
func (p *Predecessor) Fail(why error) {
	p.conn.say(wordFailed, []byte(strings.ToValidUTF8(why.Error(), "?")))
	p.conn.Close()
}

// Follower takes up what a predecessor still has after Ready. Its functions are called by one goroutine.
type Follower struct {
	Lines    func(lines []byte)               // decisions, for history.Log.AddLines
	Counters func(text []byte)                // what it has counted by now, in place of what it had before
	Conn     func(door string, file *os.File) // a connection that goes on here; the function closes the file
}

// Follow takes up what the predecessor has until it has ended (nil) or Close is called.
func (p *Predecessor) Follow(f Follower) error {
	for _, lines := range p.early {
		f.Lines(lines)
	}
	p.early = nil
	for {
		w, text, file, err := p.conn.hear()
		if file != nil && (err != nil || w != wordConn) {
			file.Close()
		}
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return gone(err)
		case w == wordLines:
			f.Lines(text)
		case w == wordCounters:
			f.Counters(text)
		case w == wordConn && file != nil:
			f.Conn(string(text), file)
		default:
			return errForeign
		}
	}
}

// Close ends Follow.
func (p *Predecessor) Close() error { return p.conn.Close() }
