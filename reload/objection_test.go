package reload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/policy"
	"blockd/records/history"
)

// blocks is what policy makes of matches, as far as these tests need it.
func blocks(ix *index.Index, sender addr.Addr, client netip.Addr) (all []index.Match) {
	found, err := ix.Lookup(nil, sender, time.Now())
	if err == nil {
		found, err = ix.LookupClient(found, client, time.Now())
	}
	for _, m := range found {
		switch {
		case err != nil || m.Action.Allows():
			return nil
		case ix.Lists()[m.Row].Source.Mode == index.Enforce:
			all = append(all, m)
		}
	}
	return all
}

// newRecentDaemon serves a list that names no sender of mail, and has accepted n
// senders s0@d0.example, s1@d1.example, and so on.
func newRecentDaemon(t *testing.T, n int) *daemon {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "always.example\n"})
	for i := range d.settings.Lists {
		d.settings.Lists[i].MaxRecentBlocked = 0.01
	}
	d.settings.Recent, d.settings.Blocks = NewRecent(2000), blocks
	d.open()
	for i := range n {
		d.settings.Recent.Add(parsed(t, fmt.Sprintf("s%d@d%d.example", i, i)), clientOf(i))
	}
	return d
}

// domains lists d0.example to d(n-1).example, the first in line 2.
func domains(n int) string {
	text := "old.example\n"
	for i := range n {
		text += fmt.Sprintf("d%d.example\n", i)
	}
	return text
}

// heldNames are the entries of list a that are held back, as the file beside the index
// has them.
func (d *daemon) heldNames() string {
	d.t.Helper()
	all, err := Held(d.settings.Path)
	d.must(err)
	var names []string
	for _, e := range all {
		names = append(names, fmt.Sprintf("%s:%s:%d", e.List, e.Name, e.Line))
	}
	return strings.Join(names, " ")
}

func TestListThatWouldRefuseWhomMailWasTakenFrom(t *testing.T) {
	tests := []struct {
		rule    string
		senders int
		change  func(*daemon) // nil: nothing
		list    string        // what is then written to a.txt
		held    int           // entries of it that do not act
		want    string        // of the problem; "": it serves
	}{
		{"one in a hundred", 100, nil, domains(1), 0, ""},
		{"two in a hundred", 100, nil, domains(2), 2, ""},
		{"too few to say anything", 99, nil, domains(99), 0, ""},
		{"ten in a thousand", 1000, nil, domains(10), 0, ""},
		{"eleven in a thousand", 1000, nil, domains(11), 11, ""},
		{"a tenth", 200, nil, domains(20), 20, ""},
		{"more than a tenth", 200, nil, domains(21), 0,
			"recent: would refuse 21 of the 200 senders accepted lately, more than a tenth of them: s0@d0.example, s1@d1.example, s10@d10.example; by d0.example (line 2), d1.example (line 3), d2.example (line 4) and 18 more entries"},
		{"the entry that refuses most comes first", 200, nil, "old.example\nd7.example\nexample\n", 0,
			"recent: would refuse 200 of the 200 senders accepted lately, more than a tenth of them: s0@d0.example, s1@d1.example, s10@d10.example; by example (line 3), d7.example (line 2)"},
		{"a list that may", 200, func(d *daemon) { d.settings.Lists[0].MaxRecentBlocked = 1 }, domains(200), 0, ""},
		{"a list that may refuse half", 200, func(d *daemon) { d.settings.Lists[0].MaxRecentBlocked = 0.5 }, domains(101), 0,
			"recent: would refuse 101 of the 200"},
		{"a list that may refuse nobody", 1000, func(d *daemon) { d.settings.Lists[0].MaxRecentBlocked = 0 }, domains(1), 1, ""},
		{"a shadow list refuses nobody", 200, func(d *daemon) { d.settings.Lists[0].Mode = index.Shadow; d.open() }, domains(200), 0, ""},
		{"senders that another list refuses already", 200, func(d *daemon) {
			d.write("b.txt", domains(2))
			d.wait("two of them refused", func() bool { d.look(d.t.Context(), true); return d.listed("s1@d1.example") })
		}, domains(4), 0, ""},
		{"nobody is remembered", 200, func(d *daemon) { d.Reloader.settings.Recent = nil }, domains(200), 0, ""},
		{"one that writes daily is not a crowd", 100, func(d *daemon) {
			w := d.settings.Recent.domains["d0.example"]
			w.seen = 1<<keepDays - 1
		}, domains(1), 0, ""},
		{"a crowd of one day among those of many", 150, func(d *daemon) {
			for i := 50; i < 150; i++ {
				d.settings.Recent.domains[fmt.Sprintf("d%d.example", i)].seen = 1<<keepDays - 1
			}
		}, domains(30), 0, ""},
		{"addresses of one domain are one sender", 100, func(d *daemon) {
			for i := range 3 {
				d.settings.Recent.Add(parsed(d.t, fmt.Sprintf("t%d@d0.example", i)), clientOf(0))
			}
		}, "old.example\ns0@d0.example\nt0@d0.example\nt1@d0.example\nt2@d0.example\n", 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			d := newRecentDaemon(t, tt.senders)
			if tt.change != nil {
				tt.change(d)
			}
			d.write("a.txt", "bulk.example\n"+strings.TrimPrefix(tt.list, "old.example\n"))
			before := d.Live().Generation()
			d.look(t.Context(), true)
			status := d.Status()
			problems := strings.Join(status.Problems, "\n")
			if tt.want == "" && (problems != "" || d.Live().Generation() == before || !d.listed("x@bulk.example")) && status.Files[0].Source.Mode != index.Shadow {
				t.Errorf("refused: %s", problems)
			}
			if want := "list a: " + d.path("a.txt") + ": " + tt.want; tt.want != "" && (!strings.HasPrefix(problems, want) || d.Live().Generation() != before) {
				t.Errorf("problems %q, want %q", problems, want)
			}
			if status.Held["a"] != tt.held || len(status.Remarks) != min(tt.held, 1) {
				t.Errorf("%d entries held back, want %d; remarks %q", status.Held["a"], tt.held, status.Remarks)
			}
			if tt.held > 0 && d.listed("s0@d0.example") {
				t.Error("a held entry acts")
			}
		})
	}
}

