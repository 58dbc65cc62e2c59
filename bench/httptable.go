package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The columns of the tables; those of single requests once for each kind.
const (
	singleRate = iota
	singleCPU
	singleMedian
	singleTail
	columnsAKind
)

const (
	streamClear = iota
	streamListed
	batchRate
	batchBefore
	batchAfter
)

// httpReport is what a run of `bench http` has measured.
type httpReport struct {
	httpSettings
	machine
	elapsed time.Duration

	single, many table
}

func newHTTPReport(s httpSettings, m machine) *httpReport {
	var columns []column
	for _, kind := range []string{"clear", "listed"} {
		columns = append(columns, column{kind + ", a second", printWhole, higher}, column{"CPU, µs", significant, lower}, column{"p50, µs", printWhole, lower}, column{"p99, µs", printWhole, lower})
	}
	return &httpReport{httpSettings: s, machine: m,
		single: table{title: "One sender a request", note: fmt.Sprintf("`GET /v1/check`, %d connections that stay, 4,096 senders of each kind in turn. The bare handler writes the same header fields and the same body and does nothing else; the client, the same for all, shares the machine, so that the CPU time of the server for a request stands beside the rate. rspamd looks a sender up in one map and ends there; it closes every connection.", httpConnections), columns: columns},
		many: table{title: "Many senders a request", note: fmt.Sprintf("Senders a second. A stream of %s; and %s batches of 1,000, half of them listed, one after the other, with the daemon's anonymous memory before (behind %d that do not count) and after, in MB.", grouped(s.stream), grouped(s.batches), warmBatches), columns: []column{
			{"stream, clear", printMillions, higher}, {"stream, listed", printMillions, higher}, {"batches", printMillions, higher}, {"memory before", significant, neither}, {"after", significant, neither}}},
	}
}

// maxBatchGrowth is what memory may differ by and still be flat: the collector is
// between two of its rounds when it is looked at.
const maxBatchGrowth = 16 // MB

// goals are those that HTTP is held to.
func (r *httpReport) goals() (goals []goal) {
	for kind, word := range []string{"a clear sender", "a listed sender"} {
		rate, tail := columnsAKind*kind+singleRate, columnsAKind*kind+singleTail
		goals = append(goals,
			r.single.versus("GET /v1/check, "+word, rate, nameBare, "a bare handler", 0.8),
			r.single.versus("", rate, nameCheckV2, "rspamd", 8),
			atMost("p99", 2, "ms", r.single.cells(nameBlockd, tail).median()/1e3, true))
	}
	goals = append(goals,
		atLeast("senders of a stream, clear", 500_000, "a second", r.many.cells(nameBlockd, streamClear)),
		atLeast("senders of a stream, listed", 500_000, "a second", r.many.cells(nameBlockd, streamListed)))
	before, after := r.many.cells(nameBlockd, batchBefore), r.many.cells(nameBlockd, batchAfter)
	return append(goals, atMost("memory that the batches leave behind", maxBatchGrowth, "MB", max(0, after.difference(before)), len(after) > 0))
}

func (r *httpReport) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s listed addresses, HTTP\n\n", grouped(r.n))
	fmt.Fprintf(&b, "%s. Load average %s before and %s after. The run took %.0f s.\n\n", r.machine, r.machine.load, loadAverage(), r.elapsed.Seconds())
	b.WriteString(goalsMarkdown(r.goals()) + "\n")
	for _, t := range []*table{&r.single, &r.many} {
		b.WriteString(t.markdown() + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// publish prints the tables, and puts them into performance.md if that has a place for
// this number of addresses.
func (r *httpReport) publish(docs string, stdout io.Writer) error {
	text := r.markdown()
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	path := filepath.Join(docs, "performance.md")
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin := fmt.Sprintf("<!-- bench http -n %d: written by make bench-http -->", r.n)
	end := fmt.Sprintf("<!-- bench http -n %d: end -->", r.n)
	document, ok := replaceBetween(document, begin, end, text)
	if !ok {
		fmt.Fprintf(stdout, "\n%s stays as it is: it has no %q before %q\n", path, begin, end)
		return nil
	}
	return os.WriteFile(path, document, 0o644)
}

// untilRead waits until a server knows its senders: rspamd listens before.
func untilRead(ctx context.Context, s httpServer) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		_, _, err := load(ctx, s.address, 8, 64, s.exchanges[listedKind])
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
