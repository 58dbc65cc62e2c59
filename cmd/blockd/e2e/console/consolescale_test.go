package console

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/doors/httpapi"
	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/records/history"
)

// TestConsoleAtScale has the console shown in a real browser by a daemon with as many live entries as there may be, and with five million
// decisions of 30 days: what it weighs, and how long each of its views, searches, orders, pages, charts and counts takes. Run it with -soak
// -figures; -v prints the figures that docs/performance.md has.
func TestConsoleAtScale(t *testing.T) {
	if !*e2e.Soak {
		t.Skip("a million entries and five million decisions: with -soak")
	}
	const decisions = 5_000_000
	installed(t)
	d := e2e.Configure(t, e2e.Setup{Files: map[string]string{"own.txt": "listed.example\n"}, Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n[history]\nmax = \"4GiB\"\n"})
	manyEntries(t, d.Path("blockd.bdx.live"))
	segments := manyDecisions(t, d.Path("blockd.bdx.history"), decisions)
	d.Start(t)
	const long = 20 * time.Minute
	testkit.Within(t, "all live entries in the index", long, func() bool {
		for _, list := range e2e.JSONOf[httpapi.ListTable](t, d, "/v1/lists").Worth {
			if list.List == live.ListName {
				return list.Entries == live.MaxEntries
			}
		}
		return false
	})
	testkit.Within(t, "the sums of each finished file of the history", long, func() bool {
		sums, err := filepath.Glob(d.Path("blockd.bdx.history/*.sums"))
		return err == nil && len(sums) >= segments-1
	})
	testkit.Within(t, "charts that know the past", long, func() bool { return !e2e.JSONOf[httpapi.Series](t, d, "/v1/series?by=outcome&span=30d").Filling })

	env := []string{"BLOCKD_TOKEN=" + d.FirstToken(t), "BLOCKD_READ_TOKEN=" + d.FirstToken(t), "BLOCKD_TEST_SCALE=1"}
	if err := browser(t, d, env, "budget", "scale").Run(); err != nil {
		t.Errorf("playwright: %v", err)
	}
	t.Logf("the daemon holds %d MiB", e2e.ResidentKiB(t, d)>>10)
}

// manyEntries writes as many live entries as there may be: addresses, domains and networks, of which some end.
func manyEntries(t *testing.T, folder string) {
	t.Helper()
	set := testkit.Value(live.Open(live.Settings{Folder: folder}))(t)
	defer set.Close()
	var changes []live.Change
	for i := range live.MaxEntries {
		c := live.Change{Entry: fmt.Sprintf("newsletter.%d@mail%d.there.example", i, i%7000), Action: lists.Block, Why: fmt.Sprintf("phishing, ticket %d", i), Author: "helpdesk"}
		switch {
		case i%10 == 0:
			c.Entry = fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
		case i%3 == 0:
			c.Entry = fmt.Sprintf("bulk%d.example", i)
		}
		if i%20 == 1 {
			c.Action = lists.Allow
		}
		if i%4 == 0 {
			c.Expires = time.Now().Add(time.Duration(1+i%700) * 24 * time.Hour)
		}
		if changes = append(changes, c); len(changes) < 10_000 {
			continue
		}
		if _, err := set.Apply(changes...); err != nil {
			t.Fatal(err)
		}
		if changes = changes[:0]; i%100_000 == 99_999 {
			testkit.Must(t, set.Tidy())
		}
	}
	testkit.MustEqual(t, "entries", set.Len(), live.MaxEntries)
}

// manyDecisions writes a history of 30 days, in which few senders have sent much, as on real servers, and says how many files it has.
func manyDecisions(t *testing.T, folder string, n int) (segments int) {
	t.Helper()
	log := testkit.Value(history.Open(history.Settings{Folder: folder, Max: 4 << 30, Keep: 30 * 24 * time.Hour}))(t)
	defer log.Close()
	chance := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(chance, 1.05, 1, uint64(n))
	const span = 30*24*time.Hour - time.Hour
	begin := time.Now().Add(-span).UTC()
	for i := range n {
		who := zipf.Uint64()
		r := history.Record{Time: begin.Add(time.Duration(float64(span) * float64(i) / float64(n))).Truncate(time.Millisecond), Door: "smtp", Outcome: "accept", Verdict: "clear",
			Client: netip.AddrFrom4([4]byte{byte(1 + who%200), byte(who >> 16), byte(who >> 8), byte(who)}), Helo: "mx7.there.example",
			Sender:    fmt.Sprintf("newsletter-%s%d@mail%d.there.example", strings.Repeat("x", int(who%7)), who, who%1_000_000),
			Recipient: fmt.Sprintf("somebody.%d@here.example", chance.IntN(50_000)), Generation: "0123456789abcdef"}
		if who%3 == 0 {
			r.Outcome, r.Verdict, r.Ref = "refuse", "blocked", fmt.Sprintf("%010d", i)
			r.List, r.File, r.Line, r.Entry, r.Scope, r.Action = fmt.Sprintf("list%d", who%12), "/etc/blockd/own.txt", 12, fmt.Sprintf("mail%d.there.example", who%1_000_000), "tree", "block"
		}
		if log.Add(r); i%4000 == 3999 {
			testkit.Must(t, log.Flush())
		}
	}
	testkit.Must(t, log.Flush())
	files, err := filepath.Glob(filepath.Join(folder, "*.decisions"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return len(files)
}
