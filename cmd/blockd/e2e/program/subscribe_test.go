package program

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

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
