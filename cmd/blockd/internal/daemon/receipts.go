package daemon

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/doors/receipt"
	"blockd/mail/msgauth"
	"blockd/records/history"
)

// receipts are what [receipts] asks for. The zero value is none.
type receipts struct {
	door
	key      *receipt.Key   // nil: references are those of package reply
	requests *receipt.Store // nil: there are none

	forget func(about func(*history.Record) bool) // of the door's memory; nil: there is none
}

// openReceiptKey comes before the checker, which makes references with it.
func (d *daemon) openReceiptKey() (err error) {
	folder := d.config.ReceiptsFolder()
	if folder == "" {
		return nil
	}
	if d.receipts.key, err = receipt.OpenKey(folder); err != nil {
		return fmt.Errorf("receipts: %w", err)
	}
	d.receipts.requests = receipt.NewStore(folder, d.receipts.key)
	return nil
}

// openReceipts makes the door.
func (d *daemon) openReceipts(ctx context.Context) (err error) {
	c, o := d.config.Receipts, &d.receipts
	if o.key == nil {
		return nil
	}
	srv := &receipt.Server{Key: o.key, Requests: o.requests, Log: d.log, Contact: d.checker.Contact, Proves: d.proves,
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
	if srv.TLS, err = o.secure("receipts.tls_cert", c.TLSCert, c.TLSKey, prometheus.GaugeOpts{
		Name: "blockd_receipts_tls_certificate_valid_until_timestamp_seconds",
		Help: "When the certificate of the door for refused people ends to be valid, by Unix time.",
	}, prometheus.GaugeOpts{
		Name: "blockd_receipts_tls_certificate_current",
		Help: "1 if refused people are shown the certificate that the files hold, 0 if that cannot be used and an older one serves.",
	}, d.metrics, d.log); err != nil {
		return err
	}
	if o.listeners, err = d.sockets.listen(ctx, "receipts", "receipts.listen", c.Listen, ""); err != nil {
		return err
	}
	srv.Register(d.metrics)
	d.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_receipts_requests_open",
		Help: "Requests of refused people that wait for a person."}, func() float64 { return float64(o.requests.CountOpen()) }))
	o.forget = srv.Forget
	o.serve = func(ctx context.Context) error { return srv.Serve(ctx, o.listeners...) }
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
