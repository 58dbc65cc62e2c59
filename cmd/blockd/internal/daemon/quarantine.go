package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"blockd/doors/httpapi"
	"blockd/internal/term"
	"blockd/mail/mailbox"
	"blockd/records/quarantine"
	"blockd/smtpfilter/upstream"
)

// aside is smtp.quarantine. The zero value is none.
type aside struct {
	folder quarantine.Folder
	kept   *mailbox.Quarantine // nil: none
	next   *upstream.Dialer
}

// open makes it what the SMTP filter fills and the HTTP door shows.
func (a *aside) open(folder string, kept *mailbox.Quarantine, next *upstream.Dialer, metrics prometheus.Registerer) {
	*a = aside{quarantine.Folder(folder), kept, next}
	auto := promauto.With(metrics)
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
}

// nearlyFull is the share of its limits from which on the quarantine is a problem. At 1 mail for it is deferred.
const nearlyFull = 0.8

func (a *aside) fill() httpapi.QuarantineFill {
	use, most := a.kept.Use(), a.kept.Most()
	return httpapi.QuarantineFill{Count: use.Messages, MaxCount: most.Messages, Octets: use.Octets, MaxOctets: most.Octets, NearlyFull: use.Share(most) >= nearlyFull}
}

// problems says that the quarantine is nearly full.
func (a *aside) problems() []string {
	if a.kept == nil {
		return nil
	}
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
	if a.kept == nil {
		return nil
	}
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
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
		case <-tick.C:
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
