// Package mailbox is where SMTP can end inside blockd: an embedded server that
// delivers into a Maildir, so that mail can be seen to arrive with no mail
// server installed. It knows nothing of lists.
//
// A message is one file, whoever and however many its recipients are: a Maildir
// is one mailbox. The file holds a Return-Path and a Delivered-To for each
// recipient, as they stood in the envelope, and then the message as it was
// sent, byte for byte. Its lines therefore end in CRLF, where local programs
// write LF; mail readers take either, and a copy that was turned into LF could
// not be compared with its original, nor could its signatures be verified.
package mailbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

// Settings of a Server.
type Settings struct {
	Dir      string // the Maildir; made if missing
	Hostname string // in the greeting, in file names and behind a bare <postmaster>; "" = localhost
	MaxBytes int64  // of a message; 0 = 50 MiB
}

const (
	maxBytes      = 50 << 20
	maxRecipients = 1000 // of a transaction; RFC 5321, section 4.5.3.1.8, asks for 100

	// idleTimeout is twice the 5 min that a client of the SMTP filter may take
	// for one command, so that in a transaction the mailbox never gives up first.
	idleTimeout = 10 * time.Minute
)

// Server is an SMTP server without a listener: sessions come from Dial. It is
// safe for concurrent use. It bounds what a session may send and how long it
// may be silent, but not the number of sessions: that is the caller's.
type Server struct {
	maildir  *maildir
	hostname string
	maxBytes int64
	log      *slog.Logger

	receiveTimeout time.Duration // the constant, but for tests

	incoming chan net.Conn // from Dial to Accept; unbuffered
	closed   chan struct{} // closed by the first Shutdown
	empty    chan struct{} // closed when, after that, no session is open

	mu       sync.Mutex
	shutdown bool
	conns    map[*conn]struct{} // server ends that are open
}

// ErrClosed reports a Dial or a second Shutdown after Shutdown.
var ErrClosed = errors.New("mailbox is shut down")

// New makes the Maildir and returns a Server that delivers into it. Files that
// a crash has left in its tmp folder more than 36 hours ago are removed.
// Shutdown ends the goroutine that the Server needs.
func New(s Settings, log *slog.Logger) (*Server, error) {
	s.MaxBytes = cmp.Or(s.MaxBytes, maxBytes)
	s.Hostname = cmp.Or(s.Hostname, "localhost")
	dir, err := openMaildir(s.Dir, s.Hostname, log)
	if err != nil {
		return nil, fmt.Errorf("mailbox: %w", err)
	}
	m := &Server{maildir: dir, hostname: s.Hostname, maxBytes: s.MaxBytes, log: log, receiveTimeout: receiveTimeout,
		incoming: make(chan net.Conn), closed: make(chan struct{}), empty: make(chan struct{}), conns: map[*conn]struct{}{}}
	srv := smtp.NewServer(smtp.BackendFunc(m.newSession))
	srv.Domain = s.Hostname
	srv.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	srv.EnableSMTPUTF8 = true
	srv.MaxRecipients = maxRecipients
	// go-smtp refuses a message that is exactly as long as its limit.
	srv.MaxMessageBytes = s.MaxBytes + 1
	// Its line limit holds for commands and for message text alike, and a long
	// line of text is no reason to refuse mail. conn bounds the commands.
	srv.MaxLineLength = 0
	srv.ReadTimeout = idleTimeout
	srv.WriteTimeout = idleTimeout
	// Ends with the listener. go-smtp's own Shutdown and Close are not used:
	// after the first the second does nothing, and Close races with sessions
	// that are about to end.
	go srv.Serve((*listener)(m))
	return m, nil
}

// Dial opens a session over a socket pair. A pipe in memory would not do: it has
// no buffer, and two ends that both write would wait for each other.
func (m *Server) Dial(ctx context.Context) (net.Conn, error) {
	client, end, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("mailbox: %w", err)
	}
	c := newConn(m, end)
	m.mu.Lock()
	if m.shutdown {
		err = ErrClosed
	} else {
		m.conns[c] = struct{}{}
	}
	m.mu.Unlock()
	if err == nil {
		select {
		case m.incoming <- c:
			return client, nil
		case <-m.closed:
			err = ErrClosed
		case <-ctx.Done():
			err = fmt.Errorf("mailbox: %w", ctx.Err())
		}
	}
	client.Close()
	c.Close()
	return nil, err
}

// Shutdown takes no further sessions, waits for the open ones until ctx ends,
// then closes them and returns ctx's error. An idle session counts as open: end
// those who dial first. A delivery that is cut off was not acknowledged; it
// leaves nothing in new/.
func (m *Server) Shutdown(ctx context.Context) error {
	m.mu.Lock()
	if m.shutdown {
		m.mu.Unlock()
		return ErrClosed
	}
	m.shutdown = true
	close(m.closed)
	if len(m.conns) == 0 {
		close(m.empty)
	}
	m.mu.Unlock()

	select {
	case <-m.empty:
		return nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.conns {
		c.Conn.Close() // the session's goroutine sees it, and ends with conn.Close
	}
	return ctx.Err()
}

// forget is the end of a session.
func (m *Server) forget(c *conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.conns[c]; !ok {
		return
	}
	delete(m.conns, c)
	if m.shutdown && len(m.conns) == 0 {
		close(m.empty)
	}
}

// listener hands the sessions of Dial to go-smtp.
type listener Server

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { return nil } // Shutdown closes closed
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }
