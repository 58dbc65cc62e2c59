package daemon

import (
	"context"
	"fmt"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/mail/addr"
	"blockd/milter"
	"blockd/policy/rule"
)

// openMilter makes what [milter] asks for.
func (d *daemon) openMilter(ctx context.Context) (err error) {
	c, o := d.config, &d.milter
	if !c.Milter.Open() {
		return nil
	}
	s := milter.Settings{
		RejectAt: c.SMTP.RejectAt, ClientRejectAt: c.SMTP.ClientRejectAt, SkipAuthenticated: c.SMTP.SkipAuthenticated,
		OnError: rule.OnError(c.SMTP.OnError), MaxConnections: c.Milter.MaxConnections,
		DrainTimeout: time.Duration(c.SMTP.DrainTimeout), ProofTimeout: time.Duration(c.Auth.DNSTimeout), MaxCopy: int64(c.Auth.MaxMessage),
		Trusted: config.Networks(c.SMTP.Trusted), AllowFrom: config.Networks(c.Milter.AllowFrom), Strangers: d.turnAway("milter"), Copies: d.copies, Own: d.own.has,
	}
	if c.Milter.AuthenticationResults != "" {
		key, err := addr.DomainKey(c.Milter.AuthenticationResults)
		if err != nil {
			return fmt.Errorf("milter.authentication_results: %w", err)
		}
		s.Results = key.Text
	}
	if o.listeners, err = d.sockets.listen(ctx, "milter", "milter.listen", c.Milter.Listen, c.Milter.SocketGroup); err != nil {
		return err
	}
	srv := milter.New(s, d.checker, d.metrics, d.log)
	o.serve = func(ctx context.Context) error { return srv.Serve(ctx, o.listeners...) }
	d.locks = append(d.locks, func() { srv.Connections() })
	return nil
}
