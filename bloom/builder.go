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

// AddBatch adds any number of keys. Like HasBatch it first touches all blocks of
// a batch, so that their cache misses overlap.
func (b *Builder) AddBatch(hs []Hash) {
	n := uint64(len(b.blocks))
	for len(hs) > 0 {
		batch := hs[:min(len(hs), BatchSize)]
		for _, h := range batch {
			b.blocks[place(h, n)][0] |= bit(uint32(h.Lo), salts[0])
		}
		for _, h := range batch {
			b.blocks[place(h, n)].add(uint32(h.Lo))
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
