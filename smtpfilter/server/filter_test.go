package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/mail/mailbox"
	"blockd/policy"
	"blockd/smtpfilter/session"
	"blockd/smtpfilter/upstream"
)

// filter is the whole SMTP filter with a list that holds bad.example, in front
// of a Maildir.
func filter(t *testing.T) (r *running, maildir string) {
	t.Helper()
	return filterWith(t, Settings{}, session.Limits{})
}

// filterWith is filter with other settings than the usual ones.
func filterWith(t *testing.T, set Settings, limits session.Limits) (r *running, maildir string) {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	ix := indexes.Build(t, indexes.Source(t, "bad", "bad.example\n"))

	maildir = filepath.Join(dir, "mail")
	box := testkit.Value(mailbox.New(mailbox.Settings{Dir: maildir, Hostname: "us.example"}, log))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := box.Shutdown(ctx); err != nil {
			t.Errorf("the mailbox outlives the filter: %v", err)
		}
	})
	up := upstream.New(upstream.Settings{Dial: box.Dial, Hostname: "us.example"})
	r = prepare(set, up)
	reg := prometheus.NewRegistry()
	checker := policy.New(func() *index.Index { return ix }, policy.Settings{RecipientsExempt: []string{"postmaster"}}, log, reg)
	settings := session.Settings{Hostname: "us.example", ClientInfo: upstream.ClientInfoXCLIENT, Limits: limits, Crowded: r.Crowded}
	if set.TLS != nil {
		settings.StartTLS = r.StartTLS
	}
	r.serve(t, session.New(settings, up, checker, session.NewMetrics(reg), log).Run)
	return r, maildir
}

// mails returns the files of a Maildir, each without what delivery puts on top.
func mails(t *testing.T, maildir string) (texts []string) {
	t.Helper()
	paths := testkit.Value(filepath.Glob(filepath.Join(maildir, "new", "*")))(t)
	for _, path := range paths {
		text := testkit.Read(t, path)
		for bytes.HasPrefix(text, []byte("Return-Path: ")) || bytes.HasPrefix(text, []byte("Delivered-To: ")) {
			_, text, _ = bytes.Cut(text, []byte("\r\n"))
		}
		texts = append(texts, string(text))
	}
	return texts
}

// The connections of all clients are counted down to zero, however they end.
func TestCountsAreExactAfterAStorm(t *testing.T) {
	r, maildir := filter(t)
	var wg sync.WaitGroup
	const clients = 40 // below the limit of one client, 50
	for i := range clients {
		wg.Go(func() {
			conn, err := net.Dial("tcp", r.address)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(time.Minute))
			switch i % 4 {
			case 0: // says nothing
			case 1: // leaves in mid-message
				io.WriteString(conn, "EHLO c\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\nhalf")
				io.CopyN(io.Discard, conn, 50)
			case 2: // resets
				io.WriteString(conn, "EHLO c\r\n")
				conn.(*net.TCPConn).SetLinger(0)
			case 3: // sends a message
				if err := smtp.NewClient(conn).SendMail("a@b.example", []string{"c@d.example"}, strings.NewReader("x\r\n")); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	testkit.Eventually(t, "all places are free", func() bool { return r.clients.open() == 0 })
	r.clients.mu.Lock()
	testkit.Equal(t, "clients are still known", len(r.clients.each), 0)
	r.clients.mu.Unlock()
	testkit.Equal(t, "messages", len(mails(t, maildir)), clients/4)
}
