// Package mariadbserver starts servers of MariaDB for tests, as Debian has them.
package mariadbserver

import (
	"database/sql"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
)

// Server is a mariadbd that runs until the test ends. Its user root has no password.
type Server struct {
	Address string  // HOST:PORT, on a loopback address of its own
	Socket  string  // path of its Unix socket
	DB      *sql.DB // of root, over the socket; many statements at once are allowed

	CertificateFile string // of TLS, for Address

	dir     string
	options []string
	cmd     *exec.Cmd
	ended   chan struct{}
}

// Start starts a server with more options, as on its command line.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	install := testkit.Peer(t, "mariadb-install-db")
	testkit.Peer(t, "mariadbd")
	dir, err := os.MkdirTemp("", "mariadb-") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Server{Address: testkit.Unused(t), Socket: filepath.Join(dir, "s"), dir: dir, options: options, CertificateFile: filepath.Join(dir, "cert")}
	host, _, err := net.SplitHostPort(s.Address)
	if err != nil {
		t.Fatal(err)
	}
	cert := selfsigned.New(t, host)
	testkit.Write(t, s.CertificateFile, string(cert.CertPEM))
	testkit.Write(t, filepath.Join(dir, "key"), string(cert.KeyPEM))
	if c := credential(t); c != nil {
		if err := os.Chown(dir, int(c.Uid), int(c.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	prepare := exec.Command(install, "--no-defaults", "--datadir="+filepath.Join(dir, "data"), "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=16M")
	prepare.Dir, prepare.SysProcAttr = dir, &syscall.SysProcAttr{Credential: credential(t)}
	if out, err := prepare.CombinedOutput(); err != nil {
		t.Fatalf("mariadb-install-db: %v\n%s", err, out)
	}
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.MultiStatements, config.Logger = "root", "unix", s.Socket, true, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	s.DB = sql.OpenDB(connector)
	s.Run(t)
	t.Cleanup(func() { s.DB.Close(); s.Kill() })
	return s
}

// Run starts the server again, after Kill.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(s.dir, "log")
	s.cmd = exec.Command(testkit.Peer(t, "mariadbd"), append([]string{"--no-defaults", "--datadir=" + filepath.Join(s.dir, "data"),
		"--socket=" + s.Socket, "--pid-file=" + filepath.Join(s.dir, "pid"), "--bind-address=" + host, "--port=" + port,
		"--log-error=" + log, "--skip-name-resolve", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M",
		"--innodb-flush-log-at-trx-commit=2", "--ssl-cert=" + s.CertificateFile, "--ssl-key=" + filepath.Join(s.dir, "key")}, s.options...)...)
	s.cmd.Dir, s.cmd.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: credential(t)}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, ended := s.cmd, make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	s.ended = ended
	testkit.Eventually(t, "mariadbd", func() bool {
		select {
		case <-ended:
			text, _ := os.ReadFile(log)
			t.Fatalf("mariadbd has ended: %s", text)
		default:
		}
		return s.DB.Ping() == nil
	})
}

// Kill kills the server with SIGKILL.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// Stop stops the server, which answers nothing, until the function that it returns lets it go on.
func (s *Server) Stop(t testing.TB) (goOn func()) {
	t.Helper()
	testkit.Stop(t, s.cmd.Process.Pid)
	return func() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }
}

// URL is that of a database, over TCP.
func (s *Server) URL(user, password, database string) string {
	u := url.URL{Scheme: "mysql", User: url.UserPassword(user, password), Host: s.Address, Path: "/" + database}
	return u.String()
}

// credential is of the user that the server runs as: not root, which it refuses to be.
func credential(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"mysql", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	testkit.Missing(t, "there is no user mysql, and mariadbd does not run as root")
	return nil
}
