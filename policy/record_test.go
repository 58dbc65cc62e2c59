package policy_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/mail/header"
	"blockd/policy"
	"blockd/policy/reply"
	"blockd/policy/rule"
	"blockd/policy/verdict"
	"blockd/records/correspondents"
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
		found := testkit.Value(l.Search(context.Background(), history.Query{}))(t)
		slices.Reverse(found.Records)
		return found.Records
	}
}

// TestHearsayIsRemembered: what any local user could have caused is marked, of a client, of a sender and of a header
// field.
func TestHearsayIsRemembered(t *testing.T) {
	l, records := remembering(t)
	c, _ := checker(t, build(t, block("own", "bad.example\n203.0.113.0/24")), policy.Settings{History: l, Lists: map[string]rule.List{"own": {Match: sources(t, "envelope", "from")}}})
	for _, hearsay := range []bool{false, true} {
		x := c.Begin(mailer, policy.Client{Addr: netip.MustParseAddr("198.51.100.1")})
		x.Hearsay = hearsay
		x.Client.Addr = netip.MustParseAddr("203.0.113.7")
		x.Connect()
		x.Client.Addr = netip.MustParseAddr("198.51.100.1")
		x.Mail(policy.Mail{Sender: "x@bad.example"})
		x.Recipient("bob@here.example")
		x.Mail(policy.Mail{Sender: "x@clear.example"})
		recipients(x, "bob")
		if d := x.Header([]header.Field{{Name: "From", Text: "x@bad.example"}}, reply.Reply{}); d.AwaitsMessage {
			x.Message()
		}
	}
	var got []string
	for _, r := range records() {
		if r.List != "" {
			got = append(got, fmt.Sprintf("%s %s %v", r.Source, r.Sender, r.Hearsay))
		}
	}
	testkit.EqualSlices(t, "records", got, []string{
		"  false", " x@bad.example false", "from x@bad.example false", "  true", " x@bad.example true", "from x@bad.example true"})
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
		testkit.Equal(t, fmt.Sprintf("MAIL of %s: passed", sender), x.Mail(policy.Mail{Sender: sender}).Passed, passes)
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
	testkit.Equal(t, "allocations", testing.AllocsPerRun(1000, ask), 0)
}

// TestRepeatedRefusalsAreFolded: a client that is refused again and again reads the
// reference of a line that is written; mail that is taken is remembered each time.
func TestRepeatedRefusalsAreFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // within a minute
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
		testkit.MustEqual(t, "decisions kept", len(all), repeat.PerSender+300+1)
		if last := all[len(all)-1]; last.Repeated != folded || last.Ref != first || last.Recipient != "bob@here.example" {
			t.Errorf("the last is %+v", last)
		}
	})
}

// TestHits asks on through a swap to a generation with other lists.
func TestHits(t *testing.T) {
	live := build(t, block("a", "bad.example\n!good@bad.example\nx@"), block("b", "bad.example"), allow("c", "y@bad.example"),
		block("d", "192.0.2.0/24").shadow())
	next := build(t, block("new", "fresh.example"), block("b", "bad.example"))
	reg := prometheus.NewRegistry()
	c := policy.New(func() *index.Index { return live }, policy.Settings{}, slog.New(slog.DiscardHandler), reg)
	testkit.EqualSlices(t, "at the start", c.Hits().Lists(), nil)
	before := time.Now()
	for _, q := range []struct{ client, sender string }{
		{"", "x@bad.example"},             // a (two entries), b
		{"", "x@ok.example"},              // a alone
		{"", "y@bad.example"},             // a, b, allowed by c
		{"", "good@bad.example"},          // a, lifted by its own exception, and b
		{"192.0.2.1", "z@ok.example"},     // d alone, which does not count
		{"192.0.2.1", "y@bad.example"},    // all of them
		{"203.0.113.1", "z@ok.example"},   // none
		{"203.0.113.1", "no sender"},      // none
		{"203.0.113.1", "two@at@signs.x"}, // none
	} {
		askEnvelope(c, client(t, q.client), q.sender)
	}
	live = next
	askSender(c, "x@bad.example")   // b alone
	askSender(c, "x@fresh.example") // new alone
	askDomain(c, "bad.example")     // b alone: a program that asks by DNS
	var got []string
	for _, h := range c.Hits().Lists() {
		got = append(got, fmt.Sprint(h.Name, " ", h.Hits, " ", h.Sole, " ", h.Overridden))
		if h.Last.Before(before.Truncate(0).Add(-time.Second)) || h.Last.After(time.Now().Add(time.Second)) {
			t.Errorf("%s was last hit at %s", h.Name, h.Last)
		}
	}
	const want = "a 5 1 3, b 6 2 2, c 2 0 0, d 2 1 1, new 1 1 0"
	testkit.Equal(t, "hits", strings.Join(got, ", "), want)
	wantMetric(t, reg, "blockd_list_sole_hits_total", `
		blockd_list_sole_hits_total{list="a"} 1
		blockd_list_sole_hits_total{list="b"} 2
		blockd_list_sole_hits_total{list="c"} 0
		blockd_list_sole_hits_total{list="d"} 1
		blockd_list_sole_hits_total{list="new"} 1`)
	wantMetric(t, reg, "blockd_list_overridden_hits_total", `
		blockd_list_overridden_hits_total{list="a"} 3
		blockd_list_overridden_hits_total{list="b"} 2
		blockd_list_overridden_hits_total{list="c"} 0
		blockd_list_overridden_hits_total{list="d"} 1
		blockd_list_overridden_hits_total{list="new"} 0`)
}

