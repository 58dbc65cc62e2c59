package reload

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/index"
	"blockd/index/kept"
	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/records/history"
)

// lists reports which of these domains the serving generation has.
func (d *daemon) has(domains ...string) (some []string) {
	d.t.Helper()
	for _, domain := range domains {
		a, err := addr.Parse("x@" + domain)
		d.must(err)
		m, err := d.Live().Lookup(nil, a, time.Now())
		d.must(err)
		if len(m) > 0 {
			some = append(some, domain)
		}
	}
	return some
}

func (d *daemon) want(what string, domains ...string) {
	d.t.Helper()
	if got := d.has("old.test", "new.test", "newer.test"); !slices.Equal(got, domains) {
		d.t.Fatalf("%s: %v serve, want %v; %v", what, got, domains, d.Status().Problems)
	}
}

func (d *daemon) lookOnce() {
	d.t.Helper()
	d.look(d.t.Context(), true)
}

func keeping(d *daemon) *kept.Store {
	d.settings.Kept = &kept.Store{Folder: d.settings.Path + kept.Suffix, Keep: 10, Bytes: 1 << 30}
	return d.settings.Kept
}

func noRecord(kept.Point) error { return nil }

func TestRollbackOutlastsARestartUntilAdopted(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.test # why\n"})
	store := keeping(d)
	d.open()
	d.write("a.txt", "new.test\n")
	d.lookOnce()
	d.want("the file", "new.test")
	testkit.Value(store.Tidy(t.Context()))(t)
	testkit.Value(store.Rollback(t.Context(), "a", "", kept.Who{By: "anna"}, time.Now(), noRecord))(t)
	d.lookOnce()
	d.want("rolled back", "old.test")
	if _, err := store.Rollback(t.Context(), "a", "", kept.Who{}, time.Now(), noRecord); err == nil || !strings.Contains(err.Error(), "taken back already") {
		t.Errorf("once more: %v", err)
	}
	d.write("a.txt", "newer.test\n")
	d.lookOnce()
	d.want("the file changes", "old.test")
	d.open()
	d.want("restart", "old.test")
	os.Remove(d.settings.Path)
	d.open()
	d.want("restart without an index", "old.test")
	if s := d.Status(); len(s.Remarks) != 1 || !strings.Contains(s.Remarks[0], "blockd adopt a") {
		t.Errorf("remarks %q", s.Remarks)
	}
	if back, waits := d.metric(`blockd_list_rolled_back{list="a"}`), d.metric(`blockd_list_proposal_waiting_seconds{list="a"}`); back != "1" || waits == "" {
		t.Errorf("metrics: rolled back %q, waits %q", back, waits)
	}
	if _, err := store.Adopt(t.Context(), "a", "0123456789abcdef", false, kept.Who{}, time.Now(), func(string) error { return nil }); err == nil {
		t.Error("a content that nobody looked at was adopted")
	}
	testkit.Value(store.Adopt(t.Context(), "a", "", false, kept.Who{}, time.Now(), func(string) error { return nil }))(t)
	d.lookOnce()
	d.want("adopted", "newer.test")
	if back := d.metric(`blockd_list_rolled_back{list="a"}`); back != "" {
		t.Errorf("metrics: rolled back %q after the adoption", back)
	}
}

func TestReviewLetsNothingInByItself(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.test\n", "b.txt": "other.test\n"})
	store := keeping(d)
	d.settings.Lists[0].Review = true
	d.open()
	d.want("a new list")
	if s := d.Status(); !s.Ready {
		t.Error("not ready because a list waits")
	}
	adopt := func() {
		t.Helper()
		testkit.Value(store.Adopt(t.Context(), "a", "", true, kept.Who{}, time.Now(), func(string) error { return nil }))(t)
		d.lookOnce()
	}
	adopt()
	d.want("adopted", "old.test")
	d.write("a.txt", "newer.test\n")
	d.lookOnce()
	first := d.Status().Pins[0].Proposal.Waiting()
	d.write("a.txt", "new.test\n")
	d.lookOnce()
	d.want("a load waits", "old.test")
	if p := d.Status().Pins[0].Proposal; !p.Waiting().Equal(first) || p.Content.Entries() != 1 {
		t.Errorf("a newer load waits since %s, the first since %s", p.Waiting(), first)
	}
	d.open()
	d.want("restart", "old.test")
	adopt()
	d.want("adopted again", "new.test")
	d.write("a.txt", "# a comment\nnew.test\n")
	d.lookOnce()
	if pins := d.Status().Pins; len(pins) != 1 || pins[0].Proposal != nil {
		t.Errorf("a comment waits: %+v", pins)
	}
}

