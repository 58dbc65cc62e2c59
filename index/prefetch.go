package index

import (
	"blockd/bloom"

	"blockd/index/internal/format"
	"blockd/index/internal/memory"
)

// fetchedLines are fetched from where a record is meant to begin. Five in six of ten
// million addresses lie within them; each more costs what it saves.
const fetchedLines = 4

// fetchPage starts to fetch the lines of a key's page that its look-up needs, all at
// once: the head, those around its slot, and those that its record is meant to be in.
// They are in no cache, of a large store. Found through each other they are three
// misses one behind the other.
func (ix *Index) fetchPage(h bloom.Hash) {
	number, p := ix.file.FirstPage(h)
	if p.Pages == 0 {
		return
	}
	page := ix.pages[number*format.PageSize:][:format.PageSize]
	tag := uint16(h.Hi)
	memory.Prefetch(&page[0])
	slot := format.SlotsEnd(format.SlotGuess(tag, ix.usual))
	memory.Prefetch(&page[max(slot-format.CacheLine/2, 0)])
	memory.Prefetch(&page[slot+format.CacheLine/2])
	at := format.RecordGuess(tag, ix.usual)
	for range fetchedLines {
		memory.Prefetch(&page[min(at, format.PageSize-1)])
		at += format.CacheLine
	}
}
