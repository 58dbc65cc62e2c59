// Package overlap says what two sets of entries share: lists, folders of lists, or indexes.
//
// Each entry becomes a print of 16 octets. The prints of both sides are sorted together, in
// memory as far as it goes and in a temporary file beyond it, and one pass over them counts. So
// a hundred million entries against a hundred million take 3.2 GB of disk, and any memory.
package overlap

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"blockd/index"
	"blockd/lists"
)

// MinMemory is the least Job.Memory, in octets.
const MinMemory = 16 << 20

// sampled is how many prints an approximate comparison keeps: 32 MiB. They have half of that
// or more names of large lists, so that a half of all is known to 0.14 %.
const sampled = 2 << 20

// Side is one of the two sets.
type Side struct {
	Index *index.Index   // its entries, all lists together; or
	Files []index.Source // list files, all together
	Size  int64          // octets of the files, for Job.Progress
}

// Job is one comparison.
type Job struct {
	Sides       [2]Side
	Memory      int64 // octets for prints, MinMemory at least
	Approximate bool  // a sample is counted, in 32 MiB and without a temporary file

	// Progress is told now and then how far a side is (0 or 1: octets of its files, or
	// entries of its index), and then the merge (2: entries). Nil: no reports. One goroutine
	// calls it at a time.
	Progress func(stage int, done, total int64)
}

// Counts of entries. An entry is its name, how far it covers, and what it asks for.
type Counts struct {
	OnlyA uint64 `json:"only_a"`
	OnlyB uint64 `json:"only_b"`
	Both  uint64 `json:"both"`

	// Of those, the entries whose name the other side has with another scope or action.
	OtherA uint64 `json:"other_a"`
	OtherB uint64 `json:"other_b"`
}

// KindCounts are those of one kind.
type KindCounts struct {
	Kind string `json:"kind"` // one of Kinds
	Counts
}

// SideFacts are what was read of a side.
type SideFacts struct {
	Entries uint64 `json:"entries"` // repeated ones included, and without those that have ended
	Refused uint64 `json:"refused"` // lines that are no entries: blockd lint says why
}

// Result of a comparison.
type Result struct {
	A     SideFacts    `json:"a"`
	B     SideFacts    `json:"b"`
	Kinds []KindCounts `json:"kinds"` // those that are there

	// Sampled is of an approximate comparison how many prints were counted, and Scale for how many
	// each stands, a power of two. Scale is 1 of an exact one, and of an approximate one whose
	// entries all had room: then it is exact too.
	Sampled uint64 `json:"sampled,omitempty"`
	Scale   uint64 `json:"scale"`
}

// Total is the sum of all kinds.
func (r *Result) Total() (c Counts) {
	for _, k := range r.Kinds {
		c.OnlyA += k.OnlyA
		c.OnlyB += k.OnlyB
		c.Both += k.Both
		c.OtherA += k.OtherA
		c.OtherB += k.OtherB
	}
	return c
}

// Error is how far a count of the result may be from the truth: it is not farther with a
// probability of 95 %. It is 0 for an exact one.
func (r *Result) Error(count uint64) uint64 {
	if r.Scale <= 1 {
		return 0
	}
	scale := float64(r.Scale)
	if count == 0 {
		return uint64(math.Ceil(3 * scale)) // the rule of three
	}
	return uint64(math.Ceil(1.96 * math.Sqrt(float64(count)*(scale-1))))
}

// keeper keeps prints and gives them back in order.
type keeper interface {
	each(ctx context.Context, use func(p print)) error
}

// Run compares. Its error is that of ctx, of the disk of the temporary file, of an index, or a
// *lists.FileError.
func (j Job) Run(ctx context.Context) (Result, error) {
	workers := runtime.GOMAXPROCS(0)
	in := &intake{Job: j, seed: rand.Uint64(), now: time.Now().Unix(), lanes: make([]lane, workers), state: make([]laneState, workers)}
	memory := j.Memory
	if j.Approximate {
		memory = int64(workers) * sampleBlock * printSize
		in.sample = &sample{most: sampled}
	}
	in.store = newStore(memory, workers)
	defer in.store.close()
	for i := range in.lanes {
		in.lanes[i].store = in.store
	}
	result := Result{Scale: 1}
	for side, facts := range []*SideFacts{&result.A, &result.B} {
		var err error
		if *facts, err = in.read(ctx, side); err != nil {
			return result, err
		}
	}
	var kept keeper = in.store
	total := in.store.count
	if j.Approximate {
		result.Scale = 1 << in.sample.level
		result.Sampled, kept, total = uint64(len(in.sample.prints)), in.sample, int64(len(in.sample.prints))
	}
	c := counter{scale: result.Scale}
	done := int64(0)
	err := kept.each(ctx, func(p print) {
		if done++; done%checkEvery == 0 && j.Progress != nil {
			j.Progress(2, done, total)
		}
		c.add(p)
	})
	c.endName()
	result.Kinds = c.kinds()
	return result, err
}

