// Package trial has a configuration that lies in a folder answer mail as the daemon would, and writes nothing but an
// index and a socket.
package trial

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/migration"
	"blockd/doors/postfix"
	"blockd/index"
	"blockd/internal/listener"
	"blockd/mail/header"
	"blockd/policy"
	"blockd/policy/reply"
	"blockd/policy/rule"
	"blockd/reload"
)

// Configuration is one that serves in this process. It is for one goroutine at a time.
type Configuration struct {
	trusted []netip.Prefix
	draft   *index.Draft
	checker *policy.Checker
	socket  string // of the policy service
	stop    func()
}

// Open builds the lists of the configuration at path into the folder aside. Lists that are fetched are taken for
// empty.
func Open(ctx context.Context, path, aside string) (*Configuration, error) {
	c, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	settings := c.Reload()
	sources, err := reload.PinnedSources(settings.Lists, nil, c.Kept())
	if err != nil {
		return nil, err
	}
	draft, err := index.Build(ctx, filepath.Join(aside, "asked.bdx"), sources, index.Options{Memory: settings.Memory})
	if refused := (*index.SourcesError)(nil); errors.As(err, &refused) {
		return nil, refused.Errs[0]
	} else if err != nil {
		return nil, err
	}
	w := &Configuration{trusted: config.Networks(c.SMTP.Trusted), draft: draft, socket: filepath.Join(aside, "policy")}
	ix := draft.Index()
	silent := slog.New(slog.DiscardHandler)
	rules := c.Policy()
	rules.NewRef = func() string { return "ID" }
	w.checker = policy.New(func() *index.Index { return ix }, rules, silent, prometheus.NewRegistry())
	socket, err := net.Listen("unix", w.socket)
	if err != nil {
		draft.Discard()
		return nil, err
	}
	serving, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	service := postfix.Policy(postfix.Settings{OnError: rule.OnError(c.SMTP.OnError), Trusted: w.trusted, SkipAuthenticated: c.SMTP.SkipAuthenticated},
		w.checker, postfix.NewMetrics(prometheus.NewRegistry()), silent)
	go func() {
		defer close(ended)
		_ = service.Serve(serving, socket) // its end is that of the connection
	}()
	w.stop = func() { cancel(); <-ended }
	return w, nil
}

// Close ends the service and removes the index.
func (w *Configuration) Close() {
	w.stop()
	w.draft.Discard()
}

// Mails decides about mails at a door that can do all that a list may want, as a milter can.
func (w *Configuration) Mails(ctx context.Context, mails []migration.Mail) ([]migration.Answer, error) {
	door := policy.Door{Name: "import", Log: slog.New(slog.DiscardHandler), Marks: true, Quarantines: true, Discards: true, SeesHeader: true}
	fates := map[policy.Outcome]migration.Fate{policy.Accept: migration.Passes, policy.Refuse: migration.Refused, policy.Defer: migration.Deferred,
		policy.Quarantine: migration.Held, policy.Mark: migration.Tagged, policy.Discard: migration.Dropped}
	answers := make([]migration.Answer, len(mails))
	for i, m := range mails {
		var t policy.Transaction
		t.Begin(w.checker, &door, policy.Client{Addr: m.Client, Trusted: listener.Within(w.trusted, m.Client)})
		t.Mail(policy.Mail{Sender: m.Sender, Written: m.Sender})
		d := t.Recipient(m.Recipient)
		if !d.Refuses() {
			t.Join(&d)
			if t.ReadsHeader() {
				d = t.Header([]header.Field{{Name: m.Field, Text: m.Author}}, reply.Reply{})
			}
		}
		answers[i].Fate = fates[d.Outcome]
		if d.Refuses() {
			answers[i].Words = d.Reply.String()
		}
	}
	return answers, ctx.Err()
}

// patience is how long the policy service may take for one mail.
const patience = time.Minute

// Policy asks the policy service about mails, and has meaning say what Postfix makes of each of its answers.
func (w *Configuration) Policy(meaning func(action string) migration.Answer) migration.Answerer {
	return func(ctx context.Context, mails []migration.Mail) ([]migration.Answer, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", w.socket)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		in := bufio.NewReader(conn)
		answers := make([]migration.Answer, len(mails))
		for i, m := range mails {
			request := "request=smtpd_access_policy\nprotocol_state=RCPT\nprotocol_name=ESMTP\nclient_address=" + m.Client.String() + "\nclient_name=unknown\nsender=" + m.Sender +
				"\nrecipient=" + m.Recipient + "\ninstance=" + strconv.Itoa(i) + "\n\n"
			line := ""
			if err = conn.SetDeadline(time.Now().Add(patience)); err == nil {
				_, err = conn.Write([]byte(request))
			}
			if err == nil {
				line, err = in.ReadString('\n')
			}
			if err == nil {
				_, err = in.ReadString('\n')
			}
			said, ok := strings.CutPrefix(strings.TrimSpace(line), "action=")
			switch {
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case err != nil:
				return nil, fmt.Errorf("the policy service does not answer: %w", err)
			case !ok:
				return nil, fmt.Errorf("the policy service says %q, which is no action", line)
			}
			answers[i] = meaning(said)
		}
		return answers, ctx.Err()
	}
}
