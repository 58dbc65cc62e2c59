package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const growthConfig = `
[index]
path = %q
[smtp]
listen = %q
hostname = "filter.bench.test"
upstream = "smtp://%s"
client_info = "none" # smtp-sink announces XCLIENT and does not do it
allow_open_upstream = true # a sink takes everything
max_connections = 20000
max_connections_per_ip = 20000
[http]
listen = %q
max_rate = 0
max_connections = 40000 # half of them from one address
[milter]
listen = ""
[postfix]
policy_listen = ""
[[list]]
name = "bench"
path = %q
format = "plain"
`

// grown is a daemon on so many processors.
type grown struct {
	path
	servers
	smtp  string        // address
	start time.Duration // to its first answer
}

// daemon starts one whose index is there, with an upstream if it shall relay.
func (g *growth) daemon(ctx context.Context, dir string, processors int, sink, sender string) (d *grown, err error) {
	d = &grown{}
	if d.address, err = freeAddress(); err != nil {
		return nil, err
	}
	if d.smtp, err = freeAddress(); err != nil {
		return nil, err
	}
	d.filters = true
	config := filepath.Join(dir, "blockd.toml")
	text := fmt.Appendf(nil, growthConfig, filepath.Join(dir, "list.bdx"), d.smtp, sink, d.address, filepath.Join(dir, "list.txt"))
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return nil, err
	}
	first := []exchange{get(d.address, "/v1/check", sender, verdictOf(listedKind))}
	begun := time.Now()
	ready := func() bool {
		_, _, err := load(ctx, d.address, 1, 1, first)
		d.start = time.Since(begun)
		return err == nil
	}
	err = pinned(processors, func() (err error) {
		d.pid, err = d.launchUntil(ctx, ready, config+".log", g.program, "serve", "-c", config)
		return err
	})
	if err != nil {
		d.stop()
		return nil, fmt.Errorf("%w: %s", err, contents(config+".log"))
	}
	return d, nil
}

// cost adds what f takes of the daemon's processor time for each of n, in units a second.
func (d *grown) cost(t *table, name string, column, n int, units float64, f func() error) error {
	before, err := d.cpu()
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	after, err := d.cpu()
	if err == nil {
		t.add(name, column, units*(after-before)/float64(n))
	}
	return err
}

func (g *growth) serve(ctx context.Context, dir string, n, processors int, k *keys) error {
	d, err := g.daemon(ctx, dir, processors, "127.0.0.1:9", k.listed[0])
	if err != nil {
		return err
	}
	defer d.stop()
	t, name, from := &g.entries.daemon, grouped(n), (processors-1)*growDaemonColumns
	t.add(name, from+growDaemonStart, milliseconds(d.start))
	for round := range g.rounds + 1 {
		for kind, senders := range [kinds][]string{clearKind: k.clear, listedKind: k.listed} {
			exchanges := make([]exchange, 0, len(senders))
			for _, sender := range senders[:min(len(senders), growRequests)] {
				exchanges = append(exchanges, get(d.address, "/v1/check", sender, verdictOf(kind)))
			}
			spent := table{columns: make([]column, 1)}
			err := d.cost(&spent, name, 0, growRequests, 1e6, func() error {
				seconds, _, err := load(ctx, d.address, httpConnections, growRequests, exchanges)
				if round > 0 {
					t.add(name, from+growDaemonClear+kind, growRequests/seconds)
				}
				return err
			})
			if err != nil {
				return err
			}
			if round > 0 && kind == clearKind {
				t.add(name, from+growDaemonCPU, spent.cells(name, 0).median())
			}
		}
	}
	own, err := anonymous(d.pid)
	t.add(name, from+growDaemonOwn, own/1024)
	return err
}

// crowded measures a daemon that so many connections ask at once. A session of SMTP takes two descriptors of
// the daemon, so that there may be fewer of them.
func (g *growth) crowded(ctx context.Context, dir string, connections, processors int, k *keys) error {
	for range g.rounds {
		if err := g.crowdedOnce(ctx, dir, connections, processors, k); err != nil {
			return err
		}
	}
	return nil
}

