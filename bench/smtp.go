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

// smtpEntries is what `make bench-smtp` lists: as many as the goals are set for.
const smtpEntries = 10_000_000

// smtpSettings of a run of `bench smtp`.
type smtpSettings struct {
	n      int // listed addresses
	rounds int
	root   string // of the checkout
	docs   string // folder of performance.md and the plot
	cache  string // folder of the list, its cdb and its index, which serve several runs

	mails    int // of 1 KB on new connections, a path and round
	reused   int // the same on connections that are used again
	large    int // of 10 MB
	refusals int // of listed senders
	timed    int // mails whose commands are timed one by one
	idle     int // sessions held
}

// The load: 20 sessions of 1 KB messages, as the goals have it.
const (
	smtpSessions  = 20
	smallMessage  = 1 << 10
	largeMessage  = 10 << 20
	largeSessions = 4
)

func runSMTP(args []string, stdout, stderr io.Writer) int {
	s := smtpSettings{mails: 3000, reused: 6000, large: 8, refusals: 6000, timed: 500}
	flags := flag.NewFlagSet("bench smtp", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&s.n, "n", smtpEntries, "`addresses` to list")
	flags.IntVar(&s.rounds, "rounds", 7, "`rounds`, after one that does not count")
	flags.IntVar(&s.idle, "idle", 10_000, "`sessions` to hold for the memory of an idle one")
	flags.StringVar(&s.root, "root", "..", "`folder` of the checkout")
	flags.StringVar(&s.docs, "docs", "", "`folder` of performance.md and the plot (default ROOT/docs)")
	flags.StringVar(&s.cache, "cache", "", "`folder` for list, cdb and index, 170 bytes an address (default blockd-bench in the user's cache)")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if s.n < 1000 || s.rounds < 1 || s.idle < 1 || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "bench smtp: want -n of 1000 or more, -rounds and -idle of 1 or more, and no arguments")
		return 2
	}
	if s.docs == "" {
		s.docs = filepath.Join(s.root, "docs")
	}
	if s.cache == "" {
		folder, err := os.UserCacheDir()
		if err != nil {
			fmt.Fprintln(stderr, "bench smtp:", err)
			return 1
		}
		s.cache = filepath.Join(folder, "blockd-bench")
	}
	signal.Ignore(syscall.SIGPIPE) // who reads the tables may stop; the servers are ended all the same
	ctx, stop := interruptible()
	defer stop()
	if err := benchSMTP(ctx, s, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "bench smtp:", err)
		return 1
	}
	return 0
}

func benchSMTP(ctx context.Context, s smtpSettings, stdout, stderr io.Writer) error {
	begun := time.Now()
	if err := searchSbin(); err != nil {
		return err
	}
	for _, program := range []string{"smtp-source", "smtp-sink"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is missing: it comes with Debian's package postfix", program)
		}
	}
	// Not below the user's own temporary folder: Postfix' processes have users of their own.
	dir, err := os.MkdirTemp("", "blockd-bench-smtp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	r := newSMTPReport(s, describeMachine())
	say := func(what string) { fmt.Fprintf(stderr, "%5.0f s  %s\n", time.Since(begun).Seconds(), what) }

	say("list, cdb and index of " + grouped(s.n) + " addresses")
	l, err := makeSMTPLists(ctx, s, dir)
	if err != nil {
		return err
	}
	say("starting servers")
	p, err := startPaths(ctx, dir, l, r)
	defer p.stop()
	if err != nil {
		return err
	}
	for round := range s.rounds + 1 {
		say(fmt.Sprintf("round %d of %d", round, s.rounds))
		if err := p.round(ctx, s, l, r, round > 0); err != nil {
			return err
		}
	}
	say("holding " + grouped(s.idle) + " sessions")
	if err := p.hold(ctx, s, l, r); err != nil {
		return err
	}
	r.elapsed = time.Since(begun)
	if err := r.publish(s.docs, stdout); err != nil {
		return err
	}
	say("done")
	return nil
}

// round measures everything once on every path, one after the other; a round that
// does not count warms up.
func (p *paths) round(ctx context.Context, s smtpSettings, l *smtpLists, r *smtpReport, counts bool) error {
	add := func(t *table, name string, column int, value float64) {
		if counts {
			t.add(name, column, value)
		}
	}
	for _, m := range []struct {
		mails, each, sessions int
		options               []string
		rate, cpu             int // columns; -1: none
		perCPU                float64
	}{
		{s.mails, smallMessage, smtpSessions, nil, acceptedNew, acceptedNewCPU, 1000},
		{s.reused, smallMessage, smtpSessions, []string{"-d"}, acceptedReused, acceptedReusedCPU, 1000},
		{s.large, largeMessage, largeSessions, nil, -1, acceptedLargeCPU, 1 / (float64(largeMessage) / 1e6)},
	} {
		for _, path := range p.accepting {
			before, err := path.cpu()
			if err != nil {
				return err
			}
			seconds, err := source(ctx, path.address, m.sessions, m.mails, m.each, m.options...)
			if err != nil {
				return fmt.Errorf("%s: %w", path.name, err)
			}
			if m.rate >= 0 {
				add(&r.accepted, path.name, m.rate, float64(m.mails)/seconds)
			}
			after, err := path.cpu()
			if err != nil {
				return err
			}
			if path.filters {
				add(&r.accepted, path.name, m.cpu, 1e3*(after-before)/float64(m.mails)*m.perCPU)
			}
		}
	}
	for _, path := range p.refusing {
		for column, each := range map[int]int{refusedNew: 1, refusedReused: refusalsASession} {
			seconds, err := refusals(ctx, path.address, s.refusals, each, l.sample)
			if err != nil {
				return fmt.Errorf("%s: %w", path.name, err)
			}
			add(&r.refused, path.name, column, float64(s.refusals)/seconds)
		}
	}
	return p.timeCommands(ctx, s, l, r, counts)
}

// timeCommands times commands of one session: those that are passed on, on all
// paths, and those of a listed sender at blockd. Paths take turns mail by mail.
func (p *paths) timeCommands(ctx context.Context, s smtpSettings, l *smtpLists, r *smtpReport, counts bool) error {
	var talks []*talk
	for _, path := range p.timed {
		t, err := dialTalk(ctx, path.address)
		if err != nil {
			return fmt.Errorf("%s: %w", path.name, err)
		}
		defer t.close()
		talks = append(talks, t)
	}
	times := make([]map[string]series, len(talks))
	for i := range times {
		times[i] = map[string]series{}
	}
	for n := range s.timed {
		for i, t := range talks {
			if err := t.mail(times[i]); err != nil {
				return fmt.Errorf("%s: %w", p.timed[i].name, err)
			}
			if i == 0 { // blockd
				if err := t.refused(l.sample[n%len(l.sample)], times[i]); err != nil {
					return fmt.Errorf("%s: %w", p.timed[i].name, err)
				}
			}
		}
	}
	if !counts {
		return nil
	}
	for i, path := range p.timed {
		r.latency.add(path.name, latencyMedian, times[i]["passed"].quantile(0.5))
		r.latency.add(path.name, latencyTail, times[i]["passed"].quantile(0.99))
		if i == 0 {
			r.latency.add(path.name, latencyMail, times[i]["MAIL"].quantile(0.5))
			r.latency.add(path.name, latencyRcpt, times[i]["RCPT"].quantile(0.5))
		}
	}
	return nil
}
