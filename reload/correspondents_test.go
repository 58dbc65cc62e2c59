package reload

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/records/correspondents"
)

// knowing returns a set of correspondents.
func knowing(t *testing.T, recipients ...string) *correspondents.Set {
	t.Helper()
	set, _, err := correspondents.Open(correspondents.Settings{Path: t.TempDir() + "/set", Keep: 365 * 24 * time.Hour})
	testkit.Must(t, err)
	t.Cleanup(set.Close)
	sender, _ := addr.Parse("anna@here.example")
	for _, text := range recipients {
		recipient, err := addr.Parse(text)
		if err != nil || !set.Learn(sender, recipient, time.Now()) {
			t.Fatalf("%s is not learned", text)
		}
	}
	return set
}

// TestCorrespondentsSpeakAgainstALoad: entries that would refuse one of them are held back, by a build and by an update in
// memory; the others act.
func TestCorrespondentsSpeakAgainstALoad(t *testing.T) {
	for _, from := range []uint64{0, 1} { // keys from which on a change is an update in memory
		t.Run(fmt.Sprint("updates from ", from), func(t *testing.T) {
			d := newDaemon(t, map[string]string{"a.txt": "old.example\nserved@there.example\n"})
			d.settings.Blocks, d.settings.updateFrom = blocks, from
			d.settings.Correspondents = knowing(t, "bob@there.example", "served@there.example", "eve@mail.far.example", "dora@free.example", "wrote@lately.example")
			d.settings.Lists[0].Settings.Patterns = true
			d.settings.Recent = NewRecent(100)
			wrote, _ := addr.Parse("wrote@lately.example")
			d.settings.Recent.Add(wrote, netip.MustParseAddr("198.51.100.7"))
			d.open()
			if !d.listed("served@there.example") && d.Status().Held["a"] != 1 {
				t.Fatal("the first load is not judged")
			}
			d.write("a.txt", "old.example\nserved@there.example\nnew.example\nbob@there.example\ncarl@there.example\nfar.example\neve@\n=far.example\n"+
				"!dora@free.example\ndora@free.example\n198.51.100.0/24\n*wrot*@*\nstranger@lately.example\n")
			d.look(t.Context(), true)
			if from > 0 && d.Status().Held["a"] != 6+1 {
				t.Errorf("an update holds %d", d.Status().Held["a"])
			}
			d.look(t.Context(), true) // builds what memory has, if it was an update
			names := d.heldNames()
			for _, want := range []string{"a:bob@there.example:", "a:far.example:", "a:eve@:", "a:198.51.100.0/24:", "a:*wrot*@*:"} {
				if !strings.Contains(names, want) {
					t.Errorf("held %s, and not %s", names, want)
				}
			}
			if d.listed("bob@there.example") || d.listed("eve@mail.far.example") || !d.listed("carl@there.example") || !d.listed("a@new.example") || !d.listed("stranger@lately.example") {
				t.Errorf("held %s: wrong answers", names)
			}
			if remarks := strings.Join(d.Status().Remarks, "\n"); !strings.Contains(remarks, "correspondents, to whom users of this server write") || len(d.Status().Problems) > 0 {
				t.Errorf("remarks %q, problems %q", remarks, d.Status().Problems)
			}
			if log := d.log.String(); !strings.Contains(log, "class=correspondents") {
				t.Errorf("the log does not say why:\n%s", log)
			}
		})
	}
}

// TestManyEntriesAgainstCorrespondents: a list that is made of the people one writes to is refused, and a person's own list
// is not judged.
func TestManyEntriesAgainstCorrespondents(t *testing.T) {
	var all []string
	for i := range mostHeldForCorrespondents + 1 {
		all = append(all, fmt.Sprintf("u%d@d%d.example", i, i))
	}
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "old.example\n"})
	d.settings.Blocks, d.settings.Correspondents = blocks, knowing(t, all...)
	d.settings.Lists[1].Own = true
	d.open()
	d.write("a.txt", "old.example\nnew.example\n"+strings.Join(all, "\n")+"\n")
	d.look(t.Context(), true)
	problems := d.Status().Refusals
	if len(problems) != 1 || problems[0].Class != "correspondents" || d.listed("x@new.example") {
		t.Errorf("problems %v", problems)
	}
	d.write("a.txt", "old.example\n")
	d.write("b.txt", "old.example\n"+all[0]+"\n")
	d.look(t.Context(), true)
	if !d.listed(all[0]) || d.Status().Held["b"] != 0 {
		t.Error("a person's own entry does not act")
	}
}
