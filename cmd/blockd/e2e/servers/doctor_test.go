package servers

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
)

// examined is what blockd doctor says of a configuration.
type examined struct {
	t     *testing.T
	code  int
	text  string // JSON lines
	state map[string]string
}

// examine runs blockd doctor. The worst state of each check counts.
func examine(t *testing.T, config string) examined {
	t.Helper()
	begun := time.Now()
	cmd := exec.Command(e2e.Program, "doctor", "--json", "-c", config)
	out, err := cmd.Output()
	x := examined{t: t, text: string(out), state: map[string]string{}}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		x.code = exit.ExitCode()
		x.text += string(exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	rank, worst := map[string]int{"ok": 0, "warning": 1, "fault": 2}, 0
	for line := range strings.Lines(string(out)) {
		var f struct{ Check, State, Text, Hint string }
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if have, ok := x.state[f.Check]; !ok || rank[f.State] > rank[have] {
			x.state[f.Check] = f.State
		}
		worst = max(worst, rank[f.State])
	}
	if x.code != worst {
		t.Errorf("blockd doctor ends with %d, the worst is %d\n%s", x.code, worst, x.text)
	}
	if took := time.Since(begun); took > time.Minute { // it gives each check ten seconds
		t.Errorf("blockd doctor took %v", took)
	}
	return x
}

// want checks the state of a check and what is said beside.
func (x examined) want(check, state, says string) {
	x.t.Helper()
	for line := range strings.Lines(x.text) {
		if strings.Contains(line, fmt.Sprintf(`{"check":%q,"state":%q,`, check, state)) && strings.Contains(line, says) {
			if x.state[check] == state {
				return
			}
		}
	}
	x.t.Errorf("%s is %q, want %s with %q\n%s", check, x.state[check], state, says, x.text)
}

// A zone of digests is asked for its SOA record. Doors that do not let this machine in are faults.
func TestDoctorAtDoorsForPrograms(t *testing.T) {
	for _, tt := range []struct{ more, state, dns, resp string }{
		{"", "ok", "zone md5.dns.test answers", "answers PING"},
		{"allow_from = [\"192.0.2.1\"]\n", "fault", "zone md5.dns.test by UDP: REFUSED for md5.dns.test", "resp.allow_from keeps this machine out"},
	} {
		d := e2e.Configure(t, e2e.Setup{Files: e2e.BadFiles, Lists: fmt.Sprintf("[resp]\nlisten = %q\nusers = { default = \"password\" }\n%s[dns]\nlisten = %q\n%s[[dns.zone]]\nname = \"md5.dns.test\"\nkind = \"hash\"\nhash = \"md5\"\n",
			e2e.FreeAddress(t), tt.more, e2e.FreeAddress(t), tt.more) + e2e.BadList})
		d.Edit(t, "[index]\n", "[index]\nhashes = [\"md5\"]\n")
		testkit.Write(t, d.Path("password"), "a long secret of this test\n")
		d.Start(t)
		x := examine(t, d.Path("config.toml"))
		x.want("door-dns", tt.state, tt.dns)
		x.want("door-resp", "ok", tt.resp)
		d.Stop(t)
	}
}

// In front of a closed Postfix all is ok; each real fault is named, and nothing else.
func TestDoctorInFrontOfPostfix(t *testing.T) {
	p := e2e.StartPostfix(t, e2e.FreeAddress(t))
	cert := selfsigned.From(t, time.Now().Add(-time.Hour), time.Now().Add(60*24*time.Hour), "filter.here.example")
	certPath, keyPath := cert.Write(t, publicDir(t))
	lines := fmt.Sprintf("client_info = \"xclient\"\ntls_cert = %q\ntls_key = %q\n", certPath, keyPath)
	dnsListen := e2e.FreeAddress(t)
	d := e2e.Serve(t, e2e.Setup{Upstream: "smtp://" + p.SMTP, SMTP: lines, Files: e2e.BadFiles,
		Lists: fmt.Sprintf("[health]\nlisten = %q\n[resp]\nlisten = %q\n[dns]\nlisten = %q\n[[dns.zone]]\nname = %q\nkind = \"ip\"\n[[dns.zone]]\nname = %q\nkind = \"domain\"\n",
			e2e.FreeAddress(t), e2e.FreeAddress(t), dnsListen, e2e.IPZone, e2e.DomainZone) + e2e.BadList})
	testkit.Eventually(t, "the certificate to be current", func() bool { return strings.HasPrefix(e2e.Readyz(d), "ok") })

	x := examine(t, d.Path("config.toml"))
	for check, state := range x.state {
		if state != "ok" {
			t.Errorf("%s is %s", check, state)
		}
	}
	x.want("upstream-relay", "ok", "does not relay for strangers")
	x.want("upstream", "ok", "XCLIENT")
	x.want("door-smtp", "ok", "STARTTLS")
	x.want("door-dns", "ok", "zone "+e2e.IPZone+" has the test entries")
	x.want("door-dns", "ok", "zone "+e2e.DomainZone+" has the test entries")
	x.want("door-resp", "ok", "answers PING")
	x.want("door-health", "ok", "answers")
	x.want("tls-smtp", "ok", "clients are shown the certificate of the file")
	x.want("lists", "ok", "as the daemon has them")
	x.want("daemon", "ok", fmt.Sprintf("process %d", d.Cmd.Process.Pid))
	if t.Failed() {
		t.Fatal(x.text)
	}
	out, err := exec.Command(e2e.Program, "health", "-c", d.Path("config.toml")).CombinedOutput()
	if err != nil || string(out) != "ok\n" {
		t.Errorf("blockd health: %v, %q", err, out)
	}

	// Another configuration of the same daemon, each with one fault.
	config := testkit.Read(t, d.Path("config.toml"))
	altered := func(name string, pairs ...string) string {
		t.Helper()
		text := string(config)
		if !strings.Contains(text, pairs[0]) {
			t.Fatalf("no %q in the configuration", pairs[0])
		}
		path := d.Path(name + ".toml")
		testkit.Write(t, path, strings.NewReplacer(pairs...).Replace(text))
		return path
	}
	nobody := e2e.FreeAddress(t)
	for name, tt := range map[string]struct {
		change      []string // pairs of old and new
		check, says string   // of the fault
	}{
		"a zone that is not served":                {[]string{e2e.DomainZone, "other.dns.test"}, "door-dns", "zone other.dns.test by UDP: REFUSED for test"},
		"a DNS door that cannot be reached":        {[]string{dnsListen, nobody}, "door-dns", "connection refused"},
		"a door that cannot be reached":            {[]string{d.SMTP, nobody}, "door-smtp", "connection refused"},
		"a next server that is away":               {[]string{p.SMTP, nobody}, "upstream", "connection refused"},
		"a next server that takes no PROXY header": {[]string{`client_info = "xclient"`, `client_info = "proxy-v2"`}, "upstream", "PROXY header"},
		"a list that is missing":                   {[]string{`[http]`, "[[list]]\nname = \"more\"\npath = \"more.txt\"\n[http]"}, "lists", "more is not loaded"},
		"DNS that does not answer":                 {[]string{`client_info`, "ptr = \"exists\"\nclient_info", `[http]`, "[auth]\nresolver = \"" + nobody + "\"\ndns_timeout = \"1s\"\n[http]"}, "dns", nobody},
		"a group that is not there":                {[]string{`[http]`, "[http]\nsocket_group = \"nosuchgroup\""}, "socket-http", "nosuchgroup"},
	} {
		t.Run(name, func(t *testing.T) { examine(t, altered("altered", tt.change...)).want(tt.check, "fault", tt.says) })
	}
	t.Run("a next server that hangs", func(t *testing.T) {
		l := testkit.Listen(t)
		defer l.Close() // never accepts: the system does, and nobody speaks
		x := examine(t, altered("hung", p.SMTP, l.Addr().String()))
		x.want("upstream", "fault", "hang")
		x.want("upstream-relay", "fault", "cannot be asked")
	})
	t.Run("certificates", func(t *testing.T) {
		for name, tt := range map[string]struct {
			ends        time.Duration
			state, says string
		}{
			"expired":  {-time.Hour, "fault", "ended on"},
			"soon":     {13 * 24 * time.Hour, "warning", "ends on"},
			"not yet":  {49 * time.Hour, "warning", "does not hold before"},
			"for long": {3 * 7 * 24 * time.Hour, "warning", "another certificate"}, // than the daemon shows
		} {
			c := selfsigned.Until(t, time.Now().Add(tt.ends), "filter.here.example")
			if name == "for long" || name == "soon" {
				c = selfsigned.From(t, time.Now().Add(-time.Hour), time.Now().Add(tt.ends), "filter.here.example")
			}
			otherCert, otherKey := c.Write(t, publicDir(t))
			examine(t, altered("cert", certPath, otherCert, keyPath, otherKey)).want("tls-smtp", tt.state, tt.says)
		}
	})
	t.Run("a daemon that is stopped", func(t *testing.T) {
		d.Stop(t)
		x := examine(t, d.Path("config.toml"))
		x.want("daemon", "fault", "no daemon answers")
		x.want("upstream-relay", "ok", "") // asked all the same
		out, err := exec.Command(e2e.Program, "health", "-c", d.Path("config.toml")).CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("blockd health: %v, %q", err, out)
		}
	})
}

