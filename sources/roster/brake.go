package roster

import (
	"fmt"
	"math"
	"time"
)

// When the share of the canaries stands out: by so many standard errors, and by so much.
const (
	brakeErrors = 4
	brakePoints = 0.0005
)

// Brake compares, while a sequence is rolled out, the nodes that have taken it with those that have not. It is for one goroutine.
type Brake struct {
	sequence int64
	before   map[string]mark // of nodes that have not taken it: what they had counted when it was first seen
}

// mark is what a node had counted at some time.
type mark struct {
	begun  time.Time // of its process
	counts Counts
}

// Finding is what the brake has found.
type Finding struct {
	Canaries, Others Counts  // since the sequence was first taken
	Share, Control   float64 // that were listed, of each
	Errors           float64 // by how many standard errors they differ
	Halt             bool
}

func (f Finding) String() string {
	return fmt.Sprintf("nodes with the new sequence refuse %.3f %% of %d senders, the others %.3f %% of %d: %.1f standard errors", 100*f.Share, f.Canaries.Checks, 100*f.Control, f.Others.Checks, f.Errors)
}

// Look compares the reports of nodes, of which the newest sequence of a channel is rolled out.
func (b *Brake) Look(all []Report, channel string, newest int64) (f Finding) {
	if newest != b.sequence {
		b.sequence, b.before = newest, map[string]mark{}
	}
	if newest == 0 {
		return f
	}
	for _, r := range all {
		switch {
		case r.Channel != channel:
		case r.Sequence == newest && r.Since.Sequence == newest:
			f.Canaries.Checks += r.Since.Checks
			f.Canaries.Refused += r.Since.Refused
		case r.Sequence < newest:
			m, known := b.before[r.Node]
			if !known || !m.begun.Equal(r.Begun) || r.Checks < m.counts.Checks || r.Refused < m.counts.Refused {
				b.before[r.Node] = mark{r.Begun, Counts{Checks: r.Checks, Refused: r.Refused}}
				continue
			}
			f.Others.Checks += r.Checks - m.counts.Checks
			f.Others.Refused += r.Refused - m.counts.Refused
		}
	}
	if f.Canaries.Checks == 0 || f.Others.Checks == 0 {
		return f
	}
	n, m := float64(f.Canaries.Checks), float64(f.Others.Checks)
	f.Share, f.Control = float64(f.Canaries.Refused)/n, float64(f.Others.Refused)/m
	p := float64(f.Canaries.Refused+f.Others.Refused) / (n + m)
	if spread := math.Sqrt(p * (1 - p) * (1/n + 1/m)); spread > 0 {
		f.Errors = (f.Share - f.Control) / spread
	}
	f.Halt = f.Errors > brakeErrors && f.Share-f.Control > brakePoints
	return f
}
