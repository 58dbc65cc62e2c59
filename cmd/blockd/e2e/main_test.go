// Package e2e tests the built program with real peers: Postfix, smtp-source,
// swaks and curl from Debian's packages, each on loopback. Nothing here reaches
// into the program; it is started, spoken to, and stopped.
package e2e

import (
	"blockd/internal/testkit"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// program is the path of the blockd under test, built once, and root the folder
// of the checkout.
var program, root string

// fast builds the program without the race detector, for tests that ask one goroutine for
// millions of answers.
var fast func() (path string, err error)

// nextPort is what freeAddress counts with, from somewhere, so that two runs on one
// machine seldom meet.
var nextPort atomic.Uint32

// figures builds the program as users do. Tests run it with the race detector,
// which makes it five to ten times slower, so figures to quote need this.
var figures = flag.Bool("figures", false, "build the program without the race detector, for figures to quote")

func TestMain(m *testing.M) {
	flag.Parse()
	nextPort.Store(rand.Uint32())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "blockd-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer os.RemoveAll(dir)
	if root, err = testkit.FindRoot(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	// A program with the race detector sleeps for a second before it ends, and the tests
	// end hundreds.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=50 "+os.Getenv("GORACE")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	program = filepath.Join(dir, "blockd")
	if err := buildProgram(program, !*figures); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	fast = sync.OnceValues(func() (string, error) {
		path := filepath.Join(dir, "fast")
		return path, buildProgram(path, false)
	})
	return m.Run()
}

func buildProgram(path string, race bool) error {
	build := exec.Command("go", "build", "-race="+strconv.FormatBool(race), "-o", path, "./cmd/blockd")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}
