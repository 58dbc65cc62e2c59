package daemon

import (
	"context"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/postfix"
	"blockd/policy"
	"blockd/policy/rule"
)

// openPostfix makes what [postfix] asks for.
func (d *daemon) openPostfix(ctx context.Context) error {
	c, o := d.config, &d.postfix
	if !c.Postfix.Open() {
		return nil
	}
	s := postfix.Settings{
		MaxConnections: c.Postfix.MaxConnections, OnError: rule.OnError(c.SMTP.OnError),
		RejectAt: c.SMTP.RejectAt, ClientRejectAt: c.SMTP.ClientRejectAt, SkipAuthenticated: c.SMTP.SkipAuthenticated,
		ProofTimeout: time.Duration(c.Auth.DNSTimeout),
		Trusted:      config.Networks(c.SMTP.Trusted), AllowFrom: config.Networks(c.Postfix.AllowFrom), Strangers: d.turnAway("postfix"), Own: d.own.has,
		Leave: d.upgrade.leave,
	}
	for _, l := range c.Lists {
		s.Lists = append(s.Lists, l.Name)
	}
	metrics := postfix.NewMetrics(d.metrics)
	services := map[*postfix.Server][]net.Listener{}
	for _, service := range []struct {
		name, key, where string
		make             func(postfix.Settings, *policy.Checker, *postfix.Metrics, *slog.Logger) *postfix.Server
	}{
		{"policy", "postfix.policy_listen", c.Postfix.PolicyListen, postfix.Policy},
		{"socketmap", "postfix.socketmap_listen", c.Postfix.SocketmapListen, postfix.Socketmap},
		{"tcp", "postfix.tcp_listen", c.Postfix.TCPListen, postfix.TCPTable},
	} {
		listeners, err := d.sockets.listen(ctx, service.name, service.key, service.where, c.Postfix.SocketGroup)
		if err != nil {
			return err
		}
		if len(listeners) > 0 {
			o.listeners = append(o.listeners, listeners...)
			services[service.make(s, d.checker, metrics, d.log)] = d.upgrade.andArrivals(service.name, listeners)
		}
	}
	o.serve = func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		for server, listeners := range services {
			g.Go(func() error { return server.Serve(ctx, listeners...) })
		}
		return g.Wait()
	}
	return nil
}
