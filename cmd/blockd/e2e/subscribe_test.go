package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// Somebody subscribes to a list, sees whom it would have refused, lets it count, and takes it away; the daemon takes up each
// step, and all else in the file stays. The maintainers are a server of this machine here: the address is changed by
// hand, and before that a proxy that is none keeps every request on the machine.
func TestSubscribe(t *testing.T) {
	maintainers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("throwaway.example\n")) }))
	defer maintainers.Close()
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:9")
	d := serve(t, setup{lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", files: map[string]string{"bad.txt": "bulk.example\n"}})
	testkit.Write(t, d.path("config.toml"), "# my own words\n"+string(testkit.Read(t, d.path("config.toml"))))
	before := string(testkit.Read(t, d.path("config.toml")))

	out := d.must(t, "subscribe", "disposable-domains")
	if !strings.Contains(out, "It refuses nobody.") || !strings.Contains(out, "disposable-email-domains/issues") {
		t.Errorf("subscribe: %s", out)
	}
	text := string(testkit.Read(t, d.path("config.toml")))
	if !strings.HasPrefix(text, before) || !strings.Contains(text, "mode = \"shadow\"\n") {
		t.Errorf("the file is now\n%s", text)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "url = ") {
			text = strings.Replace(text, line, "url = \""+maintainers.URL+"/list.txt\"\n", 1)
		}
	}
	testkit.Write(t, d.path("config.toml"), text)
	if code, out := d.reloaded(t); code != 0 {
		t.Fatalf("reload: %d, %s", code, out)
	}
	testkit.Eventually(t, "the list to be fetched", func() bool {
		_, body := d.get("/v1/check?sender=x@throwaway.example")
		return strings.Contains(body, `"list":"disposable-domains"`)
	})
	send := func() string {
		return dialSMTP(t, d.smtp).send("x@throwaway.example", "you@here.example", []byte("Subject: hello\r\n\r\nhello\r\n"))
	}
	for range 2 {
		if reply := send(); !strings.HasPrefix(reply, "250 ") {
			t.Errorf("in shadow mode: %s", reply)
		}
	}
	testkit.Eventually(t, "the history to be told", func() bool {
		out := d.must(t, "subscribe", "disposable-domains")
		return strings.Contains(out, "It would have refused 2 mails from 1 sender.") && strings.Contains(out, "x@throwaway.example")
	})
	code, out, notes := d.command(t, "subscribe", "--enforce", "disposable-domains")
	if code != 0 || out != "disposable-domains counts from now on\n" || !strings.Contains(notes, "a week shows mail of every weekday") {
		t.Errorf("enforce: %d, %q, %q", code, out, notes)
	}
	testkit.Eventually(t, "the list to count", func() bool { return strings.HasPrefix(send(), "550 ") })
	if out := d.must(t, "subscribe", "disposable-domains"); !strings.Contains(out, "blockd history --list disposable-domains") {
		t.Errorf("enforced: %q", out)
	}
	if out := d.must(t, "subscribe", "--remove", "disposable-domains"); !strings.HasPrefix(out, "removed: disposable-domains") {
		t.Errorf("remove: %q", out)
	}
	if after := string(testkit.Read(t, d.path("config.toml"))); after != before {
		t.Errorf("the file is now\n%s\nwant\n%s", after, before)
	}
	testkit.Eventually(t, "the list to be gone", func() bool { return strings.HasPrefix(send(), "250 ") })
}
