// Package postfix answers the questions that Postfix has ways to ask: policy
// delegation (check_policy_service), socketmap tables and tcp tables. Each is a
// small server of long-lived connections. Package policy decides; the answers have the form
// of an access(5) action.
//
// Policy delegation knows client, sender and recipient, and so decides as the SMTP
// filter does. A table knows only the sender: exempt recipients, recipients'
// policies and lists of clients have no part there.
//
// No answer is ever OK, which would skip the administrator's later
// checks, and no fault of blockd becomes a 5xx.
package postfix

import (
	"cmp"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"blockd/internal/listener"
	"blockd/policy"
	"blockd/policy/rule"
)

// Settings of a Server. The zero Settings serve peers on loopback.
type Settings struct {
	AllowFrom      []netip.Prefix      // peers that may connect by TCP; none = loopback; a Unix socket is protected by its mode
	Strangers      *listener.Strangers // remembers those that are in no network of AllowFrom; may be nil
	MaxConnections int                 // open connections at once; 0 = 1,024

	OnError           rule.OnError   // the answer to a question that cannot be read; "" = accept
	RejectAt          string         // "rcpt" (also "") or "mail": the first event at which a listed sender is refused, if Postfix asks there
	ClientRejectAt    string         // "rcpt" (also "") or "connect": the first event at which a listed client is refused, if Postfix asks there
	SkipAuthenticated bool           // authenticated clients are not checked against lists of senders
	Trusted           []netip.Prefix // clients that are never checked

	// Own reports whether a client, by its address and port, is this program, which sends its own mail: that is not checked. nil: none is.
	Own func(client netip.AddrPort) bool

	ProofTimeout time.Duration // for all DNS queries of one answer; 0 = 5 s; a proof that is still open then does not count

	Lists []string // names of lists, each a socketmap of its own

	// Leave is given connections that are about to be closed at a stop, with every request answered. If it reports true,
	// another process goes on with them: Postfix waits for a second where its server has closed one. nil: none goes on.
	Leave func(door string, conn net.Conn) bool
}

func (s Settings) withDefaults() Settings {
	if len(s.AllowFrom) == 0 {
		s.AllowFrom = listener.Loopback()
	}
	s.MaxConnections = cmp.Or(s.MaxConnections, 1024)
	s.ProofTimeout = cmp.Or(s.ProofTimeout, 5*time.Second)
	return s
}

// service holds what all connections of a Server share.
type service struct {
	door     policy.Door
	settings Settings
	checker  *policy.Checker
	metrics  *serviceMetrics
	log      *slog.Logger
	faults   *listener.CalmLog // logs the faults of connections
}

// Policy returns a server of policy delegation: SMTPD_POLICY_README of Postfix.
// Discard entries count as blocks, as in the SMTP filter: after a DISCARD Postfix
// 3.7 takes every further recipient of the message without asking, and so would
// drop postmaster's mail too.
func Policy(s Settings, c *policy.Checker, m *Metrics, log *slog.Logger) *Server {
	// Policy delegation decides at RCPT. It never sees a message, so proof in the message does
	// not count.
	door := policy.Door{Name: "policy", Log: log, Marks: true, Quarantines: true, Holds: true,
		SkipAuthenticated: s.SkipAuthenticated, ProofTimeout: s.withDefaults().ProofTimeout}
	return newServer(door, s, c, m, log, func(s *service, private bool) dialect { return newDelegation(s, private) })
}

// Socketmap returns a server of socketmap_table(5). The map "senders" is the whole
// decision, one named as a list is that list alone.
func Socketmap(s Settings, c *policy.Checker, m *Metrics, log *slog.Logger) *Server {
	return newServer(tableDoor("socketmap", log), s, c, m, log, func(s *service, _ bool) dialect { return &socketmap{newTable(s)} })
}

// TCPTable returns a server of tcp_table(5), for the whole decision.
func TCPTable(s Settings, c *policy.Checker, m *Metrics, log *slog.Logger) *Server {
	return newServer(tableDoor("tcp", log), s, c, m, log, func(s *service, _ bool) dialect { return &tcpTable{newTable(s)} })
}

func newServer(door policy.Door, s Settings, c *policy.Checker, m *Metrics, log *slog.Logger, speak func(s *service, private bool) dialect) *Server {
	s = s.withDefaults()
	return &Server{
		service: service{door: door, settings: s, checker: c, metrics: m.of(door.Name), log: log, faults: listener.NewCalmLog(log)},
		speak:   speak,
	}
}
