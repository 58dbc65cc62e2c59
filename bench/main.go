// Bench measures blockd beside its peers, on the same keys and in one run, and
// writes tables into docs/performance.md and a plot beside it. `bench smtp` does that
// for the SMTP filter, and `bench http` for HTTP.
//
// What is compared takes turns, round for round, so that a load that comes and
// goes on the machine meets everybody. A peer that is not installed is named as
// missing; nothing here is a test of how fast anything is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// defaultKeys is what `make bench` measures in two to three minutes.
const defaultKeys = 1_000_000

func main() {
	args := os.Args[1:]
	if code, ok := runServer(args, os.Stdin, os.Stdout, os.Stderr); ok {
		os.Exit(code)
	}
	if len(args) > 0 && args[0] == "smtp" {
		os.Exit(runSMTP(args[1:], os.Stdout, os.Stderr))
	}
	if len(args) > 0 && args[0] == "milter" {
		os.Exit(runMilter(args[1:], os.Stdout, os.Stderr))
	}
	if len(args) > 0 && args[0] == "http" {
		os.Exit(runHTTP(args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(run(args, os.Stdout, os.Stderr))
}

// interruptible is a context that ends when the user has had enough.
func interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
}

// settings of a run.
type settings struct {
	n      int    // keys
	rounds int    // of look-ups; builds and programs have half as many
	root   string // of the checkout
	docs   string // folder of performance.md and the plot
	work   string // folder for a few gigabytes at ten million keys; "" = the system's
}

// buildRounds are fewer: of what takes seconds, not tenths of them.
func (s settings) buildRounds() int { return (s.rounds + 1) / 2 }

// slow reports whether builders that take a minute at ten million keys get one
// round only.
func (s settings) slow() bool { return s.n > defaultKeys }

func run(args []string, stdout, stderr io.Writer) int {
	var s settings
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&s.n, "n", defaultKeys, "`keys` to list, and as many that are not listed")
	flags.IntVar(&s.rounds, "rounds", 5, "`rounds` of every look-up")
	flags.StringVar(&s.root, "root", "..", "`folder` of the checkout")
	flags.StringVar(&s.docs, "docs", "", "`folder` of performance.md and the plot (default ROOT/docs)")
	flags.StringVar(&s.work, "work", "", "`folder` for temporary files, 500 bytes a key")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if s.n < 100 || s.rounds < 1 || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "bench: want -n of 100 or more, -rounds of 1 or more, and no arguments")
		return 2
	}
	if s.docs == "" {
		s.docs = filepath.Join(s.root, "docs")
	}
	ctx, stop := interruptible()
	defer stop()
	if err := bench(ctx, s, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

func bench(ctx context.Context, s settings, stdout, stderr io.Writer) error {
	begun := time.Now()
	dir, err := os.MkdirTemp(s.work, "blockd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := searchSbin(); err != nil {
		return err
	}
	r := newReport(s, describeMachine())
	say := func(what string) { fmt.Fprintf(stderr, "%5.0f s  %s\n", time.Since(begun).Seconds(), what) }

	say(fmt.Sprintf("making 2 x %s keys", grouped(s.n)))
	k, err := makeKeys(ctx, s, dir)
	if err != nil {
		return err
	}
	r.keys = k

	// Programs that compile come first, while this process is small: Linux
	// counts the memory of a parent as a peak of the child it starts.
	say("compiling")
	b, err := compileAll(ctx, s, dir, k, r)
	if err != nil {
		return err
	}
	if err := k.sample(dir); err != nil {
		return err
	}
	say("changing a line")
	if err := changeALine(ctx, s, dir, k, r); err != nil {
		return err
	}
	say("asking programs")
	if err := askPrograms(ctx, s, b, k, r); err != nil {
		return err
	}
	say("asking exact stores")
	if err := askStores(ctx, s, b, k, r); err != nil {
		return err
	}
	say("asking whole senders")
	if err := askSenders(ctx, s, dir, k, r); err != nil {
		return err
	}
	say("building and asking filters")
	if err := askFilters(ctx, s, k, r); err != nil {
		return err
	}
	r.elapsed = time.Since(begun)
	if err := r.publish(s.docs, stdout); err != nil {
		return err
	}
	say("done")
	return nil
}
