// Package e2e has what the tests below it share: the built program, its daemons, and the real peers beside them (Postfix,
// smtp-source, swaks and curl from Debian's packages), each on loopback. Nothing there reaches into the program; it is
// started, spoken to, and stopped.
//
//   - servers has mail servers in front of blockd and behind it
//   - stores has databases, directories, object stores, fleets, and programs that ask by DNS and RESP
//   - console has a browser
//   - program has commands, documents, upgrades, and what clients feel of them
//
// cmd/blockd tests what needs no peer: README.md's commands, and the transactions at its own doors.
package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"blockd/internal/testkit"
)

// Program is the path of the blockd under test, built as users build it, and Root the folder of the checkout. Main sets both.
var Program, Root string

// raced builds the program with the race detector, at the first call.
var raced func() (path string, err error)

// own are the ports that FreeAddress gives. Use claims them.
var own *ports

// Figures keeps the race detector away from figures that are to be quoted: it makes the program five to ten times slower.
var Figures = flag.Bool("figures", false, "build the program without the race detector, for figures to quote")

// Main is TestMain of a package of tests: it builds the program and runs the tests.
func Main(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "blockd-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer os.RemoveAll(dir)
	root, err := testkit.FindRoot()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	// A program with the race detector sleeps for a second before it ends, and the tests end hundreds.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=50 "+os.Getenv("GORACE")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	Use(filepath.Join(dir, "blockd"), root)
	if err := build(Program, false); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	raced = sync.OnceValues(func() (string, error) {
		path := filepath.Join(dir, "raced")
		return path, build(path, true)
	})
	return m.Run()
}

// Use has tests start the program at path. Main calls it; so does a TestMain whose own binary is the program.
func Use(path, root string) {
	Program, Root = path, root
	own = claimPorts()
}

// Raced is the path of the program with the race detector. Tests of what many goroutines do at once start it: takeovers,
// reloads under load, hostile clients.
func Raced(t testing.TB) string {
	t.Helper()
	if *Figures {
		return Program
	}
	return testkit.Value(raced())(t)
}

func build(path string, race bool) error {
	build := exec.Command("go", "build", "-race="+strconv.FormatBool(race), "-o", path, "./cmd/blockd")
	build.Dir = Root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// Servers that tests start have ports from firstPort on, in blocks. Systems give clients higher ones (32768 and up,
// ip_local_port_range), so that none of these is soon somebody else's.
const (
	firstPort  = 12_000
	portBlocks = 40
	blockPorts = 500
)

// ports are the block of this run. It holds a lock on it, so that packages whose tests run beside each other take no port
// of each other between the look at it and the start of its server.
type ports struct {
	first int
	next  atomic.Uint32
	lock  *os.File
}

// claimPorts takes a block that nobody has. If all are taken, it shares one.
func claimPorts() *ports {
	begin := rand.IntN(portBlocks)
	for i := range portBlocks {
		block := (begin + i) % portBlocks
		lock, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("blockd-test-ports-%d", block)), os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			return &ports{first: firstPort + block*blockPorts, lock: lock}
		}
		lock.Close()
	}
	return &ports{first: firstPort + begin*blockPorts}
}

// FreeAddress returns a loopback address that nobody listens on, and that nobody else is given while its server starts.
func FreeAddress(t *testing.T) string {
	t.Helper()
	for range blockPorts {
		address := fmt.Sprintf("127.0.0.1:%d", own.first+int(own.next.Add(1)%blockPorts))
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("somebody listens on every port of this run")
	return ""
}