func TestDamagedPinsKeepWhatServes(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.test\n"})
	store := keeping(d)
	d.open()
	d.write("a.txt", "new.test\n")
	d.lookOnce()
	testkit.Value(store.Rollback(t.Context(), "a", "", kept.Who{}, time.Now(), noRecord))(t)
	d.lookOnce()
	testkit.Must(t, os.WriteFile(filepath.Join(store.Folder, "pins"), []byte("torn"), 0o600))
	d.lookOnce()
	d.want("with pins that are torn while it runs", "old.test")
	if s := d.Status(); len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "which lists are held cannot be read") {
		t.Errorf("problems %q", s.Problems)
	}
	d.open()
	d.want("with torn pins", "old.test")
	d.lookOnce()
	d.want("and a look", "old.test")
}

// newReviewDaemon serves list a, which is reviewed, and b, and has accepted n senders as newRecentDaemon has.
func newReviewDaemon(t *testing.T, n int) (*daemon, *kept.Store) {
	d := newRecentDaemon(t, n)
	store := keeping(d)
	d.settings.Lists[0].Review = true
	d.open()
	d.lookOnce()
	return d, store
}

func (d *daemon) proposal() *kept.Proposal {
	d.t.Helper()
	pins := d.Status().Pins
	if len(pins) != 1 || pins[0].Proposal == nil || pins[0].Proposal.Weighed == nil {
		d.t.Fatalf("no proposal that was weighed: %+v", pins)
	}
	return pins[0].Proposal
}

// A proposal says what an adoption does, and the adoption does just that.
func TestProposalIsWeighedAsTheGateWould(t *testing.T) {
	for _, tt := range []struct {
		name  string
		from  uint64 // keys from which on lists are updated in memory
		names int    // of those that wrote lately
		held  int
		whole string // why the load would be refused whole
	}{
		{"few", 0, 5, 5, ""},
		{"few, in memory", 1, 5, 5, ""},
		{"more than a tenth", 0, 60, 60, "would refuse 60 of the 100 senders accepted lately, more than a tenth of them; by d0.example (line 2)"},
		{"nobody", 0, 0, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, store := newReviewDaemon(t, 100)
			d.settings.updateFrom = tt.from
			d.open()
			d.write("a.txt", domains(tt.names)+"other.example\n")
			d.lookOnce()
			p := d.proposal()
			if p.Weighed.Failed != "" || p.Weighed.Held != tt.held || len(p.Weighed.First) != min(tt.held, mostWeighedNames) {
				t.Errorf("weighed %+v, want %d held back", p.Weighed, tt.held)
			}
			if against := strings.Join(p.Against(), "\n"); !strings.Contains(against, tt.whole) || tt.held > 0 != strings.Contains(against, "held back when it is adopted") || strings.Contains(against, "@") {
				t.Errorf("against it: %q, want %q", against, tt.whole)
			}
			testkit.Value(store.Adopt(t.Context(), "a", p.Content.ID(), true, kept.Who{}, time.Now(), func(string) error { return nil }))(t)
			d.lookOnce()
			if n, first := d.HeldBack("a"); n != tt.held || !slices.Equal(first, p.Weighed.First) && tt.held > 0 {
				t.Errorf("adopted: %d held back, %v, want %v", n, first, p.Weighed.First)
			}
			if m, err := d.Live().Lookup(nil, parsed(t, "x@other.example"), time.Now()); err != nil || len(m) != 1 {
				t.Errorf("what nobody objects to: %v, %v", m, err)
			}
			if s := d.Status(); len(s.Problems) > 0 || s.Pins[0].Proposal != nil {
				t.Errorf("problems %q, pins %+v", s.Problems, s.Pins)
			}
		})
	}
}

// The exceptions of other lists count: what they let in is not held back.
func TestProposalIsTriedWithAllLists(t *testing.T) {
	d, _ := newReviewDaemon(t, 100)
	d.settings.Lists[1].Exceptions = index.AllExceptions
	d.settings.Blocks = blocks
	d.write("b.txt", "always.example\n!d0.example\n!d1.example\n")
	d.open()
	d.write("a.txt", domains(4))
	d.lookOnce()
	if w := d.proposal().Weighed; w.Held != 2 {
		t.Errorf("%+v, want the 2 that no exception reaches", w)
	}
}

