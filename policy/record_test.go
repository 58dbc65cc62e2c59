package policy_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
	"blockd/records/history"
	"blockd/records/repeat"
)

// remembering returns a history, and what is in it, the oldest first.
func remembering(t testing.TB) (l *history.Log, records func() []history.Record) {
	t.Helper()
	l, err := history.Open(history.Settings{Folder: t.TempDir(), Max: history.MinMax, Keep: time.Hour})
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	return l, func() []history.Record {
		found, err := l.Search(context.Background(), history.Query{})
		testkit.Must(t, err)
		slices.Reverse(found.Records)
		return found.Records
	}
}

// TestDecisionsAreRemembered asks as doors do, and reads what is kept of it.
func TestDecisionsAreRemembered(t *testing.T) {
	l, records := remembering(t)
	ix := build(t, block("own", "bad.example\n!good@bad.example\n192.0.2.0/24"), block("trial", "trial.example").shadow(), allow("friends", "y@bad.example"),
		block("tagged", "tag.example"))
	c, _ := checker(t, ix, policy.Settings{History: l, RecipientsExempt: []string{"postmaster"}, OnError: rule.TempfailOnError,
		Lists:    map[string]rule.List{"tagged": {OnMatch: rule.Tag}, "own": {Match: 3}},
		Policies: []rule.Recipients{{Recipients: []string{"vip@here.example"}}}})
	client := netip.MustParseAddr("198.51.100.1")
	ask := func(sender string, recipients ...string) {
		v := askEnvelope(c, client, sender)
		v.Seen = verdict.Seen{Helo: "mx.there.example", Sender: sender}
		for _, recipient := range recipients {
			c.RecipientAt(relay, v, recipient)
		}
	}
	ask("X@Bad.example", "", "bob@here.example", "postmaster@here.example", "vip@here.example")
	ask("fine@ok.example", "", "bob@here.example") // without a recipient it is asked again
	ask("", "bob@here.example")
	ask("z@trial.example", "bob@here.example")
	ask("y@bad.example", "bob@here.example")
	ask("u@tag.example", "bob@here.example")
	ask("no sender", "bob@here.example")

	v := askEnvelope(c, netip.Addr{}, "") // from a trusted network
	c.RecipientAt(relay, v, "bob@here.example")
	v = askEnvelope(c, client, "")
	v.Seen = verdict.Seen{Sender: "me@here.example", Authenticated: true}
	c.RecipientAt(relay, v, "bob@here.example")
	connect(c, netip.MustParseAddr("192.0.2.7"))
	connect(c, client)
	c.RecipientAt(relay, c.Header(verdict.FromSource, "x@bad.example"), "bob@here.example")
	c.RecipientAt(relay, c.Header(verdict.FromSource, "fine@ok.example"), "bob@here.example")
	atMail := *mailer
	atMail.SeesHeader = false
	x := c.Begin(&atMail, policy.Client{Addr: client})
	for sender, passes := range map[string]bool{"pass@ok.example": true, "x@bad.example": false} {
		if d := x.Mail(policy.Mail{Sender: sender}); d.Passed != passes {
			t.Errorf("MAIL of %s: passed %v", sender, d.Passed)
		}
	}
	for _, sender := range []string{"map@ok.example", "map@tag.example"} {
		x := c.Begin(table, policy.Client{})
		x.Mail(policy.Mail{Sender: sender})
	}

	want := strings.Split(strings.TrimSpace(`
smtp 198.51.100.1 x@bad.example ->  refuse blocked own:1 bad.example
smtp 198.51.100.1 x@bad.example -> bob@here.example refuse blocked own:1 bad.example
smtp 198.51.100.1 x@bad.example -> postmaster@here.example accept blocked own:1 bad.example exempt
smtp 198.51.100.1 x@bad.example -> vip@here.example accept clear own:1 bad.example
smtp 198.51.100.1 fine@ok.example -> bob@here.example accept clear :0 
smtp 198.51.100.1  -> bob@here.example accept clear :0 
smtp 198.51.100.1 z@trial.example -> bob@here.example accept clear trial:1 trial.example shadow
smtp 198.51.100.1 y@bad.example -> bob@here.example accept allowed friends:1 y@bad.example
smtp 198.51.100.1 u@tag.example -> bob@here.example tag blocked tagged:1 tag.example
smtp 198.51.100.1 no sender -> bob@here.example accept unknown :0 
smtp 198.51.100.1 me@here.example -> bob@here.example accept clear :0  authenticated
smtp 192.0.2.7  ->  refuse blocked own:3 192.0.2.0/24
smtp  x@bad.example -> bob@here.example refuse blocked own:1 bad.example in from
milter 198.51.100.1 pass@ok.example ->  accept clear :0 
socketmap  map@ok.example ->  accept clear :0 
socketmap  map@tag.example ->  tag blocked tagged:1 tag.example
`), "\n")
	var got []string
	for _, r := range records() {
		from := ""
		if r.Client.IsValid() {
			from = r.Client.String()
		}
		text := fmt.Sprintf("%s %s %s -> %s %s %s %s:%d %s", r.Door, from, r.Sender, r.Recipient, r.Outcome, r.Verdict, r.List, r.Line, r.Entry)
		for word, is := range map[string]bool{"exempt": r.Exempt, "shadow": r.Shadow, "authenticated": r.Authenticated, "in " + r.Source: r.Source != ""} {
			if is {
				text += " " + word
			}
		}
		got = append(got, text)
		if r.Generation != ix.Generation() || (r.Ref == "") != (r.List == "" && !strings.Contains(r.Recipient, "vip")) {
			t.Errorf("%s: generation %s, ref %q", text, r.Generation, r.Ref)
		}
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || strings.TrimSpace(got[i]) != strings.TrimSpace(want[i]) {
			t.Fatalf("decision %d:\n%s\nwant\n%s", i, strings.Join(got[min(i, len(got)):], "\n"), strings.Join(want[min(i, len(want)):], "\n"))
		}
	}
}

