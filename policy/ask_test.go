package policy_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/ask"
	"blockd/policy/rule"
	"blockd/policy/verdict"
	"blockd/records/history"
	"blockd/sources/mirror"
)

// stored is the store of a test: rows by their entries, or a fault.
type stored struct {
	rows  map[string][]mirror.Row
	fault func(context.Context) error // nil: it answers
	asked atomic.Int64
}

func (s *stored) Ask(ctx context.Context, texts []string) (all []ask.Answer, _ error) {
	s.asked.Add(1)
	if s.fault != nil {
		return nil, s.fault(ctx)
	}
	for _, text := range texts {
		all = append(all, ask.Answer{Text: text, Rows: s.rows[text]})
	}
	return all, nil
}

func (s *stored) Close() error { return nil }

// askedList is a list that is asked, with the entries of a plain list: "!" begins an exception.
func askedList(t testing.TB, l list, change func(*ask.Options)) (*ask.Set, *stored) {
	t.Helper()
	store := &stored{rows: map[string][]mirror.Row{}}
	f := ask.NewFilter(100)
	for line := range strings.Lines(l.text) {
		text, excepted := strings.CutPrefix(strings.TrimSpace(line), "!")
		it, err := lists.ParseEntry(text, lists.Settings{})
		if err != nil {
			continue
		}
		action := ""
		if excepted {
			action = "allow"
		}
		store.rows[text] = append(store.rows[text], mirror.Row{Entry: text, Action: action})
		f.Add(it.Key)
	}
	o := ask.Options{Store: store, Actions: true, Timeout: time.Minute,
		Source: index.Source{List: l.name, Path: "a store", Mode: l.mode, Exceptions: l.exceptions, Settings: lists.Settings{Action: l.action}}}
	if change != nil {
		change(&o)
	}
	s := ask.New(o, slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	s.UseFilter(f)
	return s, store
}

// about is what a verdict says, but for lines of files.
func about(v verdict.Verdict) string {
	var b strings.Builder
	fmt.Fprint(&b, v.Kind)
	say := func(i int) string {
		if i < 0 {
			return "-"
		}
		m := v.Matches[i]
		return fmt.Sprint(v.ListName(i), ":", m.Name(), " ", m.Scope, " ", m.Action)
	}
	fmt.Fprint(&b, " by ", say(v.Decider), " shadow ", say(v.Shadow), " of")
	var all []string
	for i := range v.Matches {
		all = append(all, say(i))
	}
	slices.Sort(all)
	return b.String() + " " + strings.Join(slices.Compact(all), ", ")
}

// TestAskedAsIndexed: a list gives the same verdicts whether it is in the index or is asked, beside other lists
// and live entries, for all senders and recipients of a small world.
func TestAskedAsIndexed(t *testing.T) {
	seen := map[verdict.Kind]int{}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 53))
		s := policy.Settings{Lists: map[string]rule.List{}}
		var inIndex, others []list
		var names []string
		var sets []*ask.Set
		for i := range 2 + rng.IntN(3) {
			l := randomList(rng, string(rune('a'+i)))
			l.text = strings.Join(slices.DeleteFunc(strings.SplitAfter(l.text, "\n"), func(line string) bool {
				return strings.Contains(line, "/") || strings.Contains(line, "192.")
			}), "")
			l.text = cmp.Or(l.text, "# nothing\n")
			s.Lists[l.name] = l.rule
			names, inIndex = append(names, l.name), append(inIndex, l.list)
			if plain := !strings.ContainsAny(l.text, " "); plain && rng.IntN(2) == 0 {
				set, _ := askedList(t, l.list, nil)
				sets = append(sets, set)
			} else {
				others = append(others, l.list)
			}
		}
		others = append(others, block("other", "nobody.example"))
		s.Policies = []rule.Recipients{{Recipients: []string{"some.example"}, Lists: names[1:]}}
		entries := testkit.Value(live.Open(live.Settings{Folder: t.TempDir()}))(t)
		if rng.IntN(2) == 0 {
			e := modelEntries()[rng.IntN(6)]
			testkit.Value(entries.Apply(live.Change{Entry: e.text, Action: lists.Action(rng.IntN(2))}))(t)
		}
		s.Live = entries
		indexed, _ := checker(t, build(t, inIndex...), s)
		s.Stores = ask.NewSets(sets, names)
		asked, _ := checker(t, build(t, others...), s)
		for _, local := range []string{"x", "y", "z"} {
			for _, d := range append(modelDomains, "b.example") {
				for _, to := range []string{"", "bob@some.example", "bob@all.example"} {
					q := policy.Question{Text: local + "@" + d, Recipient: to}
					want := indexed.Ask(q)
					got := asked.Ask(q)
					if about(got) != about(want) || got.Outcome != want.Outcome {
						t.Fatalf("seed %d: %s to %q: asked %s %s, in the index %s %s", seed, q.Text, to, about(got), got.Outcome, about(want), want.Outcome)
					}
					var b policy.Batch
					if all := asked.AskAll(&b, []policy.Question{q}); about(all[0]) != about(want) {
						t.Fatalf("seed %d: %s to %q: AskAll %s, want %s", seed, q.Text, to, about(all[0]), about(want))
					}
					seen[want.Kind]++
				}
			}
			if got, want := askDomain(asked, modelDomains[0]), askDomain(indexed, modelDomains[0]); about(got) != about(want) {
				t.Fatalf("seed %d: domain: asked %s, in the index %s", seed, about(got), about(want))
			}
		}
		entries.Close()
	}
	if seen[verdict.Blocked] < 100 || seen[verdict.Allowed] < 100 {
		t.Errorf("the model is hardly asked: %v", seen)
	}
}

