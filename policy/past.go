package policy

import (
	"log/slog"

	"blockd/records/history"
)

// past is the door that past mail comes in by again. It can do all that a list may want, but
// drop a message: of a discard entry on_match decides.
var past = Door{Name: "replay", Log: slog.New(slog.DiscardHandler), Marks: true, Quarantines: true, SkipAuthenticated: true}

// Past is what c says now of past mail to a recipient; "" asks about the sender alone. c is to have no History, or it would remember it.
func (c *Checker) Past(mail *history.Record, recipient string) Decision {
	var t Transaction
	t.Begin(c, &past, Client{Addr: mail.Client, Helo: mail.Helo, Authenticated: mail.Authenticated})
	t.Mail(Mail{Sender: mail.Sender})
	return t.Recipient(recipient)
}
