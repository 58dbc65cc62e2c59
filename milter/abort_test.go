package milter_test

import (
	"runtime"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/internal/testkit/sealed"
	"blockd/mail/spool"
	"blockd/milter"
	"blockd/policy/verdict"
)

// A message that is broken off leaves nothing behind.
func TestAbortedMessagesLeaveNothing(t *testing.T) {
	copies := spool.New(spool.Settings{Dir: t.TempDir(), Memory: 256 << 10, PerCopy: 64 << 10})
	d, p := proving(t, verdict.DKIMProof, setup{settings: milter.Settings{Copies: copies}})
	text := p.Sign(t, sealed.Letter("a@x.example"), "x.example", sealed.Ed25519, nil)
	d.at(other, "a@x.example", text)
	goroutines, files := runtime.NumGoroutine(), testkit.OpenFiles(t)
	m := d.greet(other)
	messages := 10_000
	if race.Enabled {
		messages = 1000
	}
	for i := range messages {
		m.mail("a@x.example", "a@x.example")
		m.rcpt("bob@here.example")
		m.event('L', "From\x00 a@x.example\x00")
		if i%3 > 0 {
			m.event('N', "")
			for range i % 5 {
				m.event('B', strings.Repeat("x", 40<<10))
			}
		}
		switch i % 4 {
		case 0:
			m.send('A', "")
		case 1: // and another MAIL
		case 2:
			m.send('K', "")
			m.connect(other)
		case 3:
			if i%40 == 3 {
				m.conn.Close()
				m = d.greet(other)
			}
		}
	}
	m.conn.Close()
	testkit.Eventually(t, "the copies to be given back", func() bool { return copies.Used() == 0 })
	testkit.Eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
	testkit.Eventually(t, "the files to be closed", func() bool { return testkit.OpenFiles(t) <= files })
	t.Logf("%d messages broken off: %d goroutines and %d files, before %d and %d", messages, runtime.NumGoroutine(), testkit.OpenFiles(t), goroutines, files)
}

// A full disk refuses nobody's mail for good: the copy's failure is our own fault.
func TestCopyThatCannotBeKept(t *testing.T) {
	copies := spool.New(spool.Settings{Dir: t.TempDir() + "/gone", PerCopy: 1})
	d, p := proving(t, verdict.DKIMProof, setup{settings: milter.Settings{Copies: copies}})
	text := p.Sign(t, sealed.Letter("a@x.example"), "x.example", sealed.Ed25519, nil)
	if rcpt, end := d.at(other, "a@x.example", text); rcpt != "c" || !strings.HasPrefix(end, "451 4.3.0 ") {
		t.Errorf("RCPT %q, end %q, want 451", rcpt, end)
	}
	if log := d.log.String(); !strings.Contains(log, "message not examined") {
		t.Error("it is not in the log")
	}
}
