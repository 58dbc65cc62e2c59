package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/certificate"
	"blockd/internal/config"
	"blockd/mailbox"
	"blockd/policy"
	"blockd/smtpfilter/server"
	"blockd/smtpfilter/session"
	"blockd/smtpfilter/upstream"
	"blockd/spool"
)

// smtpDoor is [smtp], open. The zero value is a door that is shut.
type smtpDoor struct {
	listeners   []net.Listener
	server      *server.Server
	run         server.Run
	certificate *certificate.Pair // nil: no TLS
	done        func()            // ends the embedded mailbox, if there is one
}

// openSMTP makes what [smtp] asks for, from the next server back to the
// listeners. Nothing is accepted before serve.
func openSMTP(ctx context.Context, c config.Config, hostname string, inherited inherited, checker *policy.Checker, copies *spool.Store, reg prometheus.Registerer, log *slog.Logger) (_ *smtpDoor, err error) {
	s := c.SMTP
	if !s.Open() {
		return &smtpDoor{}, nil
	}
	d := &smtpDoor{done: func() {}}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if err := d.listen(ctx, s, inherited); err != nil {
		return nil, err
	}
	secure, err := d.openCertificate(s, reg, log)
	if err != nil {
		return nil, err
	}
	up, err := config.ParseUpstream(s.Upstream)
	if err != nil {
		return nil, err
	}
	next, done, err := newDialer(s, up, hostname, log)
	if err != nil {
		return nil, err
	}
	d.done = done
	d.server = server.New(server.Settings{
		Hostname: hostname, MaxConnections: s.MaxConnections, MaxPerClient: s.MaxConnectionsPerIP, MaxRate: s.MaxRatePerIP,
		Proxies: config.Networks(s.ProxyFrom), ProxyTimeout: time.Duration(s.ProxyTimeout), TLS: secure, TLSTimeout: time.Duration(s.TLSTimeout),
		AllowOpenUpstream: s.AllowOpenUpstream, StopTimeout: stopTimeout(s),
	}, next, reg, log)
	settings := session.Settings{
		Trusted:  config.Networks(s.Trusted),
		Hostname: hostname, RejectAt: s.RejectAt, ClientInfo: s.ClientInfo, Protocol: protocolOf(up),
		Limits: sessionLimits(s), Crowded: d.server.Crowded,
		ClientRejectAt: s.ClientRejectAt, Helo: s.Helo, PTR: s.PTR, Auth: s.Auth, SkipAuthenticated: s.SkipAuthenticated,
		Chunking: s.Chunking, Copies: copies, MaxCopy: int64(c.Auth.MaxMessage),
	}
	if s.Quarantine != "" {
		if settings.Quarantine, err = mailbox.OpenQuarantine(s.Quarantine, hostname, int64(s.QuarantineMax), log); err != nil {
			return nil, fmt.Errorf("smtp.quarantine: %w", err)
		}
	}
	if secure != nil {
		settings.StartTLS = d.server.StartTLS
	}
	d.run = session.New(settings, next, checker, session.NewMetrics(reg), log).Run
	return d, nil
}

// listen opens the two doors, or takes them over from who has opened them for us.
func (d *smtpDoor) listen(ctx context.Context, s config.SMTP, inherited inherited) error {
	plain, err := inherited.listen(ctx, "smtp", "smtp.listen", s.Listen)
	d.listeners = append(d.listeners, plain...)
	if err != nil {
		return err
	}
	overTLS, err := inherited.listen(ctx, "smtps", "smtp.tls_listen", s.TLSListen)
	for _, l := range overTLS {
		d.listeners = append(d.listeners, server.Implicit(l))
	}
	return err
}

// openCertificate reads the pair for clients; nil without one.
func (d *smtpDoor) openCertificate(s config.SMTP, reg prometheus.Registerer, log *slog.Logger) (*tls.Config, error) {
	if s.TLSCert == "" {
		return nil, nil
	}
	pair, err := certificate.Open(s.TLSCert, s.TLSKey, log)
	if err != nil {
		return nil, fmt.Errorf("smtp.tls_cert: %w", err)
	}
	d.certificate = pair
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "blockd_smtp_tls_certificate_valid_until_timestamp_seconds",
			Help: "When the certificate that clients are shown ends to be valid, by Unix time.",
		}, func() float64 { return float64(pair.NotAfter().Unix()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "blockd_smtp_tls_certificate_current",
			Help: "1 if clients are shown the certificate that the files hold, 0 if that cannot be used and an older one serves.",
		}, func() float64 {
			if pair.Failing() {
				return 0
			}
			return 1
		}))
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.Get}, nil
}

