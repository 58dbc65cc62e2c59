package roster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// The example of docs/fleet.md: a list that refuses one of a thousand good senders is seen after 15 minutes of 1 % of 1,000 nodes with 100
// checks a second, and one that refuses nobody halts nothing.
func TestBrake(t *testing.T) {
	begun := time.Unix(1_790_000_000, 0)
	for _, tt := range []struct {
		name    string
		poison  float64
		minutes int
		want    bool
	}{{"nothing", 0, 15, false}, {"one of a thousand", 0.001, 15, true}, {"one of a hundred", 0.01, 1, true}, {"one of ten thousand", 0.0001, 15, false}} {
		rng := rand.New(rand.NewPCG(7, 9))
		refused := func(checks uint64, share float64) uint64 { // a normal draw is the binomial one here
			mean := float64(checks) * share
			return uint64(max(0, mean+rng.NormFloat64()*math.Sqrt(mean*(1-share))))
		}
		var b Brake
		nodes := make([]Report, 1000)
		for i := range nodes {
			nodes[i] = Report{Node: fmt.Sprint("mx", i), Channel: "prod", Sequence: 7, Begun: begun, Checks: 1_000_000, Refused: 50_000, Since: Counts{Sequence: 7, Checks: 1_000_000, Refused: 50_000}}
		}
		testkit.Equal(t, fmt.Sprintf("%s: halted before anything is taken", tt.name), b.Look(nodes, "prod", 8).Halt, false)
		for i := range nodes {
			checks := uint64(100 * 60 * tt.minutes)
			if i < 10 {
				n := refused(checks, 0.05+0.95*tt.poison)
				nodes[i].Sequence, nodes[i].Since = 8, Counts{Sequence: 8, Checks: checks, Refused: n}
				nodes[i].Checks, nodes[i].Refused = nodes[i].Checks+checks, nodes[i].Refused+n
				continue
			}
			nodes[i].Checks, nodes[i].Refused = nodes[i].Checks+checks, nodes[i].Refused+refused(checks, 0.05)
		}
		nodes[500].Begun, nodes[500].Checks, nodes[500].Refused = begun.Add(time.Minute), 10, 10 // its process has begun anew
		f := b.Look(nodes, "prod", 8)
		testkit.Equal(t, fmt.Sprintf("%s: %s; halt", tt.name, f), f.Halt, tt.want)
		want := uint64(100 * 60 * tt.minutes * 10)
		testkit.Got(f.Canaries.Checks, f.Others.Checks)(t, fmt.Sprintf("%s: compared", tt.name), want, want/10*989)
		if f := b.Look(nodes, "other", 8); f.Canaries.Checks+f.Others.Checks != 0 {
			t.Errorf("%s: nodes of another channel were compared", tt.name)
		}
	}
}

func TestBook(t *testing.T) {
	b, now := NewBook(), time.Unix(1_790_000_000, 0)
	for i := range MostNodes {
		testkit.Must(t, b.Put(Report{Node: fmt.Sprint(i)}, 1000, now))
	}
	testkit.Equal(t, "one node too many", b.Put(Report{Node: "more"}, 1000, now), ErrFull)
	testkit.Equal(t, "a known node", b.Put(Report{Node: "7", Version: "2"}, 1000, now.Add(time.Minute)), nil)
	all := b.All(now.Add(Life))
	testkit.Got(len(all), testkit.At(all, 0).Version)(t, fmt.Sprintf("after %s: %+v", Life, all), 1, "2")
	// What all of them say is bounded, too; a node may always say less.
	b = NewBook()
	for i := 0; ; i++ {
		if err := b.Put(Report{Node: fmt.Sprint(i)}, MaxReport, now); err != nil {
			if i != MostOctets/MaxReport || err != ErrFull {
				t.Errorf("report %d: %v", i, err)
			}
			break
		}
	}
	testkit.Equal(t, "a known node that says less", b.Put(Report{Node: "3"}, 100, now), nil)
	testkit.Equal(t, "room that became free", b.Put(Report{Node: "new"}, 100, now), nil)
	testkit.Must(t, b.Put(Report{Node: "new"}, MaxReport, now.Add(Life)))
	testkit.Equal(t, "after all have gone", len(b.All(now.Add(Life))), 1)
	merged := Merge([]Report{{Node: "b", At: now}, {Node: "a", At: now}}, []Report{{Node: "b", At: now.Add(1), Version: "newer"}})
	if len(merged) != 2 || merged[0].Node != "a" || merged[1].Version != "newer" {
		t.Errorf("Merge() = %+v", merged)
	}
}

