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

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

func TestSender(t *testing.T) {
	tests := []struct {
		name   string
		lists  []list
		sender string
		want   verdict.Kind
		by     string // list:entry of the decider, or of the shadow match in brackets
	}{
		{"no list has it", []list{block("a", "bad.example")}, "x@good.example", verdict.Clear, ""},
		{"listed domain", []list{block("a", "bad.example")}, "x@bad.example", verdict.Blocked, "a:bad.example"},
		{"subdomain of a listed domain", []list{block("a", "bad.example")}, "x@mx.bad.example", verdict.Blocked, "a:bad.example"},
		{"same ending, other domain", []list{block("a", "bad.example")}, "x@notbad.example", verdict.Clear, ""},
		{"domain in capitals, in brackets", []list{block("a", "bad.example")}, "<x@BAD.Example>", verdict.Blocked, "a:bad.example"},
		{"null reverse-path", []list{block("a", "bad.example")}, "", verdict.Clear, ""},
		{"null reverse-path in brackets", []list{block("a", "bad.example")}, "<>", verdict.Clear, ""},
		{"path without a domain", []list{block("a", "root@")}, "root", verdict.Clear, ""},
		{"text that is no sender", []list{block("a", "bad.example")}, "a b@there.example", verdict.Unknown, ""},

		{"allow of a later list wins", []list{block("a", "bad.example"), allow("b", "bad.example")},
			"x@bad.example", verdict.Allowed, "b:bad.example"},
		{"allow that is less specific wins", []list{block("a", "x@mx.bad.example"), allow("b", "bad.example")},
			"x@mx.bad.example", verdict.Allowed, "b:bad.example"},
		{"exception in the same list wins", []list{block("a", "bad.example\n!x@bad.example")},
			"x@bad.example", verdict.Allowed, "a:x@bad.example"},
		{"exception for another mailbox", []list{block("a", "bad.example\n!x@bad.example")},
			"y@bad.example", verdict.Blocked, "a:bad.example"},
		{"the most specific of two allows is named", []list{allow("a", "good.example"), allow("b", "x@good.example")},
			"x@good.example", verdict.Allowed, "b:x@good.example"},

		{"address before domain", []list{block("a", "bad.example"), block("b", "x@bad.example")},
			"x@bad.example", verdict.Blocked, "b:x@bad.example"},
		{"exact name before tree", []list{block("a", "bad.example"), block("b", "=bad.example")},
			"x@bad.example", verdict.Blocked, "b:bad.example"},
		{"longer name before shorter", []list{block("a", "example.net"), block("b", "bad.example.net")},
			"x@bad.example.net", verdict.Blocked, "b:bad.example.net"},
		{"domain before local-part", []list{block("a", "x@"), block("b", "bad.example")},
			"x@bad.example", verdict.Blocked, "b:bad.example"},
		{"local-part at any domain", []list{block("a", "offers@")}, "Offers@good.example", verdict.Blocked, "a:offers@"},
		{"first list between equals", []list{block("a", "bad.example"), block("b", "bad.example")},
			"x@bad.example", verdict.Blocked, "a:bad.example"},

		{"shadow list does not count", []list{block("a", "bad.example").shadow()}, "x@bad.example", verdict.Clear, "(a:bad.example)"},
		{"shadow list is passed over", []list{block("a", "x@bad.example").shadow(), block("b", "bad.example")},
			"x@bad.example", verdict.Blocked, "b:bad.example"},
		{"allow of a shadow list does not count", []list{allow("a", "bad.example").shadow(), block("b", "bad.example")},
			"x@bad.example", verdict.Blocked, "b:bad.example"},
		{"allow that counts stops a shadow block", []list{block("a", "bad.example").shadow(), allow("b", "bad.example")},
			"x@bad.example", verdict.Allowed, "b:bad.example"},
		{"shadow list's own exception excuses its block", []list{block("a", "bad.example\n!x@bad.example").shadow()},
			"x@bad.example", verdict.Clear, ""},
		{"another shadow list's allow does not", []list{allow("a", "bad.example").shadow(), block("b", "bad.example").shadow()},
			"x@bad.example", verdict.Clear, "(b:bad.example)"},
		{"the most specific shadow block is named", []list{block("a", "bad.example").shadow(), block("b", "x@bad.example").shadow()},
			"x@bad.example", verdict.Clear, "(b:x@bad.example)"},

		{"tempfail is a block", []list{block("a", "bad.example 450 later")}, "x@bad.example", verdict.Blocked, "a:bad.example"},
		{"discard is a block", []list{block("a", "bad.example DISCARD")}, "x@bad.example", verdict.Blocked, "a:bad.example"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := checker(t, build(t, tt.lists...), policy.Settings{})
			v := askSender(c, tt.sender)
			if by := decidedBy(v); v.Kind != tt.want || by != tt.by {
				t.Errorf("Sender(%q) = %s by %q, want %s by %q", tt.sender, v.Kind, by, tt.want, tt.by)
			}
			if (v.Err != nil) != (tt.want == verdict.Unknown) {
				t.Errorf("Sender(%q).Err = %v with verdict %s", tt.sender, v.Err, v.Kind)
			}
		})
	}
}

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
	ix := testkit.Value(index.Open(copied))(t)
	return ix
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
