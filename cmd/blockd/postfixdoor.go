package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"blockd/policy"
	"blockd/postfix"
)

// Postfix is [postfix]: the services that a Postfix can ask. What they decide is
// set in [smtp] and [[list]], for all doors alike.
type Postfix struct {
	PolicyListen    string   `toml:"policy_listen"`    // HOST:PORT or unix:/PATH, "" = shut; as the next two
	SocketmapListen string   `toml:"socketmap_listen"` // socketmap_table(5)
	TCPListen       string   `toml:"tcp_listen"`       // tcp_table(5)
	AllowFrom       []string `toml:"allow_from"`       // networks of those who may ask by TCP
	MaxConnections  int      `toml:"max_connections"`  // of each service
	SocketMode      string   `toml:"socket_mode"`      // of unix:/PATH, octal
	SocketGroup     string   `toml:"socket_group"`     // a name or a number; "" = that of the process
}

func defaultPostfix() Postfix {
	return Postfix{
		PolicyListen: "127.0.0.1:8893", AllowFrom: []string{"127.0.0.0/8", "::1/128"}, MaxConnections: 1024, SocketMode: "0660",
	}
}

// open reports whether [postfix] asks for a door at all.
func (p Postfix) open() bool {
	return p.PolicyListen != "" || p.SocketmapListen != "" || p.TCPListen != ""
}

func (p Postfix) allowed() (nets []netip.Prefix, at int, err error) {
	return networks(p.AllowFrom, "whoever connects could ask who is listed")
}

// postfixDoor is [postfix], open. The zero value is a door that is shut.
type postfixDoor struct{ services []postfixService }

type postfixService struct {
	listeners []net.Listener
	server    *postfix.Server
}

func (c Config) openPostfix(ctx context.Context, inherited inherited, checker *policy.Checker, reg prometheus.Registerer, log *slog.Logger) (_ *postfixDoor, err error) {
	d := &postfixDoor{}
	if !c.Postfix.open() {
		return d, nil
	}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	settings, err := c.postfix()
	if err != nil {
		return nil, err
	}
	metrics := postfix.NewMetrics(reg)
	access := socketAccess{c.Postfix.SocketMode, c.Postfix.SocketGroup}
	for _, service := range []struct {
		name, key, where string
		make             func(postfix.Settings, *policy.Checker, *postfix.Metrics, *slog.Logger) *postfix.Server
	}{
		{"policy", "postfix.policy_listen", c.Postfix.PolicyListen, postfix.Policy},
		{"socketmap", "postfix.socketmap_listen", c.Postfix.SocketmapListen, postfix.Socketmap},
		{"tcp", "postfix.tcp_listen", c.Postfix.TCPListen, postfix.TCPTable},
	} {
		listeners, err := inherited.listenAt(ctx, service.name, service.key, service.where, access)
		if err != nil {
			return nil, err
		}
		if len(listeners) > 0 {
			d.services = append(d.services, postfixService{listeners, service.make(settings, checker.At(service.name), metrics, log)})
		}
	}
	return d, nil
}

// postfix is what package postfix goes by.
func (c Config) postfix() (s postfix.Settings, err error) {
	s = postfix.Settings{
		MaxConnections: c.Postfix.MaxConnections, OnError: policy.OnError(c.SMTP.OnError),
		RejectAt: c.SMTP.RejectAt, ClientRejectAt: c.SMTP.ClientRejectAt, SkipAuthenticated: c.SMTP.SkipAuthenticated,
		ProofTimeout: time.Duration(c.Auth.DNSTimeout),
	}
	if s.Trusted, _, err = c.SMTP.trusted(); err != nil {
		return s, fmt.Errorf("smtp.trusted: %w", err)
	}
	if s.AllowFrom, _, err = c.Postfix.allowed(); err != nil {
		return s, fmt.Errorf("postfix.allow_from: %w", err)
	}
	for _, l := range c.Lists {
		s.Lists = append(s.Lists, l.Name)
	}
	return s, nil
}

// serve answers until ctx ends.
func (d *postfixDoor) serve(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range d.services {
		g.Go(func() error { return s.server.Serve(ctx, s.listeners...) })
	}
	return g.Wait()
}

func (d *postfixDoor) close() {
	for _, s := range d.services {
		for _, l := range s.listeners {
			l.Close() // a second time, if it served
		}
	}
}

func (p Postfix) validate(f *Faults) {
	f.door("postfix.policy_listen", p.PolicyListen)
	f.door("postfix.socketmap_listen", p.SocketmapListen)
	f.door("postfix.tcp_listen", p.TCPListen)
	if _, i, err := p.allowed(); err != nil {
		f.add(fmt.Sprintf("postfix.allow_from[%d]", i), "%v", err)
	} else if len(p.AllowFrom) == 0 && (byTCP(p.PolicyListen) || byTCP(p.SocketmapListen) || byTCP(p.TCPListen)) {
		f.add("postfix.allow_from", "nobody may ask by TCP: want networks, or services at unix:/PATH alone")
	}
	const most = 1 << 20
	if p.MaxConnections < 1 || p.MaxConnections > most {
		f.add("postfix.max_connections", "want 1 to %d, have %d", most, p.MaxConnections)
	}
	if _, err := socketMode(p.SocketMode); err != nil {
		f.add("postfix.socket_mode", "%v", err)
	}
}

// socketmapWarnings are about a list that cannot be asked alone, because the name of
// its map means all lists.
func (c Config) socketmapWarnings() []string {
	named := func(l List) bool { return l.Name == postfix.WholeDecision }
	if c.Postfix.SocketmapListen == "" || len(c.Lists) < 2 || !slices.ContainsFunc(c.Lists, named) {
		return nil
	}
	return []string{fmt.Sprintf("list %[1]q: the socketmap %[1]q is all lists together, and no map is this list alone: give it another name to have one", postfix.WholeDecision)}
}
