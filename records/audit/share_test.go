package audit

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// total is how many octets a journal has.
func total(t *testing.T, l *Log) (octets int64) {
	t.Helper()
	for _, n := range testkit.Value(filesOf(l.settings.Folder))(t) {
		octets += testkit.Value(os.Stat(l.file(n)))(t).Size()
	}
	return octets
}

// TestEachHasAShare: who changes things without end pushes out what he has done himself, and nobody else's lines. The
// chain stays whole, and says whose lines have gone.
func TestEachHasAShare(t *testing.T) {
	for name, flood := range map[string][]string{"one": {"tenant"}, "two": {"tenant", "other"}, "calls himself otherwise each time": {""}, "with other names in it": {`"who":"admin`, `","who":"admin"`}} {
		t.Run(name, func(t *testing.T) {
			l := journal(t)
			l.settings.Max = 64 << 10
			add(t, l, Line{By: "admin", Action: TokenAdd, Subject: "first"})
			want := 2
			for i := range 200 {
				var lines []Line
				for n := range 10 {
					by := flood[(i+n)%len(flood)]
					if by == "" {
						by = Author("tenant", fmt.Sprintf("admin %d-%d", i, n))
					}
					lines = append(lines, Line{By: by, Action: EntryAdd, Subject: fmt.Sprint(i), Why: strings.Repeat("w", 200)})
				}
				add(t, l, lines...)
				if i%20 == 19 {
					add(t, l, Line{By: "admin", Action: TokenAdd, Subject: fmt.Sprint("now and then ", i)})
					want++
				}
			}
			add(t, l, Line{By: Author("admin", "jo"), Action: TokenAdd, Subject: "last"})
			testkit.Equal(t, "lines of the other", len(search(t, l, Query{Action: TokenAdd}).Lines), want)
			testkit.AtMost(t, "octets", total(t, l), l.settings.Max)
			testkit.AtLeast(t, "octets", total(t, l), l.settings.Max/2)
			c := verify(t, l, "")
			if c.Gone["admin"] != 0 || c.Gone[WhoOf(flood[0])] == 0 && flood[0] != "" {
				t.Errorf("gone: %v", c.Gone)
			}
			testkit.Equal(t, "damaged", search(t, l, Query{}).Damaged, 0)
			again := New(l.settings) // another process, which knows nothing yet
			add(t, again, Line{By: "admin", Action: TokenAdd, Subject: "by another process"})
			verify(t, l, c.Hash)
		})
	}
}

// TestShares is right for any order of authors and lengths: nobody who has less than the others loses a line.
func TestShares(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 35))
	l := journal(t)
	l.settings.Max = 64 << 10
	written := map[string]int{}
	for range 2000 {
		by := fmt.Sprint("actor ", rnd.IntN(1+rnd.IntN(40)))
		written[by]++
		add(t, l, Line{By: by, Action: EntryAdd, Subject: strings.Repeat("s", rnd.IntN(300))})
	}
	c := verify(t, l, "")
	kept := map[string]int{}
	for _, line := range all(t, l) {
		kept[line.Who]++
	}
	testkit.AtMost(t, "octets", total(t, l), l.settings.Max)
	level := slices.Max(slices.Collect(maps.Values(kept)))
	for who, n := range written {
		if kept[who] < n && kept[who] < level/8 {
			t.Errorf("%s has %d of %d lines, and another one %d", who, kept[who], n, level)
		}
	}
	if len(c.Gone) == 0 {
		t.Error("nothing has gone")
	}
}

// all are all lines, the newest first.
func all(t *testing.T, l *Log) (lines []Line) {
	t.Helper()
	q := Query{}
	for {
		found := search(t, l, q)
		if lines = append(lines, found.Lines...); found.Next == "" {
			return lines
		}
		q.Cursor = found.Next
	}
}

