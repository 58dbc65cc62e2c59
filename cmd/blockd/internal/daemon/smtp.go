package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/cmd/blockd/internal/config"
	"blockd/mail/mailbox"
	"blockd/smtpfilter/server"
	"blockd/smtpfilter/session"
	"blockd/smtpfilter/upstream"
)

// openSMTP makes what [smtp] asks for.
func (d *daemon) openSMTP(ctx context.Context) (err error) {
	s, o := d.config.SMTP, &d.smtp
	if !s.Open() {
		return nil
	}
	if o.listeners, err = d.sockets.listen(ctx, "smtp", "smtp.listen", s.Listen, ""); err != nil {
		return err
	}
	overTLS, err := d.sockets.listen(ctx, "smtps", "smtp.tls_listen", s.TLSListen, "")
	if err != nil {
		return err
	}
	for _, l := range overTLS {
		o.listeners = append(o.listeners, server.Implicit(l))
	}
	secure, err := o.secure("smtp.tls_cert", s.TLSCert, s.TLSKey, prometheus.GaugeOpts{
		Name: "blockd_smtp_tls_certificate_valid_until_timestamp_seconds",
		Help: "When the certificate that clients are shown ends to be valid, by Unix time.",
	}, prometheus.GaugeOpts{
		Name: "blockd_smtp_tls_certificate_current",
		Help: "1 if clients are shown the certificate that the files hold, 0 if that cannot be used and an older one serves.",
	}, d.metrics, d.log)
	if err != nil {
		return err
	}
	up, err := config.ParseUpstream(s.Upstream)
	if err != nil {
		return err
	}
	next, err := d.nextServer(up)
	if err != nil {
		return err
	}
	srv := server.New(server.Settings{
		Hostname: d.hostname, MaxConnections: s.MaxConnections, MaxPerClient: s.MaxConnectionsPerIP, MaxRate: s.MaxRatePerIP,
		Proxies: config.Networks(s.ProxyFrom), TLS: secure,
		AllowOpenUpstream: s.AllowOpenUpstream, StopTimeout: stopTimeout(s),
	}, next, d.metrics, d.log)
	settings := session.Settings{
		Hostname: d.hostname, Trusted: config.Networks(s.Trusted), Own: d.own.has, RejectAt: s.RejectAt, Mail: s.Mail, ClientInfo: s.ClientInfo, Protocol: up.Protocol(),
		Limits: sessionLimits(s), Crowded: srv.Crowded,
		ClientRejectAt: s.ClientRejectAt, Helo: s.Helo, PTR: s.PTR, Resolver: d.resolver, Auth: s.Auth, SkipAuthenticated: s.SkipAuthenticated,
		Chunking: s.Chunking, Copies: d.copies, MaxCopy: int64(d.config.Auth.MaxMessage),
	}
	if s.Quarantine != "" {
		if settings.Quarantine, err = mailbox.OpenQuarantine(s.Quarantine, d.hostname, mailbox.Use{Octets: int64(s.QuarantineMax), Messages: s.QuarantineMaxMessages}, d.log); err != nil {
			return fmt.Errorf("smtp.quarantine: %w", err)
		}
		d.aside.open(s.Quarantine, settings.Quarantine, next, d.metrics)
	}
	if secure != nil {
		settings.StartTLS = srv.StartTLS
	}
	run := session.New(settings, next, d.checker, session.NewMetrics(d.metrics), d.log).Run
	o.serve = func(ctx context.Context) error { return srv.Serve(ctx, run, o.listeners...) }
	d.locks = append(d.locks, func() { srv.Sessions() })
	o.sessions, o.look = srv.Sessions, func(ctx context.Context) { srv.Look(ctx, o.listeners...) }
	o.upstream = func() error { return srv.Status().Err }
	return nil
}

// sessionLimits are those that have a key, or follow from one; the others are session's own.
func sessionLimits(s config.SMTP) session.Limits {
	return session.Limits{
		Drain: time.Duration(s.DrainTimeout), GreetWait: time.Duration(s.GreetWait),
		MessageSize: int64(s.MaxMessageSize), CommandRate: s.MaxCommandRate, Recipients: s.MaxRecipients,
		HardErrors: s.HardErrors, SoftErrors: s.HardErrors / 2, JunkCommands: 5 * s.HardErrors,
		Tarpits: max(1, s.MaxConnections/16),
	}
}

// stopTimeout is when a session that was given its time to end well is cut: the
// drain, the wait for upstream's last word, and a minute for all that is between.
func stopTimeout(s config.SMTP) time.Duration {
	return time.Duration(s.DrainTimeout) + session.FinalReply + time.Minute
}

// mailboxPatience is how long the embedded mailbox may finish what it writes
// after the last session has gone: a file and two syncs.
const mailboxPatience = 10 * time.Second

// nextServer returns the way to the next server. Where there is none the embedded mailbox is
// started for it, and ends after the last session.
func (d *daemon) nextServer(u config.Upstream) (*upstream.Dialer, error) {
	set, err := d.config.SMTP.UpstreamSettings(u, d.hostname)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "maildir" {
		return upstream.New(set), nil
	}
	box, err := mailbox.New(mailbox.Settings{Dir: u.Address, Hostname: d.hostname}, d.log)
	if err != nil {
		return nil, fmt.Errorf("smtp.upstream: %w", err)
	}
	d.smtp.done = func() {
		ctx, cancel := context.WithTimeout(context.Background(), mailboxPatience)
		defer cancel()
		if err := box.Shutdown(ctx); err != nil {
			d.log.Warn("mailbox cut off", slog.Any("err", err))
		}
	}
	set.Network, set.Address, set.Dial = "", "", box.Dial
	return upstream.New(set), nil
}
