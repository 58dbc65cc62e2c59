package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
)

// command is one line behind a prompt of a console block, with what the
// document says it prints.
type command struct {
	line int // of the document
	text string
	want []string
}

// consoles returns the console blocks of a document, in order. A prompt is "$ "
// or, for root, "# ".
func consoles(t *testing.T, document string) (blocks [][]command) {
	t.Helper()
	inside := false
	for i, line := range lines(t, filepath.Join(root, document)) {
		switch {
		case line == "```console":
			inside = true
			blocks = append(blocks, nil)
		case strings.HasPrefix(line, "```"):
			inside = false
		case inside:
			block := &blocks[len(blocks)-1]
			if text, ok := strings.CutPrefix(line, "$ "); ok {
				*block = append(*block, command{line: i + 1, text: text})
			} else if text, ok := strings.CutPrefix(line, "# "); ok {
				*block = append(*block, command{line: i + 1, text: text})
			} else if len(*block) > 0 {
				last := &(*block)[len(*block)-1]
				last.want = append(last.want, line)
			} else {
				t.Errorf("%s:%d: output before the first prompt", document, i+1)
			}
		}
	}
	return blocks
}

// fenced returns the texts of a document's blocks in the given language.
func fenced(t *testing.T, document, language string) (blocks []string) {
	t.Helper()
	inside := false
	for _, line := range lines(t, filepath.Join(root, document)) {
		switch {
		case line == "```"+language:
			inside = true
			blocks = append(blocks, "")
		case strings.HasPrefix(line, "```"):
			inside = false
		case inside:
			blocks[len(blocks)-1] += line + "\n"
		}
	}
	return blocks
}

// pattern turns shown output into a regular expression: "…" stands for any text
// within a line, and alone on a line for any lines.
func pattern(want []string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`\A`)
	for _, line := range want {
		if strings.TrimSpace(line) == "…" {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " ")), "…", ".*") + ` *\n`)
	}
	b.WriteString(`\z`)
	return regexp.MustCompile(b.String())
}

// perform runs the commands of a document in dir. Where a command's output is
// not yet what is shown it is run again for a while: a reader waits a second for
// a saved list to act, and so may the test.
func perform(t *testing.T, document, dir string, env []string, commands []command) {
	t.Helper()
	performAs(t, document, dir, env, commands, func(out []byte) []byte { return out })
}

// performAs is perform where documents and outputs are compared as a function makes them.
func performAs(t *testing.T, document, dir string, env []string, commands []command, as func([]byte) []byte) {
	t.Helper()
	for _, c := range commands {
		for i, line := range c.want {
			c.want[i] = string(as([]byte(line)))
		}
		want := pattern(c.want)
		var got []byte
		shown := func() bool {
			cmd := exec.Command("bash", "-c", c.text)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
			got, _ = cmd.CombinedOutput()                             // the exit status is the reader's to see, the output is what is shown
			got = bytes.ReplaceAll(got, []byte("\r\n"), []byte("\n")) // mail has CRLF, and looks the same
			got = as(got)
			return want.Match(got)
		}
		deadline := time.Now().Add(2 * time.Minute)
		for !shown() {
			if time.Now().After(deadline) || len(c.want) == 0 {
				t.Fatalf("%s:%d: $ %s\nprinted:\n%s\nthe document shows:\n%s", document, c.line, c.text, got, strings.Join(c.want, "\n"))
			}
		}
	}
}

