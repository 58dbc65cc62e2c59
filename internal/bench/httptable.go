package main

import "fmt"

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

// httpTables are what `bench http` measures.
type httpTables struct{ single, many table }

func newHTTPTables(s httpSettings) httpTables {
	var columns []column
	for _, kind := range []string{"clear", "listed"} {
		columns = append(columns, column{kind + ", a second", printWhole, higher}, column{"CPU, µs", significant, lower}, column{"p50, µs", printWhole, lower}, column{"p99, µs", printWhole, lower})
	}
	return httpTables{
		single: table{title: "One sender a request", note: fmt.Sprintf("`GET /v1/check`, %d connections that stay, 4,096 senders of each kind in turn. The bare handler writes the same header fields and the same body and does nothing else; the client, the same for all, shares the machine, so that the CPU time of the server for a request stands beside the rate. rspamd looks a sender up in one map and ends there; it closes every connection.", httpConnections), columns: columns},
		many: table{title: "Many senders a request", note: fmt.Sprintf("Senders a second. A stream of %s; and %s batches of 1,000, half of them listed, one after the other, with the daemon's anonymous memory before (behind %d that do not count) and after, in MB.", grouped(s.stream), grouped(s.batches), warmBatches), columns: []column{
			{"stream, clear", printMillions, higher}, {"stream, listed", printMillions, higher}, {"batches", printMillions, higher}, {"memory before", significant, neither}, {"after", significant, neither}}},
	}
}

// maxBatchGrowth is what memory may differ by and still be flat: the collector is
// between two of its rounds when it is looked at.
const maxBatchGrowth = 16 // MB

// goals are those that HTTP is held to.
func (r *httpDoor) goals() (goals []goal) {
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

func (r *httpDoor) tables() []*table { return []*table{&r.single, &r.many} }

func (r *httpDoor) plot() (title string, panels []panel) { return "", nil }
