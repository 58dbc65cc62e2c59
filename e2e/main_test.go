// Package e2e tests the built program with real peers: Postfix, smtp-source,
// swaks and curl from Debian's packages, each on loopback. Nothing here reaches
// into the program; it is started, spoken to, and stopped.
package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
)

// program is the path of the blockd under test, built once, and root the folder
// of the checkout.
var program, root string

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
	if root, err = filepath.Abs(".."); err != nil {
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
	build := exec.Command("go", "build", "-race="+strconv.FormatBool(!*figures), "-o", program, "./cmd/blockd")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 2
	}
	return m.Run()
}
