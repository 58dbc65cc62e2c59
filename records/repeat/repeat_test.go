package repeat

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
	"blockd/records/history"
)

// refusal is the n-th of a client for a sender.
func refusal(client, sender string, n int) *history.Record {
	return &history.Record{Time: time.Now(), Door: "smtp", Outcome: "refuse", Verdict: "blocked", Client: netip.MustParseAddr(client), Helo: "mx.there.example",
		Sender: sender, Recipient: fmt.Sprintf("r%d@here.example", n), Generation: "g", Ref: fmt.Sprintf("ref%07d", n), List: "own", File: "own.txt", Line: 3, Entry: "bad.example"}
}

// sink takes what a table writes.
type sink struct {
	log  bytes.Buffer
	mu   sync.Mutex
	kept []history.Record
}

func (s *sink) add(r history.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, r)
}

func (s *sink) logger() *slog.Logger { return slog.New(slog.NewTextHandler(&s.log, nil)) }

// TestRefusalsOfOneSenderFold refuses 522 recipients of one client's sender within a
// minute: ten are written, and one line at the minute's end stands for 512.
func TestRefusalsOfOneSenderFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out sink
		table := NewTable()
		stop := testkit.Running(t, func(ctx context.Context) { table.Run(ctx, out.logger(), out.add) })
		for n := range 522 {
			ref, folded := table.Refused(refusal("192.0.2.7", "x@bad.example", n))
			want := fmt.Sprintf("ref%07d", n)
			if n >= PerSender {
				want = "ref0000000" // found by the reference of the first
			}
			testkit.MustEqual(t, fmt.Sprintf("refusal %d is folded", n), folded, n >= PerSender)
			testkit.MustEqual(t, fmt.Sprintf("reference of refusal %d", n), ref, want)
		}
		testkit.Got(table.Refused(refusal("192.0.2.7", "y@bad.example", 900)))(t, "another sender", "ref0000900", false)
		testkit.Got(table.Refused(refusal("192.0.2.8", "x@bad.example", 901)))(t, "another client", "ref0000901", false)
		time.Sleep(Window + 2*time.Second)
		synctest.Wait()
		if len(out.kept) != 1 || out.kept[0].Repeated != 512 || out.kept[0].Ref != "ref0000000" || out.kept[0].Recipient != "r521@here.example" {
			t.Errorf("kept %+v", out.kept)
		}
		for _, want := range []string{`msg="sender blocked again"`, "repeated=512", "within=1m0s", "ref=ref0000000", "client=192.0.2.7", "sender=x@bad.example", "line=3", "entry=bad.example"} {
			testkit.Has(t, out.log.String(), want)
		}
		testkit.Got(table.Refused(refusal("192.0.2.7", "x@bad.example", 1000)))(t, "in a new minute", testkit.Any, false)
		stop()
	})
}

// The line that stands for many deferrals says why they were: by no list, but since the domain is new.
func TestFoldedDeferralsSayFirstSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out sink
		table := NewTable()
		for n := range PerSender + 2 {
			r := refusal("192.0.2.7", "x@new.example", n)
			r.Outcome, r.Verdict, r.List, r.File, r.Line, r.Entry, r.FirstSeen = "defer", "clear", "", "", 0, "", true
			table.Refused(r)
		}
		table.Flush(out.logger(), out.add)
		log := out.log.String()
		testkit.Has(t, log, "sender deferred again", "first_seen=true")
	})
}