// TestReferenceIsRemembered: what a client is told can be looked up.
func TestReferenceIsRemembered(t *testing.T) {
	l, records := remembering(t)
	c, _ := checker(t, build(t, block("own", "bad.example")), policy.Settings{History: l})
	d := c.Recipient(askSender(c, "x@bad.example"), "bob@here.example")
	if got := records(); len(got) != 1 || got[0].Ref != d.Ref || !strings.Contains(d.Reply.String(), got[0].Ref) || got[0].File == "" || got[0].Scope != "tree" || got[0].Action != "block" {
		t.Errorf("%+v remembers %+v", got, d)
	}
}

// TestRememberingDoesNotAllocate holds of a clear sender's way what holds without a
// history.
func TestRememberingDoesNotAllocate(t *testing.T) {
	l, _ := remembering(t)
	c, _ := checker(t, build(t, block("own", "bad.example")), policy.Settings{History: l})
	client := netip.MustParseAddr("198.51.100.1")
	x := c.Begin(relay, policy.Client{Addr: client, Helo: "mx.shop.example"})
	ask := func() {
		x.Mail(policy.Mail{Sender: "promo@shop.example"})
		if d := x.Recipient("bob@here.example"); d.Outcome != policy.Accept || d.Ref != "" {
			t.Fatal("not accepted")
		}
	}
	for range 2 { // both buffers
		for range 4000 {
			ask()
		}
		testkit.Must(t, l.Flush())
	}
	if n := testing.AllocsPerRun(1000, ask); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// TestRepeatedRefusalsAreFolded: a client that is refused again and again reads the
// reference of a line that is written; mail that is taken is remembered each time.
func TestRepeatedRefusalsAreFolded(t *testing.T) {
	l, records := remembering(t)
	table, told := repeat.NewTable(), 0
	ix := build(t, block("own", "bad.example"), block("trial", "trial.example").shadow())
	c, _ := checker(t, ix, policy.Settings{History: l, Repeats: table, Decided: func(history.Record) { told++ }})
	client := netip.MustParseAddr("198.51.100.1")
	first, folded := "", 0
	for range 500 {
		d := c.Recipient(askEnvelope(c, client, "x@bad.example"), "bob@here.example")
		if first == "" {
			first = d.Ref
		}
		if d.Folded {
			if folded++; d.Ref != first {
				t.Fatalf("reference %s, want %s", d.Ref, first)
			}
		}
		if d.Outcome != policy.Refuse || !strings.HasSuffix(d.Reply.String(), "(ref "+d.Ref+")") {
			t.Fatalf("%+v", d)
		}
	}
	if folded != 500-repeat.PerSender || told != 500 {
		t.Errorf("%d folded, %d told", folded, told)
	}
	quiet := 0
	for range 300 {
		d := c.Recipient(askEnvelope(c, client, "x@trial.example"), "bob@here.example")
		if d.Outcome != policy.Accept || d.Ref == first || d.Ref == "" {
			t.Fatalf("%+v", d)
		}
		if d.Folded {
			quiet++
		}
	}
	if want := 300 + repeat.PerSender - repeat.PerNetwork; quiet != want {
		t.Errorf("%d lines left out, want %d", quiet, want)
	}
	table.Flush(slog.New(slog.DiscardHandler), l.Add)
	all := records()
	if len(all) != repeat.PerSender+300+1 {
		t.Fatalf("%d decisions kept", len(all))
	}
	if last := all[len(all)-1]; last.Repeated != folded || last.Ref != first || last.Recipient != "bob@here.example" {
		t.Errorf("the last is %+v", last)
	}
}
