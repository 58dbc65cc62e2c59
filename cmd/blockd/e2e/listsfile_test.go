package e2e

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"blockd/doors/httpapi"
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

// changes asks for a change of the lists with the first token, and returns its status and its answer.
func (d *daemon) changes(t *testing.T, method, path, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+d.http+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.firstToken(t))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// changed is changes that are to be made.
func (d *daemon) changed(t *testing.T, method, path, body string) (c httpapi.SubscriptionChanged) {
	t.Helper()
	status, text := d.changes(t, method, path, body)
	if err := json.Unmarshal([]byte(text), &c); status != 200 || err != nil {
		t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return c
}

const withListsFile = "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n"

// serveListsFile serves with http.lists_file, which may have lists of this machine.
func serveListsFile(t *testing.T) *daemon {
	t.Helper()
	d := configure(t, setup{lists: withListsFile, files: map[string]string{"bad.txt": "bulk.example\n"}})
	allowListsFile(t, d)
	d.start(t)
	return d
}

func allowListsFile(t *testing.T, d *daemon) {
	t.Helper()
	text := string(testkit.Read(t, d.path("config.toml")))
	testkit.Write(t, d.path("config.toml"), strings.Replace(text, "[http]\n", "[http]\nlists_file = \"lists.toml\"\nlists_from = [\"127.0.0.1\"]\n", 1))
}

// An administrator adds a list, which watches, lets it count, and takes it away. An SMTP session that is open feels none of it,
// nothing of the configuration is touched, and each step has its line in the journal.
func TestListsOverHTTP(t *testing.T) {
	url := maintainers(t)
	d := serveListsFile(t)
	own := string(testkit.Read(t, d.path("config.toml")))
	open := dialTalk(t, d.smtp)
	open.command("EHLO client.example")
	send := func() string {
		return dialSMTP(t, d.smtp).send("x@throwaway.example", "you@here.example", []byte("Subject: hello\r\n\r\nhello\r\n"))
	}

	c := d.changed(t, "POST", "/v1/subscriptions", `{"what":"`+url+`/throwaway.txt","why":"ticket 4711","author":"anna"}`)
	if c.List != "throwaway" || c.Mode != "shadow" {
		t.Errorf("added: %+v", c)
	}
	testkit.Eventually(t, "the list to be fetched", func() bool {
		_, body := d.get("/v1/check?sender=x@throwaway.example")
		return strings.Contains(body, `"list":"throwaway"`) && strings.Contains(body, `"mode":"shadow"`)
	})
	if reply := send(); !strings.HasPrefix(reply, "250 ") {
		t.Errorf("in shadow mode: %s", reply)
	}
	if out := d.must(t, "config", "--effective"); !strings.Contains(out, "throwaway") {
		t.Errorf("blockd config does not see the list:\n%s", out)
	}
	if out := d.must(t, "subscribe", "throwaway"); !strings.Contains(out, "throwaway watches since") {
		t.Errorf("blockd subscribe: %s", out)
	}

	if c = d.changed(t, "POST", "/v1/subscriptions/throwaway/enforce", ""); c.Mode != "enforce" {
		t.Errorf("enforced: %+v", c)
	}
	testkit.Eventually(t, "the list to count", func() bool { return strings.HasPrefix(send(), "550 ") })
	if reply := open.command("NOOP"); !strings.HasPrefix(reply, "250") {
		t.Errorf("the open session: %s", reply)
	}

	if c = d.changed(t, "DELETE", "/v1/subscriptions/throwaway?why=enough", ""); c.Mode != "gone" {
		t.Errorf("removed: %+v", c)
	}
	testkit.Eventually(t, "the list to be gone", func() bool { return strings.HasPrefix(send(), "250 ") })
	if _, err := os.Stat(d.path("subscribed/throwaway")); !os.IsNotExist(err) {
		t.Errorf("the copy of the list: %v", err)
	}
	for _, line := range []string{"MAIL FROM:<a@there.example>", "RCPT TO:<you@here.example>", "RSET", "QUIT"} {
		if reply := open.command(line); !strings.HasPrefix(reply, "2") {
			t.Errorf("the session that was open all the time: %s: %s", line, reply)
		}
	}
	if now := string(testkit.Read(t, d.path("config.toml"))); now != own {
		t.Errorf("the configuration is now\n%s", now)
	}
	if out := d.must(t, "audit", "--json"); strings.Count(out, `"action":"list.add"`) != 1 || !strings.Contains(out, "ticket 4711") || !strings.Contains(out, `"by":"anna`) ||
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
		if code, text := d.changes(t, method, path, body, header...); code != status || !strings.Contains(text, want) {
			t.Errorf("%s %s %s: %d %s, want %d and %q", method, path, body, code, text, status, want)
		}
		if _, err := os.Stat(d.path("lists.toml")); !os.IsNotExist(err) {
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
	text := string(testkit.Read(t, d.path("config.toml")))
	testkit.Write(t, d.path("config.toml"), text+"[refusal]\ncontact = \"https://help.example/\"\n")
	refused(409, "changes that are not taken up yet (refusal.contact)", "POST", "/v1/subscriptions", `{"what":"`+url+`/a"}`)
	testkit.Write(t, d.path("config.toml"), text+"[refusal]\ncontact = 7\n")
	refused(409, "the configuration has faults", "POST", "/v1/subscriptions", `{"what":"`+url+`/a"}`)
	testkit.Write(t, d.path("config.toml"), text)
	// The Unix socket may change entries, and not where lists come from.
	r, _ := http.NewRequest("POST", "http://blockd/v1/subscriptions", strings.NewReader(`{"what":"ipsum-4"}`))
	if answer, err := d.socketClient().Do(r); err != nil || answer.StatusCode != 403 {
		t.Errorf("by the socket: %v, %v", answer, err)
	} else {
		answer.Body.Close()
	}
}

// A process that is killed after the file is written and before it is taken up: the next one reads the file.
func TestListsOverHTTPKilled(t *testing.T) {
	url := maintainers(t)
	d := serveListsFile(t)
	token := d.firstToken(t)
	var answered atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, _ := http.NewRequest("POST", "http://"+d.http+"/v1/subscriptions", strings.NewReader(`{"what":"`+url+`/throwaway.txt"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		if answer, err := http.DefaultClient.Do(r); err == nil {
			answer.Body.Close()
			answered.Store(true)
		}
	}()
	testkit.Eventually(t, "the file to be written", func() bool {
		_, err := os.Stat(d.path("lists.toml"))
		return err == nil
	})
	d.kill(t)
	<-done
	t.Logf("it was killed before it answered: %v", !answered.Load())
	d.start(t)
	testkit.Eventually(t, "the list to be fetched", func() bool {
		_, body := d.get("/v1/check?sender=x@throwaway.example")
		return strings.Contains(body, `"list":"throwaway"`)
	})
	if c := d.changed(t, "DELETE", "/v1/subscriptions/throwaway", ""); c.Mode != "gone" {
		t.Errorf("%+v", c)
	}
}

// A change that the next process cannot take up is taken back, and told; the next change is made.
func TestListsOverHTTPTakenBack(t *testing.T) {
	url := maintainers(t)
	d := configure(t, setup{lists: withListsFile, files: map[string]string{"bad.txt": "bulk.example\n"}})
	allowListsFile(t, d)
	file := filepath.Join(t.TempDir(), "blockd")
	if err := os.Link(program, file); err != nil {
		text, err := os.ReadFile(program)
		if err == nil {
			err = os.WriteFile(file, text, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d.run(t, exec.Command(file, "serve", "-c", d.path("config.toml")))
	if err := os.Rename(file, file+".good"); err != nil {
		t.Fatal(err)
	}
	testkit.Write(t, file, "#!/bin/sh\nexit 1\n")
	if err := os.Chmod(file, 0o700); err != nil {
		t.Fatal(err)
	}
	code, text := d.changes(t, "POST", "/v1/subscriptions", `{"what":"`+url+`/throwaway.txt"}`)
	if code != 503 || !strings.Contains(text, "nothing is changed, because the change could not be taken up") {
		t.Errorf("%d %s", code, text)
	}
	if _, err := os.Stat(d.path("lists.toml")); !os.IsNotExist(err) {
		t.Errorf("the file is there: %v", err)
	}
	if _, body := d.get("/readyz"); strings.Contains(body, "configuration not taken up") {
		t.Errorf("/readyz: %s", body)
	}
	if out := d.must(t, "audit", "--json"); strings.Count(out, `"action":"failed","subject":"list.add throwaway"`) != 1 {
		t.Errorf("the journal has\n%s", out)
	}
	if err := os.Rename(file+".good", file); err != nil {
		t.Fatal(err)
	}
	if c := d.changed(t, "POST", "/v1/subscriptions", `{"what":"`+url+`/throwaway.txt"}`); c.List != "throwaway" {
		t.Errorf("%+v", c)
	}
}
