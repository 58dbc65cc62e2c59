package program

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// The shipped units say nothing that systemd does not understand.
func TestSystemdUnits(t *testing.T) {
	command := testkit.Peer(t, "systemd-analyze")
	dir := t.TempDir()
	units, err := filepath.Glob(filepath.Join(e2e.Root, "packaging", "systemd", "*"))
	if err != nil || len(units) < 3 {
		t.Fatalf("units %q, %v", units, err)
	}
	args := []string{"verify", "--man=no"}
	for _, unit := range units {
		text := testkit.Read(t, unit)
		path := testkit.Write(t, filepath.Join(dir, filepath.Base(unit)), strings.ReplaceAll(string(text), "/usr/bin/blockd", e2e.Program))
		args = append(args, path)
	}
	if out, err := exec.Command(command, args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// Any local user can connect to a port. So the packages' units for the milter and the policy service open Unix sockets
// only, and the packages' configuration names those.
func TestSystemdUnitsOpenNoPort(t *testing.T) {
	config := string(testkit.Read(t, filepath.Join(e2e.Root, "packaging", "config.toml")))
	for door, key := range map[string]string{"milter": "[milter]\nlisten", "policy": "[postfix]\npolicy_listen"} {
		path := "/var/spool/postfix/blockd/" + door
		testkit.Has(t, config, fmt.Sprintf("\n%s = %q\n", key, "unix:"+path))
		unit := string(testkit.Read(t, filepath.Join(e2e.Root, "packaging", "systemd", "blockd-"+door+".socket")))
		var opens []string
		for line := range strings.Lines(unit) {
			if strings.HasPrefix(line, "Listen") || strings.HasPrefix(line, "SocketMode") {
				opens = append(opens, strings.TrimSpace(line))
			}
		}
		testkit.EqualSlices(t, door, opens, []string{"ListenStream=" + path, "SocketMode=0660"})
		testkit.Has(t, unit, "chgrp $g "+path+" ")
	}
}

// The shipped unit leaves little to who takes the daemon over, by systemd's own judgement.
func TestSystemdExposure(t *testing.T) {
	command := testkit.Peer(t, "systemd-analyze")
	out, err := exec.Command(command, "security", "--offline=true", "--threshold=15", "--no-pager", filepath.Join(e2e.Root, "packaging", "systemd", "blockd.service")).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v, want an exposure of at most 1.5\n%s", err, out)
	}
}

// The real systemd-socket-activate opens the doors; blockd finds them by name.
func TestSocketActivation(t *testing.T) {
	command := testkit.Peer(t, "systemd-socket-activate")
	d := e2e.Configure(t, e2e.Setup{Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", Files: map[string]string{"bad.txt": "bulk.example\n"}})
	smtp, http := d.SMTP, d.HTTP
	// What the configuration says is another place, which must stay closed.
	elsewhere := e2e.FreeAddress(t)
	d.Edit(t, smtp, elsewhere)
	cmd := exec.Command(command, "-l", smtp, "-l", http, "--fdname=smtp:http", e2e.Program, "serve", "-c", d.Path("config.toml"))
	d.Run(t, cmd) // its first look at /readyz starts blockd
	c := e2e.DialSMTP(t, smtp)
	testkit.Begins(t, "a listed sender", c.Send("a@bulk.example", "you@here.example", nil), "550 5.7.1 ")
	if e2e.Listens(elsewhere) {
		t.Errorf("%s of the configuration is open as well", elsewhere)
	}
}

// A socket that no door takes would swallow clients, so it ends the start.
func TestSocketOfNoDoor(t *testing.T) {
	d := e2e.Configure(t, e2e.Setup{})
	l := testkit.Listen(t)
	defer l.Close()
	cmd := e2e.Passing(t, d, map[string]net.Listener{"smtpd": l})
	out, err := cmd.CombinedOutput()
	if want := `blockd serve: inherited sockets ["smtpd"] belong to no door that the configuration opens; shut their units (systemctl disable --now `; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("blockd serve: %v\n%s\nwant %q", err, out, want)
	}
}

// While somebody holds the sockets open, a restart refuses and loses no
// connection: clients that come in between are served by the next process.
func TestRestartRefusesNoConnection(t *testing.T) {
	d := e2e.Configure(t, e2e.Setup{})
	held := map[string]net.Listener{}
	for name, address := range map[string]string{"smtp": d.SMTP, "http": d.HTTP} {
		l := testkit.Value(net.Listen("tcp", address))(t)
		defer l.Close()
		held[name] = l
	}
	d.Run(t, e2e.Passing(t, d, held))

	var served atomic.Int64
	f := e2e.NewFlow(t)
	for range 4 {
		f.Run("mail", func(int) string {
			if err := oneMail(d.SMTP); err != nil {
				return err.Error()
			}
			served.Add(1)
			return ""
		})
	}
	for range 3 {
		f.Goes(10)
		d.Stop(t)
		d.Run(t, e2e.Passing(t, d, held))
	}
	f.Goes(10) // behind the last restart
	f.End()
	testkit.Equal(t, "messages in the Maildir, of those that clients had acknowledged", len(e2e.Messages(t, d.Maildir)), int(served.Load()))
}

// oneMail delivers a message on a connection of its own. A client that is told 421
// before it has begun comes again, as SMTP asks of it; nothing else may go wrong.
func oneMail(address string) error {
	for range 100 {
		conn, err := net.DialTimeout("tcp", address, 30*time.Second)
		if err != nil {
			return err
		}
		again, err := deliver(conn)
		conn.Close()
		if err != nil || !again {
			return err
		}
	}
	return fmt.Errorf("421 a hundred times")
}

func deliver(conn net.Conn) (again bool, err error) {
	conn.SetDeadline(time.Now().Add(60 * time.Second))
	r := bufio.NewReader(conn)
	for i, line := range []string{"", "HELO c.example", "MAIL FROM:<a@there.example>", "RCPT TO:<b@here.example>", "DATA", "Subject: x\r\n\r\nx\r\n.", "QUIT"} {
		if line != "" {
			if _, err := fmt.Fprintf(conn, "%s\r\n", line); err != nil {
				return false, err
			}
		}
		reply, err := r.ReadString('\n')
		if err != nil {
			return false, fmt.Errorf("reply to %q: %w", line, err)
		}
		if strings.HasPrefix(reply, "421 4.3.2 ") && i < 3 { // no transaction yet
			return true, nil
		}
		if strings.HasPrefix(reply, "421 4.3.2 ") && line == "QUIT" { // none any more
			return false, nil
		}
		if reply[0] > '3' {
			return false, fmt.Errorf("reply to %q: %s", line, reply)
		}
	}
	return false, nil
}

// TestNotify listens where systemd does (sd_notify(3)).
func TestNotify(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	init := testkit.Value(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}))(t)
	defer init.Close()
	var mu sync.Mutex
	var told []string
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := init.Read(buf)
			if err != nil {
				return
			}
			mu.Lock()
			told = append(told, string(buf[:n]))
			mu.Unlock()
		}
	}()
	heard := func(want ...string) func() bool { // in this order, with anything in between
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			rest := want
			for _, state := range told {
				if len(rest) > 0 && strings.HasPrefix(state, rest[0]) {
					rest = rest[1:]
				}
			}
			return len(rest) == 0
		}
	}
	d := e2e.Configure(t, e2e.Setup{Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", Files: map[string]string{"bad.txt": "bulk.example\n"}})
	cmd := exec.Command(e2e.Program, "serve", "-c", d.Path("config.toml"))
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=200000")
	d.Run(t, cmd)
	testkit.Eventually(t, "READY and a sign of life", heard("READY=1", "WATCHDOG=1", "WATCHDOG=1"))
	d.Cmd.Process.Signal(syscall.SIGHUP)
	testkit.Eventually(t, "a reload, begun and ended", heard("READY=1", "RELOADING=1\nMONOTONIC_USEC=", "READY=1"))
	d.Stop(t)
	testkit.Eventually(t, "STOPPING", heard("READY=1", "RELOADING=1", "READY=1", "STOPPING=1"))
}

// An inherited HTTP socket is no way around the token.
func TestInheritedHTTPSocketNeedsAToken(t *testing.T) {
	d := e2e.Configure(t, e2e.Setup{})
	l := testkit.Value(net.Listen("tcp", "0.0.0.0:0"))(t)
	defer l.Close()
	out, err := e2e.Passing(t, d, map[string]net.Listener{"http": l}).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "can be reached from other machines: it needs http.token_file") {
		t.Errorf("blockd serve: %v\n%s", err, out)
	}
}

