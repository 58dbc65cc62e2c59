package servers

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// mail is one real message of the corpus, as its manifest has it.
type mail struct {
	file, sender string
	ham, listed  bool // listed: its envelope sender is on spam-senders.txt
	text         []byte
}

// corpus reads all messages and both lists of senders.
func corpus(t *testing.T) (mails []mail, spamSenders, hamSenders []string) {
	t.Helper()
	spamSenders = e2e.Lines(t, testkit.Shared(t, "lists/spam-senders.txt"))
	hamSenders = e2e.Lines(t, testkit.Shared(t, "lists/ham-senders.txt"))
	spam := map[string]bool{}
	for _, s := range spamSenders {
		spam[strings.ToLower(s)] = true
	}
	for _, line := range e2e.Lines(t, testkit.Shared(t, "mail/manifest.tsv"))[1:] {
		field := strings.Split(line, "\t")
		text := testkit.Read(t, testkit.Shared(t, filepath.Join("mail", field[0])))
		sender := strings.Trim(field[2], "<>")
		mails = append(mails, mail{
			file: field[0], sender: sender, ham: field[1] == "ham",
			listed: spam[strings.ToLower(sender)], text: e2e.Crlf(text),
		})
	}
	if len(mails) != 440 {
		t.Fatalf("the manifest has %d messages, want 440", len(mails))
	}
	return mails, spamSenders, hamSenders
}

// malformed is the one envelope sender of the corpus that is no sender: an
// address literal holding a bare number. It is refused as syntax, before lists.
const malformed = "zvfjenphuq@[1086695621]"

// refusal matches the reply about a sender on the list "spam". The middle of a
// sender who would make the line longer than 120 characters is left out.
func refusal(sender string) *regexp.Regexp {
	sender = regexp.QuoteMeta(strings.ToLower(sender))
	const longest = 120 - len("550 5.7.1 <>: Sender address rejected: listed in spam (ref 0123456789)")
	if len(sender) > longest {
		sender = sender[:10] + `.*\.\.\..*` + sender[len(sender)-10:]
	}
	return regexp.MustCompile(`^550 5\.7\.1 <` + sender + `>: Sender address rejected: listed in spam \(ref [0-9a-z]{10}\)$`)
}

// play sends the whole corpus and returns the text of every message that was
// accepted. It fails the test on a wrong answer.
func play(t *testing.T, smtp string, mails []mail) (accepted [][]byte) {
	t.Helper()
	var refused, falseRejects, syntax int
	c := e2e.DialSMTP(t, smtp)
	for _, m := range mails {
		if m.sender == malformed {
			testkit.Begins(t, fmt.Sprintf("%s: MAIL FROM:<%s>", m.file, m.sender), c.Command("MAIL FROM:<%s>", m.sender), "553 5.1.7 ")
			syntax++
			continue
		}
		got := c.Send(m.sender, "user@here.example", m.text)
		switch {
		case m.listed:
			refused++
			if want := refusal(m.sender); !want.MatchString(got) || len(got) > 120 {
				t.Errorf("%s: reply = %q, want %s, at most 120 characters", m.file, got, want)
			}
		case !strings.HasPrefix(got, "250"):
			falseRejects++
			t.Errorf("%s: <%s> is on no list, reply = %q", m.file, m.sender, got)
		default:
			accepted = append(accepted, m.text)
		}
	}
	t.Logf("corpus: %d messages, %d refused at RCPT, %d accepted, %d refused as syntax, %d wrongly refused",
		len(mails), refused, len(accepted), syntax, falseRejects)
	if refused == 0 || len(accepted) == 0 {
		t.Error("the corpus did not exercise both answers")
	}
	return accepted
}

