package reload

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/index/kept"
	"blockd/internal/testkit"
	"blockd/mail/addr"
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
