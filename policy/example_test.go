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

// A front door asks about the sender once, and then about every recipient.
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

	for _, sender := range []string{"promo@Sub.Bulk.Example", "news@bulk.example", "someone@shop.example"} {
		v := checker.Sender(sender)
		fmt.Println(v.Sender, v.Kind)
		for _, recipient := range []string{"bob@here.example", "postmaster@here.example"} {
			d := checker.Recipient(v, recipient)
			fmt.Println(" ", recipient, d.Outcome == policy.Accept)
		}
	}
	// Output:
	// promo@sub.bulk.example blocked
	//   bob@here.example false
	//   postmaster@here.example true
	// news@bulk.example allowed
	//   bob@here.example true
	//   postmaster@here.example true
	// someone@shop.example clear
	//   bob@here.example true
	//   postmaster@here.example true
}
