package index

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"blockd/addr"
	"blockd/lists"
	"blockd/pattern"
)

// The key of a pattern is a tag and its text, an expression without slashes. So the
// store holds what its sources say, as of any key; only which patterns there are
// cannot be asked by hash, and stands in section 8.
const (
	tagGlob   = byte(pattern.Glob)
	tagRegexp = byte(pattern.Regexp)

	// maxPatterns bounds the entries of all lists that are patterns, maxFreePatterns
	// those that are tried on every sender, at 1 to 10 µs each.
	maxPatterns     = 50_000
	maxFreePatterns = 100

	maxNeed         = 16        // texts by which a pattern is looked for
	maxPatternBytes = 128 << 20 // of section 8
)

// patternKey is the key of a pattern of an item.
func patternKey(k lists.Kind, text string) string {
	if k == lists.Regexp {
		return string(tagRegexp) + strings.TrimSuffix(strings.TrimPrefix(text, "/"), "/")
	}
	return string(tagGlob) + text
}

// patternOf tells the pattern of a key, as lint prints it.
func patternOf(key string) (lists.Kind, string, bool) {
	switch {
	case key == "":
	case key[0] == tagGlob:
		return lists.Glob, key[1:], true
	case key[0] == tagRegexp:
		return lists.Regexp, "/" + key[1:] + "/", true
	}
	return 0, "", false
}

// addPattern takes in one entry that is a pattern.
func (w *worker) addPattern(expiry int64, it *lists.Item) error {
	key := patternKey(it.Kind, it.Pattern)
	if len(key) < 2 || len(key) > maxStored || it.Scope != lists.Exact {
		return fmt.Errorf("pattern of %d octets with scope %d", len(it.Pattern), it.Scope)
	}
	w.patterns++
	if it.Free() {
		w.freePatterns++
	}
	return w.put(key, expiry, it)
}

// boundPatterns refuses the source of a row that brings more patterns than an index
// holds. What it has read does not count.
func (b *builder) boundPatterns(number int) error {
	c := b.in.counts()
	var err error
	switch {
	case c.patterns > maxPatterns:
		err = fmt.Errorf("with it all lists have %d patterns, at most %d can be held", c.patterns, maxPatterns)
	case c.freePatterns > maxFreePatterns:
		err = fmt.Errorf("with it all lists have %d patterns without a text of three octets that a sender must hold, at most %d can be tried on every sender",
			c.freePatterns, maxFreePatterns)
	default:
		return nil
	}
	b.in.rows[number].live = false
	row := &b.rows[number]
	fe := &lists.FileError{Path: row.Source.Path, Class: lists.TooBig, Err: err}
	row.Summary.Verdict, row.Summary.Why, row.Summary.Hash = lists.Refused, fe.Why(), [16]byte{}
	return fe
}

// encodePatterns makes section 8 of the keys of patterns, which it sorts.
func encodePatterns(keys []string) ([]byte, error) {
	slices.Sort(keys)
	patterns := make([]*pattern.Pattern, len(keys))
	for i, key := range keys {
		var err error
		if patterns[i], err = pattern.Parse(pattern.Kind(key[0]), key[1:]); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", key[1:], err)
		}
	}
	var b []byte
	for i, need := range pattern.Choose(patterns) {
		b = append(b, keys[i][0])
		b = appendText(b, keys[i][1:], pattern.MaxText)
		b = append(b, byte(len(need)))
		for _, text := range need {
			b = appendText(b, text, pattern.MaxText)
		}
	}
	return b, nil
}

// decodePatterns reads so many patterns, in the order of their keys. Their texts
// share the memory of one string.
func decodePatterns(b []byte, items uint64) ([]pattern.Stored, error) {
	all := string(b)
	c := cursor{rest: b}
	text := func() string {
		n := len(c.text(pattern.MaxText))
		end := len(all) - len(c.rest)
		return all[end-n : end]
	}
	patterns := make([]pattern.Stored, 0, min(items, uint64(len(b)/3)))
	needs := make([]string, 0, 2*cap(patterns)) // most have one or two
	for i := range items {
		p := pattern.Stored{Kind: pattern.Kind(c.byte())}
		p.Text = text()
		from := len(needs)
		for range c.byte() {
			needs = append(needs, text())
		}
		p.Need = needs[from:len(needs):len(needs)]
		last := pattern.Stored{}
		if i > 0 {
			last = patterns[i-1]
		}
		order := cmp.Or(cmp.Compare(last.Kind, p.Kind), cmp.Compare(last.Text, p.Text))
		if c.bad || p.Kind != pattern.Glob && p.Kind != pattern.Regexp || p.Text == "" || order >= 0 || len(p.Need) > maxNeed {
			return nil, fmt.Errorf("pattern %d is damaged", i)
		}
		patterns = append(patterns, p)
	}
	if len(c.rest) > 0 {
		return nil, fmt.Errorf("%d bytes behind the last pattern", len(c.rest))
	}
	return patterns, nil
}