// remembers has the history hold mail, which is judged by the first entry that it meets.
func (d *daemon) remembers(mail []history.Refusal) {
	d.settings.PastMail = func(_ context.Context, since time.Time, each func(time.Time, *history.Refusal) bool) error {
		for i := range mail {
			if !each(time.Now(), &mail[i]) {
				return nil
			}
		}
		return nil
	}
	d.settings.Judge = func(ix *index.Index, past *history.Refusal) (m index.Match, blocked, ok bool) {
		all := matches(d.t, ix, past.Sender)
		if len(all) == 0 {
			return m, false, false
		}
		return all[0], !all[0].Action.Allows(), true
	}
}

// Past mail is judged by what serves and by what would, and entries that are held back refuse nobody.
func TestProposalIsTriedOnPastMail(t *testing.T) {
	d, _ := newReviewDaemon(t, 100)
	var mail []history.Refusal
	for _, sender := range []string{"s0@d0.example", "a@old.example", "b@old.example", "new@new.example", "new@new.example", "none@clear.example"} {
		mail = append(mail, history.Refusal{Sender: sender})
	}
	d.remembers(mail)
	d.open()
	d.lookOnce()
	d.write("a.txt", "d0.example\nd1.example\nnew.example\n")
	d.lookOnce()
	p := d.proposal()
	m := p.Weighed.Mail
	if m == nil || m.Decisions != 6 || m.Refused != 2 || m.Passed != 2 || p.Weighed.Held != 2 ||
		!slices.Equal(m.Refuses, []kept.MailByEntry{{Entry: "new.example", Line: 3, Decisions: 2}}) || !slices.Equal(m.Passes, []kept.MailByEntry{{Entry: "old.example", Line: 1, Decisions: 2}}) {
		t.Errorf("%+v of %+v", m, p.Weighed)
	}
	if against := strings.Join(p.Against(), "\n"); !strings.Contains(against, "2 would be refused that were not, most by new.example (line 3); 2 would not be refused any more, most by old.example (line 1)") {
		t.Errorf("against it: %q", against)
	}
}

// What else has changed in the same look comes first, and is not counted as what the adoption would do.
func TestProposalIsTriedAlone(t *testing.T) {
	for _, from := range []uint64{0, 1} { // built, or updated in memory
		d, _ := newReviewDaemon(t, 100)
		d.settings.updateFrom = from
		mail := []history.Refusal{{Sender: "x@new.example"}, {Sender: "x@elsewhere.example"}, {Sender: "x@always.example"}}
		d.remembers(mail)
		d.write("b.txt", "always.example\n")
		d.open()
		d.lookOnce()
		d.write("a.txt", "new.example\n")
		d.write("b.txt", "always.example\nelsewhere.example\n")
		next, _ := d.look(t.Context(), false)
		if w := d.Status().Pins[0].Proposal.Weighed; w != nil || next != probing {
			t.Errorf("weighed before what else has changed serves: %+v, and the next state is %v", w, next)
		}
		for range 3 {
			d.lookOnce()
		}
		if m := d.proposal().Weighed.Mail; m == nil || m.Refused != 1 || m.Passed != 0 {
			t.Errorf("from %d: %+v, want the one that the proposal refuses", from, m)
		}
	}
}

// A list that more correspondents speak against than can be held back is not let in by an adoption either.
func TestAdoptionAgainstVeryManyCorrespondents(t *testing.T) {
	var all []string
	for i := range mostHeldForCorrespondents + 1 {
		all = append(all, fmt.Sprintf("u%d@d%d.example", i, i))
	}
	d := newDaemon(t, map[string]string{"a.txt": "old.test\n"})
	store := keeping(d)
	d.settings.Blocks, d.settings.Correspondents = blocks, knowing(t, all...)
	d.open()
	d.settings.Lists[0].Review = true
	d.open()
	d.write("a.txt", "old.test\nnew.test\n"+strings.Join(all, "\n")+"\n")
	d.lookOnce()
	testkit.Has(t, strings.Join(d.proposal().Against(), "\n"), "an adoption would be refused: ", "would refuse correspondents")
	testkit.Value(store.Adopt(t.Context(), "a", "", true, kept.Who{}, time.Now(), func(string) error { return nil }))(t)
	d.lookOnce()
	d.want("adopted", "old.test")
	if problems := d.Status().Refusals; len(problems) != 1 || problems[0].Class != "correspondents" {
		t.Errorf("problems %v", problems)
	}
	testkit.Value(store.Rollback(t.Context(), "a", "0d", kept.Who{}, time.Now().Add(time.Second), noRecord))(t)
	d.lookOnce()
	d.want("taken back", "old.test")
	testkit.EqualSlices(t, "problems: after the list was taken back", d.Status().Problems, nil)
}

