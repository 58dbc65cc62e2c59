package session_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit/script"
	"blockd/policy"
	"blockd/smtpfilter/session"
	"blockd/smtpfilter/upstream"
)

// A filter of one session: the client's connection on one side, a dialer for the
// next server on the other.
func Example() {
	folder, _ := os.MkdirTemp("", "blockd")
	defer os.RemoveAll(folder)
	list := filepath.Join(folder, "bad.txt")
	os.WriteFile(list, []byte("bad.example\n"), 0o600)
	draft, err := index.Build(context.Background(), filepath.Join(folder, "index.bdx"),
		[]index.Source{{List: "bad", Path: list}}, index.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer draft.Discard()

	log, reg := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	checker := policy.New(draft.Index, policy.Settings{RecipientsExempt: []string{"postmaster"}}, log, reg)
	next := &script.Server{Caps: []string{"PIPELINING"}} // stands for a mail server
	dialer := upstream.New(upstream.Settings{Dial: next.Dial, Hostname: "filter.example"})
	relay := session.New(session.Settings{Hostname: "filter.example"}, dialer, checker, session.NewMetrics(reg), log)

	client, conn := net.Pipe()
	go func() {
		io.WriteString(client, "EHLO client.example\r\nMAIL FROM:<a@bad.example>\r\nRCPT TO:<postmaster@here.example>\r\nQUIT\r\n")
	}()
	go relay.Run(context.Background(), conn, netip.MustParseAddrPort("192.0.2.7:1234"))
	said, _ := io.ReadAll(client)
	fmt.Print(strings.ReplaceAll(string(said), "\r\n", "\n"))
	// Output:
	// 220 filter.example ESMTP blockd
	// 250-filter.example
	// 250 PIPELINING
	// 250 2.1.0 Ok
	// 250 2.1.5 Recipient ok
	// 221 2.0.0 Bye
}