// TestEveryKindOfEntryIsHeld: what is objected to does not act, whatever it is and
// whatever file of the list it stands in, by a build and by an update alike; the rest acts.
func TestEveryKindOfEntryIsHeld(t *testing.T) {
	for _, from := range []uint64{0, 1} { // no update, and one from the first key on
		t.Run(fmt.Sprintf("updates from %d keys", from), func(t *testing.T) {
			d := newDaemon(t, nil)
			d.write("lists/one.txt", "old.example\n")
			d.write("lists/two.txt", "older.example\n*kept*@*\n")
			d.settings.Lists = []List{{Name: "a", Path: d.path("lists/*.txt"), Settings: lists.Settings{Format: "plain", Patterns: true}, MaxRecentBlocked: 0.01}}
			d.settings.Recent, d.settings.Blocks, d.settings.updateFrom = NewRecent(2000), blocks, from
			d.open()
			for i := range 200 {
				d.settings.Recent.Add(parsed(t, fmt.Sprintf("s%d@d%d.example", i, i)), clientOf(i))
			}
			d.write("lists/one.txt", "old.example\nnew.example\nd1.example\ns2@d2.example\ns3@\n")
			d.write("lists/two.txt", "older.example\n*kept*@*\n!friend@new.example\n=d5.example\n*@d4.example\n11.0.6.9\n11.0.7.0/24\n198.51.100.0/24\n")
			d.look(t.Context(), true)
			if d.Live().Updated() != (from == 1) {
				t.Fatalf("updated: %v; log:\n%s", d.Live().Updated(), d.log)
			}
			want := "a:11.0.6.9:6 a:11.0.7.0/24:7 a:d1.example:3 a:d4.example:5 a:d5.example:4 a:s2@d2.example:4 a:s3@:5"
			check := func(when string) {
				t.Helper()
				if n := d.Status().Held["a"]; n != 7 || len(d.Status().Problems) > 0 {
					t.Fatalf("%s: %d held back, problems %q", when, n, d.Status().Problems)
				}
				for i := range 10 {
					if found := blocks(d.Live(), parsed(t, fmt.Sprintf("s%d@d%d.example", i, i)), clientOf(i)); len(found) > 0 {
						t.Errorf("%s: s%d@d%d.example is refused by %s", when, i, i, found[0].Name())
					}
				}
				for _, sender := range []string{"x@new.example", "x@old.example", "x@older.example", "akeptb@z.example"} {
					d.serves("it serves", sender)
				}
				if len(blocks(d.Live(), parsed(t, "x@z.example"), netip.MustParseAddr("198.51.100.7"))) == 0 {
					t.Errorf("%s: the other network does not act", when)
				}
				for e, err := range d.Live().Entries(t.Context(), nil) {
					if d.must(err); strings.Contains(want, ":"+e.Item.Name()+":") {
						t.Errorf("%s: the walk has %s", when, e.Item.Name())
					}
				}
			}
			check("after the load")
			if from == 0 {
				testkit.Equal(t, "held", d.heldNames(), want)
			}
			d.look(t.Context(), true) // builds what memory has, if it was an update
			check("after the next look")
			testkit.Equal(t, "held", d.heldNames(), want)
			d.write("lists/one.txt", "old.example\nnew.example\nd1.example\nmore.example\ns2@d2.example\ns3@\n")
			d.look(t.Context(), true)
			check("after a change of something else")
			d.serves("the change does not act", "x@more.example")
			d.settings.Recent = nil // no sender speaks any more
			d.open()
			check("after a restart")
			d.write("lists/two.txt", "older.example\n*kept*@*\n!friend@new.example\n=d5.example\n*@d4.example\n11.0.6.9\n11.0.7.0/24\n198.51.100.0/24\nlast.example\n")
			d.look(t.Context(), true)
			check("after a load that nobody judges")
			d.must(os.Remove(d.settings.Path))
			d.open()
			check("after the index was lost")
			d.write("lists/two.txt", "older.example\n*kept*@*\n!friend@new.example\n198.51.100.0/24\nlast.example\n")
			d.look(t.Context(), true)
			d.look(t.Context(), true)
			if got := d.heldNames(); got != "a:d1.example:3 a:s2@d2.example:5 a:s3@:6" || d.Status().Held["a"] != 3 {
				t.Errorf("after four have gone from the list, held: %s", got)
			}
			d.write("lists/two.txt", "older.example\n*kept*@*\n!friend@new.example\n198.51.100.0/24\nlast.example\nd5.example\n")
			d.look(t.Context(), true)
			d.serves("an entry that had gone from its list is held when it comes back, and nobody speaks against it", "s5@d5.example")
		})
	}
}

