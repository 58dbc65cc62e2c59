package repeat

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
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

// TestSendersThatChangeFoldByNetwork: who names another listed sender each time has as
// many lines as its network, which others do not pay for.
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

func TestSendersThatChangeFoldByNetwork(t *testing.T) {
	var out sink
	table := NewTable()
	full := 0
	for n := range 10_000 {
		ref, folded := table.Refused(refusal(fmt.Sprintf("192.0.2.%d", n%256), fmt.Sprintf("x%d@bad.example", n), n))
		if !folded {
			full++
		} else if ref != "ref0000000" {
			t.Fatalf("reference %s", ref)
		}
	}
	testkit.Got(full, table.Line(netip.MustParseAddr("192.0.2.1")))(t, "lines in full, and room for one more", PerNetwork, false)
	for _, other := range []string{"192.0.3.1", "2001:db8::1"} {
		_, folded := table.Refused(refusal(other, "x@bad.example", 1))
		testkit.Got(folded, table.Line(netip.MustParseAddr(other)))(t, fmt.Sprintf("%s: folded, and room for a line", other), false, true)
	}
	if !table.Line(netip.Addr{}) { // of a table that is not told the client
		t.Error("a line about no client is left out")
	}
	table.Flush(out.logger(), out.add)
	if len(out.kept) != 1 || out.kept[0].Repeated != 10_000-PerNetwork || out.kept[0].Sender != "x9999@bad.example" || out.kept[0].Ref != "ref0000000" {
		t.Errorf("kept %+v", out.kept)
	}
	testkit.Has(t, out.log.String(), `msg="log lines left out" network=192.0.2.0/24 lines=1 within=`)
	table.Flush(out.logger(), out.add)
	testkit.Equal(t, "written twice", len(out.kept), 1)
}

// TestFirstRefusalBehindOtherLines: a network whose other lines have taken all of its
// room still has its first refusal written at once, so that its reference is found.
func TestFirstRefusalBehindOtherLines(t *testing.T) {
	table := NewTable()
	client := netip.MustParseAddr("192.0.2.7")
	for table.Line(client) {
	}
	testkit.Got(table.Refused(refusal("192.0.2.7", "x@bad.example", 1)))(t, "the first, of which no line is written", "ref0000001", false)
	testkit.Got(table.Refused(refusal("192.0.2.8", "y@bad.example", 2)))(t, "the second", "ref0000001", true)
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
	if len(table.senders)+len(table.networks) > 0 || table.rest != nil {
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
