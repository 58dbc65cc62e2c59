package reload_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/lists"
	"blockd/mail/addr"
	"blockd/reload"
)

// A list file is edited while the daemon serves.
func Example() {
	dir, err := os.MkdirTemp("", "reload")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "spam.txt")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			panic(err)
		}
	}

	write("bulk.example\n")
	live, err := reload.Open(context.Background(), reload.Settings{
		Path:  filepath.Join(dir, "lists.bdx"),
		Lists: []reload.List{{Name: "spam", Path: file, Settings: lists.Settings{Format: "plain"}}},
		Quiet: 10 * time.Millisecond,
	}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- live.Run(ctx) }()

	sender, err := addr.Parse("promo@shop.example")
	if err != nil {
		panic(err)
	}
	listed := func() bool {
		matches, err := live.Live().Lookup(nil, sender, time.Now())
		return err == nil && len(matches) > 0
	}
	fmt.Println(sender, "is listed:", listed())

	write("bulk.example\nshop.example\n")
	for end := time.Now().Add(time.Minute); !listed() && time.Now().Before(end); {
		<-time.After(time.Millisecond)
	}
	fmt.Println(sender, "is listed:", listed())

	stop()
	fmt.Println(<-ended)
	// Output:
	// promo@shop.example is listed: false
	// promo@shop.example is listed: true
	// <nil>
}