// TestExceptionThatGoesIsNotHeld: what refuses is an entry that served before, and would
// not serve any more if it were held. The load is refused whole.
func TestExceptionThatGoesIsNotHeld(t *testing.T) {
	d := newRecentDaemon(t, 200)
	d.write("a.txt", "old.example\n")
	d.settings.Lists[0].Settings.Patterns = true
	d.settings.Recent = nil
	text := "old.example\n*@d*\n"
	for i := range 200 {
		text += fmt.Sprintf("!d%d.example\n", i)
	}
	d.write("a.txt", text)
	d.open()
	d.settings.Recent = NewRecent(1000)
	for i := range 200 {
		d.settings.Recent.Add(parsed(t, fmt.Sprintf("s%d@d%d.example", i, i)), clientOf(i))
	}
	d.Reloader.settings.Recent = d.settings.Recent
	d.write("a.txt", strings.Replace(text, "!d1.example\n!d2.example\n!d3.example\n", "more.example\n", 1))
	d.look(t.Context(), true)
	if p := strings.Join(d.Status().Problems, ""); !strings.Contains(p, "would refuse 3 of the 200 senders accepted lately, more than max_recent_blocked of them") {
		t.Errorf("problems %q", p)
	}
	if d.Status().Held["a"] != 0 || !d.listed("x@deep.example") || d.listed("s1@d1.example") == false && d.listed("x@more.example") {
		t.Errorf("%d held back", d.Status().Held["a"])
	}
}

// TestTwoListsThatRefuseTheSameSenders: neither may, and neither may hold back a third.
func TestTwoListsThatRefuseTheSameSenders(t *testing.T) {
	for _, tt := range []struct{ entries, held, problems int }{{10, 20, 0}, {50, 0, 2}} {
		d := newRecentDaemon(t, 200)
		d.write("c.txt", "c0.example\n")
		d.settings.Lists = append(d.settings.Lists, List{Name: "c", Path: d.path("c.txt"), Settings: lists.Settings{Format: "plain"}, MaxRecentBlocked: 0.01})
		d.open()
		d.write("a.txt", domains(tt.entries))
		d.write("b.txt", "always.example\n"+domains(tt.entries))
		d.write("c.txt", "c1.example\n")
		d.look(t.Context(), true)
		s := d.Status()
		if !d.listed("x@c1.example") || d.listed("x@d1.example") || !d.listed("x@always.example") ||
			s.Held["a"]+s.Held["b"] != tt.held || len(s.Problems) != tt.problems {
			t.Errorf("%d entries: held %v, problems %q", tt.entries, s.Held, s.Problems)
		}
	}
}

