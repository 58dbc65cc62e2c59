package program

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// maintainers serve a list by https on this machine, and have the daemons that are started later trust their certificate.
func maintainers(t *testing.T) (url string) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("throwaway.example\n")) }))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	testkit.Write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	t.Setenv("SSL_CERT_FILE", file)
	t.Setenv("HTTPS_PROXY", "")
	return s.URL
}

const withListsFile = "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n"

// serveListsFile serves with http.lists_file, which may have lists of this machine.
func serveListsFile(t *testing.T) *e2e.Daemon {
	t.Helper()
	d := e2e.Configure(t, e2e.Setup{Lists: withListsFile, Files: map[string]string{"bad.txt": "bulk.example\n"}})
	allowListsFile(t, d)
	d.Start(t)
	return d
}

func allowListsFile(t *testing.T, d *e2e.Daemon) {
	t.Helper()
	text := string(testkit.Read(t, d.Path("config.toml")))
	testkit.Write(t, d.Path("config.toml"), strings.Replace(text, "[http]\n", "[http]\nlists_file = \"lists.toml\"\nlists_from = [\"127.0.0.1\"]\n", 1))
}

// An administrator adds a list, which watches, lets it count, and takes it away. An SMTP session that is open feels none of it,
// nothing of the configuration is touched, and each step has its line in the journal.
func TestListsOverHTTP(t *testing.T) {
	url := maintainers(t)
	d := serveListsFile(t)
	own := string(testkit.Read(t, d.Path("config.toml")))
	open := e2e.DialTalk(t, d.SMTP)
	open.Command("EHLO client.example")
	send := func() string {
		return e2e.DialSMTP(t, d.SMTP).Send("x@throwaway.example", "you@here.example", []byte("Subject: hello\r\n\r\nhello\r\n"))
	}

	c := d.Changed(t, "POST", "/v1/subscriptions", `{"what":"`+url+`/throwaway.txt","why":"ticket 4711","author":"anna"}`)
	if c.List != "throwaway" || c.Mode != "shadow" {
		t.Errorf("added: %+v", c)
	}
	d.Says(t, "/v1/check?sender=x@throwaway.example", `"list":"throwaway"`, `"mode":"shadow"`)
	testkit.Begins(t, "in shadow mode", send(), "250 ")
	testkit.Has(t, d.Must(t, "config", "--effective"), "throwaway")
	testkit.Has(t, d.Must(t, "subscribe", "throwaway"), "throwaway watches since")

	if c = d.Changed(t, "POST", "/v1/subscriptions/throwaway/enforce", ""); c.Mode != "enforce" {
		t.Errorf("enforced: %+v", c)
	}
	testkit.Eventually(t, "the list to count", func() bool { return strings.HasPrefix(send(), "550 ") })
	testkit.Begins(t, "the open session", open.Command("NOOP"), "250")

	if c = d.Changed(t, "DELETE", "/v1/subscriptions/throwaway?why=enough", ""); c.Mode != "gone" {
		t.Errorf("removed: %+v", c)
	}
	testkit.Eventually(t, "the list to be gone", func() bool { return strings.HasPrefix(send(), "250 ") })
	if _, err := os.Stat(d.Path("subscribed/throwaway")); !os.IsNotExist(err) {
		t.Errorf("the copy of the list: %v", err)
	}
	for _, line := range []string{"MAIL FROM:<a@there.example>", "RCPT TO:<you@here.example>", "RSET", "QUIT"} {
		testkit.Begins(t, "the session that was open all the time: "+line, open.Command(line), "2")
	}
	testkit.Equal(t, "the configuration", string(testkit.Read(t, d.Path("config.toml"))), own)
	if out := d.Must(t, "audit", "--json"); strings.Count(out, `"action":"list.add"`) != 1 || !strings.Contains(out, "ticket 4711") || !strings.Contains(out, `"by":"anna`) ||
		strings.Count(out, `"action":"list.enforce"`) != 1 || strings.Count(out, `"action":"list.remove"`) != 1 || !strings.Contains(out, "enough") {
		t.Errorf("the journal has\n%s", out)
	}
}

