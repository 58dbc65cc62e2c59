package servers

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
)

// serversRoot is the folder that cmd/blockd/e2e/servers.sh has filled with the servers that
// are not installed, or the end of the test.
func serversRoot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(e2e.Root, "cmd/blockd/e2e", "servers.sh"), "--where").Output()
	dir := strings.TrimSpace(string(out))
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		testkit.Missing(t, fmt.Sprintf("Exim, Sendmail and OpenSMTPD are not unpacked (cmd/blockd/e2e/servers.sh): %v", err))
	}
	return dir
}

// jail is a root folder of one server's own, for chroot(2): programs and files lie
// where Debian's builds of them look, and nothing of this machine is in reach
// but its network.
type jail struct {
	dir  string          // seen from outside
	cert selfsigned.Cert // of mail.here.example, in /etc/tls/cert.pem and key.pem
	log  *testkit.Log
}

// newJail copies the servers and lays out what any of them wants of a system: its
// users, no DNS, a system log.
func newJail(t *testing.T) *jail {
	t.Helper()
	source := serversRoot(t)
	if os.Geteuid() != 0 {
		testkit.Missing(t, "mail servers start as root, and these tests do not")
	}
	// Not t.TempDir: its parents are closed to the servers' users.
	dir := testkit.Value(os.MkdirTemp("", "blockd-jail-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	j := &jail{dir: dir, cert: selfsigned.New(t, "mail.here.example"), log: &testkit.Log{}}
	e2e.Ran(t, exec.Command("cp", "-a", source+"/.", dir))
	for _, sub := range []string{"dev", "root", "tmp", "run", "etc/mail", "var/run", "var/mail", "var/spool", "var/log", "var/lib"} {
		testkit.Must(t, os.MkdirAll(j.path(sub), 0o755))
	}
	var users, groups strings.Builder
	for id, name := range []string{"root", "daemon", "bin", "mail", "Debian-exim", "smmta", "smmsp", "opensmtpd", "opensmtpq", "postmaster"} {
		fmt.Fprintf(&users, "%s:x:%d:%d::/root:/bin/false\n", name, id, id)
		fmt.Fprintf(&groups, "%s:x:%d:\n", name, id)
	}
	for name, text := range map[string]string{
		"passwd": users.String(), "group": groups.String(), "shells": "/bin/false\n",
		"hosts":         "127.0.0.1 localhost\n127.0.0.1 mail.here.example\n127.0.0.1 client.there.example\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\naliases: files\n",
		"resolv.conf":   "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
		"mailname":      "mail.here.example\n", "aliases": "", "services": "smtp 25/tcp\n",
	} {
		testkit.Write(t, j.path("etc/"+name), text)
	}
	certPath, _ := j.cert.Write(t, j.mkdir(t, "etc/tls", 0, 0o755))
	testkit.Must(t, os.Chmod(certPath, 0o644))
	// A folder without devices still does: what is written to null stays there.
	for name, minor := range map[string]int{"null": 3, "urandom": 9} {
		if syscall.Mknod(j.path("dev/"+name), syscall.S_IFCHR|0o666, 1<<8|minor) != nil {
			testkit.Write(t, j.path("dev/"+name), "")
		}
		testkit.Must(t, os.Chmod(j.path("dev/"+name), 0o666))
	}
	j.listenLog(t)
	return j
}

// path is a path within the jail, seen from outside.
func (j *jail) path(inside string) string { return filepath.Join(j.dir, inside) }

// mkdir makes a folder in the jail that belongs to a user, and returns its path
// seen from outside.
func (j *jail) mkdir(t *testing.T, inside string, owner int, mode os.FileMode) string {
	t.Helper()
	path := j.path(inside)
	testkit.Must(t, os.MkdirAll(path, 0o755))
	testkit.Must(t, os.Chown(path, owner, owner))
	testkit.Must(t, os.Chmod(path, mode))
	return path
}

// listenLog takes what servers say to syslog(3).
func (j *jail) listenLog(t *testing.T) {
	t.Helper()
	conn := testkit.Value(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: j.path("dev/log"), Net: "unixgram"}))(t)
	testkit.Must(t, os.Chmod(j.path("dev/log"), 0o666))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		line := make([]byte, 8192)
		for {
			n, err := conn.Read(line)
			if err != nil {
				return
			}
			fmt.Fprintf(j.log, "%s\n", strings.TrimSpace(string(line[:n])))
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
}

// start runs a server in the foreground until the test ends, and waits until it
// listens.
func (j *jail) start(t *testing.T, address, command string, args ...string) {
	t.Helper()
	cmd := exec.Command(command, args...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: j.dir}
	cmd.Stdout, cmd.Stderr = j.log, j.log
	e2e.StartServer(t, cmd, address)
}

// packageVersion is the version of a Debian package in the servers' folder.
func packageVersion(t *testing.T, name string) string {
	t.Helper()
	for _, line := range e2e.Lines(t, filepath.Join(serversRoot(t), "versions")) {
		if version, ok := strings.CutPrefix(line, name+" "); ok {
			return version
		}
	}
	t.Fatalf("%s is not among the unpacked servers", name)
	return ""
}
