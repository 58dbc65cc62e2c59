package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

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

// smtpReport is what a run of `bench smtp` has measured.
type smtpReport struct {
	smtpSettings
	machine
	origin  string
	held    int
	elapsed time.Duration

	accepted, refused, latency, memory table
}

func newSMTPReport(s smtpSettings, m machine) *smtpReport {
	return &smtpReport{smtpSettings: s, machine: m,
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

// quantile is the smallest value that q of all do not exceed.
func (s series) quantile(q float64) float64 {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, max(0, int(math.Ceil(q*float64(len(sorted))))-1))]
}

// difference is the median of s - base, round by round.
func (s series) difference(base series) float64 {
	d := make(series, min(len(s), len(base)))
	for i := range d {
		d[i] = s[i] - base[i]
	}
	return d.median()
}

// goal is one line of the table that decides.
type goal struct {
	what, want string
	measured   string // "" = a peer is missing
	met        bool
}

// versus is a goal of blockd's figure over a peer's: at least want where more is
// better, at most where less is.
func (t *table) versus(what string, column int, peer, short string, want float64) goal {
	g := goal{what: what}
	better, sign := t.columns[column].better, "≥"
	if better == lower {
		sign = "≤"
	}
	g.want = fmt.Sprintf("%s %s× %s", sign, significant(want), short)
	own, base := t.cells(nameBlockd, column), t.cells(peer, column)
	if len(own) == 0 || len(base) == 0 {
		return g
	}
	ratio := own.ratio(base)
	g.measured = fmt.Sprintf("%.2f×", ratio)
	g.met = ratio >= want && better == higher || ratio <= want && better == lower
	return g
}

// atMost is a goal of a figure as it is.
func atMost(what string, want float64, unit string, measured float64, ok bool) goal {
	g := goal{what: what, want: fmt.Sprintf("≤ %s %s", significant(want), unit)}
	if ok {
		g.measured, g.met = fmt.Sprintf("%s %s", significant(measured), unit), measured <= want
	}
	return g
}

// cells are the rounds of a figure; none where it was not measured.
func (t *table) cells(name string, column int) series {
	for _, r := range t.rows {
		if r.name == name {
			return r.cells[column]
		}
	}
	return nil
}

// goals are those that the SMTP filter is held to.
func (r *smtpReport) goals() []goal {
	goals := []goal{
		r.accepted.versus("accepted mails, new connections", acceptedNew, nameHAProxy, "HAProxy", 0.9),
		r.accepted.versus("", acceptedNew, namePipe, "a bare pipe in Go", 0.95),
		r.accepted.versus("", acceptedNew, namePostfix, "Postfix", 2),
		r.accepted.versus("accepted mails, reused connections", acceptedReused, nameHAProxy, "HAProxy", 0.8),
		r.accepted.versus("", acceptedReused, namePostfix, "Postfix", 4),
		r.refused.versus("refused senders, new connections", refusedNew, nameRefusing, "a bare refusing sink", 0.6),
		r.refused.versus("", refusedNew, namePostfix, "Postfix", 1.8),
		r.refused.versus("refused senders, reused connections", refusedReused, nameRefusing, "a bare refusing sink", 0.6),
		r.refused.versus("", refusedReused, namePostfix, "Postfix", 1.8),
		r.accepted.versus("CPU of 1 KB mails, new connections", acceptedNewCPU, nameHAProxy, "HAProxy", 2),
		r.accepted.versus("", acceptedNewCPU, namePostfix, "Postfix", 0.4),
		r.accepted.versus("CPU of 1 KB mails, reused connections", acceptedReusedCPU, nameHAProxy, "HAProxy", 2),
		r.accepted.versus("", acceptedReusedCPU, namePostfix, "Postfix", 0.4),
	}
	large := r.accepted.cells(nameBlockd, acceptedLargeCPU)
	goals = append(goals, atMost("CPU of a megabyte of message", 3, "ms", large.median(), true))
	for _, q := range []struct {
		what   string
		column int
		want   float64
	}{{"added to a command, p50", latencyMedian, 40}, {"added to a command, p99", latencyTail, 150}} {
		added := r.latency.cells(nameBlockd, q.column).difference(r.latency.cells(nameDirect, q.column))
		goals = append(goals, atMost(q.what, q.want, "µs", added, true))
	}
	refused := max(r.latency.cells(nameBlockd, latencyMail).median(), r.latency.cells(nameBlockd, latencyRcpt).median())
	goals = append(goals, atMost("MAIL or RCPT of a listed sender, p50", 100, "µs", refused, true))
	memory := r.memory.cells(nameBlockd, memorySession)
	g := atMost("memory of an idle session, "+grouped(r.idle)+" held", 16, "KiB", 0, false)
	if len(memory) > 0 {
		g = atMost(g.what, 16, "KiB", slices.Max(memory), true)
	}
	return append(goals, g)
}

