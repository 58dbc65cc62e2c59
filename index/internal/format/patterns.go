package format

import (
	"cmp"
	"fmt"
	"slices"

	"blockd/lists/pattern"
)

const (
	// MaxPatterns bounds the entries of all lists that are patterns, maxFreePatterns
	// those that are tried on every sender, at 1 to 10 µs each.
	MaxPatterns     = 50_000
	MaxFreePatterns = 100

	// MaxSteps bounds the expressions of all lists, in steps (pattern.Pattern.Steps): a set keeps all of them compiled,
	// in some 50 MiB. If all hold the same text, the first sender that has it waits for a second until they are.
	MaxSteps = 500_000

	maxNeed         = 16        // texts by which a pattern is looked for
	maxPatternBytes = 128 << 20 // of section 8
)

// EncodePatterns makes section 8 of the keys of patterns, which it sorts.
func EncodePatterns(keys []string) ([]byte, error) {
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
		b = AppendText(b, keys[i][1:], pattern.MaxText)
		b = append(b, byte(len(need)))
		for _, text := range need {
			b = AppendText(b, text, pattern.MaxText)
		}
	}
	return b, nil
}

// DecodePatterns reads so many patterns, in the order of their keys. Their texts
// share the memory of one string.
func DecodePatterns(b []byte, items uint64) ([]pattern.Stored, error) {
	all := string(b)
	c := Cursor{Rest: b}
	text := func() string {
		n := len(c.Text(pattern.MaxText))
		end := len(all) - len(c.Rest)
		return all[end-n : end]
	}
	patterns := make([]pattern.Stored, 0, min(items, uint64(len(b)/3)))
	needs := make([]string, 0, 2*cap(patterns)) // most have one or two
	for i := range items {
		p := pattern.Stored{Kind: pattern.Kind(c.Byte())}
		p.Text = text()
		from := len(needs)
		for range c.Byte() {
			needs = append(needs, text())
		}
		p.Need = needs[from:len(needs):len(needs)]
		last := pattern.Stored{}
		if i > 0 {
			last = patterns[i-1]
		}
		order := cmp.Or(cmp.Compare(last.Kind, p.Kind), cmp.Compare(last.Text, p.Text))
		if c.Bad || p.Kind != pattern.Glob && p.Kind != pattern.Regexp || p.Text == "" || order >= 0 || len(p.Need) > maxNeed {
			return nil, fmt.Errorf("pattern %d is damaged", i)
		}
		patterns = append(patterns, p)
	}
	if len(c.Rest) > 0 {
		return nil, fmt.Errorf("%d bytes behind the last pattern", len(c.Rest))
	}
	return patterns, nil
}
