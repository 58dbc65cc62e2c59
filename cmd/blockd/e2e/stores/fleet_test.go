package stores

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/sources/snapshot"
)

// Three servers, ten minutes: what docs/fleet.md begins with, typed; then a change, another list, a halt, and a store that is away.
func TestFleetDocument(t *testing.T) {
	p := e2e.NewPublisher(t, "")
	var nodes []*e2e.Daemon
	for i := range 3 {
		n := p.Node(t, fmt.Sprintf("mx%d", i+1), "")
		n.Start(t)
		nodes = append(nodes, n)
		testkit.Must(t, os.Symlink(e2e.Program, filepath.Join(n.Dir, "blockd")))
		e2e.Perform(t, "docs/fleet.md", n.Dir, []string{"PATH=" + n.Dir + ":" + os.Getenv("PATH")}, e2e.Consoles(t, "docs/fleet.md")[2])
	}
	all := func(what, sender string, want bool) {
		t.Helper()
		for _, n := range nodes {
			testkit.Eventually(t, what, func() bool { return n.Blocks(sender) == want })
		}
	}
	e2e.Replace(t, filepath.Join(p.Dir, "spam.txt"), "bulk.example\nx@spam.example\nnew.example\n")
	p.Run(t, "publish")
	all("all nodes to refuse what was added", "someone@new.example", true)

	config := filepath.Join(p.Dir, "config.toml")
	text := string(testkit.Read(t, config))
	e2e.Replace(t, config, text+"[[list]]\nname = \"more\"\npath = \"more.txt\"\n")
	testkit.Write(t, filepath.Join(p.Dir, "more.txt"), "more.example\n")
	p.Run(t, "publish", "--why", "another list")
	all("all nodes to have another list", "someone@more.example", true)

	testkit.Has(t, p.Run(t, "publish", "halt"), "stays at sequence 2")
	all("all nodes to go back", "someone@more.example", false)
	if _, body := nodes[0].Get("/readyz"); !strings.Contains(body, "halted at sequence 2") {
		t.Errorf("/readyz: %s", body)
	}
	p.Run(t, "publish", "--again", "3", "--now")
	all("the halt to end", "someone@more.example", true)
	testkit.Has(t, p.Run(t, "audit", "--json"), `"action":"snapshot.halt"`, `"action":"snapshot.publish"`)

	p.Web.Close()
	nodes[0].Stop(t)
	nodes[0].Start(t)
	if !nodes[0].Blocks("someone@more.example") || !nodes[0].Blocks("someone@new.example") {
		t.Error("after a restart without the store something is missing")
	}
}

// Twenty real processes meet a bad list without anybody who has written to them: it hits canaries alone, and is halted.
func TestFleetBadListHitsCanariesAlone(t *testing.T) {
	p := e2e.NewPublisher(t, "[[publish.stage]]\nshare = 1\nfor = \"1h\"\n")
	const count = 20
	nodes := make([]*e2e.Daemon, count)
	var group sync.WaitGroup
	for i := range nodes {
		canary := ""
		if i < 2 {
			canary = "canary = true\n"
		}
		nodes[i] = p.Node(t, fmt.Sprintf("mx%d.example", i), canary)
	}
	for _, n := range nodes {
		n.Start(t)
	}
	e2e.Replace(t, filepath.Join(p.Dir, "spam.txt"), "bulk.example\nx@spam.example\ngood.example\n")
	p.Run(t, "publish")
	first := map[int]bool{}
	for i := range nodes {
		first[i] = i < 2 || snapshot.Turn("prod", 2, fmt.Sprintf("mx%d.example", i)) < 1
	}
	for i, n := range nodes {
		if first[i] {
			testkit.Eventually(t, "a canary to take the bad list", func() bool { return n.Blocks("someone@good.example") })
		}
	}
	for i, n := range nodes {
		group.Go(func() {
			testkit.Eventually(t, "each node to have seen it", func() bool {
				text, err := os.ReadFile(n.Path("blockd.bdx.fleet/state"))
				return err == nil && strings.Contains(string(text), `"highest":2`)
			})
			if n.Blocks("someone@good.example") != first[i] {
				t.Errorf("node %d: refused %v, want %v", i, !first[i], first[i])
			}
		})
	}
	group.Wait()
	p.Run(t, "publish", "halt")
	for i, n := range nodes {
		if first[i] {
			testkit.Eventually(t, "a canary to go back", func() bool { return !n.Blocks("someone@good.example") })
		}
	}
}

