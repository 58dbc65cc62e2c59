package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
	"blockd/sources/snapshot"
)

// TestConsoleFleet has a person look at a fleet in a real browser: a publisher and three nodes, of which one is a canary, one has a list that its gate
// refuses, and one a source that does not answer. cmd/blockd/e2e/console/fleet.spec.js says what happens to them then.
func TestConsoleFleet(t *testing.T) {
	installed(t)
	t.Parallel()
	database := redisserver.Start(t)
	kept := database.Dir // where it finds what it had, whenever it begins again
	share := "[live]\nshared = \"redis\"\ndsn_file = \"live.dsn\"\nname = \"eu-mx\"\n"
	p := e2e.NewPublisher(t, "[[publish.stage]]\nshare = 1\nfor = \"1h\"\n[fleet]\nnode = \"publisher\"\n"+share)
	publisher := &e2e.Daemon{Dir: p.Dir, HTTP: e2e.FreeAddress(t), Unready: true} // who has no token is not told
	text := string(testkit.Read(t, publisher.Path("config.toml")))
	testkit.Write(t, publisher.Path("config.toml"), strings.Replace(text, "[http]\nlisten = \"127.0.0.1:0\"\n", fmt.Sprintf("[http]\nlisten = %q\ntokens = \"tokens\"\n[milter]\nlisten = \"\"\n[postfix]\npolicy_listen = \"\"\n", publisher.HTTP), 1))
	secret := func(d *e2e.Daemon, name, text string) {
		testkit.Write(t, d.Path(name), text+"\n")
		testkit.Must(t, os.Chmod(d.Path(name), 0o600))
	}
	secret(publisher, "live.dsn", database.URL())
	token := func(name, scope string) string {
		return strings.TrimSpace(publisher.Must(t, "token", "new", "--local", "--name", name, scope))
	}
	write, report, admin := token("helpdesk", "--write"), token("nodes", "--report"), token("boss", "--admin")

	mx1 := p.Node(t, "mx1.example", "canary = true\n"+share)
	mx2 := p.Node(t, "mx2.example", share+"[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n")
	mx3 := p.Node(t, "mx3.example", fmt.Sprintf("report = \"http://%s/v1/fleet\"\ntoken_file = \"report.token\"\n[[list]]\nname = \"partners\"\n[list.source]\nkind = \"redis\"\ndsn_file = \"away.dsn\"\n", publisher.HTTP))
	testkit.Write(t, mx2.Path("own.txt"), "listed.example\nother.example\n")
	secret(mx1, "live.dsn", database.URL())
	secret(mx2, "live.dsn", database.URL())
	secret(mx3, "report.token", report)
	secret(mx3, "away.dsn", "redis://"+e2e.FreeAddress(t))
	publisher.Start(t)
	for i, n := range []*e2e.Daemon{mx1, mx2, mx3} {
		n.Start(t)
		if turn := snapshot.Turn("prod", 2, fmt.Sprintf("mx%d.example", i+1)); turn < 1 {
			t.Fatalf("mx%d would be among the first: %f", i+1, turn)
		}
	}
	testkit.Eventually(t, "the first sequence", func() bool {
		return mx1.Blocks("x@bulk.example") && mx2.Blocks("x@bulk.example") && mx3.Blocks("x@bulk.example")
	})
	mail := e2e.DialSMTP(t, mx1.SMTP)
	for i, sender := range []string{"ann@partner.example", "x@bulk.example", "bob@shop.example", "carol@uni.example"} {
		mail.Command("MAIL FROM:<%s>", sender)
		if reply := mail.Command("RCPT TO:<user@here.example>"); strings.HasPrefix(reply, "550") != (i == 1) {
			t.Errorf("%s: %s", sender, reply)
		}
		mail.Command("RSET")
	}
	e2e.Replace(t, mx2.Path("own.txt"), "<html><body>no list</body></html>\n")
	e2e.Replace(t, filepath.Join(p.Dir, "spam.txt"), "bulk.example\nx@spam.example\nnew.example\n")

	asked := make(chan step)
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := step{what: r.URL.Path, entry: r.URL.Query().Get("entry"), done: make(chan bool)}
		select {
		case asked <- s:
		case <-t.Context().Done():
			return
		}
		select {
		case <-s.done:
			w.WriteHeader(http.StatusNoContent)
		case <-t.Context().Done(): // the test has failed
		}
	}))
	t.Cleanup(door.Close)
	cmd := browser(t, publisher, []string{"BLOCKD_TOKEN=" + write, "BLOCKD_READ_TOKEN=" + report, "BLOCKD_ADMIN_TOKEN=" + admin, "BLOCKD_CONTROL=" + door.URL}, "fleet")
	testkit.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	client := goredis.NewClient(&goredis.Options{Addr: database.Address, Protocol: 2})
	defer client.Close()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("playwright: %v", err)
			}
			if *e2e.Update {
				shrink(t, filepath.Join(e2e.Root, "docs", "console"))
			}
			return
		case s := <-asked:
			switch s.what {
			case "/lose": // the database acknowledges an entry, and is then what it was before
				if err := client.Save(t.Context()).Err(); err != nil {
					t.Error(err)
				}
				publisher.Must(t, "add", s.entry, "--why", "phishing, ticket 4711")
				testkit.Eventually(t, "the entry acts elsewhere", func() bool { return mx1.Blocks(s.entry) })
				database.Kill()
				database = redisserver.StartAt(t, database.Address, "--dir", kept)
				testkit.Eventually(t, "the loss", func() bool {
					_, body := publisher.GetWith(write, "/v1/live")
					return strings.Contains(body, `"lost_total":1`)
				})
			case "/blocks", "/passes":
				testkit.Eventually(t, s.entry+" "+s.what[1:], func() bool { return mx1.Blocks(s.entry) == (s.what == "/blocks") })
			case "/kill": // and 90 seconds pass for the database
				mx2.Kill(t)
				if err := client.Del(t.Context(), "{blockd:eu-mx}:node:mx2.example").Err(); err != nil {
					t.Error(err)
				}
			case "/begin":
				mx2.Start(t)
			default:
				t.Errorf("the browser's test asks for %s", s.what)
			}
			close(s.done)
		}
	}
}

// step is what a test in a browser has done to a fleet.
type step struct {
	what, entry string
	done        chan bool
}
