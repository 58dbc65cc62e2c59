package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"blockd/internal/listener"
)

// Bounds of the door for other nodes.
const (
	relayConnections = 256
	relayHeader      = 4 << 10          // octets of a request's header
	relayRequest     = 10 * time.Second // for that
	relayIdle        = 2 * time.Minute
	relayAnswer      = 10 * time.Minute // an object of 1 GiB at 2 MB/s
)

// openRelay makes what fleet.relay_listen asks for.
func (d *daemon) openRelay(ctx context.Context) (err error) {
	o := &d.relay
	if d.node == nil {
		return nil
	}
	if o.listeners, err = d.sockets.listen(ctx, "relay", "fleet.relay_listen", d.config.Fleet.RelayListen, ""); err != nil || len(o.listeners) == 0 {
		return err
	}
	srv := &http.Server{Handler: d.node.Relay(), ReadTimeout: relayRequest, WriteTimeout: relayAnswer, IdleTimeout: relayIdle, MaxHeaderBytes: relayHeader, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	o.serve = func(ctx context.Context) error {
		failed := make(chan error, len(o.listeners))
		for _, l := range o.listeners {
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
