package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/certificate"
	"blockd/internal/listener"
)

// door is where clients come in. The zero value is a door that is shut.
type door struct {
	listeners   []net.Listener
	packets     []net.PacketConn            // of UDP
	certificate *certificate.Pair           // nil: no TLS
	serve       func(context.Context) error // until ctx ends, and then until clients have gone
	upstream    func() error                // what is wrong with the next server; nil: there is none
	look        func(context.Context)       // makes upstream known before the first client; nil: there is none
	sessions    func() int                  // that are open; nil: not known
	done        func()                      // after the last client; may be nil
}

// openDoors opens what the configuration asks for. Nothing is accepted before run.
func (d *daemon) openDoors(ctx context.Context) (err error) {
	d.sockets.open = map[place]socket{}
	if d.sockets.inherited, err = inherit(); err != nil {
		return err
	}
	for _, open := range []func(context.Context) error{d.openSMTP, d.openHTTP, d.openMilter, d.openPostfix, d.openRESP, d.openDNS, d.openReceipts, d.openRelay, d.openHealth} {
		if err := open(ctx); err != nil {
			return err
		}
	}
	return d.sockets.inherited.unused()
}

// turnAway makes the memory of the clients that a door turns away, whose table in the configuration is named so.
func (d *daemon) turnAway(table string) *listener.Strangers {
	s := listener.NewStrangers(table, table+".allow_from", d.log)
	d.strangers = append(d.strangers, s)
	return s
}

// run accepts clients until ctx ends, and then waits for them.
func (d *door) run(ctx context.Context) error {
	if d.serve == nil {
		<-ctx.Done()
		return nil
	}
	if d.certificate != nil {
		go d.certificate.Watch(ctx)
	}
	return d.serve(ctx)
}

// renew takes up a changed certificate at once.
func (d *door) renew() {
	if d.certificate != nil {
		d.certificate.Now()
	}
}

func (d *door) close() {
	if d.done != nil {
		d.done()
	}
}

// secure reads the pair that clients are shown, which is key and the one after it in the
// configuration; nil without one. until and current are its metrics.
func (d *door) secure(key, certFile, keyFile string, until, current prometheus.GaugeOpts, reg prometheus.Registerer, log *slog.Logger) (*tls.Config, error) {
	if certFile == "" {
		return nil, nil
	}
	pair, err := certificate.Open(certFile, keyFile, log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	d.certificate = pair
	reg.MustRegister(
		prometheus.NewGaugeFunc(until, func() float64 { return float64(pair.NotAfter().Unix()) }),
		prometheus.NewGaugeFunc(current, func() float64 {
			if pair.Failing() {
				return 0
			}
			return 1
		}))
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.Get}, nil
}
