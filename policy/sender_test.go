package policy_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/mail/header"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
	"blockd/records/history"
)

func decidedBy(v verdict.Verdict) string {
	switch {
	case v.Decider >= 0:
		return v.ListName(v.Decider) + ":" + v.Matches[v.Decider].Name()
	case v.Shadow >= 0:
		return "(" + v.ListName(v.Shadow) + ":" + v.Matches[v.Shadow].Name() + ")"
	}
	return ""
}

func TestAllMatchesAreReported(t *testing.T) {
	c, _ := checker(t, build(t, block("a", "bad.example\nx@"), allow("b", "x@bad.example"), block("c", "bad.example").shadow()), policy.Settings{})
	v := askSender(c, "x@bad.example")
	var got []string
	for i, m := range v.Matches {
		got = append(got, v.ListName(i)+":"+m.Key.Text)
	}
	if got, want := strings.Join(got, " "), "b:x@bad.example a:bad.example c:bad.example a:x@"; got != want {
		t.Errorf("matches = %s, want %s", got, want)
	}
}

// TestVerdictAgreesWithModel compares with the rules written down as naively as
// they can be, over random entries for few names, so that most senders match.
func TestVerdictAgreesWithModel(t *testing.T) {
	names := []string{"a.example", "b.a.example", "c.b.a.example"}
	entries := []string{"x@", "y@"}
	for _, n := range names {
		entries = append(entries, n, "="+n, "."+n, "x@"+n, "y@"+n)
	}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var all []list
		for i := range 1 + rng.IntN(4) {
			var text strings.Builder
			for range 1 + rng.IntN(4) {
				if rng.IntN(3) == 0 {
					text.WriteString("!")
				}
				text.WriteString(entries[rng.IntN(len(entries))] + "\n")
			}
			all = append(all, list{name: string(rune('a' + i)), text: text.String(), mode: index.Mode(rng.IntN(2)), exceptions: index.Exceptions(rng.IntN(3))})
		}
		c, _ := checker(t, build(t, all...), policy.Settings{})
		for _, domain := range names {
			for _, local := range []string{"x", "y", "z"} {
				v := askSender(c, local+"@"+domain)
				if want := modelKind(v); v.Kind != want {
					t.Fatalf("seed %d: Sender(%s@%s) = %s, model says %s; lists %+v", seed, local, domain, v.Kind, want, all)
				}
				if v.Decider >= 0 && (v.Lists[v.Matches[v.Decider].Row].Source.Mode == index.Shadow || v.Shadow >= 0 && (v.Kind == verdict.Blocked || v.Frees())) {
					t.Fatalf("seed %d: a shadow list decides %s@%s", seed, local, domain)
				}
			}
		}
	}
}

func modelKind(v verdict.Verdict) verdict.Kind {
	kind, lifted := verdict.Clear, map[string]bool{}
	for i, m := range v.Matches {
		reach := v.Lists[m.Row].Source.Exceptions
		if v.Lists[m.Row].Source.Mode == index.Shadow || m.Action != lists.Allow || reach == index.NoExceptions {
			continue
		}
		if reach == index.AllExceptions {
			return verdict.Allowed
		}
		kind, lifted[v.ListName(i)] = verdict.Allowed, true
	}
	for i, m := range v.Matches {
		if v.Lists[m.Row].Source.Mode == index.Enforce && m.Action != lists.Allow && !lifted[v.ListName(i)] {
			return verdict.Blocked
		}
	}
	return kind
}

