package main

import "fmt"

// The columns of the tables.
const (
	acceptedNew = iota
	acceptedNewCPU
	acceptedReused
	acceptedReusedCPU
	acceptedLargeCPU
)

const (
	refusedNew = iota
	refusedReused
)

const (
	latencyMedian = iota
	latencyTail
	latencyMail
	latencyRcpt
)

const (
	memorySession = iota
	memoryAll
)

// smtpTables are what `bench smtp` measures.
type smtpTables struct{ accepted, refused, latency, memory table }

func newSMTPTables() smtpTables {
	return smtpTables{
		accepted: table{title: "Mail that is accepted", note: "1 KB, 20 sessions of `smtp-source`. A connection for each mail, or used again (`-d`); the filter's CPU for a thousand of them, in ms of user and kernel time together; and for a megabyte of messages of 10 MB. HAProxy and the pipe look at nothing; Postfix asks its cdb for the sender.", columns: []column{
			{"new, mails/s", printWhole, higher}, {"CPU ms", significant, lower}, {"reused, mails/s", printWhole, higher}, {"CPU ms", significant, lower}, {"CPU ms a MB", significant, lower}}},
		refused: table{title: "Senders that are refused", note: fmt.Sprintf("MAIL and RCPT of listed senders a second, 20 sessions: one a connection, or %d, with RSET in between.", refusalsASession), columns: []column{
			{"new, a second", printWhole, higher}, {"reused, a second", printWhole, higher}}},
		latency: table{title: "Time of a command", note: "µs from writing it to reading its reply, one session: MAIL, RCPT, DATA and a message of 1 KB that are passed on; and the two of a listed sender, which are not.", columns: []column{
			{"passed on, p50", significant, lower}, {"p99", significant, lower}, {"listed: MAIL, p50", significant, lower}, {"RCPT, p50", significant, lower}}},
		memory: table{title: "Memory of idle sessions", note: "Anonymous memory while mail flows beside them; what was there before is taken off the first figure.", columns: []column{
			{"KiB a session", significant, neither}, {"MB in all", significant, neither}}},
	}
}

// goals are those that the SMTP filter is held to.
func (r *smtpDoor) goals() []goal {
	goals := []goal{
		r.accepted.versus("accepted mails, new connections", acceptedNew, nameHAProxy, "HAProxy", 1),
		r.accepted.versus("", acceptedNew, namePipe, "a bare pipe in Go", 1.15),
		r.accepted.versus("", acceptedNew, namePostfix, "Postfix", 2.5),
		r.accepted.versus("accepted mails, reused connections", acceptedReused, nameHAProxy, "HAProxy", 1.1),
		r.accepted.versus("", acceptedReused, namePostfix, "Postfix", 4),
		r.refused.versus("refused senders, new connections", refusedNew, nameRefusing, "a bare refusing sink", 0.6),
		r.refused.versus("", refusedNew, namePostfix, "Postfix", 1.8),
		r.refused.versus("refused senders, reused connections", refusedReused, nameRefusing, "a bare refusing sink", 0.6),
		r.refused.versus("", refusedReused, namePostfix, "Postfix", 1.8),
		r.accepted.versus("CPU of 1 KB mails, new connections", acceptedNewCPU, nameHAProxy, "HAProxy", 1.2),
		r.accepted.versus("", acceptedNewCPU, namePipe, "a bare pipe in Go", 1),
		r.accepted.versus("", acceptedNewCPU, namePostfix, "Postfix", 0.4),
		r.accepted.versus("CPU of 1 KB mails, reused connections", acceptedReusedCPU, nameHAProxy, "HAProxy", 1.2),
		r.accepted.versus("", acceptedReusedCPU, namePostfix, "Postfix", 0.4),
	}
	large := r.accepted.cells(nameBlockd, acceptedLargeCPU)
	goals = append(goals, atMost("CPU of a megabyte of message", 3, "ms", large.median(), true))
	added := func(name string, column int) float64 {
		return r.latency.cells(name, column).difference(r.latency.cells(nameDirect, column))
	}
	median := goal{what: "added to a command, p50 (HAProxy's own)", want: "≤ HAProxy"}
	if len(r.latency.cells(nameHAProxy, latencyMedian)) > 0 {
		median = atMost(median.what, added(nameHAProxy, latencyMedian), "µs", added(nameBlockd, latencyMedian), true)
	}
	goals = append(goals, median, atMost("added to a command, p99", 150, "µs", added(nameBlockd, latencyTail), true))
	refused := max(r.latency.cells(nameBlockd, latencyMail).median(), r.latency.cells(nameBlockd, latencyRcpt).median())
	goals = append(goals, atMost("MAIL or RCPT of a listed sender, p50", 100, "µs", refused, true))
	return append(goals, idleMemory("session", r.idle, 12, r.memory.cells(nameBlockd, memorySession)))
}

func (r *smtpDoor) tables() []*table {
	return []*table{&r.accepted, &r.refused, &r.latency, &r.memory}
}

func (r *smtpDoor) plot() (title string, panels []panel) {
	return fmt.Sprintf("blockd's SMTP filter and its peers, %s listed addresses", grouped(r.n)), []panel{
		{&r.accepted, acceptedNew, "Mail accepted, a connection each", "mails a second, more is better", printWhole},
		{&r.accepted, acceptedReused, "Mail accepted, connections used again", "mails a second, more is better", printWhole},
		{&r.accepted, acceptedNewCPU, "CPU of a thousand mails, a connection each", "ms, less is better", significant},
		{&r.refused, refusedNew, "Senders refused, a connection each", "a second, more is better", printWhole},
		{&r.latency, latencyMedian, "A command that is passed on, p50", "µs, less is better", significant},
	}
}
