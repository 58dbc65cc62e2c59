// Package postgresserver starts servers of PostgreSQL for tests, as Debian has them.
package postgresserver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"blockd/internal/testkit"
)

// Server is a server of PostgreSQL, for several tests. Its folder is its own, and so are its socket and its address.
// Any role may log in without a password, but "locked" needs one.
type Server struct {
	Dir     string // short, since it holds the socket
	Address string // HOST:PORT, on a loopback address of its own
	as      *syscall.Credential
}

const access = `local all all trust
host all locked all scram-sha-256
host all all all trust
`

// Find returns the path of a program of PostgreSQL. Debian keeps them in a folder of each version, outside the PATH.
func Find(program string) (string, error) {
	if !testkit.Peers() {
		return "", exec.ErrNotFound
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	if len(found) > 0 {
		return slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) }), nil
	}
	return testkit.FindPeer(program)
}

func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// Open makes a server and starts it. The error is exec.ErrNotFound if PostgreSQL is not installed. Close ends it.
func Open() (s *Server, err error) {
	initdb, err := Find("initdb")
	if err != nil {
		return nil, err
	}
	s = &Server{}
	if s.Dir, err = os.MkdirTemp("", "pg-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.disown(); err != nil {
		return nil, err
	}
	// Nothing here has to survive the machine, so nothing is synced.
	make := s.command(initdb, "--pgdata", s.data(), "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	if out, err := make.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(access), 0o644); err != nil {
		return nil, err
	}
	s.Address = unused()
	return s, s.Start()
}

// Main runs the tests of a package that share a server, with what it is; nil if PostgreSQL is not installed.
func Main(m *testing.M, shared **Server) {
	flag.Parse()
	os.Exit(run(m, shared))
}

func run(m *testing.M, shared **Server) int {
	server, err := Open()
	if err == nil {
		*shared = server
		defer server.Close()
	} else if !errors.Is(err, exec.ErrNotFound) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// disown gives the folder to another user if this one is root. PostgreSQL refuses to run as root.
func (s *Server) disown() error {
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(s.Dir, uid, gid)
}

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

// command is a program that runs as the server does.
func (s *Server) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = s.Dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	return cmd
}

// Command is a program of another package, such as a pooler, that runs as the user of the server.
func (s *Server) Command(path string, args ...string) *exec.Cmd { return s.command(path, args...) }

func (s *Server) ctl(args ...string) error {
	path, err := Find("pg_ctl")
	if err != nil {
		return err
	}
	log := filepath.Join(s.Dir, "log")
	cmd := s.command(path, append(args, "--pgdata", s.data(), "--log", log, "--silent", "--wait", "--timeout=120")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		said, _ := os.ReadFile(log)
		return fmt.Errorf("%w: %s%s", err, out, said)
	}
	return nil
}

// Start starts the server, and returns when it accepts connections.
func (s *Server) Start() error {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return err
	}
	return s.ctl("start", "--options", strings.Join([]string{"-k", s.Dir, "-h", host, "-p", port,
		"-c fsync=off", "-c max_connections=50", "-c shared_buffers=16MB", "-c wal_level=minimal", "-c max_wal_senders=0", "-c jit=off"}, " "))
}

// Crash ends the server at once, as a loss of power does.
func (s *Server) Crash() error { return s.ctl("stop", "--mode=immediate") }

// Reload lets the server read pg_hba.conf again.
func (s *Server) Reload() error { return s.ctl("reload") }

// Close ends the server and removes its folder.
func (s *Server) Close() {
	_ = s.Crash()
	os.RemoveAll(s.Dir)
}

// URL is that of a database, through the socket, for a role.
func (s *Server) URL(role, database string) string {
	_, port, _ := net.SplitHostPort(s.Address)
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%s", url.PathEscape(role), url.PathEscape(database), url.QueryEscape(s.Dir), port)
}

// Database makes an empty database for a test, with what CREATE DATABASE is told besides, and returns its name.
func (s *Server) Database(t testing.TB, options string) string {
	t.Helper()
	name := "t" + strconv.FormatInt(time.Now().UnixNano(), 36)
	s.Exec(t, "postgres", fmt.Sprintf("create database %s template template0 %s", name, options))
	return name
}

// Exec executes statements as the superuser.
func (s *Server) Exec(t testing.TB, database, sql string) {
	t.Helper()
	s.Query(t, database, sql)
}

// Query executes statements as the superuser, and returns the rows of the last one, their columns separated by "|".
func (s *Server) Query(t testing.TB, database, sql string) []string {
	t.Helper()
	rows, err := s.query(database, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return rows
}

func (s *Server) query(database, sql string) (rows []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	conn, err := pgconn.Connect(ctx, s.URL("postgres", database))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil || len(results) == 0 {
		return nil, err
	}
	for _, row := range results[len(results)-1].Rows {
		var columns []string
		for _, c := range row {
			columns = append(columns, string(c))
		}
		rows = append(rows, strings.Join(columns, "|"))
	}
	return rows, nil
}

// unused returns an address that is free.
func unused() string {
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+os.Getpid()%250, os.Getpid()/250%250, 2))
	if err != nil {
		return "127.0.0.1:54329"
	}
	defer l.Close()
	return l.Addr().String()
}