// intake reads sides.
type intake struct {
	Job
	seed   uint64
	now    int64 // Unix seconds: entries that end until then are none
	store  *store
	sample *sample // nil: every entry counts
	lanes  []lane
	state  []laneState

	side     int
	total    int64
	mu       sync.Mutex // of Progress
	done     atomic.Int64
	entries  atomic.Uint64
	refusals atomic.Uint64
}

// laneState is what a worker has not told yet.
type laneState struct {
	line             int
	octets           int64
	entries, refused uint64
	_                [64]byte // written by different cores
}

// sampleBlock is how many prints a worker gathers for a sample.
const sampleBlock = 4096

func (in *intake) read(ctx context.Context, side int) (facts SideFacts, err error) {
	s := &in.Sides[side]
	in.side, in.total = side, s.Size
	in.done.Store(0)
	in.entries.Store(0)
	in.refusals.Store(0)
	if s.Index != nil {
		err = in.readIndex(ctx, s.Index)
	}
	for _, f := range s.Files {
		if err == nil {
			err = in.readFile(ctx, f)
		}
	}
	for i := range in.lanes {
		if err == nil {
			err = in.flush(i)
		}
		in.tell(&in.state[i])
	}
	return SideFacts{in.entries.Load(), in.refusals.Load()}, err
}

func (in *intake) readFile(ctx context.Context, f index.Source) error {
	for i := range in.state {
		in.state[i].line = 0
	}
	settings := f.Settings
	settings.MaxPerOwner = 0 // no entry of an owner is compared
	_, err := lists.ReadBlocks(ctx, f.Path, settings, len(in.lanes), func(worker int, it *lists.Item) error {
		s := &in.state[worker]
		if it.Line != s.line {
			s.line, s.octets = it.Line, s.octets+int64(len(it.Text))+1
		}
		switch it.Kind {
		case lists.Skip:
			return nil
		case lists.Err:
			s.refused++
			return nil
		}
		return in.take(ctx, worker, it)
	})
	return err
}

func (in *intake) readIndex(ctx context.Context, ix *index.Index) error {
	for _, row := range ix.Lists() {
		in.total += int64(row.Entries())
	}
	for entry, err := range ix.Unordered(ctx) {
		if err != nil {
			return err
		}
		in.state[0].octets++
		if err := in.take(ctx, 0, &entry.Item); err != nil {
			return err
		}
	}
	return nil
}

// take takes one entry in, unless it has ended: no index keeps it.
func (in *intake) take(ctx context.Context, worker int, it *lists.Item) error {
	if it.Expires != 0 && it.Expires <= in.now {
		return nil
	}
	s, l := &in.state[worker], &in.lanes[worker]
	if s.entries++; s.entries%sampleBlock == 0 {
		in.tell(s)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	p := printOf(it, in.side, in.seed)
	if in.sample == nil {
		return l.add(p)
	}
	if l.prints = append(l.prints, p); len(l.prints) == sampleBlock {
		return in.flush(worker)
	}
	return nil
}

// flush gives what a lane has to the store or the sample.
func (in *intake) flush(worker int) error {
	l := &in.lanes[worker]
	if in.sample == nil {
		return l.flush()
	}
	in.sample.addAll(l.prints)
	l.prints = l.prints[:0]
	return nil
}

// tell adds what a worker has read.
func (in *intake) tell(s *laneState) {
	in.entries.Add(s.entries)
	in.refusals.Add(s.refused)
	done := in.done.Add(s.octets)
	s.entries, s.refused, s.octets = 0, 0, 0
	if in.Progress != nil {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.Progress(in.side, min(done, in.total), in.total) // a packed file has more text than octets
	}
}

// counter counts prints that come in their order.
type counter struct {
	scale uint64
	name  []print // those of one name, repeated ones left out
	all   [8]Counts
}

func (c *counter) add(p print) {
	if n := len(c.name); n > 0 {
		if c.name[n-1] == p {
			return
		}
		if !c.name[0].sameName(p) {
			c.endName()
		}
	}
	c.name = append(c.name, p)
}

// endName counts the prints of a name. An entry that both sides have stands there twice, A's
// before B's.
func (c *counter) endName() {
	var has [2]bool
	for _, p := range c.name {
		has[p.side()] = true
	}
	for i := 0; i < len(c.name); i++ {
		p := c.name[i]
		k := &c.all[p.kind()]
		switch {
		case i+1 < len(c.name) && p.sameEntry(c.name[i+1]):
			k.Both += c.scale
			i++
		case p.side() == 0:
			k.OnlyA += c.scale
			if has[1] {
				k.OtherA += c.scale
			}
		default:
			k.OnlyB += c.scale
			if has[0] {
				k.OtherB += c.scale
			}
		}
	}
	c.name = c.name[:0]
}

func (c *counter) kinds() []KindCounts {
	all := []KindCounts{}
	for i, name := range Kinds() {
		if c.all[i] != (Counts{}) {
			all = append(all, KindCounts{name, c.all[i]})
		}
	}
	return all
}
