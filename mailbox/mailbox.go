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
	Hostname string
	MaxBytes int64 // of a message; 0 = 50 MiB
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

	smtp     *smtp.Server
	incoming chan net.Conn // from Dial to Accept; unbuffered
	closed   chan struct{} // closed by the first Shutdown
	close    sync.Once

	mu    sync.Mutex
	conns map[*conn]struct{} // server ends that are open
}

// ErrClosed reports a Dial or Shutdown after the first Shutdown.
var ErrClosed = errors.New("mailbox is shut down")

// New makes the Maildir and returns a Server that delivers into it. Files that
// a crash has left in its tmp folder more than 36 hours ago are removed.
// Shutdown ends the goroutine that the Server needs.
func New(s Settings, log *slog.Logger) (*Server, error) {
	if s.MaxBytes == 0 {
		s.MaxBytes = maxBytes
	}
	dir, err := openMaildir(s.Dir, log)
	if err != nil {
		return nil, fmt.Errorf("mailbox: %w", err)
	}
	m := &Server{
		maildir:  dir,
		hostname: s.Hostname,
		maxBytes: s.MaxBytes,
		log:      log,
		incoming: make(chan net.Conn),
		closed:   make(chan struct{}),
		conns:    map[*conn]struct{}{},
	}
	m.smtp = smtp.NewServer(smtp.BackendFunc(m.newSession))
	m.smtp.Domain = s.Hostname
	m.smtp.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	m.smtp.EnableSMTPUTF8 = true
	m.smtp.MaxRecipients = maxRecipients
	// go-smtp refuses a message that is exactly as long as its limit.
	m.smtp.MaxMessageBytes = s.MaxBytes + 1
	// Its line limit holds for commands and for message text alike, and a long
	// line of text is no reason to refuse mail. conn bounds the commands.
	m.smtp.MaxLineLength = 0
	m.smtp.ReadTimeout = idleTimeout
	m.smtp.WriteTimeout = idleTimeout
	go m.smtp.Serve((*listener)(m)) // ends with ErrClosed's sibling when closed is
	return m, nil
}

// Dial opens a session over a socket pair. A pipe in memory would not do: it has
// no buffer, and two ends that both write would wait for each other.
func (m *Server) Dial(ctx context.Context) (net.Conn, error) {
	client, server, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("mailbox: %w", err)
	}
	select {
	case m.incoming <- newConn(m, server):
		return client, nil
	case <-m.closed:
		err = ErrClosed
	case <-ctx.Done():
		err = fmt.Errorf("mailbox: %w", ctx.Err())
	}
	client.Close()
	server.Close()
	return nil, err
}

// Shutdown takes no further sessions, waits for the open ones until ctx ends,
// then closes them and returns ctx's error. An idle session counts as open: end
// those who dial first. A delivery that is cut off leaves nothing behind and was
// not acknowledged.
func (m *Server) Shutdown(ctx context.Context) error {
	err := ErrClosed
	m.close.Do(func() {
		close(m.closed)
		err = m.smtp.Shutdown(ctx)
	})
	// go-smtp's own Close does nothing after its Shutdown.
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.conns {
		c.Conn.Close()
	}
	return err
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
