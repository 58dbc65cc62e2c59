package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"blockd/history"
	"blockd/internal/race"
	"blockd/internal/testkit"
	"blockd/live"
)

// TestConsoleAtScale opens the console of a daemon with a million live entries and a month of half a million
// decisions: its first views weigh and take no more than others (e2e/console/budget.spec.js).
func TestConsoleAtScale(t *testing.T) {
	race.Skip(t)
	npm, chromium := testkit.Peer(t, "npm"), testkit.Peer(t, "chromium")
	if _, err := os.Stat("console/node_modules"); err != nil {
		testkit.Missing(t, "Playwright is not installed (npm --prefix e2e/console ci)")
	}
	d := configure(t, setup{files: map[string]string{"own.txt": "listed.example\n"}, lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n"})
	testkit.Write(t, d.path("config.toml"), strings.Replace(string(testkit.Read(t, d.path("config.toml"))), "[http]\n", "[http]\ntokens = \"tokens\"\n", 1))
	token := strings.TrimSpace(d.must(t, "token", "new", "--name", "helpdesk", "--write"))
	fillEntries(t, d.path("blockd.bdx.live"), live.MaxEntries)
	fillHistory(t, d.path("blockd.bdx.history"), 500_000)
	d.unready = true // who has no token is not told
	d.start(t)
	testkit.Eventually(t, "the daemon's socket", func() bool {
		code, _, _ := d.command(t, "check", "x@clear.example")
		return code == 0
	})
	cmd := exec.Command(npm, "exec", "--", "playwright", "test", "budget")
	cmd.Dir = "console"
	cmd.Env = append(os.Environ(), "BLOCKD_TEST_CHROMIUM="+chromium, "BLOCKD_OUTPUT="+t.TempDir(), "BLOCKD_DIR="+d.dir, "BLOCKD_SMTP="+d.smtp,
		"BLOCKD_URL=http://"+d.http, "BLOCKD_OPEN_URL=http://"+d.http, "BLOCKD_TOKEN="+token, "BLOCKD_READ_TOKEN="+token)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("playwright: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// fillEntries puts n live entries into a folder.
func fillEntries(t *testing.T, folder string, n int) {
	t.Helper()
	set, err := live.Open(live.Settings{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	const together = 20_000
	changes := make([]live.Change, 0, together)
	for i := range n {
		changes = append(changes, live.Change{Entry: fmt.Sprintf("spam%d@bulk%d.example", i, i%1000), Why: "from a test", Author: "jo"})
		if len(changes) == together || i == n-1 {
			if _, err := set.Apply(changes...); err != nil {
				t.Fatal(err)
			}
			changes = changes[:0]
		}
	}
}

// fillHistory puts n decisions of the last 30 days into a folder.
func fillHistory(t *testing.T, folder string, n int) {
	t.Helper()
	log, err := history.Open(history.Settings{Folder: folder, Max: 1 << 30, Keep: 40 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	begin, step := time.Now().Add(-30*24*time.Hour), 30*24*time.Hour/time.Duration(n)
	for i := range n {
		r := history.Record{Time: begin.Add(time.Duration(i) * step), Door: "smtp", Outcome: "accept", Verdict: "clear", Client: netip.MustParseAddr("192.0.2.7"),
			Sender: fmt.Sprintf("a%d@shop%d.example", i, i%5000), Recipient: "user@here.example"}
		if i%3 == 0 {
			r.Outcome, r.Verdict, r.List, r.Entry, r.Ref = "refuse", "blocked", "own", "listed.example", fmt.Sprintf("%010d", i)
		}
		log.Add(r)
		if i%1000 == 999 {
			log.Flush()
		}
	}
	log.Flush()
}
