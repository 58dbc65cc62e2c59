package program

import (
	"fmt"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

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
