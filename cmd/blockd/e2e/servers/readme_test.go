package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
)

// TestReadmePostfix follows README's "In front of Postfix" on a real Postfix:
// its commands on that instance's configuration, its config.toml in blockd.
func TestReadmePostfix(t *testing.T) {
	testkit.Peer(t, "swaks")
	if e2e.Listens("127.0.0.1:25") || e2e.Listens("127.0.0.1:10025") {
		t.Fatal("somebody listens on 127.0.0.1:25 or :10025, where README.md puts Postfix: stop it first")
	}
	p := e2e.StartPostfix(t, "127.0.0.1:25")
	blocks := e2e.Consoles(t, "README.md")
	e2e.Perform(t, "README.md", p.Dir, []string{"MAIL_CONFIG=" + p.Config}, blocks[len(blocks)-1])
	testkit.Eventually(t, "Postfix to listen behind blockd", func() bool { return e2e.Listens("127.0.0.1:10025") })
	testkit.Eventually(t, "Postfix to leave port 25", func() bool { return !e2e.Listens(p.SMTP) })

	tables := e2e.Fenced(t, "README.md", "toml")
	if len(tables) != 1 || !strings.Contains(tables[0], `listen = "0.0.0.0:25"`) {
		t.Fatalf("README.md has %d toml blocks, want one that listens on port 25", len(tables))
	}
	dir := t.TempDir()
	d := &e2e.Daemon{Dir: dir, SMTP: e2e.FreeAddress(t), HTTP: e2e.FreeAddress(t)}
	config := strings.NewReplacer("0.0.0.0:25", d.SMTP, "/var/lib/blockd/", dir+"/").Replace(tables[0])
	testkit.Write(t, d.Path("config.toml"), config+fmt.Sprintf("\n[milter]\nlisten = \"\"\n\n[postfix]\npolicy_listen = \"\"\n\n[http]\nlisten = %q\n", d.HTTP))
	testkit.Must(t, os.MkdirAll(d.Path("lists"), 0o755))
	testkit.Write(t, d.Path("lists/senders.txt"), "spammer@bulk.example\n")
	// The certificate comes as certbot's hook brings it.
	live := t.TempDir()
	pair := selfsigned.New(t, "mx.here.example")
	testkit.Write(t, filepath.Join(live, "fullchain.pem"), string(pair.CertPEM))
	testkit.Write(t, filepath.Join(live, "privkey.pem"), string(pair.KeyPEM))
	hook := exec.Command(filepath.Join(e2e.Root, "packaging/certbot/blockd"), d.Path("tls"), strconv.Itoa(os.Getgid()))
	hook.Env = append(os.Environ(), "RENEWED_LINEAGE="+live)
	e2e.Ran(t, hook)
	d.Start(t)

	for _, tt := range []struct{ sender, want string }{
		{"friend@there.example", "<~  250 2.0.0 Ok: queued as "},
		{"spammer@bulk.example", "<~* 550 5.7.1 <spammer@bulk.example>: Sender address rejected: listed in senders (ref "},
	} {
		out, err := exec.Command("swaks", "--tls", "--server", d.SMTP, "--from", tt.sender, "--to", "you@here.example").CombinedOutput()
		if !strings.Contains(string(out), tt.want) {
			t.Errorf("swaks --from %s (%v) printed\n%s\nwant a line %q", tt.sender, err, out, tt.want)
		}
	}
	testkit.Eventually(t, "Postfix to deliver", func() bool { return len(e2e.Messages(t, p.Maildir)) == 1 })
}
