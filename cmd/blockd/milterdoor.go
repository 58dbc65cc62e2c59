package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/addr"
	"blockd/milter"
	"blockd/policy"
	"blockd/spool"
)

// Milter is [milter]: the door that Postfix and Sendmail ask while they receive
// mail. What it decides is set in [smtp] and [[list]], for all doors alike.
type Milter struct {
	Listen         string   `toml:"listen"`          // HOST:PORT or unix:/PATH, "" = shut
	AllowFrom      []string `toml:"allow_from"`      // networks of the mail servers that may connect by TCP
	MaxConnections int      `toml:"max_connections"` // one for each SMTP session of the mail server
	SocketMode     string   `toml:"socket_mode"`     // of unix:/PATH, octal
	SocketGroup    string   `toml:"socket_group"`    // a name or a number; "" = that of the process

	// The name in which Authentication-Results are written; "" = none are.
	AuthenticationResults string `toml:"authentication_results"`
}

func defaultMilter() Milter {
	return Milter{
		Listen: "127.0.0.1:8892", AllowFrom: []string{"127.0.0.0/8", "::1/128"}, MaxConnections: 1024, SocketMode: "0660",
	}
}

// open reports whether [milter] asks for a door at all.
func (m Milter) open() bool { return m.Listen != "" }

func (m Milter) allowed() (nets []netip.Prefix, at int, err error) {
	return networks(m.AllowFrom, "whoever connects could ask who is listed")
}

// milterDoor is [milter], open. The zero value is a door that is shut.
type milterDoor struct {
	listeners []net.Listener
	server    *milter.Server
}

func (c Config) openMilter(ctx context.Context, inherited inherited, checker *policy.Checker, copies *spool.Store, reg prometheus.Registerer, log *slog.Logger) (*milterDoor, error) {
	if !c.Milter.open() {
		return &milterDoor{}, nil
	}
	settings, err := c.milter()
	if err != nil {
		return nil, err
	}
	settings.Copies = copies
	access := socketAccess{c.Milter.SocketMode, c.Milter.SocketGroup}
	listeners, err := inherited.listenAt(ctx, "milter", "milter.listen", c.Milter.Listen, access)
	if err != nil {
		return nil, err
	}
	return &milterDoor{listeners, milter.New(settings, checker, reg, log)}, nil
}

// milter is what package milter goes by.
func (c Config) milter() (s milter.Settings, err error) {
	s = milter.Settings{
		RejectAt: c.SMTP.RejectAt, ClientRejectAt: c.SMTP.ClientRejectAt, SkipAuthenticated: c.SMTP.SkipAuthenticated,
		OnError: policy.OnError(c.SMTP.OnError), MaxConnections: c.Milter.MaxConnections,
		DrainTimeout: time.Duration(c.SMTP.DrainTimeout), ProofTimeout: time.Duration(c.Auth.DNSTimeout), MaxCopy: int64(c.Auth.MaxMessage),
	}
	if c.Milter.AuthenticationResults != "" {
		key, err := addr.DomainKey(c.Milter.AuthenticationResults)
		if err != nil {
			return s, fmt.Errorf("milter.authentication_results: %w", err)
		}
		s.Results = key.Text
	}
	if s.Trusted, _, err = c.SMTP.trusted(); err != nil {
		return s, fmt.Errorf("smtp.trusted: %w", err)
	}
	if s.AllowFrom, _, err = c.Milter.allowed(); err != nil {
		return s, fmt.Errorf("milter.allow_from: %w", err)
	}
	return s, nil
}

// serve answers until ctx ends, and then until the mail servers have gone.
func (d *milterDoor) serve(ctx context.Context) error {
	if d.server == nil {
		<-ctx.Done()
		return nil
	}
	return d.server.Serve(ctx, d.listeners...)
}

// alive returns if nothing holds the locks of the door for good.
func (d *milterDoor) alive() {
	if d.server != nil {
		d.server.Connections()
	}
}

func (d *milterDoor) close() {
	for _, l := range d.listeners {
		l.Close() // a second time, if it served
	}
}

func (m Milter) validate(f *Faults) {
	f.door("milter.listen", m.Listen)
	if _, i, err := m.allowed(); err != nil {
		f.add(fmt.Sprintf("milter.allow_from[%d]", i), "%v", err)
	} else if len(m.AllowFrom) == 0 && byTCP(m.Listen) {
		f.add("milter.allow_from", "nobody may connect by TCP: want networks, or listen = \"unix:/PATH\"")
	}
	const most = 1 << 20
	if m.MaxConnections < 1 || m.MaxConnections > most {
		f.add("milter.max_connections", "want 1 to %d, have %d", most, m.MaxConnections)
	}
	if m.AuthenticationResults != "" {
		if _, err := addr.DomainKey(m.AuthenticationResults); err != nil {
			f.add("milter.authentication_results", "want the mail server's name, as it calls itself to others, have %q", m.AuthenticationResults)
		}
	}
	if _, err := socketMode(m.SocketMode); err != nil {
		f.add("milter.socket_mode", "%v", err)
	}
}
