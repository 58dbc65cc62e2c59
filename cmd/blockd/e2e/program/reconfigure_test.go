package program

import (
	"os"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// A configuration is taken up whole, under an open session, or not at all; each fault is told with its line, also where the
// file does not lead to the daemon any more.
func TestReloadOfTheConfiguration(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"spam\"\npath = \"spam.txt\"\n", Files: map[string]string{"spam.txt": "bulk.example\n"}})
	path := d.Path("config.toml")
	text := testkit.Value(os.ReadFile(path))(t)
	write := func(text string) {
		t.Helper()
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	reload := func(wantCode int, want string) {
		t.Helper()
		if code, out := d.Reloaded(t); code != wantCode || !strings.Contains(out, want) {
			t.Errorf("blockd reload ends with %d and says %q, want %d and %q", code, out, wantCode, want)
		}
	}
	reload(0, "nothing changed\n")

	idle := e2e.DialTalk(t, d.SMTP)
	idle.Command("EHLO client.example")
	idle.Command("MAIL FROM:<a@bulk.example>")
	good := strings.Replace(string(text), "[smtp]\n", "[smtp]\nrecipients_exempt = [\"desk\"]\n", 1) + "\n[refusal]\ncontact = \"https://help.example/\"\n"
	write(good)
	reload(0, "refusal.contact")
	if got := idle.Command("RCPT TO:<desk@here.example>"); !strings.HasPrefix(got, "550") || strings.Contains(got, "help.example") {
		t.Errorf("an open transaction follows the new configuration: %s", got)
	}
	idle.Command("RSET")
	idle.Command("MAIL FROM:<a@bulk.example>")
	testkit.Begins(t, "the next transaction of an open session", idle.Command("RCPT TO:<desk@here.example>"), "250")
	testkit.Has(t, idle.Command("RCPT TO:<other@here.example>"), "help.example")
	idle.Conn.Close()

	for name, bad := range map[string]struct{ text, want string }{
		"torn":              {good[:len(good)-3], "config.toml:"},
		"empty":             {"", "config.toml:1: the file is empty"},
		"a wrong value":     {strings.Replace(good, "[log]\n", "[log]\nlevel = \"loud\"\n", 1), "log.level"},
		"an address in use": {good + "[dns]\nlisten = \"" + d.HTTP + "\"\n[[dns.zone]]\nname = \"bl.here.example\"\nkind = \"domain\"\nlists = [\"spam\"]\n", "dns.listen: " + d.HTTP + " is in use"},
	} {
		write(bad.text)
		reload(1, bad.want)
		if status, body := d.Get("/readyz"); status != 200 || !strings.HasPrefix(body, "degraded") || !strings.Contains(body, "configuration not taken up") {
			t.Errorf("%s: /readyz says %d %q", name, status, body)
		}
		testkit.Has(t, e2e.Ask(t, d.SMTP, "a@bulk.example"), "help.example")
	}
	testkit.Must(t, os.Remove(path))
	reload(1, "no such file")
	write(good)
	reload(0, "nothing changed\n")
	if _, body := d.Get("/readyz"); body != "ok\n" {
		t.Errorf("/readyz is not cured: %q", body)
	}
	d.Stop(t)
	reload(2, "no daemon")
	d.Start(t)
}
