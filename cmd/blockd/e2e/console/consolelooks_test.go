package console

import (
	"fmt"
	"math"
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

// TestConsoleLooks has every view of the console judged in a real browser, in each state, in both themes, on a desk and on a phone: of a daemon
// with the decisions of 30 days, which it has counted itself, and of one that has just been installed. With -update it takes the pictures of docs.
func TestConsoleLooks(t *testing.T) {
	installed(t)
	t.Parallel()
	lists := ""
	for _, l := range [][2]string{{"own", ownList}, {"phishing"}, {"networks"}, {"newsletters", `mode = "shadow"`}, {"greylist", `on_match = "tempfail"`}, {"aside", `on_match = "quarantine"`}} {
		lists += e2e.List(l[0], `format = "plain"`, l[1])
	}
	d := e2e.Configure(t, e2e.Setup{Files: map[string]string{
		"own.txt": "listed.example\n", "phishing.txt": numbered("login-%d.bank.example", 400) + "second.example\n", "networks.txt": numbered("198.51.%d.0/24", 200), "newsletters.txt": numbered("news%d.example", 60),
		"greylist.txt": numbered("dialup-%d.example", 30), "aside.txt": "aside.example\n"}, SMTP: "quarantine = \"aside\"\n", Lists: lists})
	receipts, text := e2e.FreeAddress(t), string(testkit.Read(t, d.Path("config.toml")))
	text = strings.Replace(text, "[http]\n", "[http]\ntokens = \"tokens\"\n", 1) + fmt.Sprintf("[receipts]\nlisten = %q\n", receipts)
	testkit.Write(t, d.Path("config.toml"), []byte(text))
	fresh := e2e.Serve(t, e2e.Setup{Files: map[string]string{"own.txt": "listed.example\n"}, Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n"})
	tokens := []string{"BLOCKD_TOKEN=" + strings.TrimSpace(d.Must(t, "token", "new", "--name", "helpdesk", "--write")), "BLOCKD_READ_TOKEN=" + strings.TrimSpace(d.Must(t, "token", "new", "--name", "viewer")),
		"BLOCKD_ADMIN_TOKEN=" + strings.TrimSpace(d.Must(t, "token", "new", "--name", "boss", "--admin"))}
	aMonth(t, d.Path("blockd.bdx.history"))
	d.Unready = true // who has no token is not told
	d.Start(t)
	testkit.Eventually(t, "the daemon's socket", func() bool {
		code, _, _ := d.Command(t, "add", "kept.example", "--why", "phishing, ticket 4711", "--author", "jo")
		return code == 0
	})
	for i, entry := range []string{"offers@cheap-pills.example", "login-bank.example", "203.0.113.7", "invoice.5121@second.example", "198.51.100.0/24", "win-a-phone.example"} {
		d.Must(t, "add", entry, "--why", []string{"phishing", "user complaint", "spam trap"}[i%3]+fmt.Sprintf(", ticket %d", 4712+17*i), "--author", []string{"jo", "mia"}[i%2], "--for", fmt.Sprint(5+9*i, "d"))
	}
	d.Must(t, "add", "partner@second.example", "--action", "allow", "--why", "customer since 2019", "--author", "mia")

	specs := []string{"states"}
	if *e2e.Update {
		specs = append(specs, "screenshots")
	}
	env := append(tokens, "BLOCKD_OPEN_URL=http://"+fresh.HTTP, "BLOCKD_FRESH_TOKEN="+fresh.FirstToken(t), "BLOCKD_RECEIPTS=http://"+receipts, "BLOCKD_TEST_PAST=1")
	if err := browser(t, d, env, specs...).Run(); err != nil {
		t.Fatalf("playwright: %v", err)
	}
	if *e2e.Update {
		shrink(t, filepath.Join(e2e.Root, "docs", "console"))
		shrink(t, filepath.Join(e2e.Root, "docs"))
	}
}

// numbered are so many lines.
func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format+"\n", i)
	}
	return b.String()
}

// aMonth writes the decisions of 30 days as a small site has them: few at night, less at the end of the week, and one flood. They are the same at each run.
func aMonth(t *testing.T, folder string) {
	t.Helper()
	log := testkit.Value(history.Open(history.Settings{Folder: folder, Max: 64 << 20, Keep: 30 * 24 * time.Hour}))(t)
	defer log.Close()
	chance := rand.New(rand.NewPCG(1, 2))
	const step = 5 * time.Minute
	now := time.Now().UTC()
	of := func(format string, most float64) string {
		return fmt.Sprintf(format, int(most*chance.Float64()*chance.Float64()))
	} // the first ones have the most
	for at, n := now.Add(-30*24*time.Hour+step), 0; at.Before(now); at = at.Add(step) {
		busy := 1.2 - math.Cos(float64(at.Hour()*60+at.Minute()-120)/1440*2*math.Pi)
		if day := at.Weekday(); day == time.Saturday || day == time.Sunday {
			busy *= 0.5
		}
		flood := now.Sub(at) > 9*24*time.Hour && now.Sub(at) < 9*24*time.Hour+10*time.Hour
		if flood {
			busy *= 3
		}
		for range int(busy*2.2 + chance.Float64()) {
			r := history.Record{Time: at.Add(time.Duration(chance.Int64N(int64(step)))).Truncate(time.Millisecond), Door: "smtp", Outcome: "accept", Verdict: "clear", Generation: "5c1d2e7a90b34f68",
				Client: netip.AddrFrom4([4]byte{203, 0, 113, byte(255 * chance.Float64() * chance.Float64())}), Helo: "mail.there.example",
				Sender: of("customer%d@", 40) + of("company-%d.example", 60), Recipient: []string{"info", "sales", "ann", "bob", "support"}[int(5*chance.Float64()*chance.Float64())] + "@here.example"}
			if chance.IntN(5) == 0 {
				r.Door = "milter"
			}
			listed := func(list, entry, outcome string) {
				r.List, r.Entry, r.Scope, r.Action, r.File, r.Line, r.Outcome, r.Verdict, r.Ref = list, entry, "tree", "block", "/etc/blockd/"+list+".txt", 1+chance.IntN(400), outcome, "blocked", fmt.Sprintf("3mg17k%04d", n%10_000)
			}
			kind := chance.IntN(100)
			if flood && chance.IntN(3) > 0 {
				kind = 0
			}
			switch {
			case kind < 14:
				domain := of("login-%d.bank.example", 12)
				if r.Sender = "security@" + domain; flood {
					domain, r.Sender = "login-3.bank.example", fmt.Sprintf("notice%d@login-3.bank.example", n)
				}
				listed("phishing", domain, "refuse")
			case kind < 20:
				network := chance.IntN(9)
				r.Client = netip.AddrFrom4([4]byte{198, 51, byte(network), byte(1 + chance.IntN(40))})
				r.Sender = of("bounce%d@dialup-pool.example", 300)
				listed("networks", fmt.Sprintf("198.51.%d.0/24", network), "refuse")
			case kind < 24:
				r.Sender = of("offers%d@mx.listed.example", 8)
				listed("own", "listed.example", "refuse")
			case kind < 26:
				domain := of("dialup-%d.example", 20)
				r.Sender = "mailer@" + domain
				listed("greylist", domain, "defer")
			case kind < 30:
				domain := of("news%d.example", 25)
				r.Sender = "letter@" + domain
				listed("newsletters", domain, "accept")
				r.Shadow, r.Ref = true, ""
			case kind == 30:
				r.Sender = "billing@aside.example"
				listed("aside", "aside.example", "quarantine")
			}
			n++
			log.Add(r)
		}
		testkit.Must(t, log.Flush())
	}
}

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
