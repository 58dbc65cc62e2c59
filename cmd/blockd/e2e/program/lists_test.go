package program

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	d.Edit(t, "[http]\n", "[http]\nlists_file = \"lists.toml\"\nlists_from = [\"127.0.0.1\"]\n")
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

// Somebody subscribes to a list, sees whom it would have refused, lets it count, and takes it away; the daemon takes up each
// step, and all else in the file stays. The maintainers are a server of this machine here: the address is changed by
// hand, and before that a proxy that is none keeps every request on the machine.
func TestSubscribe(t *testing.T) {
	maintainers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("throwaway.example\n")) }))
	defer maintainers.Close()
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:9")
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", Files: map[string]string{"bad.txt": "bulk.example\n"}})
	testkit.Write(t, d.Path("config.toml"), "# my own words\n"+string(testkit.Read(t, d.Path("config.toml"))))
	before := string(testkit.Read(t, d.Path("config.toml")))

	out := d.Must(t, "subscribe", "disposable-domains")
	if !strings.Contains(out, "It refuses nobody.") || !strings.Contains(out, "disposable-email-domains/issues") {
		t.Errorf("subscribe: %s", out)
	}
	text := string(testkit.Read(t, d.Path("config.toml")))
	if !strings.HasPrefix(text, before) || !strings.Contains(text, "mode = \"shadow\"\n") {
		t.Errorf("the file is now\n%s", text)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "url = ") {
			text = strings.Replace(text, line, "url = \""+maintainers.URL+"/list.txt\"\n", 1)
		}
	}
	testkit.Write(t, d.Path("config.toml"), text)
	if code, out := d.Reloaded(t); code != 0 {
		t.Fatalf("reload: %d, %s", code, out)
	}
	d.Says(t, "/v1/check?sender=x@throwaway.example", `"list":"disposable-domains"`)
	send := func() string {
		return e2e.DialSMTP(t, d.SMTP).Send("x@throwaway.example", "you@here.example", []byte("Subject: hello\r\n\r\nhello\r\n"))
	}
	for range 2 {
		testkit.Begins(t, "in shadow mode", send(), "250 ")
	}
	testkit.Eventually(t, "the history to be told", func() bool {
		out := d.Must(t, "subscribe", "disposable-domains")
		return strings.Contains(out, "It would have refused 2 mails from 1 sender.") && strings.Contains(out, "x@throwaway.example")
	})
	code, out, notes := d.Command(t, "subscribe", "--enforce", "disposable-domains")
	if code != 0 || out != "disposable-domains counts from now on\n" || !strings.Contains(notes, "a week shows mail of every weekday") {
		t.Errorf("enforce: %d, %q, %q", code, out, notes)
	}
	testkit.Eventually(t, "the list to count", func() bool { return strings.HasPrefix(send(), "550 ") })
	testkit.Has(t, d.Must(t, "subscribe", "disposable-domains"), "blockd history --list disposable-domains")
	testkit.Begins(t, "remove", d.Must(t, "subscribe", "--remove", "disposable-domains"), "removed: disposable-domains")
	testkit.Equal(t, "the file", string(testkit.Read(t, d.Path("config.toml"))), before)
	testkit.Eventually(t, "the list to be gone", func() bool { return strings.HasPrefix(send(), "250 ") })
}