// owned reports whether an owner blocks the domain for himself.
func (d *daemon) owned(owner, domain string) bool {
	d.t.Helper()
	q := index.OwnedQuestion{Sender: testkit.Value(addr.Parse("x@" + domain))(d.t)}
	q.Owners[0] = testkit.Value(addr.ParseOwner(owner))(d.t)
	found := testkit.Value(d.Live().LookupOwned(nil, &q, time.Now()))(d.t)
	return len(found) > 0
}

// TestOwnersFolder: what one owner's file is keeps no other owner's changes away, and such a list is kept and taken
// back as any.
func TestOwnersFolder(t *testing.T) {
	for _, tt := range []struct {
		rule string
		bad  func(d *daemon)
		told string // "": it is no fault
	}{
		{"what an editor leaves", func(d *daemon) { d.write("users/anna@here.example~", "old.test\n") }, "owner: the name of the file is no owner"},
		{"no name of an owner", func(d *daemon) { d.write("users/a b@", "old.test\n") }, "owner: the name of the file is no owner"},
		{"an error page", func(d *daemon) { d.write("users/carl@here.example", "<!DOCTYPE html><html><body>no</body></html>\n") }, "carl@here.example: html"},
		{"an error page in the place of a list", func(d *daemon) { d.write("users/anna@here.example", "<!DOCTYPE html><html><body>no</body></html>\n") }, "anna@here.example: html"},
		{"a dangling link", func(d *daemon) { d.symlink("nowhere", "users/carl@here.example") }, "carl@here.example: missing"},
		{"a link to itself", func(d *daemon) { d.symlink("carl@here.example", "users/carl@here.example") }, "carl@here.example: symlink"},
		{"a folder", func(d *daemon) { d.mkdir("users/carl@here.example") }, "carl@here.example: directory"},
		{"nonsense", func(d *daemon) { d.write("users/carl@here.example", "one two\n") }, "carl@here.example: only-errors"},
		{"torn", func(d *daemon) { d.write("users/carl@here.example", packed(d.t, numbered(0, 50))[:40]) }, "carl@here.example: "},
		{"one that has gone", func(d *daemon) { d.remove("users/anna@here.example") }, ""},
		{"a long one that is empty", func(d *daemon) { d.write("users/dora@here.example", "") }, "dora@here.example: empty: no entry is left of 300"},
	} {
		for _, from := range []uint64{0, 1} { // keys from which on a change is an update in memory
			t.Run(fmt.Sprint(tt.rule, "/updates from ", from), func(t *testing.T) {
				d := newDaemon(t, map[string]string{"a.txt": "", "b.txt": "b0.test\n"})
				store := keeping(d)
				d.write("users/anna@here.example", "old.test\n")
				d.write("users/bert@here.example", "old.test\n")
				d.write("users/dora@here.example", numbered(0, 300))
				l := &d.settings.Lists[0]
				l.Path, l.Named, l.MaxShrink, l.Settings.PerRecipient, d.settings.updateFrom = d.path("users/*"), true, 0.5, true, from
				d.open()
				for round, domain := range []string{"new.test", "newer.test"} { // the fault comes with a change, and stays
					if round == 0 {
						tt.bad(d)
					}
					d.write("users/bert@here.example", domain+"\n")
					d.write("b.txt", domain+"\n")
					d.lookOnce()
					if !d.owned("bert@here.example", domain) || !d.listed("x@"+domain) || !d.owned("dora@here.example", "n7.example") {
						t.Fatalf("%s does not act: %v\n%s", domain, d.Status().Problems, d.log)
					}
				}
				if anna := d.owned("anna@here.example", "old.test"); anna == strings.Contains(tt.rule, "gone") {
					t.Errorf("Anna's entry acts: %v", anna)
				}
				problems := strings.Join(d.Status().Problems, "\n")
				if testkit.Has(t, problems, tt.told); (problems == "") != (tt.told == "") || strings.Contains(problems, "\n") {
					t.Errorf("problems %q, want %q", problems, tt.told)
				}
				testkit.Equal(t, "warnings\n"+d.log.String(), d.count("level=WARN"), 0)

				testkit.Value(store.Rollback(t.Context(), "a", "", kept.Who{By: "anna"}, time.Now(), noRecord))(t)
				d.lookOnce()
				if !d.owned("bert@here.example", "new.test") || d.owned("bert@here.example", "newer.test") {
					t.Errorf("not taken back: %v\n%s", d.Status().Problems, d.log)
				}
			})
		}
	}
}

