package index

import "blockd/bloom"

// touchHead reads a line of the page's head and the lines where the key's tag and
// its offset are to be expected, if the page has as many records as most.
func (ix *Index) touchHead(h bloom.Hash) byte {
	number, p := ix.firstPage(h)
	if p.pages == 0 {
		return 0
	}
	page := ix.pages[number*pageSize:][:pageSize]
	tag := pageHead + slotGuess(uint16(h.Hi), ix.usual)*2
	return page[0] | page[tag] | page[tag+2*ix.usual]
}

// touchRecord reads the line in which the record of the key's tag begins, and the
// next one. What it reads may be anything: the page's sum is yet to be asked for.
func (ix *Index) touchRecord(h bloom.Hash) byte {
	number, p := ix.firstPage(h)
	if p.pages == 0 {
		return 0
	}
	page := ix.pages[number*pageSize:][:pageSize]
	if !pageFits(page) {
		return 0
	}
	n, tag := pageRecords(page), uint16(h.Hi)
	i := pageSeek(page, n, tag)
	if i == n || pageTag(page, i) != tag {
		return 0
	}
	at := pageOffset(page, n, i) % pageSize
	return page[at] | page[min(at+64, pageSize-1)]
}
