package index

import "blockd/bloom"

// fetchedLines are fetched from where a record is meant to begin. Five in six of ten
// million addresses lie within them; each more costs what it saves.
const fetchedLines = 4

// fetchPage starts to fetch the lines of a key's page that its look-up needs, all at
// once: the head, those around its slot, and those that its record is meant to be in.
// They are in no cache, of a large store. Found through each other they are three
// misses one behind the other.
func (ix *Index) fetchPage(h bloom.Hash) {
	number, p := ix.file.firstPage(h)
	if p.pages == 0 {
		return
	}
	page := ix.pages[number*pageSize:][:pageSize]
	tag := uint16(h.Hi)
	prefetch(&page[0])
	slot := slotsEnd(slotGuess(tag, ix.usual))
	prefetch(&page[max(slot-cacheLine/2, 0)])
	prefetch(&page[slot+cacheLine/2])
	at := recordGuess(tag, ix.usual)
	for range fetchedLines {
		prefetch(&page[min(at, pageSize-1)])
		at += cacheLine
	}
}
