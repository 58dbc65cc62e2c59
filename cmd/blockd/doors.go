package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"blockd/httpapi"
	"blockd/policy"
	"blockd/reload"
	"blockd/smtpfilter/upstream"
)

// httpDoor is [http], open. The zero value is a door that is shut.
type httpDoor struct {
	listeners []net.Listener
	server    *httpapi.Server
	log       *slog.Logger
}

func (c Config) openHTTP(ctx context.Context, inherited inherited, checker *policy.Checker, status func() reload.Status, reg prometheus.Gatherer, log *slog.Logger) (*httpDoor, error) {
	if c.HTTP.Listen == "" {
		return &httpDoor{}, nil
	}
	var s httpapi.Settings
	if c.HTTP.TokenFile != "" {
		var err error
		if s.Token, err = httpapi.ReadToken(c.HTTP.TokenFile); err != nil {
			return nil, fmt.Errorf("http.token_file: %w", err)
		}
	}
	listeners, err := inherited.listen(ctx, "http", "http.listen", c.HTTP.Listen)
	if err != nil {
		return nil, err
	}
	d := &httpDoor{listeners, httpapi.New(s, checker, status, reg, log), log}
	for _, l := range listeners { // an inherited one need not be where http.listen says
		if address := l.Addr().String(); c.HTTP.TokenFile == "" && l.Addr().Network() == "tcp" && !onLoopback(address) {
			d.close()
			return nil, fmt.Errorf("http.listen: the inherited socket %s can be reached from other machines: it needs http.token_file", address)
		}
	}
	return d, nil
}

func (d *httpDoor) serve(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range d.listeners {
		d.log.Info("http listens", slog.String("address", l.Addr().String()))
		g.Go(func() error { return d.server.Serve(ctx, l) })
	}
	return g.Wait()
}

func (d *httpDoor) close() {
	for _, l := range d.listeners {
		l.Close()
	}
}

// readiness is the state of the lists with that of the way to the next server.
// An open relay behind is served nothing, and until the first look nobody knows;
// a server that is away for a while is a problem, but the filter waits for it.
func readiness(lists *reload.Reloader, smtp *smtpDoor) func() reload.Status {
	return func() reload.Status {
		s := lists.Status()
		if smtp.server == nil {
			return s
		}
		if err := smtp.server.Status().Err; err != nil {
			s.Problems = append(slices.Clone(s.Problems), "smtp.upstream: "+err.Error())
			if errors.Is(err, upstream.ErrOpenRelay) || errors.Is(err, upstream.ErrOwnListener) || errors.Is(err, upstream.ErrUntested) {
				s.Ready = false
			}
		}
		return s
	}
}
