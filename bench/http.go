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

// httpSettings of a run of `bench http`.
type httpSettings struct {
	smtpSettings     // n, rounds, root, docs, cache
	requests     int // a server, kind and round
	slow         int // the same at rspamd
	stream       int // senders of a stream, a kind and round
	batches      int
}

// The load, as the goals have it.
const (
	httpConnections = 16
	batchSenders    = 1000
	warmBatches     = 500 // before memory is looked at
)

func runHTTP(args []string, stdout, stderr io.Writer) int {
	var s httpSettings
	flags := flag.NewFlagSet("bench http", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&s.n, "n", smtpEntries, "`addresses` to list")
	flags.IntVar(&s.rounds, "rounds", 7, "`rounds`, after one that does not count")
	flags.IntVar(&s.requests, "requests", 40_000, "`requests` of a server and round")
	flags.IntVar(&s.stream, "stream", 1_000_000, "`senders` of a stream")
	flags.IntVar(&s.batches, "batches", 10_000, "`batches` of 1,000 senders for the memory")
	flags.StringVar(&s.root, "root", "..", "`folder` of the checkout")
	flags.StringVar(&s.docs, "docs", "", "`folder` of performance.md (default ROOT/docs)")
	flags.StringVar(&s.cache, "cache", "", "`folder` for list and index, 130 bytes an address (default blockd-bench in the user's cache)")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if s.n < 1000 || s.rounds < 1 || s.requests < 100 || s.stream < 1000 || s.batches < 1 || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "bench http: want -n and -stream of 1000 or more, -requests of 100 or more, -rounds and -batches of 1 or more, and no arguments")
		return 2
	}
	s.slow = s.requests / 8
	if s.docs == "" {
		s.docs = filepath.Join(s.root, "docs")
	}
	if s.cache == "" {
		folder, err := os.UserCacheDir()
		if err != nil {
			fmt.Fprintln(stderr, "bench http:", err)
			return 1
		}
		s.cache = filepath.Join(folder, "blockd-bench")
	}
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := interruptible()
	defer stop()
	if err := benchHTTP(ctx, s, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "bench http:", err)
		return 1
	}
	return 0
}

func benchHTTP(ctx context.Context, s httpSettings, stdout, stderr io.Writer) error {
	begun := time.Now()
	if err := searchSbin(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "blockd-bench-http-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // rspamd has a user of its own
		return err
	}
	r := newHTTPReport(s, describeMachine())
	say := func(what string) { fmt.Fprintf(stderr, "%5.0f s  %s\n", time.Since(begun).Seconds(), what) }

	say("list and index of " + grouped(s.n) + " addresses")
	l, err := makeAddresses(ctx, s.smtpSettings, dir)
	if err != nil {
		return err
	}
	say("starting servers")
	h, err := startHTTP(ctx, dir, l, r)
	defer h.stop()
	if err != nil {
		return err
	}
	for round := range s.rounds + 1 {
		say(fmt.Sprintf("round %d of %d", round, s.rounds))
		if err := h.round(ctx, s, r, round > 0); err != nil {
			return err
		}
	}
	say(grouped(s.batches) + " batches")
	if err := h.batches(ctx, s, l, r); err != nil {
		return err
	}
	r.elapsed = time.Since(begun)
	if err := r.publish(s.docs, stdout); err != nil {
		return err
	}
	say("done")
	return nil
}

// round measures everything once, one server after the other; a round that does not
// count warms up.
func (h *httpServers) round(ctx context.Context, s httpSettings, r *httpReport, counts bool) error {
	add := func(t *table, name string, column int, value float64) {
		if counts {
			t.add(name, column, value)
		}
	}
	for kind := range kinds {
		for _, server := range h.asked {
			n := s.requests
			if server.slow {
				n = s.slow
			}
			before, err := server.cpu()
			if err != nil {
				return err
			}
			seconds, times, err := load(ctx, server.address, httpConnections, n, server.exchanges[kind])
			if err != nil {
				return fmt.Errorf("%s: %w", server.name, err)
			}
			after, err := server.cpu()
			if err != nil {
				return err
			}
			add(&r.single, server.name, columnsAKind*kind+singleCPU, 1e6*(after-before)/float64(n))
			add(&r.single, server.name, columnsAKind*kind+singleRate, float64(n)/seconds)
			add(&r.single, server.name, columnsAKind*kind+singleMedian, times.quantile(0.5))
			add(&r.single, server.name, columnsAKind*kind+singleTail, times.quantile(0.99))
		}
	}
	for kind, lines := range h.lines {
		seconds, err := stream(ctx, h.blockd, lines, s.stream, kind == listedKind)
		if err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		add(&r.many, nameBlockd, streamClear+kind, float64(s.stream)/seconds)
	}
	return nil
}

// batches asks them one after the other and looks at the daemon's own memory.
func (h *httpServers) batches(ctx context.Context, s httpSettings, l *smtpLists, r *httpReport) error {
	ask := func(n int) (seconds float64, err error) {
		exchanges := batchExchanges(l.sample)
		seconds, _, err = load(ctx, h.blockd, 1, n, exchanges)
		return seconds, err
	}
	if _, err := ask(warmBatches); err != nil {
		return err
	}
	before, err := anonymous(h.pid)
	if err != nil {
		return err
	}
	seconds, err := ask(s.batches)
	if err != nil {
		return err
	}
	after, err := anonymous(h.pid)
	if err != nil {
		return err
	}
	r.many.add(nameBlockd, batchRate, float64(s.batches*batchSenders)/seconds)
	r.many.add(nameBlockd, batchBefore, before/1024)
	r.many.add(nameBlockd, batchAfter, after/1024)
	return nil
}