// TestInstall installs as a packager does, aside: the units start the program that
// was installed, the configuration can be used, and a second time keeps it.
func TestInstall(t *testing.T) {
	dir, dest := t.TempDir(), t.TempDir()
	testkit.Must(t, e2e.CopyFile(filepath.Join(e2e.Root, "Makefile"), filepath.Join(dir, "Makefile")))
	for _, folder := range []string{"packaging", "docs/man"} {
		testkit.Must(t, os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(e2e.Root, folder))))
	}
	install := func() string {
		t.Helper()
		cmd := exec.Command("make", "install", "DESTDIR="+dest, "PREFIX=/opt/blockd")
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	testkit.Has(t, install(), "./blockd is not there; run: make build\n")
	testkit.Must(t, e2e.CopyFile(e2e.Program, filepath.Join(dir, "blockd")))
	testkit.Must(t, os.Chmod(filepath.Join(dir, "blockd"), 0o755))
	testkit.Has(t, install(), "/etc/blockd/config.toml\n")

	const installed = "/opt/blockd/bin/blockd"
	units, err := filepath.Glob(dest + "/opt/blockd/lib/systemd/system/*")
	if err != nil || len(units) < 5 {
		t.Fatalf("installed units: %v, %v", units, err)
	}
	for _, unit := range units {
		text := testkit.Read(t, unit)
		for line := range strings.Lines(string(text)) {
			if name, command, _ := strings.Cut(line, "="); strings.HasPrefix(name, "ExecStart") && strings.HasSuffix(unit, ".service") && !strings.HasPrefix(command, installed+" ") {
				t.Errorf("%s: %swant %s", filepath.Base(unit), line, installed)
			}
		}
	}
	for _, page := range []string{"man8/blockd.8", "man5/blockd.toml.5"} {
		if _, err := os.Stat(dest + "/opt/blockd/share/man/" + page); err != nil {
			t.Error(err)
		}
	}
	config := dest + "/etc/blockd/config.toml"
	out, err := exec.Command(dest+installed, "config", "--check", "-c", config).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), ": good, 1 list, no warnings\n") {
		t.Errorf("blockd config --check: %v\n%s", err, out)
	}

	testkit.Write(t, config, "# mine\n")
	install()
	if text, err := os.ReadFile(config); err != nil || string(text) != "# mine\n" {
		t.Errorf("a second make install leaves a configuration %q, %v", text, err)
	}
}

// The role of packaging/ansible is one that ansible-lint has nothing to say against, and that Ansible can read.
func TestAnsibleRole(t *testing.T) {
	testkit.Peer(t, "ansible-lint")
	testkit.Peer(t, "ansible-playbook")
	roles := testkit.Value(filepath.Abs(filepath.Join(e2e.Root, "packaging/ansible")))(t)
	dir := t.TempDir()
	play := filepath.Join(dir, "play.yml")
	testkit.Write(t, play, `---
- name: Filter mail
  hosts: localhost
  roles:
    - role: blockd
      vars:
        blockd_package: blockd.deb
        blockd_lists: [{name: senders.txt, content: "bulk.example\n"}]
        blockd_postfix_milter: true
`)
	for _, args := range [][]string{
		{"ansible-lint", "--offline", "--nocolor", "--strict", "blockd"},
		{"ansible-playbook", "--syntax-check", "-i", "localhost,", play},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = roles
		cmd.Env = append(os.Environ(), "HOME="+dir, "ANSIBLE_ROLES_PATH="+roles, "ANSIBLE_LOCAL_TEMP="+dir, "LC_ALL=C.UTF-8")
		e2e.Ran(t, cmd)
	}
}