// compiled has another process compile the lists, with or without a person's word.
func (d *daemon) compiled(accept bool, names ...string) string {
	d.t.Helper()
	draft, err := index.Build(d.t.Context(), d.settings.Path, d.sources(), index.Options{})
	d.must(err)
	if accept {
		_, err := Release(d.settings.Path, func(list string) bool { return len(names) == 0 || slices.Contains(names, list) })
		d.must(err)
		d.must(Accept(d.settings.Path, draft.Index().Generation(), names...))
	}
	d.must(draft.Publish())
	return draft.Index().Generation()
}

// TestPoisonedListIsTakenWhenAccepted has another process compile what the daemon
// has refused: without a person's word it is refused still, and with it it serves
// and the log has what it was refused for.
func TestPoisonedListIsTakenWhenAccepted(t *testing.T) {
	d := newRecentDaemon(t, 200)
	d.start()
	d.write("a.txt", domains(50))
	d.waitProblem("list a", "recent", "would refuse 50 of the 200")
	d.wantCount("max_recent_blocked of the list", 1) // the hint
	d.compiled(false)
	d.looks(2)
	d.serves("an index that nobody has accepted serves", "!s0@d0.example")
	generation := d.compiled(true)
	d.waitListed("s0@d0.example")
	d.waitWell()
	d.wantCount("lists accepted", 1)
	d.wantCount("would refuse 50 of the 200", 2)
	if got := d.Status().Generation; got != generation {
		t.Errorf("generation %s, want %s; log:\n%s", got, generation, d.log)
	}
}

// TestHeldEntriesAreTakenWhenAccepted: a person lets in what one list holds back, and not
// what another does; that list's own word does for later loads.
func TestHeldEntriesAreTakenWhenAccepted(t *testing.T) {
	d := newRecentDaemon(t, 200)
	d.start()
	d.write("a.txt", domains(10))
	d.write("b.txt", "always.example\nd20.example\nd21.example\nd22.example\n")
	held := func(a, b int) func() bool {
		return func() bool { s := d.Status(); return s.Held["a"] == a && s.Held["b"] == b && len(s.Problems) == 0 }
	}
	d.wait("entries held back", held(10, 3))
	d.wantCount("entries held back", 2)
	d.wantCount("entries=10 senders=10", 1)
	d.wantCount("blockd compile --accept a lets them in", 1)
	d.compiled(false)
	d.looks(2)
	if !held(10, 3)() || d.listed("s0@d0.example") {
		t.Fatalf("held %v without a person's word", d.Status().Held)
	}
	d.compiled(true, "a")
	d.wait("those of a accepted", held(0, 3))
	d.serves("a is not what serves, or b is", "s0@d0.example", "!s20@d20.example")
	testkit.Equal(t, "held", d.heldNames(), "b:d20.example:2 b:d21.example:3 b:d22.example:4")
	d.served("a.txt", domains(10)+"more.example\n", "x@more.example")
	if !held(0, 3)() || !d.listed("s0@d0.example") {
		t.Errorf("held %v after the next load", d.Status().Held)
	}
}

// TestAcceptedBesideRefused: what a person lets in of one list acts while the daemon alone refuses another, and while
// another file is no list. Neither of them is let in by that.
func TestAcceptedBesideRefused(t *testing.T) {
	for what, bad := range map[string]string{"compared with past mail": domains(90), "by itself": "<html><body>no list</body></html>\n"} {
		t.Run(what, func(t *testing.T) {
			d := newRecentDaemon(t, 200)
			d.start()
			d.write("a.txt", domains(10))
			d.wait("entries are held", func() bool { return d.Status().Held["a"] == 10 })
			d.write("b.txt", bad)
			d.waitProblem("list b", "", "b.txt")
			refused := map[string]error{}
			for _, r := range d.Status().Refusals {
				if r.Command != "" {
					refused[r.List] = errors.New(r.Text)
				}
			}
			draft, _, left, err := AcceptedDraft(t.Context(), Settings{Path: d.settings.Path, Lists: d.settings.Lists}, nil, nil, refused, func(list string) bool { return list == "a" })
			d.must(err)
			d.must(Accept(d.settings.Path, draft.Index().Generation(), "a"))
			testkit.Equal(t, "lists that the process that compiles refuses", len(left), 1)
			d.must(draft.Publish())
			d.waitListed("s0@d0.example")
			d.serves("the other list is let in", "x@always.example", "!s80@d80.example")
			d.waitProblem("list b", "", "b.txt")
			testkit.Equal(t, "held", d.Status().Held["a"], 0)
		})
	}
}

