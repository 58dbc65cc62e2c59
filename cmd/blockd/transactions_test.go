package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/cmd/blockd/e2e/agreement"
	"blockd/internal/testkit/race"
	"blockd/internal/testkit/transaction"
)

// TestTransactions shows every file of testdata/transactions to every door of blockd, whole messages where a door takes them.
// All doors must say what the file says. Each case has a daemon of its own: it starts within a tenth of a second, and no
// case finds the recent senders, held entries and folded refusals of another. Real mail servers in front of these doors see
// the same files in cmd/blockd/e2e/servers.
func TestTransactions(t *testing.T) {
	race.Skip(t)
	cases, err := transaction.Load(filepath.Join(e2e.Root, "testdata", "transactions"))
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) < 140 {
		t.Fatalf("%d transactions, want 140 at least", len(cases))
	}
	const rows = 2 // beside each other
	for i := range rows {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			a := agreement.New(t)
			for j := i; j < len(cases); j += rows {
				t.Run(cases[j].Name, func(t *testing.T) { a.Run(t, cases[j], make([]string, len(a.Names()))) })
			}
		})
	}
}