// What is refused changes nothing, and says why.
func TestListsOverHTTPRefused(t *testing.T) {
	url := maintainers(t)
	d := serveListsFile(t)
	refused := func(status int, want, method, path, body string, header ...string) {
		t.Helper()
		if code, text := d.Changes(t, method, path, body, header...); code != status || !strings.Contains(text, want) {
			t.Errorf("%s %s %s: %d %s, want %d and %q", method, path, body, code, text, status, want)
		}
		if _, err := os.Stat(d.Path("lists.toml")); !os.IsNotExist(err) {
			t.Errorf("%s %s %s: the file is there: %v", method, path, body, err)
		}
	}
	for what, want := range map[string]string{
		"": "want a name of the catalogue", "/etc/passwd": "want a name of the catalogue", "https://10.1.2.3/x": "10.1.2.3 is not of the public internet",
		"https://169.254.169.254/latest": "not of the public internet", "https://u:p@lists.example/x": "password", `https://lists.example/\n[smtp]`: "",
	} {
		refused(400, want, "POST", "/v1/subscriptions", `{"what":"`+what+`"}`)
	}
	refused(409, "somebody has written the list into the configuration", "DELETE", "/v1/subscriptions/bad", "")
	refused(404, "no list", "POST", "/v1/subscriptions/none/enforce", "")
	refused(412, "have changed meanwhile", "POST", "/v1/subscriptions", `{"what":"`+url+`/a"}`, `If-Match: "0123456789abcdef"`)

	// What the owner has written and not taken up stays so.
	text := string(testkit.Read(t, d.Path("config.toml")))
	testkit.Write(t, d.Path("config.toml"), text+"[refusal]\ncontact = \"https://help.example/\"\n")
	refused(409, "changes that are not taken up yet (refusal.contact)", "POST", "/v1/subscriptions", `{"what":"`+url+`/a"}`)
	testkit.Write(t, d.Path("config.toml"), text+"[refusal]\ncontact = 7\n")
	refused(409, "the configuration has faults", "POST", "/v1/subscriptions", `{"what":"`+url+`/a"}`)
	testkit.Write(t, d.Path("config.toml"), text)
	// The Unix socket may change entries, and not where lists come from.
	r, _ := http.NewRequest("POST", "http://blockd/v1/subscriptions", strings.NewReader(`{"what":"ipsum-4"}`))
	if answer, err := d.SocketClient().Do(r); err != nil || answer.StatusCode != 403 {
		t.Errorf("by the socket: %v, %v", answer, err)
	} else {
		answer.Body.Close()
	}
}

// A process that is killed after the file is written and before it is taken up: the next one reads the file.
func TestListsOverHTTPKilled(t *testing.T) {
	url := maintainers(t)
	d := serveListsFile(t)
	token := d.FirstToken(t)
	var answered atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, _ := http.NewRequest("POST", "http://"+d.HTTP+"/v1/subscriptions", strings.NewReader(`{"what":"`+url+`/throwaway.txt"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		if answer, err := http.DefaultClient.Do(r); err == nil {
			answer.Body.Close()
			answered.Store(true)
		}
	}()
	testkit.Eventually(t, "the file to be written", func() bool {
		_, err := os.Stat(d.Path("lists.toml"))
		return err == nil
	})
	d.Kill(t)
	<-done
	t.Logf("it was killed before it answered: %v", !answered.Load())
	d.Start(t)
	d.Says(t, "/v1/check?sender=x@throwaway.example", `"list":"throwaway"`)
	if c := d.Changed(t, "DELETE", "/v1/subscriptions/throwaway", ""); c.Mode != "gone" {
		t.Errorf("%+v", c)
	}
}

// A change that the next process cannot take up is taken back, and told; the next change is made.
func TestListsOverHTTPTakenBack(t *testing.T) {
	url := maintainers(t)
	d := e2e.Configure(t, e2e.Setup{Lists: withListsFile, Files: map[string]string{"bad.txt": "bulk.example\n"}})
	allowListsFile(t, d)
	file := filepath.Join(t.TempDir(), "blockd")
	if err := os.Link(e2e.Program, file); err != nil {
		text, err := os.ReadFile(e2e.Program)
		if err == nil {
			err = os.WriteFile(file, text, 0o700)
		}
		testkit.Must(t, err)
	}
	d.Run(t, exec.Command(file, "serve", "-c", d.Path("config.toml")))
	testkit.Must(t, os.Rename(file, file+".good"))
	testkit.Write(t, file, "#!/bin/sh\nexit 1\n")
	testkit.Must(t, os.Chmod(file, 0o700))
	code, text := d.Changes(t, "POST", "/v1/subscriptions", `{"what":"`+url+`/throwaway.txt"}`)
	if code != 503 || !strings.Contains(text, "nothing is changed, because the change could not be taken up") {
		t.Errorf("%d %s", code, text)
	}
	if _, err := os.Stat(d.Path("lists.toml")); !os.IsNotExist(err) {
		t.Errorf("the file is there: %v", err)
	}
	if _, body := d.Get("/readyz"); strings.Contains(body, "configuration not taken up") {
		t.Errorf("/readyz: %s", body)
	}
	if out := d.Must(t, "audit", "--json"); strings.Count(out, `"action":"failed","subject":"list.add throwaway"`) != 1 {
		t.Errorf("the journal has\n%s", out)
	}
	testkit.Must(t, os.Rename(file+".good", file))
	if c := d.Changed(t, "POST", "/v1/subscriptions", `{"what":"`+url+`/throwaway.txt"}`); c.List != "throwaway" {
		t.Errorf("%+v", c)
	}
}