// askAll asks for a verdict on every sender of both lists.
func askAll(t *testing.T, smtp string, spamSenders, hamSenders []string) {
	t.Helper()
	c := e2e.DialSMTP(t, smtp)
	ask := func(sender string) string {
		if got := c.Command("MAIL FROM:<%s>", sender); !strings.HasPrefix(got, "250") {
			return got
		}
		got := c.Command("RCPT TO:<user@here.example>")
		c.Command("RSET")
		return got
	}
	var wrong int
	for i, sender := range spamSenders {
		if i%50 == 49 { // a session is for 100 junk commands, RSET among them
			c.Command("QUIT")
			c = e2e.DialSMTP(t, smtp)
		}
		if got := ask(sender); !strings.HasPrefix(got, "550 5.7.1 ") || !strings.Contains(got, "listed in spam (ref ") {
			wrong++
			t.Errorf("spam sender <%s>: %q", sender, got)
		}
	}
	for i, sender := range hamSenders {
		if i%50 == 49 {
			c.Command("QUIT")
			c = e2e.DialSMTP(t, smtp)
		}
		if got := ask(sender); !strings.HasPrefix(got, "250") {
			wrong++
			t.Errorf("ham sender <%s>: %q", sender, got)
		}
	}
	t.Logf("senders: %d listed, %d not listed, %d wrong verdicts", len(spamSenders), len(hamSenders), wrong)
}

// compare checks that the Maildir holds every accepted message once, the bytes
// untouched behind the headers that were added on top.
func compare(t *testing.T, maildir string, accepted [][]byte, lineEnd string) {
	t.Helper()
	waiting := map[string]int{} // by text: the corpus holds no message twice, but a test must not rely on it
	for _, text := range accepted {
		waiting[strings.ReplaceAll(string(text), "\r\n", lineEnd)]++
	}
	added := 0
	for _, file := range e2e.Messages(t, maildir) {
		got := testkit.Read(t, file)
		text, ok := sent(string(got), lineEnd, waiting)
		if !ok {
			t.Errorf("%s holds a message that nobody sent so:\n%.600q", filepath.Base(file), got)
			continue
		}
		waiting[text]--
		added += len(got) - len(text)
	}
	for text, n := range waiting {
		if n != 0 {
			t.Errorf("%d copies too few (negative: too many) of the message that begins %.80q", n, text)
		}
	}
	t.Logf("delivered: %d messages, all byte-identical behind %d octets of added headers", len(accepted), added)
}

// sent finds the message within a delivered file: it strips header fields from
// the top until the rest is a message that is waited for.
func sent(got, lineEnd string, waiting map[string]int) (string, bool) {
	for {
		if waiting[got] > 0 {
			return got, true
		}
		end := strings.Index(got, lineEnd)
		if end <= 0 {
			return "", false
		}
		got = got[end+len(lineEnd):]
		for strings.HasPrefix(got, " ") || strings.HasPrefix(got, "\t") { // a folded field
			end := strings.Index(got, lineEnd)
			if end < 0 {
				return "", false
			}
			got = got[end+len(lineEnd):]
		}
	}
}

func spamList(t *testing.T) string {
	return fmt.Sprintf("[[list]]\nname = \"spam\"\npath = %q\nformat = \"plain\"\n", testkit.Shared(t, "lists/spam-senders.txt"))
}

func TestCorpusIntoMaildir(t *testing.T) {
	mails, spamSenders, hamSenders := corpus(t)
	d := e2e.Serve(t, e2e.Setup{SMTP: e2e.ManyErrors, Lists: spamList(t)})
	accepted := play(t, d.SMTP, mails)
	compare(t, d.Maildir, accepted, "\r\n")
	askAll(t, d.SMTP, spamSenders, hamSenders)
}

func TestCorpusIntoPostfix(t *testing.T) {
	mails, spamSenders, hamSenders := corpus(t)
	p := e2e.StartPostfix(t, e2e.FreeAddress(t))
	d := e2e.Serve(t, e2e.Setup{Upstream: "smtp://" + p.SMTP, SMTP: "client_info = \"xclient\"\n" + e2e.ManyErrors, Lists: spamList(t)})
	accepted := play(t, d.SMTP, mails)
	testkit.Eventually(t, fmt.Sprintf("Postfix to deliver %d messages", len(accepted)), func() bool {
		return len(e2e.Messages(t, p.Maildir)) >= len(accepted)
	})
	compare(t, p.Maildir, accepted, "\n") // a Maildir of Postfix has the system's line ends
	askAll(t, d.SMTP, spamSenders, hamSenders)
	if log := []byte(p.Log()); bytes.Contains(log, []byte("status=bounced")) {
		t.Error("Postfix bounced a message: blockd must never accept what is not wanted")
	}
}