// A list refuses somebody it should not. It is paused, at once and for another process that takes over, after a restart and after a kill;
// resumed, it refuses again.
func TestPause(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n[[list]]\nname = \"other\"\npath = \"other.txt\"\n",
		Files: map[string]string{"bad.txt": "bank.example\n", "other.txt": "bulk.example\n"}})
	send := func(sender string) string {
		return e2e.DialSMTP(t, d.SMTP).Send(sender, "you@here.example", []byte("Subject: hello\r\n\r\nhello\r\n"))
	}
	count := func(when, sender, code string) {
		t.Helper()
		testkit.Begins(t, fmt.Sprintf("%s, %s", when, sender), send(sender), code)
	}
	count("at first", "a@bank.example", "550 ")
	testkit.Begins(t, "pause", d.Must(t, "pause", "bad", "--for", "2h", "--why", "refuses our bank"), "paused: bad does not count until ")
	paused := func(when string) {
		t.Helper()
		count(when, "a@bank.example", "250 ")
		count(when, "a@bulk.example", "550 ")
		if status, text := d.Get("/readyz"); status != 200 || !strings.HasPrefix(text, "ok\n") || !strings.Contains(text, "list bad is paused until ") || !strings.Contains(text, ": refuses our bank\n") {
			t.Errorf("%s, /readyz: %d, %q", when, status, text)
		}
		testkit.Has(t, d.Must(t, "lists"), "paused")
		testkit.Has(t, d.Ends(t, 1, "check", "--explain", "a@bank.example"), "(paused: does not count)")
	}
	paused("at once")
	d.Prints(t, "history --list bad --verdict clear", "a@bank.example")
	d.Stop(t)
	d.Start(t)
	paused("after a restart")
	d.Kill(t)
	d.Start(t)
	paused("after a kill")
	d.Upgraded(t)
	paused("after another process has taken over")
	testkit.Write(t, d.Path("bad.txt"), "bank.example\nbank2.example\n")
	d.Says(t, "/v1/check?sender=x@bank2.example", `"mode":"paused"`)
	count("after a reload", "a@bank2.example", "250 ")
	testkit.Equal(t, "resume", d.Must(t, "resume", "bad"), "resumed: bad counts\n")
	count("resumed", "a@bank.example", "550 ")
	testkit.Has(t, d.Ends(t, 1, "resume", "bad"), "is not paused")
}