// goalsMarkdown is the table of goals, and met how many there are.
func goalsMarkdown(goals []goal) string {
	var b strings.Builder
	b.WriteString("**Goals.**\n\n| | goal | measured | |\n| --- | --- | ---: | --- |\n")
	for _, g := range goals {
		verdict := "met"
		switch {
		case g.measured == "":
			g.measured, verdict = "-", "not measured"
		case !g.met:
			verdict = "**missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", g.what, g.want, g.measured, verdict)
	}
	return b.String()
}

func (r *smtpReport) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s listed addresses, SMTP\n\n", grouped(r.n))
	fmt.Fprintf(&b, "%s. Load average %s before and %s after. The run took %.0f s.\n\n", r.machine, r.machine.load, loadAverage(), r.elapsed.Seconds())
	fmt.Fprintf(&b, "![Bars of the tables below](%s)\n\n", r.plotName())
	b.WriteString(goalsMarkdown(r.goals()) + "\n")
	for _, t := range []*table{&r.accepted, &r.refused, &r.latency, &r.memory} {
		b.WriteString(t.markdown() + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// plotName is the file of the plot, one for each number of addresses.
func (r *smtpReport) plotName() string { return fmt.Sprintf("performance-smtp-%d.svg", r.n) }

func (r *smtpReport) plot() []byte {
	return drawing(fmt.Sprintf("blockd's SMTP filter and its peers, %s listed addresses", grouped(r.n)),
		r.machine.String()+". Medians; × is how many times blockd is better; logarithmic axes.", []panel{
			{&r.accepted, acceptedNew, "Mail accepted, a connection each", "mails a second, more is better", printWhole},
			{&r.accepted, acceptedReused, "Mail accepted, connections used again", "mails a second, more is better", printWhole},
			{&r.accepted, acceptedNewCPU, "CPU of a thousand mails, a connection each", "ms, less is better", significant},
			{&r.refused, refusedNew, "Senders refused, a connection each", "a second, more is better", printWhole},
			{&r.latency, latencyMedian, "A command that is passed on, p50", "µs, less is better", significant},
		})
}

// publish prints the tables, and puts them and the plot into the documents where
// performance.md has a place for this number of addresses.
func (r *smtpReport) publish(docs string, stdout io.Writer) error {
	text := r.markdown()
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	path := filepath.Join(docs, "performance.md")
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin := fmt.Sprintf("<!-- bench smtp -n %d: written by make bench-smtp -->", r.n)
	end := fmt.Sprintf("<!-- bench smtp -n %d: end -->", r.n)
	document, ok := replaceBetween(document, begin, end, text)
	if !ok {
		fmt.Fprintf(stdout, "\n%s stays as it is: it has no %q before %q\n", path, begin, end)
		return nil
	}
	if err := os.WriteFile(filepath.Join(docs, r.plotName()), r.plot(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(path, document, 0o644)
}

func printWhole(x float64) string { return grouped(int(math.Round(x))) }
