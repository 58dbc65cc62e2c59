package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"blockd/internal/testkit"
	"blockd/sources/snapshot"
)

// publisher is a folder in which blockd publishes into the folder of a web server.
type publisher struct {
	dir, www, key string
	web           *httptest.Server
	env           []string
}

// newPublisher follows the beginning of docs/fleet.md, up to the first publication.
// more is in force from the second one on.
func newPublisher(t *testing.T, more string) *publisher {
	t.Helper()
	p := &publisher{dir: t.TempDir(), www: filepath.Join(t.TempDir(), "blockd")}
	if err := os.Mkdir(p.www, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(p.dir, "blockd")); err != nil {
		t.Fatal(err)
	}
	p.env = []string{"PATH=" + p.dir + ":" + os.Getenv("PATH")}
	perform(t, "docs/fleet.md", p.dir, p.env, consoles(t, "docs/fleet.md")[0])
	public := lines(t, filepath.Join(p.dir, "publish.key.pub"))
	p.key = "minisign:" + public[1]
	document := strings.Replace(fenced(t, "docs/fleet.md", "toml")[0], "/srv/www/blockd", p.www, 1)
	config := "[index]\npath = \"blockd.bdx\"\n[smtp]\nlisten = \"\"\n[http]\nlisten = \"127.0.0.1:0\"\n" + document
	testkit.Write(t, filepath.Join(p.dir, "config.toml"), config)
	testkit.Write(t, filepath.Join(p.dir, "spam.txt"), "bulk.example\nx@spam.example\n")
	p.web = httptest.NewServer(http.StripPrefix("/blockd", http.FileServer(http.Dir(p.www))))
	t.Cleanup(p.web.Close)
	perform(t, "docs/fleet.md", p.dir, p.env, consoles(t, "docs/fleet.md")[1])
	testkit.Write(t, filepath.Join(p.dir, "config.toml"), config+more)
	return p
}

// run runs blockd in the publisher's folder.
func (p *publisher) run(t *testing.T, args ...string) string {
	t.Helper()
	d := &daemon{dir: p.dir}
	return d.must(t, append(args[:1:1], append([]string{"-c", filepath.Join(p.dir, "config.toml")}, args[1:]...)...)...)
}

// node is a mail server of the fleet that is configured as the document says, but looks each second.
func (p *publisher) node(t *testing.T, name, more string) *daemon {
	t.Helper()
	document := fenced(t, "docs/fleet.md", "toml")[1]
	document = strings.Replace(document, "http://lists.example/blockd", p.web.URL+"/blockd", 1)
	document = strings.Replace(document, "minisign:RW…", p.key, 1)
	return configure(t, setup{lists: document + "every = \"1s\"\nnode = \"" + name + "\"\n" + more})
}

func (d *daemon) blocks(sender string) bool {
	_, body := d.get("/v1/check?sender=" + sender)
	return strings.Contains(body, `"verdict":"blocked"`)
}

// Three servers, ten minutes: what docs/fleet.md begins with, typed; then a change, another list, a halt, and a store that is away.
func TestFleetDocument(t *testing.T) {
	p := newPublisher(t, "")
	var nodes []*daemon
	for i := range 3 {
		n := p.node(t, fmt.Sprintf("mx%d", i+1), "")
		n.start(t)
		nodes = append(nodes, n)
		if err := os.Symlink(program, filepath.Join(n.dir, "blockd")); err != nil {
			t.Fatal(err)
		}
		perform(t, "docs/fleet.md", n.dir, []string{"PATH=" + n.dir + ":" + os.Getenv("PATH")}, consoles(t, "docs/fleet.md")[2])
	}
	all := func(what, sender string, want bool) {
		t.Helper()
		for _, n := range nodes {
			testkit.Eventually(t, what, func() bool { return n.blocks(sender) == want })
		}
	}
	replace(t, filepath.Join(p.dir, "spam.txt"), "bulk.example\nx@spam.example\nnew.example\n")
	p.run(t, "publish")
	all("all nodes to refuse what was added", "someone@new.example", true)

	config := filepath.Join(p.dir, "config.toml")
	text := string(testkit.Read(t, config))
	replace(t, config, text+"[[list]]\nname = \"more\"\npath = \"more.txt\"\n")
	testkit.Write(t, filepath.Join(p.dir, "more.txt"), "more.example\n")
	p.run(t, "publish", "--why", "another list")
	all("all nodes to have another list", "someone@more.example", true)

	if out := p.run(t, "publish", "halt"); !strings.Contains(out, "stays at sequence 2") {
		t.Error(out)
	}
	all("all nodes to go back", "someone@more.example", false)
	if _, body := nodes[0].get("/readyz"); !strings.Contains(body, "halted at sequence 2") {
		t.Errorf("/readyz: %s", body)
	}
	p.run(t, "publish", "--again", "3", "--now")
	all("the halt to end", "someone@more.example", true)
	if out := p.run(t, "audit", "--json"); !strings.Contains(out, `"action":"snapshot.halt"`) || !strings.Contains(out, `"action":"snapshot.publish"`) {
		t.Errorf("audit: %s", out)
	}

	p.web.Close()
	nodes[0].stop(t)
	nodes[0].start(t)
	if !nodes[0].blocks("someone@more.example") || !nodes[0].blocks("someone@new.example") {
		t.Error("after a restart without the store something is missing")
	}
}

