package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/dnsbl"
	"blockd/doors/forget"
	"blockd/doors/health"
	"blockd/doors/postfix"
	"blockd/doors/receipt"
	"blockd/doors/resp"
	"blockd/index/live"
	"blockd/internal/listener"
	"blockd/mail/addr"
	"blockd/mail/msgauth"
	"blockd/milter"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/records/history"
)

// openMilter makes what [milter] asks for.
func openMilter(ctx context.Context, d *daemon, p *part) (err error) {
	c := d.config
	if !c.Milter.Open() {
		return nil
	}
	s := milter.Settings{
		RejectAt: c.SMTP.RejectAt, ClientRejectAt: c.SMTP.ClientRejectAt, SkipAuthenticated: c.SMTP.SkipAuthenticated,
		OnError: rule.OnError(c.SMTP.OnError), MaxConnections: c.Milter.MaxConnections,
		DrainTimeout: time.Duration(c.SMTP.DrainTimeout), ProofTimeout: time.Duration(c.Auth.DNSTimeout), MaxCopy: int64(c.Auth.MaxMessage),
		Trusted: config.Networks(c.SMTP.Trusted), AllowFrom: config.Networks(c.Milter.AllowFrom), Strangers: p.turnAway("milter", d.log), Copies: d.copies, Own: d.own.has,
	}
	if c.Milter.AuthenticationResults != "" {
		key, err := addr.DomainKey(c.Milter.AuthenticationResults)
		if err != nil {
			return fmt.Errorf("milter.authentication_results: %w", err)
		}
		s.Results = key.Text
	}
	listeners, err := d.sockets.listen(ctx, "milter", "milter.listen", c.Milter.Listen, c.Milter.SocketGroup)
	if err != nil {
		return err
	}
	srv := milter.New(s, d.checker, d.metrics, d.log)
	p.ends, p.run = atDoors, func(ctx context.Context) error { return srv.Serve(ctx, listeners...) }
	p.lock = func() { srv.Connections() }
	return nil
}

// openPostfix makes what [postfix] asks for.
func openPostfix(ctx context.Context, d *daemon, p *part) error {
	c := d.config
	if !c.Postfix.Open() {
		return nil
	}
	s := postfix.Settings{
		MaxConnections: c.Postfix.MaxConnections, OnError: rule.OnError(c.SMTP.OnError),
		RejectAt: c.SMTP.RejectAt, ClientRejectAt: c.SMTP.ClientRejectAt, SkipAuthenticated: c.SMTP.SkipAuthenticated,
		ProofTimeout: time.Duration(c.Auth.DNSTimeout),
		Trusted:      config.Networks(c.SMTP.Trusted), AllowFrom: config.Networks(c.Postfix.AllowFrom), Strangers: p.turnAway("postfix", d.log), Own: d.own.has,
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
			services[service.make(s, d.checker, metrics, d.log)] = d.upgrade.andArrivals(service.name, listeners)
		}
	}
	p.ends, p.run = atDoors, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		for server, listeners := range services {
			g.Go(func() error { return server.Serve(ctx, listeners...) })
		}
		return g.Wait()
	}
	return nil
}

// openDNS makes what [dns] asks for.
func openDNS(ctx context.Context, d *daemon, p *part) (err error) {
	c := d.config.DNS
	if !c.Open() {
		return nil
	}
	var listeners []net.Listener
	if !d.sockets.packetsAlone("dns", c.Listen) {
		if listeners, err = d.sockets.listen(ctx, "dns", "dns.listen", c.Listen, ""); err != nil {
			return err
		}
	}
	packets, err := d.sockets.listenPackets(ctx, "dns", "dns.listen", c.Listen, listeners)
	if err != nil {
		return err
	}
	s := d.config.DNSDoor()
	s.Host, s.Strangers = d.hostname, p.turnAway("dns", d.log)
	srv := dnsbl.New(s, d.lists.Live, d.checker, d.metrics, d.log)
	p.ends, p.run = atDoors, func(ctx context.Context) error { return srv.Serve(ctx, packets, listeners) }
	p.lock = func() { srv.Connections() }
	return nil
}

// openRESP makes what [resp] asks for.
func openRESP(ctx context.Context, d *daemon, p *part) error {
	c := d.config
	if !c.RESP.Open() {
		return nil
	}
	s := resp.Settings{
		AllowFrom: config.Networks(c.RESP.AllowFrom), Strangers: p.turnAway("resp", d.log), MaxConnections: c.RESP.MaxConnections, Users: c.RESP.Users, Required: c.Required(nil), Serving: d.lists.Live,
	}
	for _, l := range c.Lists {
		s.Lists = append(s.Lists, l.Name)
		s.Waits = s.Waits || l.Asked()
	}
	if d.entries != nil {
		s.Lists, s.Live = append(s.Lists, live.ListName), d.entries.Len
	}
	srv, err := resp.New(s, d.checker, resp.NewMetrics(d.metrics), d.log)
	if err != nil {
		return fmt.Errorf("resp.users: %w", err)
	}
	listeners, err := d.sockets.listen(ctx, "resp", "resp.listen", c.RESP.Listen, c.RESP.SocketGroup)
	if err != nil {
		return err
	}
	p.ends, p.run = atOthers, func(ctx context.Context) error { return srv.Serve(ctx, listeners...) }
	p.renew = func() {
		if err := srv.RenewUsers(); err != nil {
			d.log.Error("resp passwords not read again: those from before count", slog.Any("error", err))
		}
	}
	return nil
}

