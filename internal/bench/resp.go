package main

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// respSettings of a run of `bench resp`.
type respSettings struct {
	doorSettings
	requests int // without pipelining, a server and round; with it respMore times as many
}

// How redis-benchmark asks.
const (
	respConnections = 50
	respPipeline    = 128
	respMore        = 16
	respSet         = "bench" // the set in Redis, and the list at blockd
)

// respDoor is blockd's RESP door and Redis.
type respDoor struct {
	respSettings
	respTables
	servers
	asked []path // blockd first
	blind path
}

func newRESPCommand() *command {
	d := &respDoor{}
	d.kind = kindNumbered
	c := newDoorCommand("resp", "RESP", 7, &d.doorSettings, d)
	c.flags.IntVar(&d.requests, "requests", 300_000, "`requests` of a server and round, without pipelining")
	c.within = func() bool { return d.n >= 1000 && d.rounds >= 1 && d.requests >= 1000 }
	c.bounds = "-n and -requests of 1000 or more, -rounds of 1 or more"
	return c
}

func (d *respDoor) lacks() error {
	for _, program := range []string{"redis-server", "redis-benchmark"} {
		if lookPath(program) != "" {
			return fmt.Errorf("%s is missing: wants Debian's packages redis-server and redis-tools", program)
		}
	}
	return nil
}

// numbered is the n-th address of a list of kindNumbered, in the form that redis-benchmark can make:
// it puts twelve digits in place of a word.
func numbered(digits string) string { return "user" + digits + "@bulk-mailer.bench.test" }

// writeNumbered writes the first n of them.
func writeNumbered(w io.Writer, n int) error {
	for i := range n {
		if _, err := io.WriteString(w, numbered(fmt.Sprintf("%012d", i))+"\n"); err != nil {
			return err
		}
	}
	return nil
}

func (d *respDoor) start(ctx context.Context, dir string, l *addresses) error {
	d.respTables = newRESPTables(d.respSettings)
	blockd, err := d.startBlockd(ctx, dir, l)
	if err != nil {
		return err
	}
	redis, err := d.startRedis(ctx, dir, l)
	if err != nil {
		return err
	}
	if d.blind, err = d.startOwn(ctx, nameBlind, "blind-resp"); err != nil {
		return err
	}
	d.asked = []path{blockd, redis}
	for _, s := range d.asked {
		if err := checkMembers(s.address, d.n); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// round measures both servers once.
func (d *respDoor) round(ctx context.Context) error {
	for pipelined, pipeline := range []int{1, respPipeline} {
		n := d.requests
		if pipelined == 1 {
			n *= respMore
		}
		for _, s := range append(slices.Clone(d.asked), d.blind) {
			before, err := s.cpu()
			if err != nil {
				return err
			}
			load, err := askMembers(ctx, s.address, pipeline, n, 2*d.n)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			after, err := s.cpu()
			if err != nil {
				return err
			}
			d.rates.add(s.name, respColumns*pipelined+respRate, load.rate)
			d.rates.add(s.name, respColumns*pipelined+respCPU, 1e6*(after-before)/float64(n))
			d.rates.add(s.name, respColumns*pipelined+respMedian, load.median)
			d.rates.add(s.name, respColumns*pipelined+respTail, load.tail)
		}
	}
	return nil
}

// finish looks at memory.
func (d *respDoor) finish(context.Context, progress) error {
	for _, s := range d.asked {
		if err := addMemory(&d.memory, s.name, s.pid, respOwn, respResident); err != nil {
			return err
		}
	}
	return nil
}

// The columns of the tables; those of rates once for each depth of pipelining.
const (
	respRate = iota
	respCPU
	respMedian
	respTail
	respColumns
)

const (
	respOwn = iota
	respResident
)

const nameRedis = "redis-server, `SISMEMBER` of a set"

// respTables are what `bench resp` measures.
type respTables struct{ rates, memory table }

func newRESPTables(s respSettings) respTables {
	var columns []column
	for _, depth := range []string{"one at a time", fmt.Sprintf("pipelines of %d", respPipeline)} {
		columns = append(columns, column{depth + ", a second", printWhole, higher}, column{"CPU, µs", significant, lower}, column{"p50, ms", significant, lower}, column{"p99, ms", significant, lower})
	}
	return respTables{
		rates: table{title: "SISMEMBER", note: fmt.Sprintf("redis-benchmark with %d connections on the same two cores, %s requests one at a time and %s in pipelines; members at random, half of them listed. The times are those of whole pipelines. The last row looks at nothing: what client and kernel allow here.",
			respConnections, grouped(s.requests), grouped(respMore*s.requests)), columns: columns},
		memory: table{title: "Memory afterwards", note: "MB: of the process itself, and with the pages of files that it has in use, which the system may drop.", columns: []column{
			{"anonymous", significant, lower}, {"resident", significant, lower}}},
	}
}

// goals are those that the door is held to.
func (d *respDoor) goals() []goal {
	return []goal{
		d.rates.versus("SISMEMBER, one at a time", respRate, nameRedis, "Redis", 1.1),
		d.rates.versus(fmt.Sprintf("pipelines of %d", respPipeline), respColumns+respRate, nameRedis, "Redis", 2),
		d.memory.versus("anonymous memory", respOwn, nameRedis, "Redis", 1.0/20),
	}
}

func (d *respDoor) tables() []*table { return []*table{&d.rates, &d.memory} }

func (d *respDoor) plot() (title string, panels []panel) {
	more := "two cores shared with the client, more is better"
	return fmt.Sprintf("Members of a set of %s addresses", grouped(d.n)), []panel{
		{&d.rates, respRate, "SISMEMBER a second, one at a time", more, printWhole},
		{&d.rates, respColumns + respRate, fmt.Sprintf("In pipelines of %d, a second", respPipeline), more, printWhole},
		{&d.memory, respOwn, "Anonymous memory", "MB, less is better", significant},
	}
}
