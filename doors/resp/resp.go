// Package resp answers programs that speak the protocol of Redis, RESP 2 and 3: a list is a
// set, a hash or a Bloom filter for them, and they ask for a sender by SISMEMBER, HGET or
// BF.EXISTS. It only reads, and it holds no keys: each answer is a verdict of package policy.
//
// Three rules go before likeness to Redis. What is unknown, a fault of ours or no sender is
// an error, never 0 or nil. A list that does not exist is an error too: with a slip in its name
// a client would hear that all senders are clear. And every answer is exact, also those
// of BF.EXISTS.
//
// The library (redcon) splits commands and writes answers. Its server is not used: it has no bound
// for a command, and takes 8 KB for an idle connection (docs/decisions/0039-resp-door.md).
package resp

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"blockd/index"
	"blockd/internal/listener"
	"blockd/policy"
)

// Verdict is the name that means all lists together. No list may have it.
const Verdict = "senders"

// Raw begins the name of a list whose entries are asked for themselves: "raw:spam". No list
// may be called like it, since a key of GET is a list's name, ":" and the sender.
const Raw = "raw"

// Settings of a Server.
type Settings struct {
	AllowFrom      []netip.Prefix      // peers that may connect by TCP; none = loopback; a Unix socket is protected by its mode
	Strangers      *listener.Strangers // remembers those that are in no network of AllowFrom; may be nil
	MaxConnections int                 // open connections at once; 0 = 1,024

	// Users are the files with the passwords, by the users' names. With none, no client has to
	// log in. Peers on loopback and on a Unix socket never have to.
	Users map[string]string

	Lists []string // names of lists, the one of live entries included, if there is one
	// Required are those of them that are not optional. Until one was read, questions about it, and
	// about all lists together if none was, are answered by an error.
	Required []string

	// Waits says that a look-up may wait for another server, as lists do that are asked in their stores. Each client is then
	// answered by a goroutine of its own, so that it keeps no other one waiting.
	Waits bool

	// Serving is the generation that serves now, for the numbers of SCARD and BF.INFO; it is
	// never nil. Live is how many live entries there are; nil = there can be none.
	Serving func() *index.Index
	Live    func() int
}

func (s Settings) withDefaults() Settings {
	if len(s.AllowFrom) == 0 {
		s.AllowFrom = listener.Loopback()
	}
	s.MaxConnections = cmp.Or(s.MaxConnections, 1024)
	return s
}

// Server serves RESP. Serve is called once.
type Server struct {
	settings Settings
	checker  *policy.Checker
	told     *policy.Told
	metrics  *Metrics
	log      *slog.Logger
	faults   *listener.CalmLog // logs the faults of connections

	commands map[string]*command
	sets     map[string]*set
	unread   atomic.Pointer[unread]
	users    *users
	began    time.Time
	id       string // of this process, as CLUSTER NODES has it

	clients atomic.Int64 // ids given
	held    atomic.Int64 // octets of unfinished commands and unread answers, of all connections
	loop    *loop
}

// New returns a Server. The error is that of a file with a password.
func New(s Settings, c *policy.Checker, m *Metrics, log *slog.Logger) (*Server, error) {
	s = s.withDefaults()
	u, err := readUsers(s.Users)
	if err != nil {
		return nil, err
	}
	server := &Server{
		settings: s, checker: c, told: c.Told("resp"), metrics: m, log: log, faults: listener.NewCalmLog(log),
		commands: m.commandsOf(commands()), sets: setsOf(s.Lists, s.Required), users: u, began: time.Now(), id: newID(), loop: newLoop(s.Waits),
	}
	return server, nil
}

// stopTimeout bounds a stop: a command that has begun may take commandTime to arrive whole,
// and its answer writeTime to be read.
const stopTimeout = commandTime + writeTime + 5*time.Second

// Serve answers peers on the listeners until ctx ends. It still answers the commands that are
// on their way. Then it closes every connection and returns nil. A listener that
// fails for good has the same effect, and Serve returns its error.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	server := listener.Server{
		Name: "resp", Log: s.log, AllowFrom: s.settings.AllowFrom, Strangers: s.settings.Strangers, MaxConnections: s.settings.MaxConnections, StopTimeout: stopTimeout,
		Open: func(nc net.Conn) listener.Session { return newConn(s, nc) },
		TurnAway: func(nc net.Conn, why string) {
			s.metrics.refused.WithLabelValues(why).Inc()
			if why == "total" { // the words of Redis; they fit into the empty buffer of a new connection
				nc.SetWriteDeadline(time.Now().Add(time.Millisecond))
				nc.Write([]byte("-ERR max number of clients reached\r\n"))
			}
		},
		Connections: s.metrics.connections, AcceptErrors: s.metrics.acceptErrors,
	}
	return server.Serve(ctx, listeners...)
}

// RenewUsers reads the files of passwords again. Sessions that have logged in stay so. If a
// file cannot be read, all passwords stay as they were.
func (s *Server) RenewUsers() error { return s.users.read(s.settings.Users) }
