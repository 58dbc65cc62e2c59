// Package redisserver starts servers of Redis for tests, as Debian has them.
package redisserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"blockd/internal/testkit"
)

// Server is a redis-server that runs until the test ends.
type Server struct {
	Address string // HOST:PORT, on a loopback address of its own
	Socket  string // path of its Unix socket
	Dir     string // its folder
	kill    func()
}

// Kill ends the server as kill -9 does, and waits for its end. What it has kept on disk, another one with
// "--dir", s.Dir finds.
func (s *Server) Kill() { s.kill() }

// URL is that of the server, without a password.
func (s *Server) URL() string { return "redis://" + s.Address }

// Start starts a server with more options, as on its command line, such as "--requirepass", "x".
// It keeps nothing on disk. It listens without TLS, unless options change that.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	return StartAt(t, testkit.Unused(t), options...)
}

// Saying is the address of a server that gives every command the same answer.
func Saying(t testing.TB, answer string) (address string) {
	t.Helper()
	return SayingInTurn(t, answer)
}

// SayingInTurn is the address of a server that gives the commands of a connection these answers, and the last one to
// all that follow.
func SayingInTurn(t testing.TB, answers ...string) (address string) {
	t.Helper()
	l := testkit.Listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for i := 0; ; i++ {
					if _, err := in.ReadString('*'); err != nil {
						return
					}
					io.WriteString(conn, answers[min(i, len(answers)-1)])
				}
			}()
		}
	}()
	return l.Addr().String()
}

// Shared is a server that the tests of a package share. It outlives the test that starts it: Main ends it.
type Shared struct {
	options  []string
	once     sync.Once
	server   *Server
	cleanups []func()
	testing.TB
}

// Share is a server with more options, which the first test that needs it starts.
func Share(options ...string) *Shared { return &Shared{options: options} }

// Cleanup keeps what ends the server for Main.
func (s *Shared) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// Main runs the tests of a package, and then ends the server.
func (s *Shared) Main(m *testing.M) {
	code := m.Run()
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
	os.Exit(code)
}

// Get is the server.
func (s *Shared) Get(t testing.TB) *Server {
	t.Helper()
	testkit.Peer(t, "redis-server")
	s.once.Do(func() {
		s.TB = t
		s.server = Start(s, s.options...)
	})
	if s.server == nil {
		t.Fatal("redis-server did not start")
	}
	return s.server
}

// StartAt is Start for an address that testkit.Unused has given.
func StartAt(t testing.TB, address string, options ...string) *Server {
	t.Helper()
	s := &Server{Address: address}
	s.run(t, options)
	return s
}

func (s *Server) run(t testing.TB, options []string, conf ...string) {
	t.Helper()
	program := testkit.Peer(t, "redis-server")
	dir, err := os.MkdirTemp("", "redis-") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.Dir, s.Socket = dir, filepath.Join(dir, "s")
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		t.Fatal(err)
	}
	args := append(conf, "--bind", host, "--port", port, "--unixsocket", s.Socket, "--dir", dir,
		"--save", "", "--appendonly", "no", "--protected-mode", "no", "--logfile", filepath.Join(dir, "log"))
	args = append(args, options...)
	cmd := exec.Command(program, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	s.kill = func() { _ = cmd.Process.Kill(); <-ended }
	t.Cleanup(s.kill)
	testkit.Eventually(t, "redis-server", func() bool {
		select {
		case <-ended:
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("redis-server has ended: %s", log)
		default:
		}
		answer := s.answer("PING")
		return strings.HasPrefix(answer, "+PONG") || strings.HasPrefix(answer, "-NOAUTH") || strings.HasPrefix(answer, "-MASTERDOWN")
	})
}

// Sentinel starts a Sentinel that watches over s under the name "master".
func (s *Server) Sentinel(t testing.TB) *Server {
	t.Helper()
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(t.TempDir(), "sentinel.conf") // it writes to it
	testkit.Write(t, conf, fmt.Sprintf("sentinel monitor master %s %s 1\n", host, port))
	watch := &Server{Address: testkit.Unused(t)}
	watch.run(t, []string{"--sentinel"}, conf)
	return watch
}

// answer sends a line to the socket, and returns the first line of the answer; "" if there is
// none.
func (s *Server) answer(command string) string {
	conn, err := net.Dial("unix", s.Socket)
	if err != nil {
		return ""
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s\r\n", command)
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return line
}

// info reads a line of CLUSTER INFO.
func (s *Server) info(line string) bool {
	conn, err := net.Dial("unix", s.Socket)
	if err != nil {
		return false
	}
	defer conn.Close()
	fmt.Fprintf(conn, "CLUSTER INFO\r\n")
	for in := bufio.NewScanner(conn); in.Scan(); {
		if in.Text() == line {
			return true
		}
		if strings.HasPrefix(in.Text(), "total_cluster_links_buffer_limit_exceeded") {
			break // the last line
		}
	}
	return false
}

// Cluster starts a Cluster of three, each with a third of the slots.
func Cluster(t testing.TB) (nodes []*Server) {
	t.Helper()
	const slots = 16384
	for range 3 {
		s := &Server{Address: testkit.Unused(t)}
		_, bus, err := net.SplitHostPort(testkit.Unused(t))
		if err != nil {
			t.Fatal(err)
		}
		host, port, err := net.SplitHostPort(s.Address)
		if err != nil {
			t.Fatal(err)
		}
		// Without its name a node is known by the address that it calls from, 127.0.0.1.
		s.run(t, []string{"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-announce-ip", host})
		nodes = append(nodes, s)
		from := len(nodes) - 1
		for _, command := range []string{
			fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", slots*from/3, slots*(from+1)/3-1),
			fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", len(nodes)),
		} {
			if answer := s.answer(command); answer != "+OK\r\n" {
				t.Fatalf("%s: %q", command, answer)
			}
		}
		if meet := fmt.Sprintf("CLUSTER MEET %s %s %s", host, port, bus); from > 0 {
			if answer := nodes[0].answer(meet); answer != "+OK\r\n" {
				t.Fatalf("%s: %q", meet, answer)
			}
		}
	}
	for _, s := range nodes {
		testkit.Eventually(t, "the Cluster", func() bool { return s.info("cluster_state:ok") && s.info("cluster_known_nodes:3") })
	}
	return nodes
}