// TestTornHeldFileIsTold: the daemon serves, says so, and holds back anew.
func TestTornHeldFileIsTold(t *testing.T) {
	d := newRecentDaemon(t, 200)
	d.write("a.txt", domains(10))
	d.look(t.Context(), true)
	path := d.settings.Path + heldSuffix
	text, err := os.ReadFile(path)
	d.must(err)
	for _, torn := range [][]byte{text[:len(text)/2], nil, append([]byte("x"), text...)} {
		d.must(os.WriteFile(path, torn, 0o600))
		if _, err := OpenIndex(d.settings.Path); err == nil {
			t.Errorf("%d octets are taken", len(torn))
		}
		d.open()
		d.wantCount("entries that were held back are not known", 1)
	}
}

// TestHundredThousandHeldEntries: as many are written, read and left out of the answers,
// and those that have gone are found to be gone.
func TestHundredThousandHeldEntries(t *testing.T) {
	race.Skip(t)
	const n = 100_000
	text, held := "", heldEntries{}
	b := make([]byte, 0, 16*n)
	for i := range n {
		name := fmt.Sprintf("d%d.example", i)
		b = append(append(b, name...), '\n')
		key := index.HeldEntry{List: "a", Kind: lists.Domain, Scope: lists.Tree, Name: name}
		held[key] = HeldEntry{HeldEntry: key, Since: time.Unix(1, 0).UTC(), Senders: i, Example: "a@" + name}
	}
	text = string(b) + "bulk.example\n"
	d := newDaemon(t, map[string]string{"a.txt": text}).open()
	began := time.Now()
	d.must(writeHeld(d.settings.Path, held))
	back, err := readHeld(d.settings.Path)
	d.must(err)
	if !maps.Equal(held, back) {
		t.Fatalf("%d entries, want %d", len(back), len(held))
	}
	d.open()
	t.Logf("%v", time.Since(began))
	if got := d.Status().Held["a"]; got != n || d.listed("a@d99999.example") || !d.listed("a@bulk.example") {
		t.Errorf("%d held back", got)
	}
	d.write("a.txt", "d7.example\nbulk.example\n"+text[len(text)/2:])
	d.look(t.Context(), true)
	if got, p := d.Status().Held["a"], d.Status().Problems; got >= n || got < n/3 || d.listed("a@d7.example") || len(p) > 0 {
		t.Errorf("%d held back after half has gone, %q", got, p)
	}
}

