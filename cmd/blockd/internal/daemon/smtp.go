package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/forget"
	"blockd/doors/httpapi"
	"blockd/internal/term"
	"blockd/mail/mailbox"
	"blockd/records/quarantine"
	"blockd/smtpfilter/server"
	"blockd/smtpfilter/session"
	"blockd/smtpfilter/upstream"
)

// smtpDoor is what others ask of the SMTP filter. The zero value is one that is shut.
type smtpDoor struct {
	listeners []net.Listener
	upstream  func() error          // what is wrong with the next server
	look      func(context.Context) // makes upstream known before the first client
	sessions  func() int            // that are open
}

// openSMTP makes what [smtp] asks for. HTTP ends after it, also where it is shut.
func openSMTP(ctx context.Context, d *daemon, p *part) (err error) {
	s, o := d.config.SMTP, &d.smtp
	p.ends, p.run = atSMTP, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}
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
	secure, err := p.secure("smtp.tls_cert", s.TLSCert, s.TLSKey, prometheus.GaugeOpts{
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
	next, err := d.nextServer(up, p)
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
		d.aside = &aside{quarantine.Folder(s.Quarantine), settings.Quarantine, next}
	}
	if secure != nil {
		settings.StartTLS = srv.StartTLS
	}
	run := session.New(settings, next, d.checker, session.NewMetrics(d.metrics), d.log).Run
	p.run = func(ctx context.Context) error { return srv.Serve(ctx, run, o.listeners...) }
	p.lock = func() { srv.Sessions() }
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
func (d *daemon) nextServer(u config.Upstream, p *part) (*upstream.Dialer, error) {
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
	p.close = func() {
		ctx, cancel := context.WithTimeout(context.Background(), mailboxPatience)
		defer cancel()
		if err := box.Shutdown(ctx); err != nil {
			d.log.Warn("mailbox cut off", slog.Any("err", err))
		}
	}
	set.Network, set.Address, set.Dial = "", "", box.Dial
	return upstream.New(set), nil
}

// aside is smtp.quarantine, which the SMTP filter fills and the HTTP door shows.
type aside struct {
	folder quarantine.Folder
	kept   *mailbox.Quarantine
	next   *upstream.Dialer
}

// openQuarantine counts what the SMTP filter has put into quarantine.
func openQuarantine(_ context.Context, d *daemon, p *part) error {
	a := d.aside
	if a == nil {
		return nil
	}
	auto, kept := promauto.With(d.metrics), a.kept
	for _, g := range []struct {
		name, help string
		value      func() float64
	}{
		{"blockd_smtp_quarantine_messages", "Messages in quarantine.", func() float64 { return float64(kept.Use().Messages) }},
		{"blockd_smtp_quarantine_bytes", "Octets of the messages in quarantine.", func() float64 { return float64(kept.Use().Octets) }},
		{"blockd_smtp_quarantine_fill", "How full the quarantine is, from 0 to 1, by its octets or its messages, whichever are nearer to their limit.", func() float64 {
			return kept.Use().Share(kept.Most())
		}},
	} {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, g.value)
	}
	d.toHTTP.Quarantine = &httpapi.Quarantine{Folder: a.folder, Fill: a.fill, Changed: kept.Recount, Deliver: a.deliver}
	p.forget = func(all *forget.Places) { all.Quarantine, all.Purged = a.folder, kept.Recount }
	p.problems = lines(a.problems)
	p.run = func(ctx context.Context) error { return a.watch(ctx, d.log) }
	return nil
}

// nearlyFull is the share of its limits from which on the quarantine is a problem. At 1 mail for it is deferred.
const nearlyFull = 0.8

func (a *aside) fill() httpapi.QuarantineFill {
	use, most := a.kept.Use(), a.kept.Most()
	return httpapi.QuarantineFill{Count: use.Messages, MaxCount: most.Messages, Octets: use.Octets, MaxOctets: most.Octets, NearlyFull: use.Share(most) >= nearlyFull}
}

// problems says that the quarantine is nearly full.
func (a *aside) problems() []string {
	use, most := a.kept.Use(), a.kept.Most()
	share := use.Share(most)
	if share < nearlyFull {
		return nil
	}
	return []string{fmt.Sprintf("smtp.quarantine: %.0f %% full (%s of %s messages, %s of %s): when it is full such mail is deferred; blockd quarantine purge --older 30d",
		100*share, term.Grouped(use.Messages), term.Grouped(most.Messages), term.Octets(use.Octets), term.Octets(most.Octets))}
}

// watch logs once when the quarantine is nearly full, and once when it has room again.
func (a *aside) watch(ctx context.Context, log *slog.Logger) error {
	tick := time.Tick(time.Minute)
	for told := false; ; {
		switch problems := a.problems(); {
		case len(problems) > 0 && !told:
			log.Warn("quarantine nearly full", slog.String("problem", problems[0]))
			told = true
		case len(problems) == 0 && told:
			log.Info("quarantine has room again")
			told = false
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return nil
		}
	}
}

// deliver is quarantine.Deliver, to the next server.
func (a *aside) deliver(ctx context.Context, m quarantine.Mail) (all []quarantine.Delivery, err error) {
	outcomes, err := a.next.Send(ctx, upstream.Mail{Sender: m.Sender, Recipients: m.Recipients, UTF8: m.UTF8, EightBit: m.EightBit, Binary: m.Binary,
		Size: m.Size, Message: m.Message, End: m.End})
	if errors.Is(err, upstream.ErrUnsure) {
		err = fmt.Errorf("%w: %w", quarantine.ErrUnsure, err)
	}
	for _, o := range outcomes {
		all = append(all, quarantine.Delivery{Recipient: o.Recipient, Accepted: o.Reply.Code/100 == 2, Reply: upstream.FirstLine(o.Reply)})
	}
	return all, err
}
