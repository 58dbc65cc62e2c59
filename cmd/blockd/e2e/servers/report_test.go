package servers

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/http"
	letters "net/mail"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// opened is a letter as a mail program reads it.
func opened(t *testing.T, text string) (m *letters.Message, body string) {
	t.Helper()
	m, err := letters.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	whole, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return m, strings.ReplaceAll(string(whole), "\r\n", "\n")
}

// TestLetter has a letter go out through a real Postfix, which asks the policy service and the milter about each client. A list
// refuses whatever comes from the address that blockd itself comes from: blockd's letter passes, whether a person or the daemon
// sends it, is in no count, and another null sender from there is refused.
func TestLetter(t *testing.T) {
	policy, milter := e2e.FreeAddress(t), e2e.FreeAddress(t)
	next := e2e.StartPostfix(t, e2e.FreeAddress(t), "smtpd_milters=inet:"+milter, e2e.Restrictions("smtpd_recipient_restrictions", "check_policy_service inet:"+policy+", permit"))
	d := e2e.Configure(t, e2e.Setup{Upstream: "smtp://" + next.SMTP, Milter: fmt.Sprintf("listen = %q", milter), Postfix: fmt.Sprintf("policy_listen = %q", policy),
		SMTP: "client_info = \"xclient\"\n",
		Lists: "[report]\nto = \"anna@here.example, ops@here.example\"\nevery = \"1h\"\n[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n" +
			"[[list]]\nname = \"hosts\"\npath = \"hosts.txt\"\nforce = [\"127.0.0.1\"]\n[[list]]\nname = \"vendor\"\npath = \"vendor.txt\"\nadopt = \"review\"\n",
		Files: map[string]string{"bad.txt": "bulk.example\nbücher.example\n", "hosts.txt": "127.0.0.1\n", "vendor.txt": "club.example\n"}})
	d.Start(t)
	c := e2e.DialFrom(t, "127.0.0.9", d.SMTP)
	for sender, want := range map[string]string{"x@bulk.example": "550 ", "friend@bulk.example": "550 ", "x@there.example": "250 ", "x@xn--bcher-kva.example": "550 "} {
		testkit.Begins(t, sender, c.Send(sender, "you@here.example", []byte("Subject: hello\r\n\r\nhello\r\n")), want)
	}
	c.Command("QUIT")
	d.Must(t, "add", "--action", "allow", "friend@bulk.example")
	d.Says(t, "/readyz", "blockd adopt vendor")

	arrived := func(number int) (m *letters.Message, body string) {
		t.Helper()
		var last string
		testkit.Eventually(t, fmt.Sprintf("%d messages in the mailbox", number), func() bool {
			files := e2e.Messages(t, next.Maildir)
			for _, file := range files {
				if text := string(testkit.Read(t, file)); strings.Contains(text, "\nX-Blockd-Report: ") {
					last = text
				}
			}
			return len(files) == number
		})
		return opened(t, strings.ReplaceAll(last, "\r\n", "\n"))
	}
	check := func(when string, m *letters.Message, body string) {
		t.Helper()
		subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
		if want := "blockd on filter.here.example: 3 refused, 1 perhaps by mistake, 1 list to adopt"; err != nil || subject != want {
			t.Errorf("%s: Subject %q, %v, want %q", when, subject, err, want)
		}
		if date, err := m.Header.Date(); err != nil || time.Since(date) > time.Hour {
			t.Errorf("%s: Date %v, %v", when, date, err)
		}
		for field, want := range map[string]string{"Return-Path": "<>", "From": "blockd <blockd@filter.here.example>", "To": "anna@here.example, ops@here.example",
			"Auto-Submitted": "auto-generated", "Mime-Version": "1.0", "Content-Type": "text/plain; charset=utf-8"} {
			testkit.Equal(t, fmt.Sprintf("%s: %s", when, field), m.Header.Get(field), want)
		}
		if id := m.Header.Get("Message-Id"); !strings.HasPrefix(id, "<blockd.report.") || !strings.HasSuffix(id, "@filter.here.example>") {
			t.Errorf("%s: Message-ID %q", when, id)
		}
		for _, want := range []string{"\n3  refused\n", "bad         3        3          3\n", "friend@bulk.example      1  let in since  bad ", "* vendor: a change waits since ", "\n1  entry.add "} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: no %q in:\n%s", when, want, body)
			}
		}
		if strings.Contains(body, "report.send") || strings.Contains(body, "hosts ") {
			t.Errorf("%s: a letter is in it:\n%s", when, body)
		}
	}
	if out := d.Must(t, "report", "--send"); strings.Count(out, ": 250 ") != 2 {
		t.Errorf("report --send: %s", out)
	}
	m, body := arrived(3) // with the one that passed
	check("by hand", m, body)
	d.Stop(t)
	d.LetterDue(t, 2*time.Hour)
	d.Start(t)
	d.Counted(t, `blockd_report_letters_total{result="sent"}`, "1")
	m, body = arrived(5)
	check("by itself", m, body)
	if text := d.Kept(t); !strings.Contains(text, "you@here.example") || strings.Contains(text, "anna@here.example") || strings.Contains(text, "ops@here.example") {
		t.Errorf("a letter is a decision:\n%s", text)
	}
	testkit.Begins(t, "the null sender of somebody else from blockd's address", e2e.DialSMTP(t, next.SMTP).Send("", "anna@here.example", []byte("Subject: hello\r\n\r\nhello\r\n")), "55")
}