// TestSendersThatChangeAreNotFolded: who names another listed sender each time is told another
// reference each time, and is written each time. Of lines in the log there are as many as its
// network may have, which others do not pay for.
func TestSendersThatChangeAreNotFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out sink
		table := NewTable()
		lines := 0
		for n := range 10_000 {
			r := refusal(fmt.Sprintf("192.0.2.%d", n%256), fmt.Sprintf("x%d@bad.example", n), n)
			testkit.MustGot(table.Refused(r))(t, "reference, and folded", r.Ref, false)
			if table.Line(r.Client) {
				lines++
			}
		}
		testkit.Equal(t, "lines of the log", lines, PerNetwork)
		for _, other := range []string{"192.0.3.1", "2001:db8::1"} {
			_, folded := table.Refused(refusal(other, "x@bad.example", 1))
			testkit.Got(folded, table.Line(netip.MustParseAddr(other)))(t, fmt.Sprintf("%s: folded, and room for a line", other), false, true)
		}
		if !table.Line(netip.Addr{}) { // of a table that is not told the client
			t.Error("a line about no client is left out")
		}
		table.Flush(out.logger(), out.add)
		testkit.Equal(t, "lines that stand for others", len(out.kept), 0)
		testkit.Has(t, out.log.String(), fmt.Sprintf(`msg="log lines left out" network=192.0.2.0/24 lines=%d within=`, 10_000-PerNetwork))
		written := out.log.Len()
		table.Flush(out.logger(), out.add)
		testkit.Equal(t, "written twice", out.log.Len(), written)
	})
}

// TestWhatIsNotTheSame is never folded into another one: each has its own reference, and is counted by itself.
func TestWhatIsNotTheSame(t *testing.T) {
	for name, change := range map[string]func(*history.Record){
		"sender":              func(r *history.Record) { r.Sender = "victim@junk.example" },
		"null sender":         func(r *history.Record) { r.Sender = "" },
		"client":              func(r *history.Record) { r.Client = netip.MustParseAddr("192.0.2.8") },
		"no client":           func(r *history.Record) { r.Client = netip.Addr{} },
		"list":                func(r *history.Record) { r.List = "junk" },
		"file":                func(r *history.Record) { r.File = "other.txt" },
		"line":                func(r *history.Record) { r.Line = 4 },
		"entry":               func(r *history.Record) { r.Entry = "x@bad.example" },
		"owner":               func(r *history.Record) { r.Owner = "bob@here.example" },
		"door":                func(r *history.Record) { r.Door = "milter" },
		"outcome":             func(r *history.Record) { r.Outcome = "defer" },
		"header field":        func(r *history.Record) { r.Source = "header_from" },
		"domain of recipient": func(r *history.Record) { r.Recipient = "r1@there.example" },
		"hearsay":             func(r *history.Record) { r.Hearsay = true },
		"rule of no list":     func(r *history.Record) { r.List, r.File, r.Line, r.Entry = "", "", 0, "" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out sink
				table := NewTable()
				for n := range 4 * PerNetwork { // far beyond the lines of a network
					table.Refused(refusal("192.0.2.7", "x@bad.example", n))
					table.Line(netip.MustParseAddr("192.0.2.7"))
				}
				r := refusal("192.0.2.7", "x@bad.example", 900)
				change(r)
				testkit.Got(table.Refused(r))(t, "reference, and folded", "ref0000900", false)
				table.Settle(out.add)
				if len(out.kept) != 1 || out.kept[0].Repeated != 4*PerNetwork-PerSender || out.kept[0].Sender != "x@bad.example" {
					t.Errorf("kept %+v", out.kept)
				}
			})
		})
	}
}

// TestSettledBeforeTheMinuteEnds: who reads the history meanwhile finds all that was refused until then, once; the
// log has one line, at the end. What several recipients were refused says so.
func TestSettledBeforeTheMinuteEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out sink
		table := NewTable()
		refuse := func(times int, recipient string) {
			for n := range times {
				r := refusal("192.0.2.7", "x@bad.example", n)
				r.Recipient = recipient
				table.Refused(r)
			}
		}
		refuse(PerSender+5, "ann@here.example")
		table.Settle(out.add)
		refuse(3, "ann@here.example")
		refuse(4, "bob@here.example")
		table.Settle(out.add)
		table.Settle(out.add)
		refuse(1, "cid@here.example")
		testkit.Equal(t, "log before the end", out.log.Len(), 0)
		table.Flush(out.logger(), out.add)
		var got []string
		for _, r := range out.kept {
			got = append(got, fmt.Sprintf("%d %t %s", r.Repeated, r.Several, r.Recipient))
		}
		testkit.EqualSlices(t, "kept", got, []string{"5 false ann@here.example", "7 true bob@here.example", "1 false cid@here.example"})
		testkit.Has(t, out.log.String(), "repeated=13")
		testkit.Equal(t, "lines", strings.Count(out.log.String(), "\n"), 1)
	})
}

