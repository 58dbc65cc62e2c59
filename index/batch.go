package index

import (
	"math/bits"
	"runtime"
	"time"

	"blockd/bloom"
	"blockd/mail/addr"
)

// Batch is the memory of LookupBatch, and holds its answers until the next call.
// The zero Batch is ready; one that is used again allocates only for matches. It
// is for one goroutine at a time and keeps the senders' texts in memory.
type Batch struct {
	matches []Match
	answers []batchAnswer
	spare   []Match // of the last call

	keys     [addr.MaxKeys]addr.Key // of one sender
	asked    uint64
	waiting  int // hashes that the filter has not been asked for
	hashes   [bloom.BatchSize]bloom.Hash
	of       [bloom.BatchSize]batchKey // which key each belongs to
	pending  int                       // suspects that are not confirmed
	suspects [bloom.BatchSize]suspect
}

type batchAnswer struct {
	end int // of the sender's matches, which begin where the last sender's end
	err error
}

type batchKey struct {
	key    addr.Key
	sender int
	own    bool
}

// LookupBatch is Lookup for many senders: for each the matches, or the error, that
// Lookup gives. The keys of all are hashed, probed and confirmed together, so that
// their cache misses overlap: a clear sender costs half of what it costs alone, a
// listed one a third. It does not allocate when b was used before and nothing
// matches.
func (ix *Index) LookupBatch(b *Batch, senders []addr.Addr, now time.Time) {
	b.matches, b.answers, b.asked = b.matches[:0], b.answers[:0], 0
	b.waiting, b.pending = 0, 0 // a call that panicked may have left some
	seconds := now.Unix()
	for i, a := range senders {
		b.answers = append(b.answers, batchAnswer{})
		keys := a.Keys(b.keys[:0])
		own := localLast(keys)
		for k := range keys {
			if ix.file.Kinds&keys[k].KindBit() == 0 {
				continue // no list holds such keys
			}
			b.hashes[b.waiting] = ix.file.Hash.SumString(keys[k].Text)
			b.of[b.waiting] = batchKey{keys[k], i, k == own}
			if b.waiting++; b.waiting == len(b.hashes) {
				ix.ask(b, seconds)
			}
		}
	}
	ix.ask(b, seconds)
	ix.confirmBatch(b, seconds)
	// So far end is the number of a sender's matches, which are in order.
	end := 0
	for i := range b.answers {
		end += b.answers[i].end
		b.answers[i].end = end
	}
	if ix.patterns != nil {
		ix.batchPatterns(b, senders, seconds)
	}
	ix.asked.Add(b.asked)
	runtime.KeepAlive(ix) // else the mapping may go while the last page is read
}

// Matches are those of the i-th sender, as Lookup gives them. They hold until the
// next LookupBatch.
func (b *Batch) Matches(i int) ([]Match, error) {
	begin := 0
	if i > 0 {
		begin = b.answers[i-1].end
	}
	a := b.answers[i]
	if a.err != nil || a.end == begin {
		return nil, a.err
	}
	return b.matches[begin:a.end:a.end], nil
}

// ask asks the filter for the keys that wait. Those that are perhaps in the store
// have their pages fetched and are confirmed at the next ask: until then the next
// keys are hashed and the filter is asked for them, and nobody waits for a page.
func (ix *Index) ask(b *Batch, now int64) {
	n := b.waiting
	b.waiting = 0
	b.asked += uint64(n)
	perhaps, err := ix.perhaps(b.hashes[:n])
	if err != nil {
		perhaps = 0
		for i := range n { // which of them is it?
			one, err := ix.perhaps(b.hashes[i : i+1])
			if err != nil {
				b.answers[b.of[i].sender].err = err
			}
			perhaps |= one << i
		}
	}
	ix.confirmBatch(b, now)
	for ; perhaps != 0; perhaps &= perhaps - 1 {
		i := bits.TrailingZeros32(perhaps)
		ix.fetchPage(b.hashes[i])
		b.suspects[b.pending] = suspect{hash: b.hashes[i], key: b.of[i].key, own: b.of[i].own, sender: b.of[i].sender}
		b.pending++
	}
}

// confirmBatch confirms the suspects. An error is that of the sender whose key it
// is, so they are confirmed one by one when there is one.
func (ix *Index) confirmBatch(b *Batch, now int64) {
	suspects := b.suspects[:b.pending]
	b.pending = 0
	if len(suspects) == 0 {
		return
	}
	before := len(b.matches)
	matches, err := ix.confirm(b.matches, suspects, now)
	if err == nil {
		b.matches = matches
		for _, s := range suspects {
			b.answers[s.sender].end += s.matches
		}
		return
	}
	b.matches = matches[:before]
	for i := range suspects {
		s := &suspects[i]
		before := len(b.matches)
		if matches, err = ix.confirm(b.matches, suspects[i:i+1], now); err != nil {
			b.matches, b.answers[s.sender].err = matches[:before], err
			continue
		}
		b.matches = matches
		b.answers[s.sender].end += s.matches
	}
}