// A report comes from another machine: it is within its bounds, or refused.
func TestDecode(t *testing.T) {
	whole := testkit.Value(Report{Node: "mx1", Problems: []string{"two\nlines", strings.Repeat("x", 10_000)}, Checks: 2, Refused: 1}.Encode())(t)
	r, err := Decode(whole)
	if err != nil || r.Problems[0] != "two lines" || len(r.Problems[1]) > maxText+3 || r.Share() != 0.5 {
		t.Errorf("Decode() = %+v, %v", r, err)
	}
	for _, text := range []string{"", "{}", `{"node":""}`, `{"node":"a\nb"}`, `{"node":"` + strings.Repeat("a", 256) + `"}`, `{"node":"a","checks":1,"refused":2}`, `{"node":"a","problems":[` + strings.Repeat(`"",`, 20) + `""]}`,
		`{"node":"a","address":"http://x` + "\u0000" + `"}`, strings.Repeat(" ", MaxReport+1)} {
		if r, err := Decode([]byte(text)); err == nil {
			t.Errorf("Decode(%.60q) = %+v", text, r)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"node":"mx1","problems":["x"],"sources":[{"list":"a","state":"away"}],"checks":3}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Decode(text)
		if err != nil {
			return
		}
		again, err := r.Encode()
		if err != nil {
			return // a time that JSON cannot say, or longer by its names
		}
		if _, err := Decode(again); err != nil {
			t.Errorf("Decode(Encode()) of %s: %v", again, err)
		}
	})
}

func TestDiffer(t *testing.T) {
	a := Report{Node: "a", Channel: "prod", Sequence: 3, LiveRevision: 9, LiveSum: "x"}
	b, c := a, a
	b.Sequence, c.LiveSum = 4, "y"
	testkit.Got(Differ([]Report{a, a}))(t, "what differs of the same", false, false)
	testkit.Got(Differ([]Report{a, b, c}))(t, "what differs of others", true, true)
	b.Pinned = 4
	if s, _ := Differ([]Report{a, b}); s {
		t.Error("a pinned node counts")
	}
}

func TestPast(t *testing.T) {
	var p Past
	now := time.Unix(1_790_000_000, 0)
	one, two := Report{Node: "mx1", Version: "1"}, Report{Node: "mx2", Version: "2", Sequence: 7, Address: "https://mx2.example:8025"}
	if gone := p.Look([]Report{one, two}, true, now); len(gone) != 0 {
		t.Errorf("at first: %+v", gone)
	}
	later := now.Add(Life)
	if gone := p.Look([]Report{one}, false, later); len(gone) != 0 {
		t.Errorf("the others could not be read: %+v", gone)
	}
	if gone := p.Look([]Report{one}, true, later); len(gone) != 1 || gone[0] != (Gone{"mx2", now.UTC(), "2", 7, "https://mx2.example:8025"}) {
		t.Errorf("one has stopped: %+v", gone)
	}
	if gone := p.Look([]Report{one, two}, true, later); len(gone) != 0 {
		t.Errorf("it is back: %+v", gone)
	}
	if gone := p.Look([]Report{one}, true, later.Add(Remember+time.Second)); len(gone) != 0 {
		t.Errorf("a day after: %+v", gone)
	}
}

// Who makes up names takes no memory for it, and hides no node that is there.
func TestPastIsBounded(t *testing.T) {
	var p Past
	now := time.Unix(1_790_000_000, 0)
	real := Report{Node: "real"}
	for turn := range 5 {
		all := []Report{real}
		for i := range MostNodes - 1 {
			all = append(all, Report{Node: fmt.Sprintf("forged%d.%d", turn, i)})
		}
		now = now.Add(Life)
		p.Look(all, true, now)
	}
	testkit.AtMost(t, "nodes that are remembered", len(p.of), 2*MostNodes)
	if gone := p.Look(nil, true, now.Add(Life)); len(gone) != 2*MostNodes || gone[len(gone)-1].Node != "real" {
		t.Errorf("%d are gone, the last %+v", len(gone), gone[len(gone)-1])
	}
}