// A Postfix that would relay, one that cannot be asked about it, and one that takes no
// XCLIENT.
func TestDoctorFindsAnUnsafeUpstream(t *testing.T) {
	for _, tt := range []struct {
		name         string
		options      []string
		check, state string
		says         string
	}{
		{"open relay", []string{"mynetworks=0.0.0.0/0"}, "upstream-relay", "fault", "open relay"},
		{"undecided", []string{"mynetworks=0.0.0.0/0", "smtpd_client_restrictions=check_client_access,inline:{203.0.113.9=REJECT}"}, "upstream-relay", "warning", "203.0.113.9"},
		{"without XCLIENT", []string{"smtpd_authorized_xclient_hosts="}, "upstream", "fault", "smtpd_authorized_xclient_hosts"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := e2e.StartPostfix(t, e2e.FreeAddress(t), tt.options...)
			d := e2e.Configure(t, e2e.Setup{Upstream: "smtp://" + p.SMTP, SMTP: "client_info = \"xclient\"\n", Lists: e2e.BadList, Files: e2e.BadFiles})
			examine(t, d.Path("config.toml")).want(tt.check, tt.state, tt.says)
		})
	}
}

// Files are looked at with the eyes of the daemon's user: of the running daemon, or else of
// the owner of the index's folder.
func TestDoctorSeesWithTheDaemonsEyes(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.Missing(t, "files of other users are root's to make")
	}
	const uid, gid = 4311, 4312
	dir := publicDir(t)
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "lists"), 0o755))
	testkit.Write(t, filepath.Join(dir, "lists", "bad.txt"), "bulk.example\n")
	for _, sub := range []string{"var", "var/mail"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(dir, sub), 0o755))
		testkit.Must(t, os.Chown(filepath.Join(dir, sub), uid, gid))
	}
	smtp, http := e2e.FreeAddress(t), e2e.FreeAddress(t)
	config := filepath.Join(dir, "config.toml")
	testkit.Write(t, config, fmt.Sprintf("[index]\npath = \"var/blockd.bdx\"\n[smtp]\nlisten = %q\nhostname = \"filter.here.example\"\n[milter]\nlisten = \"\"\n[postfix]\npolicy_listen = \"\"\n"+
		"[http]\nlisten = %q\n[[list]]\nname = \"bad\"\npath = \"lists/bad.txt\"\n", smtp, http))
	testkit.Must(t, os.Chmod(filepath.Join(dir, "lists"), 0o755))
	testkit.Must(t, os.Chmod(config, 0o644))
	close := func(path string, mode os.FileMode) func() {
		t.Helper()
		info := testkit.Value(os.Stat(path))(t)
		testkit.Must(t, os.Chmod(path, mode))
		return func() { os.Chmod(path, info.Mode()) }
	}
	testkit.Must(t, os.Chmod(filepath.Join(dir, "lists/bad.txt"), 0o644))
	check := func(t *testing.T) {
		examine(t, config).want("files", "ok", "")
		for _, tt := range []struct {
			path string
			mode os.FileMode
			says string
		}{
			{filepath.Join(dir, "lists"), 0o700, "search"},
			{filepath.Join(dir, "lists/bad.txt"), 0o600, "read"},
			{filepath.Join(dir, "var"), 0o555, "write"},
		} {
			open := close(tt.path, tt.mode)
			x := examine(t, config)
			x.want("files", "fault", tt.path)
			x.want("files", "fault", tt.says)
			if x.code != 2 {
				t.Errorf("%s: exit %d, want 2", tt.path, x.code)
			}
			open()
		}
		open := close(filepath.Join(dir, "lists"), 0o700)
		defer open()
		out, err := exec.Command(e2e.Program, "config", "--check", "-c", config).CombinedOutput()
		if err != nil || !strings.Contains(string(out), `warning: list "bad": closed to the daemon: uid 4311 may not search `+filepath.Join(dir, "lists")) {
			t.Errorf("config --check: %v\n%s", err, out)
		}
	}
	t.Run("no daemon runs", check)
	t.Run("a daemon runs", func(t *testing.T) {
		built, program := e2e.Program, filepath.Join(dir, "blockd") // the tests' own is in a folder of root's
		testkit.Must(t, e2e.CopyFile(built, program))
		testkit.Must(t, os.Chmod(program, 0o755))
		d := &e2e.Daemon{Dir: dir, SMTP: smtp, HTTP: http}
		cmd := exec.Command(program, "serve", "-c", config)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
		d.Run(t, cmd)
		x := examine(t, config)
		x.want("daemon", "ok", "runs as uid 4311")
		check(t)
	})
}
