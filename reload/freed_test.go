package reload

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/policy"
	"blockd/records/history"
)

// newFreedDaemon serves list a, which blocks d0.example to d99.example, and list b, a
// guest. The history has n refusals by a, of clients in 192.0.2.0/24 and 198.51.100.0/24
// by turns.
func newFreedDaemon(t *testing.T, n int) *daemon {
	d := newDaemon(t, map[string]string{"a.txt": domains(100), "b.txt": "guest.example\n", "c.txt": "c0.test\n"})
	for i := range d.settings.Lists {
		d.settings.Lists[i].MaxFreed = 0.2
	}
	of := &history.Refused{Count: float64(n)}
	for i := range n {
		client := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
		if i%2 == 1 {
			client = netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})
		}
		of.Sample = append(of.Sample, history.Refusal{Sender: fmt.Sprintf("s%d@d%d.example", i, i), Client: client, Weight: 1})
	}
	d.settings.Refusals = func(context.Context) (Past, error) { return Past{"a": of}, nil }
	d.settings.Judge = policy.Settings{}.Judge()
	return d
}

// TestLoadsThatFree are the counterpart of loads that block too much: what they let pass
// was refused a short while ago, and by another list.
func TestLoadsThatFree(t *testing.T) {
	all := func(d *daemon) { d.settings.Lists[1].Exceptions = index.AllExceptions }
	format := func(name string) func(*daemon) {
		return func(d *daemon) {
			all(d)
			d.settings.Lists[1].Settings.Format = name
			d.write("b.txt", map[string]string{"adblock": "||guest.example^\n", "postfix": "guest.example REJECT\n", "rpz": "guest.example CNAME .\n"}[name])
		}
	}
	for _, tt := range []struct {
		rule     string
		refusals int
		prepare  func(*daemon)
		file     string
		text     string
		want     string // of the problem; "": it serves
	}{
		{"an exception for everybody", 100, all, "b.txt", "guest.example\n!example\n",
			"list b: %s: frees: would lift 100 of the 100 refusals of the last 7 days, more than max_freed = 0.2 of them: s0@d0.example, s1@d1.example, s2@d2.example; by example (line 2), which has come or gone"},
		{"a rule of adblock", 100, format("adblock"), "b.txt", "||guest.example^\n@@||example^\n", "list b: %s: frees: would lift 100 of"},
		{"a key of Postfix", 100, format("postfix"), "b.txt", "guest.example REJECT\nexample OK\n", "list b: %s: frees: would lift 100 of"},
		{"a record of a policy zone", 100, format("rpz"), "b.txt", "guest.example CNAME .\n*.example CNAME rpz-passthru.\n", "list b: %s: frees: would lift 100 of"},
		{"a network of clients", 100, all, "b.txt", "guest.example\n!192.0.0.0/9\n", "list b: %s: frees: would lift 50 of the 100"},
		{"a list that allows", 100, func(d *daemon) { d.settings.Lists[1].Settings.Action = lists.Allow }, "b.txt", "guest.example\nexample\n", "list b: %s: frees: would lift 100 of"},
		{"exceptions that stay home", 100, nil, "b.txt", "guest.example\n!example\n!192.0.0.0/9\n", ""},
		{"exceptions without effect", 100, func(d *daemon) { d.settings.Lists[1].Exceptions = index.NoExceptions }, "b.txt", "guest.example\n!example\n", ""},
		{"a list in shadow mode", 100, func(d *daemon) { all(d); d.settings.Lists[1].Mode = index.Shadow }, "b.txt", "guest.example\n!example\n", ""},
		{"of its own list", 100, nil, "a.txt", domains(100) + "!example\n", "list a: %s: frees: would lift 100 of the 100 refusals of this list of the last 7 days"},
		{"blocks that go", 100, nil, "a.txt", domains(79), "list a: %s: frees: would lift 21 of the 100 refusals of this list"},
		{"no more than may be", 100, nil, "a.txt", domains(80), ""},
		{"blocks that go, and another list has them", 100, func(d *daemon) { d.write("b.txt", domains(100)) }, "a.txt", domains(1), ""},
		{"blocks that come", 100, nil, "b.txt", "guest.example\nd1.example\n", ""},
		{"too few to say anything", 19, nil, "a.txt", domains(1), ""},
		{"just enough", 20, nil, "a.txt", domains(1), "list a: %s: frees: would lift 19 of the 20"},
		{"a list that may", 100, func(d *daemon) { d.settings.Lists[0].MaxFreed = 1 }, "a.txt", domains(1), ""},
		{"a list that may lift nothing", 100, func(d *daemon) { d.settings.Lists[0].MaxFreed = 0 }, "a.txt", domains(99), "list a: %s: frees: would lift 1 of the 100"},
	} {
		for name, still := range map[string]bool{"while it runs": false, "while it stands still": true} {
			t.Run(tt.rule+"/"+name, func(t *testing.T) {
				d := newFreedDaemon(t, tt.refusals)
				if tt.prepare != nil {
					tt.prepare(d)
				}
				d.open()
				before := d.Live().Lists()
				d.write(tt.file, tt.text)
				d.write("c.txt", "c1.test\n")
				if still {
					d.open()
				} else {
					d.look(t.Context(), true)
				}
				if !d.listed("x@c1.test") {
					t.Error("the change of another list does not act")
				}
				problems := strings.Join(d.Status().Problems, "\n")
				if tt.want == "" {
					testkit.Equal(t, "refused", problems, "")
					return
				}
				if want := fmt.Sprintf(tt.want, d.path(tt.file)); !strings.HasPrefix(problems, want) || strings.Contains(problems, "\n") {
					t.Errorf("problems %q, want %q", problems, want)
				}
				for i, row := range d.Live().Lists() {
					if was := before[i].Summary; row.Source.Path == d.path(tt.file) && row.Summary.Hash != was.Hash {
						t.Error("the refused file serves")
					}
				}
				if !d.Status().Ready {
					t.Error("not ready: the other lists filter")
				}
			})
		}
	}
}

// TestFreeingLoadIsTakenWhenAccepted, and not when it was compiled without that word.
func TestFreeingLoadIsTakenWhenAccepted(t *testing.T) {
	d := newFreedDaemon(t, 100)
	d.open()
	d.start()
	d.write("a.txt", domains(10))
	d.waitProblem("list a", "frees", "would lift 90 of the 100")
	d.wantCount("max_freed of the list", 1) // the hint
	compile := func(accept bool) {
		draft, err := index.Build(t.Context(), d.settings.Path, d.sources(), index.Options{})
		d.must(err)
		if accept {
			d.must(Accept(d.settings.Path, draft.Index().Generation()))
		}
		d.must(draft.Publish())
	}
	compile(false)
	d.looks(2)
	if !d.listed("s50@d50.example") {
		t.Fatal("an index that nobody has accepted serves")
	}
	compile(true)
	d.wait("the accepted index serves", func() bool { return !d.listed("s50@d50.example") })
	d.waitWell()
}