// FuzzHeldFile: whatever stands in the file, it is refused or read back as it is written.
func FuzzHeldFile(f *testing.F) {
	line := `{"list":"a","kind":"domain","scope":"tree","entry":"bulk.example","since":"2026-11-22T00:00:00Z","senders":3,"example":"x@bulk.example"}` + "\n"
	f.Add(line)
	f.Add(line + line + `{"list":"a","kind":"regexp","scope":"exact","entry":"/^x/","since":"2026-11-22T00:00:00Z","senders":-1,"example":""}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseHeld(fmt.Appendf([]byte(text), "{\"sum\":%q}\n", checksum([]byte(text))))
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "x.bdx")
		testkit.Must(t, writeHeld(path, all))
		if back, err := readHeld(path); err != nil || len(back) != len(all) {
			t.Errorf("%d entries, then %d, %v", len(all), len(back), err)
		}
	})
}

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

// excepted are exceptions of d0.example to the n-th.
func excepted(n int) (text string) {
	for i := range n {
		text += fmt.Sprintf("!d%d.example\n", i)
	}
	return text
}

// again makes the first n refusals those of one sender.
func again(d *daemon, n int) {
	past := testkit.Value(d.settings.Refusals(d.t.Context()))(d.t)
	for i := range n {
		past["a"].Sample[i].Sender = "s0@d0.example"
	}
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
			"list b: %s: frees: would lift 100 of the 100 refusals of the last 7 days, more than max_freed = 0.2 of them: s0@d0.example, s1@d1.example, s2@d2.example; by example (line 2), which has come"},
		{"a rule of adblock", 100, format("adblock"), "b.txt", "||guest.example^\n@@||example^\n", "list b: %s: frees: would lift 100 of"},
		{"a key of Postfix", 100, format("postfix"), "b.txt", "guest.example REJECT\nexample OK\n", "list b: %s: frees: would lift 100 of"},
		{"a record of a policy zone", 100, format("rpz"), "b.txt", "guest.example CNAME .\n*.example CNAME rpz-passthru.\n", "list b: %s: frees: would lift 100 of"},
		{"a network of clients", 100, all, "b.txt", "guest.example\n!192.0.0.0/9\n", "list b: %s: frees: would lift 50 of the 100"},
		{"a list that allows", 100, func(d *daemon) { d.settings.Lists[1].Settings.Action = lists.Allow }, "b.txt", "guest.example\nexample\n", "list b: %s: frees: would lift 100 of"},
		{"exceptions that stay home", 100, nil, "b.txt", "guest.example\n!example\n!192.0.0.0/9\n", ""},
		{"exceptions without effect", 100, func(d *daemon) { d.settings.Lists[1].Exceptions = index.NoExceptions }, "b.txt", "guest.example\n!example\n", ""},
		{"a list in shadow mode", 100, func(d *daemon) { all(d); d.settings.Lists[1].Mode = index.Shadow }, "b.txt", "guest.example\n!example\n", ""},
		{"of its own list", 100, nil, "a.txt", domains(100) + "!example\n", "list a: %s: frees: would lift 100 of the 100 refusals of this list of the last 7 days"},
		{"blocks that go are their owner's will", 100, nil, "a.txt", domains(1), ""},
		{"an exception in the place of a block that goes", 100, nil, "a.txt", domains(50) + "!d70.example\n!d71.example\n", ""},
		{"more than may be", 100, nil, "a.txt", domains(100) + excepted(21), "list a: %s: frees: would lift 21 of the 100 refusals of this list"},
		{"no more than may be", 100, nil, "a.txt", domains(100) + excepted(20), ""},
		{"one partner who tries again and again", 100, func(d *daemon) { again(d, 95) }, "a.txt", domains(100) + "!d0.example\n", ""},
		{"many refusals of few", 100, func(d *daemon) { again(d, 82) }, "a.txt", domains(100) + "!example\n", ""},
		{"many refusals of just enough", 100, func(d *daemon) { again(d, 81) }, "a.txt", domains(100) + "!example\n", "list a: %s: frees: would lift 20 of the 20 refusals of this list"},
		{"blocks that go, and another list has them", 100, func(d *daemon) { d.write("b.txt", domains(100)) }, "a.txt", domains(1), ""},
		{"blocks that come", 100, nil, "b.txt", "guest.example\nd1.example\n", ""},
		{"too few to say anything", 19, nil, "a.txt", domains(100) + "!example\n", ""},
		{"just enough", 20, nil, "a.txt", domains(100) + excepted(19), "list a: %s: frees: would lift 19 of the 20"},
		{"a list that may", 100, func(d *daemon) { d.settings.Lists[0].MaxFreed = 1 }, "a.txt", domains(100) + "!example\n", ""},
		{"a list that may lift nothing", 100, func(d *daemon) { d.settings.Lists[0].MaxFreed = 0 }, "a.txt", domains(100) + excepted(1), "list a: %s: frees: would lift 1 of the 100"},
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
				d.serves("the change of another list does not act", "x@c1.test")
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
	d.write("a.txt", domains(100)+excepted(90))
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
	if excepts(t, d.Live(), "s50@d50.example") {
		t.Error("an index that nobody has accepted serves")
	}
	compile(true)
	d.wait("the accepted index serves", func() bool { return excepts(t, d.Live(), "s50@d50.example") })
	d.waitWell()
}

// excepts reports whether an exception covers the sender.
func excepts(t *testing.T, ix *index.Index, sender string) bool {
	t.Helper()
	return slices.ContainsFunc(matches(t, ix, sender), func(m index.Match) bool { return m.Action.Allows() })
}
