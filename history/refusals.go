package history

import (
	"context"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Refused are the refusals of one list: how many there were, and some of them.
type Refused struct {
	Count  float64
	Sample []Refusal // drawn evenly; their weights add up to Count
}

// Refusal is one refusal of the past, for itself and others like it.
type Refusal struct {
	Sender    string // as in a Record; "" where the client alone was asked about
	Recipient string
	Client    netip.Addr
	Source    string
	Weight    float64 // how many it stands for
}

// The bounds of a look at past refusals. 2,000 of a list tell a fifth of its refusals
// from a quarter of them; fewer are kept of a file where there are many files and lists.
const (
	mostRefusals  = 20_000
	mostOfList    = 2_000
	leastOfList   = 50
	mostRead      = 512 << 20 // octets of segments, the newest first: twice a history of the usual size
	mostRepeated  = 20        // what a line that stands for more counts: nobody makes a rule of it by asking again
	blockedColumn = "\tblocked\t"
)

// refusalCache has what was found in segments that do not change any more, so that a
// load of lists reads the newest alone. What it has of a segment it has for as long as
// that is read, though its oldest lines may be past the time that is asked for.
type refusalCache struct {
	mu       sync.Mutex
	segments map[uint64]map[string]*Refused
}

// Refusals returns the refusals since a time, by list, those included that wait for
// the disk; lists says how many lists may be found. A nil Log has none.
//
// The first call reads up to mostRead octets, the newest, and later ones what has come
// since. Some 4 MB are kept, beside the segment in hand.
func (l *Log) Refusals(ctx context.Context, since time.Time, lists int) (map[string]*Refused, error) {
	if l == nil {
		return nil, nil
	}
	l.Flush()
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
	var wanted []segment
	octets := int64(0)
	for i := len(all) - 1; i >= 0 && octets < mostRead; i-- {
		if !all[i].written.Before(since) {
			wanted = append(wanted, all[i])
			octets += all[i].size
		}
	}
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

// weigh has the weights add up to the count again.
func (r *Refused) weigh() {
	sum := 0.
	for i := range r.Sample {
		sum += r.Sample[i].Weight
	}
	for i := range r.Sample {
		r.Sample[i].Weight *= r.Count / sum
	}
}

// refusals reads those of one segment, at most per of a list.
func (w *walker) refusals(s segment, since time.Time, per int) (map[string]*Refused, error) {
	found, seen := map[string]*Refused{}, map[string]int{}
	draw := rand.New(rand.NewPCG(s.number, 1)) // the same history, the same answer
	w.since, w.hint, w.castagnoli = since, []byte(blockedColumn), crc32.MakeTable(crc32.Castagnoli)
	w.each = func(r *Record) bool {
		if r.Verdict != "blocked" || r.List == "" || r.Exempt || r.Outcome == "accept" || r.Outcome == "tag" {
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
		if !r.Authenticated { // lists were asked about the client alone
			l.Sample[at].Sender = strings.Clone(r.Sender)
		}
		return true
	}
	err := w.segment(s.path)
	for _, l := range found {
		draw.Shuffle(len(l.Sample), func(i, j int) { l.Sample[i], l.Sample[j] = l.Sample[j], l.Sample[i] })
		l.weigh()
	}
	return found, err
}