// TestAdoptedServes: that a list follows its file again is said when it does so, and not where its file is missing,
// bad or refused.
func TestAdoptedServes(t *testing.T) {
	for _, tt := range []struct {
		rule, told string
		change     func(d *daemon)
	}{
		{"in order", "", func(d *daemon) { d.write("a.txt", "newer.test\n") }},
		{"as it was", "", func(*daemon) {}},
		{"an error page", "it does not serve: list a: ", func(d *daemon) { d.write("a.txt", "<!DOCTYPE html><html></html>\n") }},
		{"missing", "it does not serve: list a: ", func(d *daemon) { d.remove("a.txt") }},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			d := newDaemon(t, map[string]string{"a.txt": "old.test\n", "b.txt": "b.test\n"})
			store, begun, going := keeping(d), make(chan struct{}, 9), make(chan struct{})
			d.open()
			d.write("a.txt", "new.test\n")
			d.lookOnce()
			testkit.Value(store.Rollback(t.Context(), "a", "", kept.Who{By: "anna"}, time.Now(), noRecord))(t)
			tt.change(d)
			d.lookOnce()
			d.want("rolled back", "old.test")
			gone := Adoptable(t.Context(), d.settings.Lists[0])
			testkit.Equal(t, "nothing to adopt", gone != nil, tt.rule == "missing")
			d.Reloader.settings.Build = func(ctx context.Context, path string, sources []index.Source, o index.Options, _ bool) (*index.Draft, error) {
				begun <- struct{}{}
				<-going
				return index.Build(ctx, path, sources, o)
			}
			testkit.Value(store.Adopt(t.Context(), "a", "", false, kept.Who{}, time.Now(), func(string) error { return nil }))(t)
			d.start()
			said := make(chan error, 1)
			go func() { said <- d.Pinned(t.Context(), "a") }()
			if tt.rule != "missing" { // then nothing is built
				<-begun
				d.want("while it is built", "old.test")
				select {
				case err := <-said:
					t.Errorf("said before it serves: %v", err)
				default:
				}
			}
			close(going)
			err := <-said
			switch {
			case tt.told == "" && err != nil, tt.told != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.told)):
				t.Errorf("said %v, want %q", err, tt.told)
			case tt.told == "":
				d.want("adopted", map[string]string{"in order": "newer.test", "as it was": "new.test"}[tt.rule])
			default:
				d.want("what was there", "old.test")
			}
		})
	}
}

// TestOwnersFolderWaits: what waits of a folder that was rolled back is there for all owners but those whose file is
// bad.
func TestOwnersFolderWaits(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": ""})
	store := keeping(d)
	for _, owner := range []string{"anna", "bert"} {
		d.write("users/"+owner+"@here.example", "old.test\n")
	}
	l := &d.settings.Lists[0]
	l.Path, l.Named, l.Settings.PerRecipient = d.path("users/*"), true, true
	d.open()
	d.write("users/bert@here.example", "new.test\n")
	d.lookOnce()
	testkit.Value(store.Rollback(t.Context(), "a", "", kept.Who{By: "anna"}, time.Now(), noRecord))(t)
	d.write("users/anna@here.example", "<!DOCTYPE html><html></html>\n")
	d.symlink("nowhere", "users/carl@here.example")
	d.write("users/bert@here.example", "newer.test\n")
	d.lookOnce()
	pins := d.Status().Pins
	if len(pins) != 1 || pins[0].Proposal == nil || len(pins[0].Proposal.Content) != 2 || *pins[0].Proposal.Added != 1 || *pins[0].Proposal.Removed != 1 {
		t.Fatalf("what waits: %+v\n%s", pins, d.log)
	}
	testkit.Has(t, strings.Join(pins[0].Proposal.Findings, "\n"), "anna@here.example stays as it was", "carl@here.example stays as it was")
	testkit.Value(store.Adopt(t.Context(), "a", "", false, kept.Who{}, time.Now(), func(string) error { return nil }))(t)
	d.lookOnce()
	if !d.owned("bert@here.example", "newer.test") || !d.owned("anna@here.example", "old.test") {
		t.Errorf("adopted: %v\n%s", d.Status().Problems, d.log)
	}
}