// TestUnasked is the table of what a list means that cannot be asked.
func TestUnasked(t *testing.T) {
	away := func(context.Context) error { return errors.New("connection refused") }
	indexed := []list{block("bad", "bad.example\nodd.example"), {name: "own", text: "own.example\n!x@own.example"}}
	for _, tt := range []struct {
		name       string
		asked      list
		change     func(*ask.Options)
		unfiltered bool
		sender     string
		want       policy.Outcome
		kind       verdict.Kind
		program    verdict.Kind // to one that asks about the sender
	}{
		{"a list that blocks", block("asked", "a@b.example"), nil, false, "a@b.example", policy.Accept, verdict.Unknown, verdict.Unknown},
		{"and mail waits for it", block("asked", "a@b.example"), func(o *ask.Options) { o.Defers = true }, false, "a@b.example", policy.Defer, verdict.Unknown, verdict.Unknown},
		{"not about others", block("asked", "a@b.example"), func(o *ask.Options) { o.Defers = true }, false, "a@clear.example", policy.Accept, verdict.Clear, verdict.Clear},
		{"that another list blocks", block("asked", "a@bad.example"), nil, false, "a@bad.example", policy.Refuse, verdict.Blocked, verdict.Blocked},
		{"in shadow mode", block("asked", "a@b.example").shadow(), func(o *ask.Options) { o.Defers = true }, false, "a@b.example", policy.Accept, verdict.Clear, verdict.Clear},
		{"exceptions, and nothing blocks", allow("asked", "a@b.example"), nil, false, "a@b.example", policy.Accept, verdict.Unknown, verdict.Unknown},
		{"exceptions, and another list blocks", allow("asked", "a@bad.example"), nil, false, "a@bad.example", policy.Defer, verdict.Unknown, verdict.Unknown},
		{"exceptions that are not about the sender", allow("asked", "a@b.example"), nil, false, "a@bad.example", policy.Refuse, verdict.Blocked, verdict.Blocked},
		{"exceptions in shadow mode", allow("asked", "a@bad.example").shadow(), nil, false, "a@bad.example", policy.Refuse, verdict.Blocked, verdict.Blocked},
		{"a list that may hold exceptions for all", list{name: "asked", text: "a@bad.example", exceptions: index.AllExceptions}, nil, false, "a@bad.example", policy.Defer, verdict.Unknown, verdict.Unknown},
		{"a list that cannot hold any", list{name: "asked", text: "a@bad.example", exceptions: index.AllExceptions}, func(o *ask.Options) { o.Actions = false }, false, "a@bad.example", policy.Refuse, verdict.Blocked, verdict.Blocked},
		{"what an exception of another list allows", block("asked", "x@own.example"), func(o *ask.Options) { o.Defers = true }, false, "x@own.example", policy.Defer, verdict.Unknown, verdict.Unknown},
		{"no filter", block("asked", "a@b.example"), func(o *ask.Options) { o.Defers = true }, true, "a@clear.example", policy.Accept, verdict.Clear, verdict.Unknown},
		{"exceptions without a filter", allow("asked", "a@b.example"), nil, true, "a@bad.example", policy.Defer, verdict.Unknown, verdict.Unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set, store := askedList(t, tt.asked, tt.change)
			store.fault = away
			if tt.unfiltered {
				set.UseFilter(nil)
			}
			var told []history.Record
			c, _ := checker(t, build(t, indexed...), policy.Settings{RecipientsExempt: []string{"postmaster"}, OnError: rule.TempfailOnError,
				Policies: []rule.Recipients{{Recipients: []string{"without@"}, Lists: []string{"bad", "own"}}},
				Stores:   ask.NewSets([]*ask.Set{set}, []string{"asked", "bad", "own"}), Decided: func(r history.Record) { told = append(told, r) }})
			for _, door := range []*policy.Door{relay, mailer, service} {
				told = nil
				x := c.Begin(door, policy.Client{})
				var d policy.Decision
				if passed := x.Mail(policy.Mail{Sender: tt.sender, Written: tt.sender}); !passed.Passed {
					d = x.Recipient("bob@here.example")
				}
				if d.Outcome != tt.want || d.Outcome == policy.Defer && d.Reply.Code != 451 {
					t.Errorf("%s: %s %s, want %s", door.Name, d.Outcome, d.Reply, tt.want)
				}
				if len(told) != 1 || told[0].Verdict != string(tt.kind) || told[0].Unasked != (store.asked.Load() > 0 || tt.unfiltered) && tt.name != "not about others" {
					t.Errorf("%s: the history has %+v", door.Name, told)
				}
				if d := x.Recipient("postmaster@here.example"); d.Outcome != policy.Accept {
					t.Errorf("%s: an exempt recipient: %s %s", door.Name, d.Outcome, d.Reply)
				}
				want := policy.Accept
				if strings.HasSuffix(tt.sender, "@bad.example") {
					want = policy.Refuse
				}
				if d := c.Begin(door, policy.Client{}); door != mailer {
					d.Mail(policy.Mail{Sender: tt.sender, Written: tt.sender})
					if d := d.Recipient("without@here.example"); d.Outcome != want {
						t.Errorf("%s: a recipient for whom the list does not count: %s %s, want %s", door.Name, d.Outcome, d.Reply, want)
					}
				}
			}
			v := askSender(c, tt.sender)
			if v.Kind != tt.program || v.Kind == verdict.Unknown && (!v.Internal() || !errors.Is(v.Err, verdict.ErrUnasked)) {
				t.Errorf("a program is told %s (%v), want %s", v.Kind, v.Err, tt.program)
			}
			if tt.want == policy.Defer && v.Kind != verdict.Unknown {
				t.Errorf("mail is put off, and a program is told %s", v.Kind)
			}
		})
	}
}

