package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The columns of the table of accepted mail.
const (
	milteredNew = iota
	milteredNewCPU
	milteredReused
	milteredReusedCPU
)

// milterReport is what a run of `bench milter` has measured.
type milterReport struct {
	milterSettings
	machine
	held    int
	elapsed time.Duration

	accepted, refused, policy, latency, memory table
}

func newMilterReport(s milterSettings, m machine) *milterReport {
	return &milterReport{milterSettings: s, machine: m,
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

// atLeast is a goal of a figure as it is.
func atLeast(what string, want float64, unit string, cells series) goal {
	g := goal{what: what, want: fmt.Sprintf("≥ %s %s", printWhole(want), unit)}
	if len(cells) > 0 {
		g.measured, g.met = fmt.Sprintf("%s %s", printWhole(cells.median()), unit), cells.median() >= want
	}
	return g
}

// goals are those that the questions of a mail server are held to.
func (r *milterReport) goals() []goal {
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
	g := atMost(fmt.Sprintf("memory of an idle connection, %s held", grouped(r.held)), 16, "KiB", 0, false)
	if memory := r.memory.cells(nameBlockd, memorySession); len(memory) > 0 {
		g = atMost(g.what, 16, "KiB", slices.Max(memory), true)
	}
	return append(goals, g)
}

func (r *milterReport) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s listed addresses, asked by Postfix\n\n", grouped(r.n))
	fmt.Fprintf(&b, "%s. Load average %s before and %s after. The run took %.0f s.\n\n", r.machine, r.machine.load, loadAverage(), r.elapsed.Seconds())
	b.WriteString(goalsMarkdown(r.goals()) + "\n")
	for _, t := range []*table{&r.accepted, &r.refused, &r.policy, &r.latency, &r.memory} {
		b.WriteString(t.markdown() + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// publish prints the tables, and puts them into performance.md where that has a
// place for this number of addresses.
func (r *milterReport) publish(docs string, stdout io.Writer) error {
	text := r.markdown()
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	path := filepath.Join(docs, "performance.md")
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin := fmt.Sprintf("<!-- bench milter -n %d: written by make bench-milter -->", r.n)
	end := fmt.Sprintf("<!-- bench milter -n %d: end -->", r.n)
	document, ok := replaceBetween(document, begin, end, text)
	if !ok {
		fmt.Fprintf(stdout, "\n%s stays as it is: it has no %q before %q\n", path, begin, end)
		return nil
	}
	return os.WriteFile(path, document, 0o644)
}
