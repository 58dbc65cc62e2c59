package policy_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/lists"
	"blockd/policy"
)

// A front door drives a transaction: it says who the sender is, and then each recipient.
func Example() {
	dir, err := os.MkdirTemp("", "policy")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "spam.txt")
	if err := os.WriteFile(file, []byte("bulk.example\n!news@bulk.example\n"), 0o600); err != nil {
		panic(err)
	}
	sources := []index.Source{{List: "spam", Path: file, Settings: lists.Settings{Format: "plain"}}}
	draft, err := index.Build(context.Background(), filepath.Join(dir, "lists.bdx"), sources, index.Options{})
	if err != nil {
		panic(err)
	}
	defer draft.Discard()
	serving := draft.Index()

	settings := policy.Settings{RecipientsExempt: []string{"postmaster"}}
	checker := policy.New(func() *index.Index { return serving }, settings, slog.Default(), prometheus.NewRegistry())

	door := policy.Door{Name: "example", Log: slog.New(slog.DiscardHandler)}
	var t policy.Transaction
	t.Begin(checker, &door, policy.Client{})
	for _, sender := range []string{"promo@Sub.Bulk.Example", "news@bulk.example", "someone@shop.example"} {
		t.Mail(policy.Mail{Sender: sender})
		for _, recipient := range []string{"bob@here.example", "postmaster@here.example"} {
			d := t.Recipient(recipient)
			fmt.Println(sender, recipient, d.Outcome)
		}
	}
	// Output:
	// promo@Sub.Bulk.Example bob@here.example refuse
	// promo@Sub.Bulk.Example postmaster@here.example accept
	// news@bulk.example bob@here.example accept
	// news@bulk.example postmaster@here.example accept
	// someone@shop.example bob@here.example accept
	// someone@shop.example postmaster@here.example accept
}
