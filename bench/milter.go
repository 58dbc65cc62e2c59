package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// milterSettings of a run of `bench milter`.
type milterSettings struct {
	n      int // listed addresses
	rounds int
	root   string // of the checkout
	docs   string // folder of performance.md
	cache  string // folder of the list and its index, which serve several runs, and of rspamd's compiled expressions
	queue  string // folder for Postfix' queue

	mails     int // of 1 KB on new connections, a way and round
	reused    int // the same on connections that are used again
	refusals  int // of listed senders
	questions int // to the policy service, on each number of connections
	events    int // of the milter protocol that are timed one by one
	idle      int // connections held
}

// memoryFolder is where files cost no disk; "" = the system's temporary folder.
func memoryFolder() string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err != nil || !info.IsDir() {
		return ""
	}
	return shm
}

func runMilter(args []string, stdout, stderr io.Writer) int {
	s := milterSettings{mails: 1000, reused: 1500, refusals: 2000, questions: 40_000, events: 5000}
	flags := flag.NewFlagSet("bench milter", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&s.n, "n", smtpEntries, "`addresses` to list")
	flags.IntVar(&s.rounds, "rounds", 5, "`rounds`, after one that does not count")
	flags.IntVar(&s.idle, "idle", 10_000, "milter `connections` to hold for the memory of an idle one")
	flags.StringVar(&s.root, "root", "..", "`folder` of the checkout")
	flags.StringVar(&s.docs, "docs", "", "`folder` of performance.md (default ROOT/docs)")
	flags.StringVar(&s.cache, "cache", "", "`folder` for list and index, 130 bytes an address (default blockd-bench in the user's cache)")
	flags.StringVar(&s.queue, "queue", memoryFolder(), "`folder` for Postfix' queue")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if s.n < 1000 || s.rounds < 1 || s.idle < 1 || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "bench milter: want -n of 1000 or more, -rounds and -idle of 1 or more, and no arguments")
		return 2
	}
	if s.docs == "" {
		s.docs = filepath.Join(s.root, "docs")
	}
	if s.cache == "" {
		folder, err := os.UserCacheDir()
		if err != nil {
			fmt.Fprintln(stderr, "bench milter:", err)
			return 1
		}
		s.cache = filepath.Join(folder, "blockd-bench")
	}
	signal.Ignore(syscall.SIGPIPE) // who reads the tables may stop; the servers are ended all the same
	ctx, stop := interruptible()
	defer stop()
	if err := benchMilter(ctx, s, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "bench milter:", err)
		return 1
	}
	return 0
}

func benchMilter(ctx context.Context, s milterSettings, stdout, stderr io.Writer) error {
	begun := time.Now()
	if err := searchSbin(); err != nil {
		return err
	}
	for _, program := range []string{"smtp-source", "postfix"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is missing: it comes with Debian's package postfix", program)
		}
	}
	if os.Geteuid() != 0 {
		return errors.New("must be root, as the master of Postfix must")
	}
	dir, err := os.MkdirTemp(s.queue, "blockd-bench-milter-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // Postfix' processes have users of their own
		return err
	}
	r := newMilterReport(s, describeMachine())
	say := func(what string) { fmt.Fprintf(stderr, "%5.0f s  %s\n", time.Since(begun).Seconds(), what) }

	say("list and index of " + grouped(s.n) + " addresses")
	l, err := makeSMTPLists(ctx, smtpSettings{n: s.n, root: s.root, cache: s.cache}, dir)
	if err != nil {
		return err
	}
	say("starting servers")
	m := &milters{}
	defer m.stop()
	if err := m.start(ctx, dir, l, r); err != nil {
		return err
	}
	for round := range s.rounds + 1 {
		say(fmt.Sprintf("round %d of %d", round, s.rounds))
		if err := m.round(ctx, s, l, r, round > 0); err != nil {
			return err
		}
	}
	say("holding " + grouped(s.idle) + " connections")
	r.held, err = whileHeld(ctx, "milter-hold", m.milter, s.idle, s.rounds, &r.memory, func() error {
		_, err := timeEvents(m.milter.address, s.events, l.sample)
		return err
	})
	if err != nil {
		return err
	}
	r.elapsed = time.Since(begun)
	if err := r.publish(s.docs, stdout); err != nil {
		return err
	}
	say("done")
	return nil
}

// round measures everything once in every way, one after the other; a round that
// does not count warms up.
func (m *milters) round(ctx context.Context, s milterSettings, l *smtpLists, r *milterReport, counts bool) error {
	add := func(t *table, name string, column int, value float64) {
		if counts {
			t.add(name, column, value)
		}
	}
	for _, load := range []struct {
		mails     int
		options   []string
		rate, cpu int // columns
	}{{s.mails, nil, milteredNew, milteredNewCPU}, {s.reused, []string{"-d"}, milteredReused, milteredReusedCPU}} {
		for _, way := range m.ways {
			before, err := way.filter.cpu()
			if err != nil {
				return err
			}
			begun := time.Now()
			if _, err := source(ctx, way.address, smtpSessions, load.mails, smallMessage, load.options...); err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			if err := m.postfix.settle(ctx); err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			add(&r.accepted, way.name, load.rate, float64(load.mails)/time.Since(begun).Seconds())
			after, err := way.filter.cpu()
			if err != nil {
				return err
			}
			if way.filter.filters {
				add(&r.accepted, way.name, load.cpu, 1e6*(after-before)/float64(load.mails))
			}
		}
	}
	for _, way := range m.ways {
		if way.refuse == nil {
			continue
		}
		seconds, err := way.refuse(ctx, way.address, s.refusals, l.sample)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		add(&r.refused, way.name, 0, float64(s.refusals)/seconds)
	}
	for _, server := range m.policies {
		for column, connections := range policyConnections {
			seconds, err := askPolicy(server.address, connections, s.questions, l.sample)
			if err != nil {
				return fmt.Errorf("%s: %w", server.name, err)
			}
			add(&r.policy, server.name, column, float64(s.questions)/seconds)
		}
	}
	times, err := timeEvents(m.milter.address, s.events, l.sample)
	if err != nil {
		return fmt.Errorf("%s: %w", nameBlockd, err)
	}
	for column, event := range timedEvents {
		add(&r.latency, nameBlockd, 2*column, times[event].quantile(0.5))
		add(&r.latency, nameBlockd, 2*column+1, times[event].quantile(0.99))
	}
	return nil
}
