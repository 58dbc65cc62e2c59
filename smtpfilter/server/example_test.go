package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/mailbox"
	"blockd/policy"
	"blockd/smtpfilter/server"
	"blockd/smtpfilter/session"
	"blockd/smtpfilter/upstream"
)

// The SMTP filter from its list to its listener, in front of a Maildir.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	quiet, reg := slog.New(slog.DiscardHandler), prometheus.NewRegistry()

	// A list, compiled.
	list := filepath.Join(dir, "bad.txt")
	if err := os.WriteFile(list, []byte("bad.example\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	draft, err := index.Build(context.Background(), filepath.Join(dir, "lists.bdx"), []index.Source{
		{List: "bad", Path: list, Settings: lists.Settings{Format: "plain"}},
	}, index.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := draft.Publish(); err != nil {
		log.Fatal(err)
	}

	// The parts, each made of the one before.
	box, err := mailbox.New(mailbox.Settings{Dir: filepath.Join(dir, "mail"), Hostname: "us.example"}, quiet)
	if err != nil {
		log.Fatal(err)
	}
	next := upstream.New(upstream.Settings{Dial: box.Dial, Hostname: "us.example"})
	checker := policy.New(draft.Index, policy.Settings{}, quiet, reg)
	relay := session.New(session.Settings{Hostname: "us.example"}, next, checker, session.NewMetrics(reg), quiet)
	filter := server.New(server.Settings{Hostname: "us.example"}, next, reg, quiet)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- filter.Serve(ctx, relay.Run, l) }()

	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	io.WriteString(client, "HELO c\r\nMAIL FROM:<x@sub.bad.example>\r\nRCPT TO:<bob@us.example>\r\nQUIT\r\n")
	for replies := bufio.NewScanner(client); replies.Scan(); {
		if text, _, ok := strings.Cut(replies.Text(), " (ref "); ok {
			fmt.Println(text)
		}
	}

	stop()
	if err := <-stopped; err != nil {
		log.Fatal(err)
	}
	if err := box.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 550 5.7.1 <x@sub.bad.example>: Sender address rejected: listed in bad
}