// openReceiptKey comes before the checker, which makes references with it.
func openReceiptKey(_ context.Context, d *daemon, p *part) (err error) {
	folder := d.config.ReceiptsFolder()
	if folder == "" {
		return nil
	}
	if d.key, err = receipt.OpenKey(folder); err != nil {
		return fmt.Errorf("receipts: %w", err)
	}
	requests := receipt.NewStore(folder, d.key)
	d.setup.rules.Load().NewRef, d.toHTTP.Requests = d.key.NewRef, requests
	p.forget = func(all *forget.Places) { all.Requests = requests }
	return nil
}

// openReceipts makes the door.
func openReceipts(ctx context.Context, d *daemon, p *part) (err error) {
	c, requests := d.config.Receipts, d.toHTTP.Requests
	if d.key == nil {
		return nil
	}
	srv := &receipt.Server{Key: d.key, Requests: requests, Log: d.log, Contact: d.checker.Contact, Proves: d.proves,
		About: func(list string) (homepage, complaints string) {
			a := d.checker.About(list)
			return a.Homepage, a.Complaints
		},
		Find: func(ctx context.Context, ref string) (*history.Record, error) {
			found, err := d.past.Search(ctx, history.Query{Ref: ref, Limit: 1})
			if err != nil || len(found.Records) == 0 {
				return nil, err
			}
			return &found.Records[0], nil
		}}
	if srv.TLS, err = p.secure("receipts.tls_cert", c.TLSCert, c.TLSKey, prometheus.GaugeOpts{
		Name: "blockd_receipts_tls_certificate_valid_until_timestamp_seconds",
		Help: "When the certificate of the door for refused people ends to be valid, by Unix time.",
	}, prometheus.GaugeOpts{
		Name: "blockd_receipts_tls_certificate_current",
		Help: "1 if refused people are shown the certificate that the files hold, 0 if that cannot be used and an older one serves.",
	}, d.metrics, d.log); err != nil {
		return err
	}
	listeners, err := d.sockets.listen(ctx, "receipts", "receipts.listen", c.Listen, "")
	if err != nil {
		return err
	}
	srv.Register(d.metrics)
	d.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_receipts_requests_open",
		Help: "Requests of refused people that wait for a person."}, func() float64 { return float64(requests.CountOpen()) }))
	p.forget = func(all *forget.Places) {
		past := all.History
		all.History = func(ctx context.Context, about func(*history.Record) bool) (int, error) {
			n, err := past(ctx, about)
			srv.Forget(about) // of the door's memory, after it, so that nothing is found again
			return n, err
		}
	}
	p.ends, p.run = atOthers, func(ctx context.Context) error { return srv.Serve(ctx, listeners...) }
	return nil
}

// proves reports whether SPF shows that the mail of a request came from its sender's domain.
func (d *daemon) proves(ctx context.Context, q receipt.Request) receipt.Proof {
	client, err := netip.ParseAddr(q.Client)
	if err != nil || q.Sender == "" {
		return receipt.NoProof
	}
	switch d.resolver.SPF(ctx, client, q.Helo, q.Sender).Proof {
	case msgauth.Pass:
		return receipt.SPF
	case msgauth.Unknown, msgauth.Short:
		return receipt.Unknown
	}
	return receipt.NoProof
}

// Bounds of the door for other nodes.
const (
	relayConnections = 256
	relayHeader      = 4 << 10          // octets of a request's header
	relayRequest     = 10 * time.Second // for that
	relayIdle        = 2 * time.Minute
	relayAnswer      = 10 * time.Minute // an object of 1 GiB at 2 MB/s
)

// openRelay makes what fleet.relay_listen asks for.
func openRelay(ctx context.Context, d *daemon, p *part) error {
	if d.node == nil {
		return nil
	}
	listeners, err := d.sockets.listen(ctx, "relay", "fleet.relay_listen", d.config.Fleet.RelayListen, "")
	if err != nil || len(listeners) == 0 {
		return err
	}
	srv := &http.Server{Handler: d.node.Relay(), ReadTimeout: relayRequest, WriteTimeout: relayAnswer, IdleTimeout: relayIdle, MaxHeaderBytes: relayHeader, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	p.ends, p.run = atOthers, func(ctx context.Context) error {
		failed := make(chan error, len(listeners))
		for _, l := range listeners {
			d.log.Info("relay listens", slog.String("address", l.Addr().String()))
			bound := listener.Bound(l, relayConnections, ctx.Done(), func(err error, retry time.Duration) {
				d.log.Error("relay accept failed", slog.Any("error", err), slog.Duration("retry", retry))
			})
			go func() { failed <- srv.Serve(bound) }()
		}
		var err error
		select {
		case <-ctx.Done():
		case err = <-failed:
		}
		srv.Close()
		if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	}
	return nil
}

// openHealth makes what [health] asks for.
func openHealth(ctx context.Context, d *daemon, p *part) error {
	listeners, err := d.sockets.listen(ctx, "health", "health.listen", d.config.Health.Listen, "")
	if err != nil || len(listeners) == 0 {
		return err
	}
	ready := d.readiness(ctx)
	srv := &health.Server{Log: d.log, Ready: func() bool { return ready().Ready }, Locks: d.passLocks}
	p.ends, p.run = atHTTP, func(ctx context.Context) error { return srv.Serve(ctx, listeners...) } // says until the last that nothing new is wanted
	return nil
}