// A bad update of a list under review waits, and refuses nobody until it is adopted; a rollback takes it back, and both outlast a
// restart, a kill, and another process that takes over.
func TestUndo(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"bulk\"\npath = \"bulk.txt\"\nadopt = \"review\"\n[[list]]\nname = \"other\"\npath = \"other.txt\"\n",
		Files: map[string]string{"bulk.txt": "old.example\n", "other.txt": "other.example\n"}})
	want := func(when, sender, code string) {
		t.Helper()
		testkit.Begins(t, fmt.Sprintf("%s, %s", when, sender), e2e.DialSMTP(t, d.SMTP).Send(sender, "you@here.example", []byte("Subject: hello\r\n\r\nhello\r\n")), code)
	}
	ready := func(when, remark string) {
		t.Helper()
		testkit.Eventually(t, when+": /readyz to say "+remark, func() bool {
			status, text := d.Get("/readyz")
			return status == 200 && strings.HasPrefix(text, "ok\n") && strings.Contains(text, remark)
		})
	}
	says := func(want string, args ...string) {
		t.Helper()
		testkit.Has(t, d.Must(t, args...), want)
	}
	ready("a new list", "list bulk has nothing yet: its first load (1 entry) waits: blockd adopt bulk")
	want("before the first adoption", "a@old.example", "250 ")
	want("before the first adoption", "a@other.example", "550 ")
	row := func(when, begins, note string, args ...string) {
		t.Helper()
		_, out, notes := d.Command(t, append([]string{"lists"}, args...)...)
		if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			return strings.Join(strings.Fields(line)[:min(3, len(strings.Fields(line)))], " ") == begins
		}) || !strings.Contains(out, note) {
			t.Errorf("%s: lists says\n%s%s, want a row %q and %q", when, out, notes, begins, note)
		}
	}
	notes := func(when, note string, args ...string) {
		t.Helper()
		if _, _, got := d.Command(t, append([]string{"check"}, args...)...); !strings.Contains(got, note) || strings.Contains(got, "has changed since") || strings.Contains(got, "configured otherwise") {
			t.Errorf("%s: check notes %q, want %q", when, got, note)
		}
	}
	row("a new list", "bulk - 0", "list bulk has nothing yet: its first load (1 entry) waits: blockd adopt bulk")
	notes("a new list", "list bulk has nothing yet", "a@old.example")
	notes("a new list, by the file", "list bulk has nothing yet", "--file", "a@old.example")
	says("adopted: bulk\n", "adopt", "bulk")
	want("adopted", "a@old.example", "550 ")

	want("before the bad update", "a@bank.example", "250 ")
	testkit.Write(t, d.Path("bulk.txt"), "old.example\nbank.example\n")
	ready("a bad update", "list bulk serves what it had at ")
	waits := func(when string) {
		t.Helper()
		want(when, "a@bank.example", "250 ")
		want(when, "a@old.example", "550 ")
		says("+ bank.example\n", "diff", "bulk")
	}
	waits("a bad update")
	testkit.Eventually(t, "the history to have the mail of the bank", func() bool {
		return strings.Contains(d.Must(t, "diff", "bulk", "--mail"), "+ a@bank.example")
	})
	var proposal struct {
		Content string `json:"content"`
		Waits   bool   `json:"waits"`
		Weighed struct {
			Mail struct{ Decisions, Refused, Passed int }
		} `json:"weighed"`
	}
	if err := json.Unmarshal([]byte(d.Must(t, "diff", "bulk", "--json")), &proposal); err != nil || !proposal.Waits || proposal.Weighed.Mail.Refused != 1 || proposal.Weighed.Mail.Passed != 0 {
		t.Fatalf("%+v, %v", proposal, err)
	}
	row("a bad update", "bulk block 1", "list bulk, against what waits: of ")
	notes("a bad update", "list bulk serves what it had at ", "a@old.example")
	d.Stop(t)
	row("without a daemon", "bulk block 1", "list bulk serves what it had at ")
	notes("without a daemon", "list bulk serves what it had at ", "a@old.example")
	says("  ", "compile") // of what the list is held to
	notes("compiled", "list bulk serves what it had at ", "a@old.example")
	d.Start(t)
	waits("after a restart")
	testkit.Has(t, d.Ends(t, 1, "adopt", "bulk", "--if", "0123456789abcdef"), "what waits is another content by now")
	says("adopted: bulk\n", "adopt", "bulk", "--if", proposal.Content)
	want("adopted", "a@bank.example", "550 ")

	says("rolled back: bulk serves what it had at ", "rollback", "bulk", "--why", "refuses our bank")
	back := func(when string) {
		t.Helper()
		ready(when, "(rollback)")
		want(when, "a@bank.example", "250 ")
		want(when, "a@old.example", "550 ")
	}
	back("rolled back")
	row("rolled back", "bulk block 1", "(rollback)")
	notes("rolled back", "(rollback)", "a@bank.example")
	d.Kill(t)
	d.Start(t)
	back("after a kill")
	d.Upgraded(t)
	back("after another process has taken over")
	says(": refuses our bank\n", "generations")
	ready("the proposal is seen again", "; a change waits (+1 -0 entries): blockd adopt bulk")
	says("adopted: bulk\n", "adopt", "bulk")
	want("adopted again", "a@bank.example", "550 ")
	// It says what the lists serve, a moment after the swap that a mail has met.
	testkit.Eventually(t, "/readyz to be ok after all", func() bool { _, text := d.Get("/readyz"); return text == "ok\n" })
	journal := d.Must(t, "audit")
	for action, n := range map[string]int{"list.adopt": 3, "list.rollback": 1} {
		testkit.Equal(t, "lines "+action+" in the journal", strings.Count(journal, action), n)
	}
}

