package program

import (
	"fmt"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestLoadsThatFree poisons lists with lines that let everybody pass, in the formats that
// have such lines, while another list blocks: nobody whom that list refuses gets through.
func TestLoadsThatFree(t *testing.T) {
	guests := []struct{ name, format, before, after string }{
		{"plain", "plain", "guest.example\n", "!com\n!mass.example\n!127.0.0.0/9\nplain.marker.example\n"},
		{"adblock", "adblock", "||guest.example^\n", "@@||com^\n@@||mass.example^\n||adblock.marker.example^\n"},
		{"postfix", "postfix", "guest.example REJECT\n", "com OK\nmass.example OK\n127.0.0 OK\npostfix.marker.example REJECT\n"},
		{"rpz", "rpz", "guest.example CNAME .\n", "*.com CNAME rpz-passthru.\n*.mass.example CNAME rpz-passthru.\nrpz.marker.example CNAME .\n"},
	}
	bad := "bad.com\n"
	for i := range 30 {
		bad += fmt.Sprintf("d%d.mass.example\n", i)
	}
	s := e2e.Setup{Files: map[string]string{"bad.txt": bad, "own.txt": "own.example\n"}}
	for _, g := range guests {
		s.Lists += fmt.Sprintf("[[list]]\nname = %q\npath = \"%s.txt\"\nformat = %q\n", g.name, g.name, g.format)
		s.Files[g.name+".txt"] = g.before
	}
	s.Lists += "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\nexceptions = \"all\"\n[[list]]\nname = \"bad\"\npath = \"bad.txt\"\nformat = \"plain\"\n"
	d := e2e.Serve(t, s)
	refused := func(when, sender, list string) {
		t.Helper()
		if got := e2e.Ask(t, d.SMTP, sender); !strings.HasPrefix(got, "550 5.7.1 ") || !strings.Contains(got, "listed in "+list) {
			t.Errorf("%s: %s is answered %q, want a refusal by %s", when, sender, got, list)
		}
	}
	acts := func(sender string) {
		t.Helper()
		d.Says(t, "/v1/check?sender="+sender, `"verdict":"blocked"`)
	}

	// Lists from elsewhere: what stays home frees nobody.
	for _, g := range guests {
		e2e.Replace(t, d.Path(g.name+".txt"), g.after)
		acts("x@" + g.name + ".marker.example")
		refused(g.name, "x@bad.com", "bad")
		refused(g.name, "x@d0.mass.example", "bad")
	}
	testkit.Has(t, d.Ends(t, 0, "check", "--explain", "x@bad.com"), `exceptions = "own": it lifts what list plain blocks, and nothing else`)

	// One's own list: what would free a whole top-level domain is refused by line, and the
	// rest acts.
	e2e.Replace(t, d.Path("own.txt"), "!com\n!0.0.0.0/1\n!partner.example\nown.marker.example\n")
	acts("x@own.marker.example")
	refused("own", "x@bad.com", "bad")

	// What would lift much of what was refused is refused whole, also where the file
	// changes while the daemon stands still.
	for i := range 30 {
		refused("a wave", fmt.Sprintf("x@d%d.mass.example", i), "bad")
	}
	for _, poison := range []string{"!mass.example\n", "!127.0.0.0/9\n"} {
		e2e.Replace(t, d.Path("own.txt"), "own.marker.example\n"+poison+"new.marker.example\n")
		testkit.Eventually(t, "the load to be refused", func() bool { return strings.Contains(e2e.Readyz(d), "frees: would lift ") })
		status, body := d.Get("/readyz")
		if status != 200 || !strings.HasPrefix(body, "degraded") || !strings.Contains(body, "list own: ") {
			t.Errorf("/readyz: %d %q", status, body)
		}
		refused("a freeing load", "x@d7.mass.example", "bad")
		testkit.Begins(t, "a line of the refused load", e2e.Ask(t, d.SMTP, "x@new.marker.example"), "250 ")
		e2e.Replace(t, d.Path("own.txt"), "own.marker.example\n")
		testkit.Eventually(t, "the list to be in order", func() bool { return !strings.Contains(e2e.Readyz(d), "frees") })
	}
	d.Stop(t)
	e2e.Replace(t, d.Path("own.txt"), "own.marker.example\n!mass.example\n")
	d.Start(t)
	testkit.Eventually(t, "the load to be refused at the start", func() bool { return strings.Contains(e2e.Readyz(d), "frees: would lift ") })
	refused("after a restart", "x@d7.mass.example", "bad")

	// A person who means it says so.
	if code, out, errs := d.Command(t, "compile", "--accept"); code != 0 {
		t.Fatalf("compile --accept: %d\n%s%s", code, out, errs)
	}
	d.Reload(t)
	testkit.Eventually(t, "the accepted load to act", func() bool { return strings.HasPrefix(e2e.Ask(t, d.SMTP, "x@d7.mass.example"), "250 ") })
}
