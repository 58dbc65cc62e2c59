package main

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"blockd/internal/config"
	"blockd/policy"
	"blockd/postfix"
)

// postfixDoor is [postfix], open. The zero value is a door that is shut.
type postfixDoor struct{ services []postfixService }

type postfixService struct {
	listeners []net.Listener
	server    *postfix.Server
}

func openPostfix(ctx context.Context, c config.Config, inherited inherited, checker *policy.Checker, reg prometheus.Registerer, log *slog.Logger) (_ *postfixDoor, err error) {
	d := &postfixDoor{}
	if !c.Postfix.Open() {
		return d, nil
	}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	settings := postfixSettings(c)
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
func postfixSettings(c config.Config) (s postfix.Settings) {
	s = postfix.Settings{
		MaxConnections: c.Postfix.MaxConnections, OnError: policy.OnError(c.SMTP.OnError),
		RejectAt: c.SMTP.RejectAt, ClientRejectAt: c.SMTP.ClientRejectAt, SkipAuthenticated: c.SMTP.SkipAuthenticated,
		ProofTimeout: time.Duration(c.Auth.DNSTimeout),
	}
	s.Trusted, s.AllowFrom = config.Networks(c.SMTP.Trusted), config.Networks(c.Postfix.AllowFrom)
	for _, l := range c.Lists {
		s.Lists = append(s.Lists, l.Name)
	}
	return s
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