// checkout copies the project's files, so that a trial leaves no trace in them.
func checkout(t *testing.T) string {
	t.Helper()
	list := exec.Command("git", "ls-files", "-co", "--exclude-standard", "-z")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		testkit.Missing(t, "this is no git checkout: "+err.Error())
	}
	dir := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(root, name), filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return dir
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// TestReadmeTrial does what a newcomer does: starts `make run` in a fresh copy
// of the checkout and types the commands of "Try it".
func TestReadmeTrial(t *testing.T) {
	testkit.Peer(t, "curl")
	blocks := consoles(t, "README.md")
	if len(blocks) < 3 {
		t.Fatalf("README.md has %d console blocks, want the two commands, the trial and Postfix", len(blocks))
	}
	trial := slices.Concat(blocks[1 : len(blocks)-1]...)
	if len(blocks[0]) != 2 || blocks[0][0].text != "make run" || blocks[0][1].text != "make test" {
		t.Fatalf("README.md opens with %v, want make run and make test", blocks[0])
	}
	if listens("127.0.0.1:2525") || listens("127.0.0.1:8025") {
		t.Fatal("somebody listens on 127.0.0.1:2525 or :8025, where the shipped configuration listens: stop it first")
	}

	dir := checkout(t)
	log := &testkit.Log{}
	run := exec.Command("make", "run")
	run.Dir = dir
	keys := onTerminal(t, run, log)
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
			t.Logf("make run printed:\n%s", tail(log.String(), 8000))
		}
	})
	testkit.Within(t, "make run to build and serve", 15*time.Minute, func() bool { // drivers of databases are large: two to three minutes of processor time
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("make run ended: %v\n%s", err, log)
		default:
		}
		return listens("127.0.0.1:2525")
	})
	perform(t, "README.md", dir, nil, trial)
}

// TestReadmePostfix follows README's "In front of Postfix" on a real Postfix:
// its commands on that instance's configuration, its config.toml in blockd.
func TestReadmePostfix(t *testing.T) {
	testkit.Peer(t, "swaks")
	if listens("127.0.0.1:25") || listens("127.0.0.1:10025") {
		t.Fatal("somebody listens on 127.0.0.1:25 or :10025, where README.md puts Postfix: stop it first")
	}
	p := startPostfix(t, "127.0.0.1:25")
	blocks := consoles(t, "README.md")
	perform(t, "README.md", p.dir, []string{"MAIL_CONFIG=" + p.config}, blocks[len(blocks)-1])
	testkit.Eventually(t, "Postfix to listen behind blockd", func() bool { return listens("127.0.0.1:10025") })
	testkit.Eventually(t, "Postfix to leave port 25", func() bool { return !listens(p.smtp) })

	tables := fenced(t, "README.md", "toml")
	if len(tables) != 1 || !strings.Contains(tables[0], `listen = "0.0.0.0:25"`) {
		t.Fatalf("README.md has %d toml blocks, want one that listens on port 25", len(tables))
	}
	dir := t.TempDir()
	d := &daemon{dir: dir, smtp: freeAddress(t), http: freeAddress(t)}
	config := strings.NewReplacer("0.0.0.0:25", d.smtp, "/var/lib/blockd/", dir+"/").Replace(tables[0])
	testkit.Write(t, d.path("config.toml"), config+fmt.Sprintf("\n[milter]\nlisten = \"\"\n\n[postfix]\npolicy_listen = \"\"\n\n[http]\nlisten = %q\n", d.http))
	if err := os.MkdirAll(d.path("lists"), 0o755); err != nil {
		t.Fatal(err)
	}
	testkit.Write(t, d.path("lists/senders.txt"), "spammer@bulk.example\n")
	// The certificate comes as certbot's hook brings it.
	live := t.TempDir()
	pair := selfsigned.New(t, "mx.here.example")
	testkit.Write(t, filepath.Join(live, "fullchain.pem"), string(pair.CertPEM))
	testkit.Write(t, filepath.Join(live, "privkey.pem"), string(pair.KeyPEM))
	hook := exec.Command(filepath.Join(root, "packaging/certbot/blockd"), d.path("tls"), strconv.Itoa(os.Getgid()))
	hook.Env = append(os.Environ(), "RENEWED_LINEAGE="+live)
	if out, err := hook.CombinedOutput(); err != nil {
		t.Fatalf("the hook of certbot: %v\n%s", err, out)
	}
	d.start(t)

	for _, tt := range []struct{ sender, want string }{
		{"friend@there.example", "<~  250 2.0.0 Ok: queued as "},
		{"spammer@bulk.example", "<~* 550 5.7.1 <spammer@bulk.example>: Sender address rejected: listed in senders (ref "},
	} {
		out, err := exec.Command("swaks", "--tls", "--server", d.smtp, "--from", tt.sender, "--to", "you@here.example").CombinedOutput()
		if !strings.Contains(string(out), tt.want) {
			t.Errorf("swaks --from %s (%v) printed\n%s\nwant a line %q", tt.sender, err, out, tt.want)
		}
	}
	testkit.Eventually(t, "Postfix to deliver", func() bool { return len(messages(t, p.maildir)) == 1 })
}
