package rollup

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	// keptMinutes is how many minutes stay minutes: 26 hours with mail in each. moreMinutes may come before the oldest
	// become hours, so that the file is written as a whole twice a day.
	keptMinutes, moreMinutes = 26 * 60, 12 * 60

	// maxKept bounds the file, in octets: two years of a dozen lists. Then the oldest hours go.
	maxKept = 4 << 20

	// maxCells bounds the cells that a file names. Further ones count for Others.
	maxCells = 2048
)

// bin is what one minute or one hour brought. Several may be about the same time: they add up.
type bin struct {
	at   int64 // its first minute, since 1970
	hour bool
	text string // pairs ID:COUNT with a blank between, in base 36
}

// kept are bins in the order in which they came, and the cells that they name by number.
type kept struct {
	bins    []bin
	minutes int // of bins
	octets  int // of their texts
	cells   []cell
	ids     map[cell]int
	since   int64 // the minute from which counts are kept; 0: there are none
	whole   bool  // what the history had of before is among them
}

const perBin = 24 // octets of a line beside its text, about

func (k *kept) add(b bin) {
	k.bins = append(k.bins, b)
	k.octets += len(b.text) + perBin
	if !b.hour {
		k.minutes++
	}
}

// id numbers a cell. fresh are those that had no number.
func (k *kept) id(c cell) (id int, fresh bool) {
	if id, known := k.ids[c]; known {
		return id, false
	}
	if len(k.cells) >= maxCells && c.name != Others {
		return k.id(cell{c.kind, Others, c.what})
	}
	if k.ids == nil {
		k.ids = map[cell]int{}
	}
	k.ids[c] = len(k.cells)
	k.cells = append(k.cells, c)
	return len(k.cells) - 1, true
}

// text writes counts, in the order of their cells. fresh are cells that had no number before.
func (k *kept) text(counts map[cell]uint64) (text string, fresh []int) {
	sums := map[int]uint64{}
	for c, n := range counts {
		id, first := k.id(c)
		if first {
			fresh = append(fresh, id)
		}
		sums[id] += n
	}
	slices.Sort(fresh)
	var b []byte
	for _, id := range slices.Sorted(maps.Keys(sums)) {
		if len(b) > 0 {
			b = append(b, ' ')
		}
		b = append(strconv.AppendUint(b, uint64(id), 36), ':')
		b = strconv.AppendUint(b, sums[id], 36)
	}
	return string(b), fresh
}

// each calls use for every count of a bin. It is false if the text is none.
func (k *kept) each(b *bin, use func(c cell, n uint64)) bool {
	for pair := range strings.SplitSeq(b.text, " ") {
		number, count, _ := strings.Cut(pair, ":")
		id, err := strconv.ParseUint(number, 36, 31)
		n, bad := strconv.ParseUint(count, 36, 63)
		if cmp.Or(err, bad) != nil || id >= uint64(len(k.cells)) {
			return false
		}
		use(k.cells[id], n)
	}
	return true
}

// sum adds the counts of a bin to one place of the rows of their cells, by the numbers of these; a nil row is not wanted. A full file has
// a million counts, and each look at a chart sums some of them, so it reads digits itself.
func (b *bin) sum(rows [][]uint64, at int) {
	id, n := uint64(0), uint64(0)
	take := func() {
		if id < uint64(len(rows)) && rows[id] != nil {
			rows[id][at] += n
		}
	}
	for i := 0; i < len(b.text); i++ {
		switch c := b.text[i]; {
		case c == ':':
			id, n = n, 0
		case c == ' ':
			take()
			n = 0
		case c <= '9':
			n = 36*n + uint64(c-'0')
		default:
			n = 36*n + uint64(c|0x20-'a'+10)
		}
	}
	take()
}

// tidy makes hours of minutes where there are too many, and removes the oldest where there are too many octets. It reports
// whether it has changed anything.
func (k *kept) tidy() bool {
	full := k.octets > maxKept
	if k.minutes < keptMinutes+moreMinutes && !full {
		return false
	}
	was := *k
	*k = kept{since: was.since, whole: was.whole}
	surplus := max(0, was.minutes-keptMinutes)
	var hour int64 // that sum is about
	sum := map[cell]uint64{}
	flush := func() {
		if len(sum) > 0 {
			text, _ := k.text(sum)
			k.add(bin{hour, true, text})
			clear(sum)
		}
	}
	drop := 0 // octets that have to go
	if full {
		drop = was.octets - maxKept*7/8
	}
	for i := range was.bins {
		b := &was.bins[i]
		if drop > 0 {
			if drop -= len(b.text) + perBin; !b.hour {
				surplus--
			}
			continue
		}
		if !b.hour && surplus <= 0 {
			flush()
			was.each(b, func(c cell, n uint64) { sum[c] += n })
			text, _ := k.text(sum)
			k.add(bin{b.at, false, text})
			clear(sum)
			continue
		}
		at := b.at - b.at%60
		if !b.hour {
			surplus--
		}
		if at != hour {
			flush()
			hour = at
		}
		was.each(b, func(c cell, n uint64) { sum[c] += n })
	}
	flush()
	if full && len(k.bins) > 0 {
		k.since = max(k.since, k.bins[0].at)
	}
	return true
}

// before puts bins before the others.
func (k *kept) before(all []bin) {
	have := k.bins
	k.bins, k.minutes, k.octets = nil, 0, 0
	for _, b := range all {
		k.add(b)
	}
	for _, b := range have {
		k.add(b)
	}
}

// String is for tests that fail.
func (b bin) String() string { return fmt.Sprintf("%d/%t %s", b.at, b.hour, b.text) }