// TestHitsOfManyAtOnce is for the race detector too: the first hits of a list
// make its counters.
func TestHitsOfManyAtOnce(t *testing.T) {
	c, reg := checker(t, build(t, block("a", "bad.example")), policy.Settings{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				askSender(c, "x@bad.example")
			}
		})
	}
	for range 100 {
		c.Hits().Lists()
	}
	all.Wait()
	wantMetric(t, reg, "blockd_list_hits_total", `blockd_list_hits_total{list="a"} 800`)
}

func partners(t *testing.T) *correspondents.Set {
	t.Helper()
	set, _, err := correspondents.Open(correspondents.Settings{Path: t.TempDir() + "/set", Keep: 365 * 24 * time.Hour})
	testkit.Must(t, err)
	t.Cleanup(set.Close)
	return set
}

func sender(t *testing.T, text string) addr.Addr {
	t.Helper()
	return testkit.Value(addr.Parse(text))(t)
}

// TestRecipientsOfUsersAreLearned: at each door, once the next server has accepted the message where the door hears of it.
func TestRecipientsOfUsersAreLearned(t *testing.T) {
	ix := build(t, block("bad", "bad.example"))
	there := policy.Client{Addr: netip.MustParseAddr("192.0.2.7")}
	login, own := there, there
	login.Authenticated, own.Trusted = true, true
	for name, door := range doorsOfMail() {
		set := partners(t)
		c, _ := checker(t, ix, policy.Settings{Correspondents: policy.Correspondents{Known: set, Learn: true}})
		send := func(client policy.Client, recipient string, complete bool) {
			var x policy.Transaction
			x.Begin(c, door, client)
			if d := x.Mail(policy.Mail{Sender: "anna@here.example", Written: "anna@here.example"}); d.Passed {
				x.Sent(recipient)
			} else if d := x.Recipient(recipient); !d.Refuses() {
				x.Join(&d)
			}
			if complete {
				x.Completed()
			}
			x.Reset()
		}
		send(login, "login@there.example", true)
		send(own, "own@there.example", true)
		send(there, "stranger@there.example", true)
		send(login, "incomplete@there.example", false)
		for recipient, want := range map[string]bool{"login@there.example": true, "own@there.example": true, "stranger@there.example": false,
			"incomplete@there.example": !door.HearsEnd} {
			testkit.Equal(t, fmt.Sprintf("%s: %s is learned", name, recipient), set.Has(sender(t, recipient)), want)
		}
	}
}

// TestCorrespondentWithProof: with excuse a block list does not refuse it, and a forged one is refused as ever.
func TestCorrespondentWithProof(t *testing.T) {
	p := newPost(t)
	ix := build(t, block("bad", "x.example\nother.example"))
	for _, tt := range []struct {
		name, client, sender, signed string
		excuse                       bool
		door                         *policy.Door
		want                         policy.Outcome
	}{
		{"spf", "192.0.2.7", "bob@x.example", "", true, relay, policy.Accept},
		{"spf, at a door without messages", "192.0.2.7", "bob@x.example", "", true, service, policy.Accept},
		{"dkim", "198.51.100.7", "bob@x.example", "x.example", true, relay, policy.Accept},
		{"dkim, at a door without messages", "198.51.100.7", "bob@x.example", "x.example", true, service, policy.Refuse},
		{"forged", "198.51.100.7", "bob@x.example", "", true, relay, policy.Refuse},
		{"signed by another", "198.51.100.7", "bob@x.example", "evil.example", true, relay, policy.Refuse},
		{"a neighbour", "192.0.2.7", "eve@x.example", "x.example", true, relay, policy.Refuse},
		{"off", "192.0.2.7", "bob@x.example", "x.example", false, relay, policy.Refuse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set := partners(t)
			set.Learn(sender(t, "anna@here.example"), sender(t, "bob@x.example"), time.Now())
			var last history.Record
			c, _ := checker(t, ix, policy.Settings{Auth: rule.Auth{Resolver: p.resolver}, Decided: func(r history.Record) { last = r },
				Correspondents: policy.Correspondents{Known: set, Excuse: tt.excuse}})
			var x policy.Transaction
			x.Begin(c, tt.door, policy.Client{Addr: netip.MustParseAddr(tt.client), Helo: "x.example"})
			x.Mail(policy.Mail{Sender: tt.sender, Written: tt.sender})
			d := x.Recipient("anna@here.example")
			if !d.Refuses() && x.Join(&d) && d.AwaitsMessage {
				testkit.Must(t, x.Examine(t.Context(), strings.NewReader(p.letter(t, tt.sender, tt.signed))))
				d = x.Message()
			}
			testkit.MustEqual(t, "d.Outcome", d.Outcome, tt.want)
			if known := tt.sender == "bob@x.example"; last.Correspondent != known || last.Pardoned != (tt.want == policy.Accept) || last.List != "bad" {
				t.Errorf("the history has %+v", last)
			}
		})
	}
	if verdict.LiveList != live.ListName {
		t.Errorf("the list of live entries is %s", live.ListName)
	}
}
