// Redisclients kills, or stops, a master of a Redis Cluster of three and three under a steady load
// of questions, and prints when each client library has answers of its keys again. Decision 0047
// has the figures.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"
)

// The load, and what a question may take.
const (
	every    = 2 * time.Millisecond
	askers   = 64 // goroutines that ask; while all of them wait, a question is left out
	deadline = 300 * time.Millisecond
	before   = 5 * time.Second // of the load, until the master goes
)

// sets is how many keys are asked about, each with members of its own: each master has a third.
const (
	sets    = 96
	members = 50
)

func main() {
	watch := flag.Duration("watch", 30*time.Second, "`time` that each client is watched after the master has gone")
	flag.Parse()
	signal.Ignore(syscall.SIGPIPE) // the reader of the table may go away; the servers are ended all the same
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	fmt.Printf("%-18s %-5s %8s %8s %8s %8s %12s %12s\n", "client", "", "answers", "errors", "left out", "wrong", "back after", "last error")
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		for _, library := range libraries {
			if err := measure(ctx, library, signal, *watch); err != nil {
				fmt.Fprintf(os.Stderr, "redisclients: %s: %v\n", library.name, err)
				os.Exit(1)
			}
		}
	}
}

// question is one that was asked.
type question struct {
	set   int
	at    time.Time
	err   error
	wrong bool
}

// measure starts a Cluster, and watches one client of it.
func measure(ctx context.Context, library library, signal syscall.Signal, watch time.Duration) error {
	c, err := startCluster(ctx)
	defer c.end()
	if err != nil {
		return err
	}
	lost, err := c.fill(ctx)
	if err != nil {
		return err
	}
	ask, end, err := library.dial(c.seeds())
	if err != nil {
		return err
	}
	defer end()
	begun := time.Now()
	gone := begun.Add(before)
	all, leftOut := load(ctx, ask, gone.Add(watch), func(now time.Time) {
		if !now.Before(gone) {
			c.signalMaster(signal)
		}
	})
	report(library.name, signal, all, leftOut, lost, gone)
	return ctx.Err()
}

// load asks until a time comes. each is called before each question.
func load(ctx context.Context, ask asker, until time.Time, each func(now time.Time)) (all []question, leftOut int) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	work := make(chan int, askers)
	for range askers {
		asking.Go(func() {
			for i := range work {
				q := put(ask, i)
				mu.Lock()
				all = append(all, q)
				mu.Unlock()
			}
		})
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil && time.Now().Before(until); i++ {
		now := <-tick.C
		each(now)
		select {
		case work <- i:
		default:
			leftOut++
		}
	}
	close(work)
	asking.Wait()
	return all, leftOut
}

// put asks the i-th question: four keys of a sender, of which the first is a member.
func put(ask asker, i int) question {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	q := question{set: i % sets, at: time.Now()}
	got, err := ask(ctx, setName(q.set), []string{member(i%members, q.set), "clear@a.example", "b.example", "clear@"})
	q.err, q.wrong = err, err == nil && !slices.Equal(got, []int64{1, 0, 0, 0})
	return q
}

func setName(i int) string     { return fmt.Sprintf("listed:%d", i) }
func member(i, set int) string { return fmt.Sprintf("sender%d@bulk%d.example", i, set) }

// report prints a line. lost are the sets of the master that has gone.
func report(name string, signal syscall.Signal, all []question, leftOut int, lost map[int]bool, gone time.Time) {
	answers, errors, wrong := 0, 0, 0
	back, last := time.Duration(0), time.Duration(0)
	for _, q := range all {
		after := q.at.Sub(gone)
		switch {
		case q.wrong:
			wrong++
		case after < 0:
		case q.err != nil:
			errors++
			last = max(last, after)
		default:
			answers++
			if lost[q.set] && after > deadline && (back == 0 || after < back) {
				back = after
			}
		}
	}
	word, shown := "kill", "never"
	if signal == syscall.SIGSTOP {
		word = "stop"
	}
	if back > 0 {
		shown = fmt.Sprintf("%.1f s", back.Seconds())
	}
	fmt.Printf("%-18s %-5s %8d %8d %8d %8d %12s %10.1f s\n", name, word, answers, errors, leftOut, wrong, shown, last.Seconds())
}