// TestLetterTwiceNeverNone kills the daemon between a letter and the answer to it, has another process take over at that moment, and has the
// server refuse the letters of a day. Bounces and letters that pass through make none.
func TestLetterTwiceNeverNone(t *testing.T) {
	in := startInbox(t)
	d := e2e.Configure(t, e2e.Setup{Lists: "[report]\nto = \"ops@here.example\"\nvia = \"smtp://" + in.address + "\"\nevery = \"1h\"\n"})
	due := func(ago time.Duration) {
		d.LetterDue(t, ago)
		d.Start(t)
	}
	count := func(number int) (id string) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("%d letters", number), func() bool { return len(in.all()) >= number })
		all := in.all()
		if len(all) != number {
			t.Fatalf("%d letters, want %d", len(all), number)
		}
		m, _ := opened(t, all[number-1].text)
		return m.Header.Get("Message-ID")
	}

	d.Start(t)
	c := e2e.DialSMTP(t, d.SMTP)
	for _, text := range []string{"From: blockd <blockd@filter.here.example>\r\nAuto-Submitted: auto-generated\r\nX-Blockd-Report: 2026-11-17T16:00:00Z 2026-11-24T16:00:00Z\r\n\r\na letter\r\n",
		"From: MAILER-DAEMON@there.example\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n--b\r\n\r\na bounce\r\n--b--\r\n"} {
		testkit.Begins(t, "the null sender", c.Send("", "blockd@here.example", []byte(text)), "250 ")
	}
	d.Stop(t)
	due(2 * time.Hour)
	d.Counted(t, `blockd_report_letters_total{result="nothing"}`, "1")
	d.Must(t, "add", "spam.example") // now there is something to tell
	d.Stop(t)

	hold := func() (release func()) {
		held := make(chan struct{})
		in.answers(func() string { <-held; return "" })
		t.Cleanup(func() {
			in.answers(nil)
			select {
			case <-held:
			default:
				close(held)
			}
		})
		return func() { in.answers(nil); close(held) }
	}
	release := hold()
	due(2 * time.Hour)
	first := count(1)
	d.Kill(t)
	release()
	d.Start(t)
	testkit.Equal(t, "Message-ID after a kill", count(2), first)
	d.Logged(t, 1, "the answer to a report was not waited for")
	d.CountedSome(t, "blockd_report_last_sent_timestamp_seconds")
	d.Stop(t)

	release = hold()
	due(2 * time.Hour)
	count(3)
	testkit.Must(t, syscall.Kill(d.Newest(t), syscall.SIGUSR2))
	release()
	testkit.Eventually(t, "another process to take over", func() bool { return d.Newest(t) != d.Cmd.Process.Pid })
	d.CountedSome(t, "blockd_report_last_sent_timestamp_seconds")
	count(3)
	d.Stop(t)

	in.answers(func() string { return "451 4.3.0 away" })
	d.LetterDue(t, 26*time.Hour)
	began := string(testkit.Read(t, d.Path("blockd.bdx.report")))
	d.Start(t)
	d.Counted(t, "blockd_report_failing", "1")
	if status, text := d.Get("/readyz"); status != http.StatusOK || !strings.Contains(text, "\nreport: the letter could not be sent, and is tried again: report.via refuses the report: \"451 4.3.0 away\"") {
		t.Errorf("/readyz: %d\n%s", status, text)
	}
	refused := count(4)
	d.Stop(t)
	in.answers(nil)
	d.Start(t)
	d.Counted(t, "blockd_report_failing", "0")
	testkit.Equal(t, "Message-ID after a day", count(5), refused)
	var state struct{ Since string }
	testkit.Must(t, json.Unmarshal([]byte(began), &state))
	if m, _ := opened(t, in.all()[4].text); !strings.HasPrefix(m.Header.Get("X-Blockd-Report"), state.Since+" ") {
		t.Errorf("the letter is about %s, want since %s", m.Header.Get("X-Blockd-Report"), state.Since)
	}
}
