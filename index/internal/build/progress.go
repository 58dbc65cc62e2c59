package build

import "sync"

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
