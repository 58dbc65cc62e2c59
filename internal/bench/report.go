package main

import (
	"fmt"
	"strings"
	"time"
)

// The columns of the tables.
const (
	filtersAbsent = iota
	filtersAbsentTwo
	filtersListed
	filtersBuild
	filtersBits
	filtersRate
)

const (
	storesListed = iota
	storesAbsent
	storesOpen
)

const (
	sendersAbsent = iota
	sendersAbsentTwo
	sendersListed
	sendersListedTwo
)

const (
	compileSeconds = iota
	compileMemory
	compileSize
)

const (
	changeActs = iota
	changeBuilt
)

const (
	programsAbsent = iota
	programsListed
	programsHalfCPU
	programsFirst
)

// report is what a run has measured.
type report struct {
	settings
	machine
	keys      *keys
	verdicts  int     // answers held against the truth; one wrong answer ends the run
	anonymous float64 // MB
	elapsed   time.Duration

	filters, stores, senders, compile, change, programs table
}

func newReport(s settings, m machine) *report {
	return &report{settings: s, machine: m,
		filters: table{title: "Filter alone", note: "ns a key, hashing included; \"perhaps\" of absent keys.", columns: []column{
			{"absent", significant, lower}, {"absent, 2 threads", significant, lower}, {"listed", significant, lower},
			{"build", significant, lower}, {"bits a key", significant, neither}, {"perhaps", printPercent, neither}}},
		stores: table{title: "Exact look-up of an address", note: "ns a key, one thread, files in the page cache.", columns: []column{
			{"listed", significant, lower}, {"absent", significant, lower}, {"open to first answer, ms", significant, lower}}},
		senders: table{title: "Whole sender, Go API", note: "Text parsed, all keys asked, matches copied; senders a second.", columns: []column{
			{"clear", printMillions, neither}, {"clear, 2 threads", printMillions, neither},
			{"listed", printMillions, neither}, {"listed, 2 threads", printMillions, neither}}},
		compile: table{title: "Compiling the keys from text", note: "From the start of the process to its end.", columns: []column{
			{"seconds", printSeconds, lower}, {"peak memory, MB", significant, lower}, {"file, MB", significant, lower}}},
		change: table{title: "One line put into one of ten lists", note: "All keys dealt out to ten lists. What a daemon serves knows it after the first figure; `quiet` comes before.", columns: []column{
			{"acts after, ms", significant, lower}, {"whole build behind it, seconds", printSeconds, lower}}},
		programs: table{title: "Programs that answer", note: "A sender a line of standard input, senders a second; the processor time of a sender where half are listed (goal: at most `postmap` on cdb); and one process for one answer.", columns: []column{
			{"clear", printMillions, higher}, {"listed", printMillions, higher}, {"half listed, µs of CPU", significant, lower}, {"process for one answer, ms", significant, lower}}},
	}
}

// proved counts the answers of a program that are true, and refuses others.
func (r *report) proved(name string, k *keys, listed, clear int) error {
	if listed != len(k.listed) || clear != 0 {
		return fmt.Errorf("%s: found %d of %d listed senders, and %d of %d clear ones", name, listed, len(k.listed), clear, len(k.clear))
	}
	r.verdicts += len(k.listed) + len(k.clear)
	return nil
}

// tables are in the order of the document.
func (r *report) tables() []*table {
	return []*table{&r.filters, &r.stores, &r.senders, &r.compile, &r.change, &r.programs}
}

// plotName is the file of the plot: the usual run's has the plain name, so that a
// run of another size does not replace it.
func (r *report) plotName() string {
	if r.n == defaultKeys {
		return "performance.svg"
	}
	return fmt.Sprintf("performance-%d.svg", r.n)
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s keys\n\n", grouped(r.n))
	fmt.Fprintf(&b, "%s. Load average %s before and %s after. %s addresses of %.1f octets on average, %s; look-ups ask for %s of them and for as many others. The run took %.0f s.\n\n",
		r.machine, r.machine.load, loadAverage(), grouped(r.n), r.keys.octets, r.keys.origin, grouped(len(r.keys.listed)), r.elapsed.Seconds())
	fmt.Fprintf(&b, "![Bars of the tables below](%s)\n\n", r.plotName())
	for _, t := range r.tables() {
		b.WriteString(t.markdown() + "\n")
	}
	fmt.Fprintf(&b, "Wrong answers of exact stores and programs: none of %s that were counted, %s different keys. `blockd check -` holds %.1f MB of anonymous memory after its first answer.\n",
		grouped(r.verdicts), grouped(len(r.keys.listed)+len(r.keys.clear)), r.anonymous)
	return b.String()
}

func (r *report) section() section {
	return section{mark: fmt.Sprintf("bench -n %d", r.n), target: "bench", text: r.markdown(), plot: plot(r), image: r.plotName()}
}
