package program

import (
	"fmt"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

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