// TestRecipientsWaitNotMail: MAIL does not wait for a store, the first recipient does.
func TestRecipientsWaitNotMail(t *testing.T) {
	set, store := askedList(t, block("asked", "a@b.example"), nil)
	answer := make(chan struct{})
	gate := &gated{stored: store, open: answer}
	set.Store = gate
	c, _ := checker(t, build(t, block("bad", "bad.example")), policy.Settings{Stores: ask.NewSets([]*ask.Set{set}, []string{"asked"})})
	x := c.Begin(relay, policy.Client{})
	x.Mail(policy.Mail{Sender: "a@b.example", Written: "a@b.example"})
	if !x.Holds() || !x.Asks("bob@here.example") {
		t.Error("nothing is waited for")
	}
	close(answer)
	x.Prove(t.Context(), "bob@here.example")
	if x.Asks("bob@here.example") {
		t.Error("the store has answered, and is waited for")
	}
	if d := x.Recipient("bob@here.example"); d.Outcome != policy.Refuse || store.asked.Load() != 1 {
		t.Errorf("%s %s after %d questions", d.Outcome, d.Reply, store.asked.Load())
	}
}

// gated is a store that answers once it is open.
type gated struct {
	*stored
	open chan struct{}
}

func (g *gated) Ask(ctx context.Context, texts []string) ([]ask.Answer, error) {
	<-g.open
	return g.stored.Ask(ctx, texts)
}

