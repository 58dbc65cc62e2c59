package console

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
)

// TestConsole has a person use the console in a real browser: the *.spec.js beside this file have what they do. Those that
// want a daemon of another kind are run by the tests beside this one.
func TestConsole(t *testing.T) {
	installed(t)
	if *e2e.Update {
		usesConsole(t, "receipt")
		return
	}
	others := []string{"console", "fleet", "scale", "screenshots", "signin", "states", "walk"}
	specs := testkit.Value(filepath.Glob("*.spec.js"))(t)
	var rest []string
	for _, spec := range specs {
		if name := strings.TrimSuffix(spec, ".spec.js"); !strings.Contains(" "+strings.Join(others, " ")+" ", " "+name+" ") {
			rest = append(rest, "/"+spec)
		}
	}
	t.Run("daily work", func(t *testing.T) { t.Parallel(); usesConsole(t, "/console.spec.js") })
	t.Run("views", func(t *testing.T) { t.Parallel(); usesConsole(t, rest...) })
}

// usesConsole runs specs with two daemons: one wants tokens, the other answers everybody on this machine.
func usesConsole(t *testing.T, specs ...string) {
	lists := e2e.Setup{Files: map[string]string{"own.txt": "listed.example\n192.0.2.0/24\n", "other.txt": "second.example\n", "aside.txt": "aside.example\n"}, SMTP: "quarantine = \"aside\"\n", Lists: `
[[list]]
name = "own"
path = "own.txt"
format = "plain"
reason = "our own"
homepage = "https://own.list.example/"
complaints = "mailto:complaints@list.example"

[[list]]
name = "other"
path = "other.txt"
format = "plain"

[[list]]
name = "aside"
path = "aside.txt"
format = "plain"
on_match = "quarantine"
`}
	d, open := e2e.Configure(t, lists), e2e.Serve(t, lists)
	zone, receipts, text := e2e.FreeAddress(t), e2e.FreeAddress(t), testkit.Read(t, d.Path("config.toml"))
	text = fmt.Appendf(text, "[dns]\nlisten = %q\n[[dns.zone]]\nname = %q\nkind = \"domain\"\n[[dns.zone]]\nname = %q\nkind = \"ip\"\n[receipts]\nlisten = %q\n[auth]\nresolver = %q\n", zone, e2e.DomainZone, e2e.IPZone, receipts, nameserver.Serve(t, nil).Address)
	testkit.Write(t, d.Path("config.toml"), strings.Replace(string(text), "[http]\n", "[http]\ntokens = \"tokens\"\n", 1))
	token := strings.TrimSpace(d.Must(t, "token", "new", "--name", "helpdesk", "--write"))
	readToken := strings.TrimSpace(d.Must(t, "token", "new", "--name", "viewer"))
	adminToken := strings.TrimSpace(d.Must(t, "token", "new", "--name", "boss", "--admin"))
	d.Unready = true // who has no token is not told
	d.Start(t)
	testkit.Eventually(t, "the daemon's socket", func() bool {
		code, _, _ := d.Command(t, "add", "kept.example", "--why", "phishing, ticket 4711", "--author", "jo")
		return code == 0
	})

	env := []string{"BLOCKD_OPEN_URL=http://" + open.HTTP, "BLOCKD_TOKEN=" + token, "BLOCKD_READ_TOKEN=" + readToken, "BLOCKD_ADMIN_TOKEN=" + adminToken, "BLOCKD_DNS=" + zone, "BLOCKD_RECEIPTS=http://" + receipts}
	if err := browser(t, d, env, specs...).Run(); err != nil {
		t.Fatalf("playwright: %v", err)
	}
	log := d.WholeLog(t)
	for _, secret := range []string{token, readToken, adminToken} {
		if strings.Contains(log, secret) {
			t.Error("a token is in the log")
		}
	}
}