// TestGapsAreNoHidingPlace: a gap of other lines than somebody's oldest, or that says nothing of whom, is none of
// this program's.
func TestGapsAreNoHidingPlace(t *testing.T) {
	l := journal(t)
	add(t, l, Line{By: "anna", Action: EntryAdd, Subject: "one"}, Line{By: "anna", Action: EntryAdd, Subject: "two"}, Line{By: "bert", Action: EntryAdd, Subject: "three"})
	text := testkit.Read(t, l.file(1))
	lines := bytes.Split(text, []byte("\n"))
	second := testkit.Value(parse(lines[1]))(t)
	for name, gap := range map[string]string{
		"of a younger line": fmt.Sprintf(`{"gone":{"anna":1},"previous":%q,"hash":%q}`, second.Previous, second.Hash),
		"of nobody":         fmt.Sprintf(`{"gone":{},"previous":%q,"hash":%q}`, second.Previous, second.Hash),
		"of a wrong place":  fmt.Sprintf(`{"gone":{"cid":1},"previous":%q,"hash":%q}`, second.Hash, second.Hash),
		"cut off":           `{"gone":{"cid":1},`,
	} {
		lines[1] = []byte(gap)
		testkit.Write(t, l.file(1), bytes.Join(lines, []byte("\n")))
		if _, err := Verify(t.Context(), l.settings.Folder, ""); !errors.As(err, new(*Broken)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDamageStays where room is made: Verify tells of it for as long as its file is there.
func TestDamageStays(t *testing.T) {
	l := journal(t)
	l.settings.Max = 64 << 10
	add(t, l, Line{By: "admin", Action: TokenAdd, Subject: "first"}, Line{By: "tenant", Action: EntryAdd, Subject: "altered"})
	testkit.Write(t, l.file(1), bytes.Replace(testkit.Read(t, l.file(1)), []byte("altered"), []byte("ALTERED"), 1))
	for i := range 500 {
		add(t, l, Line{By: "tenant", Action: EntryAdd, Subject: fmt.Sprint(i), Why: strings.Repeat("w", 200)})
	}
	if _, err := Verify(t.Context(), l.settings.Folder, ""); !errors.As(err, new(*Broken)) {
		t.Errorf("%v", err)
	}
}

// TestAuthors: the last brackets are always who was authenticated, whatever somebody calls himself.
func TestAuthors(t *testing.T) {
	for _, c := range []struct{ who, says, author string }{
		{"helpdesk", "", "helpdesk"},
		{"helpdesk", "helpdesk", "helpdesk"},
		{"helpdesk", "jo", "jo (helpdesk)"},
		{"helpdesk", "jo (helpdesk)", "jo (helpdesk)"},
		{"helpdesk", "anna (boss)", "anna (boss) (helpdesk)"},
		{"helpdesk", "boss)", "boss) (helpdesk)"},
		{"helpdesk", "(boss", "(boss (helpdesk)"},
		{"helpdesk", "x (helpdesk) (boss)", "x (helpdesk) (boss) (helpdesk)"},
		{"uid 0", "root", "root (uid 0)"},
		{"person a (boss)", "anna", "anna (person a [boss])"},
		{"helpdesk", strings.Repeat("ä", 500), strings.Repeat("ä", 58) + " (helpdesk)"},
	} {
		got := Author(c.who, c.says)
		testkit.Got(got, WhoOf(got))(t, c, c.author, strings.NewReplacer("(", "[", ")", "]").Replace(c.who))
		testkit.AtMost(t, "octets", len(got), MaxAuthor)
		testkit.Equal(t, "sent back", Author(c.who, got), got)
		l := journal(t)
		add(t, l, Line{By: got, Action: EntryAdd})
		line := search(t, l, Query{}).Lines[0]
		testkit.Got(line.By, line.Who)(t, c, got, WhoOf(got))
	}
	for author, want := range map[string]string{"jo (uid 0)": "jo", "jo (the token of the daemon)": "jo", "SIGHUP (the daemon)": "SIGHUP", "jo (helpdesk)": "jo (helpdesk)", "anna (boss) (uid 0)": "anna (boss) (uid 0)",
		"uid 0": "uid 0", "the token of the daemon": "the token of the daemon", "": "", "boss) (uid 0)": "boss) (uid 0)"} {
		testkit.Equal(t, author, Shown(author), want)
	}
	testkit.Equal(t, "by a command, through a token", Author("helpdesk", "jo (uid 0)"), "jo (helpdesk)")
	long := strings.Repeat("p", 300)
	one, two := Author(long+"1", "anna"), Author(long+"2", "anna")
	if one == two || len(one) > MaxAuthor || !strings.HasPrefix(one, "anna (pppp") {
		t.Errorf("%q, %q", one, two)
	}
}

// A line that is on the disk is a change that is made: that older ones cannot be tidied refuses none, is told, and
// passes with its cause.
func TestWhatCannotBeTidiedRefusesNothing(t *testing.T) {
	l := journal(t)
	l.settings.Max = 64 << 10
	fill := func(n int) {
		t.Helper()
		for i := range n {
			add(t, l, Line{By: "tenant", Action: EntryAdd, Subject: fmt.Sprint(i), Why: strings.Repeat("w", 900)})
		}
	}
	fill(20)
	first := l.file(testkit.Value(filesOf(l.settings.Folder))(t)[0])
	text := testkit.Read(t, first)
	testkit.Must(t, os.Remove(first))
	testkit.Must(t, os.MkdirAll(filepath.Join(first, "in the way"), 0o755))
	fill(100)
	testkit.Has(t, fmt.Sprint(l.Problem()), "cannot be kept within audit.max")
	testkit.Must(t, os.RemoveAll(first))
	testkit.Write(t, first, text)
	fill(100)
	testkit.Equal(t, "a problem", l.Problem(), nil)
	testkit.AtMost(t, "octets", total(t, l), l.settings.Max)
}