// TestStoreFaultsRefuseNobody: whatever the store does, a sender that is on no list is accepted, one that is allowed hears no 5xx, and
// hardly anybody waits. BLOCKD_TEST_SOAK makes it a million decisions.
func TestStoreFaultsRefuseNobody(t *testing.T) {
	decisions := 20_000
	if os.Getenv("BLOCKD_TEST_SOAK") != "" {
		decisions = 1_000_000
	}
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	faults := []func(context.Context) error{
		func(context.Context) error { return errors.New("dial: connection refused") }, hangs,
		func(context.Context) error { return errors.New("LOADING Redis is loading the dataset in memory") },
		func(context.Context) error { return errors.New("READONLY You can't write against a read only replica") },
		func(context.Context) error { return ask.ErrWrong },
	}
	var waits []time.Duration
	for i, fault := range faults {
		blocks, store := askedList(t, block("asked", "b.example"), func(o *ask.Options) { o.Timeout = ask.DefaultTimeout })
		allows, allowStore := askedList(t, allow("allowed", "bad.example"), func(o *ask.Options) { o.Timeout = ask.DefaultTimeout })
		store.fault, allowStore.fault = fault, fault
		reg := prometheus.NewRegistry()
		ix := build(t, block("bad", "bad.example"))
		c := policy.New(func() *index.Index { return ix }, policy.Settings{Stores: ask.NewSets([]*ask.Set{blocks, allows}, nil)}, quiet, reg)
		x := c.Begin(relay, policy.Client{})
		for n := range decisions / len(faults) {
			sender := fmt.Sprintf("u%d@x%d.b.example", n, n) // perhaps
			if n%2 == 1 {
				sender = fmt.Sprintf("u%d@bad.example", n) // allowed, if the store could say so
			}
			start := time.Now()
			x.Mail(policy.Mail{Sender: sender, Written: sender})
			d := x.Recipient("bob@here.example")
			waits = append(waits, time.Since(start))
			if n%2 == 0 && d.Refuses() || d.Outcome == policy.Refuse {
				t.Fatalf("fault %d: %s: %s %s", i, sender, d.Outcome, d.Reply)
			}
		}
	}
	slices.Sort(waits)
	p99 := waits[len(waits)*99/100]
	t.Logf("%d decisions: none wrong; p50 %s, p99 %s, most %s", len(waits), waits[len(waits)/2], p99, waits[len(waits)-1])
	if p99 > ask.DefaultTimeout {
		t.Errorf("p99 of a decision is %s", p99)
	}
}

// TestClearSendersCostNoAllocation: with lists that are asked, too.
func TestClearSendersCostNoAllocationBesideStores(t *testing.T) {
	set, _ := askedList(t, block("asked", "a@b.example\nb.example\noffers@"), nil)
	c, _ := checker(t, build(t, block("bad", "bad.example")), policy.Settings{Stores: ask.NewSets([]*ask.Set{set}, []string{"bad", "asked"})})
	q := policy.Question{Text: "ann@mail.clear.example"}
	testkit.Equal(t, "allocations for a clear sender", testing.AllocsPerRun(1000, func() { c.Ask(q) }), 0)
}
