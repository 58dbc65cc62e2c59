package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/addr"
	"blockd/internal/config"
	"blockd/milter"
	"blockd/policy"
	"blockd/spool"
)

// milterDoor is [milter], open. The zero value is a door that is shut.
type milterDoor struct {
	listeners []net.Listener
	server    *milter.Server
}

func openMilter(ctx context.Context, c config.Config, inherited inherited, checker *policy.Checker, copies *spool.Store, reg prometheus.Registerer, log *slog.Logger) (*milterDoor, error) {
	if !c.Milter.Open() {
		return &milterDoor{}, nil
	}
	settings, err := milterSettings(c)
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
func milterSettings(c config.Config) (s milter.Settings, err error) {
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
	s.Trusted, s.AllowFrom = config.Networks(c.SMTP.Trusted), config.Networks(c.Milter.AllowFrom)
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