// A list that counts for half of the senders counts for the same ones after a restart, an upgrade and a reload of its file; more percent
// add senders, by a reload of the configuration, without a build.
func TestPercent(t *testing.T) {
	const senders = 200
	var text strings.Builder
	for i := range senders {
		fmt.Fprintf(&text, "domain%d.example\n", i)
	}
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"new\"\npath = \"new.txt\"\nformat = \"plain\"\npercent = 50\n", Files: map[string]string{"new.txt": text.String()}})
	blocked := func() (which string) {
		t.Helper()
		var args = []string{"check"}
		for i := range senders {
			args = append(args, fmt.Sprintf("a@mx.domain%d.example", i))
		}
		_, out, _ := d.Command(t, args...)
		for line := range strings.Lines(out) {
			if fields := strings.Split(line, "\t"); fields[1] == "blocked" {
				which += "+"
			} else {
				which += "-"
			}
		}
		return which
	}
	half := blocked()
	if n := strings.Count(half, "+"); len(half) != senders || n < 60 || n > 140 {
		t.Fatalf("%d of %d are blocked by half", n, len(half))
	}
	spared := strings.Index(half, "-")
	mail := func(want string) {
		t.Helper()
		testkit.Begins(t, "mail of a sender outside of the share", e2e.Ask(t, d.SMTP, fmt.Sprintf("a@mx.domain%d.example", spared)), want)
	}
	mail("250 ")
	same := func(when string) {
		t.Helper()
		testkit.Equal(t, when+": who is blocked", blocked(), half)
	}
	d.Stop(t)
	same("without a daemon")
	d.Start(t)
	same("after a restart")
	d.Upgraded(t)
	same("after another process has taken over")
	testkit.Has(t, d.Must(t, "lists"), "block 50%")
	_, generation := d.Get("/v1/check?sender=x@clear.example")
	d.Edit(t, "percent = 50", "percent = 80")
	if code, out := d.Reloaded(t); code != 0 || !strings.Contains(out, "new") {
		t.Fatalf("reload: %d, %s", code, out)
	}
	if _, now := d.Get("/v1/check?sender=x@clear.example"); now != generation {
		t.Errorf("another percent is a build: %s, %s", generation, now)
	}
	more := blocked()
	for i := range half {
		if half[i] == '+' && more[i] != '+' {
			t.Errorf("domain%d.example is spared by 80 percent, and was not by 50", i)
		}
	}
	if strings.Count(more, "+") <= strings.Count(half, "+") {
		t.Errorf("80 percent: %s", more)
	}
	d.Edit(t, "percent = 80", "percent = 100")
	if code, out := d.Reloaded(t); code != 0 || strings.Contains(blocked(), "-") {
		t.Errorf("100 percent: %d, %s, %s", code, out, blocked())
	}
	mail("550 ")
}

// What an operator takes out of his list acts, also if that was the last line. A long list that is empty at once is
// refused, and every command that tells of it names the one that takes it all the same.
func TestTakenOut(t *testing.T) {
	long := ""
	for i := range 120 {
		long += fmt.Sprintf("n%d.example\n", i)
	}
	d := e2e.Serve(t, e2e.Setup{Lists: e2e.List("own") + e2e.List("long"), Files: map[string]string{"own.txt": "friend@there.example\n", "long.txt": long}})
	blocks := func(sender string) bool {
		return strings.HasPrefix(e2e.DialSMTP(t, d.SMTP).Send(sender, "you@here.example", []byte("Subject: hello\r\n\r\nhello\r\n")), "550 ")
	}
	testkit.Write(t, d.Path("own.txt"), "")
	if code, out := d.Reloaded(t); code != 0 || blocks("friend@there.example") {
		t.Errorf("the last line is out: %d, %s", code, out)
	}
	d.Ends(t, 0, "lint", d.Path("own.txt"))

	testkit.Write(t, d.Path("long.txt"), "")
	code, out := d.Reloaded(t)
	if code != 1 || !blocks("x@n7.example") {
		t.Errorf("a long list is empty: %d, %s", code, out)
	}
	const command = "blockd compile --accept long"
	testkit.Has(t, out, command+" takes it all the same")
	testkit.Has(t, d.Ends(t, 1, "lint", d.Path("long.txt")), command+" takes it all the same")
	_, found, _ := d.Command(t, "doctor")
	testkit.Has(t, found, command)
	d.Must(t, "compile", "--accept", "long")
	if blocks("x@n7.example") {
		t.Error("what was accepted does not act at once")
	}
	d.Ends(t, 0, "reload")
}