// TestUnreadableStore cuts the index off under its mapping, as a full or dying
// disk might: nobody is refused, and it is counted.
func TestUnreadableStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.bdx")
	buildAt(t, path, block("a", "bad.example"))
	for _, tt := range []struct {
		on      rule.OnError
		outcome policy.Outcome
		reply   string
	}{
		{rule.AcceptOnError, policy.Accept, ""},
		{rule.TempfailOnError, policy.Defer, "451 4.3.0 <x@bad.example>: Sender address not checked: try again later (ref "},
	} {
		t.Run(string(tt.on), func(t *testing.T) {
			ix := openDamaged(t, path)
			var log bytes.Buffer
			reg := prometheus.NewRegistry()
			c := policy.New(func() *index.Index { return ix }, policy.Settings{OnError: tt.on, RecipientsExempt: []string{"abuse"}},
				slog.New(slog.NewTextHandler(&log, nil)), reg)
			for range 3 {
				if v := askSender(c, "x@bad.example"); v.Kind != verdict.Unknown || !errors.Is(v.Err, index.ErrRead) || !v.Internal() {
					t.Fatalf("Sender = %s, %v", v.Kind, v.Err)
				}
			}
			d := c.Recipient(askSender(c, "x@bad.example"), "bob@here.example")
			if d.Outcome != tt.outcome || !strings.HasPrefix(d.Reply.String(), tt.reply) || d.Ref == "" {
				t.Errorf("Recipient = %+v, want outcome %d and %q", d, tt.outcome, tt.reply)
			}
			if d := c.Recipient(askSender(c, "x@bad.example"), "abuse@here.example"); d.Outcome != policy.Accept {
				t.Errorf("Recipient(abuse) = %+v, want accepted", d)
			}
			wantMetric(t, reg, "blockd_internal_errors_total", `
				blockd_internal_errors_total{where="panic"} 0
				blockd_internal_errors_total{where="store"} 5`)
			if n := strings.Count(log.String(), "\n"); n != 1 {
				t.Errorf("%d log lines for 5 errors in a moment, want 1:\n%s", n, &log)
			}
		})
	}
}

// openDamaged opens a copy of the index whose pages are no longer what was summed.
func openDamaged(t *testing.T, path string) *index.Index {
	t.Helper()
	data := testkit.Read(t, path)
	name := []byte("bad.example")
	at := bytes.Index(data, name)
	if at < 0 {
		t.Fatal("no record of bad.example in the file")
	}
	data[at]++
	copied := testkit.File(t, "damaged.bdx", data)
	return testkit.Value(index.Open(copied))(t)
}

func TestPanicIsAnUnknownSender(t *testing.T) {
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	broken := func() *index.Index { panic("defect") }
	c := policy.New(broken, policy.Settings{}, slog.New(slog.NewTextHandler(&log, nil)), reg)
	v := askSender(c, "x@bad.example")
	if v.Kind != verdict.Unknown || !v.Internal() || v.Decider != -1 || v.Shadow != -1 {
		t.Errorf("verdict = %+v", v)
	}
	if d := c.Recipient(v, "bob@here.example"); d.Outcome != policy.Accept {
		t.Errorf("Recipient = %+v, want accepted", d)
	}
	wantMetric(t, reg, "blockd_internal_errors_total", `
		blockd_internal_errors_total{where="panic"} 1
		blockd_internal_errors_total{where="store"} 0`)
	if !strings.Contains(log.String(), "policy.TestPanic") && !strings.Contains(log.String(), "policy_test.TestPanic") {
		t.Errorf("the log has no stack:\n%s", &log)
	}
}

func TestVerdictsAreCounted(t *testing.T) {
	c, reg := checker(t, build(t, block("a", "bad.example\nx@bad.example"), allow("b", "good.example"), block("c", "odd.example").shadow()), policy.Settings{})
	for _, sender := range []string{"x@bad.example", "y@bad.example", "x@good.example", "x@odd.example", "", "no sender"} {
		askSender(c, sender)
	}
	askSender(c, "x@elsewhere.example")
	wantMetric(t, reg, "blockd_verdicts_total", `
		blockd_verdicts_total{verdict="allowed"} 1
		blockd_verdicts_total{verdict="blocked"} 2
		blockd_verdicts_total{verdict="clear"} 3
		blockd_verdicts_total{verdict="unknown"} 1`)
	wantMetric(t, reg, "blockd_list_hits_total", `
		blockd_list_hits_total{list="a"} 2
		blockd_list_hits_total{list="b"} 1
		blockd_list_hits_total{list="c"} 1`)
	wantMetric(t, reg, "blockd_shadow_refusals_total", `
		blockd_shadow_refusals_total{list="c"} 1`)
}

