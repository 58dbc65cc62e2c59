package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// newNodesCommand is `bench nodes`: how long mail servers that look each minute take until they act by what is published, as programs.
func newNodesCommand() *command {
	r, nodes := &publishRun{}, 0
	c := newCommand("bench nodes", &r.scale)
	c.flags.IntVar(&r.n, "n", 100_000, "`entries` of the list")
	c.flags.IntVar(&nodes, "nodes", 20, "`mail servers`")
	c.flags.IntVar(&r.rounds, "rounds", 3, "`changes`")
	c.flags.StringVar(&r.temp, "temp", "", "`folder` for temporary files, 400 octets an entry and node (default the system's)")
	c.within = func() bool { return r.n >= 10_000 && nodes >= 1 && nodes <= 200 && r.rounds >= 1 }
	c.bounds = "-n of 10,000 or more, -nodes of 1 to 200, -rounds of 1 or more"
	c.measure = func(ctx context.Context, stdout, stderr io.Writer) error { return r.nodes(ctx, nodes, stdout, stderr) }
	return c
}

func (r *publishRun) nodes(ctx context.Context, count int, stdout, stderr io.Writer) error {
	const every = time.Minute
	p, on := newProgress(stderr), describeMachine()
	defer func() { os.RemoveAll(r.dir) }()
	ctx, end := context.WithCancel(ctx)
	defer end()
	if err := r.prepare(ctx, p); err != nil {
		return err
	}
	if _, err := r.publish(ctx); err != nil {
		return err
	}
	present, err := someLines(r.list(), r.n, 1)
	if err != nil {
		return err
	}
	web := r.web(ctx)
	var all []*http.Client
	for i := range count { // spread over a minute, as those of a fleet are
		node, err := r.node(ctx, fmt.Sprintf("mx%d", i), web, every)
		if err != nil {
			return err
		}
		all = append(all, node)
		select {
		case <-time.After(every / time.Duration(count)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if _, err := allAct(ctx, all, present[0]); err != nil {
		return err
	}
	var took series
	for round := range r.rounds {
		p.say(fmt.Sprintf("change %d", round+1))
		sender, err := r.change(round)
		if err != nil {
			return err
		}
		if _, err := r.publish(ctx); err != nil {
			return err
		}
		times, err := allAct(ctx, all, sender)
		if err != nil {
			return err
		}
		took = append(took, times...)
	}
	slices.Sort(took)
	r.goals = append(r.goals,
		goal{what: "after a publication for all at once a node acts, p50", measured: significant(took[len(took)/2]) + " s"},
		atMost("p99", 75, "s", took[(len(took)*99+99)/100-1], true))
	return r.tell(fmt.Sprintf("### %d nodes that look each minute, %d changes of a list of %s", count, r.rounds, grouped(r.n)), fmt.Sprintf("bench nodes -nodes %d", count), on, stdout)
}

// allAct waits until all nodes refuse a sender, and returns how many seconds each took.
func allAct(ctx context.Context, all []*http.Client, sender string) (series, error) {
	took, begun := make(series, len(all)), time.Now()
	var group errgroup.Group
	for i, node := range all {
		group.Go(func() error {
			err := acts(ctx, node, sender)
			took[i] = time.Since(begun).Seconds()
			return err
		})
	}
	return took, group.Wait()
}