// crowdedOnce is a round of crowded, with a daemon and a sink of its own: the ports of closed connections rest for
// a minute, and from one address to another there are 28,000 of them.
func (g *growth) crowdedOnce(ctx context.Context, dir string, connections, processors int, k *keys) error {
	var sink servers
	defer sink.stop()
	address, err := startSink(ctx, &sink)
	if err != nil {
		return err
	}
	d, err := g.daemon(ctx, dir, processors, address.address, k.listed[0])
	if err != nil {
		return err
	}
	defer d.stop()
	if err := waitFor(ctx, d.smtp); err != nil {
		return err
	}
	t, name, from := &g.crowd, grouped(connections), (processors-1)*growCrowdColumns
	exchanges := make([]exchange, 0, growRequests)
	for _, sender := range k.clear[:min(len(k.clear), growRequests)] {
		exchanges = append(exchanges, get(d.address, "/v1/check", sender, verdictOf(clearKind)))
	}
	if _, _, err := load(ctx, d.address, min(connections, 100), growRequests, exchanges); err != nil { // to warm up
		return err
	}
	requests := max(growRequests, 10*connections)
	sessions := min(connections, (int(descriptors())-1000)/2)
	if sessions < connections {
		name += fmt.Sprintf(" (%s sessions)", grouped(sessions))
	}
	mails := max(growMails, 2*sessions)
	seconds, times, err := load(ctx, d.address, connections, requests, exchanges)
	if err != nil {
		return err
	}
	t.add(name, from+growCrowdHTTP, float64(requests)/seconds)
	t.add(name, from+growCrowdHTTPTail, times.quantile(0.99)/1e3)
	err = d.cost(t, name, from+growCrowdMailCPU, mails+sessions, 1e3, func() error {
		seconds, times, err := mailLoad(ctx, d.smtp, sessions, mails)
		if err == nil {
			t.add(name, from+growCrowdMails, float64(mails)/seconds)
			t.add(name, from+growCrowdMailTail, times.quantile(0.99))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, lastLines(filepath.Join(dir, "blockd.toml.log")))
	}
	own, err := anonymous(d.pid)
	if err != nil {
		return err
	}
	t.add(name, from+growCrowdOwn, own/1024)
	if processors == mostProcessors {
		seconds, _, err := mailLoad(ctx, address.address, sessions, mails)
		if err != nil {
			return fmt.Errorf("the sink alone: %w", err)
		}
		t.add(name, growCrowdSink, float64(mails)/seconds)
	}
	return nil
}

// mailLoad opens sessions, each with a mail that does not count, and lets each pass mails one after the other. It returns the seconds
// that these took, and the milliseconds of each. The first mail opens the way to the sink, whose queue of those who wait to be
// accepted would overflow if all did so at once: the system then drops connections that one end believes to have.
func mailLoad(ctx context.Context, address string, sessions, mails int) (seconds float64, times series, err error) {
	talks := make([]*talk, sessions)
	faults := make([]error, sessions)
	times = make(series, mails)
	defer func() {
		for _, t := range talks {
			if t != nil {
				t.close()
			}
		}
	}()
	each := func(f func(i int) error) {
		var wg sync.WaitGroup
		for i := range sessions {
			wg.Go(func() { faults[i] = errors.Join(faults[i], f(i)) })
		}
		wg.Wait()
	}
	opening := make(chan struct{}, 200)
	each(func(i int) (err error) {
		opening <- struct{}{}
		defer func() { <-opening }()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(i/5000), 1)}, KeepAlive: -1}
		if talks[i], err = dialTalkFrom(ctx, d, address); err != nil {
			return err
		}
		return talks[i].mail(map[string]series{})
	})
	begun := time.Now()
	each(func(i int) error {
		if faults[i] != nil {
			return nil
		}
		steps := map[string]series{}
		for m := i; m < mails; m += sessions {
			at := time.Now()
			if err := talks[i].mail(steps); err != nil {
				return err
			}
			times[m] = milliseconds(time.Since(at))
		}
		return nil
	})
	return time.Since(begun).Seconds(), times, errors.Join(faults...)
}
