package program

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
)

// checkout copies the project's files, so that a trial leaves no trace in them.
func checkout(t *testing.T) string {
	t.Helper()
	list := exec.Command("git", "ls-files", "-co", "--exclude-standard", "-z")
	list.Dir = e2e.Root
	out, err := list.Output()
	if err != nil {
		testkit.Missing(t, "this is no git checkout: "+err.Error())
	}
	dir := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if err := e2e.CopyFile(filepath.Join(e2e.Root, name), filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return dir
}

// TestReadmeTrial does what a newcomer does: starts `make run` in a fresh copy
// of the checkout and types the commands of "Try it".
func TestReadmeTrial(t *testing.T) {
	testkit.Peer(t, "curl")
	blocks := e2e.Consoles(t, "README.md")
	if len(blocks) < 3 {
		t.Fatalf("README.md has %d console blocks, want the two commands, the trial and Postfix", len(blocks))
	}
	trial := slices.Concat(blocks[1 : len(blocks)-1]...)
	if len(blocks[0]) != 2 || blocks[0][0].Text != "make run" || blocks[0][1].Text != "make test" {
		t.Fatalf("README.md opens with %v, want make run and make test", blocks[0])
	}
	if e2e.Listens("127.0.0.1:2525") || e2e.Listens("127.0.0.1:8025") {
		t.Fatal("somebody listens on 127.0.0.1:2525 or :8025, where the shipped configuration listens: stop it first")
	}

	dir := checkout(t)
	log := &testkit.Log{}
	run := exec.Command("make", "run")
	run.Dir = dir
	keys := e2e.OnTerminal(t, run, log)
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	t.Cleanup(func() {
		io.WriteString(keys, "\x03") // Ctrl-C
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("make run ended by Ctrl-C: %v", err)
			}
		case <-time.After(60 * time.Second):
			run.Process.Kill()
			t.Error("make run did not end within 60 s of Ctrl-C")
		}
		if t.Failed() {
			t.Logf("make run printed:\n%s", e2e.Tail(log.String(), 8000))
		}
	})
	testkit.Within(t, "make run to build and serve", 15*time.Minute, func() bool { // drivers of databases are large: two to three minutes of processor time
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("make run ended: %v\n%s", err, log)
		default:
		}
		return e2e.Listens("127.0.0.1:2525")
	})
	e2e.Perform(t, "README.md", dir, nil, trial)
}

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
	if err := os.MkdirAll(d.Path("lists"), 0o755); err != nil {
		t.Fatal(err)
	}
	testkit.Write(t, d.Path("lists/senders.txt"), "spammer@bulk.example\n")
	// The certificate comes as certbot's hook brings it.
	live := t.TempDir()
	pair := selfsigned.New(t, "mx.here.example")
	testkit.Write(t, filepath.Join(live, "fullchain.pem"), string(pair.CertPEM))
	testkit.Write(t, filepath.Join(live, "privkey.pem"), string(pair.KeyPEM))
	hook := exec.Command(filepath.Join(e2e.Root, "packaging/certbot/blockd"), d.Path("tls"), strconv.Itoa(os.Getgid()))
	hook.Env = append(os.Environ(), "RENEWED_LINEAGE="+live)
	if out, err := hook.CombinedOutput(); err != nil {
		t.Fatalf("the hook of certbot: %v\n%s", err, out)
	}
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
