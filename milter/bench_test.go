package milter_test

import (
	"context"
	"fmt"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	dj "github.com/d--j/go-milter"
	emersion "github.com/emersion/go-milter"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// BenchmarkRoundTrip is a clear sender's message as the mail server waits for it:
// the macros and MAIL out, the answer back, over TCP on loopback.
func BenchmarkRoundTrip(b *testing.B) {
	d := open(b, setup{lists: map[string]string{"bad": "bad.example\n"}})
	m := d.greet("192.0.2.1")
	request := append(packet('D', "M{mail_addr}\x00friend@there.example\x00"), packet('M', "<friend@there.example>\x00SIZE=1000\x00")...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.conn.Write(request); err != nil {
			b.Fatal(err)
		}
		if command, _, ok := m.receive(); !ok || command != 'a' {
			b.Fatalf("answer %q", command)
		}
	}
}

// The library's own client sends a transaction of each kind, several in one session, over TCP
// and over a Unix socket.
func TestLibraryClient(t *testing.T) {
	for _, unix := range []bool{false, true} {
		t.Run(fmt.Sprintf("Unix socket %v", unix), func(t *testing.T) {
			d := open(t, setup{unix: unix, lists: map[string]string{"bad": "bad.example\n", "watch": "watch.example\n"},
				rules: map[string]rule.List{"watch": {OnMatch: rule.Tag}}})
			macros := dj.NewMacroBag()
			macros.Set(dj.MacroMTAFQDN, "mail.here.example")
			s := testkit.Value(dj.NewClient(d.network, d.address).Session(macros))(t)
			defer s.Close()
			expect := func(what string, a *dj.Action, err error, want dj.ActionType, code uint16) {
				t.Helper()
				if err != nil || a.Type != want || code != 0 && a.SMTPCode != code {
					t.Fatalf("%s: %v %v, want type %d and code %d", what, a, err, want, code)
				}
			}
			a, err := s.Conn("client.there.example", dj.FamilyInet, 2525, "192.0.2.1")
			expect("connect", a, err, dj.ActionContinue, 0)
			a, err = s.Helo("client.there.example")
			expect("helo", a, err, dj.ActionContinue, 0)
			for range 2 {
				macros.Set(dj.MacroMailAddr, "a@bad.example")
				a, err = s.Mail("a@bad.example", "")
				expect("mail", a, err, dj.ActionContinue, 0)
				a, err = s.Rcpt("bob@here.example", "")
				expect("rcpt", a, err, dj.ActionRejectWithCode, 550)
				if !refused.MatchString(strings.TrimSpace(a.SMTPReply)) {
					t.Errorf("reply %q", a.SMTPReply)
				}
				a, err = s.Rcpt("postmaster@here.example", "")
				expect("postmaster", a, err, dj.ActionContinue, 0)
				testkit.Must(t, s.Abort(nil))
			}
			macros.Set(dj.MacroMailAddr, "a@watch.example")
			a, err = s.Mail("a@watch.example", "")
			expect("mail", a, err, dj.ActionContinue, 0)
			a, err = s.Rcpt("bob@here.example", "")
			expect("rcpt", a, err, dj.ActionContinue, 0)
			a, err = s.DataStart()
			expect("data", a, err, dj.ActionContinue, 0)
			if _, err = s.HeaderEnd(); err != nil {
				t.Fatal(err)
			}
			changes, a, err := s.BodyReadFrom(strings.NewReader("text\r\n"))
			expect("end", a, err, dj.ActionAccept, 0)
			if len(changes) != 1 || changes[0].Type != dj.ActionInsertHeader || changes[0].HeaderName != "X-Blockd" ||
				!strings.HasPrefix(changes[0].HeaderValue, "list=watch ref=") {
				t.Errorf("changes %+v", changes)
			}
			macros.Set(dj.MacroMailAddr, "")
			a, err = s.Mail("", "")
			expect("null sender", a, err, dj.ActionAccept, 0)
		})
	}
}

// A client may know only version 2 of the protocol.
func TestClientOfVersionTwo(t *testing.T) {
	match := testkit.Value(verdict.ParseSources([]string{"envelope", "from"}))(t)
	d := open(t, setup{lists: map[string]string{"bad": "bad.example\n"}, rules: map[string]rule.List{"bad": {Match: match}}})
	client := emersion.NewDefaultClient(d.network, d.address)
	defer client.Close()
	s := testkit.Value(client.Session())(t)
	defer s.Close()
	must := func(a *emersion.Action, err error) *emersion.Action {
		t.Helper()
		testkit.Must(t, err)
		return a
	}
	must(s.Conn("client.there.example", emersion.FamilyInet, 2525, "192.0.2.1"))
	must(s.Helo("client.there.example"))
	must(s.Mail("a@bad.example", nil))
	if a := must(s.Rcpt("bob@here.example", nil)); a.Code != emersion.ActReplyCode || a.SMTPCode != 550 {
		t.Errorf("RCPT: %+v", a)
	}
	testkit.Must(t, s.Abort())
	must(s.Mail("a@there.example", nil))
	must(s.Rcpt("bob@here.example", nil))
	field := textproto.MIMEHeader{}
	field.Set("From", "a@bad.example")
	must(s.HeaderField("From", field.Get("From")))
	if a := must(s.HeaderEnd()); a.Code != emersion.ActReplyCode || a.SMTPCode != 550 {
		t.Errorf("end of header: %+v", a)
	}
}

// A thousand messages come while generations are swapped. Every answer arrives, and each is
// that of one generation.
func TestReloadStorm(t *testing.T) {
	d := open(t, setup{lists: map[string]string{"bad": "bad.example\n"}})
	with, without := build(t, map[string]string{"bad": "bad.example\ntoggle.example\n"}), build(t, map[string]string{"bad": "bad.example\n"})
	ctx, done := context.WithCancel(t.Context())
	var swaps atomic.Int64
	var storm sync.WaitGroup
	storm.Go(func() {
		for ctx.Err() == nil {
			for _, ix := range []*index.Index{with, without} {
				d.swap(ix)
				swaps.Add(1)
			}
		}
	})
	var clients sync.WaitGroup
	for range 10 {
		clients.Go(func() {
			m := d.greet("192.0.2.1")
			for range 100 {
				m.mail("a@bad.example", "a@bad.example")
				m.refuses("always listed")
				testkit.Equal(t, "never listed", m.mail("a@there.example", "a@there.example"), "a")
				at := m.mail("a@toggle.example", "a@toggle.example")
				first := m.rcpt("bob@here.example")
				if listed := refused.MatchString(first); listed != (at == "c") || listed != refused.MatchString(m.rcpt("alice@here.example")) {
					t.Errorf("MAIL %q, then RCPT %q, then another: two generations in one transaction", at, first)
				}
				m.send('A', "")
			}
		})
	}
	clients.Wait()
	done()
	storm.Wait()
	t.Logf("3,000 transactions, %d swaps", swaps.Load())
}
