package main

import (
	"context"
	"fmt"
)

// httpSettings of a run of `bench http`.
type httpSettings struct {
	doorSettings
	requests int // a server, kind and round; at rspamd an eighth of them
	stream   int // senders of a stream, a kind and round
	batches  int
}

// The load, as the goals have it.
const (
	httpConnections = 16
	batchSenders    = 1000
	warmBatches     = 500 // before memory is looked at
)

// httpDoor is the HTTP API and the servers that are asked beside it; blockd's is the
// first of asked.
type httpDoor struct {
	httpSettings
	httpTables
	servers
	blockd    string // address
	pid       int    // of blockd
	asked     []httpServer
	lines     [kinds][][]byte // of a stream
	addresses *addresses
}

func newHTTPCommand() *command {
	h := &httpDoor{}
	c := newDoorCommand("http", "HTTP", 7, &h.doorSettings, h)
	c.flags.IntVar(&h.requests, "requests", 40_000, "`requests` of a server and round")
	c.flags.IntVar(&h.stream, "stream", 1_000_000, "`senders` of a stream")
	c.flags.IntVar(&h.batches, "batches", 10_000, "`batches` of 1,000 senders for the memory")
	c.within = func() bool {
		return h.n >= 1000 && h.rounds >= 1 && h.requests >= 100 && h.stream >= 1000 && h.batches >= 1
	}
	c.bounds = "-n and -stream of 1000 or more, -requests of 100 or more, -rounds and -batches of 1 or more"
	return c
}

func (h *httpDoor) lacks() error { return nil }

// round measures everything once, one server after the other.
func (h *httpDoor) round(ctx context.Context) error {
	for kind := range kinds {
		for _, server := range h.asked {
			n := h.requests
			if server.slow {
				n = h.requests / 8
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
			h.single.add(server.name, columnsAKind*kind+singleCPU, 1e6*(after-before)/float64(n))
			h.single.add(server.name, columnsAKind*kind+singleRate, float64(n)/seconds)
			h.single.add(server.name, columnsAKind*kind+singleMedian, times.quantile(0.5))
			h.single.add(server.name, columnsAKind*kind+singleTail, times.quantile(0.99))
		}
	}
	for kind, lines := range h.lines {
		seconds, err := stream(ctx, h.blockd, lines, h.stream, kind == listedKind)
		if err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		h.many.add(nameBlockd, streamClear+kind, float64(h.stream)/seconds)
	}
	return nil
}

// finish asks batches one after the other and looks at the daemon's own memory.
func (h *httpDoor) finish(ctx context.Context, now progress) error {
	now.say(grouped(h.batches) + " batches")
	ask := func(n int) (seconds float64, err error) {
		exchanges := batchExchanges(h.addresses.sample)
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
	seconds, err := ask(h.batches)
	if err != nil {
		return err
	}
	after, err := anonymous(h.pid)
	if err != nil {
		return err
	}
	h.many.add(nameBlockd, batchRate, float64(h.batches*batchSenders)/seconds)
	h.many.add(nameBlockd, batchBefore, before/1024)
	h.many.add(nameBlockd, batchAfter, after/1024)
	return nil
}
