package history

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Refused holds the refusals of one list: how many there were, and a sample.
type Refused struct {
	Count  float64
	Sample []Refusal // drawn evenly; their weights add up to Count
}

// Refusal is one past refusal. It stands for itself and others like it.
type Refusal struct {
	Sender    string // as in a Record; "" if only the client was checked
	Recipient string
	Client    netip.Addr
	Source    string
	Weight    float64 // how many it stands for
}

// The bounds of a look at past refusals. A sample of 2,000 of a list tells a fifth of its
// refusals from a quarter. With many files and lists, fewer are kept of a file.
const (
	mostRefusals  = 20_000
	mostOfList    = 2_000
	leastOfList   = 50
	mostRead      = 512 << 20 // octets of segments, the newest first: twice a history of the usual size
	mostRepeated  = 20        // the weight of a line that stands for more: a client gains no weight by asking again
	blockedColumn = "\tblocked\t"
)

// refusalCache keeps what was found in segments that do not change any more. So a
// load of lists reads only the newest segment. The cache keeps the result of a segment for as
// long as that segment is read, although its oldest lines may be older than the time in question.
type refusalCache struct {
	mu       sync.Mutex
	segments map[uint64]map[string]*Refused
}

// Refusals returns the refusals since a time, by list, including those that wait for
// the disk. lists bounds the number of lists. A nil Log has none.
//
// The first call reads the newest mostRead octets. Later calls read only what has been
// added. Some 4 MB are kept, beside the current segment.
func (l *Log) Refusals(ctx context.Context, since time.Time, lists int) (map[string]*Refused, error) {
	if l == nil {
		return nil, nil
	}
	l.Settle()
	return l.refused.read(ctx, l.settings.Folder, since, lists)
}

// Refusals is Log.Refusals of a folder.
func Refusals(ctx context.Context, folder string, since time.Time, lists int) (map[string]*Refused, error) {
	return new(refusalCache).read(ctx, folder, since, lists)
}

func (c *refusalCache) read(ctx context.Context, folder string, since time.Time, lists int) (map[string]*Refused, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, err := segments(folder)
	if err != nil {
		return nil, err
	}
	wanted := newest(all, since)
	per := max(leastOfList, min(mostOfList, mostRefusals/(max(lists, 1)*max(len(wanted), 1))))
	kept, found := map[uint64]map[string]*Refused{}, map[string]*Refused{}
	var w walker
	for i, s := range wanted {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		of := c.segments[s.number]
		if of == nil {
			if of, err = w.refusals(s, since, per); err != nil {
				return nil, err
			}
		}
		if s.number < all[len(all)-1].number {
			kept[s.number] = of // it is full
		}
		for list, more := range of {
			if len(more.Sample) > per { // in no order: the first ones are as good as any
				more.Sample = append([]Refusal(nil), more.Sample[:per]...)
				more.weigh()
			}
			if found[list] == nil {
				found[list] = &Refused{Sample: make([]Refusal, 0, len(more.Sample)*(len(wanted)-i))}
			}
			found[list].Count += more.Count
			found[list].Sample = append(found[list].Sample, more.Sample...)
		}
	}
	c.segments = kept
	return found, nil
}

// newest returns the segments that a call reads, the newest first.
func newest(all []segment, since time.Time) (wanted []segment) {
	octets := int64(0)
	for _, s := range slices.Backward(all) {
		if octets < mostRead && !s.written.Before(since) {
			wanted = append(wanted, s)
			octets += s.size
		}
	}
	return wanted
}

// weigh makes the weights add up to the count again.
func (r *Refused) weigh() {
	sum := 0.
	for i := range r.Sample {
		sum += r.Sample[i].Weight
	}
	for i := range r.Sample {
		r.Sample[i].Weight *= r.Count / sum
	}
}

// refusals reads the refusals of one segment, at most per of a list.
func (w *walker) refusals(s segment, since time.Time, per int) (map[string]*Refused, error) {
	found, seen := map[string]*Refused{}, map[string]int{}
	draw := rand.New(rand.NewPCG(s.number, 1)) // the same history, the same answer
	w.since, w.parts = since, [][]byte{[]byte(blockedColumn)}
	w.each = func(r *Record) bool {
		if r.Verdict != "blocked" || r.List == "" || r.Hearsay || r.Exempt || r.Outcome == "accept" || r.Outcome == "tag" || r.Outcome == Listed {
			return true
		}
		l := found[r.List]
		if l == nil {
			l = &Refused{}
			found[strings.Clone(r.List)] = l
		}
		weight := float64(max(1, min(r.Repeated, mostRepeated)))
		l.Count += weight
		seen[r.List]++
		at := len(l.Sample)
		if at == per { // each so far stays with the same chance
			if at = draw.IntN(seen[r.List]); at >= per {
				return true
			}
		} else {
			l.Sample = append(l.Sample, Refusal{})
		}
		l.Sample[at] = Refusal{Recipient: strings.Clone(r.Recipient), Client: r.Client, Source: strings.Clone(r.Source), Weight: weight}
		if !r.Authenticated { // else only the client was checked
			l.Sample[at].Sender = strings.Clone(r.Sender)
		}
		return true
	}
	err := w.segment(s)
	for _, l := range found {
		draw.Shuffle(len(l.Sample), func(i, j int) { l.Sample[i], l.Sample[j] = l.Sample[j], l.Sample[i] })
		l.weigh()
	}
	return found, err
}
