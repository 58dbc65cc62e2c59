package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// reloaded runs `blockd reload`.
func (d *daemon) reloaded(t *testing.T) (code int, out string) {
	t.Helper()
	var both bytes.Buffer
	cmd := exec.Command(program, "reload", "-c", d.path("config.toml"))
	cmd.Stdout, cmd.Stderr = &both, &both
	err := cmd.Run()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), both.String()
}

// A configuration is taken up whole, under an open session, or not at all; each fault is told with its line, also where the
// file does not lead to the daemon any more.
func TestReloadOfTheConfiguration(t *testing.T) {
	d := serve(t, setup{lists: "[[list]]\nname = \"spam\"\npath = \"spam.txt\"\n", files: map[string]string{"spam.txt": "bulk.example\n"}})
	path := d.path("config.toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reload := func(wantCode int, want string) {
		t.Helper()
		if code, out := d.reloaded(t); code != wantCode || !strings.Contains(out, want) {
			t.Errorf("blockd reload ends with %d and says %q, want %d and %q", code, out, wantCode, want)
		}
	}
	reload(0, "nothing changed\n")

	idle := dialTalk(t, d.smtp)
	idle.command("EHLO client.example")
	idle.command("MAIL FROM:<a@bulk.example>")
	good := strings.Replace(string(text), "[smtp]\n", "[smtp]\nrecipients_exempt = [\"desk\"]\n", 1) + "\n[refusal]\ncontact = \"https://help.example/\"\n"
	write(good)
	reload(0, "refusal.contact")
	if got := idle.command("RCPT TO:<desk@here.example>"); !strings.HasPrefix(got, "550") || strings.Contains(got, "help.example") {
		t.Errorf("an open transaction follows the new configuration: %s", got)
	}
	idle.command("RSET")
	idle.command("MAIL FROM:<a@bulk.example>")
	if got := idle.command("RCPT TO:<desk@here.example>"); !strings.HasPrefix(got, "250") {
		t.Errorf("the next transaction of an open session does not follow the new configuration: %s", got)
	}
	if got := idle.command("RCPT TO:<other@here.example>"); !strings.Contains(got, "help.example") {
		t.Errorf("a refusal has no contact: %s", got)
	}
	idle.conn.Close()

	for name, bad := range map[string]struct{ text, want string }{
		"torn":              {good[:len(good)-3], "config.toml:"},
		"empty":             {"", "config.toml:1: the file is empty"},
		"a wrong value":     {strings.Replace(good, "[log]\n", "[log]\nlevel = \"loud\"\n", 1), "log.level"},
		"an address in use": {good + "[dns]\nlisten = \"" + d.http + "\"\n[[dns.zone]]\nname = \"bl.here.example\"\nkind = \"domain\"\nlists = [\"spam\"]\n", "dns.listen: " + d.http + " is in use"},
	} {
		write(bad.text)
		reload(1, bad.want)
		if status, body := d.get("/readyz"); status != 200 || !strings.HasPrefix(body, "degraded") || !strings.Contains(body, "configuration not taken up") {
			t.Errorf("%s: /readyz says %d %q", name, status, body)
		}
		if got := ask(t, d.smtp, "a@bulk.example"); !strings.Contains(got, "help.example") {
			t.Errorf("%s: the configuration of before is not in force: %s", name, got)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	reload(1, "no such file")
	write(good)
	reload(0, "nothing changed\n")
	if _, body := d.get("/readyz"); body != "ok\n" {
		t.Errorf("/readyz is not cured: %q", body)
	}
	d.stop(t)
	reload(2, "no daemon")
	d.start(t)
}