// wantMetric compares the samples of one metric, a line each and in order.
func wantMetric(t *testing.T, reg *prometheus.Registry, name, want string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(testkit.Metrics(reg)) {
		if strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if got, want := strings.Join(got, " "), strings.Join(strings.Fields(want), " "); got != want {
		t.Errorf("metric is\n%s, want\n%s", got, want)
	}
}

// An explanation is of the generation that has answered.
func TestExplainAfterASwap(t *testing.T) {
	old, next := build(t, block("a", "old.example")), build(t, block("a", "new.example"))
	live := old
	c := policy.New(func() *index.Index { return live }, policy.Settings{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	var b policy.Batch
	v := c.AskAll(&b, []policy.Question{{Text: "x@old.example"}})[0]
	live = next
	if e := b.Explain(&v); e.Keys[2].Exact != "listed" || b.Generation != old.Generation() {
		t.Errorf("generation %s, explanation %+v", b.Generation, e)
	}
	if v := askSender(c, "x@old.example"); v.Kind != verdict.Clear || v.Generation != next.Generation() {
		t.Errorf("after the swap: x@old.example is %s by %s, want clear", v.Kind, v.Generation)
	}
}

func TestClearSenderDoesNotAllocate(t *testing.T) {
	told := 0
	c, _ := checker(t, build(t, block("a", "bad.example\nx@y.example"), allow("b", "offers@"), block("c", "192.0.2.0/24\n192.0.2.77\n2001:db8::/32")),
		policy.Settings{
			RecipientsExempt: []string{"postmaster"},
			Lists:            map[string]rule.List{"a": {OnMatch: rule.Tag, Percent: 10}},
			Policies:         []rule.Recipients{{Recipients: []string{"here.example"}, Lists: []string{"a"}}},
			Completed:        func(addr.Addr, netip.Addr) { told++ },
		})
	for _, sender := range []string{"promo@shop.example", "", "a.b+c@one.two.three.four.example"} {
		for _, client := range []netip.Addr{{}, netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db9::1")} {
			n := testing.AllocsPerRun(1000, func() {
				v := askEnvelope(c, client, sender)
				if d := c.Recipient(v, "bob@here.example"); d.Outcome != policy.Accept || v.Kind != verdict.Clear {
					t.Fatal(v.Kind, d)
				}
				c.Completed(v)
			})
			testkit.Equal(t, fmt.Sprintf("Envelope(%v, %q): allocations", client, sender), n, 0)
		}
	}
	if told == 0 {
		t.Error("nobody was told of a message")
	}
}

// BenchmarkClearEnvelope has a client too, and networks of eight lengths.
func BenchmarkClearEnvelope(b *testing.B) {
	c, _ := checker(b, build(b, block("a", "bad.example\n192.0.2.1\n192.0.2.0/29\n192.0.2.0/28\n192.0.2.0/27\n192.0.2.0/26\n192.0.2.0/25\n192.0.2.0/24\n192.0.0.0/16")), policy.Settings{})
	client := netip.MustParseAddr("198.51.100.1")
	b.ReportAllocs()
	for b.Loop() {
		askEnvelope(c, client, "promo@shop.example")
	}
}

// A sender that cannot be read is judged by what can be: an address, or a domain and
// the names above it. Where that is in no list it passes, as unknown.
func TestUnreadableSenders(t *testing.T) {
	lists := []list{block("bad", "bad.example\n=exact.example\n.below.example\npromo@shop.example\n!good@bad.example\n/^wild[0-9]+@/"),
		allow("good", "news.bad.example"), block("shadow", "shadow.example").shadow(), block("clients", "192.0.2.0/24")}
	client := netip.MustParseAddr("192.0.2.7")
	tests := []struct {
		name, sender string
		client       netip.Addr
		want         verdict.Kind
		by           string
	}{
		{"listed domain", "x@bad.example@", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
		{"name below a listed domain", "\x01x@mx.bad.example", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
		{"unreadable label below it", "x@-.bad.example", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
		{"exact name", "\x01x@exact.example", netip.Addr{}, verdict.Blocked, "bad:exact.example"},
		{"unreadable label below an exact name", "x@-.exact.example", netip.Addr{}, verdict.Unknown, ""},
		{"names below, and the name itself", "\x01x@below.example", netip.Addr{}, verdict.Unknown, ""},
		{"names below, and an unreadable label", "x@-.below.example", netip.Addr{}, verdict.Blocked, "bad:below.example"},
		{"listed address", "promo@shop.example@", netip.Addr{}, verdict.Blocked, "bad:promo@shop.example"},
		{"listed address with a control", "\x01promo@shop.example", netip.Addr{}, verdict.Unknown, ""},
		{"clear domain", "x@there.example@", netip.Addr{}, verdict.Unknown, ""},
		{"listed domain in the local-part", "x@bad.example@there.example", netip.Addr{}, verdict.Unknown, ""},
		{"listed domain in quotes", "\"x@bad.example\x01\"@there.example", netip.Addr{}, verdict.Unknown, ""},
		{"exception for the domain", "\x01x@news.bad.example", netip.Addr{}, verdict.Allowed, "good:news.bad.example"},
		{"exception for an address, which is not known to be this one", "\x01good@bad.example", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
		{"exception for an address", "good@bad.example@", netip.Addr{}, verdict.Allowed, "bad:good@bad.example"},
		{"pattern", "wild7@there.example@", netip.Addr{}, verdict.Blocked, "bad:/^wild[0-9]+@/"},
		{"shadow list", "\x01x@shadow.example", netip.Addr{}, verdict.Unknown, "(shadow:shadow.example)"},
		{"its client", "x@there.example@", client, verdict.Blocked, "clients:192.0.2.0/24"},
		{"before its client", "x@bad.example@", client, verdict.Blocked, "bad:bad.example"},
		{"no domain", "\x01", netip.Addr{}, verdict.Unknown, ""},
		{"percent for an @", "x%bad.example", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
		{"bang path", "bad.example!x", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
		{"percent for an @, and an unreadable label", "x%-.bad.example", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
		{"percent for an @ before a clear domain", "x%there.example", netip.Addr{}, verdict.Clear, ""},
		{"domain of 254 octets", "x@" + strings.Repeat("a.", 121) + "bad.example", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
	}
	c, _ := checker(t, build(t, lists...), policy.Settings{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b policy.Batch
			q := policy.Question{Text: tt.sender, Client: tt.client}
			for _, v := range []verdict.Verdict{c.Ask(q), c.AskAll(&b, []policy.Question{q})[0]} {
				if by := decidedBy(v); v.Kind != tt.want || by != tt.by {
					t.Errorf("Envelope(%q) = %s by %q, want %s by %q", tt.sender, v.Kind, by, tt.want, tt.by)
				}
				if _, err := addr.Parse(tt.sender); (err != nil || v.Sender.Null()) != (v.Unread == tt.sender) || v.Internal() {
					t.Errorf("Envelope(%q): unread %q, error %v, internal %v", tt.sender, v.Unread, v.Err, v.Internal())
				}
			}
		})
	}
}

// The refused client reads its own words, and what cannot be read proves nothing.
func TestUnreadableSenderIsAnswered(t *testing.T) {
	c, reg := checker(t, build(t, block("bad", "bad.example"), allow("ours", "bad.example")), policy.Settings{
		Lists: map[string]rule.List{"ours": {Require: verdict.SPFProof | verdict.DKIMProof}}})
	v := askSender(c, "\x01x@bad.example")
	if v.Kind != verdict.Blocked || v.Wants != 0 {
		t.Errorf("%s, wants %s", v.Kind, v.Wants)
	}
	d := c.Recipient(v, "bob@here.example")
	if want := "550 5.7.1 <?x@bad.example>: Sender address rejected: listed in bad (ref " + d.Ref + ")"; d.Reply.String() != want {
		t.Errorf("%s, want %s", d.Reply, want)
	}
	askSender(c, "x@there.example@")
	wantMetric(t, reg, "blockd_unreadable_senders_total", `
		blockd_unreadable_senders_total{source="envelope",verdict="blocked"} 1
		blockd_unreadable_senders_total{source="envelope",verdict="unknown"} 1`)
}

// The history has what the client wrote, so that replay judges the same text again.
func TestUnreadableSenderIsRememberedAsWritten(t *testing.T) {
	var records []history.Record
	c, _ := checker(t, build(t, block("bad", "bad.example\npromo@shop.example")), policy.Settings{Decided: func(r history.Record) { records = append(records, r) }})
	for _, sender := range []string{`"x@bad.example"@`, "promo@shop.example@", "x@there.example@", "\x01x@bad.example"} {
		v := askSender(c, sender)
		v.Seen.Sender = sender
		c.Recipient(v, "bob@here.example")
		if r := records[len(records)-1]; r.Sender != sender || r.Verdict != string(v.Kind) || askSender(c, r.Sender).Kind != v.Kind {
			t.Errorf("%q, which is %s, is remembered as %q, %s", sender, v.Kind, r.Sender, r.Verdict)
		}
	}
}

// ignored are all code points that show nothing.
func ignored() (all []rune) {
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		if addr.Ignorable(r) {
			all = append(all, r)
		}
	}
	return all
}

// What a reader sees is what is matched: a character that shows nothing, wherever it
// stands in the address of a listed sender, changes no verdict, and none within a name
// makes one.
func TestWhatShowsNothingChangesNoVerdict(t *testing.T) {
	ix := build(t, block("bad", "bad.example\npromo@shop.example\nx@نامه\u200Cای.example"))
	c, _ := checker(t, ix, policy.Settings{Lists: map[string]rule.List{"bad": {Match: sources(t, "from")}}})
	kindOf := func(text string) verdict.Kind {
		for _, address := range header.Addresses(text) {
			if v := c.Header(verdict.FromSource, address); v.Kind == verdict.Blocked {
				return v.Kind
			}
		}
		return verdict.Clear
	}
	all := ignored()
	if len(all) < 300 {
		t.Fatalf("%d characters that show nothing", len(all))
	}
	fields := []struct{ before, address, behind string }{
		{"", "x@bad.example", ""}, {"Bank <", "promo@shop.example", ">"}, {`"Bank, Inc." <`, "x@mx.bad.example", ">"},
		{"staff: a@b.example, ", "promo@shop.example", ";"}, {"<@r.example:", "x@bad.example", ">"}, {"<", `"promo"@shop.example`, ">"},
		{"(hello) ", "promo @ shop.example", ""}, {"y@z.example <", "promo@shop.example", "> <"}, {"<", `promo@"shop.example"`, ">"},
		{"<", "promo\uFF20shop.example", ">"}, {"<", "=?utf-8?Q?promo?=@shop.example", ">"}, {"a@b.example, <", "=?utf-8?Q?promo=40shop.example?=", ">"},
	}
	for _, f := range fields {
		testkit.Equal(t, f.before+f.address+f.behind, kindOf(f.before+f.address+f.behind), verdict.Blocked)
		for at := range f.address + " " {
			for i, r := range all {
				if i%7 != at%7 && r != '\u00AD' && r != '\u200D' { // all of them within seven places
					continue
				}
				if text := f.before + f.address[:at] + string(r) + f.address[at:] + f.behind; kindOf(text) != verdict.Blocked {
					t.Fatalf("%q passes", text)
				}
			}
		}
	}
	for _, text := range []string{
		"\U0001F468\u200D\U0001F469\u200D\U0001F467 <x@there.example>", "pro\u00ADmo@shop.example <x@there.example>",
		"=?utf-8?Q?promo=40shop.example?= <x@there.example>", "\"promo\uFF20shop.example\" <x@there.example>",
		"x@there.example (promo@shop.\u200Bexample)", "promo@there.example\u200B",
	} {
		testkit.Equal(t, text, kindOf(text), verdict.Clear)
	}
	for _, text := range []string{"x@نامه\u200Cای.example", "<x@نامه\u200Cا\u00ADی.example>", "x\u200D@نامه\u200Cای.example"} {
		testkit.Equal(t, text, kindOf(text), verdict.Blocked)
	}
}
