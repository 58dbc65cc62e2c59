package server

import (
	"bytes"
	"context"
	"errors"
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
	box, err := mailbox.New(mailbox.Settings{Dir: maildir, Hostname: "us.example"}, log)
	if err != nil {
		t.Fatal(err)
	}
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
	paths, err := filepath.Glob(filepath.Join(maildir, "new", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text := testkit.Read(t, path)
		for bytes.HasPrefix(text, []byte("Return-Path: ")) || bytes.HasPrefix(text, []byte("Delivered-To: ")) {
			_, text, _ = bytes.Cut(text, []byte("\r\n"))
		}
		texts = append(texts, string(text))
	}
	return texts
}

func TestListedSenderIsRefusedAndAllOthersDelivered(t *testing.T) {
	r, maildir := filter(t)
	message := "Subject: hi\r\n\r\n.dot\r\n"
	c, err := smtp.Dial(r.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.SendMail("x@sub.bad.example", []string{"bob@here.example"}, strings.NewReader(message))
	var refused *smtp.SMTPError
	if !errors.As(err, &refused) || refused.Code != 550 || !strings.Contains(refused.Message, "listed in bad (ref ") {
		t.Errorf("listed sender: %v, want 550 with the list's name", err)
	}
	if err := c.Reset(); err != nil {
		t.Fatal(err)
	}
	if err := c.SendMail("x@sub.bad.example", []string{"postmaster"}, strings.NewReader(message)); err != nil {
		t.Errorf("listed sender to postmaster: %v, want 250", err)
	}
	if err := c.SendMail("x@notbad.example", []string{"bob@here.example", "eve@here.example"}, strings.NewReader(message)); err != nil {
		t.Errorf("clear sender: %v, want 250", err)
	}
	if got := mails(t, maildir); len(got) != 2 || got[0] != message || got[1] != message {
		t.Errorf("the Maildir holds %q, want the message twice", got)
	}
}

// A stop lets the transaction in hand end well, and turns everybody else away.
func TestStopKeepsTheMessageInHand(t *testing.T) {
	r, maildir := filter(t)
	idle, line := r.dial(t)
	if !strings.HasPrefix(line, "220 us.example") {
		t.Fatalf("greeting %q", line)
	}
	c, err := smtp.Dial(r.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Mail("a@b.example", nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Rcpt("c@d.example", nil); err != nil {
		t.Fatal(err)
	}
	w, err := c.Data()
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "first half\r\n")
	r.stop()
	if got, _ := io.ReadAll(idle); !strings.HasPrefix(string(got), "421 4.3.2 ") {
		t.Errorf("the idle client reads %q, want 421 4.3.2", got)
	}
	io.WriteString(w, "second half\r\n")
	if err := w.Close(); err != nil {
		t.Errorf("the message in hand: %v, want 250", err)
	}
	c.Close()
	if err := r.end(t); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if got := mails(t, maildir); len(got) != 1 || got[0] != "first half\r\nsecond half\r\n" {
		t.Errorf("the Maildir holds %q, want the message", got)
	}
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
	if n := len(r.clients.each); n != 0 {
		t.Errorf("%d clients are still known", n)
	}
	r.clients.mu.Unlock()
	if got := mails(t, maildir); len(got) != clients/4 {
		t.Errorf("%d messages, want %d", len(got), clients/4)
	}
}
