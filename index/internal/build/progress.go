package build

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"
)

// Progress is how far a build is.
type Progress struct {
	Stage   string // "read", "write", "verify"
	Source  string // of "read": the file
	Done    int64  // bytes read or written, of Total; it never falls within a stage
	Total   int64
	Entries int64
}

// reporter passes the progress of several goroutines on, one at a time.
type reporter struct {
	to   func(Progress) // nil: nobody asks
	mu   sync.Mutex     // guards last
	last Progress
}

func (r *reporter) report(p Progress) {
	if r.to == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Stage == r.last.Stage {
		p.Done, p.Entries = max(p.Done, r.last.Done), max(p.Entries, r.last.Entries)
	}
	r.last = p
	r.to(p)
}

// Stage is one part of a build and the time that it took.
type Stage struct {
	Name    string // "read", "write", "filter", "verify", "sync"; those that run at one time overlap
	Elapsed time.Duration
}

// stages adds up what the parts of a build took.
type stages []Stage

// begin begins a stage, which ends when what it returns is called.
func (s *stages) begin(name string) (end func()) {
	started := time.Now()
	return func() {
		elapsed := time.Since(started)
		for i := range *s {
			if (*s)[i].Name == name {
				(*s)[i].Elapsed += elapsed
				return
			}
		}
		*s = append(*s, Stage{name, elapsed})
	}
}

// peakMemory is the most that the process has had of the machine's memory so far,
// in octets; 0 where the system does not say.
func peakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	value, _, _ := bytes.Cut(rest, []byte(" kB\n"))
	kib, _ := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
	return kib << 10
}
