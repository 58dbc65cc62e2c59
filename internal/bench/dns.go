package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// dnsSettings of a run of `bench dns`.
type dnsSettings struct {
	doorSettings
	seconds int // of a load
	pace    int // queries a second while latency is measured
}

// dnsQueries is how many names are asked in turn, at even distances over the list. A name out of
// two is listed.
const dnsQueries = 500_000

// dnsZone is the zone that both servers answer.
const dnsZone = "dbl.bench.test"

// dnsDoor is blockd's DNS door and rbldnsd.
type dnsDoor struct {
	dnsSettings
	dnsTables
	servers
	asked   []dnsServer // blockd first
	blind   dnsServer
	queries string // file
	more    string // list that changes
	changes int
}

func newDNSCommand() *command {
	d := &dnsDoor{}
	d.kind = kindDomain
	c := newDoorCommand("dns", "DNS", 7, &d.doorSettings, d)
	c.flags.IntVar(&d.seconds, "seconds", 5, "`seconds` of a load")
	c.flags.IntVar(&d.pace, "pace", 10_000, "`queries` a second where latency is measured")
	c.within = func() bool { return d.n >= 1000 && d.rounds >= 1 && d.seconds >= 1 && d.pace >= 100 }
	c.bounds = "-n of 1000 or more, -pace of 100 or more, -rounds and -seconds of 1 or more"
	return c
}

func (d *dnsDoor) lacks() error {
	if why := lookPath("dnsperf"); why != "" {
		return fmt.Errorf("dnsperf is missing: %s", why)
	}
	return nil
}

func (d *dnsDoor) start(ctx context.Context, dir string, l *addresses) (err error) {
	d.dnsTables = newDNSTables(d.dnsSettings)
	d.queries, d.more = filepath.Join(dir, "queries.txt"), filepath.Join(dir, "more.txt")
	if err := writeQueries(d.queries, l.text, d.n); err != nil {
		return err
	}
	if err := d.change(); err != nil {
		return err
	}
	blockd, err := d.startBlockd(ctx, dir, l)
	if err != nil {
		return err
	}
	if d.blind.path, err = d.startOwn(ctx, nameBlind, "blind-dns"); err != nil {
		return err
	}
	d.asked = []dnsServer{blockd}
	if why := lookPath("rbldnsd"); why != "" {
		d.rates.missing(nameRBLDNSD, why)
		return nil
	}
	peer, err := d.startRBLDNSD(ctx, dir, l)
	if err != nil {
		return err
	}
	d.asked = append(d.asked, peer)
	return nil
}

// writeQueries makes the file that dnsperf asks: names in the list, each followed by one of the same
// look that is not.
func writeQueries(path, text string, n int) error {
	listed, err := someLines(text, n, min(n, dnsQueries/2))
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	rng.Shuffle(len(listed), func(i, j int) { listed[i], listed[j] = listed[j], listed[i] })
	return writeFile(path, func(f *os.File) error {
		w := bufio.NewWriter(f)
		for _, name := range listed {
			fmt.Fprintf(w, "%s.%s A\nnot-%s.%s A\n", name, dnsZone, name, dnsZone)
		}
		return w.Flush()
	})
}

// change puts another domain into the list that changes, and takes the last one out.
func (d *dnsDoor) change() error {
	d.changes++
	temp := d.more + ".new"
	if err := os.WriteFile(temp, []byte(d.changed()+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, d.more)
}

// changed is the domain that the list that changes has now.
func (d *dnsDoor) changed() string { return fmt.Sprintf("change-%d.bench.example", d.changes) }

// round measures both servers once.
func (d *dnsDoor) round(ctx context.Context) error {
	for _, s := range append(slices.Clone(d.asked), d.blind) {
		before, err := s.cpu()
		if err != nil {
			return err
		}
		full, err := d.load(ctx, s, d.seconds, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		after, err := s.cpu()
		if err != nil {
			return err
		}
		d.rates.add(s.name, dnsRate, full.rate)
		d.rates.add(s.name, dnsCPU, 1e6*(after-before)/float64(full.completed))
		d.rates.add(s.name, dnsLost, float64(full.lost))
		paced, err := d.load(ctx, s, d.seconds, d.pace)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		d.rates.add(s.name, dnsMedian, paced.times.quantile(0.5))
		d.rates.add(s.name, dnsTail, paced.times.quantile(0.99))
	}
	return nil
}

// reloadLimit is how long a change may take to act.
const reloadLimit = 2 * time.Minute

// finish changes a list under load, and looks at memory.
func (d *dnsDoor) finish(ctx context.Context, now progress) error {
	for _, s := range d.asked {
		now.say("changing a list under load: " + s.name)
		if err := d.reload(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	for _, s := range d.asked {
		if err := addMemory(&d.memory, s.name, s.pid, dnsOwn, dnsResident); err != nil {
			return err
		}
	}
	return nil
}

// reload changes a list while a server is under load, and waits until the change acts.
func (d *dnsDoor) reload(ctx context.Context, s dnsServer) error {
	name := d.changed() + "." + dnsZone
	if err := until(ctx, reloadLimit, name, func() (bool, error) { return asks(s.address, name) == 1, nil }); err != nil {
		return err
	}
	loaded, stop := context.WithCancel(ctx)
	type outcome struct {
		dnsLoad
		error
	}
	done := make(chan outcome, 1)
	go func() {
		l, err := d.load(loaded, s, int(reloadLimit.Seconds()), d.pace)
		done <- outcome{l, err}
	}()
	defer stop()
	if err := wait(ctx, time.Second); err != nil { // it has begun
		return err
	}
	begun := time.Now()
	if err := d.change(); err != nil {
		return err
	}
	name = d.changed() + "." + dnsZone
	if err := until(ctx, reloadLimit, name, func() (bool, error) { return asks(s.address, name) == 1, nil }); err != nil {
		return err
	}
	d.reloads.add(s.name, reloadActs, time.Since(begun).Seconds())
	// What follows the change, a build in the background, is under load as well.
	if err := wait(ctx, time.Duration(d.seconds)*time.Second); err != nil {
		return err
	}
	stop()
	end := <-done
	if end.error != nil {
		return end.error
	}
	d.reloads.add(s.name, reloadLost, float64(end.lost))
	d.reloads.add(s.name, reloadTail, end.times.quantile(0.99)/1e3)
	d.reloads.add(s.name, reloadLongest, end.times.quantile(1)/1e3)
	return nil
}

// wait waits, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// freePort returns an address of this machine that is free for both TCP and UDP.
func freePort() (string, error) {
	for {
		address, err := freeAddress()
		if err != nil {
			return "", err
		}
		if udp, err := net.ListenPacket("udp", address); err == nil {
			return address, udp.Close()
		}
	}
}