// serve accepts clients until ctx ends and then waits for their transactions.
func (d *smtpDoor) serve(ctx context.Context) error {
	if d.server == nil {
		<-ctx.Done()
		return nil
	}
	if d.certificate != nil {
		go d.certificate.Watch(ctx)
	}
	return d.server.Serve(ctx, d.run, d.listeners...)
}

// reload takes up a changed certificate at once.
func (d *smtpDoor) reload() {
	if d.certificate != nil {
		d.certificate.Now()
	}
}

// alive returns if nothing holds the locks of the door for good.
func (d *smtpDoor) alive() {
	if d.server != nil {
		d.server.Sessions()
	}
}

func (d *smtpDoor) close() {
	for _, l := range d.listeners {
		l.Close() // a second time, if it served
	}
	if d.done != nil {
		d.done()
	}
}

// limits are those of a session.
func sessionLimits(s config.SMTP) session.Limits {
	return session.Limits{
		CommandIdle: time.Duration(s.CommandTimeout), StressIdle: time.Duration(s.StressTimeout),
		DataStart: time.Duration(s.DataStartTimeout), DataBlock: time.Duration(s.DataTimeout),
		UpstreamReply: time.Duration(s.UpstreamTimeout), FinalReply: time.Duration(s.UpstreamFinalTimeout),
		Session: time.Duration(s.SessionTimeout), Drain: time.Duration(s.DrainTimeout), GreetWait: time.Duration(s.GreetWait),
		ErrorDelay: time.Duration(s.ErrorDelay), MinDataRate: s.MinDataRate, MessageSize: int64(s.MaxMessageSize),
		CommandRate: s.MaxCommandRate, Recipients: s.MaxRecipients,
		SoftErrors: s.SoftErrors, HardErrors: s.HardErrors, JunkCommands: s.MaxJunkCommands,
		Tarpits: s.MaxTarpits,
	}
}

// stopTimeout is when a session that was given its time to end well is cut: the
// drain, the wait for upstream's last word, and a minute for all that is between.
func stopTimeout(s config.SMTP) time.Duration {
	return time.Duration(s.DrainTimeout) + time.Duration(s.UpstreamFinalTimeout) + time.Minute
}

func protocolOf(u config.Upstream) upstream.Protocol {
	if u.Scheme == "lmtp" || u.Scheme == "lmtp+unix" {
		return upstream.LMTP
	}
	return upstream.SMTP
}

// mailboxPatience is how long the embedded mailbox may finish what it writes
// after the last session has gone: a file and two syncs.
const mailboxPatience = 10 * time.Second

// dialer returns the way to the next server. The embedded mailbox is started
// for it where there is none; done ends that after the last session.
func newDialer(s config.SMTP, u config.Upstream, hostname string, log *slog.Logger) (d *upstream.Dialer, done func(), err error) {
	trust, err := s.UpstreamTrust()
	if err != nil {
		return nil, nil, fmt.Errorf("smtp.upstream_tls: %w", err)
	}
	set := upstream.Settings{
		Protocol: protocolOf(u), Network: u.Network, Address: u.Address, Hostname: hostname, ClientInfo: s.ClientInfo,
		TLS: s.UpstreamTLS, Trust: trust, SelfTestRecipient: s.SelfTestRecipient,
		DialTimeout: time.Duration(s.UpstreamConnectTimeout), TLSTimeout: time.Duration(s.TLSTimeout),
		ReplyTimeout: time.Duration(s.UpstreamTimeout),
	}
	if u.Scheme != "maildir" {
		return upstream.New(set), func() {}, nil
	}
	box, err := mailbox.New(mailbox.Settings{Dir: u.Address, Hostname: hostname}, log)
	if err != nil {
		return nil, nil, fmt.Errorf("smtp.upstream: %w", err)
	}
	set.Network, set.Address, set.Dial = "", "", box.Dial
	return upstream.New(set), func() {
		ctx, cancel := context.WithTimeout(context.Background(), mailboxPatience)
		defer cancel()
		if err := box.Shutdown(ctx); err != nil {
			log.Warn("mailbox cut off", slog.Any("err", err))
		}
	}, nil
}