// TestCountsAreOfTheirMinute: what is folded in a minute of the clock is kept with a time of that minute, so that
// what counts minutes agrees with it.
func TestCountsAreOfTheirMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out sink
		table := NewTable()
		stop := testkit.Running(t, func(ctx context.Context) { table.Run(ctx, out.logger(), out.add) })
		want := map[int64]int{}
		for n := range 400 {
			r := refusal("192.0.2.7", "x@bad.example", n)
			want[r.Time.Unix()/60]++
			if _, folded := table.Refused(r); !folded {
				out.add(*r)
			}
			time.Sleep(700 * time.Millisecond)
		}
		time.Sleep(Window)
		synctest.Wait()
		got := map[int64]int{}
		for _, r := range out.kept {
			got[r.Time.Unix()/60] += max(r.Repeated, 1)
		}
		if !maps.Equal(got, want) {
			t.Errorf("have %v, want %v", got, want)
		}
		stop()
	})
}

// TestReferencesAreWrittenAcrossWindows: the windows of a network and of its senders end
// at different times, and still no refusal is told a reference that no line has.
func TestReferencesAreWrittenAcrossWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out sink
		table := NewTable()
		stop := testkit.Running(t, func(ctx context.Context) { table.Run(ctx, out.logger(), out.add) })
		written := map[string]bool{}
		n := 0
		refuse := func(sender string) {
			n++
			ref, folded := table.Refused(refusal("192.0.2.7", sender, n))
			if !folded {
				written[ref] = true
			} else if !written[ref] {
				t.Errorf("refusal %d of %s is told %s, which nothing is written under", n, sender, ref)
			}
		}
		refuse("first@bad.example")
		time.Sleep(Window / 2)
		for range PerSender {
			refuse("x@bad.example")
		}
		time.Sleep(Window/2 + 2*time.Second) // the network's has ended, that of x has not
		refuse("x@bad.example")
		for i := range 2 * PerNetwork {
			refuse(fmt.Sprintf("y%d@bad.example", i))
		}
		stop()
	})
}

// TestBoundedMemory lets more networks and senders come than there are places for: they
// share one, and nothing is lost from the counts.
func TestBoundedMemory(t *testing.T) {
	var out sink
	table := NewTable()
	full, n := 0, 0
	for i := range maxNetworks + 300 {
		for range 1 + i/maxNetworks*40 {
			n++
			client := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1})
			if _, folded := table.Refused(refusal(client.String(), fmt.Sprintf("x%d@bad.example", n), n)); !folded {
				full++
			}
		}
	}
	testkit.AtMost(t, "senders", len(table.senders), maxSenders)
	testkit.AtMost(t, "networks", len(table.networks), maxNetworks)
	table.Flush(out.logger(), out.add)
	for _, r := range out.kept {
		full += r.Repeated
	}
	testkit.Equal(t, "refusals in lines", full, n)
	if len(table.senders)+len(table.networks)+len(table.groups)+len(table.crowded) > 0 || table.rest != nil {
		t.Error("not empty")
	}
}

func TestNilTableFoldsNothing(t *testing.T) {
	var table *Table
	for n := range 100 {
		ref, folded := table.Refused(refusal("192.0.2.7", "x@bad.example", n))
		testkit.MustGot(folded, ref, table.Line(netip.Addr{}))(t, "folded, reference, and room for a line", false, fmt.Sprintf("ref%07d", n), true)
	}
}
