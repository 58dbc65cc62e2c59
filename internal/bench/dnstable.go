package main

import "fmt"

// The columns of the tables.
const (
	dnsRate = iota
	dnsCPU
	dnsLost
	dnsMedian
	dnsTail
)

const (
	reloadActs = iota
	reloadLost
	reloadTail
	reloadLongest
)

const (
	dnsOwn = iota
	dnsResident
)

const nameRBLDNSD = "rbldnsd, `dnset`"

// dnsTables are what `bench dns` measures.
type dnsTables struct{ rates, reloads, memory table }

func newDNSTables(s dnsSettings) dnsTables {
	return dnsTables{
		rates: table{title: "Names asked", note: fmt.Sprintf("dnsperf with %d clients and at most %d queries open, by UDP, half of the names listed, on the same two cores: as many as are answered in %d s, with the CPU time of the server for one. Then %s queries a second, each timed. The last row reads and sends the same and looks at nothing: what client and kernel allow here.", dnsClients, dnsOpen, s.seconds, grouped(s.pace)), columns: []column{
			{"answers a second", printWhole, higher}, {"CPU, µs", significant, lower}, {"lost", printWhole, neither}, {"p50, µs", printWhole, lower}, {"p99, µs", printWhole, lower}}},
		reloads: table{title: "A list changes under load", note: fmt.Sprintf("One line of a second list is another one, at %s queries a second. blockd builds the whole index anew meanwhile; rbldnsd reads both files again, and looks at them once a second.", grouped(s.pace)), columns: []column{
			{"acts after, s", printSeconds, lower}, {"lost", printWhole, neither}, {"p99, ms", significant, lower}, {"longest, ms", significant, lower}}},
		memory: table{title: "Memory afterwards", note: "MB: of the process itself, and with the pages of files that it has in use, which the system may drop.", columns: []column{
			{"anonymous", significant, lower}, {"resident", significant, lower}}},
	}
}

// goals are those that the door is held to.
func (r *dnsDoor) goals() []goal {
	own, lost := r.memory.cells(nameBlockd, dnsOwn), r.reloads.cells(nameBlockd, reloadLost)
	goals := []goal{
		r.rates.versus("answers a second", dnsRate, nameRBLDNSD, "rbldnsd", 1.3),
		atMost("answers lost while a list changes", 0, "", 0, false),
		atMost("anonymous memory", 40, "MB", 0, false),
	}
	if len(lost) > 0 {
		goals[1] = atMost(goals[1].what, 0, "", lost.median(), true)
	}
	if len(own) > 0 {
		goals[2] = atMost(goals[2].what, 40, "MB", own.median(), true)
	}
	return goals
}

func (r *dnsDoor) tables() []*table { return []*table{&r.rates, &r.reloads, &r.memory} }

func (r *dnsDoor) plot() (title string, panels []panel) {
	return fmt.Sprintf("A DNS list of %s domains", grouped(r.n)), []panel{
		{&r.rates, dnsRate, "Answers a second", "two cores shared with the client, more is better", printWhole},
		{&r.reloads, reloadLongest, "Longest answer while a list changes", "ms, less is better", significant},
		{&r.memory, dnsOwn, "Anonymous memory", "MB, less is better", significant},
	}
}