// Entries of one recipient, and about one, act on nodes as they do on the publisher.
func TestFleetCarriesEntriesOfRecipients(t *testing.T) {
	p := e2e.NewPublisher(t, "[[list]]\nname = \"users\"\npath = \"users.csv\"\nformat = \"csv:entry\"\nper_recipient = true\n")
	testkit.Write(t, filepath.Join(p.Dir, "users.csv"), "owner,entry,action,reason\nanna@here.example,promo.example,block,enough\nhere.example,all.example,block,\n")
	e2e.Replace(t, filepath.Join(p.Dir, "spam.txt"), "bulk.example\nrecipient:left@here.example\n")
	p.Run(t, "publish")
	n := p.Node(t, "mx1", "")
	n.Start(t)
	for _, tt := range []struct {
		sender, recipient string
		blocked           bool
	}{
		{"x@bulk.example", "bob@here.example", true},
		{"x@promo.example", "anna@here.example", true},
		{"x@promo.example", "bob@here.example", false},
		{"x@all.example", "bob@here.example", true},
		{"x@all.example", "bob@there.example", false},
		{"x@good.example", "left@here.example", true},
	} {
		ask := func() (body string) {
			_, body = n.Get("/v1/check?sender=" + tt.sender + "&recipient=" + tt.recipient)
			return body
		}
		testkit.Eventually(t, "an answer", func() bool { return strings.Contains(ask(), `"verdict"`) })
		if body := ask(); strings.Contains(body, `"verdict":"blocked"`) != tt.blocked {
			t.Errorf("%s to %s: %s", tt.sender, tt.recipient, body)
		}
	}
}

// A list that did harm can be taken back on a node that knows of nothing but its refusals: by a halt, by a removal,
// and by publishing again what was before.
func TestFleetTakesBack(t *testing.T) {
	p := e2e.NewPublisher(t, "")
	many := ""
	for i := range 1200 {
		many += fmt.Sprintf("n%d.example\n", i)
	}
	spam := filepath.Join(p.Dir, "spam.txt")
	n := p.Node(t, "mx1.example", "")
	n.Edit(t, "[index]\n", "[index]\nmax_freed = 0.0\n")
	n.Start(t)
	publish := func(text string) {
		t.Helper()
		e2e.Replace(t, spam, text)
		p.Run(t, "compile", "--accept")
		p.Run(t, "publish", "--now")
	}
	acts := func(what string) {
		t.Helper()
		testkit.Eventually(t, what+" to act", func() bool { return n.Blocks("someone@n7.example") })
	}
	gone := func(what string) {
		t.Helper()
		testkit.Eventually(t, what+" to act", func() bool { return !n.Blocks("someone@n7.example") && n.Blocks("someone@bulk.example") })
		if ready := e2e.Readyz(n); strings.Contains(ready, "list spam") {
			t.Errorf("%s: %s", what, ready)
		}
	}
	publish("bulk.example\nx@spam.example\n" + many)
	acts("the bad list")
	for i := range 40 {
		e2e.Ask(t, n.SMTP, fmt.Sprintf("s%d@n%d.example", i, i))
	}
	p.Run(t, "publish", "halt")
	gone("a halt")
	publish("bulk.example\n" + many)
	acts("what is published after a halt")
	publish("bulk.example\n")
	gone("a removal")
	p.Run(t, "publish", "--again", "3", "--now")
	acts("what is published again")
	p.Run(t, "publish", "--again", "1", "--now")
	gone("what was before the bad list")
}