// loadPatterns reads which patterns there are. They are compiled when a sender
// first comes near them.
func (ix *Index) loadPatterns(f *os.File) error {
	s := ix.head.sections[secPatterns]
	if s.items == 0 {
		return nil
	}
	b, err := readSection(f, s)
	if err != nil {
		return err
	}
	patterns, err := decodePatterns(b, s.items)
	if err != nil {
		return corrupt(s.offset, "%v", err)
	}
	ix.patterns = pattern.NewSet(patterns)
	return nil
}

// lookupPatterns appends the entries of all patterns that match an address, in the
// order of Lists and lines. Call it only where there are patterns.
func (ix *Index) lookupPatterns(dst []Match, address string, now int64) ([]Match, error) {
	var buf [16]int
	hits, err := ix.patterns.Match(buf[:0], address)
	if err != nil {
		return dst, ix.unreadable(corrupt(ix.head.sections[secPatterns].offset, "%v", err))
	}
	if len(hits) == 0 {
		return dst, nil
	}
	from := len(dst)
	err = ix.mapping.guarded(func() error {
		for _, i := range hits {
			p := ix.patterns.Stored(i)
			key := string(byte(p.Kind)) + p.Text
			c, found, err := ix.find(ix.head.hash.sumString(key), key)
			if err != nil {
				return err
			}
			if !found {
				return corrupt(ix.head.sections[secPatterns].offset, "pattern %d is not in the store", i)
			}
			kind, name, _ := patternOf(key)
			if dst, err = ix.appendMatches(dst, c, Match{Kind: kind, Pattern: name}, 1<<lists.Exact, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return dst[:from], ix.unreadable(err)
	}
	slices.SortStableFunc(dst[from:], func(a, b Match) int {
		return cmp.Or(cmp.Compare(a.Row, b.Row), cmp.Compare(a.Line, b.Line))
	})
	return dst, nil
}

// batchPatterns adds the entries of patterns to those that b has of each sender.
func (ix *Index) batchPatterns(b *Batch, senders []addr.Addr, now int64) {
	all, begin := b.spare[:0], 0
	for i := range b.answers {
		a := &b.answers[i]
		from := len(all)
		all = append(all, b.matches[begin:a.end]...)
		begin = a.end
		if key, ok := senders[i].Key(); ok && a.err == nil {
			var err error
			if all, err = ix.lookupPatterns(all, key.Text, now); err != nil {
				all, a.err = all[:from], err
			}
		}
		a.end = len(all)
	}
	b.matches, b.spare = all, b.matches
}

// holdsPatterns holds the table of patterns against those of the store.
func (ix *Index) holdsPatterns(keys []string) error {
	s := ix.head.sections[secPatterns]
	slices.Sort(keys)
	same := uint64(len(keys)) == s.items
	for i := 0; same && i < len(keys); i++ {
		p := ix.patterns.Stored(i)
		same = keys[i][0] == byte(p.Kind) && keys[i][1:] == p.Text
	}
	if !same {
		return corrupt(s.offset, "store has other patterns than the table of them")
	}
	return nil
}

// describe gives item the kind of a stored key, and what it names.
func describe(item *lists.Item, key string) {
	if net, ok := netOf(key); ok {
		item.Kind, item.Net = netKind(net), net
		return
	}
	if kind, text, ok := patternOf(key); ok {
		item.Kind, item.Pattern = kind, text
		return
	}
	item.Key = keyOf(key)
	item.Kind = keyKind(item.Key.Kind)
}

// note takes in what a key is, each once: networks and patterns have tables of
// their own.
func (m *merged) note(key []byte) {
	m.nets.note(key)
	if key[0] == tagGlob || key[0] == tagRegexp {
		m.patterns = append(m.patterns, string(key))
	}
}
