package main

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"blockd/bloom"
	"blockd/bloom/filter"
	"blockd/internal/term"
)

func newFilterSize() *cobra.Command {
	var count string
	var rate float64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "size -n N -p P [--json]",
		Short: "say how large a filter is",
		Long: `Show the size of filters for N keys that say "perhaps" to a share P of all others: the
classic one, that of other programs; a split block filter, which the index has; and a
binary fuse filter of 8 bits, whose rate is fixed. Below stands how often the classic
one is wrong while it fills, and when it holds more keys than it was made for.

N may end with k, M or G.`,
		Example: `  blockd filter size -n 10M -p 0.001
  blockd filter size -n 250k -p 0.01 --json | jq .classic.bits`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := parseCount(count)
			if err != nil {
				return err
			}
			if !(rate >= filter.MinRate && rate < 1) {
				return usagef("-p: want a rate from %g to below 1, have %g", filter.MinRate, rate)
			}
			sizes := newFilterSizes(n, rate)
			if asJSON {
				return term.JSON(cmd.OutOrStdout(), sizes)
			}
			return sizes.print(cmd)
		},
	}
	cmd.Flags().StringVarP(&count, "count", "n", "", "`N`, the number of keys")
	cmd.Flags().Float64VarP(&rate, "rate", "p", 0.01, "`P`, the rate of false positives, such as 0.01")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// mostKeys is what -n may say.
const mostKeys = 1 << 40

// parseCount reads a number such as 250k, 10M or 1,000.
func parseCount(text string) (uint64, error) {
	digits, factor := strings.ReplaceAll(text, ",", ""), uint64(1)
	for i, unit := range []string{"k", "M", "G"} {
		if number, ok := strings.CutSuffix(digits, unit); ok {
			digits, factor = number, uint64(math.Pow10(3*(i+1)))
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 || n > mostKeys/factor {
		return 0, usagef("-n: want a number of keys, such as 250000, 250k or 10M, have %q", text)
	}
	return n * factor, nil
}

// filterSize is the size of one kind of filter.
type filterSize struct {
	Bits uint64  `json:"bits"`
	K    int     `json:"k"`
	Rate float64 `json:"rate"`
}

// filterSizes are the sizes of all kinds for the same keys.
type filterSizes struct {
	n          uint64
	Classic    filterSize `json:"classic"`
	SplitBlock filterSize `json:"split_block"`
	Fuse8      filterSize `json:"fuse8"`
}

func newFilterSizes(n uint64, p float64) filterSizes {
	bits, k := filter.ClassicSize(n, p)
	blocks := 1 + uint64(sort.Search(math.MaxInt64, func(blocks int) bool {
		return bloom.FalsePositiveRate(n, uint64(blocks)+1) <= p
	}))
	return filterSizes{
		n:          n,
		Classic:    filterSize{bits, k, filter.ClassicRate(n, bits, k)},
		SplitBlock: filterSize{blocks * bloom.BlockBits, bloom.BlockBits / 32, bloom.FalsePositiveRate(n, blocks)},
		Fuse8:      filterSize{filter.Fuse8Bits(n), 3, filter.Fuse8Rate},
	}
}

func (s *filterSizes) print(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	var t term.Table
	t.Add("filter", "bits", "size", "bits a key", "hashes", "false positives")
	for _, row := range []struct {
		name string
		filterSize
	}{{"classic", s.Classic}, {"split block", s.SplitBlock}, {"fuse, 8 bits", s.Fuse8}} {
		t.Add(row.name, term.Grouped(row.Bits), term.Octets(int64(row.Bits+7)/8), fmt.Sprintf("%.2f", float64(row.Bits)/float64(s.n)),
			strconv.Itoa(row.K), shownRate(row.Rate))
	}
	if err := t.Print(out, 1, 2, 3, 4, 5); err != nil {
		return err
	}
	fmt.Fprintln(out)
	var fill term.Table
	fill.Add("keys in the classic filter", "", "false positives")
	for _, percent := range []uint64{25, 50, 75, 100, 125, 150, 200} {
		keys := uint64(float64(s.n) * float64(percent) / 100)
		fill.Add(term.Grouped(keys), fmt.Sprintf("%d %%", percent), shownRate(filter.ClassicRate(keys, s.Classic.Bits, s.Classic.K)))
	}
	return fill.Print(out, 0, 1, 2)
}
