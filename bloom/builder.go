package bloom

// Builder fills a filter. It is for one goroutine.
type Builder struct{ blocks []block }

// NewBuilder returns a builder for n keys. More keys than n do no harm but to
// the rate of false positives.
func NewBuilder(n uint64, bitsPerKey float64) *Builder {
	return &Builder{blocks: make([]block, Blocks(n, bitsPerKey))}
}

// Add adds one key.
func (b *Builder) Add(h Hash) {
	b.blocks[place(h, uint64(len(b.blocks)))].add(uint32(h.Lo))
}

// AddBatch adds any number of keys. Like HasBatch it fetches all blocks of a batch
// first.
func (b *Builder) AddBatch(hs []Hash) {
	var at [BatchSize]uint64
	for len(hs) > 0 {
		batch := hs[:min(len(hs), BatchSize)]
		locate(&at, b.blocks, batch)
		if !prefetches {
			for i, h := range batch {
				b.blocks[at[i]][0] |= bit(uint32(h.Lo), salts[0])
			}
		}
		for i, h := range batch {
			b.blocks[at[i]].add(uint32(h.Lo))
		}
		hs = hs[len(batch):]
	}
}

func (b *block) add(x uint32) {
	for lane, salt := range salts {
		b[lane] |= bit(x, salt)
	}
}

// Filter ends the building and hands the bits over. The Builder is empty then
// and must not be used again.
func (b *Builder) Filter() *Filter {
	f := &Filter{blocks: b.blocks}
	b.blocks = nil
	return f
}