// Twenty real processes meet a bad list without anybody who has written to them: it hits canaries alone, and is halted.
func TestFleetBadListHitsCanariesAlone(t *testing.T) {
	p := newPublisher(t, "[[publish.stage]]\nshare = 1\nfor = \"1h\"\n")
	const count = 20
	nodes := make([]*daemon, count)
	var group sync.WaitGroup
	for i := range nodes {
		canary := ""
		if i < 2 {
			canary = "canary = true\n"
		}
		nodes[i] = p.node(t, fmt.Sprintf("mx%d.example", i), canary)
	}
	for _, n := range nodes {
		n.start(t)
	}
	replace(t, filepath.Join(p.dir, "spam.txt"), "bulk.example\nx@spam.example\ngood.example\n")
	p.run(t, "publish")
	first := map[int]bool{}
	for i := range nodes {
		first[i] = i < 2 || snapshot.Turn("prod", 2, fmt.Sprintf("mx%d.example", i)) < 1
	}
	for i, n := range nodes {
		if first[i] {
			testkit.Eventually(t, "a canary to take the bad list", func() bool { return n.blocks("someone@good.example") })
		}
	}
	for i, n := range nodes {
		group.Go(func() {
			testkit.Eventually(t, "each node to have seen it", func() bool {
				text, err := os.ReadFile(n.path("blockd.bdx.fleet/state"))
				return err == nil && strings.Contains(string(text), `"highest":2`)
			})
			if n.blocks("someone@good.example") != first[i] {
				t.Errorf("node %d: refused %v, want %v", i, !first[i], first[i])
			}
		})
	}
	group.Wait()
	p.run(t, "publish", "halt")
	for i, n := range nodes {
		if first[i] {
			testkit.Eventually(t, "a canary to go back", func() bool { return !n.blocks("someone@good.example") })
		}
	}
}

// Entries of one recipient, and about one, act on nodes as they do on the publisher.
func TestFleetCarriesEntriesOfRecipients(t *testing.T) {
	p := newPublisher(t, "[[list]]\nname = \"users\"\npath = \"users.csv\"\nformat = \"csv:entry\"\nper_recipient = true\n")
	testkit.Write(t, filepath.Join(p.dir, "users.csv"), "owner,entry,action,reason\nanna@here.example,promo.example,block,enough\nhere.example,all.example,block,\n")
	replace(t, filepath.Join(p.dir, "spam.txt"), "bulk.example\nrecipient:left@here.example\n")
	p.run(t, "publish")
	n := p.node(t, "mx1", "")
	n.start(t)
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
			_, body = n.get("/v1/check?sender=" + tt.sender + "&recipient=" + tt.recipient)
			return body
		}
		testkit.Eventually(t, "an answer", func() bool { return strings.Contains(ask(), `"verdict"`) })
		if body := ask(); strings.Contains(body, `"verdict":"blocked"`) != tt.blocked {
			t.Errorf("%s to %s: %s", tt.sender, tt.recipient, body)
		}
	}
}
