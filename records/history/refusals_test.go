package history

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// TestRefusals: only what a list refused counts, each as often as it stands for, and a
// list's sample is drawn from all of its refusals.
func TestRefusals(t *testing.T) {
	l := testkit.Value(Open(Settings{Folder: t.TempDir(), Max: MinMax, Keep: 30 * 24 * time.Hour}))(t)
	now := time.Now()
	add := func(r Record) {
		r.Door = "smtp"
		if r.Time.IsZero() {
			r.Time = now
		}
		l.Add(r)
	}
	refused := Record{Outcome: "refuse", Verdict: "blocked", List: "bad", Sender: "x@bad.example", Recipient: "bob@here.example", Client: netip.MustParseAddr("192.0.2.7")}
	for _, other := range []func(r *Record){
		func(r *Record) { r.Outcome, r.Exempt = "accept", true },
		func(r *Record) { r.Outcome = "tag" },
		func(r *Record) { r.Outcome, r.Verdict, r.List = "accept", "clear", "" },
		func(r *Record) { r.Verdict, r.List = "unknown", "" },
		func(r *Record) { r.Time = now.Add(-8 * 24 * time.Hour) },
	} {
		r := refused
		other(&r)
		add(r)
	}
	add(refused)
	many := refused
	many.Repeated, many.List = 512, "flooded"
	add(many)
	login := refused
	login.Authenticated, login.List, login.Source = true, "clients", "from"
	add(login)
	const big = 5000
	for i := range big {
		r := refused
		r.List, r.Sender = "big", fmt.Sprintf("s%d@d.example", i)
		add(r)
	}
	found := testkit.Value(l.Refusals(t.Context(), now.Add(-7*24*time.Hour), 4))(t)
	if got := found["bad"]; got == nil || got.Count != 1 || len(got.Sample) != 1 ||
		got.Sample[0] != (Refusal{Sender: "x@bad.example", Recipient: "bob@here.example", Client: refused.Client, Weight: 1}) {
		t.Errorf("bad: %+v", got)
	}
	if got := found["flooded"]; got == nil || got.Count != mostRepeated {
		t.Errorf("flooded: %+v", got)
	}
	if got := found["clients"]; got == nil || got.Sample[0].Sender != "" || got.Sample[0].Source != "from" {
		t.Errorf("clients: %+v", got)
	}
	got := found["big"]
	if got == nil || got.Count != big || len(got.Sample) != mostOfList {
		t.Fatalf("big: %v refusals", got)
	}
	old := 0 // of the first half
	for _, r := range got.Sample {
		var n int
		fmt.Sscanf(r.Sender, "s%d@", &n)
		if n < big/2 {
			old++
		}
	}
	if old < mostOfList*2/5 || old > mostOfList*3/5 {
		t.Errorf("%d of %d are of the older half", old, mostOfList)
	}
	if found, err := (*Log)(nil).Refusals(t.Context(), now, 1); found != nil || err != nil {
		t.Error(found, err)
	}
}

// TestRefusalsOfManySegments: a later look reads the newest alone, and counts the same.
func TestRefusalsOfManySegments(t *testing.T) {
	race.Skip(t)
	folder := t.TempDir()
	l := testkit.Value(Open(Settings{Folder: folder, Max: 64 << 20, Keep: 30 * 24 * time.Hour}))(t)
	since := time.Now().Add(-7 * 24 * time.Hour)
	n := 0
	add := func(more int) {
		for range more {
			r := blocked(n)
			r.Time, r.Outcome, r.Verdict, r.List, r.Repeated, r.Exempt = time.Now(), "refuse", "blocked", "bad", 0, false
			l.Add(r)
			if n++; n%1000 == 0 {
				l.Flush()
			}
		}
		l.Flush()
	}
	for _, more := range []int{150_000, 50, 70_000} {
		add(more)
		kept := testkit.Value(l.Refusals(t.Context(), since, 4))(t)
		fresh := testkit.Value(Refusals(t.Context(), folder, since, 4))(t)
		for name, found := range map[string]map[string]*Refused{"kept": kept, "fresh": fresh} {
			sum := 0.
			for _, r := range found["bad"].Sample {
				sum += r.Weight
			}
			if got := found["bad"]; got.Count != float64(n) || math.Abs(sum-got.Count) > 1 || len(got.Sample) > mostRefusals {
				t.Errorf("%s: %v refusals, weighing %v, in a sample of %d; want %d", name, got.Count, sum, len(got.Sample), n)
			}
		}
	}
	if all, _ := segments(folder); len(all) < 3 || len(l.refused.segments) != len(all)-1 {
		t.Errorf("%d of %d segments are kept", len(l.refused.segments), len(all))
	}
}

// BenchmarkRefusals reads a week of a history of the usual size, each third decision a
// refusal.
func BenchmarkRefusals(b *testing.B) {
	folder := b.TempDir()
	l, err := Open(Settings{Folder: folder, Max: 256 << 20, Keep: 30 * 24 * time.Hour})
	testkit.Must(b, err)
	r := Record{Door: "smtp", Helo: "mail.there.example", Generation: "0123456789abcdef0123456789abcdef", Time: time.Now()}
	for i := range 1_800_000 {
		r.Client = netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
		r.Sender, r.Recipient = fmt.Sprintf("sender%d@domain%d.example", i, i%1000), "someone@here.example"
		r.Outcome, r.Verdict, r.List, r.Ref = "accept", "clear", "", ""
		if i%3 == 0 {
			r.Outcome, r.Verdict, r.Ref = "refuse", "blocked", "0123456789"
			r.List, r.File, r.Line, r.Entry, r.Scope, r.Action = fmt.Sprintf("list%d", i%14), "/etc/blockd/lists/list.txt", i, "domain.example", "tree", "block"
		}
		l.Add(r)
		if i%1000 == 0 {
			l.Flush()
		}
	}
	l.Flush()
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := Refusals(b.Context(), folder, time.Now().Add(-7*24*time.Hour), 14)
			testkit.Must(b, err)
		}
	})
	b.Run("later", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := l.Refusals(b.Context(), time.Now().Add(-7*24*time.Hour), 14)
			testkit.Must(b, err)
		}
	})
}
