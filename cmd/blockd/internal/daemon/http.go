package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/forget"
	"blockd/doors/httpapi"
	"blockd/doors/httpapi/session"
	"blockd/reload"
)

// openHTTP makes what [http] asks for.
func openHTTP(ctx context.Context, d *daemon, p *part) (err error) {
	h, socket := d.config.HTTP, d.usableSocket()
	if h.Listen == "" && socket == "" {
		return nil
	}
	s := d.toHTTP
	s.Tokens, s.Fast, s.MaxConnections, s.MaxPerClient, s.MaxRate = h.Tokens, h.Fast, h.MaxConnections, h.MaxConnections/2, h.MaxRate
	s.Mailbox = d.setup.rules.Load().Owners.Mailbox
	s.Reload, s.Successor, s.Serving = d.reread, d.successor, d.serving
	s.Replay, s.ListSettings, s.Offer = d.replay, d.listSettings, d.offer()
	s.Subscriptions = &httpapi.Subscriptions{All: d.subscriptions, Change: d.changeSubscription}
	if s.URL, err = h.Address(); err != nil {
		return fmt.Errorf("http.url: %w", err)
	}
	if s.Provider, err = h.Provider(); err != nil {
		return fmt.Errorf("http.oidc.client_secret_file: %w", err)
	}
	if s.Sessions, err = session.Open(d.config.SessionSettings()); err != nil {
		d.log.Error("sessions cannot be read: browsers sign in again", slog.Any("error", err))
	}
	p.forget = func(all *forget.Places) {
		all.Sessions = func(names func(string) bool) (int, error) { return s.Sessions.Forget(time.Now(), names) }
	}
	for _, host := range h.Hosts {
		s.Hosts = append(s.Hosts, strings.ToLower(host))
	}
	if own := h.OwnToken(); own != "" {
		if s.Token, err = httpapi.ReadToken(own); err != nil {
			return fmt.Errorf("http.token_file: %w", err)
		}
	}
	if s.TLS, err = p.secure("http.tls_cert", h.TLSCert, h.TLSKey, prometheus.GaugeOpts{
		Name: "blockd_http_tls_certificate_valid_until_timestamp_seconds",
		Help: "When the certificate of the HTTP door ends to be valid, by Unix time.",
	}, prometheus.GaugeOpts{
		Name: "blockd_http_tls_certificate_current",
		Help: "1 if the HTTP door shows the certificate that the files hold, 0 if that cannot be used and an older one serves.",
	}, d.metrics, d.log); err != nil {
		return err
	}
	s.First = d.firstToken()
	if d.http, err = d.sockets.listen(ctx, "http", "http.listen", h.Listen, ""); err != nil {
		return err
	}
	srv := httpapi.New(s, d.checker, d.readiness(ctx), d.metrics, d.log)
	d.checks.Store(srv)
	for _, l := range d.http { // an inherited one need not be where http.listen says
		if address := l.Addr().String(); !h.Closed() && l.Addr().Network() == "tcp" && !config.OnLoopback(address) {
			return fmt.Errorf("http.listen: the inherited socket %s can be reached from other machines: it needs http.token_file or http.tokens", address)
		}
	}
	if socket != "" {
		own, err := d.sockets.listen(ctx, "socket", "http.socket", config.UnixPrefix+socket, h.SocketGroup)
		if err != nil {
			return err
		}
		d.http = append(slices.Clone(d.http), own...)
	}
	p.ends, p.run = atHTTP, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		for _, l := range d.http {
			d.log.Info("http listens", slog.String("address", l.Addr().String()))
			g.Go(func() error { return srv.Serve(ctx, l) })
		}
		return g.Wait()
	}
	return nil
}

// usableSocket is where the Unix socket is, "" where the place beside the index has a
// longer name than the system takes for a socket.
func (d *daemon) usableSocket() string {
	path := d.config.HTTPSocket()
	if d.config.HTTP.Socket == config.Auto && len(path) > config.MaxSocketPath {
		d.log.Warn("no Unix socket for blockd add and others: its path is too long; set http.socket", slog.String("path", path))
		return ""
	}
	return path
}

// firstToken is the file of the first token, which is made if it is missing. Without one, for whatever reason,
// what it would open stays closed, and mail is filtered.
func (d *daemon) firstToken() string {
	path := d.config.FirstToken()
	if path == "" {
		return ""
	}
	_, made, err := httpapi.FirstToken(path)
	if err != nil {
		d.log.Error("no token for the HTTP door: who wrote to whom is shown by the Unix socket alone", slog.Any("error", err))
		return ""
	}
	if made {
		d.log.Info("token made for the HTTP door", slog.String("file", path))
	}
	return path
}

// readiness is the state of the lists with that of the doors and of the way to the
// next server. Nothing is ready whose doors close because ctx has ended. In front of an
// open relay nothing is served, and before the first look the way is not known; a
// server that is away for a while is a problem, but the filter waits for it.
func (d *daemon) readiness(ctx context.Context) func() reload.Status {
	return func() reload.Status {
		s, problems := d.state()
		s.Problems = nil
		for _, p := range problems {
			s.Problems = append(s.Problems, p.Text)
		}
		if ctx.Err() != nil {
			s.Ready = false
			s.Problems = append(s.Problems, "stopping: the doors take no new connection")
		}
		s.Remarks = slices.Clone(s.Remarks)
		for _, p := range d.parts {
			if p.remarks != nil {
				s.Remarks = append(s.Remarks, p.remarks()...)
			}
		}
		return s
	}
}
