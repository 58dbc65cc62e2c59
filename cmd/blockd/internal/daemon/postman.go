package daemon

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
	"blockd/mail/mailbox"
	"blockd/records/letter"
	"blockd/smtpfilter/upstream"
)

// ErrNoRecipient says that a letter has nowhere to go.
var ErrNoRecipient = errors.New("report.to is empty, so that nobody gets it")

// Postman brings letters to the next server.
type Postman struct {
	config config.Config
	host   string
	log    *slog.Logger
	own    *ownConnections // nil: nobody asks
}

// NewPostman returns one for a program that is no daemon.
func NewPostman(c config.Config) Postman {
	return Postman{config: c, host: Hostname(c), log: slog.New(slog.DiscardHandler)}
}

// sendTime is how long a try may take. endTime is how long the server's answer to a whole letter is waited for when the daemon ends.
const (
	sendTime = 2 * time.Minute
	endTime  = 5 * time.Second
)

// Send sends a letter, whose id is that of the schedule; "" is one that a person has asked for. The error says that no recipient's
// mail was taken.
func (p Postman) Send(ctx context.Context, l *letter.Letter, id string) ([]httpapi.ReportDelivery, error) {
	now, to := time.Now(), p.config.Report.Recipients()
	id = cmp.Or(id, letter.ID(p.host, now))
	text := l.Message(letter.Header{From: p.config.Report.Sender(p.host), To: to, ID: id, Date: now}, time.Local)
	next, done, err := p.next()
	if err != nil {
		return nil, err
	}
	defer done()
	// The end of ctx ends a try, but not the wait for the answer to a whole letter: it would be sent twice.
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTime)
	defer cancel()
	var whole atomic.Bool
	defer context.AfterFunc(ctx, func() {
		if whole.Load() {
			time.AfterFunc(endTime, cancel)
		} else {
			cancel()
		}
	})()
	outcomes, err := next.Send(sending, upstream.Mail{Recipients: to, Size: int64(len(text)), Message: bytes.NewReader(text), End: func() error {
		whole.Store(true)
		return ctx.Err()
	}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.where(), err)
	}
	var all []httpapi.ReportDelivery
	var refusal string
	taken := 0
	for _, o := range outcomes {
		one := httpapi.ReportDelivery{Recipient: o.Recipient, Accepted: o.Reply.Code/100 == 2, Reply: upstream.FirstLine(o.Reply)}
		if all = append(all, one); one.Accepted {
			taken++
		} else {
			refusal = one.Reply
			p.log.Warn("report refused for a recipient", slog.String("recipient", one.Recipient), slog.String("reply", one.Reply))
		}
	}
	if taken == 0 {
		return all, fmt.Errorf("%s refuses the report: %q", p.where(), refusal)
	}
	return all, nil
}

// where is the server that takes letters, for people.
func (p Postman) where() string {
	if p.config.Report.Via != "" {
		return "report.via"
	}
	if p.config.SMTP.Open() {
		return "smtp.upstream"
	}
	return "the mail server at 127.0.0.1:25 (report.via)"
}

// next returns the way to the server that takes letters. done is called after the letter.
func (p Postman) next() (_ *upstream.Dialer, done func(), err error) {
	up, set, err := p.config.ReportServer(p.host)
	if err != nil {
		return nil, nil, err
	}
	if up.Scheme == "maildir" {
		box, err := mailbox.New(mailbox.Settings{Dir: up.Address, Hostname: p.host}, p.log)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.where(), err)
		}
		set.Network, set.Address, set.Dial = "", "", box.Dial
		return upstream.New(set), func() {
			ctx, cancel := context.WithTimeout(context.Background(), mailboxPatience)
			defer cancel()
			box.Shutdown(ctx) // it has answered already
		}, nil
	}
	done = func() {}
	if set.Network == "tcp" && p.own != nil {
		dialer, network, address := net.Dialer{Timeout: upstream.DialTimeout}, set.Network, set.Address
		set.Dial = func(ctx context.Context) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return p.own.add(conn), nil
		}
	}
	return upstream.New(set), done, nil
}
