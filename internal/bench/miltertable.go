package main

import "fmt"

// The columns of the table of accepted mail.
const (
	milteredNew = iota
	milteredNewCPU
	milteredReused
	milteredReusedCPU
)

// milterTables are what `bench milter` measures.
type milterTables struct{ accepted, refused, policy, latency, memory table }

func newMilterTables() milterTables {
	return milterTables{
		accepted: table{title: "Mail that Postfix takes", note: "1 KB, 20 sessions of `smtp-source`, until the last mail is delivered (and thrown away). A connection for each mail, or used again (`-d`); and the CPU of who is asked for a thousand of them, in ms of user and kernel time together.", columns: []column{
			{"new, mails/s", printWhole, higher}, {"CPU ms", significant, lower}, {"reused, mails/s", printWhole, higher}, {"CPU ms", significant, lower}}},
		refused: table{title: "Senders that are refused", note: fmt.Sprintf("Listed senders a second, 20 sessions. MAIL and RCPT, %d on a connection with RSET in between; rspamd refuses behind the message only, and each message has a connection.", refusalsASession), columns: []column{
			{"a second", printWhole, higher}}},
		policy: table{title: "Questions to the policy service", note: fmt.Sprintf("A second, one at a time on each connection, of 29 attributes; one in %d is about a listed sender. The bare service finds the end of a question and answers, and no more.", listedEvery), columns: []column{
			{"one connection", printWhole, higher}, {"eight", printWhole, higher}}},
		latency: table{title: "Time of a milter event", note: "µs from writing it with its macros to reading the answer, one connection. A clear sender ends at MAIL.", columns: []column{
			{"MAIL, p50", significant, lower}, {"p99", significant, lower}, {"listed: MAIL, p50", significant, lower}, {"p99", significant, lower}, {"RCPT, p50", significant, lower}, {"p99", significant, lower}}},
		memory: table{title: "Memory of idle milter connections", note: "Anonymous memory while events flow beside them; what was there before is taken off the first figure.", columns: []column{
			{"KiB a connection", significant, neither}, {"MB in all", significant, neither}}},
	}
}

// goals are those that the questions of a mail server are held to.
func (r *milterDoor) goals() []goal {
	goals := []goal{
		r.accepted.versus("accepted mails, new connections", milteredNew, nameNoMilter, "Postfix alone", 0.9),
		r.accepted.versus("", milteredNew, nameRspamd, "with rspamd, Debian's defaults", 3),
		r.accepted.versus("accepted mails, reused connections", milteredReused, nameNoMilter, "Postfix alone", 0.9),
		r.accepted.versus("", milteredReused, nameRspamd, "with rspamd, Debian's defaults", 3),
		atLeast("policy service, one connection", 20_000, "a second", r.policy.cells(nameBlockd, 0)),
		atLeast("policy service, eight connections", 50_000, "a second", r.policy.cells(nameBlockd, 1)),
	}
	for column, event := range timedEvents {
		cells := r.latency.cells(nameBlockd, 2*column)
		goals = append(goals, atMost(event+", p50", 100, "µs", cells.median(), true))
	}
	return append(goals, idleMemory("connection", r.held, 16, r.memory.cells(nameBlockd, memorySession)))
}

func (r *milterDoor) tables() []*table {
	return []*table{&r.accepted, &r.refused, &r.policy, &r.latency, &r.memory}
}

func (r *milterDoor) plot() (title string, panels []panel) { return "", nil }
